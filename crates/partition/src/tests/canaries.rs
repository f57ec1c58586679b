//! Injected faults must be noticed.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::try_seed;
use crate::Scheme;
use crate::fault::{Fault, INJECTED};

/// Runs seeds until one fails with one of these messages; other failures do not count, and neither do panics.
fn is_noticed(fault: Fault, scheme: Scheme, kills: bool, words: &[&str]) {
    let mut others = BTreeSet::new();
    for seed in 0..400 {
        INJECTED.set(Some(fault));
        let ran = catch_unwind(AssertUnwindSafe(|| try_seed(seed, scheme, kills).map(drop)));
        INJECTED.set(None);
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(what)) if words.iter().any(|words| what.contains(words)) => {
                return eprintln!("seed {seed} notices {fault:?}: {what}");
            }
            Ok(Err(what)) => drop(others.insert(what)),
            Err(_) => drop(others.insert("a panic".to_owned())),
        }
    }
    panic!("{fault:?} is not noticed under {}, only {others:?}", scheme.name());
}

#[test]
fn canary_a_lost_dependency_is_noticed() {
    is_noticed(Fault::DependencyLost, Scheme::Speculation, false, &["was told", "no serial order"]);
}

#[test]
fn canary_a_forgotten_prepare_is_noticed() {
    for scheme in Scheme::ALL {
        is_noticed(Fault::PrepareForgotten, scheme, true, &["is at {", "was acknowledged and is lost"]);
    }
}

#[test]
fn canary_a_cascade_that_misses_one_is_noticed() {
    is_noticed(Fault::CascadeMissed, Scheme::LocalSpeculation, false, &["of which nothing is there", "the sum is"]);
    is_noticed(Fault::CascadeMissed, Scheme::Speculation, false, &["of which nothing is there", "the sum is"]);
}

#[test]
fn canary_a_void_response_that_is_kept_is_noticed() {
    is_noticed(Fault::VoidResponseKept, Scheme::Speculation, false, &["was told", "of which nothing is there"]);
}

#[test]
fn canary_an_undo_buffer_that_is_dropped_early_is_noticed() {
    for scheme in Scheme::ALL {
        is_noticed(Fault::UndoDroppedEarly, scheme, false, &["is at {"]);
    }
}

#[test]
fn canary_a_lock_that_is_skipped_is_noticed() {
    is_noticed(Fault::LockSkipped, Scheme::Locking, false, &["the sum is", "no serial order"]);
}

#[test]
fn canary_a_leaked_reply_is_noticed() {
    is_noticed(Fault::ReplyLeaked, Scheme::LocalSpeculation, false, &["was acknowledged and is lost"]);
    is_noticed(Fault::ReplyLeaked, Scheme::Speculation, false, &["was acknowledged and is lost"]);
}

#[test]
fn canary_a_leaked_user_abort_is_noticed() {
    is_noticed(
        Fault::UserAbortLeaked,
        Scheme::LocalSpeculation,
        false,
        &["no serial order", "of which nothing is there"],
    );
    is_noticed(Fault::UserAbortLeaked, Scheme::Speculation, false, &["no serial order", "of which nothing is there"]);
}

#[test]
fn canary_a_half_persisted_decision_is_noticed() {
    for scheme in Scheme::ALL {
        is_noticed(Fault::DecisionHalfPersisted, scheme, true, &["is at {"]);
    }
}

#[test]
fn canary_a_speculated_transaction_without_a_record_is_noticed() {
    is_noticed(Fault::SpeculatedUnrecorded, Scheme::Speculation, true, &["was told"]);
}

#[test]
#[ignore = "nightly: half a minute"]
fn canary_a_late_notice_that_is_believed_is_noticed() {
    is_noticed(Fault::LateNoticeTaken, Scheme::Speculation, true, &["no end"]);
}

#[test]
fn canary_work_undone_after_its_vote_is_noticed() {
    for scheme in Scheme::ALL {
        is_noticed(Fault::VotedUndone, scheme, true, &["is at {"]);
    }
}
