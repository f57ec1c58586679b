//! DBX, figure 8: throughput by workers.

use super::by_threads;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::THROUGHPUT;

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "8",
    title: "TPC-C by workers",
    paper_shows: "With a warehouse for each worker DBX grows up to the eight hardware threads of the machine and stays ahead of Silo over Masstree; \
                  with a spin lock in the place of regions in the transaction layer it does not grow beyond four.",
    here: "TPC-C's full mix, a warehouse for each thread. This program has no spin lock in the place of regions: `dbx without regions` takes record \
           locks. More threads than processors are not run.",
    points: |setting| {
        let curves = [("dbx", "dbx", ""), ("dbx without regions", "dbx", "--htm absent"), ("silo", "silo", "")];
        by_threads(setting, &curves, |threads| threads)
    },
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim::new("DBX grows with each doubling of the workers up to eight", Quantity::LeastStep("dbx"))
            .at_least(1.1)
            .from_threads(8)
            .about_regions(),
        Claim::new("DBX stays ahead of Silo", Quantity::LeastRatio("dbx", "silo"))
            .at_least(1.0)
            .about_regions()
            .because(super::SHARED_STORE),
    ],
};
