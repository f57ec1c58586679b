//! `seriatim bench middle-tier`: SmallBank on a PostgreSQL that the command starts, alone or behind the middle tier.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::{ArgMatches, Command, value_parser};
use serde_json::json;
use seriatim_base::say;
use seriatim_bench::middle_tier::{self, Measured, Options, Refused, Tier};

use crate::Failure;
use crate::args::{is_json, number, run_options, seconds};
use crate::machine::{self, Machine};
use crate::reorder::theta;

/// The command. Its threads are the clients.
pub(crate) fn command() -> Command {
    let command = Command::new("middle-tier")
        .about(
            "SmallBank on a separate PostgreSQL server, one client for each thread: alone, behind the middle tier, or \
             with \
             batches. Needs PostgreSQL's programs",
        )
        .arg(
            number(
                "tier",
                "none|off|N",
                "none",
                "Clients connect to the server, or to the middle tier without \
                                                  batches or with N",
            )
            .value_parser(tier),
        )
        .arg(
            number("accounts", "N", "100000", "Customers, each with a savings and a checking account")
                .value_parser(value_parser!(u64).range(2..=10_000_000)),
        )
        .arg(number("theta", "Z", "0.9", "Skew of the customers: 0 is none, below 1").value_parser(theta))
        .arg(
            number("wait", "MS", "1", "How many milliseconds a transaction waits at most for its batch to fill")
                .value_parser(value_parser!(u64).range(0..=60_000)),
        )
        .arg(number("warmup", "S", "0.5", "Seconds of the warm-up, which is not measured").value_parser(seconds));
    run_options(command)
}

fn tier(text: &str) -> Result<Tier, String> {
    match text {
        "none" => Ok(Tier::None),
        "off" => Ok(Tier::Passes),
        _ => text
            .parse::<NonZeroUsize>()
            .map(Tier::Batches)
            .map_err(|_| "expected none, off or a number from 1".to_owned()),
    }
}

pub(crate) fn run(matches: &ArgMatches, seed: u64) -> Result<(), Failure> {
    let number = |name: &str| matches.get_one::<f64>(name).copied().unwrap_or_default();
    let count = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or_default();
    let options = Options {
        tier: matches.get_one("tier").copied().unwrap_or(Tier::None),
        clients: matches.get_one::<u16>("threads").copied().unwrap_or(1).into(),
        accounts: count("accounts"),
        theta: number("theta"),
        wait: Duration::from_millis(count("wait")),
        seconds: ["warmup", "seconds"].map(number),
        seed,
    };
    let Measured { committed, aborted, latencies, counted, version } =
        middle_tier::run(&options).map_err(|refused| match refused {
            Refused::Missing(how) => Failure::Usage(how),
            Refused::Failed(why) => Failure::Run(why),
        })?;
    let Options { tier, clients, accounts, theta, seconds: [_, seconds], .. } = options;
    let tier = match tier {
        Tier::None => "none".to_owned(),
        Tier::Passes => "off".to_owned(),
        Tier::Batches(size) => size.to_string(),
    };
    let per_second = committed as f64 / seconds.max(f64::MIN_POSITIVE);
    let quantile = |share: f64| {
        let at = (latencies.len() as f64 * share) as usize;
        latencies.get(at.min(latencies.len().saturating_sub(1))).map_or(0.0, |nanoseconds| *nanoseconds as f64 / 1000.0)
    };
    if !is_json(matches) {
        let retries = aborted as f64 / committed.max(1) as f64;
        let what = format!("SmallBank on PostgreSQL {version}, {clients} clients, middle tier {tier}, {seconds} s");
        return Ok(say!(
            "{}throughput     {per_second:.0} transactions a second, {retries:.3} rolled back for each\n\
             latency        median {:.0} µs, 95 % {:.0}, 99 % {:.0}\n\
             verdict        passed: no money was lost\n",
            machine::conditions(&what, seed),
            quantile(0.5),
            quantile(0.95),
            quantile(0.99)
        )?);
    }
    let mean = latencies.iter().sum::<u64>() as f64 / latencies.len().max(1) as f64 / 1000.0;
    let report = json!({
        "workload": "middle-tier", "threads": clients, "seconds": seconds, "committed": committed,
        "committed_per_second": per_second, "user_aborted": 0, "conflict_aborted": aborted, "failed": 0,
        "consistency": "passed",
        "latency_us": {
            "mean": mean, "p50": quantile(0.5), "p95": quantile(0.95), "p99": quantile(0.99), "max": quantile(1.0),
        },
        "middle_tier": counted, "postgresql": version,
        "options": { "tier": tier, "accounts": accounts, "theta": theta, "wait": count("wait"),
        "warmup": number("warmup") },
        "seed": seed, "revision": machine::revision(), "machine": Machine::here(),
    });
    Ok(say!("{report}\n")?)
}
