//! An error or a panic of a body is reported only on values that existed together, also if transactions commit
//! afterwards that began before.

use seriatim::rng::seed;
use seriatim::{Abort, Decimal, Handle, ReadTx, RetryPolicy, TransactError, Tx};
use seriatim_suite::explore::{Cell, CellRow, CellUpdate};
use seriatim_suite::{Setting, matrix_of_steps};

use crate::{committed, try_once, unless_conflict};

/// Why a body fails that has seen that cell X changed and cell Y did not.
struct Kind {
    name: &'static str,
    /// The value of Y before, if it exists.
    before: Option<i64>,
    /// The operation on Y by a transaction that has read X as it was.
    write: fn(&Tx, &Handle<Cell>, u32) -> Result<(), Abort>,
    /// The operation that fails on Y as it was.
    fail: fn(&Tx, &Handle<Cell>, u32) -> Result<(), Abort>,
    /// Whether it is an error and not a panic.
    is_an_error: bool,
    /// Whether this is what is reported; `None`: a panic.
    is_it: fn(Option<&TransactError>) -> bool,
}

const SET: fn(&Tx, &Handle<Cell>, u32) -> Result<(), Abort> =
    |tx, cells, y| tx.update(cells, &y, |cell| cell.set_value(0)).map(drop);

fn value(tx: &ReadTx, cells: &Handle<Cell>, id: u32) -> Result<i64, Abort> {
    Ok(tx.get(cells, &id)?.map_or(0, |cell| cell.value()))
}

/// The message of the deliberate panic.
const PANIC: &str = "a deliberate panic on the value of Y";

const KINDS: [Kind; 7] = [
    Kind {
        name: "an error of the body's own",
        before: Some(7),
        write: SET,
        fail: |tx, cells, y| match value(tx, cells, y)? {
            7 => Err(tx.abort(std::fmt::Error)),
            _ => Ok(()),
        },
        is_an_error: true,
        is_it: |error| error.is_some_and(|error| error.user::<std::fmt::Error>().is_some()),
    },
    Kind {
        name: "arithmetic of the body's own that overflows",
        before: Some(i64::MAX),
        write: SET,
        fail: |tx, cells, y| {
            (Decimal::<0>::from_units(value(tx, cells, y)?) + Decimal::from_units(1))?;
            Ok(())
        },
        is_an_error: true,
        is_it: |error| matches!(error, Some(TransactError::Overflow { .. })),
    },
    Kind {
        name: "a duplicate key",
        before: Some(7),
        write: |tx, cells, y| tx.delete(cells, &y).map(drop),
        fail: |tx, cells, y| tx.insert(cells, &Cell { id: y, value: 1 }),
        is_an_error: true,
        is_it: |error| matches!(error, Some(TransactError::Duplicate { .. })),
    },
    Kind {
        name: "a missing row",
        before: None,
        write: |tx, cells, y| tx.insert(cells, &Cell { id: y, value: 1 }),
        fail: |tx, cells, y| tx.require(cells, &y).map(drop),
        is_an_error: true,
        is_it: |error| matches!(error, Some(TransactError::MissingRow { .. })),
    },
    Kind {
        name: "an addition that overflows",
        before: Some(i64::MAX),
        write: SET,
        fail: |tx, cells, y| tx.add(cells, &y, CellRow::VALUE, 1).map(drop),
        is_an_error: true,
        is_it: |error| matches!(error, Some(TransactError::Overflow { .. })),
    },
    Kind {
        name: "a panic",
        before: Some(7),
        write: SET,
        fail: |tx, cells, y| {
            assert!(value(tx, cells, y)? != 7, "{PANIC}");
            Ok(())
        },
        is_an_error: false,
        is_it: |error| error.is_none(),
    },
    Kind {
        name: "a panic on a row to be written",
        before: Some(7),
        write: SET,
        fail: |tx, cells, y| {
            let update = |cell: &mut CellUpdate<'_>| {
                assert!(cell.value() != 7, "{PANIC}");
                cell.set_value(1);
            };
            tx.update(cells, &y, update).map(drop)
        },
        is_an_error: false,
        is_it: |error| error.is_none(),
    },
];

