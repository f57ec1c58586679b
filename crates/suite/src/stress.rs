//! Random transactions on threads, recorded, and judged by the independent checker afterwards.
//!
//! Keys are few, so that conflicts, deletes, reinserts, splits and unlinks are common. Savepoints and
//! duplicates undo writes, whose reads count all the same. Transfers keep the sum of an account table
//! constant. Every transaction that reads the whole table asserts it, so a body that ran on values which never
//! existed together is noticed.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use seriatim::catalog::kind;
use seriatim::history::{self, Promises};
use seriatim::htm::RegionStatistics;
use seriatim::{
    Abort, Builder, Database, Handle, IndexHandle, Rng, Statistics, Table, Text, TransactError, Tx, thread,
};

use seriatim_store::{RarePath, all_taken};

use crate::Setting;

/// A row of the ordered table, with two secondary indexes.
#[derive(Table, Clone, Debug)]
#[table(name = "item", key(id))]
#[table(index(name = "by_owner", columns(owner), ordered))]
#[table(index(name = "by_tag", columns(tag), hash, unique))]
#[table(index(name = "by_color", columns(color), hash))]
pub struct Item {
    /// The key.
    pub id: u32,
    /// Not unique.
    pub owner: u16,
    /// Not unique, found by hash.
    pub color: u8,
    /// Unique: the key in words.
    pub tag: Text<12>,
    /// Changes with every update.
    pub note: String,
}

/// A row of the hash table. The sum of all balances is constant.
#[derive(Table, Clone, Debug)]
#[table(name = "account", key(id), hash)]
pub struct Account {
    /// The key.
    pub id: u32,
    /// May go below zero.
    pub balance: i64,
}

/// How much to run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads.
    pub threads: usize,
    /// Transactions a thread.
    pub transactions: usize,
    /// Keys a table.
    pub keys: u64,
    /// Most operations a transaction.
    pub operations: u64,
}

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stressed {
    /// Transactions committed.
    pub committed: u64,
    /// Attempts ended by a conflict.
    pub conflicts: u64,
    /// The outcomes of the regions.
    pub regions: RegionStatistics,
    /// How often rare paths of indexes were taken, by [`RarePath`].
    pub taken: [u64; RarePath::COUNT],
}

const BALANCE: i64 = 100;
/// Enough that the lists of the hash index are not all that transactions fight over.
const COLORS: u64 = 50;

/// Body error: the sum of a transaction's reads is impossible.
#[derive(Debug)]
struct WrongSum(i64);

impl std::fmt::Display for WrongSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "balances sum to {}", self.0)
    }
}

impl std::error::Error for WrongSum {}

/// Body error: rows of a table, and their count.
#[derive(Debug)]
struct WrongCount(usize, usize);

impl std::fmt::Display for WrongCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rows, some perhaps twice, are counted as {}", self.0, self.1)
    }
}

impl std::error::Error for WrongCount {}

struct Tables {
    items: Handle<Item>,
    by_owner: IndexHandle<Item, u16>,
    by_tag: IndexHandle<Item, Text<12>, kind::UniqueHash>,
    by_color: IndexHandle<Item, u8, kind::Hash>,
    accounts: Handle<Account>,
    keys: u64,
}

/// Some transactions long.
const SHORT_EPOCH: Duration = Duration::from_micros(200);

/// A memory limit that is soon reached, and has room for the load afterwards.
const SCARCE: usize = 6 << 20;

/// Runs the load in a setting.
///
/// # Errors
/// A description of the violated property.
pub fn stress(setting: &Setting, load: &Load, seed: u64) -> Result<Stressed, String> {
    stress_with(setting, load, seed, |builder| builder, |_| ())
}

/// As [`stress`], after the memory limit has refused a transaction: from then on half-empty leaves are merged.
///
/// # Errors
/// As [`stress`].
pub fn stress_while_scarce(setting: &Setting, load: &Load, seed: u64) -> Result<Stressed, String> {
    let exceed_limit = |db: &Database| {
        let accounts = db.table::<Account>().expect("it was created");
        let refused = db.session().transact(|tx| -> Result<(), Abort> {
            (load.keys as u32..).try_for_each(|id| tx.insert(&accounts, &Account { id, balance: 0 }))
        });
        assert!(matches!(refused, Err(TransactError::OutOfMemory { .. })), "{refused:?}");
    };
    stress_with(setting, load, seed, |builder| builder.memory_limit(SCARCE), exceed_limit)
}

/// As [`stress`], with further options; `before` is called between the insertion of the rows and the load.
///
/// # Errors
/// As [`stress`].
pub fn stress_with(
    setting: &Setting,
    load: &Load,
    seed: u64,
    options: impl Fn(Builder) -> Builder,
    before: impl FnOnce(&Database),
) -> Result<Stressed, String> {
    let builder = setting.builder().record_history(true).workers(load.threads + 1).seed(seed);
    // With epochs that are short, row versions go back to places in their records soon.
    let builder = if seed % 2 == 1 { builder.epoch_interval(SHORT_EPOCH) } else { builder };
    let db = options(builder).open().map_err(|error| error.to_string())?;
    let result = filled(&db, load).and_then(|tables| {
        before(&db);
        run(&db, &tables, load, seed).and_then(|taken| audit(&db, setting.strict, load, taken))
    });
    result.map_err(|fault| format!("{setting}, {load:?}, seed {seed}: {fault}"))
}

