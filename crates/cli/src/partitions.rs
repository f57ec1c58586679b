//! `seriatim bench partitions`: partitions with one owner each. They run the microbenchmark, TPC-C in plain
//! arrays, or the declared procedures of any workload that can be divided. Reports have the fields of
//! workloads' reports where these apply.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};
use seriatim_base::{say, talk};
use seriatim_bench::partitions::{KEYS, Measured, Mix, Plan, costs, declared, model as measuring, on_threads, tpcc};
use seriatim_bench::stationary::{MEASURED_MAX, SETTLED_MAX, TIMES_MAX};
use seriatim_partition::Scheme;
use seriatim_partition::model::{self, Recommendation, Times};
use seriatim_transport::Counts;
use seriatim_workload::{Entry, WORKLOADS};

use crate::args::{format, is_json, number, seconds};
use crate::machine::{self, Machine};
use crate::{Failure, simulated};

/// The most threads of clients.
const THREADS_MAX: u32 = 100;
/// The number of client threads on simulated cores, by default: one for each client machine.
const THREADS_SIMULATED: u32 = 8;
/// The most simulated cores.
const CORES_MAX: u32 = 128;
/// Lengths in virtual seconds, by default.
const SECONDS: f64 = 0.05;
const WARMUP: f64 = 0.01;

fn share_of(name: &'static str, help: &'static str) -> Arg {
    number(name, "SHARE", "0", help).value_parser(share)
}

fn count(name: &'static str, default: &'static str, most: i64, help: &'static str) -> Arg {
    number(name, "N", default, help).value_parser(value_parser!(u32).range(1..=most))
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Options for the mix of transactions.
pub(crate) fn mix(command: Command) -> Command {
    command
        .arg(share_of("multi", "The share of transactions that use two partitions, from 0 to 1"))
        .arg(share_of(
            "conflicts",
            "The share of transactions that write a key of one of the first clients, which writes it nearly always, \
             from 0 to 1",
        ))
        .arg(share_of("aborts", "The share of transactions that roll back by themselves at one partition, from 0 to 1"))
        .arg(
            number(
                "rounds",
                "1|2",
                "1",
                "Rounds of a transaction on two partitions; with two, the first reads and the second writes",
            )
            .value_parser(value_parser!(u32).range(1..=2)),
        )
}

/// Options for the system and the length of the run.
pub(crate) fn system(command: Command) -> Command {
    command
        .arg(number("delay", "US", "0", "Additional microseconds for each message").value_parser(microseconds))
        .arg(
            number("work", "US", "0", "Additional microseconds of work for the keys of a transaction")
                .value_parser(microseconds),
        )
        .arg(count("clients", "40", 1_000_000, "Clients, each with its own keys and one transaction in progress"))
        .arg(
            Arg::new("client-threads")
                .long("client-threads")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=i64::from(THREADS_MAX)))
                .help(
                    "Threads that the clients share; under locking they coordinate. By default 1, on simulated \
                     cores 8",
                ),
        )
        .arg(count(
            "batch",
            "16",
            1_000_000,
            "How many messages an owner or the coordinator handles before it sends the resulting messages",
        ))
        .arg(number("warmup", "S", "1", "Seconds of the warm-up, which is not measured").value_parser(seconds))
        .arg(number("seconds", "S", "10", "Length of a measurement").value_parser(seconds))
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .help("The seed of all inputs; random by default, and printed"),
        )
        .arg(flag(
            "simulate-cores",
            "Run each owner, the coordinator and each thread of clients on a simulated core. Seconds are virtual: by \
             default 0.05 after a warm-up of 0.01. The seed determines the result. Needs a build with the feature \
             `simulate`",
        ))
}

/// TPC-C with rows in arrays and its own code for transactions. The papers' figures use it.
const ARRAYS: &str = "tpcc-arrays";
/// The microbenchmark.
const KEYS_ALONE: &str = "twelve-key";

