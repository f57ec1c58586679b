//! At the memory limit a transaction that writes more is refused, all reads and deletes continue, and space is
//! returned.
//!
//! Tables of either organization, with an index of every kind and long texts, are filled until the limit refuses. They
//! are read, emptied in every way, and filled again. A map beside the database has the expected rows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seriatim::rng::{sample, seed};
use seriatim::{Abort, Database, Handle, ReadTx, Rng, SchemaError, Session, Table, Text, TransactError, Tx, thread};
use seriatim_suite::{Setting, matrix, rounds};

/// Rows of this file's tables.
trait TestTable: Table<Key = u64> + Clone + PartialEq + std::fmt::Debug {
    /// The row at `id`; `sizes` decides how long its text is.
    fn new(id: u64, sizes: u64) -> Self;
    fn number(&self) -> u64;
    fn owned(row: &Self::Row<'_>) -> Self;
    /// Sets the column of fixed width that no index knows.
    fn bump(tx: &Tx, table: &Handle<Self>, id: u64, number: u64) -> Result<bool, Abort>;
    /// Rows that the indexes find for what the row at `id` has in common with others, and for what it has alone.
    fn found(tx: &ReadTx, table: &Handle<Self>, id: u64) -> Result<([usize; 2], [Option<Self>; 2]), Abort>;
}

/// Rows refused in a row until a database counts as full.
const REFUSED_MAX: u32 = 5;

/// Bytes of a row's text: a few, or more than the largest small block.
fn length(id: u64, sizes: u64) -> usize {
    let mut rng = Rng::from_seed(sizes ^ id);
    if rng.percent(2) { rng.range(33_000, 70_000) as usize } else { rng.below(900) as usize }
}

macro_rules! test_table {
    ($name:ident, $table:literal, $organization:ident) => {
        #[derive(Table, Clone, Debug, PartialEq)]
        #[table(name = $table, key(id), $organization)]
        #[table(index(name = "by_half", columns(half), ordered))]
        #[table(index(name = "by_group", columns(group), hash))]
        #[table(index(name = "by_code", columns(code), ordered, unique))]
        #[table(index(name = "by_label", columns(label), hash, unique))]
        struct $name {
            id: u64,
            half: u32,
            group: u64,
            code: i64,
            label: Text<24>,
            number: u64,
            text: String,
        }

        impl TestTable for $name {
            fn new(id: u64, sizes: u64) -> Self {
                let label = Text::truncated(&format!("the label {id:x}"));
                let text = "x".repeat(length(id, sizes));
                $name { id, half: (id / 2) as u32, group: id % 50, code: -(id as i64), label, number: 0, text }
            }
            fn number(&self) -> u64 {
                self.number
            }
            fn owned(row: &Self::Row<'_>) -> Self {
                row.to_owned()
            }
            fn bump(tx: &Tx, table: &Handle<Self>, id: u64, number: u64) -> Result<bool, Abort> {
                Ok(tx.update_if(table, &id, |row| row.set_number(number))?.is_ok())
            }
            fn found(tx: &ReadTx, table: &Handle<Self>, id: u64) -> Result<([usize; 2], [Option<Self>; 2]), Abort> {
                let row = Self::new(id, 0);
                let (by_half, by_group) = (table.index(Self::BY_HALF), table.index(Self::BY_GROUP));
                let many = [tx.find_by(&by_half, &row.half).count(), tx.find_by(&by_group, &row.group).count()];
                let by_code = tx.get_by(&table.index(Self::BY_CODE), &row.code)?.map(|row| row.to_owned());
                let by_label = tx.get_by(&table.index(Self::BY_LABEL), &row.label)?.map(|row| row.to_owned());
                Ok((many, [by_code, by_label]))
            }
        }
    };
}

test_table!(Ordered, "ordered", ordered);
test_table!(Hashed, "hashed", hash);

/// How rows are deleted at the limit.
#[derive(Clone, Copy, Debug)]
enum Emptying {
    RowByRow,
    InOne,
    ByThreads,
}

/// A database at its limit and what must be in it.
struct World<'s, T> {
    setting: &'s Setting,
    db: Database,
    table: Handle<T>,
    sizes: u64,
    rows: BTreeMap<u64, u64>,
}

