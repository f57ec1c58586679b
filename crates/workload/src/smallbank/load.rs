//! The population: balances of 10,000.00 to 50,000.00, uniformly drawn in cents (H-Store's bounds).

use std::sync::atomic::{AtomicI64, Ordering};

use super::Shared;
use super::options::Options;
use super::schema::{Account, Checking, Money, Savings, Tables, name};
use crate::{LoadError, Loading, parallel};
use seriatim::{Database, Rng};

/// Cents of the smallest balance.
const BALANCE_MIN: u64 = 1_000_000;
/// Cents of the largest balance.
const BALANCE_MAX: u64 = 5_000_000;

/// Fills the three tables, which are declared, and notes what was loaded.
pub(super) fn load(db: &Database, options: &Options, shared: &Shared, loading: &Loading<'_>) -> Result<(), LoadError> {
    let tables = Tables::open(db)?;
    let draw = |rng: &mut Rng, loaded: &AtomicI64| {
        let cents = rng.range(BALANCE_MIN, BALANCE_MAX) as i64;
        loaded.fetch_add(cents, Ordering::Relaxed);
        Money::from_units(cents)
    };
    let counts = (options.accounts, 3 * options.accounts);
    let make = |rng: &mut Rng, customer| (customer, draw(rng, &shared.savings), draw(rng, &shared.checking));
    parallel::populate(db, loading, counts, options.seed, make, |tx, &(customer, savings, checking)| {
        tx.insert(&tables.accounts, &Account { name: name(customer), customer })?;
        tx.insert(&tables.savings, &Savings { customer, balance: savings })?;
        tx.insert(&tables.checking, &Checking { customer, balance: checking })?;
        Ok(3)
    })
}
