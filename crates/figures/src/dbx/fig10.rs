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
        Claim {
            says: "many transactions do not fit and take the lock",
            view: 1,
            quantity: Quantity::Value("naive"),
            min: 30.0,
            max: f64::INFINITY,
            threads: 1,
            regions: true,
            because: "",
        },
        Claim {
            says: "whole transactions do not grow with the threads",
            view: 0,
            quantity: Quantity::Scaling("naive"),
            min: f64::NEG_INFINITY,
            max: 0.4,
            threads: 8,
            regions: true,
            because: "",
        },
        Claim {
            says: "DBX stays ahead of whole transactions",
            view: 0,
            quantity: Quantity::LeastRatio("dbx", "naive"),
            min: 1.0,
            max: f64::INFINITY,
            threads: 2,
            regions: true,
            because: "",
        },
    ],
};
