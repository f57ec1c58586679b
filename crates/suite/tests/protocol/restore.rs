//! Recovery restores tables under every protocol. Whatever the order of the versions, the newest remains, nothing else
//! is left, and transactions continue from there.

use std::collections::BTreeMap;

use seriatim_base::{Epoch, Rng, TableId, Tid, rng, thread};
use seriatim_catalog::{
    ColumnDef, ColumnSet, ColumnType, ColumnUse, Key, Organization, OutOfLineStore, RowRef, RowWriter, TableDef,
};
use seriatim_engine::for_each_protocol;
use seriatim_htm::{Budget, Htm, HtmMode};
use seriatim_memory::{Memory, Options, OutOfMemory};
use seriatim_store::LeafHint;
use seriatim_txn::{
    Change, Core, Environment, Inserted, Mode, Near, NoRedo, OnExists, OpError, Outcome, Peeked, Priority, Protocol,
    Recover, Restored, RowBuffer, RowPtr, Staged, Table, Worker,
};

/// The contents of a row: mutable number and text, immutable number and text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    sum: i64,
    note: String,
    born: i64,
    story: String,
}

#[derive(Clone, Debug)]
enum Version {
    Row(Row),
    /// Number and text, each if it changed.
    Patch(Option<i64>, Option<String>),
    Delete,
}

/// How a table is organized: by what, with how many words of key.
type Kind = (Organization, usize);

const KINDS: [Kind; 4] =
    [(Organization::Ordered, 1), (Organization::Ordered, 3), (Organization::Hash, 2), (Organization::Hash, 3)];

/// A database of one table under a protocol.
struct Bench<P: Protocol> {
    protocol: P,
    environment: Environment,
    table: Box<Table>,
    words: usize,
}

/// Nowhere in particular.
fn near(leaf_hint: &mut LeafHint) -> Near<'_> {
    Near { guess: None, leaf_hint }
}

impl<P: Recover> Bench<P> {
    fn open((organization, words): Kind) -> Bench<P> {
        let htm = Htm::new(HtmMode::Absent).expect("always there");
        let memory = Memory::new(Options { workers_max: 8, ..Options::default() }).expect("memory");
        let environment = Environment::new(htm, memory, Budget::default());
        let names = &["k0", "k1", "k2"][..words];
        let mut table = TableDef::builder("things");
        for name in names {
            table = table.column(ColumnDef::new(*name, ColumnType::U64));
        }
        let table = table
            .column(ColumnDef::new("sum", ColumnType::I64))
            .column(ColumnDef::new("note", ColumnType::LongText))
            .column(ColumnDef::new("born", ColumnType::I64).immutable())
            .column(ColumnDef::new("story", ColumnType::LongText).immutable());
        let table = if organization == Organization::Hash { table.hash() } else { table };
        let table = table.key(names.iter().copied()).capacity(16).finish().expect("a valid table");
        let mut core = environment.core().expect("a free slot");
        core.local.enter();
        let table = Table::new(TableId(0), &table, None, P::HEADER_BYTES, P::VERSION_HEADER_BYTES, &mut core);
        core.local.leave();
        let table = Box::new(table.expect("memory"));
        Bench { protocol: P::open(&seriatim_txn::Options::default(), &environment), environment, table, words }
    }