/// The workload, and options that only some workloads have.
fn workload() -> [Arg; 8] {
    let percent = |name, default, help| {
        let between = |text: &str| match text.parse() {
            Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
            _ => Err("expected a percentage from 0 to 100".to_owned()),
        };
        number(name, "PERCENT", default, help).value_parser(between)
    };
    let declared = WORKLOADS.iter().map(|entry| entry.name).filter(|name| *name != KEYS_ALONE);
    [
        number(
            "workload",
            "W",
            KEYS_ALONE,
            "The microbenchmark on a hash table; the declared procedures of a workload, on one database for each \
             partition; or TPC-C with its own transactions on plain arrays, in one round",
        )
        .value_parser(PossibleValuesParser::new([KEYS_ALONE, ARRAYS].into_iter().chain(declared))),
        number("warehouses", "N", "4", "TPC-C: warehouses, which are assigned to clients in turn")
            .value_parser(value_parser!(u16).range(1..=256)),
        number("transactions", "T", "full", "TPC-C: all five transactions, or only New-Order")
            .value_parser(["full", "new-order"]),
        percent("remote", "1", "TPC-C: order lines that another warehouse supplies"),
        percent("remote-payments", "15", "TPC-C: payments by a customer of another warehouse"),
        number("scale", "S", "spec", "TPC-C: the specification's rows, or a hundredth of them")
            .value_parser(["spec", "small"]),
        Arg::new("set").long("set").value_name("OPTION=VALUE").action(ArgAction::Append).help(
            "Declared procedures: an option that `seriatim bench WORKLOAD --help` shows. May be given \
             several times",
        ),
        Arg::new("data").long("data").value_name("DIR").value_parser(value_parser!(PathBuf)).help(
            "Declared procedures: keep partitions and the decisions of coordinators in databases in this directory, so \
             that results are durable. It is new, empty, or from an earlier run of `tpcc` with the same options",
        ),
    ]
}

/// The kind of workload.
enum WorkloadKind {
    Keys,
    Arrays,
    Declared(&'static Entry),
}

/// Refuses options that the workload lacks.
fn check_workload(matches: &ArgMatches) -> Result<WorkloadKind, Failure> {
    let name = matches.get_one::<String>("workload").map_or(KEYS_ALONE, String::as_str);
    let which = match name {
        KEYS_ALONE => WorkloadKind::Keys,
        ARRAYS => WorkloadKind::Arrays,
        _ => WorkloadKind::Declared(Entry::find(name).map_err(Failure::usage)?),
    };
    let of_keys = ["multi", "conflicts", "aborts", "rounds", "undo", "history"];
    let of_tpcc = ["warehouses", "transactions", "remote", "remote-payments", "scale"];
    let others: Vec<&str> = match &which {
        WorkloadKind::Keys => of_tpcc.into_iter().chain(["set", "data"]).collect(),
        WorkloadKind::Arrays => of_keys.into_iter().chain(["set", "data"]).collect(),
        WorkloadKind::Declared(entry) if entry.name == "tpcc" => of_keys.to_vec(),
        WorkloadKind::Declared(_) => of_keys.into_iter().chain(of_tpcc).collect(),
    };
    let is_given = |name: &&&str| matches.value_source(name) == Some(ValueSource::CommandLine);
    if let Some(other) = others.iter().find(is_given) {
        return Err(Failure::Usage(format!("workload {name} has no --{other}")));
    }
    Ok(which)
}

/// The plan for declared procedures, from the arguments and from the common plan.
fn declared_plan(entry: &Entry, matches: &ArgMatches, plan: &Plan) -> Result<declared::Plan, Failure> {
    let mut values = entry.values(plan.seed);
    let mut set = |name: &str, value: &str| values.set(name, value).map_err(Failure::usage);
    if entry.name == "tpcc" {
        let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
        let warehouses = matches.get_one::<u16>("warehouses").copied().unwrap_or(1);
        set("warehouses", &warehouses.to_string())?;
        set("mix", text("transactions"))?;
        set("remote", &real(matches, "remote").to_string())?;
        set("remote-payments", &real(matches, "remote-payments").to_string())?;
        set("scale", text("scale"))?;
    }
    for given in matches.get_many::<String>("set").into_iter().flatten() {
        let Some((name, value)) = given.split_once('=') else {
            return Err(Failure::Usage(format!("--set {given}: write OPTION=VALUE")));
        };
        set(name, value)?;
    }
    let workload = (entry.open)(&values).map_err(Failure::usage)?;
    let data = matches.get_one::<PathBuf>("data").cloned();
    if data.is_some() {
        if matches.get_flag("settle") {
            return Err(Failure::Usage(
                "--settle may run several times, but --data needs a single run: omit one of them".to_owned(),
            ));
        }
        if matches.get_flag("simulate-cores") {
            return Err(Failure::Usage("simulated cores have no disk: omit --data".to_owned()));
        }
        if matches.get_one::<String>("scheme").is_some_and(|scheme| scheme == "auto") {
            return Err(Failure::Usage(
                "--scheme auto runs several times, but --data needs a single run: name a scheme".to_owned(),
            ));
        }
    }
    let mut plan = declared::Plan::of(plan, workload, 2).map_err(Failure::Run)?;
    if let Some(data) = data {
        plan.keep_in(data).map_err(Failure::Usage)?;
    }
    Ok(plan)
}

/// The workload, with its options.
enum Asked {
    Keys,
    Arrays(tpcc::Plan),
    Declared(declared::Plan),
}

impl Asked {
    /// Runs the workload under the scheme of this plan, from which it was made.
    fn measure(&mut self, plan: &Plan, is_simulated: bool) -> Result<Measured, Failure> {
        match self {
            Asked::Keys => measure(plan, is_simulated),
            Asked::Arrays(asked) => {
                (asked.transport.scheme, asked.warmup) = (plan.transport.scheme, plan.warmup);
                measure_tpcc(asked, is_simulated)
            }
            Asked::Declared(asked) => {
                (asked.transport.scheme, asked.warmup) = (plan.transport.scheme, plan.warmup);
                measure_declared(asked, is_simulated)
            }
        }
    }

