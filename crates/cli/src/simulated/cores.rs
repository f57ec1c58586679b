//! A workload on simulated cores: one core for each terminal thread, one for the ticker, one that sets the phases.

use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde_json::{Map, Value, json};
use seriatim::htm::{Backend, HtmMode};
use seriatim::{Batch, BatchStatistics, Database, Durability, Executor, Statistics, thread};
use seriatim_base::simulated::WorkingSet;
use seriatim_base::{interrupt, talk};
use seriatim_simulate::costs::Table;
use seriatim_simulate::validation::{Verdict, judge};
use seriatim_simulate::{Core, Costs, Guard, Machine, Role, Step, Work};
use seriatim_workload::Workload;

use crate::runner::{self, MEASURE, Measured, Plan, STOP, ThreadResults, WARM_UP};
use crate::working_sets::Region;
use crate::{Failure, callers};

/// The built-in tables, by the machines on which they were measured. The first is the default: it has costs of regions.
const TABLES: [(&str, &str); 2] = [
    ("xeon-2", include_str!("../../../simulate/costs/xeon-2.json")),
    ("epyc-2", include_str!("../../../simulate/costs/epyc-2.json")),
];

/// The cost of every step with `--costs unit`, in nanoseconds.
const UNIT: f64 = 10.0;

/// Default lengths in virtual seconds. A core needs as long for one as a processor does for ten or more.
const SECONDS: f64 = 0.1;
const WARMUP: f64 = 0.02;

/// Virtual seconds after its end at which a run is abandoned. A transaction may wait for another as long as its
/// protocol allows, and may be retried a thousand times.
const GRACE: f64 = 30.0;

/// Real time for which no core holds the thread. The longest step touches fresh memory.
const HELD: Duration = Duration::from_secs(60);

/// The meaning of `--htm auto`: modelled regions, whatever the processor has.
pub(crate) const AUTO: HtmMode = HtmMode::Modelled;

/// The mode of regions in tables: modelled, or absent.
pub(super) const MODELLED: &str = "modelled";
pub(super) const ABSENT: &str = "absent";

/// The word in reports for regions that were not compared with a processor's.
const UNVALIDATED: &str = "modelled, unvalidated";

/// The simulation of cores, and the costs of its steps.
pub(crate) struct Simulation {
    table: Option<Table>,
}

impl Simulation {
    /// Reads the options. Sets the cores and their virtual time in the plan.
    pub(crate) fn of(matches: &ArgMatches, plan: &mut Plan) -> Result<Option<Simulation>, Failure> {
        let Some(&cores) = matches.get_one::<u16>("simulate-cores") else { return Ok(None) };
        let unfit = |what: &str| Err(Failure::Usage(format!("simulated cores have no {what}")));
        if plan.durability != Durability::Off {
            return unfit("disk: give --durability off");
        }
        match matches.get_one::<String>("htm").map(|name| name.parse::<HtmMode>()) {
            None | Some(Ok(HtmMode::Auto | HtmMode::Absent)) => {}
            _ => return unfit("regions but modelled ones: give --htm auto or absent"),
        }
        plan.threads = usize::from(cores);
        let is_given = |name| {
            // Some measurements have no warm-up.
            matches.try_contains_id(name).is_ok() && matches.value_source(name) == Some(ValueSource::CommandLine)
        };
        if !is_given("seconds") {
            plan.seconds = SECONDS;
        }
        if !is_given("warmup") {
            plan.warmup = WARMUP;
        }
        let table = match matches.get_one::<String>("costs").map(String::as_str) {
            Some("unit") => None,
            Some(file) => Some(read(&PathBuf::from(file))?),
            None => Some(default_table()?),
        };
        Ok(Some(Simulation { table }))
    }

    /// Runs `one` on each core with its number, at equal cost for every step. For measurements that do not
    /// depend on time.
    pub(crate) fn crew<T>(&self, plan: &Plan, one: impl Fn(usize) -> T) -> Result<Vec<T>, Failure> {
        let one = &one;
        let roles = (0..plan.threads).map(|at| Role::new(format!("core {at}"), move || one(at))).collect();
        let longest = Duration::from_secs_f64(plan.seconds + GRACE);
        let guard = Guard { longest, held: HELD, report: Box::new(give_up) };
        let run = seriatim_simulate::run(&unit(), guard, roles).map_err(Failure::run)?;
        Ok(run.results.into_iter().map(|result| result.expect("it does not panic")).collect())
    }

    /// The costs of the workload's steps under the protocol of this database.
    pub(crate) fn costs(&self, db: &Database, workload: &str) -> Result<Charged<'_>, Failure> {
        let protocol = db.protocol().name;
        let regions = if db.backend() == Backend::Modelled { MODELLED } else { ABSENT };
        let Some(table) = &self.table else {
            return Ok(Charged { table: None, regions, verdict: None, validated_at: None, costs: unit() });
        };
        // If no regions could be measured, a step costs as much as without regions.
        let costs = [regions, ABSENT].iter().find_map(|regions| table.costs(protocol, regions, workload));
        let costs = costs.ok_or_else(|| {
            Failure::Usage(format!(
                "the costs {} have none for {protocol}: measure them with `seriatim simulate costs`",
                table.name
            ))
        })?;
        let (verdict, validated_at) =
            (judge(&table.validation, protocol, regions), table.validated_at(protocol, regions));
        Ok(Charged { table: Some(table), regions, verdict, validated_at, costs })
    }
}

