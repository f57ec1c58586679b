//! `seriatim simulate costs`: what a step costs on this machine.
//!
//! Every protocol runs small workloads twice: on one thread of a plain build, which gives the time of a transaction, and on one
//! simulated core, which gives its steps. The costs are those with which steps explain times best ([`fit`]). Then each workload of
//! the registry is run in the same way, and the costs are scaled to its time on one thread, without regions and with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ArgMatches;
use serde_json::Value;
use seriatim::htm::{Access, Body, BodyError, Budget, Htm, HtmMode, NoLocks, Outside};
use seriatim_base::{WorkerId, say, talk};
use seriatim_simulate::costs::{self, Protocol, Table};
use seriatim_simulate::fit::{Observation, fit};
use seriatim_simulate::{Step, Work, measure};

use super::cores::{ABSENT, MODELLED};
use crate::Failure;
use crate::machine::{self, Machine};

/// Workloads whose transactions take steps of each kind in other shares.
const WORKLOADS: &[&[&str]] = &[
    &["smallbank", "--accounts", "100000"],
    &["tatp"],
    &["articles"],
    &["twelve-key", "--clients", "8"],
    &["five-five", "--theta", "0"],
    &["multi-key", "--records", "100000"],
    &["ycsb", "--records", "100000", "--theta", "0.5", "--ops", "1", "--reads", "100"],
    &["ycsb", "--records", "100000", "--theta", "0.5", "--ops", "1", "--reads", "0"],
    &["ycsb", "--records", "100000", "--theta", "0.5", "--ops", "8", "--reads", "100"],
    &["ycsb", "--records", "100000", "--theta", "0.5", "--ops", "8", "--reads", "0"],
    &["ycsb", "--records", "100000", "--theta", "0.5", "--ops", "8", "--reads", "50", "--index", "ordered"],
    &["ycsb", "--records", "100000", "--core", "E"],
    &["ycsb", "--records", "100000", "--core", "D"],
];

/// What is run to scale the costs of a workload, where that is not the workload as it is.
const SCALED: &[&[&str]] = &[
    &["smallbank", "--accounts", "100000"],
    &["ycsb", "--records", "100000", "--ops", "16", "--theta", "0.8"],
    &["twelve-key", "--clients", "8"],
];

/// Nanoseconds that steps are likely to take, where lines are in the second cache: what workloads do not tell apart is held to this.
const LIKELY: [f64; Step::ALL.len()] = [300.0, 5.0, 5.0, 1.5, 2.0, 8.0, 0.5];

/// How strongly.
const WEIGHT: f64 = 0.01;

/// Runs of a workload whose time is measured.
const TRIES: usize = 3;

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(Failure::run)?;
    let plain = matches.get_one::<PathBuf>("plain").cloned().unwrap_or_else(|| own.clone());
    let seconds = matches.get_one::<f64>("seconds").copied().unwrap_or(0.3);
    let wanted: Vec<&String> = matches.get_many::<String>("only").into_iter().flatten().collect();
    let mut protocols = Vec::new();
    for protocol in seriatim::protocols() {
        if !protocol.requirements.regions && (wanted.is_empty() || wanted.iter().any(|name| *name == protocol.name)) {
            protocols.extend(of_protocol(&plain, &own, protocol.name, seconds)?);
        }
    }
    let here = Machine::here();
    let processor = here.processor.unwrap_or_else(|| "an unknown processor".to_owned());
    let table = Table {
        name: matches.get_one::<String>("name").cloned().unwrap_or_default(),
        measured_on: format!("{processor}, {} processors", here.cores),
        revision: machine::revision().to_owned(),
        machine: in_regions(measure::machine()),
        protocols,
        validation: Vec::new(),
    };
    table.check().map_err(Failure::Run)?;
    let text = serde_json::to_string_pretty(&rounded(table)).map_err(Failure::run)?;
    Ok(say!("{text}\n")?)
}

/// The machine's costs, with those of its regions if it has any.
fn in_regions(machine: costs::Machine) -> costs::Machine {
    struct Ends(Result<(), BodyError>);
    // SAFETY: there are no words.
    unsafe impl Body for Ends {
        type Output = ();

        fn run<A: Access>(&mut self, _: &mut A) -> Result<(), BodyError> {
            self.0
        }
    }
    let Ok(htm) = Htm::new(HtmMode::Rtm) else { return machine };
    let (mut agent, mut outside) = (htm.agent(WorkerId(0), Budget::default()), Outside::claim());
    let mut cost = |ends| {
        let mut body = Ends(ends);
        let mut run = |_| {
            let _ = agent.run(&mut outside, &NoLocks, &mut body);
        };
        measure::shortest(10_000, |rounds| (0..rounds).for_each(&mut run))
    };
    let (region, refused) = (cost(Ok(())), cost(Err(BodyError::Refused(1))));
    costs::Machine { region, abort: (refused - region).max(0.0), ..machine }
}