    fn key<T>(&self, id: u64, f: impl FnOnce(Key<'_>) -> T) -> T {
        match self.words {
            1 => f(Key::Word8(id)),
            2 => f(Key::Word16(u128::from(id) << 70 | 3)),
            _ => f(Key::Bytes(format!("thing number {id:012}").as_bytes())),
        }
    }

    fn get(&self, row: RowPtr) -> Row {
        let place = |at: usize| &self.table.layout.places[self.words + at];
        // SAFETY: a row of this table, readable while the worker that gave it is online.
        let row = unsafe { RowRef::from_raw(row.as_ptr()) };
        Row {
            sum: row.get::<i64>(place(0)),
            note: row.get::<String>(place(1)).to_owned(),
            born: row.get::<i64>(place(2)),
            story: row.get::<String>(place(3)).to_owned(),
        }
    }

    fn fill(&self, row: &Row, writer: &mut RowWriter<'_>) -> Result<(), seriatim_catalog::OutOfMemory> {
        let place = |at: usize| &self.table.layout.places[self.words + at];
        writer.set::<i64>(place(0), row.sum)?;
        writer.set::<String>(place(1), &row.note)?;
        writer.set::<i64>(place(2), row.born)?;
        writer.set::<String>(place(3), &row.story)
    }

    fn restore(&self, core: &mut Core, id: u64, tid: Tid, version: &Version) -> Restored {
        let places = &self.table.layout.places[self.words..];
        let leaf_hint = &mut LeafHint::default();
        core.local.enter();
        let restored = self.key(id, |key| match version {
            Version::Row(row) => {
                let fill = &mut |writer: &mut RowWriter<'_>| self.fill(row, writer);
                // SAFETY: each key belongs to one thread and there are no readers; columns are set by the
                // table's places.
                unsafe { self.protocol.restore(core, &self.table, key, near(leaf_hint), tid, Change::Row(fill)) }
            }
            Version::Patch(sum, note) => {
                let apply = &mut |writer: &mut RowWriter<'_>| {
                    if let Some(sum) = sum {
                        writer.set::<i64>(&places[0], *sum)?;
                    }
                    if let Some(note) = note {
                        // Twice: a value that is replaced within one patch has no reader either.
                        writer.set::<String>(&places[1], "something in between")?;
                        writer.set::<String>(&places[1], note)?;
                    }
                    Ok(())
                };
                // SAFETY: as above.
                unsafe { self.protocol.restore(core, &self.table, key, near(leaf_hint), tid, Change::Patch(apply)) }
            }
            // SAFETY: as above.
            Version::Delete => unsafe {
                self.protocol.restore(core, &self.table, key, near(leaf_hint), tid, Change::Delete)
            },
        });
        core.local.leave();
        restored.expect("memory")
    }

    fn finish(&self, core: &mut Core) {
        // SAFETY: restoring is done.
        unsafe { self.protocol.finish_restore(core, &self.table) }
    }

    fn peek(&self, core: &mut Core, id: u64) -> Option<(Tid, Option<Row>)> {
        core.local.enter();
        let pin = core.local.pinned();
        let (record, mut buffer) = (self.key(id, |key| self.table.index.get(key, pin)), RowBuffer::default());
        let mut peek = |record| {
            // SAFETY: found under the same pin.
            unsafe { self.protocol.peek_committed(&self.table, record, pin, &mut buffer) }
        };
        let peeked = record.ok().map(&mut peek);
        let found = peeked.map(|peeked| match peeked {
            Peeked::Row(tid, row) => (tid, Some(self.get(row))),
            Peeked::Deleted(tid) => (tid, None),
            Peeked::NeverCommitted | Peeked::Busy => panic!("key {id} is {peeked:?}"),
        });
        core.local.leave();
        found
    }

    fn worker(&self) -> P::Worker {
        let mut worker = self.protocol.worker(self.environment.core().expect("a free slot"));
        worker.core().includes = Epoch(u64::MAX);
        worker
    }

    fn read(&self, worker: &mut P::Worker, id: u64) -> Result<Option<Row>, OpError> {
        let row = self.key(id, |key| worker.read(&self.table, key, ColumnSet::ALL))?;
        Ok(row.map(|row| self.get(row)))
    }

    /// Checks the structure, gives everything back that is not a row, and finds that no row is left.
    fn close(self) {
        // SAFETY: the only thread.
        assert_eq!(unsafe { self.table.index.check() }, Ok(()));
        let Bench { environment, table, protocol, .. } = self;
        drop(protocol);
        let mut core = environment.core().expect("a free slot");
        let Table { index, .. } = *table;
        // SAFETY: the only thread; nothing of the index is kept.
        unsafe { index.dispose(&mut core.local) };
        for _ in 0..20 {
            environment.advance_epoch();
            core.local.collect();
        }
        drop(core);
        assert_eq!(environment.memory.in_use_bytes(), 0, "memory was lost");
    }
}

