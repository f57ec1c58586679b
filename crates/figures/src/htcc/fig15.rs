//! HTCC, figure 15: TPC-C by warehouses.

use super::PROTOCOLS;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::THROUGHPUT;
use crate::setting::Setting;

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = Vec::new();
    for (protocol, scene) in
        PROTOCOLS.into_iter().flat_map(|protocol| setting.widest(40).into_iter().map(move |scene| (protocol, scene)))
    {
        for warehouses in super::warehouses(setting, scene) {
            let command = setting.tpcc(warehouses, protocol, "");
            points.push(setting.point("", protocol, warehouses as f64, scene, &command));
        }
    }
    points
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: "15",
    title: "TPC-C by warehouses",
    paper_shows: "With 40 threads and 4 to 40 warehouses HTCC is ahead of all others throughout, 1.2 to 2 times as fast as SOCC. HOCC is fast with 40 \
                  warehouses and slow with few.",
    here: "TPC-C's full mix on all threads of the machine, with 1 to 8 warehouses, and on 40 simulated cores with 4 to 40. Protocols \
           with `-rows` validate whole rows as the paper's do.",
    points,
    views: &[View { title: "", part: "", x: Axis::Number("warehouses"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim::new(
            "HTCC is at least 1.2 times as fast as SOCC throughout",
            Quantity::LeastRatio("htcc-rows", "silo-rows"),
        )
        .at_least(1.2)
        .from_threads(40)
        .because(super::NOTHING_TO_REPAIR),
        Claim::new(
            "and ahead of all others throughout",
            Quantity::LeastLead("htcc-rows", &["occ", "silo-rows", "dbx-rows", "wait-die", "hto"]),
        )
        .at_least(1.0)
        .from_threads(40)
        .because(super::NOTHING_TO_REPAIR),
        Claim::new("with 4 warehouses HOCC is far behind SOCC", Quantity::RatioAt("dbx-rows", "silo-rows", 4.0))
            .at_most(0.5)
            .from_threads(40)
            .about_regions()
            .because(super::NO_GLOBAL_LOCK),
        Claim::new("with 40 they are about equal", Quantity::RatioAt("dbx-rows", "silo-rows", 40.0))
            .between(0.9, 1.1)
            .from_threads(40)
            .about_regions(),
    ],
};
