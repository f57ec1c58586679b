//! Partitions: where transactions run, which are refused, and the errors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use seriatim::procedure::Everywhere;
use seriatim::{
    Abort, Database, Handle, PartitionValue, Session, Table, TransactError, Tx, procedure, procedures, thread,
};

#[derive(Table)]
#[table(name = "account", key(branch, id))]
#[table(index(name = "by_owner", columns(owner)))]
pub(crate) struct Account {
    branch: u16,
    id: u32,
    owner: u32,
    balance: i64,
}

/// A replicated table.
#[derive(Table)]
#[table(name = "rate", key(id), hash, replicated)]
pub(crate) struct Rate {
    id: u8,
    percent: u8,
}

/// A table whose unique index spans all partitions.
#[derive(Table)]
#[table(name = "badge", key(branch, id), hash)]
#[table(index(name = "by_name", columns(name), hash, unique))]
pub(crate) struct Badge {
    branch: u16,
    id: u32,
    name: u32,
}

/// Partitioned by a text column that is not the first of its key.
#[derive(Table)]
#[table(name = "note", key(number, town), partition(town))]
pub(crate) struct Note {
    number: u32,
    town: seriatim::Text<8>,
    read: u32,
}

#[procedure]
fn deposit(tx: &Tx, branch: u16, id: u32, amount: i64) -> Result<i64, Abort> {
    let rate = tx.require::<Rate>(1)?;
    let balance = tx.update::<Account>((branch, id), |account| {
        account.balance += amount;
        account.balance
    })?;
    if rate.percent > 100 {
        return Err(tx.abort("no such rate"));
    }
    Ok(balance)
}

#[procedure]
fn transfer(tx: &Tx, from: u16, to: u16, id: u32, amount: i64) -> Result<(), Abort> {
    tx.update::<Account>((from, id), |account| account.balance -= amount)?;
    tx.update::<Account>((to, id), |account| account.balance += amount)?;
    Ok(())
}

/// Needs the partitions of a list.
#[procedure]
fn collect(tx: &Tx, branches: &[u16], id: u32) -> Result<i64, Abort> {
    let mut sum = 0i64;
    for branch in branches {
        let account = tx.require::<Account>((*branch, id))?;
        sum += account.balance;
    }
    tx.update::<Account>((0, id), |account| account.balance += 0)?;
    Ok(sum)
}

/// A later key depends on a row of the same partition, which the first key determines.
#[procedure]
fn visit(tx: &Tx, branches: &[u16], id: u32) -> Result<u64, Abort> {
    let mut visits = 0u64;
    for branch in branches {
        let first = tx.require::<Account>((*branch, id))?;
        tx.update::<Account>((*branch, first.owner), |account| account.balance += 0)?;
        visits += 1;
    }
    Ok(visits)
}

/// The key that determines the partition is in one branch only.
#[procedure]
fn visit_some(tx: &Tx, branches: &[u16], id: u32, first: bool) -> Result<(), Abort> {
    let start = tx.require::<Account>((1, id))?;
    for branch in branches {
        if first {
            let found = tx.require::<Account>((*branch, id))?;
            if found.balance > 1_000_000 {
                return Err(tx.abort("too rich"));
            }
        }
        tx.update::<Account>((*branch, start.owner), |account| account.balance += 0)?;
    }
    Ok(())
}

/// A row determines the last partition.
#[procedure]
fn follow(tx: &Tx, branch: u16, id: u32) -> Result<i64, Abort> {
    let first = tx.require::<Account>((branch, id))?;
    let account = tx.get::<Account>((2, first.owner))?;
    let mut found = 0i64;
    for other in tx.scan::<Account>(..)? {
        found += other.balance;
    }
    let Some(account) = account else { return Ok(found) };
    Ok(account.balance)
}

#[procedure]
fn set_rate(tx: &Tx, id: u8, percent: u8) -> Result<(), Abort> {
    tx.update::<Rate>(id, |rate| rate.percent = percent)?;
    Ok(())
}

#[procedure]
fn name_badge(tx: &Tx, branch: u16, id: u32, name: u32) -> Result<(), Abort> {
    tx.insert(Badge { branch, id, name })?;
    Ok(())
}

#[procedure]
fn read_note(tx: &Tx, number: u32, town: seriatim::Text<8>) -> Result<u32, Abort> {
    let read = tx.update::<Note>((number, town), |note| {
        note.read += 1;
        note.read
    })?;
    Ok(read)
}

