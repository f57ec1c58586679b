//! `seriatim simulate validate`: how far simulated cores are from threads on this machine.
//!
//! Every protocol runs the same workloads on one and two threads of the plain build and on as many simulated cores. Runs of threads are
//! repeated in rounds, so that what disturbs the machine for a while disturbs all protocols; the middle of each counts. The table of
//! costs is printed with the comparison in it, and a simulation by that table knows which protocols are proven.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use serde_json::Value;
use seriatim_base::{say, talk};
use seriatim_simulate::validation::{Compared, Figures, judge, standings};

use super::cores;
use super::costs::{bench, modes, number};
use crate::Failure;

const WORKLOADS: &[&[&str]] = &[
    &["tpcc", "--warehouses", "1"],
    &["tpcc", "--warehouses", "2"],
    &["ycsb", "--ops", "16", "--records", "100000", "--theta", "0"],
    &["ycsb", "--ops", "16", "--records", "100000", "--theta", "0.8"],
    &["ycsb", "--ops", "16", "--records", "100000", "--theta", "0.99"],
];

const CORES: [u16; 2] = [1, 2];

fn runs() -> impl Iterator<Item = (&'static [&'static str], u16)> {
    WORKLOADS.iter().flat_map(|&workload| CORES.map(|cores| (workload, cores)))
}

/// Runs of threads, of which the middle one counts.
const ROUNDS: usize = 5;

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(Failure::run)?;
    let plain = matches.get_one::<PathBuf>("plain").cloned().unwrap_or_else(|| own.clone());
    let seconds = matches.get_one::<f64>("seconds").copied().unwrap_or(0.5);
    let given = matches.get_one::<PathBuf>("costs");
    let mut table = given.map_or_else(cores::default_table, cores::read)?;
    let protocols: Vec<(String, String)> =
        table.protocols.iter().map(|of| (of.protocol.clone(), of.regions.clone())).collect();
    table.validation.clear();
    // Threads first: they are what a quiet machine is needed for.
    let mut real = Vec::new();
    for (workload, cores) in runs() {
        let mut rounds: Vec<Vec<Figures>> = vec![Vec::new(); protocols.len()];
        for _ in 0..ROUNDS {
            for ((protocol, regions), runs) in protocols.iter().zip(&mut rounds) {
                runs.push(on_threads(&plain, workload, protocol, regions, cores, seconds)?);
            }
        }
        real.extend(rounds.into_iter().map(middle));
        talk!("{} on {cores} threads", workload.join(" "));
    }
    talk!("threads have been measured; simulated cores do not depend on how busy the machine is");
    for ((workload, cores), real) in runs().zip(real.chunks(protocols.len())) {
        let begin = table.validation.len();
        for ((protocol, regions), &real) in protocols.iter().zip(real) {
            let simulated = on_cores(&own, workload, protocol, regions, cores, given)?;
            let (workload, protocol, regions) = (workload.join(" "), protocol.clone(), regions.clone());
            table.validation.push(Compared { workload, cores, protocol, regions, real, simulated });
        }
        let rows = &table.validation[begin..];
        for row in rows {
            let [real, simulated] = standings(rows, row);
            let (aborts, said) = (row.real.aborts * 100.0, row.simulated.aborts * 100.0);
            talk!(
                "{:<55} {cores} {:<9} {:<8} standing {real:.2} simulated {simulated:.2}, aborts {aborts:.1} % simulated {said:.1} %",
                row.workload,
                row.protocol,
                row.regions
            );
        }
    }
    for (protocol, regions) in &protocols {
        if let Some(verdict) = judge(&table.validation, protocol, regions) {
            let word = if verdict.is_proven() { "proven" } else { "unproven" };
            let (standing, aborts) = (verdict.standing * 100.0, verdict.aborts * 100.0);
            talk!(
                "{protocol:<10} {regions:<8} {word}: standing off by {standing:.0} % at most, aborts by {aborts:.1} points"
            );
        }
    }
    let text = serde_json::to_string_pretty(&table).map_err(Failure::run)?;
    Ok(say!("{text}\n")?)
}

fn common<'a>(protocol: &'a str, htm: &'a str) -> [&'a str; 9] {
    ["--protocol", protocol, "--htm", htm, "--no-check", "--seed", "1", "--format", "json"]
}

fn on_threads(
    plain: &Path,
    workload: &[&str],
    protocol: &str,
    regions: &str,
    threads: u16,
    seconds: f64,
) -> Result<Figures, Failure> {
    let (threads, seconds) = (threads.to_string(), seconds.to_string());
    let length = ["--threads", &threads, "--seconds", &seconds, "--warmup", "0.3"];
    Ok(figures(&bench(plain, &[workload, &common(protocol, modes(regions)[0]), &length])?))
}

fn on_cores(
    own: &Path,
    workload: &[&str],
    protocol: &str,
    regions: &str,
    cores: u16,
    costs: Option<&PathBuf>,
) -> Result<Figures, Failure> {
    let (cores, costs) = (cores.to_string(), costs.map(|file| file.display().to_string()));
    let mut more = vec!["--simulate-cores", &cores];
    more.extend(costs.iter().flat_map(|file| ["--costs", file]));
    Ok(figures(&bench(own, &[workload, &common(protocol, modes(regions)[1]), &more])?))
}

/// What a run came to. Seconds are those that threads had processors, where the system tells it: others on the machine have them as well.
fn figures(report: &Value) -> Figures {
    let (committed, aborted) = (number(&report["committed"]), number(&report["conflict_aborted"]));
    let processors = report["processor_seconds"].as_f64().map(|seconds| seconds / number(&report["threads"]).max(1.0));
    let per_second = processors.map_or_else(|| number(&report["committed_per_second"]), |seconds| committed / seconds);
    Figures { per_second, aborts: aborted / (committed + aborted).max(1.0) }
}

/// The middle figures, each by itself, rounded to what a run can tell.
fn middle(runs: Vec<Figures>) -> Figures {
    let middle = |of: fn(&Figures) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Figures { per_second: middle(|of| of.per_second), aborts: middle(|of| of.aborts) }
}
