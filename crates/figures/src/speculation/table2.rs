//! Speculation, Table 2: the model's times.

use serde_json::Value;

use super::{by_system, number};
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Place, Point, Quantity, Shows, View};

const TIMES: &[&str] = &["tsp", "tspS", "tmp", "tmpC", "tmpN", "coordinator"];
const FIELDS: [&str; 6] = ["single", "single_speculated", "multi", "multi_processor", "stall", "coordinator"];

/// The times in µs, and the share of locks in percent.
fn places(_: &Point, report: &Value) -> Vec<Place> {
    let time = |(at, field): (usize, &&str)| {
        Some(("times".to_owned(), at as f64, number(report, &format!("/times/{field}_us"))?))
    };
    let times = FIELDS.iter().enumerate().filter_map(time);
    let locks = number(report, "/times/locks").map(|share| ("l, percent".to_owned(), 0.0, 100.0 * share));
    times.chain(locks).collect()
}

const fn view(title: &'static str, part: &'static str) -> View {
    View { title, part, x: Axis::Named(TIMES), shows: Shows::Many("µs", places) }
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Speculation,
    number: "table-2",
    title: "Times of the model",
    paper_shows: "tsp 64 µs, tspS 73 µs, tmp 211 µs, tmpC 55 µs, tmpN 40 µs, l 13.2 %. (tmp less tmpC is 156 µs, which is what §6.2 calls the stall.)",
    here: "`seriatim model measure`. tmpN is tmp less tmpC.",
    points: |setting| by_system(setting, "measure"),
    views: &[view("no delay", "none"), view("40 µs", "40"), view("200 µs", "200"), view("as in the paper", "paper")],
    claims: &[
        Claim::new(
            "undo makes a transaction 4 to 24 % longer, in the paper 14 %",
            Quantity::Between("times", 0.0, 1.0),
        )
        .ours()
        .of_view(super::NO_DELAY)
        .between(1.04, 1.24)
        .from_threads(super::ROLES),
        Claim::new(
            "locks make transactions 8 to 18 % longer, in the paper 13.2 %",
            Quantity::ValueAt("l, percent", 0.0),
        )
        .ours()
        .of_view(super::NO_DELAY)
        .between(8.0, 18.0)
        .from_threads(super::ROLES)
        .because("Transactions are shorter here, and locks are not."),
        Claim::new(
            "a transaction over two partitions takes about 3.3 times as long as one on one",
            Quantity::Between("times", 0.0, 2.0),
        )
        .of_view(super::AS_IN_THE_PAPER)
        .between(3.0, 3.6)
        .from_threads(super::ROLES),
    ],
};
