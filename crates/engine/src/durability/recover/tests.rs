//! Several threads restore at the same time, with prefetched guesses, into tables that grow.

use seriatim_base::rng::{self, sample, seed};
use seriatim_base::{Rng, TableId, Tid};
use seriatim_catalog::wire::Updated;
use seriatim_catalog::{ColumnSet, KeyBuf, RowRef, Table, TableKey};
use seriatim_store::{RarePath, taken};

use super::*;
use crate::operations::read;
use crate::testing::Handle;
use crate::{Abort, Engine, Settings, TxCore, available_protocols};

const THREADS: usize = 4;
const KEYS_A_TRANSACTION: u64 = 20;
/// By as much a row's count grows with each pass: enough for some updates to be shorter as differences.
const COUNTED_A_PASS: u64 = 8_000;
const PASSES: u64 = 3;
/// Versions handed over at once, as in a replay.
const RUN_VERSIONS: usize = 32;

/// Keys of each table, far more than its capacity. The first ones, one for each thread, change in every transaction.
fn keys() -> u64 {
    rng::tries(2_500, 8_000)
}

#[derive(seriatim_macros::Table, Clone, Debug, PartialEq)]
#[table(name = "named", key(name), hash, crate = "seriatim_catalog")]
struct HashedByName {
    name: String,
    count: u64,
    text: String,
}

#[derive(seriatim_macros::Table, Clone, Debug, PartialEq)]
#[table(name = "numbered", key(id), hash, crate = "seriatim_catalog")]
struct HashedById {
    id: u64,
    count: u64,
    text: String,
}

#[derive(seriatim_macros::Table, Clone, Debug, PartialEq)]
#[table(name = "sorted", key(name), ordered, crate = "seriatim_catalog")]
struct OrderedByName {
    name: String,
    count: u64,
    text: String,
}

/// Names that differ early, late, or in length.
fn name(id: u64) -> String {
    match id % 3 {
        0 => format!("{id} of a long name that has more bytes than a key buffer keeps"),
        1 => format!("the beginning that many have in common, and {id}"),
        _ => format!("{id}"),
    }
}

fn text(count: u64) -> String {
    "x".repeat(count as usize % 50)
}

fn hashed_by_name(id: u64, count: u64) -> HashedByName {
    HashedByName { name: name(id), count, text: text(count) }
}

fn hashed_by_id(id: u64, count: u64) -> HashedById {
    HashedById { id, count, text: text(count) }
}

fn ordered_by_name(id: u64, count: u64) -> OrderedByName {
    OrderedByName { name: name(id), count, text: text(count) }
}

/// A change, as the log has it.
struct Made {
    table: TableId,
    thread: usize,
    key: KeyBuf,
    tid: Tid,
    change: Encoded,
}

enum Encoded {
    Row(Vec<u8>),
    Patch(Vec<u8>),
    Delta(Vec<u8>),
    Delete,
}

/// Changes a row at random; returns the change, if any.
fn change<T: Table>(
    tx: &TxCore,
    table: &Handle<T>,
    (id, key, row): (u64, &T::Key, &T),
    tid: Tid,
    rng: &mut Rng,
) -> Result<Option<Made>, Abort> {
    let primary = &table.set.primary;
    let rows = &primary.wire.as_ref().expect("tables have an encoding").rows;
    let buf = key.encode(|key| key.to_buf());
    let before = read(tx, primary, buf.as_key(), ColumnSet::ALL)?;
    let change = match before {
        None if rng.percent(20) => return Ok(None),
        Some(_) if rng.percent(20) => {
            tx.delete(table, key)?;
            Encoded::Delete
        }
        _ => {
            tx.put(table, row)?;
            let after = read(tx, primary, buf.as_key(), ColumnSet::ALL)?.expect("it was put");
            let mut bytes = Vec::new();
            // SAFETY: rows of this table, readable until the transaction ends.
            let [before, after] =
                [before, Some(after)].map(|row| row.map(|row| unsafe { RowRef::from_raw(row.as_ptr()) }));
            match (before, after) {
                (Some(before), Some(after)) if rng.percent(70) => match rows.encode_update(before, after, &mut bytes) {
                    Updated::Patch => Encoded::Patch(bytes),
                    Updated::Delta => Encoded::Delta(bytes),
                    other => panic!("{other:?}"),
                },
                (_, after) => {
                    rows.encode_row(after.expect("it was put"), &mut bytes);
                    Encoded::Row(bytes)
                }
            }
        }
    };
    Ok(Some(Made { table: primary.id, thread: id as usize % THREADS, key: buf, tid, change }))
}