    /// Runs the workload. If `settles`, repeats it with longer warm-ups until it is stationary. Returns the
    /// last result, and the report's entry for the warm-up.
    fn settle(&mut self, plan: &mut Plan, settles: bool, is_simulated: bool) -> Result<(Measured, Value), Failure> {
        let (least, mut runs) = (plan.warmup, 1);
        loop {
            let measured = self.measure(plan, is_simulated)?;
            let is_settled = measured.is_stationary(SETTLED_MAX);
            let longer = (2 * plan.warmup).max(plan.length);
            if !settles || is_settled || longer > least.max(plan.length).mul_f64(TIMES_MAX) {
                let warmup = json!({
                    "seconds": plan.warmup.as_secs_f64(), "settled": settles.then_some(is_settled), "runs": runs,
                });
                return Ok((measured, warmup));
            }
            talk!("not settled after {} s: again with {} s", plan.warmup.as_secs_f64(), longer.as_secs_f64());
            plan.warmup = longer;
            runs += 1;
        }
    }

    /// Replaces the scheme `auto` in the plan. Returns the report's entry for the choice.
    fn choose(&mut self, plan: &mut Plan, is_simulated: bool) -> Result<Value, Failure> {
        let (chosen, why) = if matches!(self, Asked::Keys) {
            let (chosen, times) = recommended(plan, is_simulated)?;
            let said = crate::model::recommendation(&chosen, crate::model::MICROSECOND);
            (chosen, json!({ "times": crate::model::times(&times), "recommended": said }))
        } else {
            let mut tried = Vec::new();
            for scheme in Scheme::ALL {
                plan.transport.scheme = scheme;
                tried.push((scheme, self.measure(plan, is_simulated)?.per_second()));
            }
            let chosen = model::fastest(&tried);
            let said = crate::model::recommendation(&chosen, 1.0);
            (chosen, json!({ "recommended": said }))
        };
        talk!("{}", chosen.reason);
        plan.transport.scheme = chosen.scheme;
        Ok(why)
    }
}

fn measure_declared(plan: &declared::Plan, is_simulated: bool) -> Result<Measured, Failure> {
    if !is_simulated {
        return declared::on_threads(plan).map_err(Failure::Run);
    }
    let roles = plan.roles().map_err(Failure::Run)?;
    let given = simulated::roles((plan.warmup + plan.length).as_secs_f64(), roles)?;
    plan.finish(given).map_err(Failure::Run)
}

/// The plan for TPC-C, from the arguments and from the common plan.
fn tpcc_plan(matches: &ArgMatches, plan: &Plan) -> tpcc::Plan {
    let is = |name: &str, wanted: &str| matches.get_one::<String>(name).is_some_and(|given| given == wanted);
    let extent = if is("scale", "small") { tpcc::Extent::SMALL } else { tpcc::Extent::SHORT };
    let warehouses = matches.get_one::<u16>("warehouses").copied().unwrap_or(1);
    tpcc::Plan {
        kinds: if is("transactions", "new-order") { tpcc::Kinds::NewOrder } else { tpcc::Kinds::Full },
        remote: real(matches, "remote"),
        remote_payments: real(matches, "remote-payments"),
        ..tpcc::Plan::of(plan, warehouses, extent)
    }
}

fn measure_tpcc(plan: &tpcc::Plan, is_simulated: bool) -> Result<Measured, Failure> {
    if !is_simulated {
        return tpcc::on_threads(plan).map_err(Failure::Run);
    }
    let given = simulated::roles((plan.warmup + plan.length).as_secs_f64(), plan.roles())?;
    plan.finish(given).map_err(Failure::Run)
}

pub(crate) fn command() -> Command {
    let schemes = Scheme::ALL.map(Scheme::name).into_iter().chain(["auto"]);
    let command = Command::new("partitions")
        .about(
            "Transactions on partitions with one owner each: twelve keys at one partition or six at each of two, or a \
             workload's declared procedures. Checks that every reported commit took effect",
        )
        .arg(
            number(
                "scheme",
                "S",
                "speculation",
                "How a partition runs transactions while another waits for a decision. auto: for twelve-key, the \
                 scheme \
                 that the model recommends, with times that are measured first by runs of the same length; for other \
                 workloads, the scheme that is fastest in such a run",
            )
            .value_parser(PossibleValuesParser::new(schemes)),
        );
    system(mix(command))
        .args(workload())
        .arg(flag(
            "settle",
            "Repeat with twice the warm-up until the throughputs of both halves of the measurement differ by at most \
             a tenth",
        ))
        .arg(count("partitions", "2", 64, "Partitions, an owner each"))
        .arg(flag("undo", "Keep undo for all transactions, even if they do not need it: measures its cost"))
        .arg(flag("keep-records", "Keep log records in memory, from which an owner could recover"))
        .arg(flag(
            "history",
            "Also record the clients' results, and check that they are strictly serializable; for short runs",
        ))
        .arg(format())
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("expected a share from 0 to 1".to_owned()),
    }
}

