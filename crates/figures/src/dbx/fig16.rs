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
        Claim {
            says: "durable DBX is 30 % ahead of durable Silo",
            view: 0,
            quantity: Quantity::Ratio("dbx", "silo"),
            min: 1.1,
            max: f64::INFINITY,
            threads: 1,
            regions: true,
            because: super::SHARED_STORE,
        },
        Claim {
            says: "durability costs a part of the throughput, not most of it",
            view: 0,
            quantity: Quantity::Ratio("dbx", "dbx without durability"),
            min: 0.6,
            max: 1.02,
            threads: 1,
            regions: false,
            because: "",
        },
    ],
};
