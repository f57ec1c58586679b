//! A world of chains: amounts that are paid into accounts are added to branches, to which procedures only add.

use std::cell::Cell;

use seriatim::procedure::{Data, Value};
use seriatim::{Abort, Builder, Database, Handle, ReadTx, Rng, Table, Tx, procedure, procedures, thread};

use super::said;

/// An amount paid in.
#[derive(Table, Clone, Debug)]
#[table(name = "account", key(id), hash)]
pub(super) struct Account {
    id: u32,
    balance: i64,
    note: String,
}

/// The sum of the amounts paid in, over all branches.
#[derive(Table, Clone, Debug)]
#[table(name = "branch", key(id), hash)]
pub(super) struct Branch {
    id: u32,
    total: i64,
    visits: u32,
    /// Changed by those that are no procedures only.
    fee: i64,
}

/// Never changes.
#[derive(Table, Clone, Debug)]
#[table(name = "label", key(id), hash)]
struct Label {
    id: i64,
    text: i64,
}

const ACCOUNTS: u32 = 4;
const BRANCHES: u32 = 5;
/// No call of [`calls`] touches this account and this branch.
pub(super) const OTHER: (u32, u32) = (ACCOUNTS, BRANCHES);

/// A note's: more than workers keep.
const NOTE_BYTES: usize = 40_000;

