//! DBX-TC: a transaction chopped into pieces that commit one by one. Pieces before the conflicting one are buffered; the
//! conflicting piece draws the chain's snapshot number in its region (§4.3); later pieces publish under that number, and
//! commutative ones are redone on every newer snapshot (§4.4). Readers take a snapshot below every number in use.
//!
//! What it reads of the plan is told by `follow` after begin. After an error of `end_piece` the piece alone is gone and
//! can be run again, without `abort`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::Tid;
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_memory::{OutOfMemory, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Chain, ConflictInfo, Core, Environment, Freshness, Inserted, Mode, NoRedo, OnExists, OpError,
    Options, Outcome, Peeked, Phase, Pieces, Priority, Protocol, ProtocolInfo, Reason, Redo, Requirements, RowBuffer,
    RowPtr, Savepoint, Scan, Seen, Staged, Table, Updating, Worker as _,
};

use crate::common::{Bench, modes};
use crate::stand_in::{
    Ground, LOCKED, Read, Write, look_once, newest, peeked, replaced, report, row_of, tid_of, version,
};

const DELETED: u64 = 1 << 63;
const IDLE: u64 = u64::MAX;

struct Numbers {
    /// The global snapshot number; a helper advances it every 20 ms.
    global: AtomicU64,
    /// A lower bound of what each worker's chain may still publish under.
    local: Vec<AtomicU64>,
}

pub(crate) struct DbxTc {
    numbers: Arc<Numbers>,
}

impl Protocol for DbxTc {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "sketch-dbx-tc",
        summary: "commits piece by piece; eventual snapshots",
        source: "HTM with transaction chopping and eventual snapshots",
        requirements: Requirements { plan: true, regions: false },
        capabilities: Capabilities {
            ad_hoc: false,
            snapshots: Freshness::Bounded,
            strict: true,
            epoch_order: true,
            tid_order: false,
            column_groups: false,
            pieces: true,
            detach: false,
            repair: false,
        },
        options: &[],
    };
    const HEADER_BYTES: usize = 16;
    /// Snapshot number with a deletion mark, previous version.
    const VERSION_HEADER_BYTES: usize = 16;
    type Worker = Worker;

    fn open(_: &Options, _: &Environment) -> DbxTc {
        let local = (0..16).map(|_| AtomicU64::new(IDLE)).collect();
        DbxTc { numbers: Arc::new(Numbers { global: AtomicU64::new(1), local }) }
    }

    fn worker(&self, core: Core) -> Worker {
        let numbers = Arc::clone(&self.numbers);
        Worker {
            ground: Ground::new(core),
            numbers,
            conflicting: 0,
            commuting: Vec::new(),
            number: None,
            reading: None,
            commutative: Vec::new(),
        }
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        // The newest version, of whichever snapshot: as fresh as the TID says.
        let found = look_once(table, record);
        found.map_or(Peeked::Busy, |(word, row_version)| peeked(word, live(table, row_version)))
    }
}

pub(crate) struct Worker {
    ground: Ground,
    numbers: Arc<Numbers>,
    /// The piece that conflicts, and those that commute, as the plan says.
    conflicting: u16,
    commuting: Vec<u16>,
    /// The chain's snapshot number, once the conflicting piece has drawn it. From then on the chain must finish.
    number: Option<u64>,
    /// The snapshot of a read-only transaction.
    reading: Option<u64>,
    /// Commutative updates of the piece: the private row version, and the row it started from.
    commutative: Vec<(Write, RowPtr)>,
}

// SAFETY: rows are followed while the worker is online; the worker moves as a whole.
unsafe impl Send for Worker {}

/// A row version's header: snapshot number (with [`DELETED`]) and previous version.
fn header(row_version: usize) -> [u64; 2] {
    // SAFETY: row versions of this sketch begin with two words, written before the row version was published.
    unsafe { (row_version as *const [u64; 2]).read() }
}

