//! Reordering, figures 16 to 18: tails by policy.

use super::{VIEWS, by_skew, five_five};
use crate::Paper;
use crate::figure::{Claim, Figure, Point, Quantity};
use crate::setting::Setting;

const VARIANTS: [(&str, &str); 4] = [
    ("base", "--protocol silo --option rebases_max=0"),
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
            .at_least(0.9)
            .from_threads(8),
        Claim::new("and has a shorter tail than mc", Quantity::Ratio("rdeg", "mc"))
            .of_view(1)
            .at_most(1.0)
            .from_threads(8),
    ],
};
