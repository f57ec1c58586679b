//! HTCC (Wu, Tan, USENIX ATC 2016): hot records locked at access, cold ones validated in a region, and a transaction whose reads
//! went stale repaired instead of run again.

use std::sync::atomic::Ordering;

use seriatim_base::{Backoff, Tid};
use seriatim_catalog::{ColumnSet, ColumnUse, Key, KeyBuf};
use seriatim_htm::HtmMode;
use seriatim_memory::{OutOfMemory, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, ConflictInfo, Core, Environment, Freshness, Inserted, Mode, NoRedo, OnExists, OpError, Options,
    Outcome, Peeked, Phase, Priority, Protocol, ProtocolInfo, Reason, Redo, Repair, Requirements, RowBuffer, RowPtr,
    Runs, Savepoint, Scan, Seen, Staged, Table, Updating, Worker as _,
};

use crate::common::{Bench, modes};
use crate::stand_in::{
    Ground, HOT, LOCKED, Read, Write, look_once, newest, peeked, replaced, report, row_of, tid_of, version, versioned,
};

/// Repairs of one attempt; beyond, it aborts.
const REPAIRS_MAX: u32 = 8;

pub(crate) struct Htcc;

impl Protocol for Htcc {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "sketch-htcc",
        summary: "locks hot records, validates cold ones in a region, repairs what went stale",
        source: "Wu, Tan, USENIX ATC 2016",
        requirements: Requirements { plan: true, regions: false },
        capabilities: Capabilities {
            ad_hoc: false,
            snapshots: Freshness::None,
            strict: true,
            epoch_order: true,
            tid_order: false,
            column_groups: false,
            pieces: false,
            detach: false,
            repair: true,
            partitions: false,
            regulated: false,
        },
        options: &[],
    };
    const HEADER_BYTES: usize = 16;
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker;

    fn open(_: &Options, _: &Environment) -> Htcc {
        Htcc
    }

    fn worker(&self, core: Core) -> Worker {
        Worker { ground: Ground::new(core), hot: Vec::new(), workset: Vec::new(), repairs: 0, lookups: 0 }
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        // A hot record is locked from its access on: a checkpoint meets those at their end.
        let found = look_once(table, record);
        found.map_or(Peeked::Busy, |(word, row_version)| peeked(word, row_of(table, row_version)))
    }
}

pub(crate) struct Worker {
    /// The rw-set: each element knows its operation (§4.3).
    ground: Ground,
    /// Hot records locked, with the word each had (§3.2).
    hot: Vec<Read>,
    /// The workset cache (§4.1): operation, key, record.
    workset: Vec<(u16, KeyBuf, RecordPtr)>,
    repairs: u32,
    /// Index lookups: for the test.
    lookups: u32,
}

impl Worker {
    /// Fast restoration while the key stays (§4.2: no lookup), slow restoration when it changed.
    fn find(&mut self, table: &Table, key: Key<'_>) -> Option<RecordPtr> {
        let operation = self.ground.part;
        let cached = |entry: &&(u16, KeyBuf, RecordPtr)| entry.0 == operation && entry.1.as_key() == key;
        if let Some(&(_, _, record)) = self.workset.iter().find(cached) {
            return Some(record);
        }
        self.lookups += 1;
        let record = self.ground.find(table, key)?;
        self.workset.push((operation, KeyBuf::from(key), record));
        Some(record)
    }