fn number_of(row_version: usize) -> u64 {
    header(row_version)[0] & !DELETED
}

fn set_header(row_version: usize, header: [u64; 2]) {
    // SAFETY: the row version is private.
    unsafe { (row_version as *mut [u64; 2]).write(header) };
}

fn live(table: &Table, row_version: usize) -> Option<RowPtr> {
    row_of(table, row_version).filter(|_| header(row_version)[0] & DELETED == 0)
}

/// The commutative column: the last one of the table.
fn operand(table: &Table, row: RowPtr) -> *mut i64 {
    let place = table.layout.places.last().expect("a table has columns");
    row.as_ptr().wrapping_add(place.offset as usize).cast()
}

impl Worker {
    fn local(&self) -> &AtomicU64 {
        &self.numbers.local[usize::from(self.ground.core.local.worker().0)]
    }

    fn find(&mut self, table: &Table, key: Key<'_>) -> Option<RecordPtr> {
        self.ground.find(table, key)
    }

    fn read_record(&mut self, table: &Table, record: RecordPtr) -> Result<Option<RowPtr>, OpError> {
        if let Some(snapshot) = self.reading {
            // Versions below every number in use never change any more.
            let mut row_version = newest(table, record).load(Ordering::Acquire) as usize;
            while row_version != 0 && number_of(row_version) > snapshot {
                row_version = header(row_version)[1] as usize;
            }
            // Images have no TIDs of their own here; no version of the record has a newer one than it has itself.
            let word = version(table, record).load(Ordering::Acquire);
            self.ground.newest = self.ground.newest.max(tid_of(word));
            return Ok(live(table, row_version));
        }
        if let Some(own) = self.ground.own(record) {
            return Ok(live(table, own.row_version));
        }
        let Some((word, row_version)) = self.ground.look(table, record) else {
            return Err(self.ground.fail(Phase::Execute, Reason::RecordLocked));
        };
        self.ground.reads.push(Read { table: table.into(), record, seen: word, part: self.ground.part });
        Ok(live(table, row_version))
    }

    fn is_commutative(&self) -> bool {
        self.commuting.contains(&self.ground.part)
    }

    /// Headers of plain writes under `number` (DBX, Algorithm 1, lines 18 to 23).
    fn fill(&self, writes: &[Write], number: u64) {
        for write in writes {
            let before = write.newest().load(Ordering::Acquire) as usize;
            let previous = match before {
                0 => 0,
                same if number_of(same) == number => header(same)[1],
                older => {
                    // Conflicting updates take their numbers in serial order: the chopping saw to it.
                    assert!(number_of(older) < number, "a conflicting update outside the conflicting piece");
                    older as u64
                }
            };
            set_header(write.row_version, [number | header(write.row_version)[0] & DELETED, previous]);
        }
    }

    /// Algorithm 1 of the paper: the update on the version of the chain's number and on every newer one. Built as new
    /// row versions, for a version handed to a reader does not change.
    fn redo_commutative(&mut self, write: Write, before: RowPtr, number: u64) -> Result<Write, OpError> {
        let table = write.table();
        let after = row_of(table, write.row_version).expect("an update has a row");
        // SAFETY: both rows are this table's; `after` is private.
        let delta = unsafe { operand(table, after).read_unaligned() - operand(table, before).read_unaligned() };
        let Some((seen, mut old)) = self.ground.look(table, write.record) else {
            return Err(self.ground.fail(Phase::Lock, Reason::RecordLocked));
        };
        let (mut first, mut last) = (0, 0);
        loop {
            let row = live(table, old).ok_or(OpError::execute(Reason::RecordChanged))?;
            let new = self.ground.copy(table, row)?;
            let row = row_of(table, new).expect("a row version has a row");
            // SAFETY: private.
            unsafe { operand(table, row).write_unaligned(operand(table, row).read_unaligned() + delta) };
            if last == 0 {
                first = new;
            } else {
                set_header(last, [header(last)[0], new as u64]);
            }
            last = new;
            if number_of(old) > number {
                set_header(new, [number_of(old), 0]);
                old = header(old)[1] as usize;
                continue;
            }
            let previous = if number_of(old) == number { header(old)[1] } else { old as u64 };
            set_header(new, [number, previous]);
            return Ok(Write { seen, row_version: first, ..write });
        }
    }

