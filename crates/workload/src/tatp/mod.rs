//! TATP: the home location register of a mobile telephone network, seven transactions on four tables
//! ("Telecommunication Application Transaction Processing (TATP) Benchmark Description", version 1.0, IBM 2009).
//!
//! Departures: none in tables, population, inputs and mix. Five of the seven transactions name rows that need
//! not exist; the description counts them as failed when they find none, and expects so many. Such a
//! transaction aborts with [`Unsuccessful`] and counts as rolled back on request.

mod consistency;
mod input;
mod load;
mod options;
#[cfg(test)]
mod plans;
mod schema;
mod terminal;
#[cfg(test)]
mod tests;
mod transactions;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

pub use input::{
    DeleteCallForwardingInput, GetAccessDataInput, GetNewDestinationInput, GetSubscriberDataInput, Inputs,
    InsertCallForwardingInput, UpdateLocationInput, UpdateSubscriberDataInput,
};
pub use options::{Keys, Options, open};
pub use schema::{AccessInfo, CallForwarding, Number, START_TIMES, SpecialFacility, Subscriber, TYPES, Tables, number};
pub use terminal::TatpTerminal;
pub use transactions::{
    AccessData, Destinations, Unsuccessful, delete_call_forwarding, get_access_data, get_new_destination,
    get_subscriber_data, insert_call_forwarding, procedures, update_location, update_subscriber_data,
};

use crate::ledger::{Count, Ledgers};
use crate::registry::{Entry, Knob, Sizes};
use crate::{LoadError, Loading, Report, Terminal, Workload};
use seriatim::{Database, Rng};

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "tatp",
    about: "TATP 1.0: look-ups and changes of subscribers of a telephone network",
    knobs: &[
        Knob { name: "subscribers", value: "N", default: "100000", about: "subscribers of the network" },
        Knob {
            name: "mix",
            value: "MIX",
            default: "standard",
            about: "standard (35:10:35:2:14:2:2), get-subscriber-data, get-new-destination, get-access-data, \
                    update-subscriber-data, update-location, insert-call-forwarding, delete-call-forwarding, or seven \
                    counts in that order",
        },
        Knob {
            name: "keys",
            value: "skewed|uniform",
            default: "skewed",
            about: "which subscribers are chosen: some more often as the description has it, or all alike",
        },
    ],
    open,
    recognize,
};

/// The workload of a database that holds its tables, as large as they are.
fn recognize(db: &Database, rows: &Sizes<'_>) -> Option<Box<dyn Workload>> {
    Tables::open(db).ok()?;
    let subscribers = u32::try_from(rows("subscriber")).ok()?;
    (1..=Options::SUBSCRIBERS_MAX)
        .contains(&subscribers)
        .then(|| Box::new(Tatp::new(Options::new(subscribers, 0))) as _)
}

/// The kinds of transaction, in the order of the description.
pub const KINDS: [&str; 7] = [
    "get_subscriber_data",
    "get_new_destination",
    "get_access_data",
    "update_subscriber_data",
    "update_location",
    "insert_call_forwarding",
    "delete_call_forwarding",
];

/// TATP as a [`Workload`]. One database belongs to it, whose terminals' ledgers it keeps.
pub struct Tatp {
    options: Options,
    shared: Arc<Shared>,
}

/// The state that loader, terminals and check share.
#[derive(Default)]
struct Shared {
    /// Rows of call_forwarding that were loaded.
    forwardings: AtomicI64,
    ledgers: Ledgers<Ledger>,
}

/// The committed transactions of one terminal.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ledger {
    /// Rows of call_forwarding inserted less those deleted, signed.
    forwardings: Count,
}

impl Tatp {
    /// The workload with these options.
    ///
    /// # Panics
    /// If there is no subscriber, or more than [`Options::SUBSCRIBERS_MAX`].
    pub fn new(options: Options) -> Tatp {
        assert!((1..=Options::SUBSCRIBERS_MAX).contains(&options.subscribers));
        Tatp { options, shared: Arc::default() }
    }
}

impl Workload for Tatp {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn declare(&self, db: &Database) -> Result<(), LoadError> {
        Tables::create(db)?;
        db.register(procedures())?;
        Ok(())
    }

    fn load(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError> {
        self.declare(db)?;
        load::load(db, &self.options, &self.shared, loading)
    }

    fn consistency(&self, db: &Database) -> Result<Report, LoadError> {
        consistency::check(db, &self.options, Some(&self.shared))
    }

    fn audit(&self, db: &Database) -> Result<Report, LoadError> {
        Ok(consistency::check(db, &self.options, None)?.asked())
    }

    fn terminal(&self, db: &Database, index: u16, seed: u64) -> Result<Box<dyn Terminal>, LoadError> {
        Tables::open(db)?;
        let rng = Rng::from_seed(seed ^ u64::from(index) << 48);
        let inputs = Inputs::new(rng, self.options.subscribers, self.options.keys);
        let ledger = self.shared.ledgers.open(|_| Ledger::default());
        Ok(Box::new(TatpTerminal::new(inputs, self.options.mix, ledger)))
    }
}
