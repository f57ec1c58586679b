//! TPC-C revision 5.11: the schema, the population, the five transactions and the consistency conditions, in
//! process and without terminals' keying and think times.
//!
//! Departures from the specification, as every engine paper takes them: no think times, and a terminal chooses its
//! district anew each time. Delivery runs at once and delivers its ten districts in one transaction. Prices and the
//! like are integers.

mod consistency;
pub mod formulas;
mod input;
mod load;
mod options;
mod procedures;
mod random;
mod scale;
mod schema;
mod terminal;
#[cfg(test)]
mod tests;

pub use consistency::{RULES, check};
pub use input::{
    CustomerChoice, DeliveryInput, Inputs, NewOrderInput, NewOrderLine, OrderStatusInput, PaymentInput, Remote,
    StockLevelInput, history_source,
};
pub use load::load;
pub use options::{Mix, Options, open};
pub use procedures::delivery::{DeliveryOutput, delivery};
pub use procedures::new_order::{NewOrderOutput, NewOrderOutputLine, UnusedItem, new_order};
pub use procedures::order_status::{OrderStatusLine, OrderStatusOutput, order_status};
pub use procedures::payment::{Payer, PaymentOutput, payment};
pub use procedures::procedures;
pub use procedures::stock_level::{StockLevelOutput, stock_level};
pub use random::{Constants, last_name};
pub use scale::{DISTRICTS, LAST_NAMES, LINES_MAX, LINES_MIN, Scale, district_ids};
pub use schema::{
    Customer, District, History, Item, Money, NewOrder, Order, OrderLine, Rate, Stock, Tables, Warehouse,
};
pub use terminal::TpccTerminal;

use crate::registry::{Entry, Knob, Sizes};
use crate::{LoadError, Loading, Report, Terminal, Workload};
use seriatim::{Database, Rng};

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "tpcc",
    about: "TPC-C 5.11: orders, payments and deliveries of a wholesale supplier",
    knobs: &[
        Knob { name: "warehouses", value: "N", default: "1", about: "warehouses; each is home of a terminal at least" },
        Knob {
            name: "mix",
            value: "MIX",
            default: "full",
            about: "full (45:43:4:4:4), new-order, payment, order-status, delivery, stock-level, read-only, \
                    new-order-payment, or five counts like 45:43:4:4:4 in that order",
        },
        Knob {
            name: "remote",
            value: "PERCENT",
            default: "1",
            about: "order lines supplied by another warehouse (clause 2.4.1.5)",
        },
        Knob {
            name: "remote-payments",
            value: "PERCENT",
            default: "15",
            about: "payments by a customer of another warehouse (clause 2.5.1.2)",
        },
        Knob {
            name: "index",
            value: "mixed|ordered",
            default: "mixed",
            about: "how tables find their rows: hashed where whole keys are enough, or all of them ordered",
        },
        Knob {
            name: "scale",
            value: "spec|small",
            default: "spec",
            about: "rows per warehouse: as specified, or a hundredth for tests",
        },
    ],
    open,
    recognize,
};

/// The workload of a database that holds its tables, as large as they are.
fn recognize(db: &Database, rows: &Sizes<'_>) -> Option<Box<dyn Workload>> {
    Tables::open(db).ok()?;
    let warehouses = u16::try_from(rows("warehouse")).ok().filter(|&warehouses| warehouses > 0)?;
    let districts = u64::from(warehouses) * u64::from(DISTRICTS);
    let customers = u32::try_from(rows("customer") / districts).ok().filter(|&customers| customers > 0)?;
    let items = u32::try_from(rows("item")).ok().filter(|&items| items > 0)?;
    let scale = Scale { warehouses, items, customers, undelivered: Scale::undelivered_of(customers) };
    Some(Box::new(Tpcc::new(Options::new(scale, 0))))
}

/// The kinds of transaction, in the order of their clauses.
pub const KINDS: [&str; 5] = ["new_order", "payment", "order_status", "delivery", "stock_level"];

/// TPC-C as a [`Workload`].
#[derive(Clone, Debug)]
pub struct Tpcc {
    options: Options,
    load_constants: Constants,
    run_constants: Constants,
}

impl Tpcc {
    /// The workload with these options.
    ///
    /// # Panics
    /// If a count of the scale is zero, or more orders are undelivered than there are.
    pub fn new(options: Options) -> Tpcc {
        let scale = options.scale;
        assert!(scale.warehouses > 0 && scale.items > 0 && scale.customers > 0 && scale.undelivered <= scale.customers);
        let mut rng = Rng::from_seed(options.seed);
        let load_constants = Constants::for_load(&mut rng);
        let run_constants = Constants::for_run(&mut rng, &load_constants);
        Tpcc { options, load_constants, run_constants }
    }
}

impl Workload for Tpcc {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn declare(&self, db: &Database) -> Result<(), LoadError> {
        match self.options.is_ordered {
            true => Tables::create_ordered(db)?,
            false => Tables::create(db)?,
        };
        db.register(procedures())?;
        Ok(())
    }

    fn load(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError> {
        self.declare(db)?;
        load(db, self.options.scale, self.options.seed, self.load_constants, loading)
    }

    fn consistency(&self, db: &Database) -> Result<Report, LoadError> {
        consistency::check_in_parts(&mut db.session(), &Tables::open(db)?, self.options.scale)
    }

    fn audit(&self, db: &Database) -> Result<Report, LoadError> {
        self.consistency(db)
    }

    fn terminals(&self) -> u16 {
        self.options.scale.warehouses
    }

    fn terminal(&self, db: &Database, index: u16, seed: u64) -> Result<Box<dyn Terminal>, LoadError> {
        let Options { scale, remote, mix, .. } = self.options;
        let rng = Rng::from_seed(seed ^ u64::from(index) << 48);
        let inputs =
            Inputs::new(rng, scale, self.run_constants, remote, index % scale.warehouses + 1, history_source(index));
        Ok(Box::new(TpccTerminal::new(Tables::open(db)?, inputs, mix)))
    }
}
