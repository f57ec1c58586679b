//! Speculation, Table 1: which scheme is best where, and which one the model chooses.

use serde_json::Value;

use super::by_system;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Place, Point, Quantity, Shows, View};

/// The cells, in the order of the report.
const CELLS: &[&str] = &[
    "one round",
    "one round, conflicts",
    "one round, aborts",
    "one round, both",
    "two rounds",
    "two rounds, conflicts",
    "two rounds, aborts",
    "two rounds, both",
];

/// Each scheme over the best one, and the recommended one.
fn places(_: &Point, report: &Value) -> Vec<Place> {
    let mut places = Vec::new();
    for (at, cell) in report["cells"].as_array().into_iter().flatten().enumerate() {
        let Some(measured) = cell["measured"].as_object() else { continue };
        let best = measured.values().filter_map(Value::as_f64).fold(f64::MIN_POSITIVE, f64::max);
        let rates = measured.iter().filter_map(|(scheme, rate)| Some((scheme.clone(), rate.as_f64()? / best)));
        places.extend(rates.map(|(scheme, ratio)| (scheme, at as f64, ratio)));
        places.extend(cell["ratio"].as_f64().map(|ratio| ("recommended".to_owned(), at as f64, ratio)));
    }
    places
}

const fn view(title: &'static str, part: &'static str) -> View {
    View { title, part, x: Axis::Named(CELLS), shows: Shows::Many("of the best scheme", places) }
}

const fn best(says: &'static str, scheme: &'static str, x: f64) -> Claim {
    Claim::new(says, Quantity::ValueAt(scheme, x))
        .of_view(super::AS_IN_THE_PAPER)
        .between(0.95, 1.0)
        .from_threads(super::ROLES)
}

const fn well(says: &'static str, x: f64) -> Claim {
    Claim::new(says, Quantity::ValueAt("recommended", x))
        .of_view(super::AS_IN_THE_PAPER)
        .between(0.9, 1.0)
        .from_threads(super::ROLES)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Speculation,
    number: "table-1",
    title: "What the model chooses, and what is best",
    paper_shows: "Speculation is best where few transactions have several rounds and few abort; locking where many have several rounds, or abort and do not conflict; \
                  blocking is as good as any where many abort and conflict.",
    here: "30 % over two partitions; few are none, many are 10 % of aborts and 80 % of conflicts. `seriatim model cells` measures the model's times, asks \
           it, and then runs all schemes.",
    points: |setting| by_system(setting, "cells"),
    views: &[view("no delay", "none"), view("40 µs", "40"), view("200 µs", "200"), view("as in the paper", "paper")],
    claims: &[
        best("in the cell “one round” speculation is best, or less than 5 % slower", "speculation", 0.0),
        best("in the cell “one round, conflicts” speculation is best, or less than 5 % slower", "speculation", 1.0),
        best("in the cell “two rounds” locking is best, or less than 5 % slower", "locking", 4.0),
        well("in the cell “one round” what is recommended has at least 90 % of the best", 0.0),
        well("in the cell “one round, conflicts” what is recommended has at least 90 % of the best", 1.0),
        well("in the cell “one round, aborts” what is recommended has at least 90 % of the best", 2.0),
        well("in the cell “one round, both” what is recommended has at least 90 % of the best", 3.0),
        well("in the cell “two rounds” what is recommended has at least 90 % of the best", 4.0),
        well("in the cell “two rounds, conflicts” what is recommended has at least 90 % of the best", 5.0),
        well("in the cell “two rounds, aborts” what is recommended has at least 90 % of the best", 6.0),
        well("in the cell “two rounds, both” what is recommended has at least 90 % of the best", 7.0),
    ],
};
