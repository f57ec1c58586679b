//! DBX, figure 5: TPC-C against Silo.

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::metric::THROUGHPUT;
use crate::setting::Setting;

fn points(setting: &Setting) -> Vec<Point> {
    let curves = [("dbx", "dbx", ""), ("dbx without regions", "dbx", "--htm absent"), ("silo", "silo", "")];
    super::by_threads(setting, &curves, |threads| threads)
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "5",
    title: "TPC-C against Silo",
    paper_shows: "DBX commits 52 % more than Silo over Masstree with one worker and 40 % more with eight; 13 % more with eight once both copy rows \
                  and encode nodes alike. Regions cost the transaction layer less than 10 %: without them, which is wrong in the paper's build, \
                  it is faster by no more.",
    here: "TPC-C's full mix, a warehouse for each thread. Both protocols have the same store, rows and memory here, so only the commits differ; \
           `dbx without regions` is right, and takes record locks.",
    points,
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim {
            says: "over the same store, DBX is 13 % ahead of Silo",
            view: 0,
            quantity: Quantity::Ratio("dbx", "silo"),
            min: 1.05,
            max: f64::INFINITY,
            threads: 1,
            regions: true,
            because: super::SHARED_STORE,
        },
        Claim {
            says: "regions cost less than 10 %",
            view: 0,
            quantity: Quantity::Ratio("dbx", "dbx without regions"),
            min: 0.9,
            max: f64::INFINITY,
            threads: 1,
            regions: true,
            because: "",
        },
        Claim {
            says: "DBX scales with the workers",
            view: 0,
            quantity: Quantity::Scaling("dbx"),
            min: 0.7,
            max: f64::INFINITY,
            threads: 2,
            regions: true,
            because: "",
        },
    ],
};
