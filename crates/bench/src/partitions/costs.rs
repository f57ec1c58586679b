//! What messages and keys cost simulated cores.
//!
//! Measured on one core of an x86-64 server in a release build, by the times of the same code on one thread (`measure` has it). Waking a thread that sleeps
//! is what two threads that hand a word to each other take.

use std::time::Duration;

use seriatim_transport::Costs;

use super::StoreCosts;

/// Names these in reports.
pub const NAME: &str = "default";

/// Of messages.
pub const TRANSPORT: Costs = Costs {
    send: Duration::from_nanos(60),
    receive: Duration::from_nanos(250),
    wake: Duration::from_nanos(1500),
    woken: Duration::from_nanos(4000),
};

/// Of keys.
pub const STORE: StoreCosts = StoreCosts {
    fragment: Duration::from_nanos(40),
    key: Duration::from_nanos(20),
    undo: Duration::from_nanos(6),
    lock: Duration::from_nanos(120),
    more: Duration::ZERO,
};
