//! HTCC, figure 19: what repairs cost.

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::THROUGHPUT;
use crate::setting::Setting;

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = Vec::new();
    for scene in setting.widest(40) {
        for warehouses in super::warehouses(setting, scene) {
            for (series, more) in [("htcc", ""), ("htcc (NV)", "--without-validation")] {
                let command = setting.tpcc(warehouses, "htcc-rows", more);
                points.push(setting.point("", series, warehouses as f64, scene, &command));
            }
        }
    }
    points
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: "19",
    title: "What repairs cost",
    paper_shows: "With 40 threads and 4 warehouses a variant that does not validate, and so never repairs, commits over 40 % more than HTCC. With more \
                  warehouses the two come together.",
    here: "TPC-C's full mix, with and without validation of what was read. Without it (NV) the results are wrong. Rows that are to be written still refute if they \
           changed, which the paper's variant seems to leave out: orders would get numbers that others have. Whole rows are validated.",
    points,
    views: &[View { title: "", part: "", x: Axis::Number("warehouses"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim::new(
            "with 4 warehouses it commits over 40 % more without validation",
            Quantity::RatioAt("htcc (NV)", "htcc", 4.0),
        )
        .at_least(1.4)
        .from_threads(40)
        .because("Rows that are to be written refute this variant, too, as said above; of what else is refuted, repairs give back most."),
        Claim::new("with the most warehouses both are about equal", Quantity::Ratio("htcc (NV)", "htcc"))
            .between(0.9, 1.1)
            .from_threads(2),
        Claim::new("validation and repairs cost less as warehouses are added", Quantity::Widening("htcc (NV)", "htcc"))
            .at_most(1.0)
            .from_threads(40),
    ],
};
