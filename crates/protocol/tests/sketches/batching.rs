//! Reordering (Ding, Kot, Gehrke, VLDB 2018): executed transactions are held, ordered so that readers precede writers, and
//! decided in that order (§3.2); storage applies the newest of the writes it was sent and ignores the rest (§2, §3.1).
//!
//! One worker for each transaction of a batch. The batcher sees `Prepared` and no protocol. Addition: none.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seriatim_base::Tid;
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_memory::{OutOfMemory, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, ConflictInfo, Core, Detach, Environment, Freshness, Inserted, Mode, NoRedo, OnExists, OpError,
    Options, Outcome, Peeked, Phase, Prepared, Priority, Protocol, ProtocolInfo, Reason, Redo, Requirements, RowBuffer,
    RowPtr, Savepoint, Scan, Seen, Staged, Table, Updating, Worker as _,
};

use crate::common::{Bench, modes};
use crate::stand_in::{
    Ground, LOCKED, Read, Write, conflict, look_once, peeked, replaced, report, row_of, tid_of, versioned,
};

/// The validator's versions and the writes that storage has not applied yet.
#[derive(Default)]
struct Shared {
    /// Newest validated version of each object, by its record's address.
    versions: BTreeMap<usize, Tid>,
    sent: Vec<(Tid, Write)>,
}

impl Shared {
    fn version(&self, object: usize) -> Tid {
        self.versions.get(&object).copied().unwrap_or(Tid::ZERO)
    }

    /// Storage batching: of the writes sent for an object the one with the highest version is applied; the others, and any
    /// that is older than what is stored, are ignored. Then the reads run.
    fn apply(&mut self, object: usize) {
        let sent = self.sent.iter().filter(|(_, write)| write.record.addr() == object);
        if let Some((tid, write)) = sent.max_by_key(|(tid, _)| *tid)
            && tid_of(write.version().load(Ordering::Acquire)) < *tid
        {
            write.version().store(write.seen | LOCKED, Ordering::Relaxed);
            write.newest().store(write.row_version as u64, Ordering::Release);
            write.version().store(versioned(*tid, 0), Ordering::Release);
        }
        self.sent.retain(|(_, write)| write.record.addr() != object);
    }
}

pub(crate) struct Validating {
    shared: Arc<Mutex<Shared>>,
}

impl Protocol for Validating {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "sketch-batching",
        summary: "optimistic; a validator orders what was executed before it decides",
        source: "Ding, Kot, Gehrke, VLDB 2018",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            snapshots: Freshness::None,
            strict: true,
            epoch_order: true,
            tid_order: false,
            column_groups: false,
            pieces: false,
            detach: true,
            repair: false,
            partitions: false,
            regulated: false,
        },
        options: &[],
    };
    const HEADER_BYTES: usize = 16;
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker;

    fn open(_: &Options, _: &Environment) -> Validating {
        Validating { shared: Arc::default() }
    }

    fn worker(&self, core: Core) -> Worker {
        Worker { ground: Ground::new(core), shared: Arc::clone(&self.shared) }
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        // What was validated is committed, applied or not.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).apply(record.addr());
        let found = look_once(table, record);
        found.map_or(Peeked::Busy, |(word, row_version)| peeked(word, row_of(table, row_version)))
    }
}

pub(crate) struct Worker {
    ground: Ground,
    shared: Arc<Mutex<Shared>>,
}

impl Worker {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&mut self, table: &Table, key: Key<'_>) -> Option<RecordPtr> {
        self.ground.find(table, key)
    }

    fn read_record(&mut self, table: &Table, record: RecordPtr) -> Result<Option<RowPtr>, OpError> {
        self.shared().apply(record.addr());
        self.ground.read_record(table, record)
    }
}

impl seriatim_txn::Worker for Worker {
    common_methods!();

    fn begin(&mut self, _: Mode, _: Priority) {
        self.ground.enter();
    }

    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, OpError> {
        self.ground.insert(table, key, staged, exists)
    }

