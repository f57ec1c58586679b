//! The `seriatim` command line: benchmarks, the papers' figures, analysis of procedures, database directories,
//! the middle tier for PostgreSQL, and the registry of protocols.
//!
//! Data goes to standard output, messages to standard error. `args::EXIT_CODES` lists the exit codes. With code
//! 2 one line states the problem and the valid values. The reader of the output may go away. Output that cannot
//! be written is a failed run.

mod args;
mod below;
mod bench;
mod callers;
mod configuration;
mod contention;
mod directories;
mod dump;
mod figures;
mod interrupt;
mod machine;
mod middle_tier;
mod model;
mod partitions;
mod password;
mod procedures;
mod protocols;
mod reorder;
mod report;
mod runner;
mod serve;
mod shell;
mod simulated;
mod terminal;
mod upstream;
mod working_sets;

use std::process::ExitCode;

use seriatim_base::{output, talk};

fn main() -> ExitCode {
    let matches = match args::parse(std::env::args_os()) {
        Ok(matches) => matches,
        Err(exit) => return exit,
    };
    let done = match matches.subcommand() {
        Some(("bench", bench)) => bench::run(bench),
        Some(("plan", plan)) => procedures::plan(plan),
        Some(("graph", graph)) => procedures::graph(graph),
        Some(("figures", figures)) => figures::run(figures),
        Some(("recover", recover)) => directories::recover(recover),
        Some(("check", check)) => directories::check(check),
        Some(("backup", backup)) => directories::back_up(backup),
        Some(("restore", restore)) => directories::restore(restore),
        Some(("dump", dump)) => dump::dump(dump),
        Some(("load", load)) => dump::load(load),
        Some(("schema", schema)) => dump::schema(schema),
        Some(("serve", serve)) => serve::run(serve),
        Some(("shell", shell)) => shell::run(shell),
        Some(("password", password)) => password::run(password),
        Some(("simulate", simulate)) => simulated::run(simulate),
        Some(("model", model)) => model::run(model),
        Some(("middle-tier", middle_tier)) => middle_tier::run(middle_tier),
        Some(("protocols", protocols)) => protocols::run(protocols),
        _ => unreachable!("clap requires a known subcommand"),
    };
    exit(done)
}

/// Reports an error, if there is one. Returns the exit code.
pub(crate) fn exit(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            talk!("seriatim: {message}");
            ExitCode::from(2)
        }
        Err(Failure::Run(message)) => {
            talk!("seriatim: {message}");
            ExitCode::from(1)
        }
        Err(Failure::Interrupted(message)) => {
            talk!("seriatim: {message}");
            ExitCode::from(interrupt::EXIT_CODE)
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments are invalid.
    Usage(String),
    /// A run failed, or its data are inconsistent.
    Run(String),
    /// A signal ended the command early. The results so far have been reported.
    Interrupted(String),
    /// The reader of the output is gone. There is nothing more to report.
    Closed,
}

impl Failure {
    pub(crate) fn run(error: impl std::fmt::Display) -> Failure {
        Failure::Run(error.to_string())
    }

    pub(crate) fn usage(error: impl std::fmt::Display) -> Failure {
        Failure::Usage(error.to_string())
    }
}

/// For errors of standard output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        if output::is_closed(&error) { Failure::Closed } else { Failure::run(error) }
    }
}
