//! The arguments of the program. The registry lists each workload's options; this file only offers them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, builder::PossibleValuesParser, value_parser};
use seriatim::{Batch, BatchPlacement, Durability};
use seriatim_base::say;
use seriatim_bench::commands;
use seriatim_figures::PAPERS;
use seriatim_workload::{Entry, Values, WORKLOADS};

use crate::{Failure, below, middle_tier, partitions, protocols, reorder, terminal, upstream};

/// The meanings of exit codes, as docs/command-line.md lists them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done; also if the reader of the output went away
  1    a fault was found, a run failed, or output could not be written
  2    the arguments are invalid: one line says what is wrong and what would be right
  130  interrupted by SIGINT or SIGTERM; `bench` has reported its results so far";

const EXAMPLES: &str = "\
Examples:
  seriatim serve DIR                                   a server for psql and other clients of PostgreSQL
  seriatim shell DIR -c 'SELECT 1'                     SQL without a server
  seriatim password DIR                                sets the password of the role postgres
  seriatim bench tpcc --warehouses 1 --seconds 10      TPC-C's full mix; its consistency is checked
  seriatim bench ycsb --core A --threads 2             YCSB workload A
  seriatim bench partitions --scheme speculation --multi 0.1
                                                       partitions; a tenth of transactions use two
  seriatim bench roofline                              TPC-C over plain arrays: the speed of light
  seriatim plan tpcc new_order                         the plan of TPC-C's New-Order
  seriatim graph tpcc --optimized --format svg         TPC-C's procedures in pieces, as a drawing
  seriatim bench tpcc --durability group --data DIR    the same, with every result durable, in DIR
  seriatim check DIR                                   checks checksums, indexes and consistency
  seriatim backup DIR TO                               a copy of it, even while it is open
  seriatim dump DIR --out FILE                         its tables and rows, for `seriatim load`
  seriatim figures htcc --out DIR                      the figures of the HTCC paper, measured here
  seriatim middle-tier --upstream postgres://localhost --templates FILE
                                                       a proxy that orders conflicting transactions
  seriatim protocols                                   the concurrency-control protocols
  seriatim protocols htcc                              one of them, with its options";

/// The argument that names a procedure. It is not a word, so no option of a workload can have the same name.
pub(crate) const PROCEDURE: &str = "<procedure>";

pub(crate) fn command() -> Command {
    take_negatives(all()).term_width(terminal::columns().min(terminal::COLUMNS))
}

/// Accepts a negative number as a value and not as an option, so that the error states the permitted values.
fn take_negatives(command: Command) -> Command {
    let takes = |arg: Arg| {
        let has_value = arg.get_action().takes_values();
        arg.allow_negative_numbers(has_value)
    };
    command.mut_args(takes).mut_subcommands(take_negatives)
}

