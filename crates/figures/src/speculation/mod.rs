//! Figures of Speculation (Jones, Abadi, Madden, SIGMOD 2010).
//!
//! Each is measured four times: with no delay between owners, coordinator and clients, with 40 and with 200 µs each way, and as in the paper, where a
//! transaction of twelve keys takes 64 µs and a message to another machine and back 40. Three machines are simulated cores, a role each; the machine's
//! threads have no delay, since they are woken some 50 µs late.

use serde_json::Value;

use crate::figure::{Axis, Point, Shows, View};
use crate::judge::SECONDS_MIN;
use crate::measured::{Cores, Size};
use crate::metric::Metric;
use crate::setting::Setting;

pub(crate) mod fig04;
pub(crate) mod fig05;
pub(crate) mod fig06;
pub(crate) mod fig07;
pub(crate) mod fig08;
pub(crate) mod fig09;
pub(crate) mod fig10;
pub(crate) mod table1;
pub(crate) mod table2;

/// Systems: the part of the figure, what the commands say of it, and seconds of a run on simulated cores. With more delay it takes more clients to
/// keep owners busy.
const SYSTEMS: [(&str, &str, &str); 4] = [
    ("none", "--delay 0 --clients 40", "0.02"),
    ("40", "--delay 40 --clients 400", "0.02"),
    ("200", "--delay 200 --clients 2000", "0.1"),
    ("paper", "--delay 20 --work 60 --clients 40", "0.1"),
];

/// Percent of transactions over two partitions.
const MULTI: [u32; 6] = [0, 5, 10, 20, 50, 100];

/// The schemes, as curves.
const SCHEMES: [(&str, &str); 4] = [
    ("blocking", "--scheme blocking"),
    ("local-speculation", "--scheme local-speculation"),
    ("speculation", "--scheme speculation"),
    ("locking", "--scheme locking"),
];

const ENDED: Metric = Metric {
    label: "thousand transactions a second",
    of: |report| Some(report.pointer("/ended_per_second")?.as_f64()? / 1000.0),
};

const fn view(title: &'static str, part: &'static str) -> View {
    View { title, part, x: Axis::Number("percent over two partitions"), shows: Shows::One(ENDED) }
}

/// The four systems; claims name them by these numbers.
const VIEWS: &[View] =
    &[view("no delay", "none"), view("40 µs", "40"), view("200 µs", "200"), view("as in the paper", "paper")];

/// Of [`VIEWS`].
const NO_DELAY: usize = 0;
const DELAY_40: usize = 1;
const DELAY_200: usize = 2;
const AS_IN_THE_PAPER: usize = 3;

/// Of the figures of TPC-C: the database itself.
const IN_ONE_PROCESS: usize = 4;

/// Why locking is nearer to speculation than in the paper, where rows are as long.
const SHORT_LOCKS: &str = "A lock takes 0.3 µs here, beside 0.7 µs for a row that is as long as the paper's, whose lock manager takes a third of the time. Where rows are short, locks are most of a transaction, and the relation holds.";

/// Processors of the machine, or simulated cores, from which roles do not take them from each other.
const ROLES: usize = 4;

/// These curves over the share of transactions over two partitions, in all systems.
fn by_multi(setting: &Setting, curves: &[(&str, &str)]) -> Vec<Point> {
    let few = if curves.len() > SCHEMES.len() { &MULTI[3..4] } else { &MULTI[2..4] };
    let shares = if setting.size == Size::Small { few } else { &MULTI[..] };
    let mut points = Vec::new();
    for (cores, part, system, seconds) in systems(setting) {
        for &(series, options) in curves {
            for &percent in shares {
                let command = format!("bench partitions {options} --multi {} {system}", f64::from(percent) / 100.0);
                points.push(point(setting, (cores, part, &seconds), series, f64::from(percent), &command));
            }
        }
    }
    points
}

