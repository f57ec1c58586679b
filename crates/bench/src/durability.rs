//! The cost of durability: Measures TPC-C's full mix with group commit and without durability, and the time until a
//! result is durable. A single client runs with group commit, and with a flush for each transaction. The rest are log
//! bytes by table, rate and latency during a checkpoint, and recovery compared with the original run.
//!
//! The arms run in turn, each on its own growing database. In each round they have the same inputs. Two threads
//! have many outstanding results. The same run also measures the disk, with batches of the log's size.

mod lone;

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};
use seriatim::{Builder, Database, Durability, LogStatistics, Recovery, RecoveryPhase, StorageError, thread};
use seriatim_base::clock::Instant;
use seriatim_base::{TableId, disk};
use seriatim_redo::entry::Change;
use seriatim_redo::manifest::Manifest;
use seriatim_redo::replay::{Apply, Outcome, Replay, Version};
use seriatim_workload::{Ending, Loading, Submitted, Workload};

use crate::disk::{Rate, measure, percentiles};
use crate::measure::{Arm, Length, Quartiles, alternate};
use crate::setting::{self, Setting};

/// The options.
#[derive(Args, Clone, Debug)]
#[group(id = "durability")]
pub(crate) struct Options {
    #[command(flatten)]
    setting: setting::Options,
    /// A new or empty directory for the database, on the disk to measure
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Warehouses
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    warehouses: u16,
    /// The most results of a thread that wait for durability
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    outstanding: u32,
}

/// Threads of each arm.
const THREADS: usize = 2;

/// The results of some threads.
#[derive(Debug, Default)]
struct Driven {
    committed: u64,
    seconds: f64,
    /// Microseconds from the beginning of transactions until their results were released.
    durable_us: Vec<f64>,
}

impl Driven {
    fn rate(&self) -> f64 {
        self.committed as f64 / self.seconds.max(1e-9)
    }

    fn add(&mut self, part: Driven) {
        self.committed += part.committed;
        self.seconds += part.seconds;
        self.durable_us.extend(part.durable_us);
    }
}

/// The time until results were durable, compared with the flushes of that time.
#[derive(Clone, Copy, Debug)]
struct Latency {
    /// Microseconds from the beginning of a transaction until its result was released: median, 99th percentile,
    /// maximum.
    durable_us: [f64; 3],
    /// The mean time between flushes, in microseconds. A result that only waits for the next flush takes about
    /// one of them.
    flush_interval_us: f64,
}

impl Latency {
    /// From the results, and the number of flushes meanwhile.
    fn new(driven: &Driven, flushes: u64) -> Latency {
        Latency {
            durable_us: percentiles(driven.durable_us.clone()),
            flush_interval_us: driven.seconds * 1e6 / flushes.max(1) as f64,
        }
    }

    /// Median and 99th percentile, in flush intervals.
    fn intervals(&self) -> [f64; 2] {
        [self.durable_us[0], self.durable_us[1]].map(|us| us / self.flush_interval_us.max(1e-3))
    }

    /// The fields of a JSON object.
    fn json(&self) -> Map<String, Value> {
        let ([p50, p99, max], [p50_intervals, p99_intervals]) = (self.durable_us, self.intervals());
        Map::from_iter([
            ("durable_latency_us".to_owned(), json!({ "p50": p50, "p99": p99, "max": max })),
            ("flush_interval_us".to_owned(), json!(self.flush_interval_us)),
            ("durable_latency_flush_intervals".to_owned(), json!({ "p50": p50_intervals, "p99": p99_intervals })),
        ])
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([p50, p99, max], [p50_intervals, p99_intervals]) = (self.durable_us.map(|us| us / 1e3), self.intervals());
        write!(f, "p50 {p50:.2}, p99 {p99:.2}, max {max:.2}; flushes every {:.2}", self.flush_interval_us / 1e3)?;
        write!(f, ", so p50 {p50_intervals:.1} and p99 {p99_intervals:.1} intervals")
    }
}

/// Rate and latency of transactions in some period.
#[derive(Clone, Copy, Debug)]
struct Served {
    per_second: f64,
    latency: Latency,
}

impl Served {
    /// Measures while `run` executes transactions on a database with a log.
    fn while_driven<T>(
        db: &Database,
        run: impl FnOnce() -> Result<(Driven, T), Box<dyn Error>>,
    ) -> Result<(Served, T), Box<dyn Error>> {
        let start = db.statistics();
        let (driven, also) = run()?;
        let flushes = db.statistics().since(&start).log.unwrap_or_default().flushes;
        Ok((Served { per_second: driven.rate(), latency: Latency::new(&driven, flushes) }, also))
    }

