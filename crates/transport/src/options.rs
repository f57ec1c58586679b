//! How a deployment runs.

use std::time::Duration;

use seriatim_partition::Scheme;

/// Options of a deployment.
#[derive(Clone, Debug)]
pub struct Options {
    /// How transactions share a partition.
    pub scheme: Scheme,
    /// How many there are, at least one.
    pub partitions: u32,
    /// How many clients, at least one.
    pub ports: u32,
    /// What a message takes from any role to any other, added to what it takes anyway.
    pub delay: Duration,
    /// Messages that a role handles before it sends what follows from them. More save wake-ups; fewer answer sooner.
    pub batch_max: usize,
    /// Calls of a client that are not answered, at most.
    pub outstanding_max: usize,
    /// Numbers of calls are above this one. Where partitions or coordinators go on from disks, it is the highest that is kept there.
    pub numbers_above: u64,
    /// How long an owner or coordinator holds back what waits for its disk until those who wait for it are told.
    pub hold_max: Duration,
    /// Whether records are kept, so that an owner that panics can go on.
    pub records: bool,
    /// How often an owner looks who has waited too long for a lock (`locking`).
    pub tick: Duration,
    /// Ticks after which a transaction over several partitions no longer waits for a lock.
    pub lock_wait_ticks_max: u32,
    /// What messages cost simulated cores.
    pub costs: Costs,
    /// A mistake.
    #[cfg(any(test, feature = "canary"))]
    pub fault: Option<crate::Fault>,
}

impl Options {
    /// One client with one call under way, no delay, batches of 16, records, locks that are waited for 3 to 4 ms, and disks for 10 s.
    pub fn new(scheme: Scheme, partitions: u32) -> Options {
        Options {
            scheme,
            partitions,
            ports: 1,
            delay: Duration::ZERO,
            batch_max: 16,
            outstanding_max: 1,
            numbers_above: 0,
            hold_max: Duration::from_secs(10),
            records: true,
            tick: Duration::from_millis(1),
            lock_wait_ticks_max: 3,
            costs: Costs::default(),
            #[cfg(any(test, feature = "canary"))]
            fault: None,
        }
    }

    /// As owners have them.
    pub(crate) fn of_owners(&self) -> seriatim_partition::Options {
        let lock_wait_ticks_max = self.lock_wait_ticks_max;
        seriatim_partition::Options { scheme: self.scheme, records: self.records, lock_wait_ticks_max }
    }
}

/// What messages cost simulated cores. On threads they take what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// To put a message into an inbox.
    pub send: Duration,
    /// To take one out and to handle it, but for what a partition does.
    pub receive: Duration,
    /// To wake one that sleeps, for the one who wakes it.
    pub wake: Duration,
    /// From then until it goes on.
    pub woken: Duration,
}
