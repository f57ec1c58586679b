//! `seriatim bench`: loads, runs and checks a workload, and reports the results.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use seriatim::htm::{Emulation, HtmMode};
use seriatim::{Batch, Database, Durability, Statistics, rng};
use seriatim_base::clock::Instant;
use seriatim_base::{interrupt as requests, say, talk};
use seriatim_bench::commands::Measurement;
use seriatim_workload::{Entry, LoadError, Loading, Workload, roofline};

use crate::machine::{self, Machine};
use crate::report::{self, Consistency};
use crate::runner::{self, Plan};
use crate::simulated::{self, Simulation};
use crate::{Failure, args, below, callers, interrupt, partitions, reorder, upstream};

const MIB: usize = 1 << 20;

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    if let Some(measurement) = Measurement::find(matches) {
        return measure(measurement.map_err(Failure::usage)?);
    }
    let Some((name, matches)) = matches.subcommand() else { unreachable!("clap requires a workload") };
    let seed = matches.get_one::<u64>("seed").copied().unwrap_or_else(rng::entropy);
    talk!("seed {seed}");
    match (name, Entry::find(name)) {
        (_, Ok(entry)) => workload(entry, matches, seed),
        ("index", _) => below::index(matches, seed),
        ("regions", _) => below::regions(matches, seed),
        ("middle-tier", _) => upstream::run(matches, seed),
        ("partitions", _) => partitions::run(matches, seed),
        ("reorder", _) => reorder::run(matches, seed),
        _ => speed_of_light(matches, seed),
    }
}

/// Runs a measurement below the workloads.
fn measure(measurement: Measurement) -> Result<(), Failure> {
    if measurement.is_reported() {
        interrupt::catch()?;
    }
    let began = Instant::now();
    let more = [("revision", json!(machine::revision())), ("machine", json!(Machine::here()))];
    let more = more.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    // Distinguishes an error of the output from an error of the measurement.
    measurement.run(&machine::place(), more).map_err(|error| match error.downcast::<std::io::Error>() {
        Ok(error) => Failure::from(*error),
        Err(error) => Failure::run(error),
    })?;
    interrupt::conclude(began.elapsed().as_secs_f64())
}

/// The plan of a run, from the options that the command has.
pub(crate) fn plan(matches: &ArgMatches, seed: u64) -> Plan {
    let seconds = |name| matches.try_get_one::<f64>(name).ok().flatten().copied().unwrap_or(0.0);
    let threads = matches.get_one::<u16>("threads").copied().unwrap_or(1);
    let durability = durability(matches);
    let given = matches.try_get_one::<u32>("outstanding").ok().flatten().copied();
    let outstanding = given.unwrap_or(if durability == Durability::Sync { 1 } else { OUTSTANDING }) as usize;
    let (threads, warmup) = (usize::from(threads), seconds("warmup"));
    let batch = matches.try_get_one::<Batch>("batch").ok().flatten().copied().unwrap_or_default();
    let batch_placement = matches.try_get_one("batch-placement").ok().flatten().copied().unwrap_or_default();
    let settles = matches.try_get_one::<bool>("settle").is_ok_and(|settles| settles == Some(&true));
    let touches = matches.try_get_one::<u64>("prefault").is_ok_and(|mib| mib.is_none());
    let seconds = seconds("seconds");
    Plan { threads, seconds, warmup, seed, durability, outstanding, batch, batch_placement, touches, settles }
}

/// If the options give partitions but no threads, threads of an executor own the partitions. An executor has
/// few transactions in progress, so this does not apply when results wait for the disk.
fn own_partitions(matches: &ArgMatches, plan: &mut Plan) {
    let protocol = matches.get_one::<String>("protocol").map_or("auto", String::as_str);
    let owners = args::owners(matches, protocol, Machine::here().cores);
    if let Some(owners) = owners.filter(|_| plan.batch == Batch::Off && !plan.waits()) {
        talk!("{owners} threads own the partitions");
        // An executor that does not batch.
        (plan.threads, plan.batch) = (owners, Batch::Size(1));
    }
}

