//! `seriatim bench index` and `seriatim bench regions`: measurements of an index without transactions, and of
//! the limits of regions. Their reports have the fields of workloads' reports where these apply.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};
use seriatim::catalog::Organization;
use seriatim::htm::{Emulation, HtmMode, RegionStatistics};
use seriatim::thread;
use seriatim_base::{interrupt as requests, say};
use seriatim_bench::index::{self, Way};
use seriatim_bench::regions::{self, SCATTERED, WORDS, Work};

use crate::args::{is_json, number, run_options, simulation};
use crate::bench::plan;
use crate::machine::{self, Machine};
use crate::simulated::{self, Simulation};
use crate::{Failure, interrupt, report};

/// Cache lines in a KiB.
const LINES: u32 = 1024 / (WORDS * size_of::<u64>()) as u32;

pub(crate) fn commands() -> [Command; 2] {
    let htm = || {
        number("htm", "MODE", "auto", "The back end for regions").value_parser(["auto", "rtm", "emulated", "absent"])
    };
    let percent =
        |name, default, help| number(name, "PERCENT", default, help).value_parser(value_parser!(u32).range(0..=100));
    let kib = |name, help| number(name, "KIB", "0", help).value_parser(value_parser!(u32).range(0..=1 << 20));
    let index = Command::new("index")
        .about(
            "An index without transactions: lookups, in-place changes of 104 bytes and insertions, with uniform keys",
        )
        .arg(number("index", "hash|ordered", "ordered", "The kind of index").value_parser(["hash", "ordered"]))
        .arg(
            number("records", "N", "1000000", "Records at the start")
                .value_parser(value_parser!(u64).range(1..=1 << 40)),
        )
        .arg(percent("reads", "80", "Operations that only read; the others read a record and change it"))
        .arg(percent("inserts", "0", "Operations that insert a record"))
        .arg(
            number("ops", "N", "1", "Operations that count as one transaction, for a comparison with ycsb")
                .value_parser(value_parser!(u32).range(1..=1000)),
        )
        .arg(
            number(
                "regions",
                "changes|operations",
                "changes",
                "What runs in a region where there are any: what changes something, as under transactions; or each \
                 operation whole, lookups too, with one lock for all where there are none",
            )
            .value_parser(["changes", "operations"]),
        )
        .arg(htm());
    let regions = Command::new("regions")
        .about(
            "The share of regions that commit, by the lines that they touch or their duration; each thread has its \
                own memory",
        )
        .arg(kib("read", "Consecutive cache lines that a region reads"))
        .arg(kib("written", "Consecutive cache lines that a region writes"))
        .arg(
            Arg::new("writes-first")
                .long("writes-first")
                .action(ArgAction::SetTrue)
                .help("Write before reading; by default reads come first"),
        )
        .arg(
            Arg::new("scattered")
                .long("scattered")
                .value_name("LINES")
                .value_parser(value_parser!(u32).range(1..=SCATTERED as i64))
                .conflicts_with_all(["read", "written", "writes-first", "microseconds"])
                .help("Write this many random cache lines within 4 MiB instead"),
        )
        .arg(
            Arg::new("microseconds")
                .long("microseconds")
                .value_name("US")
                .value_parser(microseconds)
                .conflicts_with_all(["read", "written", "writes-first"])
                .help("Load one word repeatedly for this long instead"),
        )
        .arg(htm())
        .args(simulation());
    [index, regions].map(run_options)
}

fn microseconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.01..=1e6).contains(&number) => Ok(number),
        _ => Err("expected microseconds from 0.01 to 1000000".to_owned()),
    }
}

fn text<'m>(matches: &'m ArgMatches, name: &str) -> &'m str {
    matches.get_one::<String>(name).map_or("", String::as_str)
}

/// The value of an option with a default.
fn value<N: Copy + Default + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> N {
    matches.get_one(name).copied().unwrap_or_default()
}

fn mode(matches: &ArgMatches, seed: u64) -> Result<HtmMode, Failure> {
    Ok(match text(matches, "htm").parse().map_err(Failure::usage)? {
        HtmMode::Emulated(emulation) => HtmMode::Emulated(Emulation { seed, ..emulation }),
        mode => mode,
    })
}

/// The fields that both reports have, followed by `more`.
fn report(seed: u64, regions: &RegionStatistics, backend: &str, more: Value) -> Value {
    let mut report = json!({
        "user_aborted": 0, "conflict_aborted": 0, "failed": 0, "consistency": "passed",
        "htm": report::regions(regions, backend), "interrupted": requests::is_requested(),
        "seed": seed, "revision": machine::revision(), "machine": Machine::here(),
    });
    if let (Some(fields), Value::Object(more)) = (report.as_object_mut(), more) {
        fields.extend(more);
    }
    report
}

fn fates(regions: &RegionStatistics, backend: &str) -> String {
    let RegionStatistics { started, aborted, fallback, .. } = *regions;
    let share = 100.0 * aborted.total() as f64 / started.max(1) as f64;
    let (conflict, capacity, explicit, system) = (aborted.conflict, aborted.capacity, aborted.explicit, aborted.system);
    format!(
        "regions        {backend}: {started} begun, {share:.2} % aborted ({conflict} conflict, {capacity} capacity, \
         {explicit} \
         explicit, {system} system), {fallback} fell back"
    )
}

