//! Tests of schedules with hand-made plans: three counters, one operation each.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use seriatim_procedure::analysis::Follow;
use seriatim_procedure::ir::{OperationId, StepId};
use seriatim_txn::Priority;

use super::*;
use crate::{Database, Handle, ReadTx, Session, TransactError};
use seriatim_engine::procedure::repair::{REPAIRS_MAX, Repairs};
use seriatim_engine::test_support::protocols::repairing::{BEGUN, FORGOTTEN, NAME, SCRIPT};

#[derive(seriatim_macros::Table)]
#[table(name = "counter", key(id), hash, crate = "seriatim_catalog")]
struct Counter {
    id: u32,
    count: i64,
}

fn open(protocol: &str) -> (Database, Handle<Counter>, Session) {
    let db = Database::builder().protocol(protocol).workers(4).open().expect("a valid protocol");
    let counters = db.create::<Counter>().expect("a valid table");
    let mut session = db.session();
    let load = session.transact(|tx| (0..3).try_for_each(|id| tx.insert(&counters, &Counter { id, count: 0 })));
    load.expect("an empty table");
    (db, counters, session)
}

fn counts(session: &mut Session, counters: &Handle<Counter>) -> [i64; 3] {
    let read = session.transact(|tx| {
        let mut counts = [0; 3];
        for (id, count) in (0..).zip(&mut counts) {
            *count = tx.require(counters, &id)?.count();
        }
        Ok(counts)
    });
    read.expect("no conflict").into_value()
}

/// Increments all three, with a step and an operation each; `meanwhile` runs after each operation.
fn count_all(
    tx: &mut Tx,
    counters: &Handle<Counter>,
    schedule: &mut Schedule<'_>,
    runs: &[Cell<u32>; 3],
    meanwhile: impl Fn(&Tx, u32) -> Result<(), Abort>,
) -> Result<[i64; 3], Abort> {
    let mut frame = [0; 3];
    loop {
        let mut copy = frame;
        let next = schedule.pass(tx, |tx, schedule| {
            for id in 0..3u16 {
                if schedule.enters(StepId(id), OperationId(id)) {
                    schedule.operation(tx, OperationId(id));
                    runs[usize::from(id)].set(runs[usize::from(id)].get() + 1);
                    copy[usize::from(id)] = tx.update(counters, &u32::from(id), |counter| {
                        counter.set_count(counter.count() + 1);
                        counter.count()
                    })?;
                    meanwhile(tx, u32::from(id))?;
                }
            }
            Ok(())
        })?;
        match next {
            Next::Keep => frame = copy,
            Next::Repeat => {}
            Next::Done => return Ok(copy),
        }
    }
}

fn ran(runs: &[Cell<u32>; 3]) -> [u32; 3] {
    runs.each_ref().map(Cell::get)
}

#[test]
fn a_piece_that_met_a_conflict_is_run_again_alone() {
    for protocol in ["dbx", "silo"] {
        let (db, counters, mut session) = open(protocol);
        let (runs, other) = (Default::default(), std::cell::RefCell::new(db.session()));
        let passes = Passes::new([0, 1, 1].into());
        // Operations 1 and 2 are in the second piece. The counter of operation 1 is changed during its first run.
        let disturb = |id| {
            let runs: &[Cell<u32>; 3] = &runs;
            if id == 2 && runs[2].get() == 1 {
                let add = |tx: &Tx| tx.update(&counters, &1, |counter| counter.set_count(counter.count() + 10));
                other.borrow_mut().transact(add).expect("optimistic readers let it pass");
            }
        };
        let committed = run_scheduled(&mut session.runner, Steps::Pieces(&passes), |tx, schedule| {
            count_all(tx, &counters, schedule, &runs, |_, id| {
                disturb(id);
                Ok(())
            })
        });
        let committed = committed.expect("the chain finishes");
        assert_eq!((committed.value, committed.attempts), ([1, 11, 1], 2), "under {protocol}");
        assert_eq!(ran(&runs), [1, 2, 2], "the first piece ran once");
        assert_eq!(counts(&mut session, &counters), [1, 11, 1]);
    }
}

/// Returns the priorities of the attempts that `run` opens.
fn begun(run: impl FnOnce()) -> Vec<Priority> {
    BEGUN.with_borrow_mut(Vec::clear);
    run();
    BEGUN.with_borrow_mut(std::mem::take)
}

