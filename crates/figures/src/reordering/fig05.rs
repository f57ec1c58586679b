//! Reordering, figure 5: sizes of feedback vertex sets.

use super::{X, set_points};
use crate::Paper;
use crate::figure::{Claim, Figure, Quantity, Shows, View};
use crate::metric::Metric;

const SIZE: Metric =
    Metric { label: "transactions left out of a batch", of: |report| report.get("left_out")?.as_f64() };

/// Above the smallest set; of batches that lose nobody there is nothing to compare.
const EXCESS: Metric = Metric {
    label: "left out for each that must be",
    of: |report| {
        let smallest = report.get("smallest")?.as_f64().filter(|smallest| *smallest > 0.0)?;
        Some(report.get("left_out")?.as_f64()? / smallest)
    },
};

/// Why random sets are nearer to greedy ones.
const DRAWN: &str =
    "the paper's graphs come from a running system, in which what was left out comes again; these are drawn";

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Reordering,
    number: "05",
    title: "Sizes of feedback vertex sets",
    paper_shows: "Random sets are almost twice as large as those of the greedy and hybrid algorithms, also the best of three. Greedy ones are almost as small \
                  as exact search finds them up to a skew of 0.7, beyond which that ends nowhere, and close to those of the best hybrid. Of the policies \
                  prod-degree is the best by a little.",
    here: "Batches of 40 and of 14 transactions are drawn by the law of the microbenchmark, where the paper's come from a running system. Of 14 the smallest \
           set is found by trying all subsets. Exact search is branch and bound, and ends with the best it has after 10,000 steps.",
    points: set_points,
    views: &[
        View { title: "batches of 40", part: "40", x: X, shows: Shows::One(SIZE) },
        View { title: "batches of 14, over the smallest", part: "14", x: X, shows: Shows::One(EXCESS) },
    ],
    claims: &[
        Claim::new(
            "at a skew of 0.9 random sets are almost twice as large as greedy ones",
            Quantity::Ratio("random", "greedy_prod"),
        )
        .between(1.7, 2.0)
        .because(DRAWN),
        Claim::new("and so is the best of three", Quantity::Ratio("random_3", "greedy_prod"))
            .between(1.7, 2.0)
            .because(DRAWN),
        Claim::new(
            "greedy sets are close to those of hybrid_20 at every skew",
            Quantity::LeastRatio("hybrid_20", "greedy_prod"),
        )
        .between(0.9, 1.0001),
        Claim::new("up to a skew of 0.7 greedy sets are almost the smallest", Quantity::ValueAt("greedy_prod", 0.7))
            .of_view(1)
            .between(1.0, 1.05),
        Claim::new(
            "at a skew of 0.9 prod-degree is a little better than max-degree",
            Quantity::Ratio("greedy_prod", "greedy_max"),
        )
        .between(0.8, 1.0),
        Claim::new("and a little better than sum-degree", Quantity::Ratio("greedy_prod", "greedy_sum"))
            .between(0.8, 1.0)
            .because("the two differ by less than one batch does from the next"),
    ],
};