fn microseconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=1e6).contains(&number) => Ok(number),
        _ => Err("expected microseconds from 0 to 1000000".to_owned()),
    }
}

/// The value of a numeric option; zero if the command lacks the option. Likewise below.
fn real(matches: &ArgMatches, name: &str) -> f64 {
    matches.try_get_one(name).ok().flatten().copied().unwrap_or_default()
}

fn whole(matches: &ArgMatches, name: &str) -> u32 {
    matches.try_get_one(name).ok().flatten().copied().unwrap_or_default()
}

fn is_set(matches: &ArgMatches, name: &str) -> bool {
    matches.try_get_one(name).ok().flatten().copied().unwrap_or_default()
}

fn duration(microseconds: f64) -> Duration {
    Duration::from_nanos((microseconds * 1000.0).round() as u64)
}

/// The mix of transactions that the options describe.
pub(crate) fn mix_of(matches: &ArgMatches) -> Mix {
    Mix {
        multi: real(matches, "multi"),
        conflicts: real(matches, "conflicts"),
        aborts: real(matches, "aborts"),
        two_rounds: f64::from(whole(matches, "rounds").saturating_sub(1)),
        undo: is_set(matches, "undo"),
    }
}

/// The plan that the options describe, under this scheme.
pub(crate) fn plan(matches: &ArgMatches, scheme: Scheme, seed: u64, is_simulated: bool) -> Result<Plan, Failure> {
    let (clients, partitions) = (whole(matches, "clients"), whole(matches, "partitions"));
    let partitions = if partitions == 0 { 2 } else { partitions };
    if real(matches, "multi") > 0.0 && partitions < 2 {
        return Err(Failure::Usage("transactions on two partitions need --partitions 2 or more".to_owned()));
    }
    let default = if is_simulated { clients.min(THREADS_SIMULATED) } else { 1 };
    let threads = matches.get_one::<u32>("client-threads").copied().unwrap_or(default);
    let roles = partitions + 1 + threads;
    if is_simulated && roles > CORES_MAX {
        return Err(Failure::Usage(format!(
            "owners, a coordinator and threads of clients need {roles} simulated cores, but the limit is {CORES_MAX}: \
             give fewer \
             --client-threads"
        )));
    }
    let is_given = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
    let time = |name, virtually| if is_simulated && !is_given(name) { virtually } else { real(matches, name) };
    let mut plan = Plan::new(scheme, threads).with_clients(clients, threads);
    plan.transport.partitions = partitions;
    plan.transport.delay = duration(real(matches, "delay"));
    plan.transport.batch_max = whole(matches, "batch") as usize;
    plan.transport.records = is_set(matches, "keep-records");
    plan.mix = mix_of(matches);
    plan.warmup = Duration::from_secs_f64(time("warmup", WARMUP));
    plan.length = Duration::from_secs_f64(time("seconds", SECONDS));
    plan.seed = seed;
    plan.records = is_set(matches, "history");
    let mut plan = plan.charged(costs::TRANSPORT, costs::STORE);
    plan.store.more = duration(real(matches, "work") / KEYS as f64);
    Ok(plan)
}

