//! HTCC, figure 18: what repairs are worth.

use super::{READS_ARE_SHARED, parts};
use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::THROUGHPUT;

/// Why static analysis saves little here.
const DELIVERIES: &str = "What is refuted is nearly always a Delivery whose oldest orders another has taken, and almost all of it follows from these: a repair makes \
                          some 139 operations again, with static analysis or without.";

/// By the paper's names: with and without static analysis (S) and the cache of what was looked up (C).
const PARTS: [(&str, &str, &str); 4] = [
    ("htcc", "htcc-rows", ""),
    ("htcc -S", "htcc-rows", "--option repair_all=1"),
    ("htcc -SC", "htcc-rows", "--option repairs_max=0 --option repair_from=100"),
    ("occ", "occ", ""),
];

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Htcc,
    number: "18",
    title: "What repairs are worth",
    paper_shows: "With 4 warehouses and 40 threads HTCC commits 1.2 million transactions a second, over 10 % more than without static analysis (-S: all \
                  operations of a refuted transaction run again) and over 40 % more than without the workset cache as well (-SC), which is 20 % ahead of \
                  OCC.",
    here: "TPC-C's full mix. `repair_all=1` makes all operations again in a repair (-S), `repairs_max=0` runs a refuted transaction again as a \
           whole, and keeps nothing for a repair (-SC). 4 warehouses on simulated cores, one on the machine's threads. Whole rows are validated, and \
           whatever is stale is repaired, as in the paper.",
    points: |setting| parts(setting, &PARTS),
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim::new("with static analysis it commits over 10 % more", Quantity::Ratio("htcc", "htcc -S"))
            .at_least(1.1)
            .from_threads(40)
            .because(DELIVERIES),
        Claim::new(
            "with all parts it commits over 40 % more than with hot records alone",
            Quantity::Ratio("htcc", "htcc -SC"),
        )
        .at_least(1.4)
        .from_threads(40)
        .because("It is not far from it. What calls keep for repairs costs a twentieth on one core; the paper has its workset anyway."),
        Claim::new("with hot records alone it is about 20 % ahead of OCC", Quantity::Ratio("htcc -SC", "occ"))
            .between(1.1, 1.3)
            .from_threads(40)
            .because(READS_ARE_SHARED),
        Claim::new("what static analysis is worth grows with the threads", Quantity::Widening("htcc", "htcc -S"))
            .at_least(1.0)
            .from_threads(40)
            .because(DELIVERIES),
        Claim::new("and what the cache is worth", Quantity::Widening("htcc -S", "htcc -SC"))
            .at_least(1.0)
            .from_threads(40),
        Claim::new("and what hot records are worth", Quantity::Widening("htcc -SC", "occ"))
            .at_least(1.0)
            .from_threads(40),
    ],
};
