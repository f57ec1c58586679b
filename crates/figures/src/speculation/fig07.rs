//! Speculation, figure 7: two rounds.

use super::{SCHEMES, VIEWS, by_multi};
use crate::Paper;
use crate::figure::{Claim, Figure, Quantity};

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Speculation,
    number: "7",
    title: "Two rounds",
    paper_shows: "All transactions over two partitions read in a first round and write in a second. Blocking takes nearly twice as long for them; speculation is only slightly better, since it cannot begin before the last round; locking is hardly affected. Speculation is above locking up to 4 % of such transactions.",
    here: "As in the paper.",
    points: |setting| by_multi(setting, &SCHEMES),
    views: VIEWS,
    claims: &[
        Claim::new(
            "without delay: at 50 % locking is above speculation",
            Quantity::RatioAt("locking", "speculation", 50.0),
        )
        .ours()
        .of_view(super::NO_DELAY)
        .at_least(1.1)
        .from_threads(super::ROLES),
        Claim::new(
            "with 40 µs: at 50 % locking is above speculation",
            Quantity::RatioAt("locking", "speculation", 50.0),
        )
        .ours()
        .of_view(super::DELAY_40)
        .at_least(1.1)
        .from_threads(super::ROLES),
        Claim::new(
            "with 200 µs: at 50 % locking is above speculation",
            Quantity::RatioAt("locking", "speculation", 50.0),
        )
        .ours()
        .of_view(super::DELAY_200)
        .at_least(1.1)
        .from_threads(super::ROLES),
        Claim::new(
            "as in the paper: at 50 % locking is above speculation",
            Quantity::RatioAt("locking", "speculation", 50.0),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_least(1.1)
        .from_threads(super::ROLES),
        Claim::new("as in the paper: at 5 % it is, too", Quantity::RatioAt("locking", "speculation", 5.0))
            .of_view(super::AS_IN_THE_PAPER)
            .at_least(1.0)
            .from_threads(super::ROLES)
            .because("In the paper both meet at 4 %, and a lock takes it longer. Here it takes 0.3 µs."),
        Claim::new("speculation is only a little better than blocking", Quantity::Ratio("speculation", "blocking"))
            .of_view(super::AS_IN_THE_PAPER)
            .between(1.0, 1.25)
            .from_threads(super::ROLES),
        Claim::new(
            "locking is little affected by the share of these transactions: from 20 to 100 % by less than a fifth",
            Quantity::Between("locking", 20.0, 100.0),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .at_least(0.8)
        .from_threads(super::ROLES),
    ],
};