pub(crate) fn measure(plan: &Plan, is_simulated: bool) -> Result<Measured, Failure> {
    if !is_simulated {
        return on_threads(plan).map_err(Failure::Run);
    }
    let given = simulated::roles((plan.warmup + plan.length).as_secs_f64(), plan.roles())?;
    plan.finish(given).map_err(Failure::Run)
}

/// The model's recommendation for this plan, with times of this system, and these times.
fn recommended(plan: &Plan, is_simulated: bool) -> Result<(Recommendation, Times), Failure> {
    let mut failed = None;
    let mut run = |plan: &Plan| {
        measure(plan, is_simulated).map_err(|failure| {
            failed = Some(failure);
            String::new()
        })
    };
    match (measuring::measure(plan, &mut run), failed) {
        (_, Some(failure)) => Err(failure),
        (Err(what), None) => Err(Failure::Run(what)),
        (Ok(times), None) => Ok((model::recommend(&times, &plan.mix.of_model()), times)),
    }
}

pub(crate) fn run(matches: &ArgMatches, seed: u64) -> Result<(), Failure> {
    let (is_simulated, which) = (matches.get_flag("simulate-cores"), check_workload(matches)?);
    let scheme = matches.get_one::<String>("scheme").and_then(|name| Scheme::named(name));
    let mut plan = plan(matches, scheme.unwrap_or(Scheme::Blocking), seed, is_simulated)?;
    let mut asked = match &which {
        WorkloadKind::Keys => Asked::Keys,
        WorkloadKind::Arrays => Asked::Arrays(tpcc_plan(matches, &plan)),
        WorkloadKind::Declared(entry) => Asked::Declared(declared_plan(entry, matches, &plan)?),
    };
    let chosen = if scheme.is_none() { Some(asked.choose(&mut plan, is_simulated)?) } else { None };
    let (measured, warmup) = asked.settle(&mut plan, matches.get_flag("settle"), is_simulated)?;
    let several = if matches!(which, WorkloadKind::Keys) { "two" } else { "several" };
    if !is_json(matches) {
        let cores = if is_simulated { "simulated cores" } else { "threads" };
        return Ok(say!("{}", words(&plan, &measured, several, cores))?);
    }
    let mut report = frame(&plan, matches, is_simulated);
    if !matches!(which, WorkloadKind::Keys) {
        report["options"] = options_of_workload(&plan, &which, matches);
    }
    if let (Some(fields), Value::Object(more)) = (report.as_object_mut(), results(&plan, &measured)) {
        fields.extend(more);
        fields.insert("auto".to_owned(), json!(chosen));
        fields.insert("warmup".to_owned(), warmup);
    }
    Ok(say!("{report}\n")?)
}

fn words(plan: &Plan, measured: &Measured, several: &str, cores: &str) -> String {
    let Measured { committed, committed_multi, user_aborted, conflict_aborted, seconds, .. } = measured;
    let microseconds = |share| measured.latency(share) as f64 / 1000.0;
    let what = format!(
        "{} over {} partitions, {} clients on {} {cores}, {seconds:.3} s",
        plan.transport.scheme.name(),
        plan.transport.partitions,
        plan.clients,
        plan.transport.ports,
    );
    let mut text = machine::conditions(&what, plan.seed);
    text += &format!(
        "throughput     {:.0} transactions a second\n\
         {committed} committed, {committed_multi} of them on {several} partitions; {user_aborted} rolled back by \
         themselves, \
         {conflict_aborted} attempts by conflicts\n\
         answered within {:.1} µs (half), {:.1} µs (99 of 100)\n",
        measured.per_second(),
        microseconds(0.5),
        microseconds(0.99),
    );
    let each = |who: &str, counts: &Counts| {
        format!(
            "{who}: {} messages, {:.1} a batch, slept {} times, busy {:.0} % of the whole run\n",
            counts.messages,
            counts.messages as f64 / counts.batches.max(1) as f64,
            counts.sleeps,
            100.0 * counts.busy.as_secs_f64() / measured.whole.as_secs_f64().max(f64::MIN_POSITIVE),
        )
    };
    for (number, counts) in measured.owners.iter().enumerate() {
        text += &each(&format!("owner {number}"), counts);
    }
    text += &measured.coordinator.iter().map(|counts| each("coordinator", counts)).collect::<String>();
    let [executed, undone] = measured.fragments;
    text += &format!("{executed} fragments ran, {undone} were taken back\nverdict        passed: nothing was lost");
    if let Some(ordered) = measured.ordered {
        text += &format!("; {ordered} transactions have a serial order");
    }
    text + "\n"
}

