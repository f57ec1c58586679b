//! The contents of a partition of TPC-C: some warehouses, and all items.

use std::sync::Arc;
use std::time::Duration;

use seriatim_base::thread;
use seriatim_partition::{LockMode, PartitionId};
use seriatim_workload::roofline::data::{DISTRICTS, Item, Warehouse};
use seriatim_workload::roofline::transactions::{Before, Named, Notes};

use super::super::store::spend;
use super::{Asks, Plan, Work};
use crate::partitions::{Rows, StoreCosts};

/// The rows of a warehouse that a lock protects. `Customers` and `Stock` cover all rows that also have their own locks.
/// A fragment takes them shared if it locks single rows, and exclusive if the rows are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The row of the warehouse, and its payments.
    Warehouse(u16),
    /// The row of a district, its orders and their lines.
    District(u16, u8),
    /// All customers of a district.
    Customers(u16, u8),
    /// One customer.
    Customer(u16, u8, u32),
    /// The whole stock.
    Stocks(u16),
    /// The stock of an item.
    Stock(u16, u32),
}

/// The contents of a partition.
pub struct Store {
    id: PartitionId,
    partitions: u32,
    pub(super) warehouses: Vec<Warehouse>,
    items: Arc<[Item]>,
    costs: StoreCosts,
    /// Used as a date.
    now: u64,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("id", &self.id)
            .field("warehouses", &self.warehouses.len())
            .finish_non_exhaustive()
    }
}

/// Records the changes at a warehouse, if they may be undone.
struct Noting<'u> {
    at: u16,
    undo: Option<&'u mut Vec<(u16, Before)>>,
}

impl Noting<'_> {
    fn at(&mut self, warehouse: u16) -> &mut Self {
        self.at = warehouse;
        self
    }
}

impl Notes for Noting<'_> {
    fn note(&mut self, before: impl FnOnce() -> Before) {
        if let Some(undo) = &mut self.undo {
            undo.push((self.at, before()));
        }
    }
}

impl Store {
    pub(super) fn new(plan: &Plan, id: PartitionId, items: Arc<[Item]>) -> Store {
        let own = (0..plan.warehouses).filter(|&warehouse| plan.partition_of(warehouse) == id);
        let warehouses = own.map(|warehouse| Warehouse::load(&mut plan.rows(warehouse), &plan.extent)).collect();
        let (partitions, costs) = (plan.transport.partitions, plan.store);
        Store { id, partitions, warehouses, items, costs, now: 0 }
    }

