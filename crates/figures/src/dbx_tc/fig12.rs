//! DBX-TC, figure 12: TPC-C by contention.

use super::{AHEAD, LEVELS, PROTOCOLS, by_threads};
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::THROUGHPUT;
use crate::setting::Setting;

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = Vec::new();
    for (level, warehouses) in LEVELS {
        for protocol in PROTOCOLS {
            let command = |threads, protocol: &str| setting.tpcc(warehouses(threads), protocol, "");
            points.extend(by_threads(setting, level, (protocol, protocol), command));
        }
    }
    points
}

const fn view(title: &'static str, part: &'static str) -> View {
    View { title, part, x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }
}

/// Of [`FIGURE`]'s views.
const LOW: usize = 0;
const MEDIUM: usize = 1;
const HIGH: usize = 2;

const fn claim(says: &'static str, view: usize, over: &'static str, min: f64, threads: usize) -> Claim {
    Claim::new(says, Quantity::Ratio("dbx-tc", over)).of_view(view).between(min, AHEAD).from_threads(threads)
}

const fn silo(says: &'static str, view: usize) -> Claim {
    Claim::new(says, Quantity::Ratio("silo", "dbx")).of_view(view).at_most(1.0).from_threads(2).about_regions()
}

/// Why it is not as far ahead of DBX as in the paper.
const SAME_EXECUTION: &str = "Here a piece's operations run before its region, with the read and write sets that dbx has, so nothing is saved on validation: what is \
                              gained is that sums which nobody reads are in nobody's way.";

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::DbxTc,
    number: "12",
    title: "TPC-C by contention",
    paper_shows: "With eight threads DBX-TC commits 5.77 times what the naive use of regions does, and 36 to 43 % more than DBX, with a warehouse for each \
                  thread and for two threads; with one for all 102 % more than DBX. Silo is below DBX and Silo-2PL below DBX-TC at each level.",
    here: "TPC-C's full mix. DBX-TC is `dbx-tc`, which takes late what is only added to (the sums of warehouses and districts); the rest of each procedure \
           is one piece. 2PL is `nowait`.",
    points,
    views: &[
        view("a warehouse for each thread", "low"),
        view("a warehouse for two threads", "medium"),
        view("one warehouse", "high"),
    ],
    claims: &[
        claim("5.77 times as fast as whole transactions in regions", LOW, "naive", 5.77, 8),
        claim("36 % ahead of DBX with little contention", LOW, "dbx", 1.36, 8).because(SAME_EXECUTION),
        // Not the paper's: what we ask of ours.
        claim("with little contention at most 5 % slower than DBX", LOW, "dbx", 0.95, 1).ours(),
        claim("36 % ahead of DBX with a warehouse for two threads", MEDIUM, "dbx", 1.36, 8).because(SAME_EXECUTION),
        claim("twice as fast as DBX where all share one warehouse", HIGH, "dbx", 2.0, 8).because(SAME_EXECUTION),
        claim("ahead of DBX where all share one warehouse", HIGH, "dbx", 1.0, 2).ours(),
        claim("ahead of two-phase locking with little contention", LOW, "nowait", 1.0, 2),
        claim("ahead of it with a warehouse for two threads", MEDIUM, "nowait", 1.0, 2),
        claim("ahead of it where all share one warehouse", HIGH, "nowait", 1.0, 2),
        silo("Silo is below DBX with little contention", LOW),
        silo("Silo is below DBX with a warehouse for two threads", MEDIUM),
        silo("Silo is below DBX where all share one warehouse", HIGH),
    ],
};