/// The fields that reports of all commands have.
pub(crate) fn frame(plan: &Plan, matches: &ArgMatches, is_simulated: bool) -> Value {
    let simulated = is_simulated.then(|| {
        let cores = plan.transport.partitions + u32::from(plan.transport.scheme.needs_one_coordinator());
        json!({ "cores": cores + plan.transport.ports, "costs": costs::NAME, "proven": false })
    });
    json!({
        "workload": "partitions", "threads": plan.transport.partitions, "failed": 0, "consistency": "passed",
        "options": {
            "scheme": matches.try_get_one::<String>("scheme").ok().flatten(), "multi": plan.mix.multi,
            "conflicts": plan.mix.conflicts, "aborts": plan.mix.aborts, "rounds": whole(matches, "rounds"),
            "delay": real(matches, "delay"), "work": real(matches, "work"), "partitions": plan.transport.partitions,
            "clients": plan.clients, "client-threads": plan.transport.ports, "batch": plan.transport.batch_max,
            "undo": plan.mix.undo, "keep-records": plan.transport.records, "history": plan.records,
        },
        "simulated": simulated, "seed": plan.seed, "revision": machine::revision(), "machine": Machine::here(),
    })
}

/// The options that reports have of workloads other than the microbenchmark.
fn options_of_workload(plan: &Plan, which: &WorkloadKind, matches: &ArgMatches) -> Value {
    let text = |name: &str| matches.get_one::<String>(name);
    let is_tpcc = match which {
        WorkloadKind::Declared(entry) => entry.name == "tpcc",
        WorkloadKind::Keys | WorkloadKind::Arrays => true,
    };
    let mut options = json!({
        "workload": text("workload"), "scheme": text("scheme"), "delay": real(matches, "delay"),
        "work": real(matches, "work"),
        "partitions": plan.transport.partitions, "clients": plan.clients, "client-threads": plan.transport.ports,
        "batch": plan.transport.batch_max, "keep-records": plan.transport.records,
        "data": matches.get_one::<PathBuf>("data"),
        "set": matches.get_many::<String>("set").into_iter().flatten().collect::<Vec<_>>(),
    });
    if let (true, Some(fields)) = (is_tpcc, options.as_object_mut()) {
        let warehouses = matches.get_one::<u16>("warehouses");
        let of_tpcc = json!({
            "warehouses": warehouses, "transactions": text("transactions"), "remote": real(matches, "remote"),
            "remote-payments": real(matches, "remote-payments"), "scale": text("scale"),
        });
        fields.extend(of_tpcc.as_object().cloned().unwrap_or_default());
    }
    options
}

fn results(plan: &Plan, measured: &Measured) -> Value {
    let microseconds = |share| measured.latency(share) as f64 / 1000.0;
    let each = |counts: &Counts| {
        json!({
            "messages": counts.messages, "batches": counts.batches, "sleeps": counts.sleeps,
            "busy_seconds": counts.busy.as_secs_f64(),
        })
    };
    let [single, multi] = measured.ended;
    json!({
        "scheme": plan.transport.scheme.name(), "seconds": measured.seconds, "committed": measured.committed,
        "committed_multi": measured.committed_multi,
        "committed_per_second": measured.committed as f64 / measured.seconds.max(f64::MIN_POSITIVE),
        "ended_per_second": measured.per_second(),
        "user_aborted": measured.user_aborted, "conflict_aborted": measured.conflict_aborted,
        "ordered": measured.ordered, "halves": measured.halves, "stationary": measured.is_stationary(MEASURED_MAX),
        "latency_us": {
            "p50": microseconds(0.5), "p95": microseconds(0.95), "p99": microseconds(0.99), "p999": microseconds(0.999),
            "max": microseconds(1.0),
        },
        "whole": {
            "seconds": measured.whole.as_secs_f64(), "ended_single": single, "ended_multi": multi,
            "fragments": measured.fragments[0], "undone": measured.fragments[1],
            "owners": measured.owners.iter().map(each).collect::<Vec<_>>(),
            "coordinator": measured.coordinator.as_ref().map(each),
        },
    })
}