/// Refuses settings that batching cannot use or cannot show.
fn check_batch(plan: &Plan) -> Result<(), Failure> {
    let batch = plan.batch;
    if batch != Batch::Off && plan.waits() {
        return Err(Failure::Usage(format!(
            "--batch {batch} keeps few transactions in progress, which would wait for the disk: give --durability off \
             or async"
        )));
    }
    if !matches!(batch, Batch::Off | Batch::Size(1)) && plan.threads < 2 {
        return Err(Failure::Usage(format!(
            "--batch {batch} places calls on several threads: give --threads 2 or more, or --batch 1 for an executor \
             alone"
        )));
    }
    Ok(())
}

/// Refuses names of tables that the workload lacks.
fn check_names(db: &Database) -> Result<(), Failure> {
    let Statistics { tables, hot_tables_missing, .. } = db.statistics();
    let Some(name) = hot_tables_missing.first() else { return Ok(()) };
    let tables: Vec<String> = tables.into_iter().map(|table| table.name).collect();
    Err(Failure::Usage(format!("there is no table {name:?}; the tables are {}", tables.join(", "))))
}

/// How many results of a thread wait under group commit. Some tens of thousands of transactions a second then
/// keep the thread busy during flushes of some milliseconds.
const OUTSTANDING: u32 = 10_000;

/// The durability mode. With only a directory given, it is the default of databases on disk.
fn durability(matches: &ArgMatches) -> Durability {
    let given = matches.try_get_one::<String>("durability").ok().flatten();
    let has_data = matches.try_get_one::<PathBuf>("data").ok().flatten().is_some();
    let default = if has_data { Durability::Group } else { Durability::Off };
    given.and_then(|name| name.parse().ok()).unwrap_or(default)
}

fn speed_of_light(matches: &ArgMatches, seed: u64) -> Result<(), Failure> {
    let plan = plan(matches, seed);
    interrupt::catch()?;
    let rate = roofline::run(plan.threads, plan.seconds, seed, &requests::is_requested);
    if args::is_json(matches) {
        let report = json!({
            "workload": "roofline", "threads": rate.threads, "seconds": rate.seconds,
            "interrupted": requests::is_requested(), "committed": rate.transactions,
            "committed_per_second": rate.per_second,
            "nanoseconds_per_transaction": rate.nanoseconds,
            "seed": seed, "revision": machine::revision(), "machine": Machine::here(),
        });
        say!("{report}\n")?;
    } else {
        let what = format!("roofline, {} threads, {:.1} s", rate.threads, rate.seconds);
        say!(
            "{}throughput     {:.0} transactions a second, {:.0} ns each\n",
            machine::conditions(&what, seed),
            rate.per_second,
            rate.nanoseconds
        )?;
    }
    interrupt::conclude(rate.seconds)
}

