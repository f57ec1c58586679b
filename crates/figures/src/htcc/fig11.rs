//! HTCC, figure 11: HOCC by restarts, much contention.

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::THROUGHPUT;

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: "11",
    title: "HOCC by restarts, much contention",
    paper_shows: "With 4 warehouses and 80 hardware threads HOCC commits some 200 thousand transactions a second whatever its restarts, OCC over 550.",
    here: "As figure 10, with 4 warehouses on simulated cores and one on the machine's threads. The fallback locks here are those of the records: there is no global lock that ends all other regions.",
    points: |setting| super::restarts(setting, super::high_contention),
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim::new(
            "OCC commits 2.7 times as much as HOCC, whatever its restarts",
            Quantity::Lead("occ", &["HOCC(1)", "HOCC(8)", "HOCC(64)"]),
        )
        .at_least(2.7)
        .from_threads(40)
        .about_regions()
        .because(super::NO_GLOBAL_LOCK),
        Claim::new("OCC scales better than HOCC", Quantity::Widening("occ", "HOCC(64)"))
            .at_least(1.1)
            .from_threads(16)
            .about_regions()
            .because(super::NO_GLOBAL_LOCK),
    ],
};
