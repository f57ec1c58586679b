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
        Claim {
            says: "without delay: at 20 %, aborts of a tenth cost speculation much",
            view: super::NO_DELAY,
            quantity: Quantity::RatioAt("speculation, 10 %", "speculation, 0 %", 20.0),
            min: f64::NEG_INFINITY,
            max: 0.9,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
        Claim {
            says: "with 40 µs: at 20 %, aborts of a tenth cost speculation much",
            view: super::DELAY_40,
            quantity: Quantity::RatioAt("speculation, 10 %", "speculation, 0 %", 20.0),
            min: f64::NEG_INFINITY,
            max: 0.9,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
        Claim {
            says: "as in the paper: at 20 %, aborts of a tenth cost speculation much",
            view: super::AS_IN_THE_PAPER,
            quantity: Quantity::RatioAt("speculation, 10 %", "speculation, 0 %", 20.0),
            min: f64::NEG_INFINITY,
            max: 0.9,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
        Claim {
            says: "at 20 % speculation with 3 % is not below locking",
            view: super::AS_IN_THE_PAPER,
            quantity: Quantity::RatioAt("speculation, 3 %", "locking, 10 %", 20.0),
            min: 1.0,
            max: f64::INFINITY,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
        Claim {
            says: "at 50 % speculation with 10 % is below locking",
            view: super::AS_IN_THE_PAPER,
            quantity: Quantity::RatioAt("speculation, 10 %", "locking, 10 %", 50.0),
            min: f64::NEG_INFINITY,
            max: 1.0,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
        Claim {
            says: "at 100 % speculation with 10 % is nearly as low as blocking",
            view: super::AS_IN_THE_PAPER,
            quantity: Quantity::Ratio("speculation, 10 %", "blocking, 10 %"),
            min: f64::NEG_INFINITY,
            max: 1.5,
            threads: super::ROLES,
            regions: false,
            because: "",
        },
    ],
};