pub(crate) fn index(matches: &ArgMatches, seed: u64) -> Result<(), Failure> {
    let plan = plan(matches, seed);
    let (reads, inserts, ops) = (value(matches, "reads"), value(matches, "inserts"), value::<u32>(matches, "ops"));
    if reads + inserts > 100 {
        return Err(Failure::Usage(format!("{reads} % reads and {inserts} % inserts exceed 100 %")));
    }
    let organization = if text(matches, "index") == "hash" { Organization::Hash } else { Organization::Ordered };
    let way = if text(matches, "regions") == "operations" { Way::Operations } else { Way::Changes };
    let options = index::Options {
        organization,
        records: value(matches, "records"),
        reads,
        inserts,
        way,
        htm: mode(matches, seed)?,
        threads: plan.threads,
        seconds: plan.seconds,
        seed,
    };
    // Fails for an unavailable back end before anything is loaded.
    seriatim::htm::Htm::new(options.htm).map_err(Failure::usage)?;
    interrupt::catch()?;
    let (done, backend) = index::run(options).map_err(Failure::run)?;
    let (committed, per_second) = (done.operations / u64::from(ops), done.per_second / f64::from(ops));
    if !is_json(matches) {
        let what = format!("{} index, {} threads, {:.1} s", text(matches, "index"), plan.threads, done.seconds);
        say!(
            "{}throughput     {:.0} operations a second: {} changes, {} insertions\n{}\n{PASSED}",
            machine::conditions(&what, seed),
            done.per_second,
            done.changes,
            done.inserts,
            fates(&done.regions, &backend)
        )?;
        return interrupt::conclude(done.seconds);
    }
    let options = ["index", "regions", "htm"].map(|name| (name.to_owned(), json!(text(matches, name))));
    let mut options: serde_json::Map<String, Value> = options.into_iter().collect();
    options.extend(["reads", "inserts", "ops"].map(|name| (name.to_owned(), json!(value::<u32>(matches, name)))));
    options.insert("records".to_owned(), json!(value::<u64>(matches, "records")));
    let more = json!({
        "workload": "index", "threads": plan.threads, "seconds": done.seconds, "operations": done.operations,
        "committed": committed, "committed_per_second": per_second, "changes": done.changes,
        "inserts": done.inserts, "options": options,
    });
    say!("{}\n", report(seed, &done.regions, &backend, more))?;
    interrupt::conclude(done.seconds)
}

/// The last line of the report of a run that passed its check.
const PASSED: &str = "verdict        passed: nothing was lost\n";

pub(crate) fn regions(matches: &ArgMatches, seed: u64) -> Result<(), Failure> {
    let mut plan = plan(matches, seed);
    let simulation = Simulation::of(matches, &mut plan)?;
    let lines = |name| (value::<u32>(matches, name) * LINES) as usize;
    let lingers = matches.get_one::<f64>("microseconds").copied();
    let scattered = matches.get_one::<u32>("scattered").copied();
    let work = match (lingers, scattered) {
        (Some(_), _) if simulation.is_some() => {
            return Err(Failure::Usage(
                "simulated cores have no interrupts: give --read, --written or --scattered".to_owned(),
            ));
        }
        (Some(microseconds), _) => Work::Linger(microseconds),
        (None, Some(lines)) => Work::Scatter { lines: lines as usize, writes: true },
        (None, None) => {
            let writes_first = matches.get_flag("writes-first");
            Work::Touch { read: lines("read"), written: lines("written"), writes_first }
        }
    };
    let htm = match mode(matches, seed)? {
        HtmMode::Auto if simulation.is_some() => simulated::AUTO,
        mode => mode,
    };
    let backend = seriatim::htm::Htm::new(htm).map_err(Failure::usage)?.backend().to_string();
    if simulation.is_none() {
        interrupt::catch()?;
    }
    let one = |worker: usize| regions::run(work, worker as u16, htm, plan.seconds).map_err(Failure::usage);
    let parts = match &simulation {
        Some(simulation) => simulation.crew(&plan, one)?,
        None => thread::scope(|scope| {
            let running: Vec<_> = (0..plan.threads).map(|worker| scope.spawn(move || one(worker))).collect();
            running.into_iter().map(|thread| thread.join().expect("a body does not panic")).collect()
        }),
    };
    let done = regions::Measured::sum(parts.into_iter().collect::<Result<Vec<_>, _>>()?);
    if done.wrong > 0 {
        return Err(Failure::Run(format!("{} words do not have the value that was stored last", done.wrong)));
    }
    if !is_json(matches) {
        let cores = if simulation.is_some() { "simulated cores" } else { "threads" };
        let what = format!("regions, {} {cores}, {:.1} s", plan.threads, done.seconds);
        say!("{}{}\n{PASSED}", machine::conditions(&what, seed), fates(&done.regions, &backend))?;
        return interrupt::conclude(done.seconds);
    }
    let simulated = simulation.map(|_| json!({ "cores": plan.threads, "regions": backend, "proven": false }));
    let more = json!({
        "workload": "regions", "threads": plan.threads, "seconds": done.seconds, "committed": done.turns,
        "committed_per_second": done.turns as f64 / done.seconds.max(f64::MIN_POSITIVE), "simulated": simulated,
        "options": {
            "read": value::<u32>(matches, "read"), "written": value::<u32>(matches, "written"),
            "writes-first": matches.get_flag("writes-first"), "scattered": scattered, "microseconds": lingers,
            "htm": text(matches, "htm"),
        },
    });
    say!("{}\n", report(seed, &done.regions, &backend, more))?;
    interrupt::conclude(done.seconds)
}
