//! The overhead of an embedded database over a map: reads of one row, updates of one, and transfers between two
//! accounts, on one thread. They run as closures, as registered procedures and as prepared statements of SQL, and on a
//! `std::collections::HashMap` behind a `std::sync::Mutex`.

use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use seriatim::catalog::expression::Datum;
use seriatim::{Abort, Database, Handle, Session, Table, Tx, procedure, procedures};
use seriatim_base::Rng;
use seriatim_sql::{Answer, Prepared};

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
    id: i64,
    value: i64,
}

/// A row for transfers.
#[derive(Table)]
#[table(name = "account", key(id), hash)]
struct Account {
    id: i64,
    balance: i64,
}

/// The value of an entry.
#[procedure]
pub fn read(tx: &Tx, id: i64) -> Result<i64, Abort> {
    let entry = tx.require::<Entry>(id)?;
    Ok(entry.value)
}

/// Adds an amount to an account.
#[procedure]
pub fn deposit(tx: &Tx, to: i64, amount: i64) -> Result<(), Abort> {
    tx.update::<Account>(to, |account| account.balance += amount)?;
    Ok(())
}

/// Moves an amount from one account to another.
#[procedure]
pub fn transfer(tx: &Tx, from: i64, to: i64, amount: i64) -> Result<(), Abort> {
    tx.update::<Account>(from, |account| account.balance -= amount)?;
    tx.update::<Account>(to, |account| account.balance += amount)?;
    Ok(())
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Read,
    Deposit,
    Transfer,
}

const WORKS: [(Work, &str); 3] = [(Work::Read, "read"), (Work::Deposit, "deposit"), (Work::Transfer, "transfer")];

/// The form of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Map,
    Closure,
    Procedure,
    Sql,
}

const FORMS: [Form; 4] = [Form::Map, Form::Closure, Form::Procedure, Form::Sql];

/// A session of SQL with prepared statements.
pub(crate) struct Statements {
    session: seriatim_sql::Session,
    reading: Prepared,
    depositing: Prepared,
}

