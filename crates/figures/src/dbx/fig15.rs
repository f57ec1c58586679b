//! DBX, figure 15: what each factor brings.

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::THROUGHPUT;
use crate::setting::{Setting, thresholds};

/// Each with all before it.
const NAMES: [&str; 6] = ["record locks", "+regions", "+fallback handler", "+rebasing", "+prefetching", "no snapshots"];

/// Restarts of a region whatever ends it, where there is no handler that tells causes apart.
const RESTARTS: u32 = 100;

const DBX: &str = "dbx";

fn points(setting: &Setting) -> Vec<Point> {
    let (rows, unfetched) = ("--option rebases_max=0", "--prefetch off");
    let mut points = Vec::new();
    for scene in setting.widest(8) {
        let htm = format!("--htm {}", setting.regions(scene.cores));
        let factors = [
            format!("--htm absent {rows} {unfetched}"),
            format!("{htm} {} {rows} {unfetched}", thresholds(RESTARTS)),
            format!("{htm} {rows} {unfetched}"),
            format!("{htm} {unfetched}"),
            htm.clone(),
            format!("{htm} --snapshots off"),
        ];
        for (at, more) in factors.iter().enumerate() {
            let command = setting.tpcc(scene.threads, "dbx", more);
            points.push(setting.point("", DBX, at as f64, scene, &command));
        }
    }
    points
}

const fn claim(says: &'static str, quantity: Quantity, min: f64) -> Claim {
    Claim::new(says, quantity).at_least(min).about_regions()
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "15",
    title: "What each factor brings",
    paper_shows: "TPC-C's full mix with eight workers and warehouses. From a default allocator and a global lock on: a scalable allocator, regions in the \
                  place of the lock (retried a hundred times), a handler that tells causes of aborts apart, node buffers, then no garbage collection and no \
                  snapshots, which brings a little since less memory is allocated.",
    here: "TPC-C's full mix, a warehouse for each thread, each bar with all factors before it. From record locks, there being no global lock, and \
           validation of whole rows on: regions that restart a hundred times whatever ends them, thresholds by cause, newer versions of rows whose used columns are \
           the same (`rebases_max`), rows fetched ahead (`--prefetch`), which is `dbx` as it is shipped. Then what only reads is validated instead \
           (`--snapshots`). No switch takes away the allocator, the leaf hints that are the node buffer here, or garbage collection.",
    points,
    views: &[View { title: "", part: "", x: Axis::Named(&NAMES), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        claim("regions are worth more than locks", Quantity::Between(DBX, 0.0, 1.0), 1.02).because("Record locks are no global lock: they only cost their instructions, and the commit is about a seventh of the full mix's."),
        claim("a handler that tells causes apart brings something", Quantity::Between(DBX, 1.0, 2.0), 1.0),
        claim("all factors together bring something", Quantity::Between(DBX, 0.0, 4.0), 1.1),
        Claim::new("without snapshots it is a little faster", Quantity::Between(DBX, 4.0, 5.0)).between(1.0, 1.15),
    ],
};
