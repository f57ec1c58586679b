//! DBX-TC, table 1: what regions of TPC-C's transactions touch.

use serde_json::Value;

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Place, Point, Quantity, Shows, View};
use crate::setting::Setting;

fn points(setting: &Setting) -> Vec<Point> {
    let point = |scene| {
        let command = setting.tpcc(1, "dbx-tc", "--option late_period=0 --htm auto");
        setting.point("", "dbx-tc", 0.0, scene, &command)
    };
    setting.widest(8).into_iter().map(point).collect()
}

/// As reports name them, in the order of [`TRANSACTIONS`].
const KINDS: [&str; 3] = ["new_order", "payment", "delivery"];
const TRANSACTIONS: [&str; 3] = ["New-Order", "Payment", "Delivery"];

/// The curves: which part of a transaction, and what is counted of it.
const CURVES: [(&str, &str, &str); 5] = [
    ("read", "all", "read"),
    ("written", "all", "written"),
    ("all", "all", "lines"),
    ("first piece", "first", "lines"),
    ("a late piece", "late", "lines"),
];

fn places(_: &Point, report: &Value) -> Vec<Place> {
    let place = |(x, kind): (usize, &str), (curve, part, of): (&str, &str, &str)| {
        let lines = report["transactions"][kind]["working_sets"][part][of]["mean"].as_f64()?;
        Some((curve.to_owned(), x as f64, lines))
    };
    let of = |kind| CURVES.into_iter().filter_map(move |curve| place(kind, curve));
    KINDS.into_iter().enumerate().flat_map(of).collect()
}

const NEW_ORDER: f64 = 0.0;
const PAYMENT: f64 = 1.0;
const DELIVERY: f64 = 2.0;

const fn claim(says: &'static str, quantity: Quantity, min: f64, max: f64) -> Claim {
    Claim::new(says, quantity).between(min, max).about_regions()
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::DbxTc,
    number: "table-1",
    title: "Working sets of TPC-C in regions",
    paper_shows: "Transactions that run whole in a region touch, in bytes: New-Order 8,312 (7,864 read, 1,938 written), Payment 2,372 (2,240, 656), Delivery 16,404 \
                  (13,567, 4,178), Order-Status 2,394 (2,241, 469), Stock-Level 40,493 (40,101, 1,341).",
    here: "Cache lines that the regions of a transaction touched which committed, on average, of eight simulated cores and one warehouse; sums are published late \
           by all (`late_period=0`). Only what validates and installs is in a region here, and index changes have their own, which are left out. Order-Status and Stock-Level read a \
           snapshot, in no region. A thread of the machine does not tell.",
    points,
    views: &[View {
        title: "",
        part: "",
        x: Axis::Named(&TRANSACTIONS),
        shows: Shows::Many("cache lines of a transaction", places),
    }],
    claims: &[
        claim(
                "a Delivery touches about 2 times what a New-Order does",
                Quantity::Between("all", NEW_ORDER, DELIVERY),
                1.8,
                2.2,
            ).because("Both insert and scan outside the region here; what is left of a New-Order is little, while a Delivery validates all that it read of ten orders."),
        claim(
                "a Payment touches less than a third of a New-Order",
                Quantity::Between("all", NEW_ORDER, PAYMENT),
                f64::NEG_INFINITY,
                0.33,
            ).because("A Payment's three pieces are counted one by one, and a New-Order's insertions have regions of their own."),
        claim(
                "a New-Order reads about 4 times what it writes",
                Quantity::RatioAt("read", "written", NEW_ORDER),
                3.6,
                4.4,
            ).because("What is read is looked up and copied before the region, which looks at one word of it again."),
        claim(
            "chopped, a Payment's first piece is smaller than the whole",
            Quantity::RatioAt("first piece", "all", PAYMENT),
            f64::NEG_INFINITY,
            0.9,
        ).ours(),
        claim(
            "what is published late is smaller than the rest",
            Quantity::RatioAt("a late piece", "first piece", PAYMENT),
            f64::NEG_INFINITY,
            0.7,
        ).ours(),
    ],
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_support::large;

    #[test]
    fn lines_are_those_of_the_parts_that_transactions_have() {
        let point = points(&large()).remove(0);
        let sizes = |lines: u32| json!({ "count": 1, "read": { "mean": lines }, "written": { "mean": 1 }, "lines": { "mean": lines + 1 } });
        let report = json!({ "transactions": {
            "payment": { "working_sets": { "first": sizes(5), "late": sizes(2), "all": sizes(9) } },
            "delivery": { "working_sets": { "first": sizes(50), "late": null, "all": sizes(50) } },
            "stock_level": { "working_sets": null },
        } });
        let of = |curve: &str, x: f64| {
            places(&point, &report).into_iter().find(|place| place.0 == curve && place.1 == x).map(|place| place.2)
        };
        assert_eq!(
            (of("read", PAYMENT), of("all", PAYMENT), of("a late piece", PAYMENT)),
            (Some(9.0), Some(10.0), Some(3.0))
        );
        assert_eq!((of("first piece", DELIVERY), of("a late piece", DELIVERY)), (Some(51.0), None));
        assert_eq!(of("all", NEW_ORDER), None);
    }
}