#[test]
fn all_attempts_and_pieces_of_a_transaction_have_its_priority_and_no_other_has_it() {
    let (_db, counters, mut session) = open(NAME);
    let conflict = Cause { phase: Phase::Execute, reason: Reason::RecordChanged };
    let refused = |tx: &ReadTx| if tx.attempt() < 3 { Err(tx.core.stop(conflict)) } else { Ok(()) };
    let closure = begun(|| session.transact(|tx| refused(tx)).expect("the third attempt").into_value());
    let snapshot = begun(|| session.snapshot(|tx| refused(tx)).expect("the third attempt").into_value());
    let explicit = begun(|| {
        drop(session.begin().expect("a worker"));
        drop(session.begin_snapshot().expect("a worker"));
    });
    let (runs, passes, first) = (Default::default(), Passes::new([0, 1, 1].into()), Cell::new(true));
    let pieces = begun(|| {
        let committed = run_scheduled(&mut session.runner, Steps::Pieces(&passes), |tx, schedule| {
            count_all(tx, &counters, schedule, &runs, |tx, id| match id == 0 && first.replace(false) {
                true => Err(tx.core.stop(conflict)),
                false => Ok(()),
            })
        });
        assert_eq!(committed.expect("no conflict").attempts, 2);
    });
    assert_eq!([closure.len(), snapshot.len(), explicit.len(), pieces.len()], [3, 3, 2, 3]);
    for attempts in [&closure, &snapshot, &pieces] {
        assert!(attempts.iter().all(|priority| *priority == attempts[0]), "{attempts:?}");
    }
    let ages = [closure[0], snapshot[0], explicit[0], explicit[1], pieces[0]];
    assert!(ages.is_sorted_by(|older, younger| older < younger) && ages[0] != Priority::NONE, "{ages:?}");
}

#[test]
fn others_see_the_pieces_that_are_done() {
    let (db, counters, mut session) = open("dbx");
    let (runs, other) = (Default::default(), std::cell::RefCell::new(db.session()));
    let passes = Passes::new([0, 1, 2].into());
    let seen = std::cell::RefCell::new(Vec::new());
    let committed = run_scheduled(&mut session.runner, Steps::Pieces(&passes), |tx, schedule| {
        count_all(tx, &counters, schedule, &runs, |_, _| {
            seen.borrow_mut().push(counts(&mut other.borrow_mut(), &counters));
            Ok(())
        })
    });
    committed.expect("no conflict");
    assert_eq!(seen.into_inner(), [[0, 0, 0], [1, 0, 0], [1, 1, 0]]);
}

#[test]
fn an_abort_of_the_first_piece_leaves_nothing() {
    let (_db, counters, mut session) = open("dbx");
    let (runs, passes) = (Default::default(), Passes::new([0, 0, 1].into()));
    let error = run_scheduled(&mut session.runner, Steps::Pieces(&passes), |tx, schedule| {
        count_all(tx, &counters, schedule, &runs, |tx, id| if id == 1 { Err(tx.abort("enough")) } else { Ok(()) })
    });
    assert!(matches!(error, Err(TransactError::User(_))));
    assert_eq!((ran(&runs), counts(&mut session, &counters)), ([1, 1, 0], [0, 0, 0]));
}