impl<T: TestTable> World<'_, T> {
    /// Inserts rows, some at a time, until the limit refuses even one by one.
    fn fill(&mut self, session: &mut Session, rng: &mut Rng) {
        let (mut next, mut most, mut refused) = (0, 12, 0);
        while refused < REFUSED_MAX {
            let end = next + rng.range(1, most);
            let insert = |tx: &Tx| (next..end).try_for_each(|id| tx.insert(&self.table, &T::new(id, self.sizes)));
            match session.transact(insert) {
                Ok(_) => {
                    self.rows.extend((next..end).map(|id| (id, 0)));
                    refused = 0;
                }
                Err(error) => {
                    assert!(matches!(error, TransactError::OutOfMemory { .. }), "{}: {error}", self.setting);
                    (most, refused) = (1, refused + 1);
                }
            }
            // Refused ones are left out: a smaller row may still fit.
            next = end;
            assert!(next < 1_000_000, "the limit must be met");
        }
    }

    /// Reads in every way, and compares.
    fn look(&self, session: &mut Session, rng: &mut Rng) {
        let ids: Vec<u64> = (0..20).map(|_| rng.below(self.rows.len() as u64 * 5 / 4 + 10)).collect();
        let look = |tx: &ReadTx| {
            for &id in &ids {
                let wanted = self.rows.get(&id);
                let row = tx.get(&self.table, &id)?.map(|row| T::owned(&row));
                assert_eq!(row.as_ref().map(T::number), wanted.copied());
                let ([half, group], alone) = T::found(tx, &self.table, id)?;
                assert_eq!(half, self.rows.range(id / 2 * 2..id / 2 * 2 + 2).count());
                assert_eq!(group, self.rows.keys().filter(|other| *other % 50 == id % 50).count());
                assert_eq!(alone, [row.clone(), row]);
            }
            Ok(())
        };
        session.transact(|tx| look(tx)).unwrap_or_else(|error| panic!("{}: reads go on: {error}", self.setting));
        session.snapshot(look).unwrap_or_else(|error| panic!("{}: snapshots go on: {error}", self.setting));
    }

    /// Updates in place; each works, or is refused without an effect.
    fn update(&mut self, session: &mut Session, rng: &mut Rng) {
        for number in 1..=100 {
            let from = rng.below(self.rows.len() as u64);
            let Some((&id, _)) = self.rows.range(from..).next() else { continue };
            match session.transact(|tx| T::bump(tx, &self.table, id, number)) {
                Ok(updated) => {
                    assert!(*updated);
                    self.rows.insert(id, number);
                }
                Err(TransactError::OutOfMemory { .. }) => {}
                Err(other) => panic!("{}: {other}", self.setting),
            }
        }
    }

    fn empty(&mut self, session: &mut Session, how: Emptying, rng: &mut Rng) {
        let mut ids: Vec<u64> = std::mem::take(&mut self.rows).into_keys().collect();
        rng.shuffle(&mut ids);
        let delete = |session: &mut Session, ids: &[u64]| {
            let deleted = session.transact(|tx| ids.iter().try_for_each(|id| tx.delete(&self.table, id)));
            deleted.unwrap_or_else(|error| panic!("{}, {how:?}: deletes go on: {error}", self.setting));
        };
        match how {
            Emptying::RowByRow => ids.chunks(1).for_each(|ids| delete(session, ids)),
            Emptying::InOne => delete(session, &ids),
            Emptying::ByThreads => thread::scope(|scope| {
                for part in ids.chunks(ids.len().div_ceil(3)) {
                    let (delete, mut session) = (&delete, self.db.session());
                    scope.spawn(move || part.chunks(3).for_each(|ids| delete(&mut session, ids)));
                }
            }),
        }
    }

    /// Helpers' work, until nothing is left of it.
    fn settle(&self) {
        (0..40).for_each(|_| self.db.step());
    }

    fn check(&self) {
        assert_eq!(self.db.check_structure(), Ok(()), "{}", self.setting);
    }

    /// At rest the tables' counts are exact: of rows, and of bytes, as all that is in use belongs to a table.
    fn check_counts(&self) {
        let count = || {
            let statistics = self.db.statistics();
            let tables = statistics.tables;
            let rows = tables.iter().find(|table| table.name == T::NAME).map(|table| table.rows);
            let bytes: u64 = tables.iter().map(|table| table.bytes + table.index_bytes).sum();
            (rows, bytes, (statistics.memory_bytes - statistics.transaction_bytes) as u64, tables)
        };
        let wanted = Some(self.rows.len() as u64);
        // The work of a helper that does not run for a while is completed later. So this has no limit.
        for round in 1u32.. {
            let (rows, bytes, in_use, tables) = count();
            if rows == wanted && bytes == in_use {
                break;
            }
            if round.is_multiple_of(1000) {
                eprintln!("{}: {rows:?} of {wanted:?} rows, {bytes} of {in_use} bytes: {tables:?}", self.setting);
            }
            thread::sleep(Duration::from_millis(1));
            self.settle();
        }
    }
}