/// All rows of a hash table, in whatever partitions.
#[procedure]
fn number_badge(tx: &Tx, branch: u16, id: u32) -> Result<u32, Abort> {
    let mut count = 0u32;
    for _ in tx.scan_all::<Badge>()? {
        count += 1;
    }
    tx.insert(Badge { branch, id, name: count })?;
    let all = tx.count_all::<Badge>()?;
    if all != u64::from(count) + 1 {
        return Err(tx.abort("a row is missed"));
    }
    Ok(count)
}

#[seriatim::pure]
fn half(branch: u16) -> u16 {
    assert!(branch < 1000, "deliberately");
    branch / 2
}

/// A function computes the key.
#[procedure]
fn deposit_half(tx: &Tx, branch: u16, id: u32) -> Result<(), Abort> {
    tx.update::<Account>((half(branch), id), |account| account.balance += 1)?;
    Ok(())
}

struct Bank {
    db: Database,
    accounts: Handle<Account>,
    rates: Handle<Rate>,
    badges: Handle<Badge>,
}

const BRANCHES: u16 = 8;
const IDS: u32 = 3;

fn bank(builder: seriatim::Builder) -> Bank {
    let db = builder.open().expect("a valid setting");
    let (accounts, rates) = (db.create::<Account>().expect("a table"), db.create::<Rate>().expect("a table"));
    let (badges, notes) = (db.create::<Badge>().expect("a table"), db.create::<Note>().expect("a table"));
    let load = db.session().transact(|tx| {
        for at in 0..u32::from(BRANCHES) * IDS {
            let (branch, id) = ((at / IDS) as u16, at % IDS);
            tx.insert(&accounts, &Account { branch, id, owner: id, balance: 100 })?;
        }
        let town = seriatim::Text::new("Ulm").expect("it fits");
        tx.insert(&notes, &Note { number: 1, town, read: 0 })?;
        tx.insert(&rates, &Rate { id: 1, percent: 5 })
    });
    load.expect("an empty database");
    Bank { db, accounts, rates, badges }
}

fn partitioned(partitions: usize) -> Bank {
    let bank = bank(Database::builder().partitions(partitions));
    let set = procedures![deposit, transfer, collect, visit, visit_some, follow, set_rate, name_badge];
    let registered = bank.db.register(set.with(read_note).with(deposit_half)).expect("a sound set");
    let everywhere: Vec<&str> = registered.everywhere.iter().map(|everywhere| &*everywhere.procedure).collect();
    assert_eq!(everywhere, ["visit_some", "follow", "set_rate", "name_badge"]);
    bank
}

fn total(bank: &Bank, session: &mut Session) -> i64 {
    let sum =
        |tx: &seriatim::ReadTx| tx.scan(&bank.accounts, ..).try_fold(0, |sum, account| Ok(sum + account?.balance()));
    session.snapshot(sum).expect("no conflict").into_value()
}

#[test]
fn a_call_runs_where_its_arguments_say_and_gives_what_it_does_elsewhere() {
    for partitions in [1, 3, 8, 64] {
        let bank = partitioned(partitions);
        let mut session = bank.db.session();
        assert_eq!(session.call(deposit, &(5, 1, 7)).expect("no conflict").value, 107);
        session.call(transfer, &(1, 6, 2, 30)).expect("no conflict");
        session.call(transfer, &(1, 1, 2, 30)).expect("no conflict");
        assert_eq!(session.call(collect, &(vec![1, 6, 7], 2)).expect("no conflict").value, 300);
        assert_eq!(session.call(visit, &(vec![0, 3, 6], 1)).expect("no conflict").value, 3);
        assert_eq!(bank.db.statistics().owned_several > 0, partitions > 1);
        session.call(visit_some, &(vec![4, 5], 1, false)).expect("no conflict");
        assert_eq!(session.call(follow, &(1, 2)).expect("no conflict").value, 100);
        session.call(set_rate, &(1, 101)).expect("no conflict");
        assert!(matches!(session.call(deposit, &(5, 1, 7)), Err(TransactError::User(_))));
        session.call(name_badge, &(3, 1, 7)).expect("no conflict");
        assert!(matches!(session.call(name_badge, &(4, 1, 7)), Err(TransactError::Duplicate { .. })));
        let town = seriatim::Text::new("Ulm").expect("it fits");
        assert_eq!(session.call(read_note, &(1, town)).expect("no conflict").value, 1);
        session.call(deposit_half, &(7, 0)).expect("no conflict");
        // With these arguments the function panics, as it does where the procedure runs.
        assert!(catch_unwind(AssertUnwindSafe(|| session.call(deposit_half, &(1000, 0)))).is_err());
        assert_eq!(total(&bank, &mut session), 100 * i64::from(BRANCHES) * i64::from(IDS) + 8);
        assert_eq!(bank.db.check_indexes().expect("it holds together").len(), 4);
    }
}

