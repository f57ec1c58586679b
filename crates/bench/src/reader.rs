//! The cost of a long reader for a writer. One thread transfers between accounts, beside another that takes one
//! snapshot after another and repeatedly sums all accounts in it. The baseline runs beside a thread that
//! sleeps. Also measures the memory of versions for the reader, and the age of its data when it begins.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use seriatim::{Abort, Bytes, Database, Handle, Table, thread};
use seriatim_base::clock::Instant;
use seriatim_base::{Rng, talk};

use crate::measure::{Arm, Length, alternate, quantile};
use crate::report::Report;
use crate::setting::{self, Setting};

/// The options.
#[derive(Args, Clone, Debug)]
#[group(id = "reader")]
pub(crate) struct Options {
    #[command(flatten)]
    setting: setting::Options,
    /// Accounts
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..))]
    accounts: u64,
    /// Seconds for which the reader holds each snapshot
    #[arg(long, default_value_t = 1.0, value_parser = crate::commands::seconds)]
    held: f64,
    /// An option of the protocol, as NAME=VALUE; may be given several times
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = name_and_value)]
    options: Vec<(String, u64)>,
}

fn name_and_value(text: &str) -> Result<(String, u64), String> {
    let parsed = text.split_once('=').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?} is no NAME=VALUE with a whole number"))
}

/// The initial balance of an account.
const BALANCE: i64 = 1_000_000;

/// A row for reads and writes.
#[derive(Table)]
#[table(name = "account", key(id), ordered)]
struct Account {
    id: u64,
    balance: i64,
    /// When it was written last, in nanoseconds of this process.
    written: u64,
    note: Bytes<80>,
}

/// The results of readers, in all rounds.
#[derive(Debug, Default)]
struct ReaderResults {
    /// The number of snapshots, and of sums in them.
    snapshots: u64,
    sums: u64,
    /// Bytes in use after loading, and the largest number later.
    loaded_bytes: usize,
    version_bytes: usize,
    /// The longest time for which a snapshot was held, in seconds.
    held: f64,
    /// Nanoseconds between the newest write in a snapshot and the taking of the snapshot.
    ages: Vec<f64>,
}

/// Transfers until told to stop. Returns the number of commits.
fn transfer(db: &Database, table: &Handle<Account>, accounts: u64, seed: u64, goes_on: impl Fn(u64) -> bool) -> u64 {
    let (mut session, mut rng, mut done) = (db.session(), Rng::from_seed(seed), 0);
    while goes_on(done) {
        let from = rng.below(accounts);
        let to = (from + 1 + rng.below(accounts - 1)) % accounts;
        let transfer = session.transact(|tx| {
            for (id, amount) in [(from, -1), (to, 1)] {
                tx.update(table, &id, |row| {
                    row.set_balance(row.balance() + amount);
                    row.set_written(Instant::now().nanoseconds());
                })?;
            }
            Ok(())
        });
        transfer.expect("no other thread writes");
        done += 1;
    }
    done
}

