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
        Claim::new("aborts of OCC rise all the time with the threads", Quantity::LeastStep("occ"))
            .at_least(1.05)
            .from_threads(4),
        Claim::new(
            "those of HOCC(64) fall again, by three fifths of the most that there were",
            Quantity::Fall("HOCC(64)"),
        )
        .at_most(0.4)
        .from_threads(40)
        .about_regions()
        .because(super::NO_GLOBAL_LOCK),
    ],
};