/// Tails of a worker's rows.
struct OutOfLineValues<'w, W>(&'w mut W);

impl<W: Worker> OutOfLineStore for OutOfLineValues<'_, W> {
    fn store(&mut self, bytes: &[u8]) -> Result<u64, seriatim_catalog::OutOfMemory> {
        self.0.out_of_line(bytes).map_err(|_| seriatim_catalog::OutOfMemory)
    }
}

fn commit<W: Worker>(worker: &mut W) -> Tid {
    match worker.commit(&mut NoRedo) {
        Ok(Outcome::Committed(tid)) => tid,
        other => panic!("it runs alone: {other:?}"),
    }
}

fn text(rng: &mut Rng) -> String {
    "x".repeat(rng.below(40) as usize)
}

fn row(rng: &mut Rng) -> Row {
    Row { sum: rng.below(1000) as i64, note: text(rng), born: rng.below(1000) as i64, story: text(rng) }
}

/// The versions of a key, oldest first.
fn history(rng: &mut Rng, patches: bool) -> Vec<(Tid, Version)> {
    let mut tid = Tid::ZERO;
    let mut version = |tid: &mut Tid| {
        *tid = tid.next(Epoch(1 + rng.below(5)));
        let kinds = if patches { 6 } else { 3 };
        let version = match rng.below(kinds) {
            0 => Version::Delete,
            1 | 2 => Version::Row(row(rng)),
            3 => Version::Patch(Some(rng.below(1000) as i64), None),
            4 => Version::Patch(None, Some(text(rng))),
            _ => Version::Patch(Some(0), Some(text(rng))),
        };
        (*tid, version)
    };
    (0..8).map(|_| version(&mut tid)).collect()
}

/// The state of a key after its versions, as far as they have a row to change: newest TID applied, and the row.
fn after(versions: &[(Tid, Version)]) -> Option<(Tid, Option<Row>)> {
    versions.iter().fold(None, |now: Option<(Tid, Option<Row>)>, (tid, version)| match (version, now) {
        (Version::Row(row), _) => Some((*tid, Some(row.clone()))),
        (Version::Delete, _) => Some((*tid, None)),
        (Version::Patch(sum, note), Some((_, Some(mut row)))) => {
            row.sum = sum.unwrap_or(row.sum);
            row.note = note.clone().unwrap_or(row.note);
            Some((*tid, Some(row)))
        }
        (Version::Patch(..), now) => now,
    })
}

const KEYS: u64 = 300;

/// Restores the versions of keys `first`, `first + 2`, ... in a random order, some of them twice; what they then are.
fn restore_half<P: Recover>(bench: &Bench<P>, rng: &mut Rng, first: u64) -> BTreeMap<u64, (Tid, Option<Row>)> {
    let mut core = bench.environment.core().expect("a free slot");
    let mut expected = BTreeMap::new();
    for id in (first..KEYS).step_by(2) {
        let patches = rng.below(2) == 0;
        let versions = history(rng, patches);
        let wanted = after(&versions);
        if patches {
            let (mut tid, mut is_row) = (Tid::ZERO, false);
            for (at, (new, version)) in versions.iter().enumerate() {
                let (older, old) = &versions[rng.below(at as u64 + 1) as usize];
                if *older <= tid {
                    assert_eq!(bench.restore(&mut core, id, *older, old), Restored::Older);
                }
                let has_base = is_row || !matches!(version, Version::Patch(..));
                let restored = bench.restore(&mut core, id, *new, version);
                assert_eq!(restored, if has_base { Restored::Applied } else { Restored::NoBase });
                assert_eq!(bench.peek(&mut core, id), after(&versions[..=at]), "{} key {id}", P::INFO.name);
                if has_base {
                    (tid, is_row) = (*new, !matches!(version, Version::Delete));
                }
            }
        } else {
            let (mut left, mut newest) = (versions.clone(), Tid::ZERO);
            while !left.is_empty() {
                let (tid, version) = left.swap_remove(rng.below(left.len() as u64) as usize);
                let restored = if tid > newest { Restored::Applied } else { Restored::Older };
                assert_eq!(bench.restore(&mut core, id, tid, &version), restored);
                assert_eq!(bench.restore(&mut core, id, tid, &version), Restored::Older, "twice is as good as once");
                newest = newest.max(tid);
            }
        }
        assert_eq!(bench.peek(&mut core, id), wanted, "{} key {id}", P::INFO.name);
        expected.extend(wanted.map(|wanted| (id, wanted)));
    }
    expected
}

