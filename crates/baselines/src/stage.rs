//! For tests: transactions on one database, step by step, with a history of those that commit for the checker.

use std::cell::Cell;

use seriatim_base::{TableId, Tid};
use seriatim_catalog::Key;
use seriatim_history::{Columns, History, Initial, Read, Saw, Transaction, Write};
use seriatim_htm::HtmMode;
use seriatim_txn::{Inserted, Mode, NoRedo, OnExists, OpError, Outcome, Priority, Protocol, Worker};

use crate::common::Bench;

const TABLE: TableId = TableId(0);

/// A database of three cells, and the outcomes of its transactions.
pub(crate) struct Stage<P: Protocol> {
    /// A worker that is kept, where it matters when one goes.
    pub(crate) kept: Option<P::Worker>,
    pub(crate) bench: Bench<P>,
    clock: Cell<u64>,
    pub(crate) history: History,
}

/// An open transaction.
pub(crate) struct Open<W> {
    pub(crate) worker: W,
    seen: Transaction,
    /// The keys written, and whether by a deletion.
    pub(crate) writes: Vec<(u64, bool)>,
}

impl<P: Protocol> Stage<P> {
    pub(crate) fn new() -> Stage<P> {
        let bench = Bench::open(HtmMode::Absent, &[10, 10, 10]);
        let history = History { initial: Initial::Unknown, ..History::default() };
        Stage { kept: None, bench, clock: Cell::new(1), history }
    }

    fn now(&self) -> u64 {
        self.clock.replace(self.clock.get() + 1)
    }

    pub(crate) fn open(&self) -> Open<P::Worker> {
        self.open_with(self.bench.worker(), Mode::ReadWrite)
    }

    /// A transaction of this worker. One that only reads may be older than the present.
    pub(crate) fn open_with(&self, mut worker: P::Worker, mode: Mode) -> Open<P::Worker> {
        worker.begin(mode, Priority::NONE);
        let mut seen = Transaction::new(self.clock.get());
        seen.began = self.now();
        seen.snapshot = (mode == Mode::ReadOnly).then_some(0);
        Open { worker, seen, writes: Vec::new() }
    }

    fn note(&self, open: &mut Open<P::Worker>, key: u64) {
        let seen = open.worker.seen();
        let saw = match seen.absent {
            false => Saw::Row(seen.tid.bits()),
            true if seen.tid > Tid::ZERO => Saw::AbsentAt(seen.tid.bits()),
            true => Saw::Absent,
        };
        open.seen.reads.push(Read { table: TABLE, key: key.into(), columns: Columns::ALL, saw });
    }

    pub(crate) fn try_read(&self, open: &mut Open<P::Worker>, key: u64) -> Result<Option<i64>, OpError> {
        let value = self.bench.read(&mut open.worker, key)?;
        self.note(open, key);
        Ok(value)
    }

    pub(crate) fn read(&self, open: &mut Open<P::Worker>, key: u64) -> Option<i64> {
        self.try_read(open, key).expect("nothing is in the way")
    }

    pub(crate) fn try_change(&self, open: &mut Open<P::Worker>, key: u64) -> Result<i64, OpError> {
        let value = self.bench.change(&mut open.worker, key, |value| value + 1)?;
        self.note(open, key);
        open.writes.push((key, false));
        Ok(value)
    }

    pub(crate) fn change(&self, open: &mut Open<P::Worker>, key: u64) -> i64 {
        self.try_change(open, key).expect("nothing is in the way")
    }

    pub(crate) fn insert(&self, open: &mut Open<P::Worker>, key: u64) {
        let staged = open.worker.stage(&self.bench.cells).expect("memory");
        self.bench.set(staged.row, 1);
        let inserted = open.worker.insert(&self.bench.cells, Key::Word8(key), staged, OnExists::Refuse);
        assert_eq!(inserted, Ok(Inserted::New));
        self.note(open, key);
        open.writes.push((key, false));
    }

    pub(crate) fn delete(&self, open: &mut Open<P::Worker>, key: u64) {
        assert!(open.worker.delete(&self.bench.cells, Key::Word8(key)).expect("nothing is in the way").is_some());
        self.note(open, key);
        open.writes.push((key, true));
    }

    /// Its TID, if it commits; and its worker.
    pub(crate) fn end(&mut self, mut open: Open<P::Worker>) -> (Result<Tid, OpError>, P::Worker) {
        let committed = open.worker.commit(&mut NoRedo);
        open.seen.ended = self.now();
        match committed {
            Ok(Outcome::Committed(tid)) => {
                let write = |(key, deleted): (u64, bool)| Write {
                    table: TABLE,
                    key: key.into(),
                    version: tid.bits(),
                    deleted,
                    columns: None,
                };
                open.seen.writes = open.writes.into_iter().map(write).collect();
                self.history.transactions.push(open.seen);
                (Ok(tid), open.worker)
            }
            Ok(Outcome::Repair(_)) => unreachable!("it does not repair"),
            Err(error) => {
                open.worker.abort();
                (Err(error), open.worker)
            }
        }
    }
}