/// The tables, their rows by id, and the number of rows.
struct Three {
    hashed_by_name: Handle<HashedByName>,
    hashed_by_id: Handle<HashedById>,
    ordered_by_name: Handle<OrderedByName>,
}

type Rows = Vec<(Option<HashedByName>, Option<HashedById>, Option<OrderedByName>)>;

impl Three {
    fn create(db: &Engine) -> Three {
        let created = "it is declared once";
        Three {
            hashed_by_name: db.make().expect(created),
            hashed_by_id: db.make().expect(created),
            ordered_by_name: db.make().expect(created),
        }
    }

    fn rows(&self, db: &Engine) -> Rows {
        let row = |tx: &TxCore, id: u64| {
            let hashed_by_name = tx.get(&self.hashed_by_name, &name(id))?;
            let hashed_by_id = tx.get(&self.hashed_by_id, &id)?;
            Ok::<_, Abort>((hashed_by_name, hashed_by_id, tx.get(&self.ordered_by_name, &name(id))?))
        };
        let read = db.runner().transact(|tx| (0..keys()).map(|id| row(tx, id)).collect::<Result<Rows, _>>());
        read.expect("no conflict").into_value()
    }

    /// Changes rows at random; returns the changes in order of their TIDs.
    fn change(&self, db: &Engine, rng: &mut Rng) -> Vec<Made> {
        let mut all = Vec::new();
        for pass in 0..PASSES {
            for (commit, first) in (THREADS as u64..keys()).step_by(KEYS_A_TRANSACTION as usize).enumerate() {
                let tid = Tid::from_bits(Tid::first_of(Epoch(10 + pass)).bits() + commit as u64);
                let count = 1 + pass * COUNTED_A_PASS + first;
                let seed = rng.next_u64();
                let made = db.runner().transact(|tx| {
                    let (rng, mut made) = (&mut Rng::from_seed(seed), Vec::new());
                    for id in (0..THREADS as u64).chain(first..(first + KEYS_A_TRANSACTION).min(keys())) {
                        made.extend(change(
                            tx,
                            &self.hashed_by_name,
                            (id, &name(id), &hashed_by_name(id, count)),
                            tid,
                            rng,
                        )?);
                        made.extend(change(tx, &self.hashed_by_id, (id, &id, &hashed_by_id(id, count)), tid, rng)?);
                        made.extend(change(
                            tx,
                            &self.ordered_by_name,
                            (id, &name(id), &ordered_by_name(id, count)),
                            tid,
                            rng,
                        )?);
                    }
                    Ok(made)
                });
                all.extend(made.expect("no conflict").into_value());
            }
        }
        all
    }
}

/// As [`Apply::apply_all`], with the guess of another row of the table for each. That happens if two keys
/// differ only in bits that the bucket does not keep: once in many thousands.
fn wrong_guesses(applier: &Applier<'_>, thread: usize, versions: &[Version<'_>], outcomes: &mut Vec<Outcome>) {
    let mut hand = applier.hands[thread].lock().expect("no panic");
    let hand = &mut *hand;
    hand.core.local.enter();
    let of_tables = versions.iter().map(|version| (applier.table(version), version));
    let guesses = restore_prefetch::fetch(hand.core.local.pinned(), &mut hand.leaf_hints, of_tables);
    for version in versions {
        let others = versions.iter().zip(&guesses).filter(|(other, _)| other.table == version.table);
        let guess = others.filter(|(other, _)| other.key != version.key).find_map(|(_, guess)| *guess);
        outcomes.push(applier.put(hand, guess, version).expect("memory"));
    }
    hand.core.local.leave();
}