    /// Commits what ran and was buffered, in one region; draws the number if the chain has none.
    fn publish(&mut self, redo: &mut dyn Redo) -> Result<Tid, OpError> {
        loop {
            let number = self.number.unwrap_or_else(|| self.numbers.global.load(Ordering::Acquire));
            let mut writes = self.ground.effective();
            self.fill(&writes, number);
            for i in 0..self.commutative.len() {
                let (write, before) = self.commutative[i];
                writes.push(self.redo_commutative(write, before, number)?);
            }
            let numbers = Arc::clone(&self.numbers);
            // The number is read in the region of the conflicting piece: its place in the order is its snapshot's (§4.3).
            let drawn = self.number.is_none().then_some((&numbers.global, number));
            let before = replaced(&writes);
            if let Some(tid) = self.ground.decide(&writes, drawn) {
                self.number = Some(number);
                self.local().store(number, Ordering::SeqCst);
                report(&writes, &before, tid, redo, live);
                return Ok(tid);
            }
            let moved = drawn.is_some() && numbers.global.load(Ordering::Acquire) != number;
            let built_on = |write: &Write| write.version().load(Ordering::Acquire) & !LOCKED == write.seen;
            // Commutative updates conflict with nobody: they are built again on what is there now.
            if !moved && (self.commutative.is_empty() || !self.ground.effective().iter().all(built_on)) {
                return Err(self.ground.fail(Phase::Validate, Reason::RecordChanged));
            }
            self.ground.validate()?;
        }
    }

    fn drop_piece(&mut self) {
        let piece = self.ground.part;
        self.ground.reads.retain(|read| read.part != piece);
        self.ground.writes.retain(|write| write.part != piece);
        self.ground.absences.clear();
        self.commutative.clear();
    }

    fn finish(&mut self) {
        self.local().store(IDLE, Ordering::SeqCst);
        self.commutative.clear();
        self.ground.leave();
    }
}

impl Pieces for Worker {
    fn follow(&mut self, chain: Chain<'_>) {
        (self.conflicting, self.commuting) = (chain.conflicting, chain.commutative.to_vec());
    }

    fn end_piece(&mut self, redo: &mut dyn Redo) -> Result<Tid, OpError> {
        let tid = if self.number.is_none() && self.ground.part < self.conflicting {
            // Before the conflicting piece nothing is published: its writes stay in the buffer.
            assert!(self.commutative.is_empty(), "commutative pieces follow the conflicting one here");
            Tid::ZERO
        } else {
            match self.publish(redo) {
                Ok(tid) => {
                    self.ground.forget_all();
                    self.commutative.clear();
                    tid
                }
                Err(error) => {
                    self.drop_piece();
                    return Err(error);
                }
            }
        };
        self.ground.part += 1;
        Ok(tid)
    }
}

impl seriatim_txn::Worker for Worker {
    common_methods!();

    fn begin(&mut self, mode: Mode, _: Priority) {
        self.ground.enter();
        // No chopping: one piece, which conflicts.
        (self.conflicting, self.number, self.reading) = (0, None, None);
        self.commuting.clear();
        // ORDERING: SeqCst: a reader that misses this bound took its minimum before, from a global number not above it.
        let global = &self.numbers.global;
        self.local().store(global.load(Ordering::SeqCst), Ordering::SeqCst);
        if mode == Mode::ReadOnly {
            let local = self.numbers.local.iter().map(|local| local.load(Ordering::SeqCst));
            self.reading = Some(local.min().unwrap_or(IDLE).min(global.load(Ordering::SeqCst)) - 1);
        }
    }

    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, OpError> {
        self.ground.insert(table, key, staged, exists)
    }