fn all() -> Command {
    Command::new("seriatim")
        .version(env!("SERIATIM_VERSION"))
        .about(
            "Seriatim: a serializable in-memory OLTP database. This binary serves databases, runs benchmarks, shows \
             what is derived from procedures, and recovers, checks, copies, dumps and loads databases.",
        )
        .after_help(format!("{EXIT_CODES}\n\n{EXAMPLES}"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(bench())
        .subcommand(plan())
        .subcommand(graph())
        .subcommand(figures())
        .subcommand(
            Command::new("recover")
                .about("Opens a database, which recovers it, and reports the result")
                .arg(directory("DIR", "The database's directory"))
                .arg(
                    Arg::new("checkpoint")
                        .long("checkpoint")
                        .action(ArgAction::SetTrue)
                        .help("Take a checkpoint afterwards, which shortens the next recovery"),
                )
                .arg(
                    Arg::new("dry-run")
                        .long("dry-run")
                        .action(ArgAction::SetTrue)
                        .conflicts_with("checkpoint")
                        .help("Report what a recovery would find, and change nothing; needs no right to write"),
                )
                .arg(
                    Arg::new("up-to-damage")
                        .long("up-to-damage")
                        .value_name("TO")
                        .value_parser(value_parser!(PathBuf))
                        .conflicts_with_all(["checkpoint", "dry-run"])
                        .help(
                            "Copy the database up to its first damage into the new or empty directory TO, report what \
                             the copy lacks, and change nothing in DIR",
                        ),
                )
                .arg(format()),
        )
        .subcommand(
            Command::new("check")
                .about(
                    "Reads a closed database: verifies checksums, indexes against tables, and the consistency \
                     conditions of a workload's tables; changes nothing",
                )
                .arg(directory("DIR", "The database's directory"))
                .arg(format()),
        )
        .subcommand(
            Command::new("backup")
                .about("Copies a database, even while a process has it open, and verifies the copy")
                .arg(directory("DIR", "The database's directory"))
                .arg(directory("TO", "A new or empty directory for the copy"))
                .arg(format()),
        )
        .subcommand(
            Command::new("restore")
                .about("Verifies a backup and copies it into a new database directory")
                .arg(directory("FROM", "The backup's directory"))
                .arg(directory("TO", "A new or empty directory for the database"))
                .arg(format()),
        )
        .subcommand(crate::dump::dump_command())
        .subcommand(crate::dump::load_command())
        .subcommand(crate::dump::schema_command())
        .subcommand(crate::serve::command())
        .subcommand(crate::shell::command())
        .subcommand(crate::password::command())
        .subcommand(crate::simulated::command())
        .subcommand(middle_tier::command())
        .subcommand(crate::model::command())
        .subcommand(protocols::command())
}

pub(crate) fn format() -> Arg {
    Arg::new("format")
        .long("format")
        .value_name("FORMAT")
        .default_value("text")
        .value_parser(["text", "json"])
        .help("What to print on standard output")
}

pub(crate) fn is_json(matches: &ArgMatches) -> bool {
    matches.get_one::<String>("format").is_some_and(|format| format == "json")
}

pub(crate) fn directory(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name(name).required(true).value_parser(value_parser!(PathBuf)).help(help)
}

pub(crate) fn number(name: &'static str, value: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).default_value(default).help(help)
}

pub(crate) fn run_options(command: Command) -> Command {
    let command = command
        .arg(
            number("threads", "N", "1", "Threads, each with one terminal")
                .value_parser(value_parser!(u16).range(1..=4096)),
        )
        .arg(number("seconds", "S", "10", "Length of the measurement").value_parser(seconds));
    run_basics(command)
}

pub(crate) fn run_basics(command: Command) -> Command {
    command
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .help("The seed of rows and inputs; random by default, and printed"),
        )
        .arg(format())
}

/// The option for partitions, and the name of the option of workloads that have partitions themselves.
const PARTITIONS: &str = "partitions";

fn has_partitions(entry: &Entry) -> bool {
    entry.knobs.iter().any(|knob| knob.name == PARTITIONS)
}

/// The number of partitions of the database, if it is given. A workload's partitions are also the database's if
/// the protocol has partitions.
pub(crate) fn partitions(matches: &ArgMatches, protocol: &str) -> Option<usize> {
    if let Ok(given) = matches.try_get_one::<u16>(PARTITIONS) {
        return given.copied().map(usize::from);
    }
    let has = seriatim::protocols().iter().any(|info| info.name == protocol && info.capabilities.partitions);
    let of_workload = matches.get_one::<String>(PARTITIONS).filter(|_| has)?.parse().ok()?;
    Some(usize::min(of_workload, 64))
}

/// The number of threads that own the partitions of the database: one for each partition, but no more than
/// processors. `None` if the number of threads is given, or no partitions are.
pub(crate) fn owners(matches: &ArgMatches, protocol: &str, processors: usize) -> Option<usize> {
    let is_said = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
    let has = |name: &str| seriatim::protocols().iter().any(|info| info.name == name && info.capabilities.partitions);
    if !is_said(PARTITIONS) || is_said("threads") || !(protocol == "auto" || has(protocol)) {
        return None;
    }
    partitions(matches, protocol).map(|partitions| partitions.min(processors).max(1))
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
            .arg(number("warmup", "S", "2", "Seconds of the warm-up, which is not measured").value_parser(seconds))
            .arg(Arg::new("settle").long("settle").action(ArgAction::SetTrue).conflicts_with("simulate-cores").help(
                "Continue the warm-up, for 20 s at most, until the throughput of the last second is within a tenth of \
                 that of \
                 the second before",
            ))
            .arg(
                number("protocol", "P", "auto", "Concurrency-control protocol")
                    .value_parser(PossibleValuesParser::new(names.clone())),
            )
            .arg(
                Arg::new("option")
                    .long("option")
                    .value_name("NAME=VALUE")
                    .action(ArgAction::Append)
                    .value_parser(option)
                    .help(
                        "An option of the protocol; `seriatim protocols NAME` lists them. May be given several \
                           times",
                    ),
            )
            .arg(Arg::new("hot-tables").long("hot-tables").value_name("NAME+NAME").value_delimiter('+').help(
                "Treat exactly the rows of these tables as hot, such as warehouse+district; replaces option \
                           hot",
            ))
            .args((!has_partitions(entry)).then(|| {
                Arg::new(PARTITIONS)
                    .long(PARTITIONS)
                    .value_name("N")
                    .value_parser(value_parser!(u16).range(1..=64))
                    .help(
                        "Partitions, if the protocol has them; `auto` then chooses one that does. Without --threads, \
                         threads of an executor own the partitions: as many as there are, but no more than processors",
                    )
            }))
            .arg(Arg::new("without-validation").long("without-validation").action(ArgAction::SetTrue).help(
                "Commit without validating reads: results are wrong and not checked. Measures the cost of validation",
            ))
            .arg(
                number("htm", "MODE", "auto", "The back end for regions")
                    .value_parser(["auto", "rtm", "emulated", "absent"]),
            )
            .args(durability())
            .arg(
                number(
                    "prefetch",
                    "on|off",
                    "on",
                    "Whether procedures prefetch the rows that their arguments identify",
                )
                .value_parser(["on", "off"]),
            )
            .arg(
                number(
                    "pauses",
                    "auto|regulated|doubled",
                    "auto",
                    "The longest pause after a conflict. regulated: found by hill climbing over the throughput; \
                     doubled: doubled \
                     with each attempt; auto: the protocol's choice",
                )
                .value_parser(["auto", "regulated", "doubled"]),
            )
            .arg(
                number(
                    "snapshots",
                    "on|off",
                    "on",
                    "Whether read-only procedures read from snapshots, if the protocol has them; off: they are \
                     validated",
                )
                .value_parser(["on", "off"]),
            )
            .arg(
                number(
                    "batch",
                    "off|auto|N",
                    "off",
                    "Calls in a batch of the executor, which runs conflicting calls one after another on one thread. \
                     auto: \
                     4 for each thread while conflicts cost more than batches; off: each terminal runs on its own \
                     thread; \
                     1: the executor without batches",
                )
                .value_parser(|text: &str| text.parse::<Batch>()),
            )
            .arg(
                number(
                    "batch-placement",
                    "components|shares",
                    "components",
                    "How a batch is divided among threads: by components of conflicting calls, or into equal shares",
                )
                .value_parser(|text: &str| text.parse::<BatchPlacement>()),
            )
            .arg(
                Arg::new("prefault")
                    .long("prefault")
                    .value_name("MIB")
                    .value_parser(value_parser!(u64))
                    .help("Memory to touch before the measurement, in MiB; by default estimated from the warm-up"),
            )
            .arg(
                Arg::new("memory-limit")
                    .long("memory-limit")
                    .value_name("MIB")
                    .value_parser(value_parser!(u64).range(1..=1 << 40))
                    .help(
                        "The memory limit for rows in MiB, at which the run ends; by default 80 % of the machine's \
                           memory",
                    ),
            )
            .arg(
                Arg::new("contention")
                    .long("contention")
                    .value_name("N")
                    .value_parser(value_parser!(u32).range(1..=1_000_000))
                    .help("Report the N rows with the most conflicts, and which procedures conflicted"),
            )
            .arg(
                Arg::new("no-check")
                    .long("no-check")
                    .action(ArgAction::SetTrue)
                    .help("Skip the consistency check after the run"),
            );
        workload = knobs(entry, workload.args(simulation()));
        bench = bench.subcommand(workload);
    }
    let roofline =
        run_options(Command::new("roofline").about("TPC-C over plain arrays: the speed of light on this machine"));
    let others = [partitions::command(), reorder::command(), upstream::command(), roofline];
    commands::add(bench.subcommands(below::commands()).subcommands(others))
}

