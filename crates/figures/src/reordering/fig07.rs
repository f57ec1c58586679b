//! Reordering, figures 7 to 9: the greedy algorithms end to end.

use super::{VIEWS, by_skew, five_five};
use crate::Paper;
use crate::figure::{Claim, Figure, Point, Quantity};
use crate::setting::Setting;

const VARIANTS: [(&str, &str); 3] = [
    ("base", "--protocol silo --option rebases_max=0"),
    ("g", "--protocol occ-batch --option algorithm=2"),
    ("gs", "--protocol occ-batch --option algorithm=1"),
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
    here: "Figures 7 to 9 in two views.",
    points,
    views: VIEWS,
    claims: &[Claim::new(
        "at a skew of 0.9 sort-greedy has more throughput than scc-greedy",
        Quantity::Ratio("gs", "g"),
    )
    .at_least(1.0)
    .from_threads(8)
    .because("decisions take longer than ordering, whatever the algorithm")],
};