fn goes_on<T: TestTable>(setting: &Setting, rng: &mut Rng) {
    let limit = rng.range(2 << 20, 4 << 20) as usize;
    let helpers = rng.percent(50);
    eprintln!("{setting}, {}, limit {limit}, helpers {}", T::NAME, if helpers { "on time" } else { "stepped" });
    let builder = setting.builder().workers(4).retry(setting.patience()).memory_limit(limit).step_helpers(!helpers);
    let db = builder.operations_max(1 << 20).open().expect("a database");
    let table = db.create::<T>().expect("a table");
    let mut world = World { setting, db, table, sizes: rng.next_u64() >> 1, rows: BTreeMap::new() };
    let mut session = world.db.session();
    let mut fits = Vec::new();
    let ways = [Emptying::RowByRow, Emptying::InOne, Emptying::ByThreads, Emptying::InOne];
    for how in sample(ways, 2, rng.below(2)) {
        world.fill(&mut session, rng);
        let full = world.db.statistics().memory_bytes;
        assert!(full <= limit, "{setting}: {full} bytes of {limit}");
        fits.push(world.rows.len());
        world.look(&mut session, rng);
        world.update(&mut session, rng);
        world.look(&mut session, rng);
        world.check();
        world.settle();
        world.check_counts();
        let newest = *world.rows.keys().next_back().expect("rows fit");
        let there = session.transact(|tx| {
            let there = (0..newest + 100).map(|id| Ok(tx.get(&world.table, &id)?.map(|_| id)));
            there.filter_map(Result::transpose).collect::<Result<Vec<u64>, Abort>>()
        });
        let there = there.expect("reads go on").value;
        assert!(
            there.iter().eq(world.rows.keys()),
            "{setting}: nothing of what was refused is there, and all the rest is"
        );
        world.empty(&mut session, how, rng);
        world.settle();
        world.look(&mut session, rng);
        world.check();
        world.settle();
        world.check_counts();
        let rest = world.db.statistics().memory_bytes;
        assert!(rest < full / 4, "{setting}: {rest} of {full} bytes after all was deleted");
    }
    let fewest = *fits.iter().min().expect("rounds");
    assert!(fits[0] > 500 && fewest >= fits[0] * 8 / 10, "{setting}, {}: {fits:?} rows fit", T::NAME);
}

#[test]
#[ignore = "nightly: minutes"]
fn an_ordered_table_works_at_the_memory_limit() {
    let seed = seed("the limit of an ordered table");
    for setting in matrix(seed) {
        goes_on::<Ordered>(&setting, &mut Rng::from_seed(seed));
    }
}

#[test]
fn a_hash_table_works_at_the_memory_limit() {
    let seed = seed("the limit of a hash table");
    for setting in matrix(seed) {
        goes_on::<Hashed>(&setting, &mut Rng::from_seed(seed));
    }
}

