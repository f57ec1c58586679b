//! Reordering, figures 23 to 25: YCSB with 16 requests.

use super::{LATENCY, TAIL, X, by_skews};
use crate::Paper;
use crate::figure::{Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::THROUGHPUT;
use crate::setting::Setting;

/// The paper goes on to 0.99 here.
const SKEWS: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.99];

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
    by_skews(setting, &SKEWS, ycsb, &VARIANTS, 32)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Reordering,
    number: "23",
    title: "YCSB with 16 requests",
    paper_shows: "In front of Cicada, with 28 threads and a skew of 0.99, batches by thread have up to 2.2 times the throughput and a tail shorter by up to \
                  71 %; Silo and TicToc are below.",
    here: "Figures 23 to 25 by skew, in three views. The paper's batches by thread are `by_thread`: `--batch 32` before `silo`; whose latencies have the wait in the \
           queue of calls. `occ-batch` is the validator, in which transactions that write what they read are in each other's way in any order.",
    points,
    views: &[
        View { title: "throughput", part: "", x: X, shows: Shows::One(THROUGHPUT) },
        View { title: "latency", part: "", x: X, shows: Shows::One(LATENCY) },
        View { title: "tail", part: "", x: X, shows: Shows::One(TAIL) },
    ],
    claims: &[
        Claim::new(
            "at a skew of 0.99 batches by thread have more throughput than the best protocol without",
            Quantity::Lead("by_thread", &["silo", "tictoc", "dbx", "cicada"]),
        )
        .at_least(1.0)
        .from_threads(8)
        .because(
            "nearly all of a batch write the hottest record, and run one after another on one thread; without \
                 batches they hold it for their commit only",
        ),
        Claim::new(
            "at a skew of 0.99 reordering has more throughput than the best protocol without",
            Quantity::Lead("occ-batch", &["silo", "tictoc", "dbx", "cicada"]),
        )
        .at_least(1.0)
        .from_threads(8)
        .because(
            "every write builds on a read of its row here: of all who write a row, one in a batch commits; and \
                 one thread at a time decides",
        ),
    ],
};
