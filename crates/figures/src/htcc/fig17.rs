//! HTCC, figure 17: which records are hot.

use super::parts;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::THROUGHPUT;

/// By the paper's names: which records are hot.
const SETS: [(&str, &str, &str); 4] = [
    ("none", "htcc-rows", "--option hot=0"),
    ("W", "htcc-rows", "--hot-tables warehouse"),
    ("W+D", "htcc-rows", "--hot-tables warehouse+district"),
    ("all", "htcc-rows", "--option hot=2"),
];

/// Why it matters little here which records are hot.
const REPAIRS_MEND: &str = "What is refuted at a cold warehouse or district is repaired: with no record hot there are 0.7 repairs for each commit on 40 cores. \
                            Where they are hot others wait for them instead.";

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: "17",
    title: "Which records are hot",
    paper_shows: "With 4 warehouses and all records cold HTCC slows down from 32 threads on; with the warehouses hot much less so, and it is fastest \
                  with warehouses and districts hot. All records hot, which is two-phase locking, is far below that.",
    here: "TPC-C's full mix, with the hot records chosen by hand: none, those of WAREHOUSE, those of WAREHOUSE and DISTRICT, all. 4 warehouses on \
           simulated cores, one on the machine's threads. \
           Whole rows are validated, as in the paper.",
    points: |setting| parts(setting, &SETS),
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim::new(
            "hot warehouses and districts are ahead of the other sets",
            Quantity::Lead("W+D", &["none", "W", "all"]),
        )
        .at_least(1.0)
        .from_threads(32)
        .because(REPAIRS_MEND),
        Claim::new("hot warehouses are ahead of none", Quantity::Ratio("W", "none"))
            .at_least(1.05)
            .from_threads(32)
            .about_regions()
            .because(REPAIRS_MEND),
        Claim::new(
            "with no record hot it falls again as threads are added, by a fifth or more",
            Quantity::Fall("none"),
        )
        .at_most(0.8)
        .from_threads(32)
        .about_regions()
        .because(REPAIRS_MEND),
        Claim::new("hot warehouses fall less than none", Quantity::Widening("W", "none"))
            .at_least(1.05)
            .from_threads(32)
            .about_regions()
            .because(REPAIRS_MEND),
        Claim::new("all records hot is far below warehouses and districts", Quantity::Ratio("all", "W+D"))
            .at_most(0.7)
            .from_threads(32),
    ],
};
