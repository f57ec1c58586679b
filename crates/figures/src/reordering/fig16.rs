//! Reordering, figures 16 to 18: tails by policy.

use super::{BASE, VIEWS, by_skew, five_five};
use crate::Paper;
use crate::figure::{Claim, Figure, Point, Quantity};
use crate::setting::Setting;

const VARIANTS: [(&str, &str); 4] = [
    BASE,
    ("mc", "--protocol occ-batch --option policy=3"),
    ("rct", "--protocol occ-batch --option policy=4"),
    ("rdeg", "--protocol occ-batch --option policy=5"),
];

fn points(setting: &Setting) -> Vec<Point> {
    by_skew(setting, five_five, &VARIANTS, 32)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Reordering,
    number: "16",
    title: "Tails by policy",
    paper_shows: "Policies that spare those that were left out before cost next to no throughput. The one that weighs degrees with restarts, rdeg, has the \
                  shortest tails throughout, by up to 86 %.",
    here: "Figures 16 to 18 in two views; the tail is that of 99 in 100.",
    points,
    views: VIEWS,
    claims: &[
        Claim::new("at a skew of 0.9 rdeg costs next to no throughput", Quantity::Ratio("rdeg", "mc"))
            .at_least(0.95)
            .from_threads(8),
        Claim::new("at every skew its tail is no longer than that of mc", Quantity::MostRatio("rdeg", "mc"))
            .of_view(1)
            .at_most(1.0)
            .from_threads(8),
        Claim::new("at a skew of 0.9 it has the shortest tail", Quantity::Trail("rdeg", &["base", "mc", "rct"]))
            .of_view(1)
            .at_most(1.0)
            .from_threads(8)
            .because(super::BATCHES_WAIT),
        Claim::new("at some skew a tail 86 % shorter than no batching", Quantity::LeastRatio("rdeg", "base"))
            .of_view(1)
            .at_most(0.14)
            .from_threads(8)
            .because(super::BATCHES_WAIT),
    ],
};
