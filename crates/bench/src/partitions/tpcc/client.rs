//! Clients of TPC-C: each has a warehouse, and uses all its districts (§5.5).

use seriatim_base::Rng;
use seriatim_partition::{Outcome, PartitionId, TransactionId};
use seriatim_transport::{Ended, Port, Refused};
use seriatim_workload::roofline::data::DISTRICTS;
use seriatim_workload::roofline::transactions::{Named, NewOrder, draw_amount};

use super::super::clients::{self, Clients, Counted, Counts, UnderWay, When};
use super::{Asks, Kinds, Plan, Program, Tpcc, Work};

/// The effects on a warehouse of transactions with a reported commit, in the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Book {
    /// Orders entered.
    pub(super) orders: u64,
    /// Order lines that it supplied, and the quantity of items.
    pub(super) supplied: u64,
    pub(super) quantity: u64,
    /// Payments that it received, and their sum in hundredths.
    pub(super) payments: u64,
    pub(super) taken: u64,
    /// Payments by its customers, and their sum.
    pub(super) customers: u64,
    pub(super) paid: u64,
}

/// The results of the clients of one thread.
#[derive(Clone, Debug, Default)]
pub struct ClientResults {
    pub(super) counted: Counted,
    /// By warehouse.
    pub(super) books: Vec<Book>,
}

struct Threadful<'p> {
    plan: &'p Plan,
    /// Warehouses and random generators.
    clients: Vec<(u16, Rng)>,
    results: ClientResults,
}

/// Serves the clients of thread `number` until the end of the run, and until all requests are answered.
pub(super) fn serve(plan: &Plan, port: Port<Tpcc>, number: u32) -> ClientResults {
    let mut seeds = Rng::from_seed(plan.seed ^ (u64::from(number) << 32));
    let own = (0..plan.clients).filter(|client| client % plan.transport.ports == number);
    let client = |client: u32| ((client % u32::from(plan.warehouses)) as u16, seeds.fork());
    let clients: Vec<_> = own.map(client).collect();
    let count = clients.len();
    let books = vec![Book::default(); plan.warehouses.into()];
    let mut threadful = Threadful { plan, clients, results: ClientResults { books, ..ClientResults::default() } };
    clients::serve(&mut threadful, count, port, plan.warmup, plan.length);
    threadful.results
}

/// Another warehouse, with this probability in percent.
fn elsewhere(rng: &mut Rng, plan: &Plan, home: u16, percent: f64) -> u16 {
    if plan.warehouses == 1 || rng.unit() * 100.0 >= percent {
        return home;
    }
    let other = rng.below(u64::from(plan.warehouses) - 1) as u16;
    other + u16::from(other >= home)
}

fn ask(plan: &Plan, home: u16, rng: &mut Rng) -> Asks {
    let extent = &plan.extent;
    let kind = if plan.kinds == Kinds::NewOrder { 0 } else { rng.below(100) };
    let district = rng.below(DISTRICTS as u64) as u8;
    match kind {
        0..45 => Asks::NewOrder(NewOrder::draw(rng, extent, |rng| elsewhere(rng, plan, home, plan.remote))),
        45..88 => {
            let warehouse = elsewhere(rng, plan, home, plan.remote_payments);
            let of_district = if warehouse == home { district } else { rng.below(DISTRICTS as u64) as u8 };
            let named = Named::draw(rng, extent);
            Asks::Payment { district, amount: draw_amount(rng), warehouse, of_district, named }
        }
        88..92 => Asks::OrderStatus { district, named: Named::draw(rng, extent) },
        92..96 => Asks::Delivery { carrier: rng.range(1, 10) as u8 },
        _ => Asks::StockLevel { district, threshold: rng.range(10, 20) as i32 },
    }
}

impl Plan {
    /// The partitions of a transaction, in ascending order.
    fn partitions_of(&self, work: &Work) -> Vec<PartitionId> {
        let mut partitions: Vec<_> = work.warehouses().map(|warehouse| self.partition_of(warehouse)).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }
}

impl Clients<Tpcc> for Threadful<'_> {
    type Asked = (Work, Vec<PartitionId>);

    fn ask(&mut self, client: usize) -> Self::Asked {
        let (home, rng) = &mut self.clients[client];
        let work = Work { home: *home, asks: ask(self.plan, *home, rng) };
        let partitions = self.plan.partitions_of(&work);
        (work, partitions)
    }

    fn call(&mut self, port: &mut Port<Tpcc>, (work, partitions): &Self::Asked) -> Result<TransactionId, Refused> {
        match partitions[..] {
            // A failing transaction fails before it has changed anything.
            [one] => port.call(one, *work, false),
            _ => port.run(Program { work: *work, partitions: partitions.clone(), is_sent: false }),
        }
    }

    fn note(&mut self, under_way: &UnderWay<Self::Asked>, ended: Ended<Tpcc>, when: When) -> bool {
        let (work, partitions) = &under_way.asked;
        let outcome = match ended {
            Ended::Single(outcome) | Ended::Multi(outcome) => outcome,
            Ended::Lost => Outcome::Repeated,
        };
        let counts = Counts::of(&outcome, work.fails());
        if counts == Counts::Committed {
            self.results.book(work);
        }
        let what = || format!("{work:?} ended by {outcome:?}");
        self.results.counted.count(counts, partitions.len() > 1, under_way.began, when, what)
    }

    fn counted(&mut self) -> &mut Counted {
        &mut self.results.counted
    }
}

impl ClientResults {
    /// Records a committed transaction.
    fn book(&mut self, work: &Work) {
        let home = usize::from(work.home);
        match &work.asks {
            Asks::NewOrder(order) => {
                self.books[home].orders += 1;
                for line in order.lines() {
                    let supplier = &mut self.books[usize::from(line.supply)];
                    supplier.supplied += 1;
                    supplier.quantity += u64::from(line.quantity);
                }
            }
            Asks::Payment { amount, warehouse, .. } => {
                let hundredths = (amount * 100.0).round() as u64;
                self.books[home].payments += 1;
                self.books[home].taken += hundredths;
                let customers = &mut self.books[usize::from(*warehouse)];
                customers.customers += 1;
                customers.paid += hundredths;
            }
            Asks::OrderStatus { .. } | Asks::Delivery { .. } | Asks::StockLevel { .. } => {}
        }
    }
}