    fn update(&mut self, table: &Table, key: Key<'_>, _: ColumnUse) -> Result<Option<Updating>, OpError> {
        let Some(record) = self.find(table, key) else { return Ok(None) };
        let Some(before) = self.read_record(table, record)? else { return Ok(None) };
        let seen = self.ground.own(record).map(|own| own.seen);
        let seen = seen.or(self.ground.reads.last().map(|read| read.seen)).expect("it was just read");
        self.ground.update_record(table, record, seen, before).map(Some)
    }

    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        let Some(updating) = self.update(table, key, ColumnUse::ALL)? else { return Ok(None) };
        self.ground.writes.last_mut().expect("an update writes").row_version = 0;
        Ok(Some(updating.before))
    }

    fn savepoint(&mut self) -> Savepoint {
        Savepoint(self.ground.writes.len())
    }

    fn rollback_to(&mut self, savepoint: Savepoint) {
        self.ground.rollback_to(savepoint);
    }

    /// Pre-validation (§4.3) is the same question, asked earlier: what already conflicts with committed transactions leaves.
    fn validate(&mut self) -> Result<(), OpError> {
        let shared = self.shared();
        let stale = self.ground.reads.iter().any(|read| shared.version(read.record.addr()) != tid_of(read.seen));
        drop(shared);
        if stale { Err(self.ground.fail(Phase::Validate, Reason::RecordChanged)) } else { Ok(()) }
    }

    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        self.decide(redo)
    }

    fn detach(&mut self) -> Option<&mut dyn Detach> {
        Some(self)
    }

    /// Before `prepare`, or for a transaction of the feedback vertex set.
    fn abort(&mut self) {
        self.ground.leave();
    }
}

impl Detach for Worker {
    fn hold(&mut self) {}

    fn prepare(&mut self) -> Result<Prepared, OpError> {
        self.validate()?;
        let reads = self.ground.reads.iter().map(|read| (read.record.addr(), tid_of(read.seen))).collect();
        let writes = self.ground.effective().iter().map(|write| write.record.addr()).collect();
        Ok(Prepared { reads, writes, ..Prepared::default() })
    }
}

impl Worker {
    /// Classic validation at this place of the order: the validator is a critical section, the serialization point.
    fn decide(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        let writes = self.ground.effective();
        let epoch = self.ground.core.epochs.current();
        // SAFETY: online since the node versions were taken.
        let absent = self.ground.absences.iter().all(|node_version| unsafe { node_version.still_valid() });
        let mut shared = self.shared();
        let stale = |read: &Read| shared.version(read.record.addr()) != tid_of(read.seen);
        if !absent || self.ground.reads.iter().any(stale) {
            drop(shared);
            let error = conflict(Phase::Validate, Reason::RecordChanged);
            let _ = self.ground.fail(Phase::Validate, Reason::RecordChanged);
            return Err(error);
        }
        let overwritten = writes.iter().map(|write| shared.version(write.record.addr())).max();
        let tid = self.ground.newest.max(overwritten.unwrap_or_default());
        let tid = if writes.is_empty() { tid } else { tid.next(epoch) };
        if redo.listens() {
            writes.iter().for_each(|write| shared.apply(write.record.addr()));
        }
        let before = replaced(&writes);
        for &write in &writes {
            shared.versions.insert(write.record.addr(), tid);
            shared.sent.push((tid, write));
        }
        drop(shared);
        report(&writes, &before, tid, redo, row_of);
        self.ground.leave();
        Ok(Outcome::Committed(tid))
    }
}

/// An order of the batch in which readers precede writers, and the transactions dropped for it: while there is a cycle, the
/// transaction with most edges (the sort-based greedy of §4.1 with one at a time; a reader's edge runs to the writer).
fn order(batch: &[Prepared]) -> (Vec<usize>, Vec<usize>) {
    let precedes = |reader: usize, writer: usize| {
        reader != writer && batch[reader].reads.iter().any(|(object, _)| batch[writer].writes.contains(object))
    };
    let (mut left, mut order, mut dropped): (Vec<usize>, _, _) = ((0..batch.len()).collect(), Vec::new(), Vec::new());
    while !left.is_empty() {
        let free = left.iter().position(|&next| !left.iter().any(|&other| precedes(other, next)));
        match free {
            Some(at) => order.push(left.remove(at)),
            None => {
                let degree = |&t: &usize| left.iter().filter(|&&o| precedes(t, o) || precedes(o, t)).count();
                let most = *left.iter().max_by_key(|t| degree(t)).expect("some are left");
                left.retain(|&t| t != most);
                dropped.push(most);
            }
        }
    }
    (order, dropped)
}

