//! The overhead of an embedded database over a map: reads of one row, and transfers between two accounts, on
//! one thread. They run as closures and as registered procedures through the public API, and on a
//! `std::collections::HashMap` behind a `std::sync::Mutex`.

use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use seriatim::{Abort, Database, Handle, Session, Table, Tx, procedure, procedures};
use seriatim_base::Rng;

use crate::commands::Pairs;
use crate::measure::{Arm, Length, Quartiles, alternate, rate, until_signal};
use crate::report::Rows;

/// The initial balance of an account, which is enough for any transfer.
const BALANCE: i64 = 1_000_000_000;
/// The largest transfer.
const AMOUNT_MAX: u64 = 100;

/// A row for reads.
#[derive(Table)]
#[table(name = "entry", key(id), hash)]
struct Entry {
    id: u64,
    value: u64,
}

/// A row for transfers.
#[derive(Table)]
#[table(name = "account", key(id), hash)]
struct Account {
    id: u64,
    balance: i64,
}

/// The value of an entry.
#[procedure]
pub fn read(tx: &Tx, id: u64) -> Result<u64, Abort> {
    let entry = tx.require::<Entry>(id)?;
    Ok(entry.value)
}

/// Moves an amount from one account to another.
#[procedure]
pub fn transfer(tx: &Tx, from: u64, to: u64, amount: i64) -> Result<(), Abort> {
    tx.update::<Account>(from, |account| account.balance -= amount)?;
    tx.update::<Account>(to, |account| account.balance += amount)?;
    Ok(())
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Read,
    Transfer,
}

/// The form of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Map,
    Closure,
    Procedure,
}

const FORMS: [Form; 3] = [Form::Map, Form::Closure, Form::Procedure];

/// Two different accounts, and an amount.
#[inline]
fn draw(rng: &mut Rng, accounts: u64) -> (u64, u64, i64) {
    let from = rng.below(accounts);
    let to = (from + 1 + rng.below(accounts - 1)) % accounts;
    (from, to, 1 + rng.below(AMOUNT_MAX) as i64)
}

/// The database.
struct Embedded {
    db: Database,
    entries: Handle<Entry>,
    accounts: Handle<Account>,
    /// The number of rows of each table.
    rows: (u64, u64),
}

impl Embedded {
    fn load(protocol: &str, rows: (u64, u64)) -> Result<Embedded, Box<dyn Error>> {
        let db = Database::builder().protocol(protocol).workers(2).open()?;
        let (entries, accounts) = (db.create::<Entry>()?, db.create::<Account>()?);
        db.register(procedures![read, transfer])?;
        let mut session = db.session();
        let batches = |rows: u64| (0..rows).step_by(1_000).map(move |first| first..rows.min(first + 1_000));
        for mut batch in batches(rows.0) {
            session.transact(|tx| batch.try_for_each(|id| tx.insert(&entries, &Entry { id, value: id })))?;
        }
        for mut batch in batches(rows.1) {
            session.transact(|tx| batch.try_for_each(|id| tx.insert(&accounts, &Account { id, balance: BALANCE })))?;
        }
        Ok(Embedded { db, entries, accounts, rows })
    }

    fn run(&self, session: &mut Session, (form, work): (Form, Work), length: Length, seed: u64) -> f64 {
        let (Embedded { entries, accounts, .. }, mut rng) = (self, Rng::from_seed(seed));
        rate(length, || match work {
            Work::Read => {
                let id = rng.below(self.rows.0);
                let value = match form {
                    Form::Procedure => session.call(read, &id).map(|done| done.value),
                    _ => session.transact(|tx| Ok(tx.require(entries, &id)?.value())).map(|done| done.value),
                };
                black_box(value.expect("without other transactions, every row exists"));
            }
            Work::Transfer => {
                let (from, to, amount) = draw(&mut rng, self.rows.1);
                let done = match form {
                    Form::Procedure => session.call(transfer, &(from, to, amount)).map(drop),
                    _ => session
                        .transact(|tx| {
                            tx.update(accounts, &from, |account| account.set_balance(account.balance() - amount))?;
                            tx.update(accounts, &to, |account| account.set_balance(account.balance() + amount))?;
                            Ok(())
                        })
                        .map(drop),
                };
                done.expect("without other transactions, every row exists");
            }
        })
    }
}

/// The maps.
struct Maps {
    entries: Mutex<HashMap<u64, u64>>,
    accounts: Mutex<HashMap<u64, i64>>,
    rows: (u64, u64),
}

