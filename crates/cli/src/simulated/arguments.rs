//! Arguments of `seriatim simulate`, in every build.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, value_parser};

use crate::args::{number, seconds};

pub(crate) fn command() -> Command {
    let plain = || {
        Arg::new("plain").long("plain").value_name("BINARY").value_parser(value_parser!(PathBuf)).help(
            "The program whose times are measured, built without the feature `simulate`; by default this one, whose \
             transactions take a little longer",
        )
    };
    let only = || {
        let protocols = seriatim::protocols().iter().map(|protocol| protocol.name);
        Arg::new("only")
            .long("only")
            .value_name("P")
            .action(ArgAction::Append)
            .value_parser(PossibleValuesParser::new(protocols))
            .help("Only this protocol; may be given several times. The table's entries of others are kept")
    };
    let costs = |help: &'static str| {
        Arg::new("costs").long("costs").value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    Command::new("simulate")
        .about(
            "Measures what simulated cores are charged with, and how far they are from threads \
             (`seriatim bench … --simulate-cores N` uses it)",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("costs")
                .about(
                    "Measures the costs of this machine and prints the table as JSON; takes a minute for each \
                        protocol",
                )
                .arg(plain())
                .arg(
                    Arg::new("name")
                        .long("name")
                        .value_name("NAME")
                        .default_value("unnamed")
                        .help("The name of the table in reports"),
                )
                .arg(only())
                .arg(costs("A table whose name, machine costs, and costs of other protocols are kept"))
                .arg(
                    number("seconds", "S", "0.2", "Length of each run; the fastest of three runs counts")
                        .value_parser(seconds),
                ),
        )
        .subcommand(
            Command::new("validate")
                .about(
                    "Runs TPC-C and YCSB on one and two threads and on as many simulated cores. Prints the table of \
                     costs with the \
                     comparison. Takes a minute for each protocol and round, on an otherwise idle machine",
                )
                .arg(plain())
                .arg(only())
                .arg(costs("The table that `seriatim simulate costs` printed; by default a built-in one"))
                .arg(
                    number(
                        "rounds",
                        "N",
                        "3",
                        "Runs of each point on threads; the median of undisturbed runs counts. \
                                                0: keep the table's",
                    )
                    .value_parser(value_parser!(u32).range(..=100)),
                )
                .arg(number("seconds", "S", "0.2", "Length of each run on threads").value_parser(seconds)),
        )
}
