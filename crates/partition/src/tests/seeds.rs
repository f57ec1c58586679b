//! Seeds under every scheme, with and without kills.

use seriatim_base::rng::tries;

use super::try_seed;
use crate::{Conflict, Outcome, Scheme};

/// The number of seeds: `SERIATIM_SEEDS`, or `few` in a nightly run and a tenth of them with each change.
fn seeds(few: u64) -> u64 {
    let given = std::env::var("SERIATIM_SEEDS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| tries(few / 10, few))
}

fn all_hold(scheme: Scheme, kills: bool) {
    let (mut committed, mut killed) = (0, 0);
    for seed in 0..seeds(if kills { 150 } else { 100 }) {
        eprintln!("seed {seed} {} kills {kills}", scheme.name());
        let ran = try_seed(seed, scheme, kills).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        committed += ran.attempts.values().filter(|a| matches!(a.answer, Some(Outcome::Committed(_)))).count();
        killed += ran.kills;
    }
    let enough = seeds(100);
    assert!(committed as u64 > 10 * enough && kills == (killed > enough), "{committed} commits, {killed} kills");
}

#[test]
fn blocking_is_serializable() {
    all_hold(Scheme::Blocking, false);
}

#[test]
fn local_speculation_is_serializable() {
    all_hold(Scheme::LocalSpeculation, false);
}

#[test]
fn speculation_is_serializable() {
    all_hold(Scheme::Speculation, false);
}

#[test]
fn locking_is_serializable() {
    all_hold(Scheme::Locking, false);
}

#[test]
fn blocking_survives_kills() {
    all_hold(Scheme::Blocking, true);
}

#[test]
fn local_speculation_survives_kills() {
    all_hold(Scheme::LocalSpeculation, true);
}

#[test]
fn speculation_survives_kills() {
    all_hold(Scheme::Speculation, true);
}

#[test]
fn locking_survives_kills() {
    all_hold(Scheme::Locking, true);
}

#[test]
fn equal_seeds_have_equal_traces() {
    for scheme in Scheme::ALL {
        for seed in 0..tries(2, 20) {
            eprintln!("seed {seed} {}", scheme.name());
            let trace = || try_seed(seed, scheme, true).expect("it holds").trace;
            assert_eq!(trace(), trace());
        }
        assert_ne!(
            try_seed(1, scheme, true).expect("it holds").trace,
            try_seed(2, scheme, true).expect("it holds").trace
        );
    }
}

/// Only locking has conflicts, and it has both kinds; all schemes have user aborts.
#[test]
fn seeds_reach_what_they_should() {
    for scheme in Scheme::ALL {
        let (mut user, mut deadlocks, mut timeouts) = (0, 0, 0);
        let seeds = if scheme == Scheme::Locking { 60 } else { tries(15, 60) };
        for seed in 0..seeds {
            eprintln!("seed {seed} {}", scheme.name());
            for attempt in try_seed(seed, scheme, false).expect("it holds").attempts.values() {
                match attempt.answer {
                    Some(Outcome::UserAborted(_)) => user += 1,
                    Some(Outcome::Conflict(Conflict::Deadlock(_))) => deadlocks += 1,
                    Some(Outcome::Conflict(Conflict::Timeout(_))) => timeouts += 1,
                    _ => {}
                }
            }
        }
        assert!(user > tries(10, 50), "{user} user aborts under {}", scheme.name());
        let has_conflicts = scheme == Scheme::Locking;
        assert_eq!((deadlocks > 0, timeouts > 0), (has_conflicts, has_conflicts), "{}", scheme.name());
    }
}