/// The costs of a protocol: without regions, and with modelled ones where there are real ones to measure. Steps are the same, so only the
/// scales differ.
fn of_protocol(plain: &Path, own: &Path, protocol: &str, seconds: f64) -> Result<Vec<Protocol>, Failure> {
    let observe = |workload: &[&str], regions: &str| -> Result<Observation<{ Step::ALL.len() }>, Failure> {
        let common = ["--protocol", protocol, "--no-check", "--format", "json", "--seed", "1", "--htm"];
        let [real, modelled] = modes(regions);
        let nanoseconds = fastest(plain, &[workload, &common[..], &[real]], seconds)?;
        let simulated =
            ["--simulate-cores", "1", "--costs", "unit", "--warmup", "0", "--seconds", "0.03", "--prefault", "0"];
        let simulated = bench(own, &[workload, &common[..], &[modelled], &simulated])?;
        let all = transactions(&simulated);
        let steps = Step::ALL.map(|step| number(&simulated["simulated"]["steps"][step.name()]) / all);
        talk!("{protocol:<10} {regions:<8} {:<70} {nanoseconds:>8.0} ns a transaction", workload.join(" "));
        Ok(Observation { steps, nanoseconds })
    };
    let fitted = WORKLOADS.iter().map(|workload| observe(workload, ABSENT)).collect::<Result<Vec<_>, _>>()?;
    let (costs, misfit) = fit(&fitted, &LIKELY, WEIGHT);
    talk!("{protocol:<10} differs from what is said by {:.1} % on average", misfit * 100.0);
    let modes: &[&str] = if seriatim::htm::detect().probe_commits { &[ABSENT, MODELLED] } else { &[ABSENT] };
    let measured = modes.iter().map(|&regions| {
        let mut scales = BTreeMap::new();
        for entry in seriatim_workload::WORKLOADS {
            let as_it_is = [entry.name];
            let workload = SCALED.iter().find(|workload| workload[0] == entry.name).copied().unwrap_or(&as_it_is);
            let seen = observe(workload, regions)?;
            let said: f64 = seen.steps.iter().zip(costs).map(|(steps, cost)| steps * cost).sum();
            scales.insert(entry.name.to_owned(), seen.nanoseconds / said);
        }
        let (protocol, regions) = (protocol.to_owned(), regions.to_owned());
        Ok(Protocol { protocol, regions, work: Work::of_steps(costs), misfit, scales })
    });
    measured.collect()
}

/// What `--htm` says on threads and on simulated cores.
pub(super) fn modes(regions: &str) -> [&'static str; 2] {
    if regions == MODELLED { ["rtm", "auto"] } else { [ABSENT, ABSENT] }
}

/// The time of a transaction in nanoseconds: processor time where the system tells it, as others may have the processor as well, and the
/// shortest of several runs, since all that disturbs one makes it longer.
fn fastest(program: &Path, arguments: &[&[&str]], seconds: f64) -> Result<f64, Failure> {
    let length = seconds.to_string();
    let length = ["--seconds", &length, "--warmup", "0.2"];
    let arguments: Vec<&[&str]> = arguments.iter().copied().chain([&length[..]]).collect();
    let mut best = f64::INFINITY;
    for _ in 0..TRIES {
        let report = bench(program, &arguments)?;
        let seconds = report["processor_seconds"].as_f64().unwrap_or_else(|| number(&report["seconds"]));
        best = best.min(seconds * 1e9 / transactions(&report));
    }
    Ok(best)
}

fn transactions(report: &Value) -> f64 {
    number(&report["committed"]) + number(&report["user_aborted"])
}

pub(super) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// Runs a benchmark in a process of its own: what it reports.
pub(super) fn bench(program: &Path, arguments: &[&[&str]]) -> Result<Value, Failure> {
    let mut command = Command::new(program);
    command.arg("bench").args(arguments.iter().copied().flatten());
    let ran = command.output().map_err(|error| Failure::Usage(format!("{}: {error}", program.display())))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        let last = said.lines().last().unwrap_or("it said nothing");
        return Err(Failure::Run(format!("{command:?} failed: {last}")));
    }
    serde_json::from_slice(&ran.stdout).map_err(Failure::run)
}

/// Costs with two digits behind the point: more are noise.
fn rounded(mut table: Table) -> Table {
    let round = |cost: f64| (cost * 100.0).round() / 100.0;
    for of in &mut table.protocols {
        of.work = Work::of_steps(of.work.by_step().map(round));
        of.misfit = round(of.misfit);
        of.scales.values_mut().for_each(|scale| *scale = (*scale * 1000.0).round() / 1000.0);
    }
    let costs::Machine { transfer, pause, yields, sleep, region, abort } = &mut table.machine;
    for cost in [transfer, pause, yields, sleep, region, abort] {
        *cost = round(*cost);
    }
    table
}