#[test]
fn all_rows_of_a_hash_table_are_in_all_partitions() {
    for partitions in [1, 3, 8] {
        let bank = bank(Database::builder().partitions(partitions));
        let registered = bank.db.register(procedures![number_badge]).expect("a sound set");
        assert_eq!(registered.everywhere.len(), 1);
        let work = |first: u32| {
            let mut session = bank.db.session();
            (0..30).for_each(|n| {
                session.call(number_badge, &((n % 8) as u16, first + n)).expect("conflicts are retried");
            });
        };
        thread::scope(|scope| {
            scope.spawn(|| work(1000));
            work(0);
        });
        let mut session = bank.db.session();
        assert_eq!(session.call(number_badge, &(0, 5000)).expect("names are unique").into_value(), 60);
        assert_eq!(*session.snapshot(|tx| tx.count_all(&bank.badges)).expect("no conflict"), 61);
    }
}

#[test]
fn registration_says_why_a_procedure_has_all_partitions() {
    let bank = bank(Database::builder().partitions(4));
    let registered = bank.db.register(procedures![follow, set_rate, name_badge, deposit]).expect("a sound set");
    let reasons: Vec<&str> = registered.everywhere.iter().map(|everywhere| &*everywhere.reason).collect();
    assert_eq!(
        reasons,
        [
            "the partition of 2 scan account is not one value",
            "0 update rate writes a replicated table",
            "0 insert badge writes index by_name, which does not have the column that the table is partitioned by",
        ]
    );
    let elsewhere = self::bank(Database::builder().protocol("silo"));
    let none: [Everywhere; 0] = [];
    assert_eq!(elsewhere.db.register(procedures![follow]).expect("a sound set").everywhere, none);
}

#[test]
fn a_closure_at_a_partition_keeps_to_it() {
    let Bank { db, accounts, rates, badges } = partitioned(4);
    let mut session = db.session();
    let read = |tx: &Tx, branch| tx.require(&accounts, &(branch, 1)).map(|account| account.balance());
    let here = session.at(1).transact(|tx| Ok(read(tx, 1)? + read(tx, 5)?));
    assert_eq!(here.expect("both are there").into_value(), 200);
    assert_eq!(session.at(2).submit(|tx| read(tx, 2)).expect("a partition").wait().expect("in memory").value, 100);
    let is_elsewhere = |result: Result<seriatim::Committed<()>, TransactError>, of: &str, says: &str| {
        let error = result.expect_err("it is elsewhere");
        assert!(!error.is_retryable() && error.to_string().contains(says), "{error}");
        assert!(matches!(error, TransactError::OtherPartition { table, .. } if table == of));
    };
    is_elsewhere(session.at(1).transact(|tx| read(tx, 2).map(drop)), "account", "branch 2, id 1 of account");
    let all = |tx: &Tx| tx.scan(&accounts, ..).try_count().map(drop);
    is_elsewhere(session.at(1).transact(all), "account", "a range of keys of account");
    assert!(session.at(1).transact(|tx| tx.prefix(&accounts, &5u16).try_count()).is_ok());
    let by_owner = accounts.index(Account::BY_OWNER);
    let owned = |tx: &Tx| tx.find_by(&by_owner, &1u32).try_count().map(drop);
    is_elsewhere(session.at(1).transact(owned), "account.by_owner", "account.by_owner");
    // Replicated tables can be read in any partition.
    assert!(session.at(3).transact(|tx| tx.require(&rates, &1).map(drop)).is_ok());
    let rate = |tx: &Tx| tx.update(&rates, &1, |rate| rate.set_percent(6)).map(drop);
    is_elsewhere(session.at(3).transact(rate), "rate", "id 1 of rate");
    let badge = |tx: &Tx| tx.insert(&badges, &Badge { branch: 3, id: 1, name: 1 });
    is_elsewhere(session.at(3).transact(badge), "badge.by_name", "name 1 of badge.by_name");
    // These had no effect, and are allowed elsewhere.
    assert!(session.transact(rate).is_ok() && session.transact(badge).is_ok() && session.transact(all).is_ok());
    let unknown = session.at(4).transact(|_| Ok(())).expect_err("there are four");
    assert_eq!(unknown.to_string(), "there is no partition 4: they are numbered from 0 to 3");
    let none = Database::in_memory().expect("memory").session().at(0).transact(|_| Ok(())).expect_err("there is none");
    assert!(none.to_string().contains("the database has none"), "{none}");
}

