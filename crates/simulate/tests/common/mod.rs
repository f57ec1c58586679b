//! The simulated machine of the tests.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use seriatim_base::thread::{self, Touch};
use seriatim_simulate::{Costs, Guard, Machine, Work};

/// The costs of the simulated machine.
pub(crate) const COSTS: Costs = Costs {
    work: Work {
        begin: 100.0,
        node: 10.0,
        record: 20.0,
        revisit: 3.0,
        again: 1.0,
        store: 5.0,
        exchange: 15.0,
        copy: 2.0,
    },
    machine: Machine {
        transfer: 60.0,
        overlapped: 7.0,
        pause: 20.0,
        yields: 300.0,
        sleep: 50_000.0,
        region: 14.0,
        abort: 50.0,
    },
};

/// Ends a run that does not end by itself, and the test with it.
pub(crate) fn guard() -> Guard {
    let tell = |reason| panic!("{reason}");
    Guard { longest: Duration::from_secs(1), held: Duration::from_secs(60), report: Box::new(tell) }
}

/// A step at a word.
pub(crate) fn step(touch: Touch, word: &AtomicU64) {
    thread::step(touch, std::ptr::from_ref(word).cast());
}

/// Words on lines of their own.
#[repr(align(64))]
pub(crate) struct Line(pub(crate) AtomicU64);
