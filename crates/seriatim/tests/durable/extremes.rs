//! Every setting at its extremes. Accepted values work. The error for a refused value gives the setting, the value
//! and the permitted range.

use std::cell::Cell;
use std::time::Duration;

use seriatim::htm::Budget;
use seriatim::{Batch, Builder, Durability, OpenError, RetryPolicy, TransactionOptions, available_protocols};
use seriatim_base::disk::FaultyDisk;

use crate::accounts::{Account, account, rows, small};

const SECOND: Duration = Duration::from_secs(1);
const NANOSECOND: Duration = Duration::from_nanos(1);

/// The expected result of opening a database with a setting.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    /// The database works.
    Works,
    /// The database opens, but has no memory for a table.
    Full,
    /// Opening fails; with the setting and its permitted range.
    Refused(&'static str, &'static str),
}

use Wanted::{Full, Refused, Works};

type Set = fn(Builder) -> Builder;

fn retry(builder: Builder, change: impl FnOnce(&mut RetryPolicy)) -> Builder {
    let mut policy = RetryPolicy::default();
    change(&mut policy);
    builder.retry(policy)
}

/// Each number or time among the settings at 0, at 1, at its maximum, and next to the ends of its range.
const CASES: &[(&str, Set, Wanted)] = &[
    ("workers 0", |b| b.workers(0), Refused("workers", "1 to 4096")),
    ("workers 2", |b| b.workers(2), Works),
    ("workers 4096", |b| b.workers(4096), Works),
    ("workers 4097", |b| b.workers(4097), Refused("workers", "1 to 4096")),
    ("workers MAX", |b| b.workers(usize::MAX), Refused("workers", "1 to 4096")),
    ("partitions 0", |b| b.protocol("partitioned").partitions(0), Refused("partitions", "1 to 64")),
    ("partitions 1", |b| b.protocol("partitioned").partitions(1), Works),
    ("partitions 64", |b| b.protocol("partitioned").partitions(64), Works),
    ("partitions MAX", |b| b.protocol("partitioned").partitions(usize::MAX), Refused("partitions", "1 to 64")),
    ("executor_queue_max 0", |b| b.executor_queue_max(0), Refused("executor_queue_max", "1 to 18446744073709551615")),
    ("executor_queue_max 1", |b| b.executor_queue_max(1), Works),
    ("executor_queue_max MAX", |b| b.executor_queue_max(usize::MAX), Works),
    ("attempts_max 0", |b| retry(b, |p| p.attempts_max = 0), Refused("retry.attempts_max", "1 to 4294967295")),
    ("attempts_max MAX", |b| retry(b, |p| p.attempts_max = u32::MAX), Works),
    ("immediate 0", |b| retry(b, |p| p.immediate = 0), Works),
    ("immediate 1", |b| retry(b, |p| p.immediate = 1), Works),
    ("immediate MAX - 1", |b| retry(b, |p| p.immediate = u32::MAX - 1), Works),
    ("immediate MAX", |b| retry(b, |p| p.immediate = u32::MAX), Works),
    ("pause_first 0", |b| retry(b, |p| p.pause_first = Duration::ZERO), Works),
    ("pause_first 1", |b| retry(b, |p| p.pause_first = NANOSECOND), Works),
    ("pause_first 60 s", |b| retry(b, |p| p.pause_first = 60 * SECOND), Works),
    ("pause_first MAX", |b| retry(b, |p| p.pause_first = Duration::MAX), Refused("retry.pause_first", "0ns to 60s")),
    ("pause_max 0", |b| retry(b, |p| p.pause_max = Duration::ZERO), Works),
    ("pause_max 1", |b| retry(b, |p| p.pause_max = NANOSECOND), Works),
    ("pause_max 60 s", |b| retry(b, |p| p.pause_max = 60 * SECOND), Works),
    ("pause_max MAX", |b| retry(b, |p| p.pause_max = Duration::MAX), Refused("retry.pause_max", "0ns to 60s")),
    ("lock_after 0", |b| retry(b, |p| p.lock_after = 0), Works),
    ("lock_after 1", |b| retry(b, |p| p.lock_after = 1), Works),
    ("lock_after MAX", |b| retry(b, |p| p.lock_after = u32::MAX), Works),
    ("helper_threads 0", |b| b.helper_threads(0), Works),
    ("helper_threads 1", |b| b.helper_threads(1), Works),
    ("helper_threads MAX", |b| b.helper_threads(usize::MAX), Works),
    ("operations_max 0", |b| b.operations_max(0), Refused("operations_max", "1 to 4294967295")),
    ("operations_max 1", |b| b.operations_max(1), Works),
    ("operations_max MAX", |b| b.operations_max(u32::MAX), Works),
    (
        "transaction_age_max 0",
        |b| b.transaction_age_max(Duration::ZERO),
        Refused("transaction_age_max", "10ms to 18446744073709551615.999999999s"),
    ),
    (
        "transaction_age_max 0, often",
        |b| b.transaction_age_max(Duration::ZERO).epoch_interval(NANOSECOND),
        Refused("transaction_age_max", "1ns to 18446744073709551615.999999999s"),
    ),
    (
        "transaction_age_max 1",
        |b| b.transaction_age_max(NANOSECOND),
        Refused("transaction_age_max", "10ms to 18446744073709551615.999999999s"),
    ),
    (
        "epoch_interval above transaction_age_max",
        |b| b.transaction_age_max(SECOND).epoch_interval(2 * SECOND),
        Refused("epoch_interval", "1ns to 1s"),
    ),
    ("transaction_age_max MAX", |b| b.transaction_age_max(Duration::MAX), Works),
    ("snapshot_age_max 0", |b| b.snapshot_age_max(Duration::ZERO), Works),
    ("snapshot_age_max 1", |b| b.snapshot_age_max(NANOSECOND), Works),
    ("snapshot_age_max MAX", |b| b.snapshot_age_max(Duration::MAX), Works),
    ("snapshot_bytes_max 0", |b| b.snapshot_bytes_max(0), Works),
    ("snapshot_bytes_max MAX", |b| b.snapshot_bytes_max(usize::MAX), Works),
    ("epoch_interval 0", |b| b.epoch_interval(Duration::ZERO), Refused("epoch_interval", "1ns to 60s")),
    ("epoch_interval 1", |b| b.epoch_interval(NANOSECOND), Works),
    ("epoch_interval MAX", |b| b.epoch_interval(Duration::MAX), Refused("epoch_interval", "1ns to 60s")),
    (
        "epoch_interval MAX, as old",
        |b| b.epoch_interval(Duration::MAX).transaction_age_max(Duration::MAX),
        Refused("epoch_interval", "1ns to 86400s"),
    ),
    ("seed MAX", |b| b.seed(u64::MAX), Works),
    ("memory_limit 0", |b| b.memory_limit(0), Full),
    ("memory_limit 1", |b| b.memory_limit(1), Full),
    ("memory_limit MAX", |b| b.memory_limit(usize::MAX), Works),
    ("prefault 0", |b| b.prefault(0), Works),
    ("prefault 1", |b| b.prefault(1), Works),
    (
        "prefault above the limit",
        |b| b.memory_limit(64 << 20).prefault(usize::MAX),
        Refused("prefault", "0 to 67108864"),
    ),
    ("batch 0", |b| b.batch(Batch::Size(0)), Refused("batch", "1 to 4096")),
    ("batch 1", |b| b.batch(Batch::Size(1)), Works),
    ("batch 4096", |b| b.batch(Batch::Size(4096)), Works),
    ("batch MAX", |b| b.batch(Batch::Size(usize::MAX)), Refused("batch", "1 to 4096")),
    ("wait_max 0", |b| b.durability(Durability::Async).wait_max(Some(Duration::ZERO)), Works),
    ("wait_max MAX", |b| b.wait_max(Some(Duration::MAX)), Works),
    ("wait_max none", |b| b.wait_max(None), Works),
    ("segment_bytes 0", |b| b.segment_bytes(0), Refused("segment_bytes", "1 to 8589934592")),
    ("segment_bytes 1", |b| b.segment_bytes(1), Works),
    ("segment_bytes MAX", |b| b.segment_bytes(u64::MAX), Refused("segment_bytes", "1 to 8589934592")),
    ("log_buffer_bytes 0", |b| b.log_buffer_bytes(0), Refused("log_buffer_bytes", "1 to 67108864")),
    ("log_buffer_bytes 1", |b| b.log_buffer_bytes(1), Works),
    ("log_buffer_bytes MAX", |b| b.log_buffer_bytes(usize::MAX), Refused("log_buffer_bytes", "1 to 67108864")),
    ("log_backlog_bytes 0", |b| b.log_backlog_bytes(0), Works),
    ("log_backlog_bytes 1", |b| b.log_backlog_bytes(1), Works),
    ("log_backlog_bytes MAX", |b| b.log_backlog_bytes(usize::MAX), Works),
    ("checkpoint_bytes 0", |b| b.checkpoint_bytes(Some(0)), Works),
    ("checkpoint_bytes 1", |b| b.checkpoint_bytes(Some(1)), Works),
    ("checkpoint_bytes MAX", |b| b.checkpoint_bytes(Some(u64::MAX)), Works),
    ("checkpoint_bytes none", |b| b.checkpoint_bytes(None), Works),
    ("checkpoint_rate 0", |b| b.checkpoint_rate(Some(0)), Refused("checkpoint_rate", "1 to 18446744073709551615")),
    ("checkpoint_rate 1", |b| b.checkpoint_rate(Some(1)), Works),
    ("checkpoint_rate MAX", |b| b.checkpoint_rate(Some(u64::MAX)), Works),
    ("checkpoint_share 0", |b| b.checkpoint_share(0), Refused("checkpoint_share", "1 to 100")),
    ("checkpoint_share 1", |b| b.checkpoint_share(1), Works),
    ("checkpoint_share 100", |b| b.checkpoint_share(100), Works),
    ("checkpoint_share MAX", |b| b.checkpoint_share(u32::MAX), Refused("checkpoint_share", "1 to 100")),
    (
        "region_budget 0",
        |b| b.region_budget(Budget { conflict: 0, divided: true, capacity: 0, system: 0, explicit: 0 }),
        Works,
    ),
    (
        "region_budget MAX",
        |b| {
            let (most, divided) = (u32::MAX, false);
            b.region_budget(Budget { conflict: most, divided, capacity: most, system: most, explicit: most })
        },
        Works,
    ),
];