/// Transactions over what was restored: rows are there, change, go, come back, and are deleted in the end.
/// TIDs only rise.
fn go_on<P: Recover>(bench: &Bench<P>, expected: &BTreeMap<u64, (Tid, Option<Row>)>, rng: &mut Rng) {
    let mut worker = bench.worker();
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        for id in 0..KEYS {
            worker.begin(mode, Priority::NONE);
            let (tid, row) = expected.get(&id).cloned().unwrap_or_default();
            assert_eq!(bench.read(&mut worker, id), Ok(row), "{} key {id}", P::INFO.name);
            assert!(worker.newest() >= tid);
            commit(&mut worker);
        }
    }
    for id in 0..KEYS {
        let (mut last, was) = expected.get(&id).cloned().unwrap_or_default();
        for step in 0..3 {
            worker.begin(Mode::ReadWrite, Priority::NONE);
            let new = row(rng);
            if step == 1 {
                let deleted = bench.key(id, |key| worker.delete(&bench.table, key)).expect("alone");
                assert!(deleted.is_some());
            } else {
                let updating = bench.key(id, |key| worker.update(&bench.table, key, ColumnUse::ALL)).expect("alone");
                assert_eq!(updating.is_some(), step == 0 && was.is_some());
                if let Some(updating) = updating {
                    let note = &bench.table.layout.places[bench.words + 1];
                    let mut out_of_line_values = OutOfLineValues(&mut worker);
                    // SAFETY: the private row version of a row of this table.
                    let mut writer = unsafe { RowWriter::for_update(updating.after.as_ptr(), &mut out_of_line_values) };
                    writer.set::<String>(note, &new.note).expect("memory");
                } else {
                    let Staged { row, fixed, record } = worker.stage(&bench.table).expect("memory");
                    let mut out_of_line_values = OutOfLineValues(&mut worker);
                    // SAFETY: a staged row of this table.
                    let mut writer =
                        unsafe { RowWriter::for_insert(row.as_ptr(), fixed.as_ptr(), &mut out_of_line_values) };
                    bench.fill(&new, &mut writer).expect("memory");
                    let staged = Staged { row, fixed, record };
                    let insert = |key: Key<'_>| worker.insert(&bench.table, key, staged, OnExists::Refuse);
                    assert_eq!(bench.key(id, insert), Ok(Inserted::New));
                }
            }
            let tid = commit(&mut worker);
            assert!(tid > last, "{} key {id}: {tid} after {last}", P::INFO.name);
            last = tid;
            worker.collect_garbage(usize::MAX);
        }
        worker.begin(Mode::ReadWrite, Priority::NONE);
        assert!(bench.key(id, |key| worker.delete(&bench.table, key)).is_ok_and(|row| row.is_some()));
        assert!(commit(&mut worker) > last);
    }
    // Versions for readers of the past are freed when helpers have passed their epoch, which may be a restored one.
    let last = worker.newest().epoch();
    while bench.environment.epochs.current().0 < last.0 + 8 {
        bench.environment.advance_epoch();
    }
    clear_away(&mut worker);
}