/// Executes a batch: each transaction reads some cells and adds what they hold to another.
fn execute(bench: &Bench<Validating>, workers: &mut [Worker], batch: &[(&[u64], u64)]) -> Vec<Prepared> {
    let run = |(worker, (reads, write)): (&mut Worker, &(&[u64], u64))| {
        worker.begin(Mode::ReadWrite, Priority::NONE);
        let sum: i64 = reads.iter().map(|&id| bench.read(worker, id).expect("no waits").expect("a cell")).sum();
        assert!(bench.change(worker, *write, |value| value + sum).is_ok());
        worker.detach().expect("it detaches").prepare().expect("nobody has committed meanwhile")
    };
    workers.iter_mut().zip(batch).map(run).collect()
}

fn settle(workers: &mut [Worker], order: &[usize], dropped: &[usize]) -> Vec<usize> {
    dropped.iter().for_each(|&t| workers[t].abort());
    let mut aborted = dropped.to_vec();
    for &t in order {
        match workers[t].commit(&mut NoRedo) {
            Ok(outcome) => assert!(matches!(outcome, Outcome::Committed(_))),
            Err(_) => {
                workers[t].abort();
                aborted.push(t);
            }
        }
    }
    aborted
}

#[test]
fn a_reader_decided_before_the_writer_lets_both_commit() {
    for mode in modes() {
        let bench = Bench::<Validating>::open(mode, &[1, 10, 100]);
        let mut workers: Vec<Worker> = (0..2).map(|_| bench.worker()).collect();
        // Transaction 0 writes cell 0, transaction 1 has read it.
        let batch: [(&[u64], u64); 2] = [(&[2], 0), (&[0], 1)];
        // In order of arrival the reader fails.
        execute(&bench, &mut workers, &batch);
        assert_eq!(settle(&mut workers, &[0, 1], &[]), [1]);
        assert_eq!(bench.state(&[0, 1, 2]), [101, 10, 100]);
        // Reordered, nobody does.
        let prepared = execute(&bench, &mut workers, &batch);
        let (order, dropped) = order(&prepared);
        assert_eq!((&order[..], &dropped[..]), (&[1, 0][..], &[][..]));
        assert!(settle(&mut workers, &order, &dropped).is_empty());
        assert_eq!(bench.state(&[0, 1, 2]), [201, 111, 100]);
    }
}

#[test]
fn of_a_cycle_one_is_dropped_and_the_rest_commit() {
    for mode in modes() {
        let bench = Bench::<Validating>::open(mode, &[1, 10, 100, 1000]);
        let mut workers: Vec<Worker> = (0..4).map(|_| bench.worker()).collect();
        // Two cycles through 0: 0 -> 1 -> 2 -> 0 and 0 -> 3 -> 0.
        let batch: [(&[u64], u64); 4] = [(&[1, 3], 0), (&[2], 1), (&[0], 2), (&[0], 3)];
        let prepared = execute(&bench, &mut workers, &batch);
        let (order, dropped) = order(&prepared);
        assert_eq!(dropped, [0], "most edges");
        assert_eq!(settle(&mut workers, &order, &dropped), [0]);
        assert_eq!(bench.state(&[0, 1, 2, 3]), [1, 110, 101, 1001]);
    }
}

#[test]
fn storage_applies_the_highest_version_once_whatever_the_order_sent() {
    let bench = Bench::<Validating>::open(modes()[0], &[1]);
    let mut worker = bench.worker();
    for value in [5, 6, 7] {
        worker.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(bench.change(&mut worker, 0, |_| value), Ok(value));
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    }
    worker.begin(Mode::ReadWrite, Priority::NONE);
    let mut shared = worker.shared();
    let (tid, write) = *shared.sent.last().expect("the last write was sent, and nobody has read since");
    // A stale write that arrives late.
    shared.apply(write.record.addr());
    shared.sent.push((Tid::ZERO, write));
    shared.apply(write.record.addr());
    assert_eq!(tid_of(write.version().load(Ordering::Acquire)), tid);
    drop(shared);
    assert_eq!(bench.read(&mut worker, 0), Ok(Some(7)));
    worker.abort();
}
