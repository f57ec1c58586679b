//! DBX, figure 14: what read-only transactions on snapshots bring.

use super::by_threads;
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::{ABORTS, THROUGHPUT};

/// Without snapshots.
const VALIDATED: &str = "validated";

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "14",
    title: "Half New-Order, half Stock-Level",
    paper_shows: "With two threads a warehouse, read-only transactions on snapshots commit 1.41 times as much at eight threads as the same run as \
                  read-write transactions, and the abort rate falls from 10 % to 1.2 %.",
    here: "Half New-Order, half Stock-Level, two threads a warehouse. `validated`: `dbx` whose Stock-Level is validated as others are (`--snapshots off`). \
           `silo`, which does so, too, is shown beside.",
    points: |setting| {
        let mix = "--mix 50:0:0:0:50";
        let validated = format!("{mix} --snapshots off");
        let curves = [("dbx", "dbx", mix), (VALIDATED, "dbx", validated.as_str()), ("silo", "silo", mix)];
        by_threads(setting, &curves, |threads| threads.div_ceil(2))
    },
    views: &[
        View { title: "throughput", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) },
        View { title: "aborts", part: "", x: Axis::Number("threads"), shows: Shows::One(ABORTS) },
    ],
    claims: &[
        Claim::new("snapshots commit 1.41 times as much", Quantity::Ratio("dbx", VALIDATED))
            .at_least(1.41)
            .from_threads(8),
        Claim::new("and abort an eighth as often", Quantity::Ratio("dbx", VALIDATED))
            .of_view(1)
            .at_most(0.125)
            .from_threads(8),
    ],
};
