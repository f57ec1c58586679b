//! DBX, figure 14: what read-only transactions on snapshots bring.

use super::by_threads;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::{ABORTS, THROUGHPUT};

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "14",
    title: "Half New-Order, half Stock-Level",
    paper_shows: "With two threads a warehouse, read-only transactions on snapshots commit 1.41 times as much at eight threads as the same run as \
                  read-write transactions, and the abort rate falls from 10 % to 1.2 %.",
    here: "Half New-Order, half Stock-Level, two threads a warehouse. `dbx` has no switch that takes snapshots away, so the other curve is `silo`, \
           whose Stock-Level is validated: the two also differ in their commits.",
    points: |setting| {
        let mix = "--mix 50:0:0:0:50";
        by_threads(setting, &[("dbx", "dbx", mix), ("silo", "silo", mix)], |threads| threads.div_ceil(2))
    },
    views: &[
        View { title: "throughput", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) },
        View { title: "aborts", part: "", x: Axis::Number("threads"), shows: Shows::One(ABORTS) },
    ],
    claims: &[
        Claim::new("snapshots commit 1.41 times as much", Quantity::Ratio("dbx", "silo")).at_least(1.2).from_threads(8),
        Claim::new("snapshots abort far less", Quantity::Ratio("dbx", "silo")).of_view(1).at_most(0.5).from_threads(2),
    ],
};
