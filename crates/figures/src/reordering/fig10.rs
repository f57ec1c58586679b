//! Reordering, figures 10 to 12: what batching and reordering bring on the microbenchmark.

use super::{BASE, BATCH, BATCHES_WAIT, MORE_THROUGHPUT, SR, SRVC, STORAGE_IS_BEST, VC, VIEWS, by_skew, five_five};
use crate::Paper;
use crate::figure::{Claim, Figure, Point, Quantity};
use crate::setting::Setting;

const VARIANTS: [(&str, &str); 6] = [BASE, ("silo", "--protocol silo"), BATCH, SR, VC, SRVC];

fn points(setting: &Setting) -> Vec<Point> {
    by_skew(setting, five_five, &VARIANTS, 32)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Reordering,
    number: "10",
    title: "Batching and reordering",
    paper_shows: "With up to 300 transactions at a time, batching with reordering brings up to 2.7 times the throughput, and reordering in the \
                  validator shortens tails by up to 82 %. At a skew of 0.9 batching in the storage alone is best.",
    here: "Figures 10 to 12 in two views. Silo with merged updates is shown beside. 16 transactions at a time on the machine's threads, 32 on simulated cores.",
    points,
    views: VIEWS,
    claims: &[
        MORE_THROUGHPUT,
        Claim::new(
            "at some skew a mode with reordering has 2.7 times the throughput of no batching",
            Quantity::LeastLead("base", &["sr", "vc", "srvc"]),
        )
        .at_most(0.37)
        .from_threads(8)
        .because(BATCHES_WAIT),
        STORAGE_IS_BEST,
        Claim::new(
            "at some skew validator reordering has a tail 82 % shorter than no batching",
            Quantity::LeastRatio("vc", "base"),
        )
        .of_view(1)
        .at_most(0.18)
        .from_threads(8)
        .because(BATCHES_WAIT),
    ],
};