#[test]
fn impossible_partition_settings_are_refused() {
    let refused = |builder: seriatim::Builder| builder.open().expect_err("it cannot be").to_string();
    assert_eq!(refused(Database::builder().partitions(0)), "the setting partitions is 0; it can be 1 to 64");
    assert_eq!(refused(Database::builder().partitions(65)), "the setting partitions is 65; it can be 1 to 64");
    let silo = "protocol silo has no partitions: choose partitioned, or leave out the settings of partitions";
    assert_eq!(refused(Database::builder().protocol("silo").partitions(2)), silo);
    assert_eq!(refused(Database::builder().protocol("silo").partition_by(|_, _| 0)), silo);
    let unknown = Database::builder().protocol("silos").partitions(2);
    assert!(refused(unknown).contains("there is no protocol \"silos\""));
    let by = Database::builder().partition_by(|_, _| 0).open().expect("a function is for partitions");
    assert_eq!(by.protocol().name, "partitioned");
}

#[test]
fn a_partition_function_that_fails_is_an_error_and_nothing_more() {
    let by = |value: &PartitionValue, partitions: usize| match value {
        PartitionValue::Integer(6) => panic!("deliberately"),
        PartitionValue::Integer(7) => partitions,
        PartitionValue::Integer(number) => *number as usize / 2 % partitions,
        PartitionValue::Bytes(_) => 0,
    };
    let db = Database::builder().partitions(4).partition_by(by).open().expect("a valid setting");
    let accounts = db.create::<Account>().expect("a table");
    db.create::<Rate>().expect("a table");
    db.register(procedures![deposit, transfer]).expect("a sound set");
    let mut session = db.session();
    let account = |branch| Account { branch, id: 1, owner: 1, balance: 100 };
    session
        .transact(|tx| [0, 1, 4].iter().try_for_each(|branch| tx.insert(&accounts, &account(*branch))))
        .expect("fine");
    // Branches 0 and 1 are in the same partition.
    session
        .at(0)
        .transact(|tx| Ok(tx.require(&accounts, &(0, 1))?.balance() + tx.require(&accounts, &(1, 1))?.balance()))
        .expect("both are there");
    for branch in [6, 7] {
        let failed = [
            session.transact(|tx| tx.insert(&accounts, &account(branch))).map(drop),
            session.at(1).transact(|tx| tx.get(&accounts, &(branch, 1)).map(drop)).map(drop),
            session.call(transfer, &(0, branch, 1, 5)).map(drop),
        ];
        for (at, failed) in failed.into_iter().enumerate() {
            let error = failed.expect_err("the function fails");
            assert!(!error.is_retryable(), "{error}");
            let key = if at == 2 { branch.to_string() } else { format!("branch {branch}, id 1 of account") };
            let says = format!("the partition function panicked on {key}, or named a partition that is not there");
            assert_eq!(error.to_string(), says);
        }
    }
    session.call(transfer, &(0, 4, 1, 5)).expect("it goes on");
    let balance = session.transact(|tx| Ok(tx.require(&accounts, &(4, 1))?.balance()));
    assert_eq!(balance.expect("it is there").into_value(), 105);
}

/// A transaction that waits for a partition gets it, even if its owner panics.
#[test]
fn a_panic_gives_the_partition_back() {
    let bank = partitioned(2);
    let mut session = bank.db.session();
    let panic = || session.at(1).transact(|_| -> Result<(), Abort> { panic!("deliberately") });
    assert!(catch_unwind(AssertUnwindSafe(panic)).is_err());
    assert_eq!(bank.db.session().call(deposit, &(1, 0, 1)).expect("it was given back").value, 101);
}

