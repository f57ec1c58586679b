//! Consistency of SmallBank's tables: no money appears or vanishes, and no savings are negative.
//!
//! The totals are compared with the loader's and the terminals' own books, which no engine wrote. A lost update of a
//! balance leaves a total that differs from the books. So does a deposit, a check or a transfer applied by half or
//! twice. Savings that became negative were withdrawn on a balance that was not there any more.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Shared;
use super::options::Options;
use super::schema::{Tables, name};
use crate::{LoadError, Report, Rule};
use seriatim::{Abort, Database, ReadTx};

static TOTAL: Rule =
    Rule { clause: "total", says: "savings + checking of all = loaded + deposits - withdrawals and checks committed" };
static SAVED: Rule =
    Rule { clause: "savings", says: "savings of all = loaded + transacted and amalgamated by what committed" };
static SOLVENT: Rule = Rule { clause: "solvent", says: "no savings are negative" };
static ROWS: Rule = Rule { clause: "rows", says: "every customer has one row of each table" };
static NAMES: Rule = Rule { clause: "names", says: "the account of a customer's name = the customer" };

/// Customers looked at in one transaction.
const PART: u64 = 1 << 14;

/// The result of a part.
#[derive(Default)]
struct PartResult {
    accounts: u64,
    savings: u64,
    checking: u64,
    /// Cents.
    saved: i64,
    /// Cents.
    at_hand: i64,
    /// Customers with negative savings, and their cents.
    negative: Vec<(u64, i64)>,
    /// Customers whose name leads to another one.
    misnamed: Vec<(u64, u64)>,
}

/// Checks the tables; with `shared`, also against the loaded rows and the committed transactions of this
/// workload's terminals.
pub(super) fn check(db: &Database, options: &Options, shared: Option<&Shared>) -> Result<Report, LoadError> {
    let (tables, mut session) = (Tables::open(db)?, db.session());
    let mut report = Report::new(&[&TOTAL, &SAVED, &SOLVENT, &ROWS, &NAMES]);
    let (mut saved, mut at_hand) = (0, 0);
    // One beyond the last customer: there must be none.
    for from in (0..=options.accounts).step_by(PART as usize) {
        let customers = from..(from + PART).min(options.accounts + 1);
        let found = session.snapshot(|tx| collect(tx, &tables, customers.clone()))?.into_value();
        (saved, at_hand) = (saved + found.saved, at_hand + found.at_hand);
        let place = |table: &str| format!("{table} of customers {} to {}", customers.start, customers.end - 1);
        let wanted = customers.end.min(options.accounts) - customers.start;
        report.equal(&ROWS, place("accounts"), found.accounts, wanted);
        report.equal(&ROWS, place("savings"), found.savings, wanted);
        report.equal(&ROWS, place("checking"), found.checking, wanted);
        report.equal(&SOLVENT, place("savings"), found.negative.len(), 0);
        for (customer, cents) in found.negative {
            report.equal(&SOLVENT, format_args!("customer {customer}"), cents, 0);
        }
        report.equal(&NAMES, place("names"), found.misnamed.len(), 0);
        for (customer, other) in found.misnamed {
            report.equal(&NAMES, format_args!("customer {customer}"), other, customer);
        }
    }
    let Some(shared) = shared else { return Ok(report) };
    let savings = shared.savings.load(Ordering::Relaxed) + shared.ledgers.sum_signed(|ledger| ledger.savings.get());
    let checking = shared.checking.load(Ordering::Relaxed) + shared.ledgers.sum_signed(|ledger| ledger.checking.get());
    report.equal(&TOTAL, "all customers, cents", saved + at_hand, savings + checking);
    report.equal(&SAVED, "all customers, cents", saved, savings);
    Ok(report)
}

fn collect(tx: &ReadTx, tables: &Tables, customers: Range<u64>) -> Result<PartResult, Abort> {
    let mut found = PartResult::default();
    for customer in customers {
        if let Some(account) = tx.get(&tables.accounts, &name(customer))? {
            found.accounts += 1;
            if account.customer() != customer {
                found.misnamed.push((customer, account.customer()));
            }
        }
        if let Some(savings) = tx.get(&tables.savings, &customer)? {
            found.savings += 1;
            let cents = savings.balance().units();
            found.saved += cents;
            if cents < 0 {
                found.negative.push((customer, cents));
            }
        }
        if let Some(checking) = tx.get(&tables.checking, &customer)? {
            found.checking += 1;
            found.at_hand += checking.balance().units();
        }
    }
    Ok(found)
}
