//! `--simulate-cores` and `seriatim simulate`: the parts that every build has. A build without the feature
//! `simulate` refuses them.

mod arguments;
#[cfg(feature = "simulate")]
mod commands;
#[cfg(feature = "simulate")]
mod cores;
#[cfg(feature = "simulate")]
mod costs;
#[cfg(feature = "simulate")]
mod validate;
#[cfg(not(feature = "simulate"))]
mod without;

pub(crate) use arguments::command;
#[cfg(feature = "simulate")]
pub(crate) use cores::{AUTO, Simulation, at, roles, working_sets};
#[cfg(not(feature = "simulate"))]
pub(crate) use without::{AUTO, Simulation, at, roles, run, working_sets};

#[cfg(feature = "simulate")]
pub(crate) fn run(matches: &clap::ArgMatches) -> Result<(), crate::Failure> {
    match matches.subcommand() {
        Some(("costs", matches)) => costs::run(matches),
        Some(("validate", matches)) => validate::run(matches),
        _ => unreachable!("clap requires a known subcommand"),
    }
}

/// The line about simulated cores in a report as text.
pub(crate) fn line(simulated: &serde_json::Value) -> String {
    let text = |name: &str| simulated[name].as_str().unwrap_or("?").to_owned();
    let proven = match (simulated["proven"] == true, simulated["validated_at"].as_str()) {
        (true, Some(revision)) => format!("proven at revision {revision}"),
        (_, Some(revision)) => format!("figures unproven at revision {revision}"),
        (_, None) => "figures unproven".to_owned(),
    };
    format!("{} cores, costs {}, regions {}; {proven}", simulated["cores"], text("costs"), text("regions"))
}
