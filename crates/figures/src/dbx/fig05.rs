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
        Claim::new("over the same store, DBX is 13 % ahead of Silo", Quantity::Ratio("dbx", "silo"))
            .at_least(1.13)
            .about_regions()
            .because(super::SHARED_STORE),
        Claim::new("with regions it is less than 10 % slower", Quantity::Ratio("dbx", "dbx without regions"))
            .at_least(0.9)
            .about_regions(),
        Claim::new("DBX scales with the workers", Quantity::Scaling("dbx"))
            .at_least(0.7)
            .from_threads(2)
            .about_regions(),
    ],
};