pub(crate) fn simulation() -> [Arg; 2] {
    [
        Arg::new("simulate-cores")
            .long("simulate-cores")
            .value_name("N")
            .value_parser(value_parser!(u16).range(1..=100))
            .conflicts_with("threads")
            .help(
                "Run on this many simulated cores instead of threads. Seconds are virtual: by default 0.1 after a \
                 warm-up of \
                 0.02. The seed determines the result. Needs a build with the feature `simulate`",
            ),
        Arg::new("costs").long("costs").value_name("FILE|NAME|unit").requires("simulate-cores").help(
            "The costs of steps on simulated cores, as `seriatim simulate costs` prints them. xeon-2 (default) \
                 and epyc-2 \
                 are built in; unit: 10 ns for each step, to count steps",
        ),
    ]
}

fn durability() -> [Arg; 5] {
    let modes = Durability::ALL.map(Durability::name);
    [
        Arg::new("durability")
            .long("durability")
            .value_name("MODE")
            .value_parser(PossibleValuesParser::new(modes))
            .help(
                "When results are answered: off keeps nothing, async at once, group when durable, sync with a flush \
                   for each; group if there is --data, else off",
            ),
        Arg::new("data")
            .long("data")
            .value_name("DIR")
            .value_parser(value_parser!(PathBuf))
            .help("A new or empty directory for the database; by default a temporary one, removed at the end"),
        Arg::new("log-dir")
            .long("log-dir")
            .value_name("DIR")
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf))
            .help("A directory for the log, with its own logger; may be given several times"),
        Arg::new("outstanding")
            .long("outstanding")
            .value_name("N")
            .value_parser(value_parser!(u32).range(1..=1_000_000))
            .help("How many results of a thread may wait for durability; by default 10000 with group, 1 with sync"),
        Arg::new("checkpoint-every")
            .long("checkpoint-every")
            .value_name("BYTES|off")
            .value_parser(checkpoint_every)
            .help("Bytes of log between checkpoints, such as 256MiB; 1GiB by default"),
    ]
}

