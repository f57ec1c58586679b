//! DBX, figure 11: what small transactions cost over their index.

use serde_json::Value;

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Place, Point, Quantity, Shows, View};
use crate::measured::Size;
use crate::metric::THROUGHPUT;
use crate::setting::{Scene, Setting};

/// The part with more operations in each transaction.
const LONGER: &str = "operations";
const BARE: &str = "bare index";
const PROTOCOLS: [&str; 5] = ["dbx", "silo", "htcc", "tictoc", "nowait"];

/// Transactions of so many operations.
fn transactions(setting: &Setting, part: &'static str, x: usize, scene: Scene, ops: usize, curve: [&str; 3]) -> Point {
    let [series, protocol, more] = curve;
    let protocol = setting.protocol(protocol);
    let rows = format!("--index ordered --records {} --keys uniform --ops {ops}", setting.records());
    let command = format!("ycsb {rows} --reads 80 --rmw 20 {protocol} {more}");
    setting.point(part, series, x as f64, scene, &command)
}

/// As many operations on the index alone.
fn bare(setting: &Setting, part: &'static str, x: usize, scene: Scene, ops: usize) -> Point {
    let htm = setting.regions(scene.cores);
    let command = format!("index --index ordered --records {} --ops {ops} --htm {htm}", setting.records());
    setting.below(part, BARE, x as f64, scene, &command)
}

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = Vec::new();
    for scene in setting.real() {
        let threads = scene.threads;
        points.push(bare(setting, "", threads, scene, 1));
        for curve in [["dbx", "dbx", ""], ["dbx without regions", "dbx", "--htm absent"], ["silo", "silo", ""]] {
            points.push(transactions(setting, "", threads, scene, 1, curve));
        }
    }
    let all = setting.real().pop();
    let sizes: &[usize] = if setting.size == Size::Small { &[1, 10] } else { &[1, 2, 5, 10] };
    for (scene, &ops) in all.into_iter().flat_map(|scene| sizes.iter().map(move |ops| (scene, ops))) {
        points.push(bare(setting, LONGER, ops, scene, ops));
        let of = |protocol| transactions(setting, LONGER, ops, scene, ops, [protocol, protocol, ""]);
        points.extend(PROTOCOLS.map(of));
    }
    points
}

/// Operations of transactions of `x` operations.
fn operations(point: &Point, report: &Value) -> Vec<Place> {
    let rate = (THROUGHPUT.of)(report).map(|rate| rate * point.x);
    rate.map(|rate| (point.series.clone(), point.x, rate)).into_iter().collect()
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "11",
    title: "Small transactions over their index",
    paper_shows: "With one lookup, or one read-modify-write in a fifth of them, a transaction of DBX costs about 20 % of the throughput of the bare \
                  B+-tree with eight threads, two fifths of that for the begin and end of regions. With a spin lock in the place of regions it does not grow with \
                  the threads.",
    here: "80 % lookups and 20 % read-modify-writes of 100 bytes, by uniform keys, over a B+-tree: bare, where a change is one small region and nothing \
           is copied or noted, and as ad-hoc transactions; then with more operations in each, by protocol. There is no spin lock in the place of regions: \
           `dbx without regions` takes record locks. Not on simulated cores, whose costs are those of transactions.",
    points,
    views: &[
        View { title: "one operation", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) },
        View {
            title: "all threads",
            part: LONGER,
            x: Axis::Number("operations of a transaction"),
            shows: Shows::Many("thousand operations a second", operations),
        },
    ],
    claims: &[
        Claim::new(
            "a transaction of one operation costs no more than a fifth of the throughput",
            Quantity::Ratio("dbx", BARE),
        )
        .at_least(0.8)
        .about_regions()
        .because(
            "A transaction begins and ends, copies rows, and prepares its redo entries even for one operation: \
                 an update takes some 2,000 instructions here, of which the lookup takes 360.",
        ),
        Claim::new("both grow with the threads", Quantity::LeastScaling(&["dbx", BARE]))
            .at_least(0.7)
            .from_threads(2)
            .about_regions(),
        Claim::new("what a transaction costs is shared by its operations", Quantity::Widening("dbx", BARE))
            .of_view(1)
            .at_least(1.0),
    ],
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_support::large;

    #[test]
    fn rates_of_longer_transactions_are_those_of_their_operations() {
        let points = points(&large());
        let point = points.iter().find(|point| point.part == LONGER && point.x == 10.0).expect("it is measured");
        let places = operations(point, &json!({ "committed_per_second": 7000.0 }));
        assert_eq!(places, [(point.series.clone(), 10.0, 70.0)]);
        assert_eq!(operations(point, &json!({})), []);
    }
}
