//! The costs of messages and keys on simulated cores.
//!
//! The owner's times were measured on one thread of an x86-64 server with optimization, as the fastest of three
//! runs. (The ignored test `time_of_an_owner` prints them.) A fragment without keys and its decision take
//! 480 ns. Each key takes 14 ns with undo and 10 ns without. Each locked key takes 300 ns, mostly in the map of
//! locks. A message takes some 60 ns more for the inbox. The time to wake a sleeping thread is only a rough
//! figure for Linux: a system call, and some microseconds until the thread runs.

use std::time::Duration;

use seriatim_transport::Costs;

use super::StoreCosts;

/// The name of these costs in reports.
pub const NAME: &str = "default";

/// The costs of messages.
pub const TRANSPORT: Costs = Costs {
    send: Duration::from_nanos(60),
    receive: Duration::from_nanos(150),
    wake: Duration::from_nanos(1500),
    woken: Duration::from_nanos(4000),
};

/// The costs of keys.
pub const STORE: StoreCosts = StoreCosts {
    fragment: Duration::from_nanos(60),
    key: Duration::from_nanos(10),
    undo: Duration::from_nanos(4),
    lock: Duration::from_nanos(300),
    more: Duration::ZERO,
};
