//! Repository chores: `cargo xtask ci` runs every check, `cargo xtask tidy` the rules the compiler cannot
//! know, `cargo xtask soak` what takes too long for either.
//!
//! Invariant: each written rule is a check here, with a message that says what to do, and a canary in its tests.

mod ci;
mod contributing;
mod documents;
mod drivers;
mod files;
mod fuzz;
mod git;
mod instructions;
mod layers;
mod lines;
mod mutants;
mod nightly;
mod pgo;
mod protocols;
mod quarantine;
mod rtm;
mod runs;
mod rust;
mod sanitize;
mod soak;
mod sources;
mod tidy;
mod tiers;
mod timings;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask ci [--timings] [STEP...]
                                  the checks of every change, or the named steps; twice and what they cost: of all
                                  into CONTRIBUTING.md
       cargo xtask nightly [--seed N] [--only STEP]... [--fresh] | --part | --age | --list
                                  every test in every setting, and long checks; writes docs/nightly.md
       cargo xtask tidy           the repository's own rules
       cargo xtask tests          brings the table of tests and their tiers up to date
       cargo xtask lines          prints the lines of each crate, and lowers its budget to them
       cargo xtask sentences      prints sentences of more than 25 words, and lowers their counts to what there is
       cargo xtask mutants [--quick] [--only TEXT]... [--without CRATE]... [--list] [--fresh] | --sample [OPTION...]
                                  whether tests notice when a mechanism of safety is missing
       cargo xtask instructions [--format text|json]
                                  instructions and L2 misses of TPC-C's transactions, by callgrind
       cargo xtask pgo            the program, compiled with a profile of itself; prints where it is
       cargo xtask rtm [--backend rtm|emulated|absent] [--small] [--to FILE]
                                  all that needs hardware regions, where they work; writes docs/rtm.md
       cargo xtask contributing   the examples of CONTRIBUTING.md, applied to a copy of the repository and run
       cargo xtask drivers [--at PORT AUTHORITY] [NAME...]
                                  drivers of PostgreSQL in other languages, psql, pgbench and sysbench, by scripts
       cargo xtask soak [--cuts N] [--kills N] [--minutes M] [--seed S] | --case SEED
                                  simulated power cuts and real kills, for hours
       cargo xtask sanitize [miri] [thread] [address]
                                  the tests under tools of the nightly toolchain; skips those that are not there
       cargo xtask fuzz [--seconds N] [TARGET...]
                                  the decoders by cargo-fuzz, 60 s each";

fn main() -> ExitCode {
    if let Some(code) = timings::stand_in() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = files::root();
    if arguments.iter().any(|argument| ["-h", "--help"].contains(&&**argument)) {
        println!("{USAGE}\nsteps: {}", ci::names().join(" "));
        return ExitCode::SUCCESS;
    }
    let done = match arguments.first().map(String::as_str) {
        Some("ci") => ci::run(&root, &arguments[1..]),
        Some("mutants") => mutants::run(&root, &arguments[1..]),
        Some("fuzz") => fuzz::run(&root, &arguments[1..]),
        Some("sanitize") => sanitize::run(&root, &arguments[1..]),
        Some("instructions") => instructions::run(&root, &arguments[1..]),
        Some("pgo") if arguments.len() == 1 => pgo::run(&root),
        Some("rtm") => rtm::run(&root, &arguments[1..]),
        Some("soak") => soak::run(&root, &arguments[1..]),
        Some("drivers") => drivers::run(&root, &arguments[1..]),
        Some("contributing") if arguments.len() == 1 => contributing::run(&root),
        Some("nightly") => nightly::run(&root, &arguments[1..]),
        Some("tests") if arguments.len() == 1 => tiers::update(&root),
        Some("lines") if arguments.len() == 1 => lines::update(&root),
        Some("sentences") if arguments.len() == 1 => documents::update(&root),
        Some("tidy") if arguments.len() == 1 => tidy::run(&root),
        _ => {
            eprintln!("{USAGE}\nsteps: {}", ci::names().join(" "));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
