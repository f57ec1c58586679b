//! Speculation, figure 5: conflicts.

use super::{VIEWS, by_multi};
use crate::Paper;
use crate::figure::{Claim, Figure, Quantity};

const CURVES: [(&str, &str); 6] = [
    ("speculation", "--scheme speculation --conflicts 1"),
    ("blocking", "--scheme blocking --conflicts 1"),
    ("locking, 0 %", "--scheme locking --conflicts 0"),
    ("locking, 20 %", "--scheme locking --conflicts 0.2"),
    ("locking, 60 %", "--scheme locking --conflicts 0.6"),
    ("locking, 100 %", "--scheme locking --conflicts 1"),
];

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Speculation,
    number: "5",
    title: "Conflicts",
    paper_shows: "Conflicts do not change blocking and speculation, which take all transactions to conflict. Locking falls as they grow, and nears blocking, above which it stays; speculation is up to 2.5 times as fast.",
    here: "The first two clients keep to a partition each, and the others write one of their keys with the probability that is shown. Speculation and blocking run with the highest.",
    points: |setting| by_multi(setting, &CURVES),
    views: VIEWS,
    claims: &[
        Claim::new(
            "with 40 µs: at 50 % conflicts cost locking much",
            Quantity::RatioAt("locking, 100 %", "locking, 0 %", 50.0),
        )
        .ours()
        .of_view(super::DELAY_40)
        .at_most(0.7)
        .from_threads(super::ROLES),
        Claim::new(
            "with 40 µs: at 50 % speculation is far above locking where all conflict",
            Quantity::RatioAt("speculation", "locking, 100 %", 50.0),
        )
        .ours()
        .of_view(super::DELAY_40)
        .at_least(1.4)
        .from_threads(super::ROLES),
        Claim::new(
            "with 200 µs: at 50 % conflicts cost locking much",
            Quantity::RatioAt("locking, 100 %", "locking, 0 %", 50.0),
        )
        .ours()
        .of_view(super::DELAY_200)
        .at_most(0.7)
        .from_threads(super::ROLES),
        Claim::new(
            "with 200 µs: at 50 % speculation is far above locking where all conflict",
            Quantity::RatioAt("speculation", "locking, 100 %", 50.0),
        )
        .ours()
        .of_view(super::DELAY_200)
        .at_least(1.4)
        .from_threads(super::ROLES),
        Claim::new(
            "as in the paper: at 50 % conflicts cost locking much",
            Quantity::RatioAt("locking, 100 %", "locking, 0 %", 50.0),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_most(0.7)
        .from_threads(super::ROLES),
        Claim::new(
            "as in the paper: at 50 % speculation is far above locking where all conflict",
            Quantity::RatioAt("speculation", "locking, 100 %", 50.0),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_least(1.4)
        .from_threads(super::ROLES),
        Claim::new(
            "as in the paper: at some share speculation has 2.5 times the throughput of locking where all conflict",
            Quantity::MostRatio("speculation", "locking, 100 %"),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_least(2.5)
        .from_threads(super::ROLES),
        Claim::new(
            "at 100 % locking is still above blocking where all conflict",
            Quantity::Ratio("locking, 100 %", "blocking"),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_least(1.0)
        .from_threads(super::ROLES),
    ],
};