    fn json(&self) -> Value {
        let mut object = self.latency.json();
        object.insert("per_second".to_owned(), json!(self.per_second));
        object.into()
    }
}

/// Runs terminals on threads, each with `outstanding` results in progress, until `ends` returns true for the
/// number of transactions of a thread.
fn drive(
    db: &Database,
    workload: &dyn Workload,
    outstanding: usize,
    seed: u64,
    ends: impl Fn(u64) -> bool + Sync,
) -> Result<Driven, Box<dyn Error>> {
    let terminals = (0..THREADS as u16).map(|at| workload.terminal(db, at, seed)).collect::<Result<Vec<_>, _>>()?;
    let begin = Instant::now();
    let parts: Vec<Driven> = thread::scope(|scope| {
        let ends = &ends;
        let run = |mut terminal: Box<dyn seriatim_workload::Terminal>| {
            let (mut session, mut driven) = (db.session(), Driven::default());
            let mut queue: VecDeque<(Submitted, Instant)> = VecDeque::with_capacity(outstanding);
            let take = |driven: &mut Driven, (submitted, began): (Submitted, Instant)| {
                match submitted.wait().ending {
                    Ending::Committed => driven.committed += 1,
                    Ending::UserAborted => {}
                    Ending::Failed(error) => panic!("a transaction failed: {error}"),
                }
                driven.durable_us.push(began.elapsed().as_nanos() as f64 / 1e3);
            };
            for count in 0.. {
                if ends(count) {
                    break;
                }
                let began = Instant::now();
                queue.push_back((terminal.submit_one(&mut session), began));
                while queue.front().is_some_and(|first| queue.len() >= outstanding || first.0.is_ready()) {
                    queue.pop_front().into_iter().for_each(|first| take(&mut driven, first));
                }
            }
            // Results that are still waiting count, too.
            queue.drain(..).for_each(|first| take(&mut driven, first));
            driven
        };
        let running: Vec<_> = terminals.into_iter().map(|terminal| scope.spawn(move || run(terminal))).collect();
        running.into_iter().map(|thread| thread.join().expect("a terminal does not panic")).collect()
    });
    // The threads' own times are not used.
    let mut sum = Driven { seconds: begin.elapsed().as_secs_f64(), ..Driven::default() };
    parts.into_iter().for_each(|part| sum.add(part));
    Ok(sum)
}

/// As [`drive`], for a length.
fn drive_for(
    db: &Database,
    workload: &dyn Workload,
    outstanding: usize,
    seed: u64,
    length: Length,
) -> Result<Driven, Box<dyn Error>> {
    let begin = Instant::now();
    drive(db, workload, outstanding, seed, |count| match length {
        Length::Operations(most) => count >= most,
        Length::Seconds(seconds) => begin.elapsed().as_secs_f64() >= seconds,
    })
}

