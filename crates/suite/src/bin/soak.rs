//! A long run of the campaigns that `tests/power.rs` and `tests/kills.rs` run for a minute: `cargo xtask soak`
//! builds and starts it. Progress goes to stderr, totals to stdout. It ends with exit code 1 if a check fails,
//! or if the time is over before the requested amount is done.

use std::process::ExitCode;
use std::time::Duration;

use seriatim::clock::Instant;
use seriatim::{rng, thread};
use seriatim_suite::kills::{self, Canary, Load};
use seriatim_suite::power::{Campaign, Case, Plan, covered, directory};

const USAGE: &str = "usage: soak [--cuts N] [--kills N] [--minutes M] [--seed S] [--threads T]
       soak --case SEED";

/// The requested amount.
struct Wanted {
    cuts: u64,
    kills: u64,
    minutes: u64,
    seed: Option<u64>,
    threads: u64,
    case: Option<u64>,
}

impl Wanted {
    fn of(arguments: &[String]) -> Option<Wanted> {
        let threads = thread::processors() as u64;
        let mut wanted = Wanted { cuts: 200_000, kills: 500, minutes: 600, seed: None, threads, case: None };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return None };
            let value = value.parse().ok()?;
            match name.as_str() {
                "--cuts" => wanted.cuts = value,
                "--kills" => wanted.kills = value,
                "--minutes" => wanted.minutes = value,
                "--seed" => wanted.seed = Some(value),
                "--threads" => wanted.threads = value,
                "--case" => wanted.case = Some(value),
                _ => return None,
            }
        }
        Some(wanted)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["child", ref arguments @ ..] => kills::child(arguments),
        _ => match Wanted::of(&arguments) {
            Some(Wanted { case: Some(seed), .. }) => case(seed),
            Some(wanted) => soak(&wanted),
            None => Err(USAGE.to_owned()),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// One case again, as each plan has it.
fn case(seed: u64) -> Result<(), String> {
    [Plan::Cuts, Plan::Faults].into_iter().try_for_each(|plan| {
        let tally = Case::of(seed, plan).run()?;
        println!("{plan:?} of seed {seed} holds: {tally:?}");
        Ok(())
    })
}

fn soak(wanted: &Wanted) -> Result<(), String> {
    let seed = wanted.seed.unwrap_or_else(rng::entropy);
    eprintln!("seed {seed}");
    let (began, most) = (Instant::now(), Duration::from_secs(60 * wanted.minutes));
    let mut short = Vec::new();
    // A fifth of the cuts are on a disk that also fails.
    for (plan, cuts) in [(Plan::Cuts, wanted.cuts - wanted.cuts / 5), (Plan::Faults, wanted.cuts / 5)] {
        let campaign_began = Instant::now();
        let most = most.saturating_sub(began.elapsed());
        let campaign = Campaign { seed, plan, cuts, most, threads: wanted.threads as usize };
        let totals = campaign.run(&|so_far| eprintln!("{plan:?}: {so_far} of {cuts} power cuts"))?;
        let mut lives = 0;
        for (setting, tally) in &totals {
            let power_cuts = tally.cuts;
            lives += tally.cuts + tally.kills + tally.closes;
            println!(
                "{plan:?}, {setting}: {power_cuts} power cuts, {} of them while opening, {} kills, {} closed in \
                 order; {} commits, \
                 {} answers, {} commits taken back, {} checkpoints, {} tables declared, \
                 {} conversions, {} migrations, {} refused by constraints, {} numbers given, {} failures met",
                tally.cuts_opening,
                tally.kills,
                tally.closes,
                tally.commits,
                tally.answers,
                tally.taken_back,
                tally.checkpoints,
                tally.declared,
                tally.conversions,
                tally.migrations,
                tally.refused,
                tally.numbers,
                tally.faults
            );
        }
        match totals.values().map(|tally| tally.cuts).sum::<u64>() {
            0 if cuts == 0 => {}
            made if made < cuts => short.push(format!("{plan:?}: {made} of {cuts} power cuts")),
            _ => short.extend(covered(&totals, plan).err()),
        }
        let seconds = campaign_began.elapsed().as_secs_f64();
        println!("{plan:?}: {lives} lives in {seconds:.0} s, {:.0} a second", lives as f64 / seconds);
    }
    let (mut recoveries, mut cases) = (0, 0);
    let directories = wanted.cuts / 500;
    while cases < directories && began.elapsed() < most {
        recoveries += directory::cut_each_operation(&Case::of(seed.wrapping_add(cases), Plan::Cuts))?;
        cases += 1;
    }
    println!("recoveries of {cases} directories were cut short at each operation: {recoveries}");
    if cases < directories {
        short.push(format!("the recoveries of {cases} of {directories} directories"));
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let kills = if began.elapsed() < most { wanted.kills } else { 0 };
    let mut killed = 0;
    // A quarter of them in the middle of chopped procedures, and a sixth each with durability by snapshot, beside
    // changes of the tables, and with rows that refer to each other.
    let (calls, snapshots, migrations, links) = (kills / 4, kills / 6, kills / 6, kills / 6);
    let loads = [
        (Load::Transfers, kills - calls - snapshots - migrations - links),
        (Load::Calls, calls),
        (Load::Snapshots, snapshots),
        (Load::Migrations, migrations),
        (Load::Links, links),
    ];
    for (load, kills) in loads {
        let progress = |done: u64| {
            if done.is_multiple_of(20) {
                eprintln!("{load:?}: {done} of {kills} kills");
            }
        };
        let totals = kills::run(&program, (load, Canary::None), kills, seed, &progress)?;
        for (setting, tally) in &totals {
            println!("{setting}: {} kills, {} acknowledged", tally.kills, tally.acknowledged);
        }
        killed += totals.values().map(|tally| tally.kills).sum::<u64>();
    }
    if killed < wanted.kills {
        short.push(format!("{killed} of {} kills", wanted.kills));
    }
    match &short[..] {
        [] => Ok(()),
        short => Err(format!("nothing was found, but less was done than was asked for:\n{}", short.join("\n"))),
    }
}
