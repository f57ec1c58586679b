//! The microbenchmark of partitions with one owner each (Jones, Abadi, Madden, SIGMOD 2010, §5.1 to §5.4). A
//! transaction has twelve keys, at one partition or six at each of two, in a hash table in memory. The crate
//! `transport` carries its messages.
//!
//! Each client reads and increments its own keys, and sends the next request after the answer. With conflicts, each of
//! the first clients uses only one partition for single-partition transactions, and others write one of their keys.
//!
//! Invariant, checked after each run: at each partition the sum of values has grown by the number of keys that
//! reported commits wrote there. No transaction is still in progress. A recorded run is also checked to be
//! strictly serializable, from the clients' results alone.
//!
//! Roles are closures. On threads they run concurrently ([`on_threads`]); on simulated cores the machine runs them.

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

pub use client::ClientResults;
pub use clients::Counted;
pub use program::{Program, Seen};
pub use store::{Few, Store, StoreCosts, Work};
pub use undoable::{Rows, Undoable};

/// Keys of a transaction.
pub const KEYS: usize = 12;
/// Partitions of a multi-partition transaction.
pub const PARTS: usize = 2;

/// The partitions and procedures of the microbenchmark.
#[derive(Debug)]
pub struct TwelveKeys;

impl Application for TwelveKeys {
    type Partition = Undoable<Store>;
    type Procedure = Program;
}

/// The mix of transactions, as shares from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mix {
    /// The share of transactions that use two partitions.
    pub multi: f64,
    /// The share of transactions that write a key of another client.
    pub conflicts: f64,
    /// The share of transactions that roll back by themselves.
    pub aborts: f64,
    /// The share of multi-partition transactions that read in a first round and write in a second.
    pub two_rounds: f64,
    /// Whether all transactions keep undo, even if they cannot fail. This measures the cost of undo.
    pub undo: bool,
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Scheme, partitions, delay, batches and costs.
    pub transport: seriatim_transport::Options,
    /// The mix of transactions.
    pub mix: Mix,
    /// The number of clients, each with one transaction in progress.
    pub clients: u32,
    /// The cost of a key on simulated cores.
    pub store: StoreCosts,
    /// The length of the warm-up.
    pub warmup: Duration,
    /// The length of the measurement.
    pub length: Duration,
    /// The seed of all inputs.
    pub seed: u64,
    /// Whether the clients' results are recorded and checked to be serializable.
    pub records: bool,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Commits in the measurement.
    pub committed: u64,
    /// Commits on two partitions in the measurement.
    pub committed_multi: u64,
    /// Transactions that rolled back by themselves in the measurement.
    pub user_aborted: u64,
    /// Attempts in the measurement that ended by a deadlock or by a timeout of a lock. They were retried.
    pub conflict_aborted: u64,
    /// The length of the measurement.
    pub seconds: f64,
    /// Commits and rollbacks by the transaction itself, in each half of the measurement.
    pub halves: [u64; 2],
    /// Nanoseconds until transactions were answered, sorted.
    pub latencies: Vec<u64>,
    /// Commits and rollbacks by the transaction itself, in the whole run: on one partition, and on two.
    pub ended: [u64; 2],
    /// The counts of owners in the whole run.
    pub owners: Vec<seriatim_transport::Counts>,
    /// The counts of the coordinator, if there was one.
    pub coordinator: Option<seriatim_transport::Counts>,
    /// Fragments that ran, and fragments that were undone.
    pub fragments: [u64; 2],
    /// The length of the whole run.
    pub whole: Duration,
    /// The number of ordered transactions of a recorded run.
    pub ordered: Option<u64>,
}

impl Measured {
    /// Commits and rollbacks by the transaction itself, per second.
    pub fn per_second(&self) -> f64 {
        (self.committed + self.user_aborted) as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Whether the throughputs of both halves of the measurement differ by at most this share.
    pub fn is_stationary(&self, apart_max: f64) -> bool {
        stationary::is_alike(self.halves.map(|count| count as f64), apart_max)
    }

    /// Nanoseconds within which this share of transactions was answered.
    pub fn latency(&self, share: f64) -> u64 {
        let at = (self.latencies.len() as f64 * share) as usize;
        self.latencies.get(at.min(self.latencies.len().saturating_sub(1))).copied().unwrap_or(0)
    }
}

/// The result of a role of the microbenchmark.
pub type RoleOutput = roles::RoleOutput<TwelveKeys, ClientResults>;

/// A role of the microbenchmark.
pub type Role = roles::Role<RoleOutput>;

impl Plan {
    /// The paper's plan: two partitions and 40 clients, on `client_threads` threads.
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

    /// Changes the number of clients and of their threads.
    #[must_use]
    pub fn with_clients(mut self, clients: u32, threads: u32) -> Plan {
        self.clients = clients.max(1);
        self.transport.ports = threads.clamp(1, self.clients);
        self.transport.outstanding_max = self.clients.div_ceil(self.transport.ports) as usize;
        self
    }

    /// Sets the costs on simulated cores.
    #[must_use]
    pub fn charged(mut self, transport: Costs, store: StoreCosts) -> Plan {
        (self.transport.costs, self.store) = (transport, store);
        self
    }

    /// The roles.
    pub fn roles(&self) -> Vec<Role> {
        let (keys, costs, plan) = (self.clients * KEYS as u32, self.store, self.clone());
        let make = move |_: PartitionId| Undoable::new(Store::new(keys, costs));
        roles::roles::<TwelveKeys, ClientResults>(&self.transport, make, None, move |port, number| {
            client::serve(&plan, port, number)
        })
    }

    /// The results, if the run passes its check.
    ///
    /// # Errors
    /// The first failed check.
    pub fn finish(&self, given: Vec<RoleOutput>) -> Result<Measured, String> {
        let ends = Ends::of(given);
        let ordered = check::check(self, &ends)?;
        let measured = ends.measured(self.length.as_secs_f64(), ends.fragments(), |results| &results.counted);
        Ok(Measured { ordered, ..measured })
    }
}

/// Runs a plan on threads.
///
/// # Errors
/// A failed check, or a role that panicked.
pub fn on_threads(plan: &Plan) -> Result<Measured, String> {
    plan.finish(roles::on_threads(plan.roles())?)
}
