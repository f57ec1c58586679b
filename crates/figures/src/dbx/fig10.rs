//! DBX, figure 10: a whole transaction in one region.

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::{FALLBACKS, THROUGHPUT};
use crate::setting::Setting;

fn points(setting: &Setting) -> Vec<Point> {
    let mut points = Vec::new();
    for protocol in ["dbx", "naive"] {
        // Simulated cores have no regions that could hold a whole transaction.
        for scene in setting.real() {
            let more = if setting.regions(scene.cores) == "auto" { "" } else { "--htm emulated" };
            let command = setting.tpcc(scene.threads, protocol, more);
            points.push(setting.point("", protocol, scene.threads as f64, scene, &command));
        }
    }
    points
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "10",
    title: "A whole transaction in one region",
    paper_shows: "With each transaction of TPC-C whole in one region 42 % of them take the lock on one thread, New-Order more than 70 % and Stock-Level all, nearly \
                  all for their size; on eight threads 82 %, so that throughput does not grow.",
    here: "TPC-C's full mix, a warehouse for each thread. `naive` runs a procedure whole in one region, and under one lock after one abort for its size; \
           its writes are private until the end, where the paper's are in place. Not on simulated cores, whose regions hold commits only.",
    points,
    views: &[
        View { title: "throughput", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) },
        View { title: "runs under locks", part: "", x: Axis::Number("threads"), shows: Shows::One(FALLBACKS) },
    ],
    claims: &[
        Claim::new("on one thread two fifths of the transactions take the lock", Quantity::ValueAt("naive", 1.0))
            .of_view(1)
            .at_least(40.0)
            .about_regions(),
        Claim::new("on eight threads four fifths do", Quantity::Value("naive"))
            .of_view(1)
            .at_least(80.0)
            .from_threads(8)
            .about_regions(),
        Claim::new("whole transactions do not grow with the threads", Quantity::Scaling("naive"))
            .at_most(0.25)
            .from_threads(8)
            .about_regions(),
        Claim::new("DBX stays ahead of whole transactions", Quantity::LeastRatio("dbx", "naive"))
            .at_least(1.0)
            .from_threads(2)
            .about_regions(),
    ],
};
