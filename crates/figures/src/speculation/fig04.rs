//! Speculation, figure 4: transactions over two partitions.

use super::{SCHEMES, VIEWS, by_multi};
use crate::Paper;
use crate::figure::{Claim, Figure, Quantity};

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Speculation,
    number: "4",
    title: "Transactions over two partitions",
    paper_shows: "Without such transactions all schemes are equal. Blocking falls steeply and is below the others throughout; speculation is up to 13 % above locking until the coordinator is full at 50 %, and 45 % below it at 100 %.",
    here: "40 clients where there is no delay, more where there is, so that owners do not run out of work.",
    points: |setting| by_multi(setting, &SCHEMES),
    views: VIEWS,
    claims: &[
        Claim::new(
            "without delay: at 20 % blocking is far below speculation",
            Quantity::RatioAt("blocking", "speculation", 20.0),
        )
        .ours()
        .of_view(super::NO_DELAY)
        .at_most(0.7)
        .from_threads(super::ROLES),
        Claim::new(
            "without delay: at 20 % speculation is at least as fast as locking",
            Quantity::RatioAt("speculation", "locking", 20.0),
        )
        .ours()
        .of_view(super::NO_DELAY)
        .at_least(1.0)
        .from_threads(super::ROLES),
        Claim::new(
            "with 40 µs: at 20 % blocking is far below speculation",
            Quantity::RatioAt("blocking", "speculation", 20.0),
        )
        .ours()
        .of_view(super::DELAY_40)
        .at_most(0.7)
        .from_threads(super::ROLES),
        Claim::new(
            "with 40 µs: at 20 % speculation is at least as fast as locking",
            Quantity::RatioAt("speculation", "locking", 20.0),
        )
        .ours()
        .of_view(super::DELAY_40)
        .at_least(1.0)
        .from_threads(super::ROLES),
        Claim::new(
            "with 200 µs: at 20 % blocking is far below speculation",
            Quantity::RatioAt("blocking", "speculation", 20.0),
        )
        .ours()
        .of_view(super::DELAY_200)
        .at_most(0.7)
        .from_threads(super::ROLES),
        Claim::new(
            "with 200 µs: at 20 % speculation is at least as fast as locking",
            Quantity::RatioAt("speculation", "locking", 20.0),
        )
        .ours()
        .of_view(super::DELAY_200)
        .at_least(1.0)
        .from_threads(super::ROLES),
        Claim::new(
            "as in the paper: at 20 % blocking is far below speculation",
            Quantity::RatioAt("blocking", "speculation", 20.0),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_most(0.7)
        .from_threads(super::ROLES),
        Claim::new(
            "as in the paper: at some share speculation is 13 % above locking",
            Quantity::MostRatio("speculation", "locking"),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_least(1.13)
        .from_threads(super::ROLES)
        .because(super::SHORT_LOCKS),
        Claim::new(
            "as in the paper: the coordinator is full at 100 %, and locking 45 % above speculation",
            Quantity::Ratio("locking", "speculation"),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_least(1.45)
        .from_threads(super::ROLES)
        .because(
            "The coordinator is full where a message costs it much: 92 µs a transaction in the paper, some 2 \
                 µs here, beside transactions of 64 µs.",
        ),
        Claim::new(
            "without delay: the coordinator is full at 100 %, and locking above speculation",
            Quantity::Ratio("locking", "speculation"),
        )
        .ours()
        .of_view(super::NO_DELAY)
        .at_least(1.0)
        .from_threads(super::ROLES),
        Claim::new(
            "as in the paper: at 0 % locking is as fast as blocking",
            Quantity::RatioAt("locking", "blocking", 0.0),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .between(0.95, 1.05)
        .from_threads(super::ROLES),
        Claim::new("and so is speculation", Quantity::RatioAt("speculation", "blocking", 0.0))
            .of_view(super::AS_IN_THE_PAPER)
            .between(0.95, 1.05)
            .from_threads(super::ROLES),
        Claim::new("as in the paper: blocking is nowhere above locking", Quantity::MostRatio("blocking", "locking"))
            .of_view(super::AS_IN_THE_PAPER)
            .at_most(1.02)
            .from_threads(super::ROLES),
    ],
};
