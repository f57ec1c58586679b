//! Reordering, figures 23 to 25: YCSB with 16 requests.

use super::{VIEWS, by_skew};
use crate::Paper;
use crate::figure::{Claim, Figure, Point, Quantity};
use crate::setting::Setting;

const VARIANTS: [(&str, &str); 4] = [
    ("silo", "--protocol silo"),
    ("tictoc", "--protocol tictoc"),
    ("dbx", "--protocol dbx"),
    ("occ-batch", "--protocol occ-batch"),
];

fn ycsb(setting: &Setting, theta: f64) -> String {
    // The paper goes on to 0.99.
    let theta = if theta == 0.9 { 0.99 } else { theta };
    format!("ycsb --ops 16 --reads 50 --rmw 50 --records {} --theta {theta}", setting.records())
}

fn points(setting: &Setting) -> Vec<Point> {
    by_skew(setting, ycsb, &VARIANTS, 32)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Reordering,
    number: "23",
    title: "YCSB with 16 requests",
    paper_shows: "In front of Cicada, with 28 threads and a skew of 0.99, batches by thread have up to 2.2 times the throughput and a tail shorter by up to \
                  71 %; Silo and TicToc are below.",
    here: "Figures 23 to 25 by skew; where the axis says 0.9 it is 0.99. The paper's batches by thread are `--batch N`, before any protocol (docs/batching.md has them); this is the \
           validator, in which transactions that write what they read are in each other's way in any order.",
    points,
    views: VIEWS,
    claims: &[Claim {
        says: "at a skew of 0.99 reordering has more throughput than the best protocol without",
        view: 0,
        quantity: Quantity::Lead("occ-batch", &["silo", "tictoc", "dbx"]),
        min: 1.0,
        max: f64::INFINITY,
        threads: 8,
        regions: false,
        because: "every write builds on a read of its row here: of all who write a row, one in a batch commits; and one thread at a time decides",
    }],
};
