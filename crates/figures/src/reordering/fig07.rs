//! Reordering, figures 7 to 9: the greedy algorithms end to end.

use super::{BASE, VIEWS, by_skew, five_five};
use crate::Paper;
use crate::figure::{Claim, Figure, Point, Quantity};
use crate::setting::Setting;

/// As the paper has them: storage batching, batches of 40, one after another.
const G_40: &str = "g, 40";
const GS_40: &str = "gs, 40";

const VARIANTS: [(&str, &str); 5] = [
    BASE,
    ("g", "--protocol occ-batch --option algorithm=2"),
    ("gs", "--protocol occ-batch --option algorithm=1"),
    (
        G_40,
        "--protocol occ-batch --option algorithm=2 --option storage_batching=1 --option batch_max=40 --option reorder_workers=1",
    ),
    (
        GS_40,
        "--protocol occ-batch --option algorithm=1 --option storage_batching=1 --option batch_max=40 --option reorder_workers=1",
    ),
];

fn points(setting: &Setting) -> Vec<Point> {
    by_skew(setting, five_five, &VARIANTS, 32)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Reordering,
    number: "07",
    title: "Greedy algorithms end to end",
    paper_shows: "Where skew is low the algorithms are alike. With more of it the one by strongly connected components falls behind, since it takes longer; \
                  the sort-based one has the highest throughput and the shortest tails at every skew.",
    here: "Figures 7 to 9 in two views. `g, 40` and `gs, 40` are the paper's two: storage batching, and batches of up to 40 that are ordered one after \
           another. `g` and `gs` are `occ-batch` as it is shipped but for the algorithm: no storage batching, and batches of 4, of which next to \
           none has a cycle that the algorithms could treat otherwise, so nothing is concluded from them.",
    points,
    views: VIEWS,
    claims: &[
        Claim::new("at the lowest skew both are about equal", Quantity::RatioAt(GS_40, G_40, 0.5))
            .between(0.9, 1.1)
            .from_threads(8),
        Claim::new("with more skew sort-greedy gets ahead of scc-greedy", Quantity::Widening(GS_40, G_40))
            .at_least(1.0)
            .from_threads(8),
        Claim::new("sort-greedy has the most throughput at every skew", Quantity::LeastLead(GS_40, &["base", G_40]))
            .at_least(1.0)
            .from_threads(8)
            .because(super::BATCHES_WAIT),
        Claim::new("and the shortest tail at a skew of 0.9", Quantity::Trail(GS_40, &["base", G_40]))
            .of_view(1)
            .at_most(1.0)
            .from_threads(8)
            .because(super::BATCHES_WAIT),
    ],
};
