//! The settings of a deployment.

use std::time::Duration;

use seriatim_partition::Scheme;

/// Options of a deployment.
#[derive(Clone, Debug)]
pub struct Options {
    /// How transactions share a partition.
    pub scheme: Scheme,
    /// The number of partitions, at least one.
    pub partitions: u32,
    /// The number of clients, at least one.
    pub ports: u32,
    /// The time that a message takes from any role to any other, added to the time of the channel.
    pub delay: Duration,
    /// Messages that a role handles before it sends the outputs. More save wake-ups; fewer answer sooner.
    pub batch_max: usize,
    /// The most unanswered calls of a client.
    pub outstanding_max: usize,
    /// Numbers of calls are above this one. Where partitions or coordinators continue from disks, it is the
    /// highest number in their state.
    pub numbers_above: u64,
    /// How long an owner or coordinator holds outputs back for its disk before it is late.
    pub hold_max: Duration,
    /// Whether records are kept, so that an owner that panics can continue.
    pub records: bool,
    /// How often an owner looks for transactions that have waited too long for a lock (`locking`).
    pub tick: Duration,
    /// Ticks after which a transaction over several partitions stops waiting for a lock.
    pub lock_wait_ticks_max: u32,
    /// The cost of messages on simulated cores.
    pub costs: Costs,
    /// An injected fault.
    #[cfg(any(test, feature = "canary"))]
    pub fault: Option<crate::Fault>,
}

impl Options {
    /// One client with one call under way, no delay, batches of 16, and records. Lock waits end after 3 to 4
    /// ms, and roles wait for disks for 10 s.
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

    /// The options of owners.
    pub(crate) fn of_owners(&self) -> seriatim_partition::Options {
        let lock_wait_ticks_max = self.lock_wait_ticks_max;
        seriatim_partition::Options { scheme: self.scheme, records: self.records, lock_wait_ticks_max }
    }
}

/// The cost of messages on simulated cores. On threads they take their real time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// To put a message into an inbox.
    pub send: Duration,
    /// To take one out and to handle it, without the work of a partition.
    pub receive: Duration,
    /// To wake a sleeping role, for the role that wakes it.
    pub wake: Duration,
    /// From then until the sleeping role continues.
    pub woken: Duration,
}