/// One fills, one deletes and one reads, all at the limit: only the first is ever refused.
fn at_once<T: TestTable>(setting: &Setting, seed: u64) {
    let mut rng = Rng::from_seed(seed);
    let limit = rng.range(3 << 19, 2 << 20) as usize;
    eprintln!("{setting}, {}, limit {limit}", T::NAME);
    let db = setting.builder().workers(4).retry(setting.patience()).memory_limit(limit).open().expect("a database");
    let table = db.create::<T>().expect("a table");
    let mut world = World { setting, db, table, sizes: rng.next_u64() >> 1, rows: BTreeMap::new() };
    world.fill(&mut world.db.session(), &mut rng);
    let newest = *world.rows.keys().next_back().expect("rows fit");
    let done = AtomicBool::new(false);
    let inserted = thread::scope(|scope| {
        let (world, done, mut draws) = (&world, &done, rng.fork());
        let deleter = scope.spawn(move || {
            let mut session = world.db.session();
            for &id in world.rows.keys() {
                let deleted = session.transact(|tx| tx.delete(&world.table, &id));
                deleted.unwrap_or_else(|error| panic!("{setting}: deletes go on: {error}"));
            }
            done.store(true, Ordering::Relaxed);
        });
        let reader = scope.spawn(move || {
            let mut session = world.db.session();
            while !done.load(Ordering::Relaxed) {
                let id = draws.below(newest * 2);
                let read = |tx: &ReadTx| Ok((tx.get(&world.table, &id)?.is_some(), T::found(tx, &world.table, id)?.1));
                let seen = if id % 2 == 0 { session.snapshot(read) } else { session.transact(|tx| read(tx)) };
                let (there, alone) = seen.unwrap_or_else(|error| panic!("{setting}: reads go on: {error}")).value;
                assert!(alone.iter().all(|found| found.is_some() == there), "{setting}: row and indexes agree");
            }
        });
        let mut session = world.db.session();
        let (mut inserted, mut refused, mut next) = (Vec::new(), 0, newest + 1);
        while !done.load(Ordering::Relaxed) && !deleter.is_finished() {
            match session.transact(|tx| tx.insert(&world.table, &T::new(next, world.sizes))) {
                Ok(_) => inserted.push(next),
                Err(TransactError::OutOfMemory { .. }) => {
                    refused += 1;
                    // On few cores the transactions that are not refused get their turn.
                    std::thread::sleep(Duration::from_micros(50));
                }
                Err(other) => panic!("{setting}: {other}"),
            }
            next += 1;
        }
        deleter.join().expect("the deleter panicked");
        reader.join().expect("the reader panicked");
        eprintln!("{setting}: {} inserted, {refused} refused", inserted.len());
        inserted
    });
    world.rows = inserted.into_iter().map(|id| (id, 0)).collect();
    world.look(&mut world.db.session(), &mut rng);
    world.settle();
    world.check();
}

#[test]
#[ignore = "nightly: minutes"]
fn sessions_work_beside_each_other_at_the_memory_limit() {
    let seed = seed("sessions at the limit");
    let settings = matrix(seed);
    for (at, setting) in settings.iter().enumerate() {
        // A table of one organization in a setting of a protocol, of the other in the next; of either where
        // there are more rounds.
        let is_ordered = (seed as usize + setting.turn(&settings[..at])).is_multiple_of(2);
        if is_ordered || rounds() > 1 {
            at_once::<Ordered>(setting, seed);
        }
        if !is_ordered || rounds() > 1 {
            at_once::<Hashed>(setting, seed);
        }
    }
}

/// A table whose index asks for more than there is, when the table itself is made already.
#[derive(Table, Clone, Debug)]
#[table(name = "wide", key(id), ordered, capacity = 10_000_000)]
#[table(index(name = "by_other", columns(other), hash, unique))]
struct Wide {
    id: u64,
    other: u64,
}

/// A table that needs little.
#[derive(Table, Clone, Debug)]
#[table(name = "narrow", key(id), ordered)]
struct Narrow {
    id: u64,
}

#[test]
#[ignore = "nightly: minutes"]
fn a_table_that_does_not_fit_is_refused_and_leaves_nothing() {
    let seed = seed("tables at the limit");
    for setting in matrix(seed) {
        let mut rng = Rng::from_seed(seed);
        let limit = rng.range(3 << 20, 6 << 20) as usize;
        let db = setting.builder().workers(4).memory_limit(limit).step_helpers(true).open().expect("a database");
        let table = db.create::<Ordered>().expect("a table");
        let mut world = World { setting: &setting, db, table, sizes: rng.next_u64() >> 1, rows: BTreeMap::new() };
        let mut session = world.db.session();
        for is_full in [false, true] {
            if is_full {
                world.fill(&mut session, &mut rng);
            }
            world.settle();
            let before = world.db.statistics().memory_bytes;
            for _ in 0..50 {
                let refused = world.db.create::<Wide>().expect_err("the limit");
                assert!(matches!(refused, SchemaError::OutOfMemory { .. }), "{setting}: {refused}");
                assert!(refused.to_string().ends_with("delete rows or raise the limit"));
            }
            assert_eq!(world.db.statistics().memory_bytes, before, "{setting}: nothing is left of a refused table");
            assert_eq!(world.db.table_names(), ["ordered"]);
        }
        world.look(&mut session, &mut rng);
        world.empty(&mut session, Emptying::InOne, &mut rng);
        world.settle();
        let narrow = world.db.create::<Narrow>().unwrap_or_else(|error| panic!("{setting}: space came back: {error}"));
        session.transact(|tx| tx.insert(&narrow, &Narrow { id: 1 })).expect("space came back");
        world.check();
    }
}

