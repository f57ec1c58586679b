//! Silo: optimistic execution, commit under sorted record locks, epoch TIDs, node versions of leaves and buckets.
//!
//! Source: Tu et al., Speedy Transactions in Multicore In-Memory Databases, SOSP 2013, §4; `README.md` beside
//! this file gives the algorithm, the departures and the argument. Software only.

use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Core, Environment, Options, Peeked, Protocol, ProtocolInfo, Requirements, RowBuffer, Table,
};

use crate::shared::epoch_commit::{LOCK_STEPS, State};
use crate::shared::optimistic::LockBit;
use crate::shared::rebase::REBASES_MAX;
use crate::shared::record_header;
use crate::shared::restore::{self, Versions};
use crate::shared::worker::Worker;

/// Silo.
#[derive(Debug)]
pub struct Silo {
    lock_steps: u32,
    rebases_max: u32,
}

impl Protocol for Silo {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "silo",
        summary: "optimistic; locks its write set in address order, validates, assigns TIDs within the epoch, installs",
        source: "Tu et al., Speedy Transactions in Multicore In-Memory Databases, SOSP 2013",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            strict: true,
            epoch_order: true,
            column_groups: true,
            reserves: true,
            ..Capabilities::NONE
        },
        options: &[LOCK_STEPS, REBASES_MAX],
        effects: &[],
    };
    /// TID word (the paper's TID word), version word.
    const HEADER_BYTES: usize = record_header::bytes(0);
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker<State>;

    fn open(options: &Options, _: &Environment) -> Silo {
        Silo { lock_steps: options.get(&LOCK_STEPS) as u32, rebases_max: options.get(&REBASES_MAX) as u32 }
    }

    fn worker(&self, core: Core) -> Worker<State> {
        let state = State::new(self.lock_steps, &core);
        Worker::new(core, state).rebasing(self.rebases_max)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(Silo, LockBit);

impl Versions for Silo {}

/// A Silo that repairs: entries that know their operations, and leave with them.
#[cfg(test)]
mod tests {
    use seriatim_catalog::{ColumnSet, Key};
    use seriatim_htm::HtmMode;
    use seriatim_store::Direction;
    use seriatim_txn::{Inserted, Mode, NoRedo, OnExists, OpError, Outcome, Priority, Redo, Runs, Scan, Worker as _};

    use std::sync::atomic::Ordering;

    use super::*;
    use crate::common::Bench;
    use crate::shared::epoch_commit;
    use crate::shared::gc::{self, Claim};
    use crate::shared::optimistic::Optimistic;
    use crate::shared::origin::Run;
    use crate::shared::record_header::TidWord;
    use crate::shared::worker::Variant;

    struct Repairing(Silo);

    impl Protocol for Repairing {
        const INFO: ProtocolInfo = ProtocolInfo {
            capabilities: Capabilities { repair: true, ..Silo::INFO.capabilities },
            ..<Silo as Protocol>::INFO
        };
        const HEADER_BYTES: usize = Silo::HEADER_BYTES;
        const VERSION_HEADER_BYTES: usize = Silo::VERSION_HEADER_BYTES;
        type Worker = Worker<Repairs>;

        fn open(options: &Options, environment: &Environment) -> Repairing {
            Repairing(Silo::open(options, environment))
        }

        fn worker(&self, core: Core) -> Worker<Repairs> {
            let state = State::new(self.0.lock_steps, &core);
            Worker::new(core, Repairs(state))
        }

        unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
            record_header::peek(table, record)
        }
    }

    struct Repairs(State);

    impl Variant for Repairs {
        type By = Run;

        fn claim(&self) -> impl gc::Claim {
            LockBit
        }

        fn begin(&mut self, core: &mut Core, mode: Mode) {
            self.0.begin(core, mode);
        }

        fn commit(&mut self, attempt: &mut Optimistic<Run>, redo: &mut dyn Redo) -> Result<Outcome, OpError> {
            match attempt.validation_failure_now().map(|failure| attempt.origin(failure)) {
                Some(Run { operation: Some(operation), iteration }) => {
                    Ok(Outcome::Repair(vec![Runs::one(operation, iteration)]))
                }
                _ => epoch_commit::commit(attempt, &mut self.0, redo),
            }
        }

        fn rest(&mut self) {
            self.0.rest();
        }
    }

    type Repairer = Worker<Repairs>;

    fn insert(bench: &Bench<Repairing>, worker: &mut Repairer, id: u64, value: i64) -> Result<Inserted, OpError> {
        let staged = worker.stage(&bench.cells)?;
        bench.set(staged.row, value);
        worker.insert(&bench.cells, Key::Word8(id), staged, OnExists::Refuse)
    }

    fn others(bench: &Bench<Repairing>, work: impl FnOnce(&mut Repairer)) {
        let mut other = bench.worker();
        other.begin(Mode::ReadWrite, Priority::NONE);
        work(&mut other);
        assert!(matches!(other.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
    }

    const COUNTER: u64 = 3;
    const LOG: u64 = 10;

    /// Operation 0 reads which cell, 1 adds to that cell, 2 counts, 3 counts rows from [`LOG`] on, 4 inserts
    /// one with that number.
    #[derive(Default)]
    struct Frame {
        cell: i64,
        rows: u64,
        runs: [u32; 5],
    }

    impl Frame {
        fn run(&mut self, bench: &Bench<Repairing>, worker: &mut Repairer, operations: &[u16]) {
            for &operation in operations {
                worker.repair().expect("it repairs").operation(operation, 0);
                self.runs[usize::from(operation)] += 1;
                match operation {
                    0 => self.cell = bench.read(worker, 0).expect("no conflict").expect("it is there"),
                    1 => drop(bench.change(worker, self.cell as u64, |value| value + 10).expect("no conflict")),
                    2 => drop(bench.change(worker, COUNTER, |value| value + 1).expect("no conflict")),
                    3 => {
                        let mut scan = Scan::default();
                        let low = std::ops::Bound::Included(Key::Word8(LOG));
                        let index = &bench.cells.index;
                        index
                            .scan(low, std::ops::Bound::Unbounded, Direction::Forward, &mut scan.cursor)
                            .expect("ordered");
                        self.rows = 0;
                        while worker.scan_next(&bench.cells, &mut scan, ColumnSet::ALL).expect("no conflict").is_some()
                        {
                            self.rows += 1;
                        }
                    }
                    _ => assert_eq!(insert(bench, worker, LOG + self.rows, 1), Ok(Inserted::New)),
                }
            }
        }

        fn repair(&mut self, bench: &Bench<Repairing>, worker: &mut Repairer, operations: &[u16]) {
            let repair = worker.repair().expect("it repairs");
            operations.iter().for_each(|operation| repair.forget(Runs::all(*operation), true));
            self.run(bench, worker, operations);
        }
    }

    #[test]
    fn a_stale_operation_and_those_that_follow_it_run_again_and_nothing_else() {
        let bench = Bench::<Repairing>::open(HtmMode::Absent, &[1, 100, 200, 0]);
        let (mut worker, mut frame) = (bench.worker(), Frame::default());
        worker.begin(Mode::ReadWrite, Priority::NONE);
        frame.run(&bench, &mut worker, &[0, 1, 2, 3, 4]);
        others(&bench, |other| assert_eq!(bench.change(other, 0, |_| 2).expect("no conflict"), 2));
        assert_eq!(worker.commit(&mut NoRedo), Ok(Outcome::Repair(vec![Runs::one(0, 0)])));
        frame.repair(&bench, &mut worker, &[0, 1]);
        // A phantom: it has the place of the row that operation 4 wants to insert.
        others(&bench, |other| assert_eq!(insert(&bench, other, LOG + 5, 7), Ok(Inserted::New)));
        assert_eq!(worker.commit(&mut NoRedo), Ok(Outcome::Repair(vec![Runs::one(3, 0)])));
        frame.repair(&bench, &mut worker, &[3, 4]);
        // The version on which operation 2's write builds has changed.
        others(&bench, |other| assert_eq!(bench.change(other, COUNTER, |value| value + 50).expect("no conflict"), 50));
        assert_eq!(worker.commit(&mut NoRedo), Ok(Outcome::Repair(vec![Runs::one(2, 0)])));
        frame.repair(&bench, &mut worker, &[2]);
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        assert_eq!(frame.runs, [2, 2, 2, 2, 2]);
        assert_eq!(bench.state(&[0, 1, 2, COUNTER]), [2, 100, 210, 51]);
        assert_eq!((frame.rows, bench.state(&[LOG + 1])), (1, vec![1]));
        let mut after = bench.worker();
        after.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(bench.read(&mut after, LOG), Ok(None), "what was inserted first was taken back");
        after.abort();
    }

    /// Operation 0 adds to a cell in each iteration of a loop: a stale iteration runs again, and the others'
    /// writes stay.
    #[test]
    fn one_iteration_is_run_again() {
        let bench = Bench::<Repairing>::open(HtmMode::Absent, &[1, 10, 100]);
        let mut worker = bench.worker();
        worker.begin(Mode::ReadWrite, Priority::NONE);
        let add = |worker: &mut Repairer, iteration: u32| {
            worker.repair().expect("it repairs").operation(0, iteration);
            bench.change(worker, u64::from(iteration), |value| value + 1).expect("no conflict")
        };
        assert_eq!([0, 1, 2].map(|iteration| add(&mut worker, iteration)), [2, 11, 101]);
        others(&bench, |other| assert_eq!(bench.change(other, 1, |value| value + 50).expect("no conflict"), 60));
        let stale = Runs::one(0, 1);
        assert_eq!(worker.commit(&mut NoRedo), Ok(Outcome::Repair(vec![stale])));
        worker.repair().expect("it repairs").forget(stale, true);
        assert_eq!(add(&mut worker, 1), 61);
        assert!(matches!(worker.commit(&mut NoRedo), Ok(Outcome::Committed(_))));
        assert_eq!(bench.state(&[0, 1, 2]), [2, 61, 101]);
    }

    /// Garbage collection does not touch a record that a commit has locked: restoring its word later would
    /// undo the commit's changes.
    #[test]
    fn a_locked_record_is_not_claimed() {
        let bench = Bench::<Silo>::open(HtmMode::Absent, &[1]);
        let mut worker = bench.worker();
        worker.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(bench.read(&mut worker, 0), Ok(Some(1)));
        let record = worker.seen().record.expect("a row is of a record");
        let header = record_header::tid_word(&bench.cells.record_layout, record);
        let free = TidWord(header.load(Ordering::Relaxed));
        header.store(free.locked().0, Ordering::Relaxed);
        assert_eq!(LockBit.take(worker.core(), &bench.cells, record), None);
        header.store(free.0, Ordering::Relaxed);
        assert_eq!(LockBit.take(worker.core(), &bench.cells, record), Some(free));
        LockBit.give(worker.core(), &bench.cells, record, free);
        worker.abort();
    }
}