impl Statements {
    /// Returns the value of an entry, if there is one.
    pub(crate) fn read(&mut self, id: i64) -> Option<i64> {
        let answers = self.session.execute_prepared(&mut self.reading, &[Datum::Integer(id.into())], true);
        match answers.ok()?.pop() {
            Some(Answer::Rows { rows, .. }) => match rows.first()?.first()? {
                Datum::Integer(value) => i64::try_from(*value).ok(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns whether the account exists.
    pub(crate) fn deposit(&mut self, to: i64, amount: i64, alone: bool) -> bool {
        let values = [Datum::Integer(amount.into()), Datum::Integer(to.into())];
        let answers = self.session.execute_prepared(&mut self.depositing, &values, alone);
        answers.is_ok_and(|mut answers| matches!(answers.pop(), Some(Answer::Done(tag)) if tag == "UPDATE 1"))
    }

    /// Returns whether both accounts exist and the transfer was committed.
    fn transfer(&mut self, from: i64, to: i64, amount: i64) -> bool {
        self.deposit(from, -amount, false) && self.deposit(to, amount, false) && self.session.sync().is_ok()
    }
}

/// Two different accounts, and an amount.
#[inline]
fn draw(rng: &mut Rng, accounts: i64) -> (i64, i64, i64) {
    let mut below = |end: i64| rng.below(end as u64) as i64;
    let from = below(accounts);
    let to = (from + 1 + below(accounts - 1)) % accounts;
    (from, to, 1 + rng.below(AMOUNT_MAX) as i64)
}

/// The database.
pub(crate) struct Embedded {
    db: Database,
    entries: Handle<Entry>,
    accounts: Handle<Account>,
    /// The number of rows of each table.
    rows: (i64, i64),
}

impl Embedded {
    /// Creates the tables, with these numbers of rows.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn load(db: Database, rows: (i64, i64)) -> Result<Embedded, Box<dyn Error>> {
        let (entries, accounts) = (db.create::<Entry>()?, db.create::<Account>()?);
        db.register(procedures![read, deposit, transfer])?;
        let mut session = db.session();
        let batches = |rows: i64| (0..rows).step_by(1_000).map(move |first| first..rows.min(first + 1_000));
        for mut batch in batches(rows.0) {
            session.transact(|tx| batch.try_for_each(|id| tx.insert(&entries, &Entry { id, value: id })))?;
        }
        for mut batch in batches(rows.1) {
            session.transact(|tx| batch.try_for_each(|id| tx.insert(&accounts, &Account { id, balance: BALANCE })))?;
        }
        Ok(Embedded { db, entries, accounts, rows })
    }

    /// A session with prepared statements.
    ///
    /// # Errors
    /// The statements cannot be prepared.
    pub(crate) fn statements(&self) -> Result<Statements, Box<dyn Error>> {
        let mut session = seriatim_sql::Session::new(self.db.clone());
        let reading = session.prepare("select value from entry where id = $1", &[])?;
        let depositing = session.prepare("update account set balance = balance + $1 where id = $2", &[])?;
        Ok(Statements { session, reading, depositing })
    }

    fn sessions(&self) -> Sessions {
        let statements = self.statements().expect("the tables exist");
        Sessions { native: self.db.session(), statements }
    }

    fn run(&self, sessions: &mut Sessions, (form, work): (Form, Work), length: Length, seed: u64) -> f64 {
        let (Embedded { entries, accounts, .. }, mut rng) = (self, Rng::from_seed(seed));
        let Sessions { native: session, statements } = sessions;
        rate(length, || match work {
            Work::Read => {
                let id = rng.below(self.rows.0 as u64) as i64;
                let value = match form {
                    Form::Procedure => session.call(read, &id).map(|done| done.value).ok(),
                    Form::Sql => statements.read(id),
                    _ => session.transact(|tx| Ok(tx.require(entries, &id)?.value())).map(|done| done.value).ok(),
                };
                black_box(value.expect("without other transactions, every row exists"));
            }
            Work::Deposit => {
                let (_, to, amount) = draw(&mut rng, self.rows.1);
                let is_done = match form {
                    Form::Procedure => session.call(deposit, &(to, amount)).is_ok(),
                    Form::Sql => statements.deposit(to, amount, true),
                    _ => session
                        .transact(|tx| {
                            tx.update(accounts, &to, |account| account.set_balance(account.balance() + amount))
                        })
                        .is_ok(),
                };
                assert!(is_done, "without other transactions, every row exists");
            }
            Work::Transfer => {
                let (from, to, amount) = draw(&mut rng, self.rows.1);
                let is_done = match form {
                    Form::Procedure => session.call(transfer, &(from, to, amount)).is_ok(),
                    Form::Sql => statements.transfer(from, to, amount),
                    _ => session
                        .transact(|tx| {
                            tx.update(accounts, &from, |account| account.set_balance(account.balance() - amount))?;
                            tx.update(accounts, &to, |account| account.set_balance(account.balance() + amount))?;
                            Ok(())
                        })
                        .is_ok(),
                };
                assert!(is_done, "without other transactions, every row exists");
            }
        })
    }
}

/// One for the forms of Rust, and one for SQL.
struct Sessions {
    native: Session,
    statements: Statements,
}

/// The maps.
struct Maps {
    entries: Mutex<HashMap<i64, i64>>,
    accounts: Mutex<HashMap<i64, i64>>,
    rows: (i64, i64),
}

impl Maps {
    fn load(rows: (i64, i64)) -> Maps {
        let entries = Mutex::new((0..rows.0).map(|id| (id, id)).collect());
        Maps { entries, accounts: Mutex::new((0..rows.1).map(|id| (id, BALANCE)).collect()), rows }
    }

    fn run(&self, work: Work, length: Length, seed: u64) -> f64 {
        let mut rng = Rng::from_seed(seed);
        rate(length, || match work {
            Work::Read => {
                let id = rng.below(self.rows.0 as u64) as i64;
                let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
                black_box(entries.get(&id).copied().expect("every row exists"));
            }
            Work::Deposit => {
                let (_, to, amount) = draw(&mut rng, self.rows.1);
                let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
                *accounts.get_mut(&to).expect("every row exists") += amount;
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
        let mut sessions = embedded.sessions();
        move |length, seed| match form {
            Form::Map => maps.run(work, length, seed),
            _ => embedded.run(&mut sessions, (form, work), length, seed),
        }
    });
    let mut arms = arms.each_mut().map(|arm| arm as Arm<'_>);
    alternate(&mut arms, rounds, length, seed)
}

/// Measures and prints the results.
pub(crate) fn run(protocol: &str, sizes: (i64, i64), pairs: &Pairs) -> Result<Value, Box<dyn Error>> {
    let db = Database::builder().protocol(protocol).workers(2).open()?;
    let (embedded, maps) = (Embedded::load(db, sizes)?, Maps::load(sizes));
    let mut rows = Rows::new(pairs.format, &format!("{:24} {:>24} {:>24}", "", "nanoseconds", "times the map"))?;
    for (work, name) in until_signal(WORKS) {
        let rates = compare(&embedded, &maps, work, pairs.pairs, Length::Seconds(pairs.seconds), pairs.seed);
        for (form, rates_of) in FORMS.iter().zip(&rates) {
            let nanoseconds = Quartiles::of(rates_of.iter().map(|rate| 1e9 / rate));
            let times = Quartiles::of_ratios(&rates[0], rates_of);
            let form = match form {
                Form::Map => "map behind a mutex",
                Form::Closure => "closure",
                Form::Procedure => "procedure",
                Form::Sql => "prepared statement",
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
        const ROWS: (i64, i64) = (50, 20);
        for protocol in seriatim::available_protocols() {
            let db = Database::builder().protocol(protocol.name).workers(2).open().expect("memory");
            let (embedded, maps) = (Embedded::load(db, ROWS).expect("memory"), Maps::load(ROWS));
            let (mut sessions, length) = (embedded.sessions(), Length::Operations(500));
            for (work, _) in WORKS {
                for form in [Form::Closure, Form::Procedure, Form::Sql] {
                    assert!(embedded.run(&mut sessions, (form, work), length, 3) > 0.0);
                    assert!(maps.run(work, length, 3) > 0.0);
                }
            }
            let wanted = maps.accounts.lock().expect("no panic");
            let mut moved = 0;
            for (id, balance) in wanted.iter() {
                let found = sessions.native.transact(|tx| Ok(tx.require(&embedded.accounts, id)?.balance()));
                assert_eq!(found.expect("alone").value, *balance, "{}, account {id}", protocol.name);
                moved += u64::from(*balance != BALANCE);
            }
            assert!(moved > ROWS.1 as u64 / 2, "a thousand transfers move something");
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
