//! `seriatim simulate costs`: measures the costs of steps on this machine.
//!
//! Every protocol runs small workloads twice. The run on one thread of a plain build gives the time of a transaction,
//! and the one on a simulated core gives its steps. The costs are those by which steps explain times best ([`fit`]).
//! Then each workload of the registry is measured in the same way, with and without regions. The costs of first touches
//! are scaled to its time.
//!
//! Threads run first, in rounds through all protocols, so that a temporary disturbance of the machine affects
//! all protocols alike. Times are processor times, and the shortest of all rounds counts. Steps do not depend
//! on the load of the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use seriatim::htm::{Access, Body, BodyError, Budget, Htm, HtmMode, NoLocks, Outside};
use seriatim_base::{WorkerId, say};
use seriatim_simulate::costs::{self, Protocol, Table};
use seriatim_simulate::fit::{Observation, fit};
use seriatim_simulate::{Step, Work, measure};

use super::commands::{Commands, common, here, modes, number};
use super::cores::{self, ABSENT, MODELLED};
use crate::Failure;
use crate::machine;

/// Workloads with different shares of each kind of step.
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

/// The options with which a workload is run to scale its costs, if they are not the defaults.
const SCALED: &[&[&str]] = &[
    &["smallbank", "--accounts", "100000"],
    &["ycsb", "--records", "100000", "--ops", "16", "--theta", "0.8"],
    &["twelve-key", "--clients", "8"],
];

/// Likely nanoseconds of steps. First touches include the private work of an access, and the line is in the
/// first or second cache. Costs that the workloads cannot distinguish are kept near these.
const LIKELY: [f64; Step::ALL.len()] = [300.0, 8.0, 30.0, 2.0, 1.0, 1.5, 8.0, 0.5];

/// How strongly they are kept near.
const WEIGHT: f64 = 0.03;

/// How often a workload is timed.
const ROUNDS: usize = 3;