/// Runs each role on its own core. Roles charge their own work. They are abandoned this many virtual seconds
/// after they should have ended.
pub(crate) fn roles<T>(seconds: f64, roles: Vec<(String, Box<dyn FnOnce() -> T + Send>)>) -> Result<Vec<T>, Failure> {
    let roles = roles.into_iter().map(|(name, body)| Role { name, body: body as Box<dyn FnOnce() -> T> }).collect();
    let guard = Guard { longest: Duration::from_secs_f64(seconds + GRACE), held: HELD, report: Box::new(give_up) };
    let run = seriatim_simulate::run(&unit(), guard, roles).map_err(Failure::run)?;
    let names = run.cores.into_iter().map(|core| core.name);
    let gives = |(result, name)| match result {
        Ok(gives) => Ok(gives),
        Err(_) => Err(Failure::Run(format!("{name} panicked"))),
    };
    run.results.into_iter().zip(names).map(gives).collect()
}

/// Equal costs for every step.
fn unit() -> Costs {
    let work = Work::of_steps([UNIT; Step::ALL.len()]);
    let (overlapped, region, abort) = (UNIT, UNIT, UNIT);
    let machine = Machine { transfer: UNIT, overlapped, pause: UNIT, yields: UNIT, sleep: UNIT, region, abort };
    Costs { work, machine }
}

pub(super) fn default_table() -> Result<Table, Failure> {
    own(TABLES[0])
}

fn own((name, text): (&str, &str)) -> Result<Table, Failure> {
    parse(text).map_err(|error| Failure::Run(format!("the program's table {name}: {error}")))
}

/// The built-in table of this name, or the table in this file.
pub(super) fn read(file: &PathBuf) -> Result<Table, Failure> {
    if let Some(table) = TABLES.into_iter().find(|(name, _)| file.as_os_str() == *name) {
        return own(table);
    }
    let text = std::fs::read_to_string(file).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    parse(&text).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}

fn parse(text: &str) -> Result<Table, String> {
    let table: Table = serde_json::from_str(text).map_err(|error| error.to_string())?;
    table.check()?;
    Ok(table)
}

/// The costs of steps in a run.
pub(crate) struct Charged<'t> {
    table: Option<&'t Table>,
    regions: &'static str,
    /// How far simulations under the protocol differ from runs on threads; `None` if they were not compared.
    verdict: Option<Verdict>,
    /// The revision at which they were compared.
    validated_at: Option<&'t str>,
    costs: Costs,
}

/// The result of a core.
enum Ended {
    Terminal(Box<ThreadResults>),
    /// The counts of the database and its executor at the beginning and at the end of the measurement.
    Phases(Box<[(Statistics, Option<BatchStatistics>); 2]>),
    /// A core without a result.
    Helper,
}

