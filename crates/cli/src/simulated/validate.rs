//! `seriatim simulate validate`: compares simulated cores with threads on this machine.
//!
//! Every protocol runs the same workloads on one and two threads of the plain build, and on as many simulated cores.
//! Runs on threads are short and repeated in rounds through everything, so that a temporary disturbance affects all
//! protocols. A run does not count if its threads had less processor time than in the best run. Threads that do not run
//! at the same time do not conflict. The median of the other runs counts. The table of costs is printed with the
//! comparison. A simulation with that table knows which protocols are proven.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use serde_json::Value;
use seriatim_base::say;
use seriatim_simulate::costs::Table;
use seriatim_simulate::validation::{Compared, Figures, judge, standings};

use super::commands::{Commands, common, here, modes, number};
use super::cores;
use crate::Failure;
use crate::machine;

const WORKLOADS: &[&[&str]] = &[
    &["tpcc", "--warehouses", "1"],
    &["tpcc", "--warehouses", "2"],
    &["ycsb", "--ops", "16", "--records", "100000", "--theta", "0"],
    &["ycsb", "--ops", "16", "--records", "100000", "--theta", "0.8"],
    &["ycsb", "--ops", "16", "--records", "100000", "--theta", "0.99"],
];

const CORES: [u16; 2] = [1, 2];

fn runs() -> impl Iterator<Item = (&'static [&'static str], u16)> {
    WORKLOADS.iter().flat_map(|&workload| CORES.map(|cores| (workload, cores)))
}

/// Rows become hot by the conflicts of a second. With the same rates, counted for a tenth of that time, they
/// become hot within short runs.
const SOON: &[(&str, &[&str])] =
    &[("htcc", &["--option", "hot_period=10", "--option", "hot_failures=10", "--option", "hot_failures_kept=1"])];

fn options(protocol: &str) -> &'static [&'static str] {
    SOON.iter().find(|(name, _)| *name == protocol).map_or(&[], |(_, options)| options)
}

/// Seconds of warm-up on threads and on cores, in which rows become hot.
const WARMUP: &str = "0.1";

/// A run does not count if its threads had a smaller share of processor time than this part of the best run's share.
const DISTURBED: f64 = 0.97;

/// A protocol with a mode of regions, on a workload, on a number of threads or cores.
struct Point {
    workload: &'static [&'static str],
    cores: u16,
    protocol: String,
    regions: String,
    runs: Vec<Run>,
}

impl Point {
    fn is_of(&self, row: &Compared) -> bool {
        row.workload == self.workload.join(" ")
            && (row.cores, &row.protocol, &row.regions) == (self.cores, &self.protocol, &self.regions)
    }
}

/// The results of a run on threads, and the share of its time in which the threads had processors.
#[derive(Clone, Copy)]
struct Run {
    figures: Figures,
    share: f64,
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(Failure::run)?;
    let plain = matches.get_one::<PathBuf>("plain").cloned().unwrap_or_else(|| own.clone());
    let seconds = matches.get_one::<f64>("seconds").copied().unwrap_or(0.2);
    let rounds = matches.get_one::<u32>("rounds").copied().unwrap_or(3);
    let wanted: Vec<&String> = matches.get_many::<String>("only").into_iter().flatten().collect();
    let is_wanted = |protocol: &String| wanted.is_empty() || wanted.contains(&protocol);
    let given = matches.get_one::<PathBuf>("costs");
    let mut table = given.map_or_else(cores::default_table, cores::read)?;
    let protocols: Vec<(String, String)> = table
        .protocols
        .iter()
        .filter(|of| is_wanted(&of.protocol))
        .map(|of| (of.protocol.clone(), of.regions.clone()))
        .collect();
    if protocols.is_empty() {
        return Err(Failure::Usage(format!("the table {} has no costs of these protocols", table.name)));
    }
    keep_revisions(&mut table);
    let (before, others) = std::mem::take(&mut table.validation).into_iter().partition(|row| is_wanted(&row.protocol));
    table.validation = others;
    let before: Vec<Compared> = before;
    let mut points: Vec<Point> = runs()
        .flat_map(|(workload, cores)| {
            protocols.iter().map(move |(protocol, regions)| {
                let (protocol, regions) = (protocol.clone(), regions.clone());
                Point { workload, cores, protocol, regions, runs: Vec::new() }
            })
        })
        .collect();
    let commands = Commands::new(points.len() * (rounds as usize + 1));
    // Threads run first, since they need a quiet machine.
    for _ in 0..rounds {
        for point in &mut points {
            let run = on_threads(&commands, &plain, point, seconds)?;
            point.runs.push(run);
        }
    }
    commands.talk("threads have been measured; simulated cores do not depend on the load of the machine");
    let mut counted = 0;
    for point in &points {
        let undisturbed = undisturbed(&point.runs);
        counted += undisturbed.len();
        let (real, revision) = match before.iter().find(|row| point.is_of(row)) {
            Some(row) if rounds == 0 => (row.real, row.revision.clone()),
            None if rounds == 0 => {
                let what = format!("{} on {} under {}", point.workload.join(" "), point.cores, point.protocol);
                return Err(Failure::Usage(format!("the table {} has no figures on threads for {what}", table.name)));
            }
            _ => (middle(&undisturbed), Some(machine::revision().to_owned())),
        };
        let simulated = on_cores(&commands, &own, point, given)?;
        let (workload, protocol, regions) = (point.workload.join(" "), point.protocol.clone(), point.regions.clone());
        table.validation.push(Compared { workload, cores: point.cores, protocol, regions, real, simulated, revision });
    }
    print_points(&commands, &table.validation, &protocols);
    if rounds > 0 {
        let all = points.len() * rounds as usize;
        commands.talk(&format!("{counted} of {all} runs on threads were undisturbed, and counted"));
        table.validated_on = Some(format!("{}, revision {}", here(), machine::revision()));
    }
    let text = serde_json::to_string_pretty(&table).map_err(Failure::run)?;
    drop(commands);
    Ok(say!("{text}\n")?)
}

