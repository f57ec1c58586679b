//! DBX, figure 12: New-Order over other stores.

use super::{MIXED, ORDERED, stores};
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::THROUGHPUT;

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "12",
    title: "New-Order over other stores",
    paper_shows: "Hash tables alone and B+-trees alone grow up to eight threads, hash tables ahead from four on. Hash tables with trees for ORDER-LINE and \
                  NEW-ORDER are ahead of both, since order lines are accessed in sequence.",
    here: "New-Order alone, a warehouse for each thread. `mixed`: warehouses, districts, customers, items and stock are hashed, all else is \
           ordered; order lines lie together by their order. `ordered`: all tables are trees (`--index ordered`). Hash tables alone are not to be had: \
           tables whose rows lie together are ordered.",
    points: |setting| stores(setting, "--mix new-order"),
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim::new("the mixture is ahead of trees", Quantity::LeastRatio(MIXED, ORDERED)).at_least(1.0),
        Claim::new("trees alone grow with each doubling of the threads", Quantity::LeastStep(ORDERED))
            .at_least(1.1)
            .from_threads(2),
    ],
};
