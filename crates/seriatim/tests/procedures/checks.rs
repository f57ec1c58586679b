//! Conditions of tables hold in procedures, in every mode and under every protocol.

use seriatim::procedure::plan::FailureKind;
use seriatim::{Abort, Database, Handle, Table, TransactError, Tx, procedure, procedures, thread};

use crate::common::each;

#[derive(Table)]
#[table(name = "purse", key(id), check(name = "covered", "x + y >= 0"))]
pub(crate) struct Purse {
    id: u32,
    x: i64,
    y: i64,
    visits: u64,
}

#[derive(Table)]
#[table(name = "spent", key(id))]
pub(crate) struct Spent {
    id: u32,
    sum: i64,
}

/// The condition may end it after its first write.
#[procedure]
fn spend_x(tx: &Tx, id: u32, amount: i64) -> Result<(), Abort> {
    tx.update::<Spent>(1, |spent| spent.sum += amount)?;
    tx.update::<Purse>(id, |purse| purse.visits += 1)?;
    tx.update::<Purse>(id, |purse| purse.x -= amount)?;
    Ok(())
}

#[procedure]
fn spend_y(tx: &Tx, id: u32, amount: i64) -> Result<(), Abort> {
    tx.update::<Purse>(id, |purse| purse.y -= amount)?;
    tx.update::<Spent>(2, |spent| spent.sum += amount)?;
    Ok(())
}

#[procedure]
fn open_purse(tx: &Tx, id: u32, x: i64) -> Result<(), Abort> {
    tx.update::<Spent>(3, |spent| spent.sum += x)?;
    tx.insert(Purse { id, x, y: 0, visits: 0 })?;
    Ok(())
}

#[procedure]
fn begin(tx: &Tx, left: i64) -> Result<(), Abort> {
    tx.insert(Spent { id: 1, sum: 0 })?;
    tx.insert(Spent { id: 2, sum: 0 })?;
    tx.insert(Spent { id: 3, sum: 0 })?;
    tx.insert(Purse { id: 1, x: left, y: left, visits: 0 })?;
    Ok(())
}

fn load(db: &Database) -> (Handle<Purse>, Handle<Spent>) {
    let (purses, spent) = (db.create::<Purse>().expect("valid"), db.create::<Spent>().expect("valid"));
    db.register(procedures![spend_x, spend_y, open_purse, begin]).expect("a sound set");
    db.session().call(begin, &20).expect("it is covered");
    (purses, spent)
}

/// `x + y` of the purse, its visits, and what was spent.
fn state(db: &Database, purses: &Handle<Purse>, spent: &Handle<Spent>) -> (i64, u64, Vec<i64>) {
    let (mut left, mut visits, mut sums) = (Vec::new(), 0, Vec::new());
    db.each_row(purses, |purse| {
        left.push(purse.x() + purse.y());
        visits += purse.visits();
    })
    .expect("no transaction is open");
    db.each_row(spent, |spent| sums.push((spent.id(), spent.sum()))).expect("no transaction is open");
    sums.sort_unstable();
    assert_eq!(left.len(), 1);
    (left[0], visits, sums.into_iter().map(|(_, sum)| sum).collect())
}

#[test]
fn a_procedure_whose_write_violates_a_condition_does_nothing() {
    each(|setting| {
        let db = setting.builder().open().expect("a valid setting");
        let (purses, spent) = load(&db);
        let mut session = db.session();
        session.call(spend_x, &(1, 30)).expect("it is covered");
        let name = setting.protocol.name;
        for _ in 0..3 {
            let error = session.call(spend_x, &(1, 11)).expect_err("it is not covered").to_string();
            assert!(
                error.starts_with("a row of purse violates check constraint covered: id 1, x -21, y 20"),
                "{error}"
            );
            let error = session.call(spend_y, &(1, 11)).expect_err("it is not covered").to_string();
            assert!(error.starts_with("a row of purse violates check constraint covered: id 1, x -10, y 9"), "{error}");
            let error = session.call(open_purse, &(2, -1)).expect_err("it is not covered").to_string();
            let wanted = "a row of purse violates check constraint covered: id 2, x -1, y 0, visits 0";
            assert_eq!(error, wanted, "{name}");
        }
        session.call(spend_y, &(1, 10)).expect("it is covered");
        assert_eq!(state(&db, &purses, &spent), (0, 1, vec![30, 10, 0]), "{name}");
    });
}

#[test]
fn procedures_of_two_threads_do_not_break_a_condition_together() {
    each(|setting| {
        let db = setting.builder().open().expect("a valid setting");
        let (purses, spent) = load(&db);
        let spend = |by_x: bool| {
            let mut session = db.session();
            loop {
                let called = match by_x {
                    true => session.call(spend_x, &(1, 1)),
                    false => session.call(spend_y, &(1, 1)),
                };
                match called {
                    Ok(_) => {}
                    Err(TransactError::Check { .. }) => break,
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| spend(true));
            scope.spawn(|| spend(false));
        });
        let (left, visits, sums) = state(&db, &purses, &spent);
        let name = setting.protocol.name;
        assert!(left == 0 && sums[0] + sums[1] == 40 && visits == sums[0] as u64, "{name}: {left} {visits} {sums:?}");
    });
}

#[test]
fn the_plan_knows_what_a_condition_reads_and_refuses() {
    let db = Database::in_memory().expect("memory");
    load(&db);
    let plan = db.plan("spend_y").expect("it is registered");
    let update = &plan.operations[0].accesses[0];
    let names = |columns: &seriatim::procedure::plan::Columns| columns.names(&plan.tables[update.table].columns);
    assert_eq!((names(&update.reads), names(&update.writes)), ("x, y".to_owned(), "y".to_owned()));
    assert!(update.commutes.is_empty());
    assert!(plan.failures.iter().any(|failure| failure.kind == FailureKind::Check && failure.operation == Some(0)));
    let plan = db.plan("spend_x").expect("it is registered");
    let visits = &plan.operations[1].accesses[0];
    assert!(!visits.commutes.is_empty() && visits.reads.is_empty(), "no condition uses this column");
}
