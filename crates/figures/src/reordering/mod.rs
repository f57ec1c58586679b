//! Figures of Reordering (Ding, Kot, Gehrke, PVLDB 12(2), 2018).
//!
//! The paper's modes by their names here: base is `silo`, the others `occ-batch`: batch without reordering, sr with that of reads and writes in the
//! storage, vc with that of the validator, srvc with both; g and gs are its algorithms scc-greedy and sort-greedy, mc, rct and rdeg its
//! policies, w1 to w4 its reordering workers. On the machine's threads transactions run through an executor whose threads have many under
//! way (`--batch 1`), as the paper's processors do; a simulated core has one.

use crate::figure::{Axis, Claim, Point, Quantity, Shows, View};
use crate::measured::{Cores, Size};
use crate::metric::{Metric, THROUGHPUT};
use crate::setting::{Scene, Setting};

pub(crate) mod fig05;
pub(crate) mod fig06;
pub(crate) mod fig07;
pub(crate) mod fig10;
pub(crate) mod fig13;
pub(crate) mod fig16;
pub(crate) mod fig20;
pub(crate) mod fig23;
pub(crate) mod fig26;

/// The paper's skews; of a small size two of them.
const SKEWS: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];

/// The time within which 99 of 100 transactions have committed.
const TAIL: Metric =
    Metric { label: "microseconds, 99 % of transactions", of: |report| report.pointer("/latency_us/p99")?.as_f64() };

/// The time from a transaction's beginning until its commit, on average.
const LATENCY: Metric =
    Metric { label: "milliseconds, mean", of: |report| Some(report.pointer("/latency_us/mean")?.as_f64()? / 1000.0) };

const X: Axis = Axis::Number("skew of the objects, θ");

/// No batching: `silo` without blind writes, as the paper's.
const BASE: (&str, &str) = ("base", "--protocol silo --option rebases_max=0");
/// Reordering in the validator.
const VC: (&str, &str) = ("vc", "--protocol occ-batch --option storage_batching=0");
/// The paper's other modes: batches without reordering, storage batching alone, and both.
const BATCH: (&str, &str) = ("batch", "--protocol occ-batch --option storage_batching=0 --option reorder=0");
const SR: (&str, &str) = ("sr", "--protocol occ-batch --option storage_batching=1 --option reorder=0");
const SRVC: (&str, &str) = ("srvc", "--protocol occ-batch --option storage_batching=1");

const MORE_THROUGHPUT: Claim = Claim::new(
    "at a skew of 0.9 validator reordering has more throughput than no batching",
    Quantity::Ratio("vc", "base"),
)
.at_least(1.0)
.from_threads(8)
.because(BATCHES_WAIT);

const STORAGE_IS_BEST: Claim =
    Claim::new(
        "at a skew of 0.9 storage batching alone has the most throughput of all modes",
        Quantity::Lead("sr", &["base", "batch", "vc", "srvc"]),
    )
    .at_least(1.0)
    .from_threads(8)
    .because(
        "no batching is ahead of all since a transaction waits for its batch; and of the others, without an order of its batch, who has \
         read what another of it writes runs again, and its transactions are decided one by one",
    );

/// Why batches cost more than they bring. Decisions of a batch are made at the same time (`parallel`), but batches one after another.
const BATCHES_WAIT: &str = "without batches each thread decides as soon as it has executed, where the paper's base sends each decision to a validator, too; with \
                            them a transaction waits for its batch, for its order, and for the batch before it. Members of a batch are decided at the same \
                            time by threads that wait for them; an executor's, which the machine's threads are, do not, so there its leader decides them one by one";

/// Throughput and tail by skew.
const VIEWS: &[View] = &[
    View { title: "throughput", part: "", x: X, shows: Shows::One(THROUGHPUT) },
    View { title: "tail", part: "", x: X, shows: Shows::One(TAIL) },
];

/// Points of variants, each with the curve's name and its arguments, by the paper's skews: see [`by_skews`].
fn by_skew(
    setting: &Setting,
    workload: fn(&Setting, f64) -> String,
    variants: &[(&str, &str)],
    cores: usize,
) -> Vec<Point> {
    by_skews(setting, &SKEWS, workload, variants, cores)
}

/// Points of variants by the skew that a workload is given, of a small size two of them: on all threads of the machine and on so many simulated
/// cores.
fn by_skews(
    setting: &Setting,
    skews: &[f64; 5],
    workload: fn(&Setting, f64) -> String,
    variants: &[(&str, &str)],
    cores: usize,
) -> Vec<Point> {
    let on = |scene| by_skews_on(setting, scene, skews, workload, variants);
    setting.widest(cores).into_iter().flat_map(on).collect()
}

/// As [`by_skews`], of one scene.
fn by_skews_on(
    setting: &Setting,
    scene: Scene,
    skews: &[f64; 5],
    workload: fn(&Setting, f64) -> String,
    variants: &[(&str, &str)],
) -> Vec<Point> {
    let skews = if setting.size == Size::Small { &skews[3..] } else { &skews[..] };
    let mut points = Vec::new();
    for &theta in skews {
        for (series, arguments) in variants {
            let command = format!("{} {} {arguments}", workload(setting, theta), route(scene, arguments));
            points.push(setting.point("", series, theta, scene, &command));
        }
    }
    points
}

/// How terminals run their transactions, if the arguments do not say.
fn route(scene: Scene, arguments: &str) -> &'static str {
    if scene.cores == Cores::Real && !arguments.contains("--batch") { "--batch 1" } else { "" }
}

/// The microbenchmark of the paper: five reads and five writes of 100 K objects.
fn five_five(setting: &Setting, theta: f64) -> String {
    let objects = if setting.size == Size::Small { 1_000 } else { 100_000 };
    format!("five-five --objects {objects} --theta {theta}")
}

/// The paper's algorithms by their names here: those of figures 5 and 6.
const ALGORITHMS: [(&str, &str); 10] = [
    ("search", "--algorithm exact"),
    ("hybrid_20", "--algorithm hybrid --exact-max 20"),
    ("hybrid_15", "--algorithm hybrid --exact-max 15"),
    ("hybrid_10", "--algorithm hybrid --exact-max 10"),
    ("greedy_max", "--algorithm scc-greedy --policy max-degree"),
    ("greedy_sum", "--algorithm scc-greedy --policy sum-degree"),
    ("greedy_prod", "--algorithm scc-greedy --policy prod-degree"),
    ("greedy_sort", "--algorithm sort-greedy --policy prod-degree --factor 2"),
    ("random", "--algorithm random"),
    ("random_3", "--algorithm random-3"),
];

/// Sets of batches of two sizes, by skew: figure 5 shows how large they are, figure 6 how long they take.
fn set_points(setting: &Setting) -> Vec<Point> {
    let is_small = setting.size == Size::Small;
    let (skews, batches) = if is_small { (&SKEWS[3..], 3) } else { (&SKEWS[..], 1000) };
    let mut points = Vec::new();
    for transactions in ["40", "14"] {
        for &theta in skews {
            for (series, arguments) in ALGORITHMS {
                let command = format!("reorder --theta {theta} --batch {transactions} --batches {batches} {arguments}");
                points.push(setting.alone(transactions, series, theta, &command));
            }
        }
    }
    points
}