/// Unlinks what a worker deleted, and frees it.
fn clear_away<W: Worker>(worker: &mut W) {
    // A round ends at the first key that was deleted again after it was queued; where nothing could be looked
    // at before, that is each.
    for _ in 0..=KEYS {
        worker.core().local.collect();
        worker.collect_garbage(usize::MAX);
    }
    worker.core().local.collect();
}

fn newest_stands<P: Recover>() {
    let seed = rng::seed(P::INFO.name);
    for kind in KINDS {
        let bench = Bench::<P>::open(kind);
        let expected = thread::scope(|scope| {
            let half = |first| {
                let bench = &bench;
                scope.spawn(move || restore_half(bench, &mut Rng::from_seed(seed + first), first))
            };
            let halves = [half(0), half(1)];
            halves.into_iter().flat_map(|half| half.join().expect("a thread panicked")).collect::<BTreeMap<_, _>>()
        });
        // SAFETY: the only thread now.
        assert_eq!(unsafe { bench.table.index.check() }, Ok(()));
        let mut core = bench.environment.core().expect("a free slot");
        assert!(expected.values().any(|(_, row)| row.is_none()), "some tombstones were restored");
        bench.finish(&mut core);
        for id in 0..KEYS {
            let live = expected.get(&id).filter(|(_, row)| row.is_some()).cloned();
            assert_eq!(bench.peek(&mut core, id), live, "only rows stay linked");
        }
        drop(core);
        go_on(&bench, &expected, &mut Rng::from_seed(seed));
        bench.close();
    }
}

/// Restoring over what transactions left: a row version outside its record, and a tombstone that a worker
/// still has to look at.
fn over_what_is_there<P: Recover>() {
    for kind in KINDS {
        let bench = Bench::<P>::open(kind);
        let (mut worker, mut core) = (bench.worker(), bench.environment.core().expect("a free slot"));
        let mut rng = Rng::from_seed(7);
        let rows = [row(&mut rng), row(&mut rng), row(&mut rng)];
        for id in 0..3 {
            assert_eq!(
                bench.restore(&mut core, id, Tid::from_bits(5), &Version::Row(rows[0].clone())),
                Restored::Applied
            );
        }
        bench.finish(&mut core);
        let mut last = Tid::ZERO;
        for id in 0..3 {
            worker.begin(Mode::ReadWrite, Priority::NONE);
            if id == 2 {
                assert!(bench.key(id, |key| worker.delete(&bench.table, key)).is_ok_and(|row| row.is_some()));
            } else {
                let Staged { row, fixed, record } = worker.stage(&bench.table).expect("memory");
                let mut out_of_line_values = OutOfLineValues(&mut worker);
                // SAFETY: a staged row of this table.
                let mut writer =
                    unsafe { RowWriter::for_insert(row.as_ptr(), fixed.as_ptr(), &mut out_of_line_values) };
                bench.fill(&rows[1], &mut writer).expect("memory");
                let staged = Staged { row, fixed, record };
                let replace = |key: Key<'_>| worker.insert(&bench.table, key, staged, OnExists::Replace);
                assert!(matches!(bench.key(id, replace), Ok(Inserted::Replaced(_))));
            }
            last = commit(&mut worker).max(last);
        }
        let [older, tid] = [Tid::from_bits(6), last.next(Epoch(9))];
        assert_eq!(bench.restore(&mut core, 0, older, &Version::Delete), Restored::Older);
        assert_eq!(bench.restore(&mut core, 0, tid, &Version::Row(rows[2].clone())), Restored::Applied);
        let note = Some("changed".to_owned());
        assert_eq!(bench.restore(&mut core, 1, tid, &Version::Patch(None, note.clone())), Restored::Applied);
        assert_eq!(bench.restore(&mut core, 2, tid, &Version::Patch(None, note)), Restored::NoBase);
        assert_eq!(bench.restore(&mut core, 2, tid, &Version::Row(rows[2].clone())), Restored::Applied);
        assert_eq!(bench.peek(&mut core, 0), Some((tid, Some(rows[2].clone()))));
        let patched = Row { note: "changed".to_owned(), ..rows[1].clone() };
        assert_eq!(bench.peek(&mut core, 1), Some((tid, Some(patched))));
        assert_eq!(bench.peek(&mut core, 2), Some((tid, Some(rows[2].clone()))));
        for id in 0..3 {
            assert_eq!(bench.restore(&mut core, id, tid.next(Epoch(9)), &Version::Delete), Restored::Applied);
        }
        bench.finish(&mut core);
        // The tombstone of which a worker knows is that worker's to unlink.
        (0..20).for_each(|_| bench.environment.advance_epoch());
        clear_away(&mut worker);
        assert_eq!([0, 1, 2].map(|id| bench.peek(&mut core, id)), [const { None }; 3]);
        drop((worker, core));
        bench.close();
    }
}

