//! The contract of a participant with its owner: which callers it accepts, which failures are the procedure's,
//! and its locks for work without a footprint.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim::procedure::Procedures;
use seriatim::procedure::divided::{Divided, Fragment};
use seriatim::{Abort, Builder, Database, Table, Text, TransactError, Tx, procedure, procedures, pure, thread};
use seriatim_participant::{OtherProcedures, Participant};
use seriatim_partition::{ClientId, LockMode, Partition, PartitionId, TransactionId};

#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "count", key(id), ordered)]
struct Count {
    id: u32,
    count: u32,
    note: Text<1000>,
}

#[procedure]
fn count(tx: &Tx, id: u32) -> Result<u32, Abort> {
    let row = tx.require::<Count>(id)?;
    Ok(row.count)
}

#[pure]
fn numbered(id: u32) -> Text<1000> {
    Text::truncated(&id.to_string())
}

#[procedure]
fn note(tx: &Tx, id: u32) -> Result<(), Abort> {
    tx.insert(Count { id, count: id, note: numbered(id) })?;
    Ok(())
}

#[procedure]
fn deposit(tx: &Tx, id: u32, amount: u32) -> Result<(), Abort> {
    tx.update::<Count>(id, |row| row.count += amount)?;
    Ok(())
}

#[procedure]
fn withdraw(tx: &Tx, id: u32, amount: u32) -> Result<(), Abort> {
    tx.update::<Count>(id, |row| row.count -= amount)?;
    Ok(())
}

/// How long a slow call takes, in milliseconds.
static SLOW: AtomicU64 = AtomicU64::new(300);

#[pure]
fn slowly(id: u32) -> u32 {
    thread::sleep(Duration::from_millis(SLOW.load(Ordering::Relaxed)));
    id
}

/// Takes longer than the age limit of transactions.
#[procedure]
fn dawdle(tx: &Tx, id: u32) -> Result<u32, Abort> {
    let row = tx.require::<Count>(id)?;
    let other = tx.require::<Count>(slowly(id))?;
    Ok(row.count + other.count)
}

fn divided(builder: Builder, set: Procedures) -> Divided {
    let db = builder.open().expect("valid settings");
    db.create::<Count>().expect("a valid table");
    db.register(set).expect("sound procedures");
    db.divide().expect("they can be divided")
}

fn participant(builder: Builder, set: Procedures) -> Participant {
    let divided = divided(builder, set);
    let digest = divided.digest();
    Participant::new(divided, PartitionId(0), digest, false).expect("its own procedures")
}

fn one() -> Builder {
    Database::builder().partitions(1).workers(2)
}

/// Runs the procedure of this number alone.
fn run(participant: &mut Participant, procedure: u16, id: u32) -> Result<(), TransactError> {
    let work = Fragment { procedure, arguments: id.to_le_bytes().to_vec(), round: None, found: Vec::new() };
    participant.execute(TransactionId { client: ClientId(0), number: 1 }, &work).map(drop)
}

#[test]
fn procedures_that_are_others_or_in_another_order_are_refused() {
    let here = || procedures![deposit, withdraw];
    let same = divided(one(), here()).digest();
    assert!(Participant::new(divided(one(), here()), PartitionId(0), same, false).is_ok());
    for (builder, there) in [
        (one(), procedures![withdraw, deposit]),
        (one(), procedures![deposit]),
        (one(), procedures![deposit, withdraw, count]),
        (Database::builder().partitions(2).workers(2), here()),
    ] {
        let there = divided(builder, there).digest();
        let refused = Participant::new(divided(one(), here()), PartitionId(0), there, false).err();
        assert_eq!(refused, Some(OtherProcedures { here: same, there }));
    }
}

#[test]
fn a_call_of_an_unregistered_procedure_is_refused_with_its_name() {
    let unknown = divided(one(), procedures![deposit, withdraw]).call(count, &1).expect_err("it is not of the set");
    assert_eq!(unknown.to_string(), "procedure \"count\" is not registered; registered are deposit, withdraw");
}

#[test]
fn fragments_are_not_aborted_for_their_age() {
    let age = Duration::from_millis(20);
    let mut participant = participant(one().transaction_age_max(age), procedures![note, dawdle]);
    run(&mut participant, 0, 7).expect("there is no such row");
    let mut session = participant.divided().database().session();
    // Longer if no thread that checks ages has run meanwhile.
    let others = (0..8).find_map(|doublings| {
        SLOW.store(300 << doublings, Ordering::Relaxed);
        session.call(dawdle, &7).err()
    });
    assert!(matches!(others, Some(TransactError::TooOld)), "{others:?}");
    run(&mut participant, 1, 7).expect("its time is its own");
}

/// Failures of the procedure are errors, and so is lack of memory. Failures of the database end the owner.
#[test]
fn failures_of_the_procedure_are_errors_and_those_of_the_database_end_the_owner() {
    let mut full = participant(one().memory_limit(8 << 20), procedures![note, count]);
    assert!(matches!(run(&mut full, 1, 1), Err(TransactError::MissingRow { .. })));
    run(&mut full, 0, 1).expect("there is no such row");
    assert!(matches!(run(&mut full, 0, 1), Err(TransactError::Duplicate { .. })));
    let failed = (2..).find_map(|id| run(&mut full, 0, id).err().map(|error| (id, error)));
    let (fits, failed) = failed.expect("the limit is met");
    assert!(matches!(failed, TransactError::OutOfMemory { .. }) && fits > 1000, "{fits}: {failed}");
    assert!(matches!(run(&mut full, 1, fits), Err(TransactError::MissingRow { .. })), "nothing of it stays");
    run(&mut full, 1, fits - 1).expect("reads go on");

    let mut busy = participant(Database::builder().partitions(1).workers(1), procedures![note]);
    let mut other = busy.divided().database().session();
    let open = other.begin().expect("a worker");
    let ended = catch_unwind(AssertUnwindSafe(|| run(&mut busy, 0, 1))).expect_err("nobody else has the partition");
    let said = ended.downcast_ref::<String>().expect("it has words");
    assert!(said.starts_with("the database of partition 0 fails: every worker"), "{said}");
    drop(open);
    run(&mut busy, 0, 1).expect("nothing of it stayed");
}

#[test]
fn work_with_invalid_arguments_locks_everything() {
    let participant = participant(one(), procedures![count]);
    let locks = |arguments: Vec<u8>| {
        let mut locks = Vec::new();
        participant.footprint(&Fragment { procedure: 0, arguments, round: None, found: Vec::new() }, &mut locks);
        locks
    };
    let none = locks(Vec::new());
    assert_eq!(none.len(), 1, "{none:?}");
    assert_eq!(none[0].1, LockMode::Exclusive);
    // Work with valid arguments shares it.
    let some = locks(vec![7, 0, 0, 0]);
    assert!(some.contains(&(none[0].0.clone(), LockMode::Shared)), "{some:?}");
    assert_eq!(some.len(), 2, "{some:?}");
}
