//! Reordering, figures 23 to 25: YCSB with 16 requests.

use super::{LATENCY, TAIL, X, by_skews, by_skews_on};
use crate::Paper;
use crate::figure::{Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::THROUGHPUT;
use crate::setting::Setting;

/// The paper goes on to 0.99 here.
const SKEWS: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.99];

/// As the paper has them: batches of four transactions for each thread.
const FOUR_EACH: &str = "by_thread, 4 each";

/// Protocols that decide without batches.
const WITHOUT: [&str; 4] = ["silo", "tictoc", "dbx", "cicada"];

const VARIANTS: [(&str, &str); 6] = [
    ("silo", "--protocol silo"),
    ("tictoc", "--protocol tictoc"),
    ("dbx", "--protocol dbx"),
    ("cicada", "--protocol cicada"),
    ("by_thread", "--protocol silo --batch 32"),
    ("occ-batch", "--protocol occ-batch"),
];

fn ycsb(setting: &Setting, theta: f64) -> String {
    format!("ycsb --ops 16 --reads 50 --rmw 50 --records {} --theta {theta}", setting.records())
}

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = by_skews(setting, &SKEWS, ycsb, &VARIANTS, 32);
    for scene in setting.widest(32) {
        let batches = format!("--protocol silo --batch {}", 4 * scene.threads);
        points.extend(by_skews_on(setting, scene, &SKEWS, ycsb, &[(FOUR_EACH, &batches)]));
    }
    points
}

/// Why batches by thread are behind.
const ONE_COMPONENT: &str = "nearly all of a batch are connected by the hottest records, and run one after another on one thread; without batches they hold these for their commit only";

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Reordering,
    number: "23",
    title: "YCSB with 16 requests",
    paper_shows: "In front of Cicada, with 28 threads and a skew of 0.99, batches by thread have up to 2.2 times the throughput and a tail shorter by up to \
                  71 %; Silo and TicToc are below.",
    here: "Figures 23 to 25 by skew, in three views. The paper's batches by thread are `by_thread, 4 each`: `--batch` before `silo` with four transactions for \
           each thread; `by_thread` has 32 in a batch, however many threads there are. Their latencies have the wait in the \
           queue of calls. `occ-batch` is the validator, in which transactions that write what they read are in each other's way in any order.",
    points,
    views: &[
        View { title: "throughput", part: "", x: X, shows: Shows::One(THROUGHPUT) },
        View { title: "latency", part: "", x: X, shows: Shows::One(LATENCY) },
        View { title: "tail", part: "", x: X, shows: Shows::One(TAIL) },
    ],
    claims: &[
        Claim::new(
            "at a skew of 0.99 batches by thread have 2.2 times the throughput of the best protocol without",
            Quantity::Lead(FOUR_EACH, &WITHOUT),
        )
        .at_least(2.2)
        .from_threads(8)
        .because(ONE_COMPONENT),
        Claim::new("and a tail 71 % shorter than the shortest without", Quantity::Trail(FOUR_EACH, &WITHOUT))
            .of_view(2)
            .at_most(0.29)
            .from_threads(8)
            .because(ONE_COMPONENT),
        Claim::new(
            "at a skew of 0.99 reordering has more throughput than the best protocol without",
            Quantity::Lead("occ-batch", &WITHOUT),
        )
        .at_least(1.0)
        .from_threads(8)
        .because(
            "every write builds on a read of its row here: of all who write a row, one in a batch commits. Between its read of the hottest \
             record, which two fifths of the transactions write, and its commit a transaction waits for its batch, its order and its turn, where \
             without batches it commits at once",
        ),
    ],
};