impl Charged<'_> {
    pub(crate) fn run(&self, db: &Database, workload: &dyn Workload, plan: &Plan) -> Result<Measured, Failure> {
        let phase = AtomicU8::new(if plan.warmup > 0.0 { WARM_UP } else { MEASURE });
        // The count of transactions, which is not shown here.
        let count = AtomicU64::new(0);
        // Epochs of the measurement until a signal ended it.
        let (cut, uncut) = (AtomicU64::new(u64::MAX), u64::MAX);
        // The versions that loading replaced become old.
        (0..4).for_each(|_| db.step());
        let (phase, count, cut, interval) = (&phase, &count, &cut, EPOCH);
        let ended = |part: ThreadResults| Ended::Terminal(Box::new(part));
        let mut roles: Vec<Role<'_, Ended>> = Vec::new();
        // The cores that execute transactions come first.
        let executor = match plan.batch {
            Batch::Off => {
                let terminals = runner::terminals(db, workload, plan, plan.threads).map_err(Failure::run)?;
                roles.extend(terminals.into_iter().enumerate().map(|(at, terminals)| {
                    let serve = move || ended(runner::serve(db, workload, plan, terminals, phase, count));
                    Role::new(format!("terminal {at}"), serve)
                }));
                None
            }
            _ => {
                let (executor, bodies) = Executor::apart(db, plan.threads).map_err(Failure::run)?;
                roles.extend(bodies.into_iter().enumerate().map(|(at, body)| {
                    let run = move || {
                        body();
                        Ended::Helper
                    };
                    Role::new(format!("executor {at}"), run)
                }));
                let executor = Arc::new(executor);
                let seats = callers::seats(db, workload, plan).map_err(Failure::run)?;
                roles.extend(seats.into_iter().enumerate().map(|(at, seats)| {
                    let executor = Arc::clone(&executor);
                    let call = move || ended(callers::serve(db, workload, executor, seats, phase, count));
                    Role::new(format!("caller {at}"), call)
                }));
                Some(executor)
            }
        };
        roles.push(Role::new("ticker", move || {
            let mut measured = 0;
            while phase.load(Ordering::Relaxed) != STOP {
                thread::sleep(interval);
                db.step();
                measured += u64::from(phase.load(Ordering::Relaxed) == MEASURE);
                if interrupt::is_requested() && phase.swap(STOP, Ordering::Relaxed) != STOP {
                    cut.store(measured, Ordering::Relaxed);
                }
            }
            Ended::Helper
        }));
        // The executor ends with its last handle.
        roles.push(Role::new("phases", move || {
            let counted =
                || (db.statistics(), executor.as_ref().map(|executor: &Arc<Executor>| executor.batch_statistics()));
            thread::sleep(Duration::from_secs_f64(plan.warmup));
            let base = counted();
            let _ = phase.compare_exchange(WARM_UP, MEASURE, Ordering::Relaxed, Ordering::Relaxed);
            thread::sleep(Duration::from_secs_f64(plan.seconds));
            phase.store(STOP, Ordering::Relaxed);
            Ended::Phases(Box::new([base, counted()]))
        }));
        let longest = Duration::from_secs_f64(plan.warmup + plan.seconds + GRACE);
        let guard = Guard { longest, held: HELD, report: Box::new(give_up) };
        let run = match seriatim_simulate::run(&self.costs, guard, roles) {
            Ok(run) => run,
            Err(stuck) => {
                // Some transactions will never end, and closing the database would wait for them.
                talk!("seriatim: {stuck}");
                exit(1);
            }
        };
        let (mut parts, mut statistics, mut batches) = (Vec::new(), None, None);
        for result in run.results {
            match result.expect("a terminal does not panic") {
                Ended::Terminal(part) => parts.push(*part),
                Ended::Phases(counted) => {
                    let [(before, batches_before), (after, batches_after)] = *counted;
                    statistics = Some(after.since(&before));
                    batches = batches_after.zip(batches_before).map(|(after, before)| after.since(before));
                }
                Ended::Helper => {}
            }
        }
        let measured = Measured::new(workload, statistics.unwrap_or_default());
        let simulated = Some(self.report(plan, &run.cores, run.switches));
        let cut = cut.load(Ordering::Relaxed);
        let seconds = if cut == uncut { plan.seconds } else { interval.as_secs_f64() * cut as f64 };
        let warmup = (plan.warmup, None);
        Ok(Measured { simulated, batches, warmup, ..runner::merge(measured, parts, seconds) })
    }

    /// The report's entry for the cores. Steps are those of the whole run, including the warm-up.
    fn report(&self, plan: &Plan, cores: &[Core], switches: u64) -> Value {
        let terminals = &cores[..plan.threads];
        let steps = Step::ALL.map(|step| {
            let count: u64 = terminals.iter().map(|core| core.counts[step as usize]).sum();
            (step.name().to_owned(), json!(count))
        });
        let ended: f64 = terminals.iter().map(|core| core.ended.as_secs_f64()).sum();
        let waited: f64 = terminals.iter().map(|core| core.waited.as_secs_f64()).sum();
        let slept: f64 = terminals.iter().map(|core| core.slept.as_secs_f64()).sum();
        let is_unvalidated = self.regions == MODELLED && self.verdict.is_none();
        json!({
            "cores": plan.threads,
            "costs": self.table.map_or("unit", |table| &table.name),
            "measured_on": self.table.map(|table| &table.measured_on),
            "regions": if is_unvalidated { UNVALIDATED } else { self.regions },
            "proven": self.verdict.is_some_and(|verdict| verdict.proven),
            "validated_at": self.validated_at,
            "steps": Map::from_iter(steps),
            "regions_begun": terminals.iter().map(|core| core.regions).sum::<u64>(),
            "transfers": terminals.iter().map(|core| core.transfers).sum::<u64>(),
            "waited": if ended > 0.0 { waited / ended } else { 0.0 },
            "slept": if ended > 0.0 { slept / ended } else { 0.0 },
            "switches": switches,
        })
    }
}

/// Ends the process, since a core cannot be stopped.
fn give_up(reason: String) {
    talk!("seriatim: {reason}");
    exit(1);
}

/// As for databases whose ticker is a thread.
const EPOCH: Duration = Duration::from_millis(10);

/// The lines touched by the regions that the core has committed since the last call.
pub(crate) fn working_sets() -> Vec<Region> {
    let region = |set: WorkingSet| Region { lines: [set.read, set.written, set.lines], decides: set.decides };
    seriatim_base::simulated::working_sets().into_iter().map(region).collect()
}

/// Runs `body` at this virtual time, in seconds.
pub(crate) fn at<R>(seconds: f64, body: impl FnOnce() -> R) -> R {
    seriatim_simulate::at(Duration::from_secs_f64(seconds), body)
}
