//! Speculation, figure 6: aborts.

use super::{VIEWS, by_multi};
use crate::Paper;
use crate::figure::{Claim, Figure, Quantity};

const CURVES: [(&str, &str); 6] = [
    ("speculation, 0 %", "--scheme speculation --aborts 0"),
    ("speculation, 3 %", "--scheme speculation --aborts 0.03"),
    ("speculation, 5 %", "--scheme speculation --aborts 0.05"),
    ("speculation, 10 %", "--scheme speculation --aborts 0.1"),
    ("locking, 10 %", "--scheme locking --aborts 0.1"),
    ("blocking, 10 %", "--scheme blocking --aborts 0.1"),
];

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Speculation,
    number: "6",
    title: "Aborts",
    paper_shows: "Aborts make speculation run transactions again, the more of them the more are over two partitions; it is above locking up to 5 % of aborts, and with 10 % nearly as low as blocking. Blocking and locking hardly change.",
    here: "Transactions that abort count, as they do in the paper, where a run with aborts is faster than one without.",
    points: |setting| by_multi(setting, &CURVES),
    views: VIEWS,
    claims: &[
        Claim::new(
            "without delay: at 20 %, aborts of a tenth cost speculation much",
            Quantity::RatioAt("speculation, 10 %", "speculation, 0 %", 20.0),
        )
        .ours()
        .of_view(super::NO_DELAY)
        .at_most(0.7)
        .from_threads(super::ROLES),
        Claim::new(
            "with 40 µs: at 20 %, aborts of a tenth cost speculation much",
            Quantity::RatioAt("speculation, 10 %", "speculation, 0 %", 20.0),
        )
        .ours()
        .of_view(super::DELAY_40)
        .at_most(0.7)
        .from_threads(super::ROLES),
        Claim::new(
            "as in the paper: at 20 %, aborts of a tenth cost speculation much",
            Quantity::RatioAt("speculation, 10 %", "speculation, 0 %", 20.0),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_most(0.7)
        .from_threads(super::ROLES),
        Claim::new(
            "at 20 % speculation with 5 % is not below locking",
            Quantity::RatioAt("speculation, 5 %", "locking, 10 %", 20.0),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_least(1.0)
        .from_threads(super::ROLES),
        Claim::new(
            "at 50 % speculation with 10 % is below locking",
            Quantity::RatioAt("speculation, 10 %", "locking, 10 %", 50.0),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_most(1.0)
        .from_threads(super::ROLES),
        Claim::new(
            "at 100 % speculation with 10 % is within a quarter of blocking",
            Quantity::Ratio("speculation, 10 %", "blocking, 10 %"),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .between(0.8, 1.25)
        .from_threads(super::ROLES),
    ],
};