    fn update(&mut self, table: &Table, key: Key<'_>, _: ColumnUse) -> Result<Option<Updating>, OpError> {
        let Some(record) = self.find(table, key) else { return Ok(None) };
        if self.is_commutative() {
            let Some((seen, row_version)) = self.ground.look(table, record) else {
                return Err(self.ground.fail(Phase::Execute, Reason::RecordLocked));
            };
            // No read is noted: the update commutes with whatever comes between.
            let Some(before) = live(table, row_version) else { return Ok(None) };
            let row_version = self.ground.copy(table, before)?;
            let write = Write { table: table.into(), record, seen, row_version, part: self.ground.part };
            self.commutative.push((write, before));
            return Ok(row_of(table, row_version).map(|after| Updating { before, after }));
        }
        let Some(before) = self.read_record(table, record)? else { return Ok(None) };
        let seen = self.ground.own(record).map(|own| own.seen);
        let seen = seen.or(self.ground.reads.last().map(|read| read.seen)).expect("it was just read");
        self.ground.update_record(table, record, seen, before).map(Some)
    }

    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        let Some(updating) = self.update(table, key, ColumnUse::ALL)? else { return Ok(None) };
        // A deletion is a version too, for the snapshots before it.
        let write = self.ground.writes.last().expect("deletes are not commutative");
        set_header(write.row_version, [DELETED, 0]);
        Ok(Some(updating.before))
    }

    fn savepoint(&mut self) -> Savepoint {
        Savepoint(self.ground.writes.len())
    }

    fn rollback_to(&mut self, savepoint: Savepoint) {
        // Within the piece; earlier pieces lie below every savepoint taken in it.
        self.ground.rollback_to(savepoint);
    }

    fn validate(&mut self) -> Result<(), OpError> {
        self.ground.validate()
    }

    fn pieces(&mut self) -> Option<&mut dyn Pieces> {
        Some(self)
    }

    /// The last piece; then the chain is finished.
    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        let nothing = self.ground.writes.is_empty() && self.commutative.is_empty();
        let tid = if self.reading.is_some() || nothing {
            self.ground.validate()?;
            self.ground.newest
        } else {
            self.publish(redo)?
        };
        self.finish();
        Ok(Outcome::Committed(tid))
    }

    fn abort(&mut self) {
        assert!(self.number.is_none(), "a chain that is visible finishes (C14): its stops are of one piece");
        self.finish();
    }
}

/// Advances the global number, as the helper does.
fn tick(bench: &Bench<DbxTc>) {
    let htm = &bench.environment.htm;
    htm.outside(|| bench.protocol.numbers.global.fetch_add(1, Ordering::SeqCst));
}

