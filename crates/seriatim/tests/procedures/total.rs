//! Functions that may panic: they are not called before the code that decides whether they are called, and are
//! failures in the plan.

use std::panic::{AssertUnwindSafe, catch_unwind};

use seriatim::procedure::Declared;
use seriatim::{Abort, Database, Table, Tx, procedure, procedures, pure};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "number", key(id), hash)]
struct Number {
    id: u32,
    divisor: u32,
}

#[pure]
fn divided(by: u32) -> u32 {
    100 / by
}

#[pure(total)]
fn halved(number: u32) -> u32 {
    number / 2
}

/// The row at 100 / divisor, if the first row agrees with the divisor.
#[procedure]
fn guarded(tx: &Tx, id: u32, divisor: u32) -> Result<Option<u32>, Abort> {
    let first = tx.require::<Number>(id)?;
    if first.divisor != divisor {
        return Ok(None);
    }
    let half = tx.get::<Number>(halved(divisor))?;
    let Some(found) = tx.get::<Number>(divided(divisor))? else { return Ok(None) };
    if half.is_some() {
        return Ok(Some(found.divisor));
    }
    Ok(None)
}

#[test]
fn only_total_functions_are_called_ahead() {
    for check in [false, true] {
        let db = Database::builder().prefetch(true).check_plans(check).open().expect("memory");
        let numbers = db.create::<Number>().expect("a valid table");
        db.register(procedures![guarded]).expect("a sound set");
        let mut session = db.session();
        let load = [(1, 4), (2, 9), (25, 7)];
        let load = session
            .transact(|tx| load.into_iter().try_for_each(|(id, divisor)| tx.insert(&numbers, &Number { id, divisor })));
        load.expect("an empty table");
        assert_eq!(session.call(guarded, &(1, 0)).expect("it ends before it divides").value, None);
        assert_eq!(session.call(guarded, &(1, 4)).expect("it divides by four").value, Some(7));
        // A footprint either visits every key or panics.
        let handles = guarded::handles(&db).expect("the table is there");
        let tell = |divisor| {
            let mut touches = 0;
            guarded::footprint(&handles, &(1, divisor), &mut |_| touches += 1);
            touches
        };
        assert_eq!(tell(4), 3);
        assert!(catch_unwind(AssertUnwindSafe(|| tell(0))).is_err());
    }
}

#[test]
fn a_function_that_may_panic_is_a_place_where_the_procedure_can_fail() {
    let db = Database::in_memory().expect("memory");
    db.create::<Number>().expect("a valid table");
    db.register(procedures![guarded]).expect("a sound set");
    let plan = db.plan("guarded").expect("it is registered").to_string();
    assert_eq!(plan.matches("can fail: panic").count(), 1, "{plan}");
    assert!(plan.contains("can fail: panic of #2"), "{plan}");
}
