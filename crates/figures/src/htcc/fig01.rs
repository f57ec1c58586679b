//! HTCC, figure 1: transactions of ten updates by regions and by ordered locks.

use super::thresholds;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::THROUGHPUT;
use crate::setting::Setting;

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = Vec::new();
    for (part, theta) in [("low", "0"), ("high", "0.8")] {
        for scene in setting.scenes(&super::CORES) {
            let x = scene.threads as f64;
            let records = setting.records();
            let by_locks =
                format!("multi-key --records {records} --theta {theta} --protocol dbx --option rebases_max=0");
            points.push(setting.point(part, "locks", x, scene, &format!("{by_locks} --htm absent")));
            for (series, options) in [("HTM(1)", thresholds(1)), ("HTM(4)", thresholds(4)), ("HTM(64)", thresholds(64))]
            {
                let command = format!("{by_locks} --htm {} {options}", setting.regions(scene.cores));
                points.push(setting.point(part, series, x, scene, &command));
            }
        }
    }
    points
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: "1",
    title: "Ten updates of a hash table: regions against locks",
    paper_shows: "With uniform keys and 40 threads regions that restart more than four times commit twice as much as ordered locks (31 against 16 \
                  million a second). With θ 0.8 regions that restart 64 times fall behind: 1.1 against 3.7 million.",
    here: "Transactions of `dbx`, ten updates each; HTM(n) begins a region n times before it runs under its locks, `locks` has no regions. The paper \
           puts the whole transaction into a region, here only its commit is in one; in the fallback each record has its own lock.",
    points,
    views: &[
        View { title: "θ 0", part: "low", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) },
        View { title: "θ 0.8", part: "high", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) },
    ],
    claims: &[
        Claim::new("with little contention regions are twice as fast as locks", Quantity::Ratio("HTM(64)", "locks"))
            .at_least(2.0)
            .about_regions()
            .because(
                "The paper compares bare regions with bare locks; here the transaction around the commit, which \
                 both pay for, takes most of the time.",
            ),
        Claim::new("with much contention locks are 3.3 times as fast as regions", Quantity::Ratio("locks", "HTM(64)"))
            .of_view(1)
            .at_least(3.3)
            .from_threads(40)
            .about_regions()
            .because(super::NO_GLOBAL_LOCK),
    ],
};