/// TPC-C under all schemes in all systems, and by the database itself. Of each, `what` says how many warehouses there are, where it is drawn, and the share of
/// remote lines, if it is New-Order alone.
fn by_scheme_and_process<T>(setting: &Setting, all: &[T], what: impl Fn(&T) -> (u32, f64, &'static str)) -> Vec<Point> {
    let is_small = setting.size == Size::Small;
    let mut points = Vec::new();
    for of in all {
        let (warehouses, x, shares) = what(of);
        let new_order = !shares.is_empty();
        let kinds = if new_order { "--transactions new-order" } else { "" };
        let scale = if is_small { "--scale small" } else { "" };
        for (cores, part, system, seconds) in systems(setting) {
            // Locks of few warehouses do not get on with thousands of clients; and 12 of a transaction's 39 rows take as long as is said.
            let fewer =
                [("--clients 400", "--clients 100"), ("--clients 2000", "--clients 400"), ("--work 60", "--work 8")];
            let system = fewer.iter().fold(system.to_owned(), |system, (of, here)| system.replace(of, here));
            for (series, scheme) in SCHEMES {
                let command = format!(
                    "bench partitions --workload tpcc-arrays {scale} {scheme} --warehouses {warehouses} {kinds} {shares} {system}"
                );
                points.push(point(setting, (cores, part, &seconds), series, x, &command));
            }
        }
        for scene in setting.widest(ROLES) {
            for protocol in ["partitioned", "silo", "nowait"] {
                let partitions =
                    if protocol == "partitioned" { format!("--partitions {warehouses}") } else { String::new() };
                let mix = if new_order { "--mix new-order" } else { "" };
                let command = setting.tpcc(warehouses as usize, protocol, &format!("{mix} {shares} {partitions}"));
                points.push(setting.point("process", protocol, x, scene, &command));
            }
        }
    }
    points
}

/// The systems that there are: threads without delay, and all on simulated cores; with the seconds of a run.
fn systems(setting: &Setting) -> Vec<(Cores, &'static str, &'static str, String)> {
    let is_small = setting.size == Size::Small;
    let seconds = setting.seconds.unwrap_or(if is_small { 0.05 } else { SECONDS_MIN });
    let (part, system, _) = SYSTEMS[NO_DELAY];
    let mut systems = vec![(Cores::Real, part, system, seconds.to_string())];
    for (part, system, seconds) in SYSTEMS {
        let seconds = if is_small { "0.002" } else { seconds };
        systems.push((Cores::Simulated, part, system, seconds.to_owned()));
    }
    systems
}

/// A point of the curve `series` at `x`.
fn point(setting: &Setting, on: (Cores, &'static str, &str), series: &str, x: f64, command: &str) -> Point {
    let (cores, part, seconds) = on;
    let (threads, more) = match cores {
        Cores::Real => (setting.processors, ""),
        Cores::Simulated => (ROLES, "--simulate-cores"),
    };
    let warmup = match (setting.size, cores) {
        (Size::Small, _) => "0",
        (Size::Large, Cores::Real) => "0.5",
        (Size::Large, Cores::Simulated) => "0.005",
    };
    // The model runs the schemes itself.
    let settles = setting.size == Size::Large && command.starts_with("bench partitions");
    let settle = if settles { "--settle" } else { "" };
    let line = format!("{command} {more} --seconds {seconds} --warmup {warmup} {settle}");
    let arguments = line.split_whitespace().map(str::to_owned).collect();
    Point { part, cores, threads, series: series.to_owned(), x, arguments }
}

/// A point for each system of a command of `seriatim model`, which runs the schemes itself.
fn by_system(setting: &Setting, command: &str) -> Vec<Point> {
    let of = |(cores, part, system, seconds): (Cores, &'static str, &str, String)| {
        point(setting, (cores, part, &seconds), "model", 0.0, &format!("model {command} {system}"))
    };
    systems(setting).into_iter().map(of).collect()
}

/// A number of a report.
fn number(report: &Value, at: &str) -> Option<f64> {
    report.pointer(at)?.as_f64()
}