    /// AccessRecord of Figure 4. The hot bit is part of the word that is validated, so a flip is a conflict.
    fn access(&mut self, table: &Table, record: RecordPtr) -> Result<(u64, Option<RowPtr>), OpError> {
        if let Some(held) = self.hot.iter().find(|held| held.record == record) {
            return Ok((held.seen, row_of(table, newest(table, record).load(Ordering::Acquire) as usize)));
        }
        let mut backoff = Backoff::new();
        loop {
            let Some((word, row_version)) = self.ground.look(table, record) else {
                return Err(self.ground.fail(Phase::Execute, Reason::RecordLocked));
            };
            let read = Read { table: table.into(), record, seen: word, part: self.ground.part };
            if word & HOT == 0 {
                self.ground.reads.push(read);
                return Ok((word, row_of(table, row_version)));
            }
            // No-wait with a bounded spin (§3.2): a lock that is not had in time ends the attempt.
            let lock = || {
                version(table, record)
                    .compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            };
            if self.ground.core.htm.outside(lock) {
                self.hot.push(read);
                return Ok((word, row_of(table, row_version)));
            }
            if !backoff.wait() {
                return Err(self.ground.fail(Phase::Execute, Reason::RecordLocked));
            }
        }
    }

    fn read_record(&mut self, table: &Table, record: RecordPtr) -> Result<Option<RowPtr>, OpError> {
        match self.ground.own(record) {
            Some(own) => Ok(row_of(table, own.row_version)),
            None => self.access(table, record).map(|(_, row)| row),
        }
    }

    /// The word a write builds on, and the row before it.
    fn open(&mut self, table: &Table, key: Key<'_>) -> Result<Option<(RecordPtr, u64, RowPtr)>, OpError> {
        let Some(record) = self.find(table, key) else { return Ok(None) };
        let (seen, row) = match self.ground.own(record) {
            Some(own) => (own.seen, row_of(table, own.row_version)),
            None => self.access(table, record)?,
        };
        Ok(row.map(|row| (record, seen, row)))
    }

    /// Takes the elements of an operation out of the rw-set.
    fn erase(&mut self, index: u16) {
        self.ground.reads.retain(|read| read.part != index);
        self.ground.writes.retain(|write| write.part != index);
    }

    fn is_hot(&self, write: &Write) -> bool {
        self.hot.iter().any(|held| held.record == write.record)
    }

    /// Gives hot locks back; those of records written got their new word before.
    fn unlock(&mut self, kept: impl Fn(&Read) -> bool) {
        let outside = |read: &Read| self.ground.core.htm.outside(|| read.version().store(read.seen, Ordering::Release));
        self.hot.iter().filter(|held| !kept(held)).for_each(outside);
        self.hot.retain(|held| kept(held));
    }

    /// Operations whose reads, or the words their writes build on, no longer hold.
    fn invalid(&self) -> Vec<u16> {
        let reads = self.ground.stale().into_iter().map(|read| read.part);
        let stale = |write: &&Write| !self.is_hot(write) && write.version().load(Ordering::Acquire) != write.seen;
        let mut operations: Vec<u16> = reads.chain(self.ground.writes.iter().filter(stale).map(|w| w.part)).collect();
        operations.sort_unstable();
        operations.dedup();
        operations
    }
}

impl Repair for Worker {
    fn operation(&mut self, index: u16, _: u32) {
        self.ground.part = index;
    }

    fn forget(&mut self, runs: Runs, again: bool) {
        self.erase(runs.operation);
        if !again {
            // Hot locks of operations that did not run again are given back (Figure 6, `del_set`).
            self.unlock(|held| held.part != runs.operation);
        }
    }
}

impl seriatim_txn::Worker for Worker {
    common_methods!();

    fn repair(&mut self) -> Option<&mut dyn Repair> {
        Some(self)
    }

    fn begin(&mut self, _: Mode, _: Priority) {
        self.ground.enter();
        self.workset.clear();
        (self.repairs, self.lookups) = (0, 0);
    }

    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, OpError> {
        // The placeholder is the paper's private record: it has no row until the commit.
        self.ground.insert(table, key, staged, exists)
    }

