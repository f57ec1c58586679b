//! Speculation, figure 10: the model against measurements.

use serde_json::Value;

use super::by_system;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Place, Point, Quantity, Shows, View};

/// Throughput of each scheme, measured and as the model has it.
fn places(_: &Point, report: &Value) -> Vec<Place> {
    let mut places = Vec::new();
    for of in report["compared"].as_array().into_iter().flatten() {
        let (Some(scheme), Some(multi)) = (of["scheme"].as_str(), of["multi"].as_f64()) else { continue };
        for (name, suffix) in [("measured", ""), ("model", ", model")] {
            if let Some(rate) = of[name].as_f64() {
                places.push((format!("{scheme}{suffix}"), 100.0 * multi, rate / 1000.0));
            }
        }
    }
    places
}

const fn view(title: &'static str, part: &'static str) -> View {
    let x = Axis::Number("percent over two partitions");
    View { title, part, x, shows: Shows::Many("thousand transactions a second", places) }
}

const fn near(says: &'static str, view: usize, quantity: Quantity) -> Claim {
    Claim::new(says, quantity).of_view(view).between(0.8, 1.25).from_threads(super::ROLES)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Speculation,
    number: "10",
    title: "The model against measurements",
    paper_shows: "With its measured times the model is close to the throughput of all schemes over the share of transactions over two partitions, but for the limit \
                  of the coordinator, which it does not know.",
    here: "`seriatim model compare` measures the times on the same system first. Here the model has the time of the coordinator too.",
    points: |setting| by_system(setting, "compare"),
    views: &[view("no delay", "none"), view("40 µs", "40"), view("200 µs", "200"), view("as in the paper", "paper")],
    claims: &[
        near(
            "at 20 % the model is within a quarter of blocking",
            super::AS_IN_THE_PAPER,
            Quantity::RatioAt("blocking, model", "blocking", 20.0),
        ),
        near(
            "at 20 % the model is within a quarter of speculation",
            super::AS_IN_THE_PAPER,
            Quantity::RatioAt("speculation, model", "speculation", 20.0),
        ),
        near(
            "at 20 % the model is within a quarter of locking",
            super::AS_IN_THE_PAPER,
            Quantity::RatioAt("locking, model", "locking", 20.0),
        ),
        near(
            "at 20 % the model is within a quarter of local speculation",
            super::AS_IN_THE_PAPER,
            Quantity::RatioAt("local-speculation, model", "local-speculation", 20.0),
        ),
        near(
            "with 40 µs, at 20 %, the model is within a quarter of blocking",
            super::DELAY_40,
            Quantity::RatioAt("blocking, model", "blocking", 20.0),
        ),
        near(
            "with 40 µs, at 20 %, the model is within a quarter of speculation",
            super::DELAY_40,
            Quantity::RatioAt("speculation, model", "speculation", 20.0),
        ),
        near(
            "with 40 µs, at 20 %, the model is within a quarter of locking",
            super::DELAY_40,
            Quantity::RatioAt("locking, model", "locking", 20.0),
        ),
    ],
};