/// Memory is refused in the middle of a row: an error, nothing half a row, and nothing lost.
fn refused<P: Recover>() {
    for kind in KINDS {
        let bench = Bench::<P>::open(kind);
        let mut core = bench.environment.core().expect("a free slot");
        let note = bench.table.layout.places[bench.words + 1];
        let refuse = |core: &mut Core, id: u64, tid: u64, patch: bool| {
            let set = &mut |writer: &mut RowWriter<'_>| {
                writer.set::<String>(&note, "the last that there was room for")?;
                Err(seriatim_catalog::OutOfMemory)
            };
            let change = if patch { Change::Patch(set) } else { Change::Row(set) };
            let (protocol, table) = (&bench.protocol, &bench.table);
            let leaf_hint = &mut LeafHint::default();
            let near = near(leaf_hint);
            core.local.enter();
            // SAFETY: the only thread; columns are set by the table's places.
            let restored =
                bench.key(id, |key| unsafe { protocol.restore(core, table, key, near, Tid::from_bits(tid), change) });
            core.local.leave();
            restored
        };
        let whole = row(&mut Rng::from_seed(3));
        assert_eq!(refuse(&mut core, 0, 1, false), Err(OutOfMemory));
        assert_eq!(bench.peek(&mut core, 0), None, "a new key is not linked");
        for (id, patch) in [(1, true), (2, false)] {
            let restored = bench.restore(&mut core, id, Tid::from_bits(1), &Version::Row(whole.clone()));
            assert_eq!(restored, Restored::Applied);
            assert_eq!(refuse(&mut core, id, 2, patch), Err(OutOfMemory));
            let left = bench.peek(&mut core, id).expect("it is linked");
            assert_eq!(left.0, Tid::from_bits(1), "not what was refused");
            assert!(left.1.is_none_or(|row| row.story == whole.story && row.born == whole.born));
            let restored = bench.restore(&mut core, id, Tid::from_bits(3), &Version::Delete);
            assert_eq!(restored, Restored::Applied);
        }
        bench.finish(&mut core);
        drop(core);
        bench.close();
    }
}

macro_rules! under_every_protocol {
    ($($name:ident => $protocol:path,)*) => {
        mod under {
            $(
                mod $name {
                    #[test]
                    fn the_newest_of_what_is_restored_stands() {
                        crate::restore::newest_stands::<$protocol>();
                    }

                    #[test]
                    fn a_refusal_of_memory_leaves_no_half_of_a_row() {
                        crate::restore::refused::<$protocol>();
                    }

                    #[test]
                    fn rows_can_be_restored_over_the_remains_of_transactions() {
                        crate::restore::over_what_is_there::<$protocol>();
                    }
                }
            )*
        }
    };
}
for_each_protocol!(under_every_protocol);

/// As the others, with every record hot.
mod hot {
    under_every_protocol! { htcc => seriatim_test_protocols::all_hot::AllHot, }
}