/// The notes of a transaction about its reads, writes, locks and scans count while it is open. Their memory is returned
/// when the transactions after it are small, but not after the first of them, or when there are none.
#[test]
#[ignore = "nightly: minutes"]
fn notes_of_a_large_transaction_count_and_are_given_back() {
    const ROWS: u64 = 6000;
    for setting in matrix(seed("what large transactions note")) {
        let builder = setting.builder().workers(1).step_helpers(true).operations_max(1 << 20);
        let db = builder.open().expect("a database");
        let table = db.create::<Narrow>().expect("a table");
        let mut session = db.session();
        let noted = || db.statistics().transaction_bytes as u64;
        let rest = || {
            (0..4).for_each(|_| db.step());
            assert_eq!(noted(), 0, "{setting}: at rest nothing is noted");
        };
        for id in 0..ROWS {
            session.transact(|tx| tx.insert(&table, &Narrow { id })).expect("alone");
        }
        rest();
        let scan = |tx: &Tx| tx.scan(&table, ..).try_for_each(|row| row.map(drop));
        let delete = |tx: &Tx| (0..ROWS).try_for_each(|id| tx.delete_if(&table, &id).map(drop));
        let insert = |tx: &Tx| (0..ROWS).try_for_each(|id| tx.insert(&table, &Narrow { id }));
        type Body<'b> = &'b dyn Fn(&Tx) -> Result<(), Abort>;
        let large: [(&str, Body<'_>); 3] = [("scan", &scan), ("delete", &delete), ("insert", &insert)];
        for (what, large) in large {
            for small in [true, false] {
                let before = db.statistics().memory_bytes as u64;
                let open = session.begin().expect("a worker");
                large(&open).expect("alone");
                assert!(noted() > ROWS * 16, "{setting}, {what}: {} bytes are noted", noted());
                assert!(db.statistics().memory_bytes as u64 >= before + ROWS * 16, "{setting}, {what}");
                // Nothing is deleted or inserted twice.
                match small {
                    true => drop(open),
                    false => drop(open.commit().expect("alone")),
                }
                let mut tiny =
                    || session.transact(|tx| Ok(tx.get(&table, &(ROWS + 7))?.is_none())).map(drop).expect("alone");
                // Of a scan hto notes the leaves alone.
                let kept = noted();
                assert!(kept > ROWS * 6, "{setting}, {what}: {kept} bytes are left of it");
                tiny();
                assert_eq!(noted(), kept, "{setting}, {what}: kept for another large one");
                if small {
                    (0..100).for_each(|_| tiny());
                    assert!(noted() < kept / 4, "{setting}, {what}: {} of {kept} bytes after small ones", noted());
                }
                rest();
            }
        }
    }
}

/// A transaction that reads without end is refused above the limit of rows, where a list of reads grows
/// without end. Rows that were read are locked once, so locking never gets there.
#[test]
fn a_transaction_that_only_reads_is_bounded_too() {
    const READS: u32 = 1_000_000;
    for setting in matrix(seed("bounded reads")) {
        let db = setting.builder().workers(1).memory_limit(2 << 20).operations_max(1 << 30).open().expect("a database");
        let table = db.create::<Narrow>().expect("a table");
        let mut session = db.session();
        session.transact(|tx| tx.insert(&table, &Narrow { id: 1 })).expect("alone");
        let mut most = 0;
        let read = session.transact(|tx| {
            for at in 0..READS {
                tx.get(&table, &1)?;
                if at % 65_536 == 0 {
                    most = most.max(db.statistics().memory_bytes);
                }
            }
            Ok(())
        });
        assert!(most < 2 * (20 << 20), "{setting}: {most} bytes");
        match setting.protocol {
            "nowait" | "wait-die" => drop(read.expect("one lock")),
            "hto" => drop(read.expect("one timestamp")),
            _ if setting.hot => drop(read.expect("one lock")),
            _ => assert!(matches!(read, Err(TransactError::OutOfMemory { .. })), "{setting}: {read:?}"),
        }
        session.transact(|tx| tx.insert(&table, &Narrow { id: 2 })).expect("it was given back");
    }
}