/// Checks that retries, a checkpoint and another opening work with these settings.
fn works(name: &str, disk: &FaultyDisk, set: Set) {
    for opening in 0..3 {
        let db = set(small("silo", disk)).open().unwrap_or_else(|error| panic!("{name}: {error}"));
        let accounts = db.create_or_open::<Account>().unwrap_or_else(|error| panic!("{name}: {error}"));
        let (mut session, mut other) = (db.session(), db.session());
        // Without conflicts, with a conflict in each of the first attempts, and on a row of its own.
        let mut write = |id: u64| {
            let done = session.submit(|tx| tx.put(&accounts, &account(id)));
            db.step();
            let done = done.poll().unwrap_or_else(|_| panic!("{name}: the log was written"));
            done.unwrap_or_else(|error| panic!("{name}: {error}"));
        };
        write(1);
        write(2 + opening);
        let attempts = Cell::new(0);
        let pending = session.submit(|tx| {
            attempts.set(attempts.get() + 1);
            let balance = tx.require(&accounts, &1)?.balance();
            if attempts.get() < 3 {
                drop(other.submit(|tx| tx.update(&accounts, &1, |row| row.set_balance(row.balance() + 1))));
                db.step();
            }
            tx.update(&accounts, &1, |row| row.set_balance(balance + 10))
        });
        db.step();
        drop(pending);
        db.checkpoint().unwrap_or_else(|error| panic!("{name}: {error}"));
        drop((accounts, session, other));
        assert!(db.close().is_ok(), "{name}");
    }
    assert_eq!(rows(&small("silo", disk).open().expect("it opens")).len(), 4, "{name}");
}

