//! DBX, figure 17: how long results wait until they are durable.

use super::by_threads;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::DURABLE;

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "17",
    title: "Latency of durable results",
    paper_shows: "Results of DBX are answered after 38 to 63 ms, of Silo over Masstree after 117 to 480 ms, since both advance their epoch every 40 ms, \
                  DBX also with every read-only transaction.",
    here: "The commands of figure 16: TPC-C's full mix with group commit. Both protocols have the same epochs and loggers here.",
    points: |setting| {
        let group = "--durability group";
        by_threads(setting, &[("dbx", "dbx", group), ("silo", "silo", group)], |threads| threads)
    },
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(DURABLE) }],
    claims: &[Claim::new(
        "results of DBX are answered in little more than half the time of Silo's",
        Quantity::Ratio("dbx", "silo"),
    )
    .at_most(0.54)
    .because("The paper compares two systems; here both protocols share epochs, logs and loggers.")],
};
