//! HTCC, figure 14: TPC-C with high contention.

use super::{PROTOCOLS, high_contention, tpcc_by_threads};
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::{ABORTS, THROUGHPUT};

/// Why two threads on one warehouse say little.
const TWO_THREADS: &str = "Two threads on one warehouse pay for its rows going from core to core, which all protocols do alike, and less for \
                           attempts that are made again, since a second attempt finds everything in its cache.";

pub(crate) const FIGURE: Figure = Figure {
    paper: crate::Paper::Htcc,
    number: "14",
    title: "TPC-C with high contention",
    paper_shows: "With 4 warehouses and 80 hardware threads HTCC commits about a million transactions a second, twice as many as SOCC and six times as \
                  many as HOCC. OCC is about as fast as wait-die locking (2PL), and 10 % slower than SOCC for tracking anti-dependencies. HOCC and HTO \
                  do not scale.",
    here: "TPC-C's full mix with 4 warehouses on simulated cores. On the machine's few threads there is one warehouse, since 4 would hardly be contended \
           for. Protocols with `-rows` validate whole rows as the paper's do; `htcc`, `silo` and `dbx` are as shipped, by columns.",
    points: |setting| tpcc_by_threads(setting, &PROTOCOLS, high_contention),
    views: &[
        View { title: "throughput", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) },
        View { title: "aborts", part: "", x: Axis::Number("threads"), shows: Shows::One(ABORTS) },
    ],
    claims: &[
        Claim::new(
            "HTCC is ahead of all others",
            Quantity::Lead("htcc-rows", &["occ", "silo-rows", "dbx-rows", "wait-die", "hto"]),
        )
        .at_least(1.0)
        .from_threads(2)
        .because(TWO_THREADS),
        Claim::new(
            "as all are shipped, it is ahead of all others",
            Quantity::Lead("htcc", &["occ", "silo", "silo-rows", "dbx", "dbx-rows", "wait-die", "hto"]),
        ).ours()
        .at_least(1.0)
        .from_threads(2)
        .because(
            "By columns `silo` and `dbx` refute few transactions, so little is left to repair; a hot row is locked as a whole, and readers have no \
             snapshots.",
        ),
        Claim::new("HTCC commits twice as much as SOCC", Quantity::Ratio("htcc-rows", "silo-rows"))
            .at_least(2.0)
            .from_threads(40)
            .because(
                "Repairs gain a third. What fails costs the others less than in the paper: who failed three times pauses, three quarters of the cores' time \
                 on 40 cores, so SOCC keeps what it commits on 8.",
            ),
        Claim::new("HTCC commits six times as much as HOCC", Quantity::Ratio("htcc-rows", "dbx-rows"))
            .at_least(6.0)
            .from_threads(40)
            .about_regions()
            .because(super::NO_GLOBAL_LOCK),
        Claim::new("OCC and wait-die locking are about equal", Quantity::Ratio("occ", "wait-die"))
            .between(0.9, 1.1)
            .from_threads(2)
            .because(super::READS_ARE_SHARED),
        Claim::new("OCC is about 10 % slower than SOCC", Quantity::Ratio("occ", "silo-rows"))
            .between(0.85, 0.95)
            .from_threads(2)
            .because(super::READS_ARE_SHARED),
        Claim::new("HOCC does not scale", Quantity::Scaling("dbx-rows"))
            .at_most(super::DOES_NOT_SCALE)
            .from_threads(40)
            .about_regions()
            .because(super::NO_GLOBAL_LOCK),
        Claim::new("nor does HTO", Quantity::Scaling("hto"))
            .at_most(super::DOES_NOT_SCALE)
            .from_threads(40)
            .about_regions(),
    ],
};