#[test]
fn a_setting_at_its_extremes_works_or_is_refused_by_name() {
    for (seed, &(name, set, wanted)) in (700..).zip(CASES) {
        eprintln!("{name}");
        let disk = FaultyDisk::new(seed);
        match wanted {
            Works => works(name, &disk, set),
            Full => {
                let db = set(small("silo", &disk)).open().unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(matches!(db.create::<Account>(), Err(seriatim::SchemaError::OutOfMemory { .. })), "{name}");
            }
            Refused(wanted, range) => {
                let error = set(small("silo", &disk)).open().expect_err(name);
                let OpenError::Setting { setting, value, permitted } = &error else { panic!("{name}: {error}") };
                assert_eq!((*setting, &**permitted), (wanted, range), "{name}");
                let words = error.to_string();
                assert!(words.contains(wanted) && words.contains(&**value) && words.contains(range), "{words}");
            }
        }
    }
}

#[test]
fn an_executor_with_no_thread_or_too_many_is_refused_by_name() {
    let db = Builder::default().workers(2).step_helpers(true).open().expect("it opens");
    for threads in [0, 4097, usize::MAX] {
        let error = db.executor(threads).expect_err("no such executor");
        let OpenError::Setting { setting, value, permitted } = &error else { panic!("{error}") };
        assert_eq!((*setting, &**value, &**permitted), ("executor threads", &*threads.to_string(), "1 to 4096"));
    }
    db.executor(1).expect("a thread starts");
}

