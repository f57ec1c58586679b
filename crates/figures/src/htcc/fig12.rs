//! HTCC, figure 12: Aborts of HOCC, much contention.

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::ABORTS;

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: "12",
    title: "Aborts of HOCC, much contention",
    paper_shows: "With 4 warehouses the abort rate of HOCC(64) falls from 1.18 for each commit at 56 threads to 0.45 at 80, since the fallback lock runs transactions one by one; that of OCC rises with the threads.",
    here: "The runs of figure 11. An abort is an attempt that a conflict ended.",
    points: |setting| super::restarts(setting, super::high_contention),
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(ABORTS) }],
    claims: &[
        Claim {
            says: "aborts of OCC rise with the threads",
            view: 0,
            quantity: Quantity::Value("occ"),
            min: 0.02,
            max: f64::INFINITY,
            threads: 2,
            regions: false,
            because: "",
        },
        Claim {
            says: "many restarts lead to an abort for every other commit or more",
            view: 0,
            quantity: Quantity::Value("HOCC(64)"),
            min: 0.4,
            max: f64::INFINITY,
            threads: 40,
            regions: true,
            because: "",
        },
    ],
};