fn workload(entry: &Entry, matches: &ArgMatches, seed: u64) -> Result<(), Failure> {
    let values = args::values(entry, matches, seed)?;
    let workload = (entry.open)(&values).map_err(Failure::usage)?;
    let mut plan = plan(matches, seed);
    let simulation = Simulation::of(matches, &mut plan)?;
    if simulation.is_none() {
        own_partitions(matches, &mut plan);
    }
    check_batch(&plan)?;
    let home = Home::of(matches, &plan)?;
    let db = open(matches, &plan, home.as_ref())?;
    interrupt::catch()?;
    talk!("{} under {} with regions {}", entry.name, db.protocol().name, db.backend());
    let costs = simulation.as_ref().map(|simulation| simulation.costs(&db, entry.name)).transpose()?;
    match simulation {
        None => load(&db, workload.as_ref(), plan.threads)?,
        // The result must depend only on the seed.
        Some(_) => simulated::at(0.0, || load(&db, workload.as_ref(), 1))?,
    }
    check_names(&db)?;
    let wanted = matches.get_one::<u64>("prefault").map(|mib| *mib as usize * MIB);
    // On threads, the warm-up tells how much memory is needed.
    let bytes = wanted.unwrap_or_else(|| costs.as_ref().map_or(0, |_| growth_of_cores(entry.name, &plan)));
    if bytes > 0 {
        talk!("touching {} MiB", bytes / MIB);
        db.prefault(bytes).map_err(Failure::run)?;
    }
    let tick = |second: u64, count: u64, warm: bool| {
        let mark = if warm { " (warm-up)" } else { "" };
        talk!("{second:>4} s  {count:>10} transactions{mark}");
    };
    let measured = match (plan.batch, &costs) {
        (_, Some(costs)) => costs.run(&db, workload.as_ref(), &plan)?,
        (Batch::Off, None) => runner::run(&db, workload.as_ref(), &plan, tick).map_err(Failure::run)?,
        _ => {
            let executor = db.executor(plan.threads).map_err(Failure::run)?;
            callers::run(&db, executor, workload.as_ref(), &plan, tick).map_err(Failure::run)?
        }
    };
    if measured.seconds == 0.0 {
        interrupt::check("before the measurement")?;
    }
    let consistency = if matches.get_flag("no-check") || matches.get_flag("without-validation") {
        Consistency::Skipped
    } else {
        let check = || workload.consistency(&db);
        // A database has one clock for its life. No core runs for so long after the end of the run.
        let checked = match &costs {
            None => check(),
            Some(_) => simulated::at(plan.warmup + plan.seconds + 60.0, check),
        };
        Consistency::Checked(checked.map_err(Failure::run)?)
    };
    let report = report::Report { entry, values: &values, db: &db, plan: &plan, measured: &measured, consistency };
    let text = || match args::is_json(matches) {
        true => format!("{}\n", report.json(matches)),
        false => report.text(matches),
    };
    // The report of a simulation is made at the virtual time of its end.
    let printed = say!("{}", costs.as_ref().map_or_else(text, |_| simulated::at(plan.warmup + plan.seconds, text)));
    // Inconsistent data are reported even if the reader of the output is gone.
    report.verdict().map_err(Failure::Run)?;
    printed?;
    interrupt::conclude(measured.seconds)
}

/// The directory of a run's database.
struct Home {
    directory: PathBuf,
    /// Whether it is removed at the end.
    is_temporary: bool,
}

impl Home {
    /// The directory that the options give; `None` in memory.
    fn of(matches: &ArgMatches, plan: &Plan) -> Result<Option<Home>, Failure> {
        let given = matches.get_one::<PathBuf>("data");
        if plan.durability == Durability::Off {
            let misplaced = ["data", "log-dir", "checkpoint-every", "outstanding"].into_iter();
            return match misplaced.into_iter().find(|name| matches.contains_id(name)) {
                Some(name) => {
                    Err(Failure::Usage(format!("--{name} needs durability: choose --durability async, group or sync")))
                }
                None => Ok(None),
            };
        }
        let Some(directory) = given else {
            let name = format!("seriatim-bench-{}-{:016x}", std::process::id(), rng::entropy());
            let directory = std::env::temp_dir().join(name);
            std::fs::create_dir(&directory).map_err(|error| at(&directory, &error))?;
            return Ok(Some(Home { directory, is_temporary: true }));
        };
        empty(directory)?;
        Ok(Some(Home { directory: directory.clone(), is_temporary: false }))
    }
}

/// Checks that a benchmark's directory is new or empty.
fn empty(directory: &Path) -> Result<(), Failure> {
    match std::fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
        Ok(false) => Err(Failure::Usage(format!(
            "{} is not empty: name a new or empty directory for the benchmark's database",
            directory.display()
        ))),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at(directory, &error)),
        _ => Ok(()),
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.is_temporary
            && let Err(error) = std::fs::remove_dir_all(&self.directory)
        {
            talk!("seriatim: {}: {error}", self.directory.display());
        }
    }
}

fn at(directory: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", directory.display()))
}

