//! Reordering, figures 20 to 22: reordering workers.

use super::{VIEWS, by_skew, five_five};
use crate::Paper;
use crate::figure::{Claim, Figure, Point, Quantity};
use crate::setting::Setting;

const VARIANTS: [(&str, &str); 4] = [
    ("w1", "--protocol occ-batch --option batch_max=8 --option reorder_workers=1"),
    ("w2", "--protocol occ-batch --option batch_max=8 --option reorder_workers=2"),
    ("w3", "--protocol occ-batch --option batch_max=8 --option reorder_workers=3"),
    ("w4", "--protocol occ-batch --option batch_max=8 --option reorder_workers=4"),
];

fn points(setting: &Setting) -> Vec<Point> {
    by_skew(setting, five_five, &VARIANTS, 32)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Reordering,
    number: "20",
    title: "Reordering workers",
    paper_shows: "With skew, four workers bring up to 2.6 times the throughput of one and shorten the tails by up to 41 %: to order batches is what takes \
                  longest in the validator.",
    here: "Figures 20 to 22 in two views. Batches of 8, so that several are full with as few transactions as there are at a time here. Beside those that the workers \
           order one batch is decided, so w1 has two under way.",
    points,
    views: VIEWS,
    claims: &[
        Claim::new("at a skew of 0.9 four workers have more throughput than one", Quantity::Ratio("w4", "w1"))
            .at_least(1.05)
            .from_threads(8),
        Claim::new("at some skew they have 2.6 times the throughput", Quantity::MostRatio("w4", "w1"))
            .at_least(2.6)
            .from_threads(8),
        Claim::new("at some skew a tail 41 % shorter", Quantity::LeastRatio("w4", "w1"))
            .of_view(1)
            .at_most(0.59)
            .from_threads(8),
    ],
};
