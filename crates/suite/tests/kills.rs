//! Real kills of real processes on real files. The long run is `cargo xtask soak`.

use std::path::Path;

use seriatim::protocols;
use seriatim::rng::{is_nightly, seed};
use seriatim_suite::Planted;
use seriatim_suite::kills::{Canary, Load, run};

/// In each setting.
fn kills(load: Load) -> u64 {
    match load {
        _ if !is_nightly() => 1,
        Load::Calls => 2,
        _ => 3,
    }
}

/// Returns the settings.
fn survives(test: &str, load: Load) -> Vec<String> {
    let (seed, program) = (seed(test), Path::new(env!("CARGO_BIN_EXE_soak")));
    let totals = run(program, (load, Canary::None), kills(load) * load.settings(), seed, &|_| ());
    let totals = totals.unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(totals.len() as u64, load.settings(), "each is tried: {totals:?}");
    for (setting, tally) in &totals {
        eprintln!("{setting}: {tally:?}");
        assert_eq!(tally.kills, kills(load), "{setting}");
        assert!(tally.acknowledged > 0 && tally.recovered > 0, "{setting}: no child got anywhere");
    }
    totals.into_keys().collect()
}

#[test]
fn acknowledged_transactions_survive_sigkill() {
    let settings = survives("acknowledged_transactions_survive_sigkill", Load::Transfers);
    for protocol in protocols().iter().map(|protocol| protocol.name) {
        let is_of = |setting: &String| setting.split([',', ' ']).any(|word| word == protocol);
        assert!(settings.iter().any(is_of), "{protocol} is not among {settings:?}");
    }
}

#[test]
#[ignore = "nightly: seconds"]
fn calls_that_are_cut_survive_sigkill_whole() {
    survives("calls_that_are_cut_survive_sigkill_whole", Load::Calls);
}

#[test]
#[ignore = "nightly: seconds"]
fn acknowledged_transactions_survive_sigkill_beside_changes_of_tables() {
    survives("acknowledged_transactions_survive_sigkill_beside_changes_of_tables", Load::Migrations);
}

#[test]
#[ignore = "nightly: seconds"]
fn rows_that_refer_to_each_other_survive_sigkill_and_no_number_is_given_twice() {
    survives("rows_that_refer_to_each_other_survive_sigkill_and_no_number_is_given_twice", Load::Links);
}

/// An orphan, a row that violates its condition, and a number that is given twice.
#[test]
#[ignore = "nightly: seconds"]
fn canary_planted_faults_are_noticed_after_sigkill() {
    let seed = seed("canary_planted_faults_are_noticed_after_sigkill");
    for planted in Planted::ALL {
        let program = Path::new(env!("CARGO_BIN_EXE_soak"));
        let problem = run(program, (Load::Links, Canary::Planted(planted)), CANARY_KILLS, seed, &|_| ());
        let problem = problem.expect_err("it is noticed");
        assert!(problem.contains(planted.alarm()), "{planted:?}: {problem}");
        eprintln!("{planted:?}: {problem}");
    }
}

#[test]
#[ignore = "nightly: seconds"]
fn sigkill_leaves_a_snapshot_as_its_readers_saw_it() {
    let (seed, program) =
        (seed("sigkill_leaves_a_snapshot_as_its_readers_saw_it"), Path::new(env!("CARGO_BIN_EXE_soak")));
    // A reader may lag, and miss the last before the kill.
    for more in 1..5 {
        let kills = 3 * more * Load::Snapshots.settings();
        let totals = run(program, (Load::Snapshots, Canary::None), kills, seed, &|_| ());
        let totals = totals.unwrap_or_else(|problem| panic!("{problem}"));
        eprintln!("{totals:?}");
        assert_eq!(totals.len() as u64, Load::Snapshots.settings(), "each is tried: {totals:?}");
        if totals.values().map(|tally| tally.snapshots).sum::<u64>() > 0 {
            return;
        }
    }
    panic!("no snapshot was recovered that a reader had told of");
}

#[test]
fn canary_a_child_that_ends_by_itself_is_a_fault() {
    let seed = seed("canary_a_child_that_ends_by_itself_is_a_fault");
    for (program, ends) in [("false", "exit status: 1"), ("true", "exit status: 0")] {
        let ended = run(Path::new(program), (Load::Transfers, Canary::None), 1, seed, &|_| ());
        let problem = ended.expect_err(program);
        assert!(problem.contains(ends), "{program}: {problem}");
    }
}

/// Children killed before a mistake counts as overlooked.
const CANARY_KILLS: u64 = 120;

#[test]
#[ignore = "nightly: minutes"]
fn canary_calls_that_are_lost_or_halved_are_noticed() {
    let seed = seed("canary_calls_that_are_lost_or_halved_are_noticed");
    for (canary, noticed) in [(Canary::Early, "acknowledged"), (Canary::Halves, "half a call")] {
        let program = Path::new(env!("CARGO_BIN_EXE_soak"));
        let problem = run(program, (Load::Calls, canary), CANARY_KILLS, seed, &|_| ());
        let problem = problem.expect_err("it is noticed");
        assert!(problem.contains(noticed), "{canary:?}: {problem}");
        eprintln!("{canary:?}: {problem}");
    }
}
