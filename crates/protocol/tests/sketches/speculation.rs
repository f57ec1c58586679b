//! Speculation (Jones, Abadi, Madden, SIGMOD 2010, §4.2): one thread owns a partition; while the head of its queue waits for a
//! coordinator, it runs the next transactions on the head's uncommitted state, each on a worker of its own, and undoes them from
//! the tail if the head aborts.
//!
//! No addition to the contract: `prepare` is the vote, `decide` waits for its turn in the queue, `abort` cascades.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seriatim_base::Tid;
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_memory::{OutOfMemory, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, ConflictInfo, Core, Detach, Environment, Freshness, Inserted, Mode, NoRedo, On, OnExists, OpError,
    Options, Outcome, Peeked, Phase, Prepared, Priority, Protocol, ProtocolInfo, Reason, Redo, Requirements, RowBuffer,
    RowPtr, Savepoint, Scan, Seen, Staged, Table, Updating, Worker as _,
};

use crate::common::{Bench, modes};
use crate::stand_in::{Ground, Write, newest, peeked, report, row_of, version, versioned};

/// An undo: the row version that a write replaced.
struct Undo {
    write: Write,
    before: u64,
}

/// A transaction of the uncommitted queue (§4.2.1).
struct Entry {
    position: u64,
    undo: Vec<Undo>,
}

/// What the partition's thread knows.
#[derive(Default)]
struct Queue {
    uncommitted: VecDeque<Entry>,
    next: u64,
    last: Tid,
}

impl Queue {
    fn entry(&mut self, position: u64) -> Option<&mut Entry> {
        self.uncommitted.iter_mut().find(|entry| entry.position == position)
    }

    /// Removes entries from the tail and undoes them, down to `position`: the transactions behind it read its state.
    fn undo_from(&mut self, position: u64) {
        while self.uncommitted.back().is_some_and(|entry| entry.position >= position) {
            let entry = self.uncommitted.pop_back().expect("it is there");
            entry.undo.iter().rev().for_each(Undo::undo);
        }
    }
}

impl Undo {
    fn undo(&self) {
        self.write.newest().store(self.before, Ordering::Release);
    }
}

pub(crate) struct Speculation {
    queue: Arc<Mutex<Queue>>,
}

impl Protocol for Speculation {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "sketch-speculation",
        summary: "a partition's thread runs ahead of undecided transactions and undoes what was wrong",
        source: "Jones, Abadi, Madden, SIGMOD 2010",
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

    fn open(_: &Options, _: &Environment) -> Speculation {
        Speculation { queue: Arc::default() }
    }

    fn worker(&self, core: Core) -> Worker {
        Worker { ground: Ground::new(core), queue: Arc::clone(&self.queue), position: 0 }
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        // The owner's thread asks, as it does everything else. What the oldest of the queue replaced is what has committed.
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut undo = queue.uncommitted.iter().flat_map(|entry| &entry.undo);
        let before = undo.find(|undo| undo.write.record == record).map(|undo| undo.before);
        let row_version = before.unwrap_or_else(|| newest(table, record).load(Ordering::Acquire));
        peeked(version(table, record).load(Ordering::Acquire), row_of(table, row_version as usize))
    }
}

pub(crate) struct Worker {
    ground: Ground,
    queue: Arc<Mutex<Queue>>,
    position: u64,
}

impl Worker {
    /// Only the partition's thread takes it; the mutex is there because workers are `Send`.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cascaded(&mut self) -> OpError {
        self.ground.fail(Phase::Execute, Reason::RecordChanged)
    }

    /// Whether the attempt was undone together with one before it.
    fn is_undone(&self) -> bool {
        self.queue().entry(self.position).is_none()
    }

    fn find(&mut self, table: &Table, key: Key<'_>) -> Option<RecordPtr> {
        self.ground.find(table, key)
    }

    /// The newest row version, committed or not: what precedes in the queue precedes in the order.
    fn read_record(&mut self, table: &Table, record: RecordPtr) -> Result<Option<RowPtr>, OpError> {
        if self.is_undone() {
            return Err(self.cascaded());
        }
        Ok(self.ground.look(table, record).and_then(|(_, row_version)| row_of(table, row_version)))
    }

    /// Installs at once; the undo buffer is the row version replaced.
    fn install(&mut self, write: Write) {
        let before = write.newest().swap(write.row_version as u64, Ordering::AcqRel);
        let position = self.position;
        if let Some(entry) = self.queue().entry(position) {
            entry.undo.push(Undo { write, before });
        }
    }
}

