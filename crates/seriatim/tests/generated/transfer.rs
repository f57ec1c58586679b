//! A transfer between accounts.

use seriatim::procedure::{Declared, Procedures};
use seriatim::rng::seed;
use seriatim::{
    Abort, Builder, Data, Database, Decimal, Rng, Session, Table, TransactError, Tx, procedure, procedures, pure,
};

use super::run::{Both, Run};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "account", key(id), ordered)]
struct Account {
    id: u64,
    balance: Decimal<2>,
    transfers: u32,
}

type Money = Decimal<2>;

/// The account's balance is too low.
#[derive(Data, Clone, Debug, PartialEq)]
struct Insufficient;

impl std::fmt::Display for Insufficient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not enough money")
    }
}

impl std::error::Error for Insufficient {}

#[pure]
fn fee(amount: Money) -> Money {
    Money::from_units(amount.units() / 100)
}

/// Moves money; returns the rest of the first account.
#[procedure]
pub(crate) fn transfer(tx: &Tx, from: u64, to: u64, amount: Money) -> Result<Money, Abort> {
    let account = tx.require::<Account>(from)?;
    if account.balance < amount {
        return Err(tx.abort(Insufficient));
    }
    let left = tx.update::<Account>(from, |account| {
        account.balance -= amount;
        account.transfers += 1;
        account.balance
    })?;
    tx.update::<Account>(to, |account| account.balance += amount - fee(amount))?;
    Ok(left)
}

/// Reads the balance by an update that assigns nothing, so it is no read-only transaction.
#[procedure]
fn look(tx: &Tx, id: u64) -> Result<Money, Abort> {
    let balance = tx.update::<Account>(id, |account| account.balance)?;
    Ok(balance)
}

#[test]
fn an_update_that_assigns_nothing_runs() {
    let db = bank();
    db.register(procedures![look]).expect("a sound procedure");
    assert_eq!(*db.session().call(look, &1).expect("no conflict"), Money::from_units(10_000));
}

fn bank() -> Database {
    open(Database::builder()).0
}

pub(crate) fn open(builder: Builder) -> (Database, Session) {
    let db = builder.open().expect("a database");
    create(&db);
    load(&db);
    db.register(set()).expect("a sound procedure");
    let session = db.session();
    (db, session)
}

pub(crate) fn set() -> Procedures {
    procedures![transfer]
}

pub(crate) fn create(db: &Database) {
    db.create::<Account>().expect("a valid table");
}

pub(crate) fn load(db: &Database) {
    let accounts = db.table::<Account>().expect("it is there");
    let open = |id| Account { id, balance: Money::from_units(10_000), transfers: 0 };
    db.session().transact(|tx| (1..=3).try_for_each(|id| tx.insert(&accounts, &open(id)))).expect("no conflict");
}

/// Random arguments.
pub(crate) fn any_of(rng: &mut Rng, run: impl FnOnce((u64, u64, Money))) {
    run((1 + rng.below(3), 1 + rng.below(4), Money::from_units(rng.below(60_00) as i64)));
}

/// Runs the transfer with random arguments.
pub(crate) fn any(rng: &mut Rng, run: &mut impl Run) {
    any_of(rng, |arguments| run.run(transfer, &arguments));
}

#[test]
fn a_transfer_moves_money() {
    let db = bank();
    let mut session = db.session();
    let left = session.call(transfer, &(1, 2, Money::from_units(30_00))).expect("enough");
    assert_eq!(*left, Money::from_units(70_00));
    let accounts = db.table::<Account>().expect("it exists");
    let balances = session.transact(|tx| {
        Ok([1, 2, 3]
            .map(|id| tx.get(&accounts, &id).ok().flatten().map(|row| (row.balance().units(), row.transfers()))))
    });
    assert_eq!(*balances.expect("no conflict"), [Some((70_00, 1)), Some((12_970, 0)), Some((10_000, 0))]);
    let error = session.call(transfer, &(1, 2, Money::from_units(71_00))).expect_err("too much");
    assert_eq!(error.user(), Some(&Insufficient));
    let error = session.call(transfer, &(9, 2, Money::from_units(1))).expect_err("no such account");
    assert!(matches!(error, TransactError::MissingRow { .. }), "{error}");
}

#[test]
fn the_representation_says_what_the_source_says() {
    let procedure = transfer::declaration();
    assert_eq!(procedure.operations, 3);
    assert_eq!(procedure.parameters, 3);
    assert_eq!(&*procedure.tables[0].table, "account");
}

#[test]
fn random_transfers_mean_what_the_code_does() {
    let mut rng = Rng::from_seed(seed("random_transfers_mean_what_the_code_does"));
    let mut both = Both { called: open(Database::builder()), interpreted: open(Database::builder()) };
    (0..50).for_each(|_| any(&mut rng, &mut both));
}