fn option(text: &str) -> Result<(String, u64), String> {
    let parsed = text.split_once('=').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    parsed.filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
        "expected NAME=NUMBER with a whole number, such as lock_steps=64; `seriatim protocols NAME` lists the names"
            .to_owned()
    })
}

/// Parses bytes, with or without a unit, or `off`.
fn checkpoint_every(text: &str) -> Result<Option<u64>, String> {
    if text == "off" {
        return Ok(None);
    }
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = [("", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30)].into_iter().find(|(name, _)| *name == unit);
    let bytes = number.parse::<u64>().ok().zip(shift).and_then(|(number, (_, shift))| number.checked_mul(1 << shift));
    match bytes {
        Some(bytes) if bytes > 0 => Ok(Some(bytes)),
        _ => Err("expected off or a number of bytes, such as 4096, 64KiB, 256MiB or 1GiB".to_owned()),
    }
}

/// Adds the options of a workload to a command.
fn knobs(entry: &Entry, mut command: Command) -> Command {
    for knob in entry.knobs {
        let arg = Arg::new(knob.name).long(knob.name).value_name(knob.value).help(knob.about);
        command = command.arg(if knob.default.is_empty() { arg } else { arg.default_value(knob.default) });
    }
    command
}

/// The given options of a workload.
pub(crate) fn values(entry: &Entry, matches: &ArgMatches, seed: u64) -> Result<Values, Failure> {
    let mut values = entry.values(seed);
    for knob in entry.knobs {
        // The workload chooses options that are left out: with YCSB's --core it does not use the default.
        let is_given = matches.value_source(knob.name) == Some(ValueSource::CommandLine);
        if let Some(value) = matches.get_one::<String>(knob.name).filter(|_| is_given) {
            values.set(knob.name, value).map_err(Failure::usage)?;
        }
    }
    Ok(values)
}

fn plan() -> Command {
    let plan = Command::new("plan")
        .about("Prints the plans of a workload's procedures, or of one")
        .subcommand_required(true)
        .arg_required_else_help(true);
    WORKLOADS.iter().fold(plan, |plan, entry| {
        let procedure = Arg::new(PROCEDURE).value_name("PROCEDURE").help("One procedure; by default all");
        plan.subcommand(knobs(entry, Command::new(entry.name).about(entry.about).arg(procedure).arg(format())))
    })
}

fn graph() -> Command {
    let graph = Command::new("graph")
        .about("Chops a workload's procedures into pieces (DBX-TC) and shows the graph")
        .subcommand_required(true)
        .arg_required_else_help(true);
    WORKLOADS.iter().fold(graph, |graph, entry| {
        let flag = |name, help| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
        let command = Command::new(entry.name)
            .about(entry.about)
            .arg(
                flag("default", "With reordering and commutativity only (DBX-TC, Figure 10). Default")
                    .conflicts_with("optimized"),
            )
            .arg(flag("optimized", "Also with snapshots, static tables, claims and deferral (DBX-TC, Figure 11)"))
            .arg(
                Arg::new("format")
                    .long("format")
                    .value_name("FORMAT")
                    .default_value("text")
                    .value_parser(["text", "json", "dot", "svg"])
                    .help("The output: text for people, JSON for programs, input for Graphviz, or a drawing"),
            );
        graph.subcommand(knobs(entry, command))
    })
}