/// The tables, with an account for each key.
fn filled(db: &Database, load: &Load) -> Result<Tables, String> {
    let items = db.create::<Item>().map_err(|error| error.to_string())?;
    let accounts = db.create::<Account>().map_err(|error| error.to_string())?;
    let (by_owner, by_tag) = (items.index(Item::BY_OWNER), items.index(Item::BY_TAG));
    let by_color = items.index(Item::BY_COLOR);
    let tables = Tables { items, by_owner, by_tag, by_color, accounts, keys: load.keys };
    let loaded = db.session().transact(|tx| {
        (0..load.keys as u32).try_for_each(|id| tx.insert(&tables.accounts, &Account { id, balance: BALANCE }))
    });
    loaded.map_err(|error| error.to_string())?;
    Ok(tables)
}

/// How often rare paths were taken.
fn run(db: &Database, tables: &Tables, load: &Load, seed: u64) -> Result<[u64; RarePath::COUNT], String> {
    let (fault, mut taken) = (Mutex::new(None), [0; RarePath::COUNT]);
    thread::scope(|scope| {
        let mut running = Vec::new();
        for at in 0..load.threads {
            let fault = &fault;
            running.push(scope.spawn(move || {
                let mut rng = Rng::from_seed(seed ^ (at as u64 + 1) << 20);
                let mut session = db.session();
                for _ in 0..load.transactions {
                    let draws = rng.next_u64();
                    let result = match rng.below(10) {
                        0 => session.snapshot(|tx| sum(tx, tables, draws.is_multiple_of(2))).map(|_| ()),
                        1 => session.transact(|tx| sum(tx, tables, draws.is_multiple_of(2))).map(|_| ()),
                        2 => session.transact(|tx| come_or_go(tx, tables, draws)).map(|_| ()),
                        3..=4 => session.transact(|tx| transfer(tx, tables, draws)).map(|_| ()),
                        _ => session.transact(|tx| shuffle(tx, tables, draws, load.operations)).map(|_| ()),
                    };
                    match result {
                        // Two new tags may collide only if uniqueness is broken; every other end is expected.
                        Ok(()) | Err(TransactError::Conflict { .. }) => {}
                        Err(error) => {
                            fault.lock().map(|mut fault| *fault = Some(error.to_string())).unwrap_or(());
                            break;
                        }
                    }
                }
                all_taken()
            }));
        }
        // A body's assertion on values that held together is a finding like any other.
        for thread in running {
            match thread.join() {
                Ok(paths) => taken.iter_mut().zip(paths).for_each(|(sum, taken)| *sum += taken),
                Err(_) => {
                    fault
                        .lock()
                        .map(|mut fault| *fault = Some("a body panicked on what it read".to_owned()))
                        .unwrap_or(());
                }
            }
        }
    });
    fault.into_inner().map_or(Err("a thread panicked".to_owned()), |fault| fault.map_or(Ok(taken), Err))
}

fn sum(tx: &seriatim::ReadTx, tables: &Tables, whole: bool) -> Result<(), Abort> {
    let mut sum = 0;
    if whole {
        // Each once, in no order.
        let all = tx.scan_all(&tables.accounts).collect::<Result<Vec<_>, _>>()?;
        sum = all.iter().map(|account| account.balance()).sum();
        let count = tx.count_all(&tables.accounts)?;
        let ids: BTreeSet<u32> = all.iter().map(|account| account.id()).collect();
        if (count, ids.len()) != (all.len(), all.len()) {
            return Err(tx.abort(WrongCount(all.len(), count)));
        }
    } else {
        for row in tx.get_many(&tables.accounts, 0..tables.keys as u32)? {
            sum += row.map_or(0, |account| account.balance());
        }
    }
    if sum == BALANCE * tables.keys as i64 { Ok(()) } else { Err(tx.abort(WrongSum(sum))) }
}

/// Inserts or deletes accounts without a balance.
fn come_or_go(tx: &Tx, tables: &Tables, draws: u64) -> Result<(), Abort> {
    let mut rng = Rng::from_seed(draws);
    for _ in 0..rng.range(1, 3) {
        let id = (tables.keys + rng.below(tables.keys)) as u32;
        match tx.exists(&tables.accounts, &id)? {
            true => tx.delete(&tables.accounts, &id)?,
            false => tx.insert(&tables.accounts, &Account { id, balance: 0 })?,
        }
    }
    Ok(())
}