#[test]
fn procedures_closures_and_explicit_transactions_together_keep_the_total() {
    let bank = partitioned(4);
    let before = total(&bank, &mut bank.db.session());
    thread::scope(|scope| {
        for number in 0..4u16 {
            let bank = &bank;
            scope.spawn(move || {
                let (db, accounts) = (&bank.db, &bank.accounts);
                let (mut session, mut reader) = (db.session(), db.session());
                for round in 0..150u16 {
                    let (from, to, id) =
                        ((number + round) % BRANCHES, (number * 3 + round / 2) % BRANCHES, u32::from(round) % IDS);
                    let add = |tx: &Tx, branch, amount| {
                        let update = tx.update(accounts, &(branch, id), |row| row.set_balance(row.balance() + amount));
                        update.map(drop)
                    };
                    match round % 5 {
                        0 | 1 => drop(session.call(transfer, &(from, to, id, 3)).expect("it is run again")),
                        2 => {
                            session.transact(|tx| add(tx, from, -2).and(add(tx, to, 2))).expect("it is run again");
                        }
                        3 => {
                            let tx = session.begin().expect("a worker");
                            let moved = add(&tx, from, -1).and(add(&tx, to, 1));
                            // The transaction may conflict with others.
                            let _ = moved.map_err(TransactError::from).and_then(|()| tx.commit());
                        }
                        _ => {
                            let moved = session.at(usize::from(from) % 4).transact(|tx| {
                                add(tx, from, -4)?;
                                add(tx, (from + 4) % BRANCHES, 4)
                            });
                            moved.expect("both are there");
                        }
                    }
                    if round % 10 == 0 {
                        assert_eq!(total(bank, &mut reader), before, "a half transfer");
                    }
                }
            });
        }
    });
    assert_eq!(total(&bank, &mut bank.db.session()), before);
}

/// The wait exceeds its limit, and the waiting caller gets an error.
#[test]
fn a_caller_that_waits_for_too_long_gets_an_error() {
    let builder = Database::builder().partitions(2).protocol_option("own_wait_us", 1000);
    let bank = bank(builder.retry(seriatim::RetryPolicy { attempts_max: 2, ..seriatim::RetryPolicy::default() }));
    bank.db.register(procedures![deposit]).expect("a sound set");
    let mut session = bank.db.session();
    session
        .at(1)
        .transact(|_| {
            let mut other = bank.db.session();
            assert!(other.call(deposit, &(0, 0, 1)).is_ok(), "another partition");
            let told = other.call(deposit, &(1, 0, 1)).expect_err("it is owned");
            assert!(matches!(&told, TransactError::Conflict { attempts: 2, .. }), "{told}");
            let commit = other.transact(|tx| tx.delete(&bank.accounts, &(1, 0)).map(drop));
            assert!(commit.expect_err("it is owned").is_retryable());
            thread::sleep(Duration::from_millis(1));
            Ok(())
        })
        .expect("no conflict");
}

/// Its next operation is refused, and then the partition is released. Until then it is not.
#[test]
fn a_closure_that_stays_in_a_partition_for_longer_than_its_age_ends_with_its_next_operation() {
    let bank = bank(Database::builder().partitions(2).protocol_option("own_wait_us", 60_000_000));
    bank.db.register(procedures![deposit]).expect("a sound set");
    let (age, start) = (Duration::from_millis(50), seriatim::clock::Instant::now());
    thread::scope(|scope| {
        let (began, has_begun) = std::sync::mpsc::channel();
        let bank = &bank;
        let stays = scope.spawn(move || {
            let mut session = bank.db.session();
            session.set_options(seriatim::TransactionOptions::new().age_max(age));
            let stayed = session.at(1).transact(|tx| {
                began.send(()).expect("the test waits");
                thread::sleep(4 * age);
                (0..1000).try_for_each(|_| {
                    tx.update(&bank.accounts, &(1, 0), |account| account.set_balance(0))?;
                    thread::sleep(Duration::from_millis(5));
                    Ok(())
                })
            });
            // The next transaction may have to wait for the other one.
            session.set_options(seriatim::TransactionOptions::new());
            (stayed, session.at(1).transact(|tx| Ok(tx.get(&bank.accounts, &(1, 1))?.is_some())))
        });
        has_begun.recv().expect("it begins");
        let balance = bank.db.session().call(deposit, &(1, 0, 1)).expect("it is given back").value;
        assert!(balance == 101 && start.elapsed() >= 4 * age, "{balance}, after {:?}", start.elapsed());
        let (stayed, next) = stays.join().expect("no panic");
        assert!(matches!(stayed, Err(TransactError::TooOld)), "{stayed:?}");
        assert!(*next.expect("the session goes on"));
    });
}
