//! DBX-TC, figure 14: its parts one after another.

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::measured::Cores;
use crate::metric::{ABORTS, THROUGHPUT};
use crate::setting::Setting;

const NAMES: [&str; 6] =
    ["whole in a region", "commits in regions", "+snapshots", "offered if wanted", "+late additions", "+deferral"];
const ROWS: [(&str, &str); 6] = [
    ("naive", "--snapshots off"),
    ("dbx", "--snapshots off"),
    ("dbx", ""),
    ("dbx-tc", "--option late_max=0"),
    ("dbx-tc", ""),
    ("dbx-tc", "--option defer=1"),
];

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = Vec::new();
    for scene in setting.widest(8) {
        for (at, (protocol, more)) in ROWS.iter().enumerate() {
            if *protocol == "naive" && scene.cores == Cores::Simulated {
                continue;
            }
            let command = format!("{} --htm {}", setting.tpcc(1, protocol, more), setting.regions(scene.cores));
            points.push(setting.point("", "dbx-tc", at as f64, scene, &command));
        }
    }
    points
}

const fn view(title: &'static str, shows: Shows) -> View {
    View { title, part: "", x: Axis::Named(&NAMES), shows }
}

const fn claim(says: &'static str, from: f64, to: f64, min: f64) -> Claim {
    let quantity = Quantity::Between("dbx-tc", from, to);
    Claim::new(says, quantity).at_least(min).from_threads(2)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::DbxTc,
    number: "14",
    title: "Its parts one after another",
    paper_shows: "With eight threads on one warehouse: whole transactions in regions; default chopping; snapshots for what only reads; a cache of writes for \
                  each table; deferred execution, which makes Delivery's change of the customer commute. Each adds throughput.",
    here: "TPC-C's full mix on one warehouse. From `naive` to commits in regions (`dbx`), both with read-only transactions validated; then snapshots; then \
           those of `dbx-tc`, which publishes no sum late yet (`late_max=0`); then sums published late; then deferred execution (`defer=1`). The write set is private here from the start, which is what the cache is for.",
    points,
    views: &[view("throughput", Shows::One(THROUGHPUT)), view("aborts", Shows::One(ABORTS))],
    claims: &[
        claim("less in regions is faster", 0.0, 1.0, 1.05),
        claim("snapshots add throughput", 1.0, 2.0, 1.02).from_threads(8),
        claim("late additions add throughput", 3.0, 4.0, 1.02).ours().from_threads(8),
    ],
};