    fn update(&mut self, table: &Table, key: Key<'_>, _: ColumnUse) -> Result<Option<Updating>, OpError> {
        // Hot writes are buffered too and installed under their lock.
        let Some((record, seen, before)) = self.open(table, key)? else { return Ok(None) };
        self.ground.update_record(table, record, seen, before).map(Some)
    }

    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        let Some((record, seen, before)) = self.open(table, key)? else { return Ok(None) };
        self.ground.writes.push(Write { table: table.into(), record, seen, row_version: 0, part: self.ground.part });
        Ok(Some(before))
    }

    fn savepoint(&mut self) -> Savepoint {
        Savepoint(self.ground.writes.len())
    }

    fn rollback_to(&mut self, savepoint: Savepoint) {
        self.ground.rollback_to(savepoint);
    }

    fn validate(&mut self) -> Result<(), OpError> {
        self.ground.validate()
    }

    /// Figure 4: validate and install the cold in one region, then install the hot, then unlock.
    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        // Hot records that slow restoration left behind stay locked to the end: more locks than needed are no harm.
        let effective = self.ground.effective();
        let (hot, cold): (Vec<Write>, Vec<Write>) = effective.iter().partition(|write| self.is_hot(write));
        let before = replaced(&effective);
        let tid = match self.ground.decide(&cold, None) {
            Some(tid) => tid,
            None => {
                self.repairs += 1;
                let operations = self.invalid();
                // A node version has no operation in this sketch; nor has a lock that was given back meanwhile.
                if operations.is_empty() || self.repairs > REPAIRS_MAX {
                    return Err(self.ground.fail(Phase::Validate, Reason::RecordChanged));
                }
                // The region stored nothing; hot locks stay. The attempt is still open.
                return Ok(Outcome::Repair(operations.into_iter().map(Runs::all).collect()));
            }
        };
        for write in &hot {
            write.newest().store(write.row_version as u64, Ordering::Release);
            write.version().store(versioned(tid, HOT), Ordering::Release);
        }
        report(&effective, &before, tid, redo, row_of);
        self.hot.retain(|held| !hot.iter().any(|write| write.record == held.record));
        self.unlock(|_| false);
        self.ground.leave();
        Ok(Outcome::Committed(tid))
    }

    fn abort(&mut self) {
        self.unlock(|_| false);
        self.ground.leave();
    }
}

impl Worker {
    /// The background thread's flip (§3.1): only of a record that is not locked. Optimistic readers find a changed word.
    fn flip(&mut self, table: &Table, key: Key<'_>) {
        self.ground.enter();
        let record = self.ground.find(table, key).expect("the record exists");
        let word = version(table, record).load(Ordering::Acquire);
        assert_eq!(word & LOCKED, 0);
        let flip = || version(table, record).compare_exchange(word, word ^ HOT, Ordering::AcqRel, Ordering::Relaxed);
        assert!(self.ground.core.htm.outside(flip).is_ok());
        self.ground.leave();
    }
}

const COUNTER: u64 = 9;

/// A procedure's frame: operation 0 reads which cell, operation 1 (its key depends on 0) adds to that cell, operation 2 counts.
#[derive(Default)]
struct Frame {
    cell: i64,
    runs: [u32; 3],
}

impl Frame {
    fn run(&mut self, bench: &Bench<Htcc>, worker: &mut Worker, operations: &[u16]) -> Result<(), OpError> {
        for &operation in operations {
            let repair = worker.repair().expect("it repairs");
            repair.forget(Runs::all(operation), true);
            repair.operation(operation, 0);
            self.runs[usize::from(operation)] += 1;
            match operation {
                0 => self.cell = bench.read(worker, 0)?.expect("the cell exists"),
                1 => drop(bench.change(worker, self.cell as u64, |value| value + 10)?),
                _ => drop(bench.change(worker, COUNTER, |value| value + 1)?),
            }
        }
        Ok(())
    }

    /// Those operations and what depends on them (Figure 9).
    fn affected(operations: &[u16]) -> Vec<u16> {
        if operations.contains(&0) { [&[0, 1][..], operations].concat() } else { operations.to_vec() }
            .into_iter()
            .collect::<std::collections::BTreeSet<u16>>()
            .into_iter()
            .collect()
    }
}