#[test]
fn canary_an_abort_after_the_first_piece_is_no_outcome() {
    let (_db, counters, mut session) = open("dbx");
    let (runs, passes) = (Default::default(), Passes::new([0, 1, 1].into()));
    let run = || {
        run_scheduled(&mut session.runner, Steps::Pieces(&passes), |tx, schedule| {
            count_all(tx, &counters, schedule, &runs, |tx, id| if id == 1 { Err(tx.abort("enough")) } else { Ok(()) })
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("registration refuses such pieces");
    let message = panic.downcast_ref::<String>().expect("a formatted message");
    assert!(message.contains("which registration excludes"), "{message}");
    assert_eq!(counts(&mut session, &counters), [1, 0, 0], "the first piece is visible and was not repeated");
}

#[test]
fn a_later_piece_that_is_too_old_ends_the_chain() {
    let (_db, counters, mut session) = open("dbx");
    let (runs, passes) = (Default::default(), Passes::new([0, 1, 1].into()));
    let too_old = Cause { phase: Phase::Execute, reason: Reason::TooOld };
    let result = run_scheduled(&mut session.runner, Steps::Pieces(&passes), |tx, schedule| {
        count_all(tx, &counters, schedule, &runs, |tx, id| if id == 1 { Err(tx.core.stop(too_old)) } else { Ok(()) })
    });
    let error = result.expect_err("it would be too old again");
    assert!(matches!(error, TransactError::Unfinished { cause } if cause == too_old), "{error}");
    assert!(error.is_maybe_committed() && !error.is_retryable());
    assert_eq!((ran(&runs), counts(&mut session, &counters)), ([1, 1, 0], [1, 0, 0]));
}

#[test]
fn a_chain_ends_for_the_cause_of_the_abort_that_its_piece_returned() {
    let (_db, counters, mut session) = open("dbx");
    let (_other, foreign, _session) = open("dbx");
    let (runs, passes) = (Default::default(), Passes::new([0, 1, 1].into()));
    let too_old = Cause { phase: Phase::Execute, reason: Reason::TooOld };
    let result = run_scheduled(&mut session.runner, Steps::Pieces(&passes), |tx, schedule| {
        count_all(tx, &counters, schedule, &runs, |tx, id| match id {
            1 => {
                let own = tx.get(&foreign, &1).map(drop);
                let _later = tx.core.stop(too_old);
                own
            }
            _ => Ok(()),
        })
    });
    let error = result.expect_err("the table is of another database");
    assert!(matches!(error, TransactError::Unfinished { cause } if cause.reason == Reason::ForeignHandle), "{error:?}");
}

#[test]
fn a_chain_of_which_a_piece_is_visible_is_not_cancelled() {
    let (_db, counters, mut session) = open("dbx");
    let (runs, passes) = (Default::default(), Passes::new([0, 1, 1].into()));
    let (canceller, cancelled) = (session.canceller(), Cell::new(0));
    let mut run = |piece: u32| {
        run_scheduled(&mut session.runner, Steps::Pieces(&passes), |tx, schedule| {
            count_all(tx, &counters, schedule, &runs, |_, id| {
                if id == piece && cancelled.replace(cancelled.get() + 1) == 0 {
                    canceller.cancel();
                }
                Ok(())
            })
        })
    };
    run(1).expect("its first piece is visible");
    cancelled.set(0);
    let error = run(0).expect_err("nothing is visible yet");
    assert!(matches!(error, TransactError::Cancelled), "{error}");
    assert_eq!(counts(&mut session, &counters), [1, 1, 1]);
}

#[test]
fn a_later_piece_that_always_conflicts_ends_the_chain() {
    let (_db, counters, mut session) = open("dbx");
    let (runs, passes) = (Default::default(), Passes::new([0, 1, 1].into()));
    let conflict = Cause { phase: Phase::Execute, reason: Reason::RecordChanged };
    let result = run_scheduled(&mut session.runner, Steps::Pieces(&passes), |tx, schedule| {
        count_all(tx, &counters, schedule, &runs, |tx, id| if id == 1 { Err(tx.core.stop(conflict)) } else { Ok(()) })
    });
    assert!(matches!(result, Err(TransactError::Unfinished { cause }) if cause == conflict));
    assert_eq!(ran(&runs), [1, REPEATS_MAX + 1, 0]);
}

/// Repairs of three operations, of which 2 depends on 1.
fn repairs() -> Repairs {
    let followers = [Vec::new(), vec![(2, Follow::All)], Vec::new()];
    Repairs::new((0..3).map(StepId).zip(followers))
}

/// The outcome of an execution: its result, the runs of each operation, the counters, and what was forgotten.
type Repaired = (Result<[i64; 3], TransactError>, [u32; 3], [i64; 3], Vec<(u16, bool)>);

fn repaired(script: &[&[u16]]) -> Repaired {
    let (_db, counters, mut session) = open(NAME);
    let (runs, repairs) = (Default::default(), repairs());
    SCRIPT.set(script.iter().map(|operations| operations.to_vec()).collect());
    FORGOTTEN.take();
    let result = run_scheduled(&mut session.runner, Steps::Whole(Some(&repairs)), |tx, schedule| {
        count_all(tx, &counters, schedule, &runs, |_, _| Ok(()))
    });
    SCRIPT.take();
    (result.map(|committed| committed.value), ran(&runs), counts(&mut session, &counters), FORGOTTEN.take())
}

#[test]
fn a_repair_runs_the_stale_operation_and_its_descendants_again() {
    let (result, runs, counts, forgotten) = repaired(&[&[2]]);
    assert_eq!((result.expect("it commits"), runs, counts), ([1, 1, 1], [1, 1, 2], [1, 1, 1]));
    assert_eq!(forgotten, [(2, true)]);
    let (result, runs, counts, forgotten) = repaired(&[&[1], &[2]]);
    assert_eq!((result.expect("it commits"), runs, counts), ([1, 1, 1], [1, 2, 3], [1, 1, 1]));
    assert_eq!(forgotten, [(1, true), (2, true), (2, true)]);
}

#[test]
fn repairs_are_bounded_and_then_all_of_it_runs_again() {
    let script: Vec<&[u16]> = vec![&[2]; REPAIRS_MAX as usize + 1];
    let (result, runs, counts, _) = repaired(&script);
    assert_eq!((result.expect("it commits"), counts), ([1, 1, 1], [1, 1, 1]));
    assert_eq!(runs, [2, 2, REPAIRS_MAX + 2]);
}

#[test]
fn an_operation_that_no_longer_runs_is_forgotten_for_good() {
    let (_db, counters, mut session) = open(NAME);
    let repairs = repairs();
    SCRIPT.set([vec![1]].into());
    FORGOTTEN.take();
    let first = Cell::new(true);
    let result = run_scheduled(&mut session.runner, Steps::Whole(Some(&repairs)), |tx, schedule| {
        loop {
            let next = schedule.pass(tx, |tx, schedule| {
                for id in 0..3u16 {
                    // A branch: the second run does not reach operation 2.
                    if (id < 2 || first.get()) && schedule.enters(StepId(id), OperationId(id)) {
                        schedule.operation(tx, OperationId(id));
                        tx.update(&counters, &u32::from(id), |counter| counter.set_count(counter.count() + 1))?;
                    }
                }
                first.set(false);
                Ok(())
            })?;
            if next == Next::Done {
                return Ok(());
            }
        }
    });
    result.expect("it commits");
    assert_eq!(FORGOTTEN.take(), [(1, true), (2, true), (2, false)]);
    assert_eq!(counts(&mut session, &counters), [1, 1, 0]);
}
