//! The microbenchmark of partitions with one owner each (Jones, Abadi, Madden, SIGMOD 2010, §5.1 to §5.4):
//! twelve keys a transaction, at one partition or six at each of two, over a hash table in memory, carried by
//! the crate `transport`.
//!
//! Each client has keys of its own, reads and increments them, and asks again when it is answered. With
//! conflicts the first clients keep to one partition each for single-partition transactions, and others write
//! one of their keys.
//!
//! Invariant, which each run is checked by: at each partition the sum of values has grown by the keys that were
//! written there by transactions that were answered to have committed, and by no others; nothing is left under
//! way. A run that is recorded is also checked to be strictly serializable, by what clients were told alone.
//!
//! Roles are closures: on threads they run side by side ([`on_threads`]), on simulated cores whoever has them
//! runs them.

mod check;
mod client;
mod clients;
pub mod costs;
pub mod declared;
pub mod model;
mod program;
mod roles;
mod store;
#[cfg(test)]
mod tests;
pub mod tpcc;
mod undoable;

use std::time::Duration;

use seriatim_partition::{PartitionId, Scheme};
use seriatim_transport::{Application, Costs};

use crate::stationary;
use roles::Ends;

pub use client::Told;
pub use clients::Counted;
pub use program::{Program, Seen};
pub use store::{Few, Store, StoreCosts, Work};
pub use undoable::{Rows, Undoable};

/// Keys of a transaction.
pub const KEYS: usize = 12;
/// Partitions that it is over, if it is over several.
pub const PARTS: usize = 2;

/// The partitions and procedures of the microbenchmark.
#[derive(Debug)]
pub struct TwelveKeys;

impl Application for TwelveKeys {
    type Partition = Undoable<Store>;
    type Procedure = Program;
}

/// What transactions are like: shares, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// Transactions over two partitions, of all.
    pub multi: f64,
    /// Those that write a key of another client, of all.
    pub conflicts: f64,
    /// Those that fail by their own will, of all.
    pub aborts: f64,
    /// Of those over two partitions, those that read in a first round and write in a second.
    pub two_rounds: f64,
    /// Whether all keep undo although they cannot fail. It measures what undo costs.
    pub undo: bool,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Scheme, partitions, delay, batches and costs.
    pub transport: seriatim_transport::Options,
    /// What is asked for.
    pub mix: Mix,
    /// Clients, each with one transaction under way.
    pub clients: u32,
    /// What a key costs simulated cores.
    pub store: StoreCosts,
    /// Runs before the measurement.
    pub warmup: Duration,
    /// Is measured.
    pub length: Duration,
    /// Determines what is asked for.
    pub seed: u64,
    /// Whether what clients are told is recorded, and checked to be serializable.
    pub records: bool,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// In the measured time.
    pub committed: u64,
    /// Likewise, over two partitions.
    pub committed_multi: u64,
    /// Likewise.
    pub user_aborted: u64,
    /// Attempts that waited in a circle or too long for a lock, likewise. They were made again.
    pub conflict_aborted: u64,
    /// Of the measurement.
    pub seconds: f64,
    /// Transactions that ended by themselves in each half of the measured time.
    pub halves: [u64; 2],
    /// Nanoseconds until transactions were answered, sorted.
    pub latencies: Vec<u64>,
    /// Transactions of the whole run that ended by themselves: on one partition, and over two.
    pub ended: [u64; 2],
    /// What owners did in the whole run.
    pub owners: Vec<seriatim_transport::Counts>,
    /// What the coordinator did, if there was one.
    pub coordinator: Option<seriatim_transport::Counts>,
    /// Fragments that ran, and those that were taken back.
    pub fragments: [u64; 2],
    /// Of the whole run, until all was over.
    pub whole: Duration,
    /// Transactions of a recorded run, which has an order.
    pub ordered: Option<u64>,
}

impl Measured {
    /// Transactions a second that ended by themselves.
    pub fn per_second(&self) -> f64 {
        (self.committed + self.user_aborted) as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Whether throughput was the same in both halves of the measured time, up to this part.
    pub fn is_stationary(&self, apart_max: f64) -> bool {
        stationary::is_alike(self.halves.map(|count| count as f64), apart_max)
    }

    /// Nanoseconds within which this share of transactions was answered.
    pub fn latency(&self, share: f64) -> u64 {
        let at = (self.latencies.len() as f64 * share) as usize;
        self.latencies.get(at.min(self.latencies.len().saturating_sub(1))).copied().unwrap_or(0)
    }
}

/// What a role of the microbenchmark gives back.
pub type Gives = roles::Gives<TwelveKeys, Told>;

/// One of its roles.
pub type Role = roles::Role<Gives>;

impl Plan {
    /// The paper's: two partitions, 40 clients, and as many threads for these as are given.
    pub fn new(scheme: Scheme, client_threads: u32) -> Plan {
        let clients = 40;
        let threads = client_threads.clamp(1, clients);
        let transport = seriatim_transport::Options {
            ports: threads,
            outstanding_max: clients.div_ceil(threads) as usize,
            records: false,
            ..seriatim_transport::Options::new(scheme, PARTS as u32)
        };
        Plan {
            transport,
            mix: Mix::default(),
            clients,
            store: StoreCosts::default(),
            warmup: Duration::ZERO,
            length: Duration::from_secs(1),
            seed: 1,
            records: false,
        }
    }

    /// With so many clients instead, on so many threads.
    #[must_use]
    pub fn with_clients(mut self, clients: u32, threads: u32) -> Plan {
        self.clients = clients.max(1);
        self.transport.ports = threads.clamp(1, self.clients);
        self.transport.outstanding_max = self.clients.div_ceil(self.transport.ports) as usize;
        self
    }

    /// Charged on simulated cores.
    #[must_use]
    pub fn charged(mut self, transport: Costs, store: StoreCosts) -> Plan {
        (self.transport.costs, self.store) = (transport, store);
        self
    }

    /// The roles.
    pub fn roles(&self) -> Vec<Role> {
        let (keys, costs, plan) = (self.clients * KEYS as u32, self.store, self.clone());
        let make = move |_: PartitionId| Undoable::new(Store::new(keys, costs));
        roles::roles::<TwelveKeys, Told>(&self.transport, make, None, move |port, number| {
            client::serve(&plan, port, number)
        })
    }

    /// What came of it, if all is as it must be.
    ///
    /// # Errors
    /// What is not.
    pub fn finish(&self, given: Vec<Gives>) -> Result<Measured, String> {
        let ends = Ends::of(given);
        let ordered = check::check(self, &ends)?;
        let measured = ends.measured(self.length.as_secs_f64(), ends.fragments(), |told| &told.counted);
        Ok(Measured { ordered, ..measured })
    }
}

/// Runs a plan on threads.
///
/// # Errors
/// What is not as it must be, or that a role panicked.
pub fn on_threads(plan: &Plan) -> Result<Measured, String> {
    plan.finish(roles::on_threads(plan.roles())?)
}