fn snapshot(bench: &Bench<DbxTc>, ids: &[u64]) -> Vec<Option<i64>> {
    let mut reader = bench.worker();
    reader.begin(Mode::ReadOnly, Priority::NONE);
    let state = ids.iter().map(|&id| bench.read(&mut reader, id).expect("snapshots never stop")).collect();
    assert!(matches!(reader.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    state
}

fn begin(bench: &Bench<DbxTc>, chain: Chain<'_>) -> Worker {
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    worker.pieces().expect("it has pieces").follow(chain);
    worker
}

#[test]
fn a_chain_buffers_then_publishes_piece_by_piece_and_a_conflict_re_runs_one_piece() {
    for mode in modes() {
        let bench = Bench::<DbxTc>::open(mode, &[1, 10, 100]);
        let mut chain = begin(&bench, Chain { conflicting: 1, commutative: &[] });
        assert_eq!(bench.change(&mut chain, 0, |a| a + 1), Ok(2));
        assert_eq!(chain.end_piece(&mut NoRedo), Ok(Tid::ZERO), "buffered");
        assert_eq!(bench.state(&[0, 1, 2]), [1, 10, 100]);
        assert_eq!(bench.change(&mut chain, 1, |b| b + 1), Ok(11));
        let mut other = begin(&bench, Chain { conflicting: 0, commutative: &[] });
        assert_eq!(bench.change(&mut other, 1, |b| b + 100), Ok(110));
        assert!(matches!(other.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        assert!(matches!(chain.end_piece(&mut NoRedo), Err(OpError::Abort(_))));
        assert_eq!(bench.read(&mut chain, 0), Ok(Some(2)), "the buffered piece did not go");
        assert_eq!(bench.change(&mut chain, 1, |b| b + 1), Ok(111));
        assert!(chain.end_piece(&mut NoRedo).is_ok_and(|tid| tid > Tid::ZERO));
        assert_eq!(bench.state(&[0, 1, 2]), [2, 111, 100], "visible before the chain has finished");
        assert_eq!(bench.change(&mut chain, 2, |c| c + 1), Ok(101));
        assert!(matches!(chain.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        assert_eq!(bench.state(&[0, 1, 2]), [2, 111, 101]);
    }
}

#[test]
fn every_update_of_a_chain_is_on_one_snapshot_and_commutative_ones_are_redone_on_newer_ones() {
    for mode in modes() {
        let bench = Bench::<DbxTc>::open(mode, &[1, 10, 100, 1000]);
        tick(&bench);
        let (before, both) = ([Some(1), Some(10), Some(100)], [2, 11, 111]);
        let mut first = begin(&bench, Chain { conflicting: 1, commutative: &[2] });
        assert_eq!(bench.change(&mut first, 0, |a| a + 1), Ok(2));
        assert_eq!(first.end_piece(&mut NoRedo), Ok(Tid::ZERO));
        assert_eq!(bench.change(&mut first, 1, |b| b + 1), Ok(11));
        assert!(first.end_piece(&mut NoRedo).is_ok());
        // A chain of the next snapshot overtakes the first on the commutative cell.
        tick(&bench);
        let mut second = begin(&bench, Chain { conflicting: 0, commutative: &[1] });
        assert_eq!(bench.change(&mut second, 3, |d| d + 1), Ok(1001));
        assert!(second.end_piece(&mut NoRedo).is_ok());
        assert_eq!(bench.change(&mut second, 2, |c| c + 10), Ok(110));
        assert!(matches!(second.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        tick(&bench);
        assert_eq!(snapshot(&bench, &[0, 1, 2]), before, "the first chain may still publish under its number");
        assert_eq!(bench.change(&mut first, 2, |c| c + 1), Ok(111));
        // The commutative piece conflicts with nobody.
        let mut third = begin(&bench, Chain { conflicting: 0, commutative: &[0] });
        assert_eq!(bench.change(&mut third, 2, |c| c + 500), Ok(610));
        assert!(matches!(third.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        assert!(matches!(first.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        assert_eq!(bench.state(&[0, 1, 2]), [2, 11, 611]);
        // Snapshot 3: both chains, not the third. And the first chain's snapshot, without the second.
        assert_eq!(snapshot(&bench, &[0, 1, 2]), both.map(Some));
        let mut reader = bench.worker();
        reader.begin(Mode::ReadOnly, Priority::NONE);
        reader.reading = Some(2);
        assert_eq!(bench.read(&mut reader, 2), Ok(Some(101)));
        assert!(matches!(reader.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    }
}

#[test]
fn before_its_first_visible_effect_a_chain_aborts_without_a_trace() {
    let bench = Bench::<DbxTc>::open(modes()[0], &[1, 10]);
    let mut chain = begin(&bench, Chain { conflicting: 1, commutative: &[] });
    assert_eq!(bench.change(&mut chain, 0, |a| a + 1), Ok(2));
    assert_eq!(chain.end_piece(&mut NoRedo), Ok(Tid::ZERO));
    chain.abort();
    assert_eq!(bench.state(&[0, 1]), [1, 10]);
}