fn prepare(mode: HtmMode) -> (Bench<Htcc>, Worker, Worker) {
    let bench = Bench::<Htcc>::open(mode, &[1, 100, 200, 0, 0, 0, 0, 0, 0, 1000]);
    let (mut worker, other) = (bench.worker(), bench.worker());
    worker.flip(&bench.cells, Key::Word8(COUNTER));
    worker.begin(Mode::ReadWrite, Priority::NONE);
    (bench, worker, other)
}

fn commit_other(bench: &Bench<Htcc>, other: &mut Worker, id: u64, value: i64) {
    other.begin(Mode::ReadWrite, Priority::NONE);
    assert_eq!(bench.change(other, id, |_| value), Ok(value));
    assert!(matches!(other.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
}

#[test]
fn a_repair_re_runs_the_stale_operation_and_its_descendants_and_keeps_hot_locks() {
    for mode in modes() {
        let (bench, mut worker, mut other) = prepare(mode);
        let mut frame = Frame::default();
        assert_eq!(frame.run(&bench, &mut worker, &[0, 1, 2]), Ok(()));
        // Another transaction sends operation 1 to another cell.
        commit_other(&bench, &mut other, 0, 2);
        let repair = worker.commit(&mut NoRedo).expect("a repair, no abort");
        assert_eq!(repair, Outcome::Repair(vec![Runs::all(0)]));
        // The hot lock is held across the repair.
        other.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(bench.read(&mut other, COUNTER), Err(OpError::execute(Reason::RecordLocked)));
        other.abort();
        assert_eq!(frame.run(&bench, &mut worker, &Frame::affected(&[0])), Ok(()));
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        assert_eq!(frame.runs, [2, 2, 1], "the count did not run again");
        // Three operations, and the cell that operation 1 changed to (slow restoration).
        assert_eq!(worker.lookups, 4);
        assert_eq!(bench.state(&[0, 1, 2, COUNTER]), [2, 100, 210, 1001]);
    }
}

#[test]
fn a_flip_under_an_optimistic_read_is_a_conflict_that_repairs_without_a_lookup() {
    for mode in modes() {
        let (bench, mut worker, mut other) = prepare(mode);
        let mut frame = Frame::default();
        assert_eq!(frame.run(&bench, &mut worker, &[0, 1, 2]), Ok(()));
        other.flip(&bench.cells, Key::Word8(1));
        assert_eq!(worker.commit(&mut NoRedo), Ok(Outcome::Repair(vec![Runs::all(1)])));
        let lookups = worker.lookups;
        assert_eq!(frame.run(&bench, &mut worker, &[1]), Ok(()));
        assert_eq!(worker.lookups, lookups, "fast restoration");
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        assert_eq!(bench.state(&[1, COUNTER]), [110, 1001]);
    }
}

#[test]
fn an_operation_that_no_longer_runs_leaves_nothing_behind() {
    for mode in modes() {
        let (bench, mut worker, mut other) = prepare(mode);
        let mut frame = Frame::default();
        assert_eq!(frame.run(&bench, &mut worker, &[0, 1, 2]), Ok(()));
        commit_other(&bench, &mut other, 0, 2);
        assert_eq!(worker.commit(&mut NoRedo), Ok(Outcome::Repair(vec![Runs::all(0)])));
        assert_eq!(frame.run(&bench, &mut worker, &[0]), Ok(()));
        // The branch that adds and counts is not taken any more: the count's hot lock is free for others at once.
        worker.forget(Runs::all(1), false);
        worker.forget(Runs::all(2), false);
        commit_other(&bench, &mut other, COUNTER, 5);
        let before = tid_of(0);
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(tid)) if tid > before));
        assert_eq!(bench.state(&[1, 2, COUNTER]), [100, 200, 5]);
    }
}
