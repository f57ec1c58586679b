//! A body may run on values that never existed together. Nothing that it does then is ever reported. It may be a panic,
//! an abort of its own, a duplicate key, or a loop that does not end.

use std::cell::Cell as Counter;
use std::panic::{AssertUnwindSafe, catch_unwind};

use seriatim::rng::seed;
use seriatim::{Abort, Database, Handle, ReadTx, Rng, Session, TransactError, Tx, thread};
use seriatim_suite::explore::{BucketCell, Cell};
use seriatim_suite::{Setting, matrix};

use crate::{committed, unless_conflict};

const SUM: i64 = 100;

/// Cells 1 (ordered) and 2 (hash) sum to [`SUM`]; cell 9 (ordered) is there if and only if cell 3 (hash) is not zero.
struct World {
    db: Database,
    cells: Handle<Cell>,
    buckets: Handle<BucketCell>,
}

#[derive(Debug)]
struct Wrong(i64);

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for Wrong {}

impl World {
    fn new(setting: &Setting) -> World {
        let db = setting.builder().workers(5).retry(setting.patience()).operations_max(64).open().expect("a database");
        let (cells, buckets) = (db.create().expect("a table"), db.create().expect("a table"));
        let world = World { db, cells, buckets };
        let load = |tx: &Tx| {
            tx.insert(&world.cells, &Cell { id: 1, value: SUM })?;
            tx.insert(&world.buckets, &BucketCell { id: 2, value: 0 })?;
            tx.insert(&world.buckets, &BucketCell { id: 3, value: 0 })
        };
        world.db.session().transact(load).expect("loading");
        world
    }

    fn first(&self, tx: &ReadTx) -> Result<i64, Abort> {
        Ok(tx.get(&self.cells, &1)?.expect("always there").value())
    }

    fn second(&self, tx: &ReadTx) -> Result<i64, Abort> {
        Ok(tx.get(&self.buckets, &2)?.expect("always there").value())
    }

    fn flag(&self, tx: &ReadTx) -> Result<bool, Abort> {
        Ok(tx.get(&self.buckets, &3)?.expect("always there").value() != 0)
    }

    fn move_some(&self, tx: &Tx, amount: i64) -> Result<(), Abort> {
        tx.update(&self.cells, &1, |cell| cell.set_value(cell.value() - amount))?;
        tx.update_if(&self.buckets, &2, |cell| cell.set_value(cell.value() + amount)).map(drop)
    }

    fn toggle(&self, tx: &Tx) -> Result<(), Abort> {
        let set = self.flag(tx)?;
        tx.update(&self.buckets, &3, |cell| cell.set_value(i64::from(!set)))?;
        match set {
            // The flag was set, so the cell is there.
            true => tx.delete(&self.cells, &9)?,
            false => tx.insert(&self.cells, &Cell { id: 9, value: 0 })?,
        }
        Ok(())
    }
}

/// The reaction of a body to values that contradict each other.
#[derive(Clone, Copy, Debug)]
enum Reaction {
    Panics,
    Aborts,
    Divides,
    LoopsReading,
    LoopsWriting,
    PanicsInUpdate,
}

const REACTIONS: [Reaction; 6] = [
    Reaction::Panics,
    Reaction::Aborts,
    Reaction::Divides,
    Reaction::LoopsReading,
    Reaction::LoopsWriting,
    Reaction::PanicsInUpdate,
];

fn react(world: &World, tx: &Tx, how: Reaction, sum: i64) -> Result<i64, Abort> {
    if sum == SUM {
        return Ok(sum);
    }
    match how {
        Reaction::Panics => panic!("the sum is {sum}"),
        Reaction::Aborts => Err(tx.abort(Wrong(sum))),
        Reaction::Divides => Ok(sum / i64::from(sum == SUM)),
        // Only the bound on operations without a validation ends these.
        Reaction::LoopsReading => loop {
            tx.get(&world.cells, &7)?;
        },
        Reaction::LoopsWriting => loop {
            tx.update(&world.cells, &1, |cell| cell.set_value(cell.value() + 1))?;
        },
        Reaction::PanicsInUpdate => tx.update(&world.cells, &1, |_| panic!("the sum is {sum}")).map(|()| sum),
    }
}

/// Lets another transaction commit between two reads of the first attempt, if it gets through.
fn interfere(session: &mut Session, body: impl FnOnce(&Tx) -> Result<(), Abort>) -> bool {
    let tx = session.begin().expect("a worker");
    unless_conflict(body(&tx)).is_some() && committed(tx.commit()).is_some()
}