#[test]
fn every_option_of_every_protocol_works_at_its_ends_and_is_refused_beyond() {
    for protocol in available_protocols() {
        for knob in protocol.options {
            let (least, most) = (knob.min, knob.max);
            let beyond = [least.checked_sub(1), most.checked_add(1), (most < u64::MAX).then_some(u64::MAX)];
            for (value, is_right) in [(least, true), (most, true)]
                .into_iter()
                .chain(beyond.into_iter().flatten().map(|value| (value, false)))
            {
                let opened = Builder::default()
                    .workers(2)
                    .step_helpers(true)
                    .protocol(protocol.name)
                    .protocol_option(knob.name, value)
                    .open();
                match opened {
                    Ok(db) => {
                        assert!(is_right, "{} {} {value}", protocol.name, knob.name);
                        drop(db.create::<Account>().expect("a valid table"));
                    }
                    Err(OpenError::Option(error)) if !is_right => {
                        let words = error.to_string();
                        assert!(words.contains(knob.name) && words.contains(&value.to_string()), "{words}");
                    }
                    // Some values are valid only together with others: the error names these.
                    Err(OpenError::Invalid(words)) if is_right => assert!(words.contains(knob.name), "{words}"),
                    Err(error) => panic!("{} {} {value}: {error}", protocol.name, knob.name),
                }
            }
        }
    }
}

#[test]
fn the_bounds_of_a_transaction_may_be_as_small_and_as_large_as_can_be() {
    let disk = FaultyDisk::new(699);
    let db = small("silo", &disk).open().expect("it opens");
    let accounts = db.create::<Account>().expect("a valid table");
    let mut session = db.session();
    for time in [Duration::ZERO, NANOSECOND, Duration::MAX] {
        for weight in [0, 1, u64::MAX] {
            let options = TransactionOptions::new().age_max(time).wait_max(time).weight(weight);
            let pending = session.submit_with(&options, |tx| tx.put(&accounts, &account(1)));
            db.step();
            pending.poll().unwrap_or_else(|_| panic!("the log was written")).expect("it is young enough");
        }
    }
}