fn figures() -> Command {
    let papers = PAPERS.into_iter().chain(["all"]);
    Command::new("figures")
        .about(
            "Draws the papers' figures: measures each point by a command of this program, checks whether the paper's \
             claims \
             hold here, and writes a page. Points that DIR has are not measured again",
        )
        .arg(
            Arg::new("paper")
                .value_name("PAPER")
                .required(true)
                .value_parser(PossibleValuesParser::new(papers))
                .help("The paper"),
        )
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The directory for drawings, measurements, and a page for each paper; created if missing"),
        )
        .arg(
            Arg::new("small")
                .long("small")
                .action(ArgAction::SetTrue)
                .help("A small size, which tries every command and does not measure speed"),
        )
        .arg(
            Arg::new("only")
                .long("only")
                .value_name("ID")
                .action(ArgAction::Append)
                .help("One figure, such as 13 or htcc/13; may be given several times"),
        )
        .arg(
            Arg::new("redraw")
                .long("redraw")
                .action(ArgAction::SetTrue)
                .help("Measure nothing: draw and judge the measurements in DIR again, whichever program made them")
                .conflicts_with_all(["small", "cores", "seconds", "rounds", "seed"]),
        )
        .arg(Arg::new("cores").long("cores").value_name("KIND").value_parser(["real", "simulated"]).help(
            "Measure only points on the machine's threads, or only points on simulated cores; DIR has the \
                       others",
        ))
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("S")
                .value_parser(seconds)
                .help("Length of each run on threads of this machine; by default 2, or 0.05 with --small"),
        )
        .arg(Arg::new("rounds").long("rounds").value_name("N").value_parser(value_parser!(u32).range(1..=1000)).help(
            "Runs of each point on threads of this machine, for medians and intervals; by default 5, or 1 with \
                  --small",
        ))
        .arg(
            number(
                "jobs",
                "N",
                "1",
                "How many points on simulated cores to measure at a time; each may need some \
                                      gigabytes",
            )
            .value_parser(value_parser!(u64).range(1..=1024)),
        )
        .arg(number("seed", "N", "1", "The seed of the first run").value_parser(value_parser!(u64)))
        .arg(format())
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0 to 86400".to_owned()),
    }
}

/// Parses the arguments. Otherwise prints help or one line of error, and returns the exit code.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<ArgMatches, ExitCode> {
    let args: Vec<OsString> = args.into_iter().collect();
    command().try_get_matches_from(&args).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // The user asked for help or gave no arguments: the help is the output.
            crate::exit(say!("{error}").map_err(Failure::from))
        }
        _ => crate::exit(Err(Failure::Usage(explain(&error, &args)))),
    })
}

/// An error as one line. For an unknown name, the line lists the valid names.
fn explain(error: &clap::Error, args: &[OsString]) -> String {
    let line = one_line(&error.to_string());
    if error.kind() != ErrorKind::InvalidSubcommand {
        return line;
    }
    let mut deepest = &command();
    for arg in args.iter().skip(1) {
        let Some(next) = arg.to_str().and_then(|name| deepest.find_subcommand(name)) else { break };
        deepest = next;
    }
    let names: Vec<&str> = deepest.get_subcommands().map(Command::get_name).collect();
    format!("{line}; there is {}", names.join(", "))
}

