//! Reordering, figures 13 to 15: SmallBank.

use super::{BASE, BATCH, BATCHES_WAIT, MORE_THROUGHPUT, SR, SRVC, STORAGE_IS_BEST, VC, VIEWS, by_skew};
use crate::Paper;
use crate::figure::{Claim, Figure, Point, Quantity};
use crate::measured::Size;
use crate::setting::Setting;

const VARIANTS: [(&str, &str); 5] = [BASE, BATCH, SR, VC, SRVC];

fn smallbank(setting: &Setting, theta: f64) -> String {
    let customers = if setting.size == Size::Small { 1_000 } else { 100_000 };
    format!("smallbank --accounts {customers} --theta {theta}")
}

fn points(setting: &Setting) -> Vec<Point> {
    by_skew(setting, smallbank, &VARIANTS, 32)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Reordering,
    number: "13",
    title: "SmallBank",
    paper_shows: "Much as on the microbenchmark: reordering brings more throughput and shorter tails the more skew there is.",
    here: "Figures 13 to 15 in two views.",
    points,
    views: VIEWS,
    claims: &[
        MORE_THROUGHPUT,
        STORAGE_IS_BEST,
        Claim::new("at a skew of 0.9 validator reordering has a shorter tail", Quantity::Ratio("vc", "base"))
            .of_view(1)
            .at_most(1.0)
            .from_threads(8)
            .because(BATCHES_WAIT),
    ],
};
