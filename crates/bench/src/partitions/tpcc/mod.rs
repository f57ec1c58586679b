//! TPC-C on partitions with one owner each (Jones, Abadi, Madden, SIGMOD 2010, §5.5 and §5.6). Warehouses are
//! distributed evenly over partitions. Items and the read-only columns of stock are replicated. A fixed number
//! of clients have one warehouse each.
//!
//! A multi-partition transaction has one round, and each partition does its part: for New-Order the stock that
//! it supplies, for Payment its customer. Rows and transactions are those of the roofline, in plain arrays. An
//! order of a missing item fails at its own warehouse before it has changed anything, so without speculation no
//! transaction needs undo. The stock that other partitions have supplied is restored.
//!
//! Invariant, checked after each run: conditions 1 to 4 of clause 3.3.2. Orders, quantities, payments and
//! deliveries at all partitions are exactly those of reported commits, at the right warehouses.

mod check;
mod client;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use seriatim_base::Rng;
use seriatim_partition::{FragmentRequest, Next, PartitionId, Procedure};
use seriatim_transport::Application;
use seriatim_workload::roofline::data::{self, Item};
use seriatim_workload::roofline::transactions::{Named, NewOrder};

use super::roles::{self, Ends};
use super::{Measured, StoreCosts, Undoable};

pub use client::ClientResults;
pub use seriatim_workload::roofline::data::Extent;
pub use store::{Key, Store};

/// The partitions and procedures of TPC-C.
#[derive(Debug)]
pub struct Tpcc;

impl Application for Tpcc {
    type Partition = Undoable<Store>;
    type Procedure = Program;
}

/// A transaction. Every partition gets the same one and does its part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The home warehouse.
    pub(super) home: u16,
    pub(super) asks: Asks,
}

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asks {
    NewOrder(NewOrder),
    Payment { district: u8, amount: f64, warehouse: u16, of_district: u8, named: Named },
    OrderStatus { district: u8, named: Named },
    Delivery { carrier: u8 },
    StockLevel { district: u8, threshold: i32 },
}

impl Work {
    /// The warehouses that it needs, its home first.
    fn warehouses(&self) -> impl Iterator<Item = u16> {
        let suppliers = match &self.asks {
            Asks::NewOrder(order) => order.lines(),
            _ => &[],
        };
        let customer = match self.asks {
            Asks::Payment { warehouse, .. } => Some(warehouse),
            _ => None,
        };
        std::iter::once(self.home).chain(suppliers.iter().map(|line| line.supply)).chain(customer)
    }

    /// Whether it rolls back by itself.
    fn fails(&self) -> bool {
        matches!(&self.asks, Asks::NewOrder(order) if order.is_unused)
    }
}

/// The kinds of transactions in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kinds {
    /// All five, in the standard shares (clause 5.2.3).
    #[default]
    Full,
    /// Only New-Order (§5.6).
    NewOrder,
}

/// A multi-partition transaction, in one round.
#[derive(Clone, Debug)]
pub struct Program {
    work: Work,
    partitions: Vec<PartitionId>,
    is_sent: bool,
}

impl Procedure for Program {
    type Work = Work;
    type Reply = f64;
    type Abort = ();
    type Output = f64;

    fn next(&mut self, replies: Vec<(PartitionId, Option<f64>)>) -> Next<Work, f64, ()> {
        if std::mem::replace(&mut self.is_sent, true) {
            return Next::Done(replies.into_iter().filter_map(|(_, reply)| reply).sum());
        }
        Next::Round(self.partitions.iter().map(|&partition| FragmentRequest::last(partition, self.work)).collect())
    }
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Scheme, partitions, delay, batches and costs.
    pub transport: seriatim_transport::Options,
    /// The number of warehouses. Warehouse `w` is in partition `w mod n`.
    pub warehouses: u16,
    /// The number of rows of each warehouse.
    pub extent: Extent,
    /// The kinds of transactions.
    pub kinds: Kinds,
    /// The percentage of order lines that another warehouse supplies (1 by clause 2.4.1.5).
    pub remote: f64,
    /// The percentage of payments by a customer of another warehouse (15 by clause 2.5.1.2).
    pub remote_payments: f64,
    /// The number of clients, each with a warehouse and one transaction in progress.
    pub clients: u32,
    /// The cost of a row on simulated cores.
    pub store: StoreCosts,
    /// The length of the warm-up.
    pub warmup: Duration,
    /// The length of the measurement.
    pub length: Duration,
    /// The seed of rows and inputs.
    pub seed: u64,
}

/// The result of a role.
pub type RoleOutput = roles::RoleOutput<Tpcc, ClientResults>;

impl Plan {
    /// The specification's shares. The other options come from a plan of the microbenchmark.
    pub fn of(plan: &super::Plan, warehouses: u16, extent: Extent) -> Plan {
        Plan {
            transport: plan.transport.clone(),
            warehouses,
            extent,
            kinds: Kinds::Full,
            remote: 1.0,
            remote_payments: 15.0,
            clients: plan.clients,
            store: plan.store,
            warmup: plan.warmup,
            length: plan.length,
            seed: plan.seed,
        }
    }

    /// The partition of a warehouse.
    fn partition_of(&self, warehouse: u16) -> PartitionId {
        PartitionId(u32::from(warehouse) % self.transport.partitions)
    }

    /// The roles.
    pub fn roles(&self) -> Vec<roles::Role<RoleOutput>> {
        let (plan, items): (_, Arc<[Item]>) = (self.clone(), data::items(&self.extent).into());
        let make = {
            let plan = self.clone();
            move |id: PartitionId| Undoable::new(Store::new(&plan, id, Arc::clone(&items)))
        };
        roles::roles::<Tpcc, ClientResults>(&self.transport, make, None, move |port, number| {
            client::serve(&plan, port, number)
        })
    }

    /// The results, if the run passes its check.
    ///
    /// # Errors
    /// The first failed check.
    pub fn finish(&self, given: Vec<RoleOutput>) -> Result<Measured, String> {
        let ends = Ends::of(given);
        ends.check(self.transport.scheme, |results: &ClientResults| &results.counted)?;
        check::check(self, &ends)?;
        Ok(ends.measured(self.length.as_secs_f64(), ends.fragments(), |results| &results.counted))
    }

    /// The random generator for the rows of a warehouse.
    fn rows(&self, warehouse: u16) -> Rng {
        Rng::from_seed(self.seed ^ (u64::from(warehouse) + 1) << 40)
    }
}

/// Runs a plan on threads.
///
/// # Errors
/// A failed check, or a role that panicked.
pub fn on_threads(plan: &Plan) -> Result<Measured, String> {
    plan.finish(roles::on_threads(plan.roles())?)
}