/// Passes the changes to the applier, those of a key to one thread. Returns the outcomes, and the numbers of
/// split leaves and buckets.
fn restore(applier: &Applier<'_>, sets: &[Arc<TableSet>], all: &[Made]) -> (Vec<Outcome>, [u64; 2]) {
    let splits = || [RarePath::LeafSplit, RarePath::BucketSplit].map(taken);
    let restore = |thread, threads| {
        let before = splits();
        assert_eq!(threads, THREADS, "all threads are granted");
        let mine: Vec<(&Made, [entry::Change<'_>; 1])> = all
            .iter()
            .filter(|made| made.thread == thread)
            .map(|made| match &made.change {
                Encoded::Row(bytes) => (made, [entry::Change::Row(bytes)]),
                Encoded::Patch(bytes) => (made, [entry::Change::Patch(bytes)]),
                Encoded::Delta(bytes) => (made, [entry::Change::Delta(bytes)]),
                Encoded::Delete => (made, [entry::Change::Delete]),
            })
            .collect();
        let mut outcomes = Vec::new();
        for (at, run) in mine.chunks(RUN_VERSIONS).enumerate() {
            let versions: Vec<Version<'_>> = run
                .iter()
                .map(|(made, changes)| {
                    let set = sets.iter().find(|set| set.primary.id == made.table).expect("one of the tables");
                    let wire = set.primary.wire.as_ref().expect("tables have an encoding");
                    let (key, tid) = (made.key.as_key(), made.tid);
                    Version { table: made.table, layout: wire.layout, rows: &wire.rows, key, tid, changes }
                })
                .collect();
            let mut some = Vec::new();
            match at % 4 {
                0 => wrong_guesses(applier, thread, &versions, &mut some),
                _ => applier.apply_all(thread, &versions, &mut some).expect("memory"),
            }
            assert_eq!(some.len(), versions.len());
            outcomes.append(&mut some);
        }
        let [leaves, buckets] = splits();
        (outcomes, [leaves - before[0], buckets - before[1]])
    };
    let (outcomes, splits): (Vec<_>, Vec<_>) = thread::crew(THREADS, restore).into_iter().unzip();
    (outcomes.concat(), [0, 1].map(|path| splits.iter().map(|splits| splits[path]).sum()))
}

#[test]
#[ignore = "nightly: seconds"]
fn threads_that_restore_by_guesses_while_tables_grow_make_what_was_there() {
    let seed = seed("threads_that_restore_by_guesses_while_tables_grow_make_what_was_there");
    let mut rng = Rng::from_seed(seed);
    for protocol in sample(available_protocols(), 3, seed) {
        let settings = || Settings {
            protocol: protocol.name.to_owned(),
            workers: THREADS,
            step_helpers: true,
            ..Settings::default()
        };
        let open = || settings().open();
        let db = open().expect("memory");
        let three = Three::create(&db);
        let all = three.change(&db, &mut rng);
        let rows = three.rows(&db);
        assert!(all.iter().any(|made| matches!(made.change, Encoded::Delta(_))), "{}", protocol.name);

        let restored = open().expect("memory");
        let three = Three::create(&restored);
        let foundation: &Foundation = restored.inner();
        let cores: Vec<Core> = (0..THREADS).filter_map(|_| foundation.environment.core()).collect();
        let mut tables = Tables { sets: restored.inner().sets(), ..Tables::default() };
        tables.ids.skip_to(3);
        let applier = Applier::new(foundation, &tables, cores);
        let (outcomes, splits) = restore(&applier, &tables.sets, &all);
        assert!(splits.iter().all(|&splits| splits > 0), "{}: tables grow: {splits:?}", protocol.name);
        assert_eq!(outcomes.len(), all.len());
        assert!(outcomes.iter().all(|&outcome| outcome == Outcome::Applied), "{}", protocol.name);
        // Again, as the log repeats changes that a checkpoint has: tombstones still know their age.
        let (again, _) = restore(&applier, &tables.sets, &all);
        assert!(again.iter().all(|&outcome| outcome == Outcome::Older), "{}", protocol.name);
        applier.finish();
        assert_eq!(three.rows(&restored), rows, "{}", protocol.name);
        restored.check_structure().unwrap_or_else(|fault| panic!("{}: {fault}", protocol.name));
        let count: u64 = restored.check_indexes().expect("there are none").iter().map(|table| table.rows).sum();
        let there = |row: &(Option<HashedByName>, Option<HashedById>, Option<OrderedByName>)| {
            u64::from(row.0.is_some()) + u64::from(row.1.is_some()) + u64::from(row.2.is_some())
        };
        assert_eq!(count, rows.iter().map(there).sum::<u64>(), "{}: no row is there twice", protocol.name);
    }
}