thread_local! {
    pub(super) static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// User code in the middle of a procedure.
#[seriatim::pure]
pub fn priced(amount: i64) -> i64 {
    assert!(!PANICS.take(), "deliberately");
    amount
}

/// Two pieces.
#[procedure]
pub(super) fn deposit(tx: &Tx, account: u32, branch: u32, amount: i64) -> Result<i64, Abort> {
    let balance = tx.update::<Account>(account, |account| {
        account.balance += amount;
        account.balance
    })?;
    let amount = priced(amount);
    let fee = tx.update::<Branch>(branch, |branch| {
        branch.total += amount;
        branch.visits += 1;
        branch.fee
    })?;
    Ok(balance - fee)
}

/// Three pieces.
#[procedure]
pub(super) fn share(tx: &Tx, account: u32, first: u32, second: u32, amount: i64) -> Result<i64, Abort> {
    let balance = tx.update::<Account>(account, |account| {
        account.balance += amount + amount;
        account.balance
    })?;
    tx.update::<Branch>(first, |branch| branch.total += amount)?;
    let amount = priced(amount);
    tx.update::<Branch>(second, |branch| branch.total += amount)?;
    Ok(balance)
}

/// A loop of pieces.
#[procedure]
pub(super) fn spread(tx: &Tx, account: u32, branches: &[u32], amount: i64) -> Result<i64, Abort> {
    let mut paid = 0i64;
    for branch in branches {
        tx.update::<Branch>(*branch, |branch| branch.total += amount)?;
        paid += priced(amount);
    }
    let balance = tx.update::<Account>(account, |account| {
        account.balance += paid;
        account.balance
    })?;
    Ok(balance)
}

/// Two pieces, the first of which needs memory.
#[procedure]
pub(super) fn noted(tx: &Tx, account: u32, branch: u32, note: &str) -> Result<i64, Abort> {
    let balance = tx.update::<Account>(account, |account| {
        account.balance += 1;
        account.note = note;
        account.balance
    })?;
    tx.update::<Branch>(branch, |branch| branch.total += 1)?;
    Ok(balance)
}

/// With [`ExecutionMode::Pieces`](seriatim::procedure::ExecutionMode) a chain of two transactions, the second
/// of which runs code of users.
#[procedure]
pub(super) fn labelled(tx: &Tx, account: u32, branch: u32) -> Result<Option<i64>, Abort> {
    let balance = tx.update::<Account>(account, |account| {
        account.balance += 1;
        account.balance
    })?;
    tx.update::<Branch>(branch, |branch| branch.total += 1)?;
    let Some(label) = tx.get::<Label>(balance % 7)? else { return Ok(None) };
    Ok(Some(priced(label.text)))
}

/// For callers that register while others call.
#[procedure]
pub(super) fn visit(tx: &Tx, branch: u32) -> Result<(), Abort> {
    tx.update::<Branch>(branch, |branch| branch.visits += 1)?;
    Ok(())
}

/// Makes a new one.
///
/// # Errors
/// A description of the failure.
pub fn open(builder: Builder) -> Result<Database, String> {
    let db = builder.open().map_err(said)?;
    let (accounts, branches) = (db.create::<Account>().map_err(said)?, db.create::<Branch>().map_err(said)?);
    let labels = db.create::<Label>().map_err(said)?;
    let fill = |tx: &Tx| {
        (0..=ACCOUNTS).try_for_each(|id| tx.insert(&accounts, &Account { id, balance: 0, note: String::new() }))?;
        (0..=BRANCHES).try_for_each(|id| tx.insert(&branches, &Branch { id, total: 0, visits: 0, fee: 0 }))?;
        (0..6).try_for_each(|id| tx.insert(&labels, &Label { id, text: 10 * id }))
    };
    db.session().transact(fill).map_err(said)?;
    db.register(procedures![deposit, share, spread, noted, labelled]).map_err(said)?;
    Ok(db)
}

/// So many calls of each procedure, one after the other.
pub fn calls(seed: u64, count: usize) -> Vec<(String, Value)> {
    let mut rng = Rng::from_seed(seed);
    let mut calls = Vec::new();
    for _ in 0..count {
        let (account, amount) = (rng.below(ACCOUNTS.into()) as u32, rng.range(1, 9) as i64);
        let mut branches: Vec<u32> = (0..BRANCHES).collect();
        rng.shuffle(&mut branches);
        let mut call = |name: &str, arguments| calls.push((name.to_owned(), arguments));
        call("deposit", (account, branches[0], amount).to_value());
        call("share", (account, branches[0], branches[1], amount).to_value());
        call("labelled", (account, branches[0]).to_value());
        let note = "long".repeat(NOTE_BYTES / 4 + rng.below(1000) as usize);
        call("noted", (account, branches[0], note).to_value());
        branches.truncate(3);
        call("spread", (account, branches, amount).to_value());
    }
    calls
}

/// The sums of branches and of accounts of an existing database.
///
/// # Errors
/// A description of the failure.
pub fn sums(builder: Builder) -> Result<(i64, i64), String> {
    let db = builder.open().map_err(said)?;
    let tables = Tables::of(&db)?;
    db.session().snapshot(|tx| tables.sums(tx)).map(|found| found.value).map_err(said)
}

/// Its tables.
pub(super) struct Tables {
    pub(super) accounts: Handle<Account>,
    pub(super) branches: Handle<Branch>,
}

impl Tables {
    pub(super) fn of(db: &Database) -> Result<Tables, String> {
        Ok(Tables { accounts: db.table().map_err(said)?, branches: db.table().map_err(said)? })
    }

    /// The sums of branches and of accounts, which are the same.
    pub(super) fn sums(&self, tx: &ReadTx) -> Result<(i64, i64), Abort> {
        let (mut totals, mut balances) = (0, 0);
        for id in 0..=ACCOUNTS {
            balances += tx.require(&self.accounts, &id)?.balance();
        }
        // Others have their turn between the two, on few processors too.
        thread::yield_now();
        for id in 0..=BRANCHES {
            totals += tx.require(&self.branches, &id)?.total();
        }
        Ok((totals, balances))
    }

    /// As [`Tables::sums`], and writes.
    pub(super) fn charge(&self, tx: &Tx) -> Result<(i64, i64), Abort> {
        let sums = self.sums(tx)?;
        tx.update(&self.branches, &OTHER.1, |branch| branch.set_fee(branch.fee() + 1))?;
        Ok(sums)
    }
}