/// A workload under a protocol.
struct Point {
    protocol: &'static str,
    regions: &'static str,
    workload: Vec<&'static str>,
    seen: Observation<{ Step::ALL.len() }>,
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(Failure::run)?;
    let plain = matches.get_one::<PathBuf>("plain").cloned().unwrap_or_else(|| own.clone());
    let seconds = matches.get_one::<f64>("seconds").copied().unwrap_or(0.2);
    let wanted: Vec<&String> = matches.get_many::<String>("only").into_iter().flatten().collect();
    let before = matches.get_one::<PathBuf>("costs").map(cores::read).transpose()?;
    let protocols: Vec<&'static str> = seriatim::protocols()
        .iter()
        .filter(|protocol| !protocol.requirements.regions)
        .map(|protocol| protocol.name)
        .filter(|&name| wanted.is_empty() || wanted.iter().any(|wanted| *wanted == name))
        .collect();
    let modes: &[&'static str] = if seriatim::htm::detect().probe_commits { &[ABSENT, MODELLED] } else { &[ABSENT] };
    let machine = match &before {
        Some(table) => table.machine,
        None => in_regions(measure::machine()),
    };
    let mut points: Vec<Point> = protocols.iter().flat_map(|&protocol| points(protocol, modes)).collect();
    let commands = Commands::new(points.len() * (ROUNDS + 1));
    for _ in 0..ROUNDS {
        for point in &mut points {
            let nanoseconds = time(&commands, &plain, point, seconds)?;
            point.seen.nanoseconds = point.seen.nanoseconds.min(nanoseconds);
        }
    }
    commands.talk("threads have been measured; steps do not depend on the load of the machine");
    for point in &mut points {
        point.seen.steps = steps(&commands, &own, point)?;
    }
    let mut measured: Vec<Protocol> =
        protocols.iter().flat_map(|&protocol| of_protocol(&commands, &points, protocol, modes)).collect();
    let (name, measured_on, revision) = match &before {
        Some(table) => (table.name.clone(), table.measured_on.clone(), table.revision.clone()),
        None => {
            let name = matches.get_one::<String>("name").cloned().unwrap_or_default();
            (name, here(), machine::revision().to_owned())
        }
    };
    // Protocols that were not measured keep their costs, and follow the others.
    let others = before.into_iter().flat_map(|table| table.protocols);
    measured.extend(others.filter(|of| protocols.iter().all(|&protocol| protocol != of.protocol)));
    let (validated_on, validation) = (None, Vec::new());
    let table = Table { name, measured_on, revision, machine, protocols: measured, validated_on, validation };
    table.check().map_err(Failure::Run)?;
    let text = serde_json::to_string_pretty(&rounded(table)).map_err(Failure::run)?;
    drop(commands);
    Ok(say!("{text}\n")?)
}

/// The machine's costs, with those of its regions if it has them.
fn in_regions(machine: costs::Machine) -> costs::Machine {
    struct Ends(Result<(), BodyError>);
    // SAFETY: the body has no words.
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

/// The workload of this name, with the options for scaling its costs.
fn scaled(name: &'static str) -> Vec<&'static str> {
    SCALED.iter().find(|workload| workload[0] == name).map_or_else(|| vec![name], |workload| workload.to_vec())
}

/// The points to measure for a protocol, each once.
fn points(protocol: &'static str, modes: &[&'static str]) -> Vec<Point> {
    let mut all: Vec<(&'static str, Vec<&'static str>)> =
        WORKLOADS.iter().map(|workload| (ABSENT, workload.to_vec())).collect();
    for entry in seriatim_workload::WORKLOADS {
        all.extend(modes.iter().map(|&regions| (regions, scaled(entry.name))));
    }
    all.sort_unstable();
    all.dedup();
    let point = |(regions, workload)| {
        let seen = Observation { steps: [0.0; Step::ALL.len()], nanoseconds: f64::INFINITY };
        Point { protocol, regions, workload, seen }
    };
    all.into_iter().map(point).collect()
}

/// The costs of a protocol, by mode of regions. Steps are the same with and without regions, so only the scales differ.
fn of_protocol(commands: &Commands, points: &[Point], protocol: &str, modes: &[&'static str]) -> Vec<Protocol> {
    let seen = |regions: &str, workload: &[&str]| {
        let of = |point: &&Point| point.protocol == protocol && point.regions == regions && point.workload == workload;
        points.iter().find(of).expect("it was measured").seen.clone()
    };
    let fitted: Vec<_> = WORKLOADS.iter().map(|workload| seen(ABSENT, workload)).collect();
    let (costs, misfit) = fit(&fitted, &LIKELY, WEIGHT);
    commands.talk(&format!("{protocol:<10} differs from the fit by {:.1} % on average", misfit * 100.0));
    let of_mode = |&regions: &&'static str| {
        let scales: BTreeMap<String, f64> = seriatim_workload::WORKLOADS
            .iter()
            .map(|entry| {
                let seen = seen(regions, &scaled(entry.name));
                let said = |first: bool| -> f64 {
                    Step::ALL
                        .iter()
                        .filter(|step| step.is_first() == first)
                        .map(|&step| seen.steps[step as usize] * costs[step as usize])
                        .sum()
                };
                (entry.name.to_owned(), ((seen.nanoseconds - said(false)) / said(true)).max(SCALE_MIN))
            })
            .collect();
        let (protocol, regions) = (protocol.to_owned(), regions.to_owned());
        Protocol { protocol, regions, work: Work::of_steps(costs), misfit, scales }
    };
    modes.iter().map(of_mode).collect()
}

/// If the later touches of a transaction alone explain more than its time, first touches cost this share.
const SCALE_MIN: f64 = 0.05;

/// Nanoseconds of a transaction on one thread. Processor time if the system reports it, since other processes
/// may run meanwhile.
fn time(commands: &Commands, plain: &Path, point: &Point, seconds: f64) -> Result<f64, Failure> {
    let seconds = seconds.to_string();
    let length = ["--seconds", &seconds, "--warmup", "0.1"];
    let [htm, _] = modes(point.regions);
    let report = commands.bench(plain, &[&point.workload, &common(point.protocol, htm), &length])?;
    let seconds = report["processor_seconds"].as_f64().unwrap_or_else(|| number(&report["seconds"]));
    Ok(seconds * 1e9 / (number(&report["committed"]) + number(&report["user_aborted"])))
}

/// The steps of a transaction, by kind.
fn steps(commands: &Commands, own: &Path, point: &Point) -> Result<[f64; Step::ALL.len()], Failure> {
    let [_, htm] = modes(point.regions);
    let length = ["--simulate-cores", "1", "--costs", "unit", "--warmup", "0", "--seconds", "0.03", "--prefault", "0"];
    let report = commands.bench(own, &[&point.workload, &common(point.protocol, htm), &length])?;
    let all = number(&report["committed"]) + number(&report["user_aborted"]);
    Ok(Step::ALL.map(|step| number(&report["simulated"]["steps"][step.name()]) / all))
}

/// Costs with two decimal places; more would be noise.
fn rounded(mut table: Table) -> Table {
    let round = |cost: f64| (cost * 100.0).round() / 100.0;
    for of in &mut table.protocols {
        of.work = Work::of_steps(of.work.by_step().map(round));
        of.misfit = round(of.misfit);
        of.scales.values_mut().for_each(|scale| *scale = (*scale * 1000.0).round() / 1000.0);
    }
    let costs::Machine { transfer, overlapped, pause, yields, sleep, region, abort } = &mut table.machine;
    for cost in [transfer, overlapped, pause, yields, sleep, region, abort] {
        *cost = round(*cost);
    }
    table
}