fn transfer(tx: &Tx, tables: &Tables, draws: u64) -> Result<(), Abort> {
    let mut rng = Rng::from_seed(draws);
    let (from, to) = (rng.below(tables.keys) as u32, rng.below(tables.keys) as u32);
    let amount = rng.range(1, 9) as i64;
    if rng.below(2) == 0 {
        // The balance of a third account, which only an undone write read.
        let savepoint = tx.savepoint()?;
        let third = rng.below(tables.keys) as u32;
        tx.update(&tables.accounts, &third, |account| account.set_balance(0))?;
        tx.rollback_to(savepoint)?;
    }
    tx.update(&tables.accounts, &from, |account| account.set_balance(account.balance() - amount))?;
    tx.update(&tables.accounts, &to, |account| account.set_balance(account.balance() + amount))?;
    Ok(())
}

fn tag(id: u32) -> Text<12> {
    Text::new(&format!("tag{id}")).unwrap_or_default()
}

fn item(id: u32, rng: &mut Rng) -> Item {
    Item {
        id,
        owner: rng.below(4) as u16,
        color: rng.below(COLORS) as u8,
        tag: tag(id),
        note: "n".repeat(rng.below(40) as usize),
    }
}

/// Gives an item, or a new one, the tag of another. If the other exists, that is a duplicate, which is
/// ignored; otherwise the change is undone. Either way it has only read.
fn take_a_tag(tx: &Tx, tables: &Tables, id: u32, rng: &mut Rng) -> Result<(), Abort> {
    let other = (id + 1) % tables.keys as u32;
    let savepoint = tx.savepoint()?;
    let taken = match rng.below(2) {
        0 => tx.update_if(&tables.items, &id, |item| item.set_tag(&tag(other))).map(drop),
        _ => tx.try_insert(&tables.items, &Item { tag: tag(other), ..item(id, rng) }).map(drop),
    };
    match taken {
        Ok(()) => tx.rollback_to(savepoint),
        Err(abort) if abort.is_retryable() => Err(abort),
        // Had it stopped the transaction, the next operation would say so.
        Err(_) => Ok(()),
    }
}

/// Random operations on the ordered table and its indexes.
fn shuffle(tx: &Tx, tables: &Tables, draws: u64, operations: u64) -> Result<(), Abort> {
    let mut rng = Rng::from_seed(draws);
    let mut savepoints = Vec::new();
    for _ in 0..rng.range(1, operations) {
        let id = rng.below(tables.keys) as u32;
        match rng.below(18) {
            0 | 1 => drop(tx.get(&tables.items, &id)?),
            2 | 3 => drop(tx.try_insert(&tables.items, &item(id, &mut rng))?),
            4 | 5 => drop(tx.delete_if(&tables.items, &id)?),
            6 => tx.put(&tables.items, &item(id, &mut rng))?,
            7 => {
                let (owner, color) = (rng.below(4) as u16, rng.below(COLORS) as u8);
                let _ = tx.update_if(&tables.items, &id, |item| {
                    item.set_owner(owner);
                    item.set_color(color);
                })?;
            }
            8 => {
                let (low, high) = (id, id + rng.below(tables.keys / 4 + 1) as u32);
                let ids: Result<Vec<u32>, Abort> =
                    tx.scan(&tables.items, low..=high).map(|row| row.map(|row| row.id())).collect();
                assert!(ids?.is_sorted(), "a scan is in key order");
            }
            9 => {
                // Stops early, going down.
                if let Some(row) = tx.scan_rev(&tables.items, ..=id).next() {
                    assert!(row?.id() <= id);
                }
            }
            10 => {
                let owner = rng.below(4) as u16;
                for row in tx.find_by(&tables.by_owner, &owner) {
                    assert_eq!(row?.owner(), owner, "the index leads to rows with its key");
                }
            }
            11 => {
                let color = rng.below(COLORS) as u8;
                for row in tx.find_by(&tables.by_color, &color) {
                    assert_eq!(row?.color(), color, "the hash index leads to rows with its key");
                }
            }
            12 | 13 => savepoints.push(tx.savepoint()?),
            14 | 15 => {
                // To any that is left, and on from there.
                let kept = rng.below(savepoints.len() as u64 + 1) as usize;
                if let Some(&savepoint) = savepoints.get(kept) {
                    tx.rollback_to(savepoint)?;
                    savepoints.truncate(kept + 1);
                }
            }
            16 => take_a_tag(tx, tables, id, &mut rng)?,
            _ => {
                let tag = tag(id);
                if let Some(row) = tx.get_by(&tables.by_tag, &tag)? {
                    assert_eq!(row.id(), id, "the unique index leads to its row");
                }
            }
        }
    }
    Ok(())
}

fn audit(db: &Database, strict: bool, load: &Load, taken: [u64; RarePath::COUNT]) -> Result<Stressed, String> {
    let history = db.take_history().ok_or("the database records")?;
    history::check(&history, &if strict { Promises::STRICT } else { Promises::SERIALIZABLE })
        .map_err(|violation| violation.to_string())?;
    for _ in 0..4 {
        db.step();
    }
    db.check_structure()?;
    let statistics = db.statistics();
    let wanted = (load.threads * load.transactions) as u64;
    if statistics.committed < wanted / 2 {
        return Err(format!("only {} of {wanted} transactions committed", statistics.committed));
    }
    let Statistics { committed, conflict_aborted: conflicts, regions, .. } = statistics;
    Ok(Stressed { committed, conflicts, regions, taken })
}