/// A clap error as one line: the problem, then the valid values.
fn one_line(error: &str) -> String {
    let parts = error.lines().map(str::trim).filter(|line| !line.is_empty());
    let wanted = parts.filter(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let line = wanted.collect::<Vec<_>>().join("; ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use seriatim_base::rng::{self, Rng};

    use super::*;

    /// These arguments form a command, or the error is one line with text. The same holds for the options of a
    /// workload. Nothing is run.
    fn check(args: &[OsString]) {
        let is_line = |line: &str| assert!(!line.trim().is_empty() && !line.contains('\n'), "{args:?}: {line:?}");
        let matches = match command().try_get_matches_from(args) {
            Ok(matches) => matches,
            Err(error) if error.use_stderr() => return is_line(&explain(&error, args)),
            Err(help) => return assert!(!help.to_string().is_empty()),
        };
        if let Some((_, matches)) = matches.subcommand()
            && let Some((name, matches)) = matches.subcommand()
            && let Some(entry) = WORKLOADS.iter().find(|entry| entry.name == name)
            && let Err(failure) = values(entry, matches, 1)
        {
            let Failure::Usage(line) = failure else { panic!("{args:?}: not an error of arguments") };
            is_line(&line);
        }
    }

    #[test]
    fn arbitrary_arguments_are_a_command_or_an_error_of_one_line() {
        let mut words: Vec<String> =
            ["--", "-", "", "=", "\n", "a\nb", "--seconds=-1", "1e999", "NaN", "-1", "é\u{0}", "0x10", "64KiB"]
                .map(str::to_owned)
                .into();
        let mut commands = vec![command()];
        while let Some(command) = commands.pop() {
            words.push(command.get_name().to_owned());
            words.extend(command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))));
            commands.extend(command.get_subcommands().cloned());
        }
        words.extend([u64::MAX, 0, 1, 4097].map(|number| number.to_string()));
        let mut rng = Rng::from_seed(rng::seed("arbitrary_arguments"));
        for _ in 0..rng::tries(500, 20_000) {
            let mut args = vec![OsString::from("seriatim")];
            for _ in 0..rng.below(7) {
                let mut word = words[rng.below(words.len() as u64) as usize].clone().into_bytes();
                // A byte more in every fourth word: a misspelling, or no text at all.
                if rng.below(4) == 0 {
                    word.insert(rng.below(word.len() as u64 + 1) as usize, rng.below(256) as u8);
                }
                args.push(OsString::from_vec(word));
            }
            check(&args);
        }
    }

    /// The lines of the help of a command and of those below it.
    fn look_at_help(command: &mut Command, seen: &mut usize) {
        for help in [command.render_help(), command.render_long_help()] {
            for line in help.to_string().lines() {
                assert!(line.chars().count() <= terminal::COLUMNS, "{}: {line}", command.get_name());
            }
        }
        *seen += 1;
        command.get_subcommands_mut().for_each(|below| look_at_help(below, seen));
    }

    #[test]
    fn no_line_of_any_help_is_wider_than_a_hundred_columns() {
        let (mut command, mut seen) = (command(), 0);
        command.build();
        look_at_help(&mut command, &mut seen);
        assert!(seen > 50, "{seen} commands");
    }

    fn fault(args: &[&str]) -> String {
        let error = command().try_get_matches_from(args).expect_err("these arguments are invalid");
        explain(&error, &args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn errors_are_one_line_with_the_valid_values() {
        let htm = fault(&["seriatim", "bench", "tpcc", "--htm", "maybe"]);
        assert!(htm.contains("maybe") && htm.contains("absent") && !htm.contains('\n'), "{htm}");
        let option = fault(&["seriatim", "bench", "tpcc", "--warehuses", "1"]);
        assert!(option.contains("--warehuses") && option.contains("--warehouses"), "{option}");
        let command = fault(&["seriatim", "bench", "tpcd"]);
        assert!(command.contains("tpcd") && command.contains("tpcc"), "{command}");
        for command in ["bench", "plan", "graph"] {
            let unlike = fault(&["seriatim", command, "benchmark"]);
            assert!(WORKLOADS.iter().all(|entry| unlike.contains(entry.name)) && !unlike.contains('\n'), "{unlike}");
        }
        let both = fault(&["seriatim", "graph", "tpcc", "--default", "--optimized"]);
        assert!(both.contains("--default") && both.contains("--optimized"), "{both}");
        let seconds = fault(&["seriatim", "bench", "tpcc", "--seconds", "-1"]);
        assert!(seconds.contains("--seconds") && seconds.contains("from 0 to 86400"), "{seconds}");
        let threads = fault(&["seriatim", "bench", "tpcc", "--threads", "0"]);
        assert!(threads.contains("1..=4096"), "{threads}");
    }

    /// Every option with a value accepts a negative number as its value, so that the value's own parser refuses it.
    #[test]
    fn negative_numbers_are_values_and_not_options() {
        fn look(command: &Command, path: &[&str], seen: &mut usize) {
            for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
                let Some(long) = arg.get_long() else { continue };
                let option = format!("--{long}");
                let given: Vec<&str> = path.iter().copied().chain([option.as_str(), "-1"]).collect();
                if let Err(error) = super::command().try_get_matches_from(&given) {
                    assert_ne!(error.kind(), ErrorKind::UnknownArgument, "{given:?}: {error}");
                }
                *seen += 1;
            }
            for below in command.get_subcommands() {
                look(below, &[path, &[below.get_name()]].concat(), seen);
            }
        }
        let mut seen = 0;
        look(&command(), &["seriatim"], &mut seen);
        assert!(seen > 50, "{seen} options");
    }
}
