//! DBX, figure 16: throughput with durability.

use super::by_threads;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::THROUGHPUT;

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "16",
    title: "TPC-C with durability",
    paper_shows: "With two loggers on two disks both systems grow up to eight threads, DBX 30 % ahead of Silo over Masstree on average. Beyond two \
                  threads the loggers take processors from the workers.",
    here: "TPC-C's full mix, a warehouse for each thread, group commit by one logger into the system's temporary directory, which may be no disk.",
    points: |setting| {
        let group = "--durability group";
        let curves = [("dbx", "dbx", group), ("silo", "silo", group), ("dbx without durability", "dbx", "")];
        by_threads(setting, &curves, |threads| threads)
    },
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim::new("durable DBX is 30 % ahead of durable Silo", Quantity::Ratio("dbx", "silo"))
            .at_least(1.3)
            .about_regions()
            .because(super::SHARED_STORE),
        Claim::new("durable DBX grows with each doubling of the threads", Quantity::LeastStep("dbx"))
            .at_least(1.1)
            .from_threads(2)
            .because("The logger takes processors from the workers, as in the paper beyond two threads."),
        Claim::new(
            "durability costs a part of the throughput, not most of it",
            Quantity::Ratio("dbx", "dbx without durability"),
        )
        .ours()
        .between(0.6, 1.02),
    ],
};
