//! DBX, figure 13: TPC-C over other stores.

use super::{MIXED, ORDERED, stores};
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::THROUGHPUT;

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "13",
    title: "TPC-C over other stores",
    paper_shows: "With eight threads a mixture of hash tables and B+-trees commits 506,817 transactions a second, and trees alone 442,230: 1.15 times.",
    here: "TPC-C's full mix, a warehouse for each thread; stores as in figure 12.",
    points: |setting| stores(setting, ""),
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim::new("the mixture commits 1.15 times as much as trees", Quantity::Ratio(MIXED, ORDERED)).at_least(1.15)
    ],
};