impl seriatim_txn::Worker for Worker {
    common_methods!();

    fn begin(&mut self, _: Mode, _: Priority) {
        self.ground.enter();
        let mut queue = self.queue();
        let position = queue.next;
        queue.next += 1;
        queue.uncommitted.push_back(Entry { position, undo: Vec::new() });
        drop(queue);
        self.position = position;
    }

    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, OpError> {
        let inserted = self.ground.insert(table, key, staged, exists)?;
        if !matches!(inserted, Inserted::Exists(_)) {
            let write = *self.ground.writes.last().expect("an insert writes");
            self.install(write);
        }
        Ok(inserted)
    }

    fn update(&mut self, table: &Table, key: Key<'_>, _: ColumnUse) -> Result<Option<Updating>, OpError> {
        let Some(record) = self.find(table, key) else { return Ok(None) };
        let Some(before) = self.read_record(table, record)? else { return Ok(None) };
        let updating = self.ground.update_record(table, record, 0, before)?;
        let write = *self.ground.writes.last().expect("an update writes");
        self.install(write);
        Ok(Some(updating))
    }

    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError> {
        let Some(record) = self.find(table, key) else { return Ok(None) };
        let Some(before) = self.read_record(table, record)? else { return Ok(None) };
        let write = Write { table: table.into(), record, seen: 0, row_version: 0, part: 0 };
        self.ground.writes.push(write);
        self.install(write);
        Ok(Some(before))
    }

    fn savepoint(&mut self) -> Savepoint {
        Savepoint(self.ground.writes.len())
    }

    fn rollback_to(&mut self, savepoint: Savepoint) {
        let position = self.position;
        if let Some(entry) = self.queue().entry(position) {
            entry.undo.drain(savepoint.0..).rev().for_each(|undo| undo.undo());
        }
        self.ground.rollback_to(savepoint);
    }

    /// Within the queue all that was read holds. A user's abort may be reported only when everything before has committed.
    fn validate(&mut self) -> Result<(), OpError> {
        if self.is_undone() {
            return Err(self.cascaded());
        }
        let queue = self.queue();
        let (head, last) = (queue.uncommitted.front().map(|entry| entry.position), queue.last);
        drop(queue);
        // What it read of others has its TIDs by now.
        self.ground.newest = self.ground.newest.max(last);
        if head == Some(self.position) { Ok(()) } else { Err(OpError::Wait(On::Order)) }
    }

    /// A single-partition transaction decides for itself, when its turn comes.
    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        self.decide(redo)
    }

    fn detach(&mut self) -> Option<&mut dyn Detach> {
        Some(self)
    }

    /// From the tail down to this one. Those behind find out at their next call, and are run again in the same order.
    fn abort(&mut self) {
        let position = self.position;
        if !self.is_undone() {
            self.queue().undo_from(position);
        }
        self.ground.leave();
    }
}

impl Detach for Worker {
    fn hold(&mut self) {}

    /// The last fragment has run; the thread goes on with the next transaction on another worker. The queue is the order already.
    fn prepare(&mut self) -> Result<Prepared, OpError> {
        if self.is_undone() { Err(self.cascaded()) } else { Ok(Prepared::default()) }
    }
}

