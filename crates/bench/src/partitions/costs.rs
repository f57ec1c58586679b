//! What messages and keys cost simulated cores.
//!
//! What an owner does was measured on one thread of an x86-64 server, optimized, the fastest of three runs (the
//! ignored test `what_an_owner_takes` prints it): 480 ns for a fragment without keys and its decision, 14 ns
//! for each key with undo, 10 without, and 300 ns for each key that is locked, most of which is the map of
//! locks. A message has some 60 ns more, to put it into an inbox. To wake a thread that sleeps takes what it
//! takes on Linux, of which only the order is right: a system call, and some microseconds until it runs.

use std::time::Duration;

use seriatim_transport::Costs;

use super::StoreCosts;

/// Names these in reports.
pub const NAME: &str = "default";

/// Of messages.
pub const TRANSPORT: Costs = Costs {
    send: Duration::from_nanos(60),
    receive: Duration::from_nanos(150),
    wake: Duration::from_nanos(1500),
    woken: Duration::from_nanos(4000),
};

/// Of keys.
pub const STORE: StoreCosts = StoreCosts {
    fragment: Duration::from_nanos(60),
    key: Duration::from_nanos(10),
    undo: Duration::from_nanos(4),
    lock: Duration::from_nanos(300),
    more: Duration::ZERO,
};
