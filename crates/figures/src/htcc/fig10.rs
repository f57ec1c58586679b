//! HTCC, figure 10: HOCC by restarts, little contention.

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::THROUGHPUT;

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: "10",
    title: "HOCC by restarts, little contention",
    paper_shows: "With 40 warehouses HOCC that restarts regions up to 64 times scales to the 80 hardware threads and commits 15 % more than OCC.",
    here: "TPC-C's full mix; HOCC(n) is `dbx-rows` that begins a region n times before it runs under its locks.",
    points: |setting| super::restarts(setting, super::low_contention(setting)),
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim::new("HOCC(64) is 15 % ahead of OCC", Quantity::Ratio("HOCC(64)", "occ")).at_least(1.15).about_regions(),
        Claim::new("with 64 restarts it grows nearly linearly with the cores", Quantity::Scaling("HOCC(64)"))
            .at_least(super::NEARLY_LINEAR)
            .from_threads(2)
            .about_regions(),
    ],
};