impl Worker {
    /// The coordinator says commit, or it is a speculative transaction's turn. Results leave here and not before.
    fn decide(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
        if self.is_undone() {
            return Err(self.cascaded());
        }
        let epoch = self.ground.core.epochs.current();
        let mut queue = self.queue();
        if queue.uncommitted.front().is_none_or(|head| head.position != self.position) {
            drop(queue);
            return Err(OpError::Wait(On::Order));
        }
        let tid = queue.last.next(epoch);
        queue.last = tid;
        let undo = queue.uncommitted.pop_front().map_or(Vec::new(), |entry| entry.undo);
        drop(queue);
        let effective = self.ground.effective();
        let first = |write: &Write| undo.iter().find(|undo| undo.write.record == write.record);
        let before: Vec<_> =
            effective.iter().map(|write| first(write).map_or(0, |undo| undo.before as usize)).collect();
        effective.iter().for_each(|write| write.version().store(versioned(tid, 0), Ordering::Release));
        report(&effective, &before, tid, redo, row_of);
        self.ground.leave();
        Ok(Outcome::Committed(tid))
    }
}

/// Runs a chain: transaction `i` reads cell `i` and adds what it found to cell `i + 1`. All on this thread, none decided.
fn chain(bench: &Bench<Speculation>, workers: &mut [Worker], first: u64) {
    let run = |(i, worker): (u64, &mut Worker)| {
        worker.begin(Mode::ReadWrite, Priority::NONE);
        let found = bench.read(worker, i).expect("nobody waits").expect("the cell exists");
        assert!(bench.change(worker, i + 1, |value| value + found).is_ok());
        worker.detach().expect("it detaches").prepare().expect("nothing was undone");
    };
    (first..).zip(workers).for_each(run);
}

fn decide(worker: &mut Worker) -> Result<Outcome, OpError> {
    worker.commit(&mut NoRedo)
}

#[test]
fn the_head_commits_and_what_speculated_on_it_follows_in_order() {
    for mode in modes() {
        let bench = Bench::<Speculation>::open(mode, &[1, 10, 100]);
        let mut workers: Vec<Worker> = (0..2).map(|_| bench.worker()).collect();
        chain(&bench, &mut workers, 0);
        assert_eq!(decide(&mut workers[1]), Err(OpError::Wait(On::Order)), "not before the head");
        assert_eq!(
            workers[1].validate(),
            Err(OpError::Wait(On::Order)),
            "no error of it is reported before the head's fate"
        );
        let tids: Vec<Outcome> = (0..2).map(|i| decide(&mut workers[i]).expect("its turn")).collect();
        assert!(matches!(tids[..], [Outcome::Committed(head), Outcome::Committed(next)] if head < next));
        assert_eq!(bench.state(&[0, 1, 2]), [1, 11, 111]);
    }
}

#[test]
fn aborting_the_head_undoes_a_chain_of_one_to_eight_and_it_runs_again() {
    for length in 1..=8 {
        let bench = Bench::<Speculation>::open(modes()[0], &[1; 10]);
        let mut workers: Vec<Worker> = (0..=length).map(|_| bench.worker()).collect();
        chain(&bench, &mut workers, 0);
        workers[0].abort();
        for worker in &mut workers[1..] {
            let error = decide(worker);
            assert!(matches!(error, Err(OpError::Abort(_))), "it read what was undone");
            assert!(worker.conflict_info().is_some());
            worker.abort();
        }
        assert_eq!(bench.state(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), [1; 9]);
        // Back at the head of the unexecuted queue, in the same order.
        chain(&bench, &mut workers[1..], 1);
        for worker in &mut workers[1..] {
            assert!(matches!(decide(worker), Ok(Outcome::Committed(_))));
        }
        let state = bench.state(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let expected: Vec<i64> = (0..10).map(|i| if (2..=length as i64 + 1).contains(&i) { i } else { 1 }).collect();
        assert_eq!(state, expected);
    }
}

#[test]
fn a_savepoint_undoes_part_of_an_uncommitted_transaction() {
    let bench = Bench::<Speculation>::open(modes()[0], &[1, 10]);
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    assert_eq!(bench.change(&mut worker, 0, |value| value + 1), Ok(2));
    let savepoint = worker.savepoint();
    assert_eq!(bench.change(&mut worker, 0, |value| value + 5), Ok(7));
    assert_eq!(bench.change(&mut worker, 1, |value| value + 5), Ok(15));
    worker.rollback_to(savepoint);
    assert_eq!(bench.read(&mut worker, 0), Ok(Some(2)));
    assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    assert_eq!(bench.state(&[0, 1]), [2, 10]);
}