    /// The numbers of its warehouses.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u16, &Warehouse)> {
        let number = |at: u32| (self.id.0 + at * self.partitions) as u16;
        (0..).map(number).zip(&self.warehouses)
    }

    fn has(&self, warehouse: u16) -> bool {
        u32::from(warehouse) % self.partitions == self.id.0
    }

    fn at(&mut self, warehouse: u16) -> &mut Warehouse {
        &mut self.warehouses[usize::from(warehouse) / self.partitions as usize]
    }

    /// The approximate number of rows that it reads or writes here.
    fn rows(&self, work: &Work) -> u32 {
        match &work.asks {
            Asks::NewOrder(order) => {
                let supplied = order.lines().iter().filter(|line| self.has(line.supply)).count() as u32;
                // Warehouse, district, customer and order; an item and a line each.
                supplied + if self.has(work.home) { 4 + 2 * u32::from(order.count) } else { 0 }
            }
            Asks::Payment { warehouse, .. } => 3 * u32::from(self.has(work.home)) + 2 * u32::from(self.has(*warehouse)),
            Asks::OrderStatus { .. } => 13,
            Asks::Delivery { .. } => 13 * DISTRICTS as u32,
            Asks::StockLevel { .. } => 401,
        }
    }

    fn part(&mut self, work: &Work, notes: &mut Noting<'_>) -> f64 {
        let (home, now) = (work.home, self.now);
        match &work.asks {
            Asks::NewOrder(order) => {
                for line in order.lines().iter().filter(|line| line.supply != home) {
                    if self.has(line.supply) {
                        self.at(line.supply).supply(line, notes.at(line.supply));
                    }
                }
                if !self.has(home) {
                    return 0.0;
                }
                let items = Arc::clone(&self.items);
                self.at(home).enter(&items, order, home, now, notes.at(home))
            }
            &Asks::Payment { district, amount, warehouse, of_district, named } => {
                let mut balance = 0.0;
                if self.has(warehouse) {
                    let customers = self.at(warehouse);
                    let customer = customers.find(of_district.into(), named);
                    balance = customers.credit(of_district.into(), customer, amount, notes.at(warehouse));
                }
                if self.has(home) {
                    // The history has the name that the payment used.
                    let (Named::Id(name) | Named::Last(name)) = named;
                    self.at(home).take(district.into(), name, amount, notes.at(home));
                }
                balance
            }
            &Asks::OrderStatus { district, named } => {
                let warehouse = self.at(home);
                warehouse.order_status(district.into(), warehouse.find(district.into(), named))
            }
            &Asks::Delivery { carrier } => self.at(home).deliver(carrier, now, notes.at(home)),
            &Asks::StockLevel { district, threshold } => self.at(home).stock_level(district.into(), threshold),
        }
    }

    /// The locks of this part.
    fn locks(&self, work: &Work, locks: &mut Vec<(Key, LockMode)>) {
        use LockMode::{Exclusive, Shared};
        let home = work.home;
        let customer = |warehouse: u16, district: u8, named: Named| {
            let at = &self.warehouses[usize::from(warehouse) / self.partitions as usize];
            Key::Customer(warehouse, district, at.find(district.into(), named) as u32)
        };
        match &work.asks {
            Asks::NewOrder(order) => {
                if self.has(home) {
                    let of = |customer| Key::Customer(home, order.district, customer);
                    locks.extend([(Key::Warehouse(home), Shared), (Key::District(home, order.district), Exclusive)]);
                    locks.extend([(Key::Customers(home, order.district), Shared), (of(order.customer), Exclusive)]);
                }
                let mut stock: Vec<(u16, u32)> = order.lines().iter().map(|line| (line.supply, line.item)).collect();
                stock.retain(|(supply, _)| self.has(*supply));
                // Always in the same order, so that there are no deadlocks at this partition.
                stock.sort_unstable();
                for (supply, item) in stock {
                    locks.extend([(Key::Stocks(supply), Shared), (Key::Stock(supply, item), Exclusive)]);
                }
            }
            &Asks::Payment { district, warehouse, of_district, named, .. } => {
                if self.has(home) {
                    locks.extend([(Key::Warehouse(home), Exclusive), (Key::District(home, district), Exclusive)]);
                }
                if self.has(warehouse) {
                    locks.push((Key::Customers(warehouse, of_district), Shared));
                    locks.push((customer(warehouse, of_district, named), Exclusive));
                }
            }
            &Asks::OrderStatus { district, named } => {
                locks.extend([(Key::District(home, district), Shared), (Key::Customers(home, district), Shared)]);
                locks.push((customer(home, district, named), Shared));
            }
            Asks::Delivery { .. } => {
                let of = |d| [(Key::District(home, d), Exclusive), (Key::Customers(home, d), Exclusive)];
                locks.extend((0..DISTRICTS as u8).flat_map(of));
            }
            &Asks::StockLevel { district, .. } => {
                locks.extend([(Key::District(home, district), Shared), (Key::Stocks(home), Exclusive)]);
            }
        }
    }
}

impl Rows for Store {
    type Work = Work;
    /// A value that depends on everything that was read.
    type Reply = f64;
    type Key = Key;
    /// The changes, by warehouse.
    type Before = (u16, Before);

    fn run(&mut self, work: &Work, undo: Option<&mut Vec<Self::Before>>) -> Option<f64> {
        let StoreCosts { fragment, key, undo: noted, more, .. } = self.costs;
        thread::work(fragment);
        if work.fails() && self.has(work.home) {
            return None;
        }
        let rows = self.rows(work);
        thread::work(if undo.is_some() { key + noted } else { key } * rows);
        spend(more * rows);
        self.now += 1;
        Some(self.part(work, &mut Noting { at: work.home, undo }))
    }

    fn put_back(&mut self, (warehouse, before): (u16, Before)) {
        self.at(warehouse).put_back(&before);
    }

    fn undo_cost(&self) -> Duration {
        self.costs.undo
    }

    fn footprint(&self, work: &Work, locks: &mut Vec<(Key, LockMode)>) {
        let before = locks.len();
        self.locks(work, locks);
        thread::work(self.costs.lock * (locks.len() - before) as u32);
    }
}
