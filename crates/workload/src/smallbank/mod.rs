//! SmallBank: customers with a savings and a checking account each, and short transactions that move money.
//! (Alomari, Cahill, Fekete and Röhm, "The Cost of Serializability on Platforms That Use Snapshot Isolation", ICDE
//! 2008.) SendPayment and the mix are those of its versions in H-Store and OLTP-Bench (Difallah et al., "OLTP-Bench",
//! VLDB 2013).
//!
//! Departures: money is exact, in cents. TransactSavings deposits as often as it withdraws, where H-Store always
//! withdraws. So savings neither grow nor run dry, however long the run.
//!
//! Terminals keep ledgers of the money their committed transactions brought in, took out and moved, so that
//! lost updates show.

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
    AmalgamateInput, BalanceInput, DepositCheckingInput, Inputs, SendPaymentInput, TransactSavingsInput,
    WriteCheckInput,
};
pub use options::{Keys, Options, open};
pub use schema::{Account, Checking, Money, Name, Savings, Tables, name};
pub use terminal::SmallBankTerminal;
pub use transactions::{
    AmalgamateOutput, InsufficientFunds, OVERDRAFT_PENALTY, amalgamate, balance, deposit_checking, procedures,
    send_payment, transact_savings, write_check,
};

use crate::ledger::{Count, Ledgers};
use crate::registry::{Entry, Knob, Sizes};
use crate::{LoadError, Loading, Report, Terminal, Workload};
use seriatim::{Database, Rng};

/// The line of the registry.
pub const ENTRY: Entry = Entry {
    name: "smallbank",
    about: "SmallBank: short transactions on savings and checking accounts",
    knobs: &[
        Knob {
            name: "accounts",
            value: "N",
            default: "1000000",
            about: "customers, a savings and a checking account each",
        },
        Knob {
            name: "mix",
            value: "MIX",
            default: "standard",
            about: "standard (15:15:15:15:15:25), uniform, balance, deposit-checking, transact-savings, amalgamate, \
                    write-check, send-payment, or six counts like 15:15:15:15:15:25 in that order",
        },
        Knob { name: "hotspot", value: "N", default: "100", about: "customers of the hotspot" },
        Knob {
            name: "hotspot-percent",
            value: "PERCENT",
            default: "0",
            about: "transactions within the hotspot, the others outside; 0 draws from all customers alike",
        },
        Knob {
            name: "theta",
            value: "Z",
            default: "0",
            about: "skew of the customers by Zipf's law instead of a hotspot: 0 is none, below 1",
        },
    ],
    open,
    recognize,
};

/// The workload of a database that holds its tables, as large as they are.
fn recognize(db: &Database, rows: &Sizes<'_>) -> Option<Box<dyn Workload>> {
    Tables::open(db).ok()?;
    let accounts = rows("accounts");
    (accounts >= 2).then(|| Box::new(SmallBank::new(Options::new(accounts, 0))) as _)
}

/// The kinds of transaction.
pub const KINDS: [&str; 6] =
    ["balance", "deposit_checking", "transact_savings", "amalgamate", "write_check", "send_payment"];

/// SmallBank as a [`Workload`]. One database belongs to it, whose terminals' ledgers it keeps.
pub struct SmallBank {
    options: Options,
    shared: Arc<Shared>,
}

/// The state that loader, terminals and check share.
#[derive(Default)]
struct Shared {
    /// Cents loaded into savings.
    savings: AtomicI64,
    /// Cents loaded into checking accounts.
    checking: AtomicI64,
    ledgers: Ledgers<Ledger>,
}

/// The committed transactions of one terminal: cents added less cents taken, signed.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ledger {
    savings: Count,
    checking: Count,
}

impl SmallBank {
    /// The workload with these options.
    ///
    /// # Panics
    /// If there are fewer than two accounts, or fewer than two in or outside a hotspot, or theta is outside `[0, 1)`.
    pub fn new(options: Options) -> SmallBank {
        options.keys.check(options.accounts);
        SmallBank { options, shared: Arc::default() }
    }
}

impl Workload for SmallBank {
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
        let inputs = Inputs::new(rng, self.options.accounts, self.options.keys);
        let ledger = self.shared.ledgers.open(|_| Ledger::default());
        Ok(Box::new(SmallBankTerminal::new(inputs, self.options.mix, ledger)))
    }
}
