//! The long run of what `tests/power.rs` runs for a minute: simulated power cuts and faults.

use std::process::ExitCode;
use std::time::Duration;

use seriatim::{rng, thread};
use seriatim_suite::power::{Campaign, Case, Plan};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let get = |name: &str, default: u64| args.iter().position(|a| a == name).map_or(default, |at| args[at + 1].parse().unwrap());
    if let Some(at) = args.iter().position(|a| a == "--case") {
        for plan in [Plan::Cuts, Plan::Faults] {
        let case = Case::of(args[at + 1].parse().unwrap(), plan);
        println!("{:?}", case.run());
        }
        return ExitCode::SUCCESS;
    }
    let seed = get("--seed", rng::entropy());
    eprintln!("seed {seed}");
    let plan = if args.iter().any(|a| a == "--faults") { Plan::Faults } else { Plan::Cuts };
    let campaign = Campaign { seed, plan, cuts: get("--cuts", 1000), most: Duration::from_secs(get("--seconds", 600)), threads: get("--threads", 1) as usize };
    let _ = thread::processors();
    let began = seriatim::clock::Instant::now();
    match campaign.run(&|cuts| eprintln!("{cuts} cuts")) {
        Ok(totals) => { for (s, t) in totals { println!("{s}: {t:?}"); } eprintln!("{:?}", began.elapsed()); ExitCode::SUCCESS }
        Err(error) => { eprintln!("{error}"); ExitCode::FAILURE }
    }
}