impl Maps {
    fn load(rows: (u64, u64)) -> Maps {
        let entries = Mutex::new((0..rows.0).map(|id| (id, id)).collect());
        Maps { entries, accounts: Mutex::new((0..rows.1).map(|id| (id, BALANCE)).collect()), rows }
    }

    fn run(&self, work: Work, length: Length, seed: u64) -> f64 {
        let mut rng = Rng::from_seed(seed);
        rate(length, || match work {
            Work::Read => {
                let id = rng.below(self.rows.0);
                let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
                black_box(entries.get(&id).copied().expect("every row exists"));
            }
            Work::Transfer => {
                let (from, to, amount) = draw(&mut rng, self.rows.1);
                let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
                *accounts.get_mut(&from).expect("every row exists") -= amount;
                *accounts.get_mut(&to).expect("every row exists") += amount;
            }
        })
    }
}

/// The rates of each form, measured in turn.
fn compare(embedded: &Embedded, maps: &Maps, work: Work, rounds: u32, length: Length, seed: u64) -> Vec<Vec<f64>> {
    let mut arms = FORMS.map(|form| {
        let mut session = embedded.db.session();
        move |length, seed| match form {
            Form::Map => maps.run(work, length, seed),
            _ => embedded.run(&mut session, (form, work), length, seed),
        }
    });
    let mut arms = arms.each_mut().map(|arm| arm as Arm<'_>);
    alternate(&mut arms, rounds, length, seed)
}

/// Measures and prints the results.
pub(crate) fn run(protocol: &str, sizes: (u64, u64), pairs: &Pairs) -> Result<Value, Box<dyn Error>> {
    let (embedded, maps) = (Embedded::load(protocol, sizes)?, Maps::load(sizes));
    let mut rows = Rows::new(pairs.format, &format!("{:24} {:>24} {:>24}", "", "nanoseconds", "times the map"))?;
    for (work, name) in until_signal([(Work::Read, "read"), (Work::Transfer, "transfer")]) {
        let rates = compare(&embedded, &maps, work, pairs.pairs, Length::Seconds(pairs.seconds), pairs.seed);
        for (form, rates_of) in FORMS.iter().zip(&rates) {
            let nanoseconds = Quartiles::of(rates_of.iter().map(|rate| 1e9 / rate));
            let times = Quartiles::of_ratios(&rates[0], rates_of);
            let form = match form {
                Form::Map => "map behind a mutex",
                Form::Closure => "closure",
                Form::Procedure => "procedure",
            };
            let row = json!({
                "operation": name, "form": form, "nanoseconds": nanoseconds.json(), "times_the_map": times.json(),
            });
            rows.add(&format!("{:24} {nanoseconds:>24.0} {times:>24.2}", format!("{name}, {form}")), row)?;
        }
    }
    Ok(rows.json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_do_the_same_work() {
        const ROWS: (u64, u64) = (50, 20);
        for protocol in seriatim::available_protocols() {
            let (embedded, maps) = (Embedded::load(protocol.name, ROWS).expect("memory"), Maps::load(ROWS));
            let mut session = embedded.db.session();
            let length = Length::Operations(500);
            // The transfers of both forms, and twice the map's.
            for form in [Form::Closure, Form::Procedure] {
                assert!(embedded.run(&mut session, (form, Work::Transfer), length, 3) > 0.0);
                assert!(maps.run(Work::Transfer, length, 3) > 0.0);
                assert!(embedded.run(&mut session, (form, Work::Read), length, 3) > 0.0);
            }
            let wanted = maps.accounts.lock().expect("no panic");
            let mut moved = 0;
            for (id, balance) in wanted.iter() {
                let found = session.transact(|tx| Ok(tx.require(&embedded.accounts, id)?.balance()));
                assert_eq!(found.expect("alone").value, *balance, "{}, account {id}", protocol.name);
                moved += u64::from(*balance != BALANCE);
            }
            assert!(moved > ROWS.1 / 2, "a thousand transfers move something");
        }
    }

    #[test]
    fn two_accounts_are_drawn() {
        let mut rng = Rng::from_seed(1);
        for accounts in 2..20 {
            let (from, to, amount) = draw(&mut rng, accounts);
            assert!(from != to && from < accounts && to < accounts && (1..=AMOUNT_MAX as i64).contains(&amount));
        }
    }
}
