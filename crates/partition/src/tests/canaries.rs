//! Mistakes made on purpose must be noticed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::try_seed;
use crate::Scheme;
use crate::fault::{Fault, INJECTED};

/// Runs seeds until one notices: by what is wrong, not by an end that does not come.
fn is_noticed(fault: Fault, scheme: Scheme, kills: bool) {
    for seed in 0..400 {
        INJECTED.set(Some(fault));
        let ran = catch_unwind(AssertUnwindSafe(|| try_seed(seed, scheme, kills).map(drop)));
        INJECTED.set(None);
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(what)) if what.starts_with("stuck") || what.starts_with("no end") => {}
            Ok(Err(what)) => return eprintln!("seed {seed} notices {fault:?}: {what}"),
            Err(_) => return eprintln!("seed {seed} panics with {fault:?}"),
        }
    }
    panic!("{fault:?} is not noticed under {}", scheme.name());
}

#[test]
fn canary_a_lost_dependency_is_noticed() {
    is_noticed(Fault::DependencyLost, Scheme::Speculation, false);
}

#[test]
fn canary_a_forgotten_prepare_is_noticed() {
    for scheme in Scheme::ALL {
        is_noticed(Fault::PrepareForgotten, scheme, true);
    }
}

#[test]
fn canary_a_cascade_that_misses_one_is_noticed() {
    is_noticed(Fault::CascadeMissed, Scheme::LocalSpeculation, false);
    is_noticed(Fault::CascadeMissed, Scheme::Speculation, false);
}

#[test]
fn canary_a_void_response_that_is_kept_is_noticed() {
    is_noticed(Fault::VoidResponseKept, Scheme::Speculation, false);
}

#[test]
fn canary_an_undo_buffer_that_is_dropped_early_is_noticed() {
    for scheme in Scheme::ALL {
        is_noticed(Fault::UndoDroppedEarly, scheme, false);
    }
}

#[test]
fn canary_a_lock_that_is_skipped_is_noticed() {
    is_noticed(Fault::LockSkipped, Scheme::Locking, false);
}

#[test]
fn canary_a_leaked_reply_is_noticed() {
    is_noticed(Fault::ReplyLeaked, Scheme::LocalSpeculation, false);
    is_noticed(Fault::ReplyLeaked, Scheme::Speculation, false);
}

#[test]
fn canary_a_leaked_user_abort_is_noticed() {
    is_noticed(Fault::UserAbortLeaked, Scheme::LocalSpeculation, false);
    is_noticed(Fault::UserAbortLeaked, Scheme::Speculation, false);
}

#[test]
fn canary_a_half_persisted_decision_is_noticed() {
    for scheme in Scheme::ALL {
        is_noticed(Fault::DecisionHalfPersisted, scheme, true);
    }
}

#[test]
fn canary_a_speculated_transaction_without_a_record_is_noticed() {
    is_noticed(Fault::SpeculatedUnrecorded, Scheme::Speculation, true);
}
