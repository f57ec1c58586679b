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
        Claim {
            says: "without delay: at 50 % locking is above speculation",
            view: super::NO_DELAY,
            quantity: Quantity::RatioAt("locking", "speculation", 50.0),
            min: 1.1,
            max: f64::INFINITY,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
        Claim {
            says: "with 40 µs: at 50 % locking is above speculation",
            view: super::DELAY_40,
            quantity: Quantity::RatioAt("locking", "speculation", 50.0),
            min: 1.1,
            max: f64::INFINITY,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
        Claim {
            says: "with 200 µs: at 50 % locking is above speculation",
            view: super::DELAY_200,
            quantity: Quantity::RatioAt("locking", "speculation", 50.0),
            min: 1.1,
            max: f64::INFINITY,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
        Claim {
            says: "as in the paper: at 50 % locking is above speculation",
            view: super::AS_IN_THE_PAPER,
            quantity: Quantity::RatioAt("locking", "speculation", 50.0),
            min: 1.1,
            max: f64::INFINITY,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
        Claim {
            says: "speculation is only slightly better than blocking",
            view: super::AS_IN_THE_PAPER,
            quantity: Quantity::Ratio("speculation", "blocking"),
            min: 1.0,
            max: 1.4,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
        Claim {
            says: "locking is little affected by the share of these transactions",
            view: super::AS_IN_THE_PAPER,
            quantity: Quantity::Between("locking", 20.0, 100.0),
            min: 0.7,
            max: f64::INFINITY,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
    ],
};