/// Opens the database that the options describe, with a worker for each thread and one for checks.
fn open(matches: &ArgMatches, plan: &Plan, home: Option<&Home>) -> Result<Database, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let htm = match text("htm").parse::<HtmMode>().map_err(Failure::usage)? {
        HtmMode::Auto if matches.contains_id("simulate-cores") => simulated::AUTO,
        HtmMode::Emulated(emulation) => HtmMode::Emulated(Emulation { seed: plan.seed, ..emulation }),
        mode => mode,
    };
    let workers = plan.threads + callers::threads(plan) + 1;
    let builder = Database::builder().protocol(&text("protocol")).htm(htm).workers(workers).seed(plan.seed);
    let builder = builder.batch(plan.batch).batch_placement(plan.batch_placement);
    let builder = builder.track_contention(matches.contains_id("contention"));
    let builder = builder.step_helpers(matches.contains_id("simulate-cores"));
    let mut builder = builder.prefetch(text("prefetch") == "on").procedure_snapshots(text("snapshots") == "on");
    builder = match &*text("pauses") {
        "regulated" => builder.regulate_pauses(true),
        "doubled" => builder.regulate_pauses(false),
        _ => builder,
    };
    for (name, value) in matches.get_many::<(String, u64)>("option").into_iter().flatten() {
        builder = builder.protocol_option(name, *value);
    }
    if let Some(partitions) = args::partitions(matches, &text("protocol")) {
        builder = builder.partitions(partitions);
    }
    if let Some(names) = matches.get_many::<String>("hot-tables") {
        builder = builder.hot_tables(names);
    }
    if matches.get_flag("without-validation") {
        builder = builder.without_validation();
    }
    if let Some(mib) = matches.get_one::<u64>("memory-limit") {
        builder = builder.memory_limit(usize::try_from(*mib << 20).unwrap_or(usize::MAX));
    }
    if let Some(Home { directory, .. }) = home {
        talk!("durability {} in {}", plan.durability, directory.display());
        builder = builder.path(directory).durability(plan.durability);
        let logs = matches.get_many::<PathBuf>("log-dir").into_iter().flatten();
        // A relative path would be resolved in the database's directory.
        let logs = logs.map(|log| {
            std::fs::create_dir_all(log).and_then(|()| std::path::absolute(log)).map_err(|error| at(log, &error))
        });
        builder = builder.log_directories(logs.collect::<Result<Vec<_>, _>>()?);
        if let Some(bytes) = matches.get_one::<Option<u64>>("checkpoint-every") {
            builder = builder.checkpoint_bytes(*bytes);
        }
    }
    builder.open().map_err(Failure::usage)
}

fn load(db: &Database, workload: &dyn Workload, threads: usize) -> Result<(), Failure> {
    let style = ProgressStyle::with_template("loading {wide_bar} {percent:>3} % {elapsed} {per_sec}");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let shown = Mutex::new(bar);
    let progress = |done: u64, total: u64| {
        if let Ok(bar) = shown.try_lock() {
            bar.set_length(total);
            bar.set_position(done);
        }
    };
    let is_stopped = &requests::is_requested;
    let loaded = workload.load(db, &Loading { threads, progress: &progress, is_stopped, ..Loading::default() });
    if let Ok(bar) = shown.lock() {
        bar.finish_and_clear();
    }
    match loaded {
        Err(LoadError::Stopped) => interrupt::check("while loading"),
        loaded => loaded.map_err(Failure::run),
    }
}

/// Bytes that a run on simulated cores is expected to add. TPC-C keeps every order.
fn growth_of_cores(workload: &str, plan: &Plan) -> usize {
    if workload != "tpcc" {
        return 64 * MIB;
    }
    // Measured: about 0.6 KB for each of some 500,000 transactions a second and thread. At most half of the memory.
    let wanted = (plan.seconds + plan.warmup) * plan.threads as f64 * 300.0 * MIB as f64;
    let memory = Machine::here().memory_bytes.unwrap_or(4 << 30) as f64;
    wanted.min(memory / 2.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetching_is_on_unless_it_is_switched_off() {
        for (more, wanted) in [(&[][..], true), (&["--prefetch", "on"], true), (&["--prefetch", "off"], false)] {
            let given = ["seriatim", "bench", "tpcc"].iter().chain(more);
            let matches = args::command().try_get_matches_from(given).expect("these arguments are valid");
            let (_, bench) = matches.subcommand().expect("a command");
            let (_, tpcc) = bench.subcommand().expect("a workload");
            let db = open(tpcc, &plan(tpcc, 7), None).expect("a database opens");
            let is_on = db.session().transact(|tx| Ok(tx.prefetching())).expect("nothing conflicts");
            assert_eq!(*is_on, wanted, "{more:?}");
        }
    }
}