/// Points that are compared again have another revision than those that are kept.
fn keep_revisions(table: &mut Table) {
    let revisions: Vec<Option<String>> =
        table.validation.iter().map(|row| table.validated_at(&row.protocol, &row.regions).map(str::to_owned)).collect();
    for (row, revision) in table.validation.iter_mut().zip(revisions) {
        row.revision = revision;
    }
}

/// Prints a line for each point of these protocols, and the verdict for each protocol.
fn print_points(commands: &Commands, rows: &[Compared], protocols: &[(String, String)]) {
    let is_of =
        |row: &&Compared| protocols.iter().any(|(name, regions)| row.protocol == *name && row.regions == *regions);
    for row in rows.iter().filter(is_of) {
        let [real, simulated] = standings(rows, row);
        let (aborts, said) = (row.real.aborts * 100.0, row.simulated.aborts * 100.0);
        let Compared { workload, cores, protocol, regions, .. } = row;
        commands.talk(&format!(
            "{workload:<45} {cores} {protocol:<9} {regions:<8} {:>4.0} k/s simulated {:>4.0}, standing {real:.2} \
             simulated \
             {simulated:.2}, aborts {aborts:.1} % simulated {said:.1} %",
            row.real.per_second / 1000.0,
            row.simulated.per_second / 1000.0,
        ));
    }
    for (protocol, regions) in protocols {
        if let Some(verdict) = judge(rows, protocol, regions) {
            let (off, word) = verdict.words();
            commands.talk(&format!(
                "{protocol:<10} {regions:<8} {word}: ratios to proven protocols and shares of aborts off by at most \
                 {off}"
            ));
        }
    }
}

fn on_threads(commands: &Commands, plain: &Path, point: &Point, seconds: f64) -> Result<Run, Failure> {
    let (threads, seconds) = (point.cores.to_string(), seconds.to_string());
    let length = ["--threads", &threads, "--seconds", &seconds, "--warmup", WARMUP];
    let [htm, _] = modes(&point.regions);
    let common = common(&point.protocol, htm);
    let report = commands.bench(plain, &[point.workload, &common, options(&point.protocol), &length])?;
    let used = report["processor_seconds"].as_f64();
    let share = used.map_or(1.0, |used| used / (number(&report["seconds"]) * f64::from(point.cores)));
    Ok(Run { figures: figures(&report), share })
}

fn on_cores(commands: &Commands, own: &Path, point: &Point, costs: Option<&PathBuf>) -> Result<Figures, Failure> {
    let (cores, costs) = (point.cores.to_string(), costs.map(|file| file.display().to_string()));
    let mut more = vec!["--simulate-cores", &cores, "--warmup", WARMUP];
    more.extend(costs.iter().flat_map(|file| ["--costs", file]));
    let [_, htm] = modes(&point.regions);
    let common = common(&point.protocol, htm);
    Ok(figures(&commands.bench(own, &[point.workload, &common, options(&point.protocol), &more])?))
}

/// The results of a run. Seconds count while a thread or core has its processor: threads may lose theirs to
/// other processes, and may sleep too long.
fn figures(report: &Value) -> Figures {
    let (committed, aborted) = (number(&report["committed"]), number(&report["conflict_aborted"]));
    let seconds = report["processor_seconds"].as_f64().map_or_else(
        || number(&report["seconds"]) * (1.0 - number(&report["simulated"]["slept"])),
        |seconds| seconds / number(&report["threads"]).max(1.0),
    );
    Figures { per_second: committed / seconds.max(f64::MIN_POSITIVE), aborts: aborted / (committed + aborted).max(1.0) }
}

/// The runs without a disturbance, judged by the best run.
fn undisturbed(runs: &[Run]) -> Vec<Figures> {
    let best = runs.iter().map(|run| run.share).fold(0.0, f64::max);
    runs.iter().filter(|run| run.share >= best * DISTURBED).map(|run| run.figures).collect()
}

fn middle(runs: &[Figures]) -> Figures {
    let middle = |of: fn(&Figures) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Figures { per_second: middle(|of| of.per_second).round(), aborts: (middle(|of| of.aborts) * 1e4).round() / 1e4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_others_disturbed_do_not_count() {
        let run = |per_second, share| Run { figures: Figures { per_second, aborts: 0.1 }, share };
        // Two of five ran while others had a processor: with fewer conflicts they seem fast.
        let runs = [run(900.0, 0.5), run(100.0, 0.99), run(300.0, 1.0), run(800.0, 0.9), run(200.0, 0.98)];
        let counted = undisturbed(&runs);
        assert_eq!(counted.iter().map(|of| of.per_second).collect::<Vec<_>>(), [100.0, 300.0, 200.0]);
        assert_eq!(middle(&counted).per_second, 200.0);
    }

    #[test]
    fn rates_are_by_the_time_that_threads_have_processors_and_cores_do_not_sleep() {
        let common = r#""committed": 600, "conflict_aborted": 200, "seconds": 2.0, "threads": 2"#;
        let of = |more: &str| figures(&serde_json::from_str(&format!("{{{common}, {more}}}")).expect("it is JSON"));
        let threads = of(r#""processor_seconds": 3.0"#);
        assert_eq!(threads, Figures { per_second: 400.0, aborts: 0.25 });
        let cores = of(r#""processor_seconds": null, "simulated": {"slept": 0.25, "waited": 0.9}"#);
        assert_eq!(cores, Figures { per_second: 400.0, aborts: 0.25 });
    }
}
