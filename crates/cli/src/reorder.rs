//! `seriatim bench reorder`: random batches are reordered, without running transactions.

use std::num::NonZeroUsize;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::json;
use seriatim_base::say;
use seriatim_batch::{ALGORITHMS, Algorithm, EXACT_MAX, POLICIES, Policy, Settings};
use seriatim_bench::reorder::{self, FIVE_FIVE_OBJECTS, Footprints, Measured, Options, SMALLEST_MAX};

use crate::Failure;
use crate::args::{is_json, number, run_basics};
use crate::machine::{self, Machine};

pub(crate) fn command() -> Command {
    let algorithms = ALGORITHMS.iter().map(|algorithm| algorithm.name);
    let policies = POLICIES.iter().map(|policy| policy.name);
    let command = Command::new("reorder")
        .about(
            "Reorders batches of random transactions: how many transactions an algorithm aborts, and how long it takes",
        )
        .arg(
            number(
                "footprints",
                "WORKLOAD",
                "five-five",
                "The transactions: five reads and five writes, or 16 requests",
            )
            .value_parser(["five-five", "ycsb"]),
        )
        .arg(
            number("objects", "N", "100000", "Objects or records in all")
                .value_parser(value_parser!(u64).range(FIVE_FIVE_OBJECTS..=1 << 40)),
        )
        .arg(number("theta", "Z", "0.9", "Skew of the objects: 0 is none, below 1").value_parser(theta))
        .arg(
            number("batch", "N", "40", "Transactions in a batch; up to 14 the smallest set is computed, too")
                .value_parser(value_parser!(u64).range(1..=4096)),
        )
        .arg(number("batches", "N", "300", "Batches").value_parser(value_parser!(u64).range(1..=1_000_000)))
        .arg(
            number("algorithm", "NAME", "sort-greedy", "The algorithm that chooses the transactions to abort")
                .value_parser(PossibleValuesParser::new(algorithms)),
        )
        .arg(
            number("policy", "NAME", "prod-degree", "Which transactions are preferably aborted")
                .value_parser(PossibleValuesParser::new(policies)),
        )
        .arg(
            number("factor", "K", "2", "How many transactions sort-greedy aborts at a time")
                .value_parser(value_parser!(NonZeroUsize)),
        )
        .arg(
            number("exact-max", "N", "20", "The largest component that hybrid searches exactly")
                .value_parser(value_parser!(u64).range(0..=EXACT_MAX as u64)),
        )
        .arg(
            Arg::new("search-steps")
                .long("search-steps")
                .value_name("N")
                .default_value("10000")
                .value_parser(value_parser!(u32))
                .help("The most partial solutions that an exact search of a batch visits"),
        );
    run_basics(command)
}

pub(crate) fn theta(text: &str) -> Result<f64, String> {
    let theta = text.parse().ok().filter(|theta| (0.0..1.0).contains(theta));
    theta.ok_or_else(|| "expected a number from 0 to below 1".to_owned())
}

pub(crate) fn run(matches: &ArgMatches, seed: u64) -> Result<(), Failure> {
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let count = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or_default();
    let (algorithm, policy) = (Algorithm::named(text("algorithm")), Policy::named(text("policy")));
    let (Some(algorithm), Some(policy)) = (algorithm, policy) else { unreachable!("clap knows the names") };
    let factor = matches.get_one("factor").copied().unwrap_or(NonZeroUsize::MIN);
    let search_steps_max = matches.get_one("search-steps").copied().unwrap_or_default();
    let exact_max = count("exact-max") as usize;
    let options = Options {
        footprints: if text("footprints") == "ycsb" { Footprints::Ycsb } else { Footprints::FiveFive },
        objects: count("objects"),
        theta: matches.get_one("theta").copied().unwrap_or_default(),
        transactions: count("batch") as usize,
        batches: count("batches") as usize,
        settings: Settings { algorithm, policy, factor, exact_max, search_steps_max, seed },
        seed,
    };
    let Measured { left_out, smallest, microseconds, microseconds_median, looked } =
        reorder::run(&options).map_err(Failure::Run)?;
    let Options { transactions, batches, theta, .. } = options;
    if !is_json(matches) {
        let smallest = smallest.map_or_else(
            || format!("the smallest set is computed for batches of at most {SMALLEST_MAX}"),
            |smallest| format!("{smallest:.3} must be"),
        );
        let what =
            format!("{} by {}, {batches} batches of {transactions}, θ {theta}, 1 thread", algorithm.name, policy.name);
        return Ok(say!(
            "{}left out       {left_out:.3} of a batch; {smallest}\n\
             time           {microseconds:.1} µs a batch, median {microseconds_median:.1}; {looked:.0} vertices and \
             edges visited\n\
             verdict        passed: each order is serial\n",
            machine::conditions(&what, seed),
        )?);
    }
    let report = json!({
        "workload": "reorder", "batches": batches, "transactions": transactions, "left_out": left_out,
        "smallest": smallest, "microseconds": microseconds, "microseconds_median": microseconds_median,
        "looked": looked,
        "failed": 0, "consistency": "passed",
        "options": {
            "footprints": text("footprints"), "objects": options.objects, "theta": theta, "algorithm": algorithm.name,
            "policy": policy.name, "factor": factor, "exact-max": exact_max, "search-steps": search_steps_max,
        },
        "seed": seed, "revision": machine::revision(), "machine": Machine::here(),
    });
    Ok(say!("{report}\n")?)
}