/// How the body runs that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Closure,
    /// Its caller is notified at once.
    Explicit,
    /// A thread of an executor runs it. Another thread may decide it.
    Executor,
}

/// A first transaction reads X and writes Y, a second changes X, and a body that sees the latter and not the former
/// fails. Whether that
/// was reported.
fn report(setting: &Setting, kind: &Kind, way: Way, writes_first: bool) -> bool {
    let retry = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
    let db = setting.builder().step_helpers(true).workers(4).retry(retry).open();
    let db = db.unwrap_or_else(|error| panic!("{setting}: {error}"));
    let cells = db.create::<Cell>().expect("a table");
    let (x, y) = (1, 2);
    let loaded = db.session().transact(|tx| {
        tx.insert(&cells, &Cell { id: x, value: 0 })?;
        kind.before.map_or(Ok(()), |value| tx.insert(&cells, &Cell { id: y, value }))
    });
    loaded.expect("it runs alone");
    let mut session = db.session();
    let first = session.begin().expect("a worker");
    let read = unless_conflict(value(&first, &cells, x));
    let write = || unless_conflict((kind.write)(&first, &cells, y)).is_some();
    let mut executed = read == Some(0) && (!writes_first || write());
    if try_once(&db, |tx| tx.update(&cells, &x, |cell| cell.set_value(1)).map(drop)).is_none() {
        return false;
    }
    let (of_body, fail) = (cells.clone(), kind.fail);
    let fails = move |tx: &Tx| match value(tx, &of_body, x)? {
        0 => Ok(false),
        _ => fail(tx, &of_body, y).map(|()| true),
    };
    let run = || match way {
        Way::Closure => db.session().transact(fails).map(|done| *done),
        Way::Explicit => {
            let mut session = db.session();
            let open = session.begin()?;
            fails(&open).map_err(|abort| open.explain(&abort))
        }
        Way::Executor => {
            let executor = db.executor(1).expect("a thread");
            executor.transact(fails).wait().map(|done| *done)
        }
    };
    // A panic ends its thread.
    let result = std::thread::scope(|scope| scope.spawn(run).join());
    let reported = match &result {
        Ok(Ok(did_not_fail)) => {
            assert!(!did_not_fail, "{setting}, {}: it did not fail on a value that is there", kind.name);
            false
        }
        Ok(Err(TransactError::Conflict { .. })) => false,
        Ok(Err(error)) => {
            assert!((kind.is_it)(Some(error)), "{setting}, {}: {error}", kind.name);
            true
        }
        Err(_) => {
            assert!((kind.is_it)(None), "{setting}, {}: it panicked", kind.name);
            true
        }
    };
    executed &= writes_first || reported && write();
    if executed && committed(first.commit()).is_some() {
        let name = kind.name;
        assert!(!reported, "{setting}, {way:?}, writes first {writes_first}: {name} on what never existed together");
    }
    reported
}

#[test]
fn values_that_a_body_reports_existed_together() {
    let settings = matrix_of_steps(seed("reports"));
    for kind in &KINDS {
        // A panic in an explicit transaction is its caller's own.
        let ways = [Way::Closure, Way::Executor, Way::Explicit];
        let ways = ways.into_iter().filter(|&way| kind.is_an_error || way != Way::Explicit);
        for (way, writes_first) in ways.flat_map(|way| [(way, true), (way, false)]) {
            let reported = settings.iter().filter(|setting| report(setting, kind, way, writes_first)).count();
            // Under protocols that lock what they read, X is not changed.
            assert!(reported > settings.len() / 4, "{}, in {reported} settings only", kind.name);
        }
    }
}