/// Bytes of the log by table and kind of entry, as recovery reads them.
type Bytes = BTreeMap<(String, &'static str), (u64, u64)>;

/// Counts the versions of a replay, and applies none.
struct Counter {
    names: BTreeMap<TableId, String>,
    bytes: Mutex<Bytes>,
}

impl Apply for Counter {
    fn apply(&self, _: usize, version: &Version<'_>) -> Result<Outcome, StorageError> {
        let Some(table) = self.names.get(&version.table).cloned() else { return Ok(Outcome::Applied) };
        let key = version.key.to_bytes().len() as u64;
        let mut bytes = self.bytes.lock().expect("no panic");
        for change in version.changes {
            let payload = match change {
                Change::Row(bytes) | Change::Patch(bytes) | Change::Delta(bytes) => bytes.len(),
                Change::Delete => 0,
            };
            let (entries, sum) = bytes.entry((table.clone(), change.kind())).or_default();
            *entries += 1;
            *sum += key + payload as u64;
        }
        Ok(Outcome::Applied)
    }
}

/// The log of a closed database by table: entries, and bytes of keys and columns.
fn bytes_by_table(directory: &Path) -> Result<Bytes, StorageError> {
    let disk = disk::real();
    let manifest = Manifest::read(disk.as_ref(), directory)?;
    let replay = Replay::open(disk.as_ref(), directory, &manifest)?;
    let tables = &replay.catalogue().catalogue.tables;
    let names = tables.iter().map(|table| (table.id, table.definition.name.to_string())).collect();
    let counter = Counter { names, bytes: Mutex::default() };
    replay.run(disk.as_ref(), 1, &counter, &|_| {})?;
    Ok(counter.bytes.into_inner().expect("no panic"))
}

/// All results.
struct Measured {
    off: Vec<f64>,
    group: Vec<f64>,
    committed: u64,
    latency: Latency,
    log: LogStatistics,
    bytes: Bytes,
    disk: Rate,
    recovery: Recovery,
    /// The time of recovery that was spent in replaying the log.
    replay_seconds: f64,
    before: Served,
    during: Served,
    after: Served,
    checkpoint: seriatim::Checkpoint,
    lone: lone::SingleClientRates,
}

/// A checkpoint is compared with so many times its duration before it and after it.
const BESIDE: u64 = 3;

fn builder(setting: &Setting, directory: &Path) -> Builder {
    let builder = Database::builder().protocol(&setting.protocol).seed(setting.seed).path(directory);
    builder.durability(Durability::Group).checkpoint_bytes(None)
}

fn measure_all(
    directory: &Path,
    warehouses: u16,
    outstanding: usize,
    setting: &Setting,
) -> Result<Measured, Box<dyn Error>> {
    let lone = lone::measure(directory, setting)?;
    let (directory, beside) = (&directory.join("group"), directory.join("beside"));
    let workload = setting.tpcc(warehouses);
    let in_memory = setting.load(&workload)?;
    let db = builder(setting, directory).open()?;
    workload.load(&db, &Loading::default())?;
    setting.prefault(&in_memory, 1)?;
    setting.prefault(&db, 1)?;
    // Excludes the loaded rows from what follows.
    db.checkpoint()?;
    let start = db.statistics();
    let mut all = Driven::default();
    let mut off =
        |length, seed| drive_for(&in_memory, &workload, outstanding, seed, length).expect("it is loaded").rate();
    let mut group = |length, seed| {
        let driven = drive_for(&db, &workload, outstanding, seed, length).expect("it is loaded");
        let rate = driven.rate();
        all.add(driven);
        rate
    };
    let arms: &mut [Arm<'_>] = &mut [&mut off, &mut group];
    let mut rates = alternate(arms, setting.rounds, setting.length, setting.seed).into_iter();
    let (off, group) = (rates.next().unwrap_or_default(), rates.next().unwrap_or_default());
    db.flush()?;
    let end = db.statistics();
    let log = end.since(&start).log.unwrap_or_default();
    drop((db, in_memory));
    let batch = usize::try_from(log.bytes / log.flushes.max(1))?.next_multiple_of(4096);
    let disk = measure(directory, batch, setting.length)?;
    let bytes = bytes_by_table(directory)?;
    let phases = std::sync::Arc::new(Mutex::new((None, None)));
    let noted = std::sync::Arc::clone(&phases);
    // Memory is touched beforehand, as for the run.
    let opening = builder(setting, directory).prefault(end.memory_bytes);
    let db = opening.on_recovery(move |at| {
        let mut noted = noted.lock().expect("no panic");
        match at.phase {
            RecoveryPhase::Checkpoint => noted.0 = Some(Instant::now()),
            RecoveryPhase::Log => noted.1 = Some(Instant::now()),
            _ => {}
        }
    });
    let db = db.open()?;
    let replay_seconds = match *phases.lock().expect("no panic") {
        (Some(loaded), Some(replayed)) => replayed.since(loaded).as_secs_f64(),
        _ => 0.0,
    };
    let recovery = db.recovery().cloned().ok_or("there was a database")?;
    drop(db);
    let (before, during, after, checkpoint) = beside_a_checkpoint(&beside, &workload, outstanding, setting)?;
    Ok(Measured {
        off,
        group,
        committed: all.committed,
        latency: Latency::new(&all, log.flushes),
        log,
        bytes,
        disk,
        recovery,
        replay_seconds,
        before,
        during,
        after,
        checkpoint,
        lone,
    })
}

/// Rate and latency before, during and after a checkpoint, on a separate database.
fn beside_a_checkpoint(
    directory: &Path,
    workload: &dyn Workload,
    outstanding: usize,
    setting: &Setting,
) -> Result<(Served, Served, Served, seriatim::Checkpoint), Box<dyn Error>> {
    let db = builder(setting, directory).open()?;
    workload.load(&db, &Loading::default())?;
    setting.prefault(&db, 2)?;
    let without = |first: u64| {
        let run = || {
            let mut all = Driven::default();
            for seed in first..first + BESIDE {
                all.add(drive_for(&db, workload, outstanding, seed, setting.length)?);
            }
            Ok((all, ()))
        };
        Served::while_driven(&db, run).map(|(served, ())| served)
    };
    let is_taken = AtomicBool::new(false);
    let run = || {
        thread::scope(|scope| {
            let taking = scope.spawn(|| {
                let taken = db.checkpoint();
                is_taken.store(true, Ordering::Relaxed);
                taken
            });
            let seed = setting.seed + BESIDE;
            // Each thread runs at least one transaction, even if the checkpoint is short.
            let ends = |count: u64| count > 0 && is_taken.load(Ordering::Relaxed);
            let driven = drive(&db, workload, outstanding, seed, ends);
            let taken = taking.join().expect("a checkpoint does not panic")?;
            Ok((driven?, taken.ok_or("the database is on disk")?))
        })
    };
    let before = without(setting.seed)?;
    let (during, checkpoint) = Served::while_driven(&db, run)?;
    let after = without(setting.seed + BESIDE + 1)?;
    Ok((before, during, after, checkpoint))
}

impl Measured {
    fn ratio(&self) -> Quartiles {
        Quartiles::of_ratios(&self.group, &self.off)
    }

    /// Bytes of commits in the log for each transaction.
    fn bytes_each(&self) -> f64 {
        self.log.payload_bytes as f64 / self.committed.max(1) as f64
    }

    /// Transactions per second that the disk would permit if it did nothing else.
    fn disk_allows(&self) -> f64 {
        self.disk.bytes_per_second * self.committed as f64 / self.log.bytes.max(1) as f64
    }

    /// Transactions per second of the replay.
    fn replayed_per_second(&self) -> f64 {
        self.committed as f64 / self.replay_seconds.max(1e-9)
    }

    /// The rate during a checkpoint, relative to the mean of the rates before and after.
    fn rate_beside(&self) -> f64 {
        2.0 * self.during.per_second / (self.before.per_second + self.after.per_second).max(1e-9)
    }

    fn json(&self) -> Value {
        let rates = |rates: &[f64]| Quartiles::of(rates.iter().copied()).json();
        let each = |sum: u64| sum as f64 / self.committed.max(1) as f64;
        let flush = self.log.flush_time / u32::try_from(self.log.flushes.max(1)).unwrap_or(u32::MAX);
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let bytes: Vec<Value> = self
            .bytes
            .iter()
            .map(|((table, kind), (entries, bytes))| {
                json!({ "table": table, "kind": kind, "entries_each": each(*entries), "bytes_each": each(*bytes) })
            })
            .collect();
        let seconds = self.recovery.duration.as_secs_f64();
        let object = json!({
            "ratio": self.ratio().json(),
            "off_per_second": rates(&self.off), "group_per_second": rates(&self.group),
            "disk": self.disk.json(), "disk_allows_per_second": self.disk_allows(),
            "log": {
                "bytes_per_transaction": each(self.log.bytes), "payload_bytes_per_transaction": self.bytes_each(),
                "flushes": self.log.flushes, "flush_us_mean": micros(flush),
                "flush_us_max": micros(self.log.flush_time_max), "entries": bytes,
            },
            "recovery": {
                "seconds": seconds, "replay_seconds": self.replay_seconds, "entries": self.recovery.entries,
                "entries_per_second": self.recovery.entries as f64 / self.replay_seconds.max(1e-9),
                "transactions_per_second": self.replayed_per_second(),
                "over_writing": self.replayed_per_second() / Quartiles::of(self.group.iter().copied()).median,
            },
            "checkpoint": {
                "rows": self.checkpoint.rows, "bytes": self.checkpoint.bytes,
                "seconds": self.checkpoint.duration.as_secs_f64(),
                "before": self.before.json(), "during": self.during.json(), "after": self.after.json(),
                "ratio": self.rate_beside(),
            },
            "one_client": self.lone.json(),
        });
        let Value::Object(mut object) = object else { unreachable!("it was written as one") };
        object.extend(self.latency.json());
        object.into()
    }

    fn text(&self) -> String {
        let thousands = |rates: &[f64]| Quartiles::of(rates.iter().map(|rate| rate / 1e3));
        let mut lines = vec![
            format!("off, k tx/s         {:.1}", thousands(&self.off)),
            format!("group, k tx/s       {:.1}", thousands(&self.group)),
            format!("group over off      {:.3}", self.ratio()),
            format!("the disk permits    {:.1} k tx/s", self.disk_allows() / 1e3),
            format!("until durable, ms   {}", self.latency),
            format!("log, bytes each     {:.0}", self.bytes_each()),
        ];
        for ((table, kind), (entries, bytes)) in &self.bytes {
            let each = |sum: u64| sum as f64 / self.committed.max(1) as f64;
            lines.push(format!("    {table:12} {kind:8} {:8.1} in {:.2} entries", each(*bytes), each(*entries)));
        }
        let replay = self.replayed_per_second();
        let written = Quartiles::of(self.group.iter().copied()).median;
        lines.push(format!("replay, k tx/s      {:.1}, {:.2} of the rate of writing", replay / 1e3, replay / written));
        let (checkpoint, seconds) = (&self.checkpoint, self.checkpoint.duration.as_secs_f64());
        let (rows, bytes) = (checkpoint.rows as f64 / 1e6, checkpoint.bytes as f64 / 1e6);
        let beside = self.rate_beside();
        lines.push(format!("a checkpoint        {rows:.1} M rows, {bytes:.0} MB in {seconds:.1} s"));
        lines.push(format!("during it           {beside:.2} of the rate before and after"));
        lines.push(format!("    durable, ms     {}", self.during.latency));
        lines.push(format!("    before it       {}", self.before.latency));
        lines.push(format!("    after it        {}", self.after.latency));
        lines.extend(self.lone.lines());
        lines.join("\n")
    }
}

/// Measures and prints the results.
pub(crate) fn run(options: Options) -> Result<Value, Box<dyn Error>> {
    let Options { setting, data, warehouses, outstanding } = options;
    let setting = Setting::try_from(setting)?;
    let measured = measure_all(&data, warehouses, outstanding as usize, &setting)?;
    setting.format.line(&measured.text())?;
    Ok(measured.json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "nightly: seconds"]
    fn log_entries_are_counted_by_table_and_recovered() {
        let name = format!("seriatim-bench-durability-{:016x}", seriatim::rng::entropy());
        let home = std::env::temp_dir().join(name);
        let setting = Setting::small("auto", 2, 200);
        let measured = measure_all(&home, 1, 50, &setting).expect("memory and a disk");
        std::fs::remove_dir_all(&home).expect("it is there");
        assert!(measured.off.len() == 2 && measured.group.len() == 2 && measured.ratio().median > 0.0);
        let sum: u64 = measured.bytes.values().map(|(_, bytes)| bytes).sum();
        assert!(sum > 0 && sum <= measured.log.payload_bytes, "{sum} of {}", measured.log.payload_bytes);
        let entries: u64 = measured.bytes.values().map(|(entries, _)| entries).sum();
        // Several entries of one commit form one version.
        assert!(entries >= measured.recovery.entries && measured.recovery.entries > 0);
        // A payment adds to warehouse and district, a new order to the district's next order.
        for (table, kind) in [("order_line", "row"), ("stock", "patch"), ("warehouse", "delta"), ("district", "delta")]
        {
            assert!(
                measured.bytes.contains_key(&(table.to_owned(), kind)),
                "no {kind} of {table}: {:?}",
                measured.bytes
            );
        }
        assert!(measured.bytes_each() > 0.0);
        assert!(measured.checkpoint.rows > 0 && measured.during.per_second > 0.0);
        let json = measured.json();
        assert!(json["recovery"]["transactions_per_second"].as_f64() > Some(0.0), "{json}");
        let ratio = json["one_client"]["ratio"]["median"].as_f64().expect("a number");
        assert!(ratio > 0.0, "{json}");
        let text = measured.text();
        assert!(
            text.contains("group over sync") && text.contains("order_line") && text.contains("before it"),
            "{text}"
        );
        for served in [&json, &json["checkpoint"]["before"], &json["checkpoint"]["during"]] {
            let (us, intervals) = (&served["durable_latency_us"], &served["durable_latency_flush_intervals"]);
            let [p50, p99, max] = ["p50", "p99", "max"].map(|at| us[at].as_f64().expect("a number"));
            assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{served}");
            let interval = served["flush_interval_us"].as_f64().expect("a number");
            let back = ["p50", "p99"].map(|at| intervals[at].as_f64().expect("a number") * interval);
            assert!((back[0] - p50).abs() < 1e-3 * p50 && (back[1] - p99).abs() < 1e-3 * p99, "{served}");
        }
    }

    #[test]
    fn latency_is_reported_in_multiples_of_the_time_between_flushes() {
        let durable_us = (1..=100).map(|at| f64::from(at) * 1000.0).collect();
        let latency = Latency::new(&Driven { committed: 100, seconds: 2.0, durable_us }, 100);
        assert_eq!((latency.flush_interval_us, latency.durable_us), (20_000.0, [51_000.0, 99_000.0, 100_000.0]));
        assert_eq!(latency.intervals(), [2.55, 4.95]);
        let text = "p50 51.00, p99 99.00, max 100.00; flushes every 20.00, so p50 2.5 and p99 5.0 intervals";
        assert_eq!(latency.to_string(), text);
    }
}
