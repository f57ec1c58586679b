//! The arguments. Workloads bring their own options: the registry lists them, this file only offers them.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, builder::PossibleValuesParser, value_parser};
use seriatim_workload::WORKLOADS;

const EXAMPLES: &str = "\
Examples:
  seriatim bench tpcc --warehouses 1 --seconds 10      TPC-C's full mix, with its consistency conditions checked
  seriatim bench ycsb --core A --threads 2             YCSB workload A
  seriatim bench roofline                              TPC-C over plain arrays: the speed of light on this machine
  seriatim protocols                                   what there is to choose from";

pub(crate) fn command() -> Command {
    Command::new("seriatim")
        .version(concat!(env!("CARGO_PKG_VERSION")))
        .about("Seriatim: a serializable in-memory OLTP database. This binary runs its benchmarks.")
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(bench())
        .subcommand(
            Command::new("protocols")
                .about("Lists the concurrency-control protocols: name, paper, needs, gives")
                .arg(format()),
        )
}

fn format() -> Arg {
    Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .default_value("text")
        .value_parser(["text", "json"])
        .help("What to print on standard output")
}

fn number(name: &'static str, value: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).default_value(default).help(help)
}

fn run_options(command: Command) -> Command {
    command
        .arg(number("threads", "N", "1", "Threads, a terminal each").value_parser(value_parser!(u16).range(1..=4096)))
        .arg(number("seconds", "S", "10", "Length of the measurement").value_parser(seconds))
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .help("Determines rows and inputs; printed, drawn if not given"),
        )
        .arg(format())
}

fn bench() -> Command {
    let mut names: Vec<&str> = vec!["auto"];
    names.extend(seriatim::protocols().iter().map(|protocol| protocol.name));
    let mut bench = Command::new("bench")
        .about("Runs a workload and reports throughput, latency, aborts and whether the data is still consistent")
        .subcommand_required(true)
        .arg_required_else_help(true);
    for entry in WORKLOADS {
        let mut workload = run_options(Command::new(entry.name).about(entry.about))
            .arg(number("warmup", "S", "2", "Seconds that run before and do not count").value_parser(seconds))
            .arg(
                number("protocol", "P", "auto", "Concurrency-control protocol")
                    .value_parser(PossibleValuesParser::new(names.clone())),
            )
            .arg(number("htm", "MODE", "auto", "How regions run").value_parser(["auto", "rtm", "emulated", "absent"]))
            .arg(
                number("durability", "MODE", "off", "What survives the process; only off is built")
                    .value_parser(["off"]),
            )
            .arg(
                Arg::new("prefault")
                    .long("prefault")
                    .value_name("MIB")
                    .value_parser(value_parser!(u64))
                    .help("Memory to touch beforehand, in MiB; by default what the run is expected to need"),
            )
            .arg(
                Arg::new("no-check")
                    .long("no-check")
                    .action(ArgAction::SetTrue)
                    .help("Skip the consistency check after the run"),
            );
        for knob in entry.knobs {
            let arg = Arg::new(knob.name).long(knob.name).value_name(knob.value).help(knob.about);
            workload = workload.arg(if knob.default.is_empty() { arg } else { arg.default_value(knob.default) });
        }
        bench = bench.subcommand(workload);
    }
    bench.subcommand(run_options(
        Command::new("roofline").about("TPC-C over plain arrays: the speed of light on this machine"),
    ))
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds are a number from 0 to 86400".to_owned()),
    }
}

/// The matches; or, after printing help or one line of error, the exit code.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<ArgMatches, ExitCode> {
    command().try_get_matches_from(args).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Asked for, or the answer to no arguments: what the program can do is its output.
            print!("{error}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("seriatim: {}", one_line(&error.to_string()));
            ExitCode::from(2)
        }
    })
}

/// A clap error as one line: what is wrong, then what would be right.
fn one_line(error: &str) -> String {
    let parts = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let wanted = parts.filter(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let line = wanted.collect::<Vec<_>>().join("; ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(args: &[&str]) -> String {
        let error = command().try_get_matches_from(args).expect_err("these arguments cannot be");
        one_line(&error.to_string())
    }

    #[test]
    fn the_command_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn errors_are_one_line_that_says_what_would_be_right() {
        let htm = fault(&["seriatim", "bench", "tpcc", "--htm", "maybe"]);
        assert!(htm.contains("maybe") && htm.contains("absent") && !htm.contains('\n'), "{htm}");
        let option = fault(&["seriatim", "bench", "tpcc", "--warehuses", "1"]);
        assert!(option.contains("--warehuses") && option.contains("--warehouses"), "{option}");
        let command = fault(&["seriatim", "bench", "tpcd"]);
        assert!(command.contains("tpcd") && command.contains("tpcc"), "{command}");
        let threads = fault(&["seriatim", "bench", "tpcc", "--threads", "0"]);
        assert!(threads.contains("1..=4096"), "{threads}");
    }
}