#[test]
fn values_that_never_existed_together_are_never_reported() {
    for setting in matrix(seed("values that never existed together")) {
        for how in REACTIONS {
            let world = World::new(&setting);
            let other = std::cell::RefCell::new(world.db.session());
            let interfered = Counter::new(false);
            let body = |tx: &Tx| {
                let first = world.first(tx)?;
                if tx.attempt() == 1 {
                    interfered.set(interfere(&mut other.borrow_mut(), |tx| world.move_some(tx, 5)));
                }
                react(&world, tx, how, first + world.second(tx)?)
            };
            let sum = world.db.session().transact(body).unwrap_or_else(|error| panic!("{setting}, {how:?}: {error}"));
            assert_eq!(*sum, SUM);
            let repeated = interfered.get() && !setting.reads_the_past();
            assert_eq!(repeated, sum.attempts > 1, "{setting}, {how:?}: {} attempts", sum.attempts);
        }
    }
}

#[test]
fn a_duplicate_that_never_was_is_never_reported() {
    for setting in matrix(seed("a duplicate that never was")) {
        let world = World::new(&setting);
        let other = std::cell::RefCell::new(world.db.session());
        let body = |tx: &Tx| {
            // The flag says that cell 9 is absent, and then another inserts it.
            if !world.flag(tx)? {
                if tx.attempt() == 1 {
                    interfere(&mut other.borrow_mut(), |tx| world.toggle(tx));
                }
                tx.insert(&world.cells, &Cell { id: 9, value: 1 })?;
                tx.update(&world.buckets, &3, |cell| cell.set_value(1))?;
            }
            Ok(())
        };
        world.db.session().transact(body).unwrap_or_else(|error| panic!("{setting}: {error}"));
        // One that was, is.
        let real = world.db.session().transact(|tx| tx.insert(&world.cells, &Cell { id: 9, value: 1 }));
        assert!(matches!(real, Err(TransactError::Duplicate { .. })), "{setting}: {real:?}");
    }
}

/// An error of a body about values that existed together is reported, and leaves nothing behind.
#[test]
fn an_error_about_consistent_values_is_reported() {
    for setting in matrix(seed("what did happen")) {
        let world = World::new(&setting);
        let mut session = world.db.session();
        let write = |tx: &Tx| tx.update_if(&world.cells, &1, |cell| cell.set_value(0)).map(drop);
        let aborted = session.transact(|tx| {
            write(tx)?;
            Err::<(), _>(tx.abort(Wrong(1)))
        });
        assert_eq!(aborted.expect_err("it aborts").user::<Wrong>().map(|wrong| wrong.0), Some(1), "{setting}");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            session.transact(|tx| {
                write(tx)?;
                std::panic::resume_unwind(Box::new("on purpose"));
                #[allow(unreachable_code)]
                Ok(())
            })
        }));
        assert!(panicked.is_err_and(|panic| panic.downcast_ref() == Some(&"on purpose")), "{setting}");
        assert_eq!(*session.transact(|tx| world.first(tx)).expect("alone"), SUM, "{setting}: nothing of it stays");
    }
}

#[test]
fn under_threads_nothing_impossible_is_reported() {
    let seed = seed("invariants under threads");
    for setting in matrix(seed) {
        let world = World::new(&setting);
        thread::scope(|scope| {
            for at in 0..3u64 {
                let (world, setting) = (&world, &setting);
                scope.spawn(move || {
                    let mut rng = Rng::from_seed(seed ^ at << 32);
                    let mut session = world.db.session();
                    for _ in 0..300 {
                        let (what, amount) = (rng.below(4), rng.range(1, 9) as i64);
                        let how = REACTIONS[rng.below(REACTIONS.len() as u64) as usize];
                        let result = session.transact(|tx| match what {
                            0 => world.move_some(tx, amount),
                            1 => world.toggle(tx),
                            2 => {
                                let (first, set) = (world.first(tx)?, world.flag(tx)?);
                                thread::yield_now();
                                let there = tx.scan(&world.cells, 2..).next().transpose()?.is_some();
                                assert_eq!(set, there, "the flag contradicts the cell");
                                react(world, tx, how, first + world.second(tx)?).map(drop)
                            }
                            _ => {
                                let second = world.second(tx)?;
                                thread::yield_now();
                                react(world, tx, how, second + world.first(tx)?)?;
                                world.move_some(tx, -amount)
                            }
                        });
                        result.unwrap_or_else(|error| panic!("{setting}: {error}"));
                    }
                });
            }
        });
        let sum = |tx: &Tx| Ok(world.first(tx)? + world.second(tx)?);
        assert_eq!(*world.db.session().transact(sum).expect("alone"), SUM, "{setting}");
    }
}