/// Sums all accounts in one snapshot after another, each held for this long, until told to stop. Takes at least one.
///
/// # Panics
/// If a sum is not the initial one: the snapshot was inconsistent.
fn read(
    db: &Database,
    table: &Handle<Account>,
    accounts: u64,
    held: f64,
    stop: &AtomicBool,
    found: &mut ReaderResults,
) {
    let mut session = db.session();
    loop {
        let taken = Instant::now();
        let snapshot = session.snapshot(|tx| {
            let (mut sums, mut newest) = (0, 0);
            loop {
                let mut sum = 0;
                for row in tx.scan(table, ..) {
                    let row = row?;
                    sum += row.balance();
                    newest = newest.max(row.written());
                }
                assert_eq!(sum, BALANCE * accounts as i64, "a snapshot that does not hold together");
                sums += 1;
                if stop.load(Ordering::Relaxed) || taken.elapsed().as_secs_f64() >= held {
                    return Ok::<_, Abort>((sums, newest));
                }
            }
        });
        let (sums, newest) = *snapshot.expect("snapshots do not conflict");
        let bytes = db.statistics().memory_bytes.saturating_sub(found.loaded_bytes);
        found.version_bytes = found.version_bytes.max(bytes);
        found.held = found.held.max(taken.elapsed().as_secs_f64());
        found.snapshots += 1;
        found.sums += sums;
        if newest > 0 {
            found.ages.push(taken.nanoseconds().saturating_sub(newest) as f64);
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Runs the comparison.
fn report(
    setting: &Setting,
    (accounts, held): (u64, f64),
    options: &[(String, u64)],
) -> Result<Report, Box<dyn Error>> {
    let builder = Database::builder().protocol(&setting.protocol).seed(setting.seed);
    let db = options.iter().fold(builder, |builder, (name, value)| builder.protocol_option(name, *value)).open()?;
    let table = db.create::<Account>()?;
    let empty_bytes = db.statistics().memory_bytes;
    let mut session = db.session();
    for id in 0..accounts {
        let written = Instant::now().nanoseconds();
        let account = Account { id, balance: BALANCE, written, note: Bytes::default() };
        session.transact(|tx| tx.insert(&table, &account))?;
    }
    let loaded_bytes = db.statistics().memory_bytes;
    // More than a version takes, since it includes the record and the index.
    let row_bytes = loaded_bytes.saturating_sub(empty_bytes) as f64 / accounts as f64;
    let mut found = ReaderResults { loaded_bytes, ..ReaderResults::default() };
    let write = |length: Length, seed, beside: &mut (dyn FnMut(&AtomicBool) + Send)| {
        let (stop, began) = (AtomicBool::new(false), Instant::now());
        thread::scope(|scope| {
            let other = scope.spawn(|| beside(&stop));
            let done = transfer(&db, &table, accounts, seed, |done| match length {
                Length::Operations(most) => done < most,
                Length::Seconds(seconds) => began.elapsed().as_secs_f64() < seconds,
            });
            let seconds = began.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            other.join().expect("a reader finds every sum right");
            done as f64 / seconds.max(1e-9)
        })
    };
    let idle = |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let mut with = |length, seed| write(length, seed, &mut |stop| read(&db, &table, accounts, held, stop, &mut found));
    let mut without = |length, seed| write(length, seed, &mut |stop| idle(stop));
    let arms: &mut [Arm<'_>] = &mut [&mut with, &mut without];
    let rates = alternate(arms, setting.rounds, setting.length, setting.seed);
    let mut report = Report::new(["beside", "idle"], setting)?;
    let ReaderResults { snapshots, sums, version_bytes, ages, .. } = found;
    // The bound in the protocol's README: one version for each update, during two intervals and the age of the
    // oldest transaction.
    let interval = db.protocol_options().find(|(knob, _)| knob.name == "snapshot_interval_ms").map_or(0, |(_, ms)| ms);
    let updates = 2.0 * rates[0].iter().copied().fold(0.0, f64::max);
    let bound_bytes = updates * (2.0 * interval as f64 / 1e3 + found.held) * row_bytes;
    let micro = |part| quantile(&ages, part).map(|age| age / 1e3);
    let case = json!({
        "accounts": accounts, "held_seconds": held, "options": options, "snapshots": snapshots, "sums": sums,
        "version_bytes": version_bytes,
        "version_bytes_bound": bound_bytes,
        "age_us": { "p50": micro(0.5), "p99": micro(0.99), "max": micro(1.0) },
    });
    talk!(
        "{snapshots} snapshots, {sums} sums; at most {version_bytes} bytes of versions, bound {bound_bytes:.0}; {}",
        case["age_us"]
    );
    report.add(&format!("transfers between {accounts} accounts"), case, [&rates[0], &rates[1]])?;
    Ok(report)
}

/// Measures and prints the results.
pub(crate) fn run(options: Options) -> Result<Value, Box<dyn Error>> {
    let Options { setting, accounts, held, options } = options;
    let setting = Setting::try_from(setting)?;
    if setting.length.seconds().is_some_and(|seconds| seconds < held) {
        return Err(
            format!("a round must last at least as long as a snapshot is held, {held} s: increase --seconds").into()
        );
    }
    Ok(report(&setting, (accounts, held), &options)?.json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_sum_beside_one_arm_and_every_sum_is_right() {
        let present = ("snapshot_interval_ms".to_owned(), 0);
        for (protocol, options) in [("dbx", vec![]), ("dbx-tc", vec![]), ("dbx-tc", vec![present])] {
            let report = report(&Setting::small(protocol, 3, 3_000), (50, 0.002), &options).expect("memory").json();
            let case = &report["comparisons"][0];
            assert!(
                case["snapshots"].as_u64() >= Some(3) && case["sums"].as_u64() >= case["snapshots"].as_u64(),
                "{report}"
            );
            assert!(case["ratio"]["median"].as_f64() > Some(0.0), "{report}");
            assert!(case["age_us"]["p50"].as_f64() <= case["age_us"]["max"].as_f64(), "{report}");
            assert!(case["age_us"]["p99"].is_number() && case["version_bytes"].is_number(), "{report}");
            assert!(case["version_bytes_bound"].as_f64() > Some(0.0), "{report}");
        }
    }

    /// Sums that are read while the writer writes, without a snapshot, are wrong. The reader must notice.
    #[test]
    #[should_panic(expected = "a snapshot that does not hold together")]
    fn canary_money_from_nowhere_is_noticed() {
        let db = Database::builder().protocol("dbx").open().expect("memory");
        let table = db.create::<Account>().expect("a valid table");
        let account = Account { id: 0, balance: BALANCE + 1, written: 0, note: Bytes::default() };
        db.session().transact(|tx| tx.insert(&table, &account)).expect("alone");
        read(&db, &table, 1, 0.0, &AtomicBool::new(false), &mut ReaderResults::default());
    }
}
