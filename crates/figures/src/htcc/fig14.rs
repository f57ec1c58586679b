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
        Claim {
            says: "HTCC is ahead of all others",
            view: 0,
            quantity: Quantity::Lead("htcc-rows", &["occ", "silo-rows", "dbx-rows", "wait-die", "hto"]),
            min: 1.0,
            max: f64::INFINITY,
            threads: 2,
            regions: false,
            because: TWO_THREADS,
        },
        Claim {
            says: "HTCC commits twice as much as SOCC",
            view: 0,
            quantity: Quantity::Ratio("htcc-rows", "silo-rows"),
            min: 2.0,
            max: f64::INFINITY,
            threads: 16,
            regions: false,
            because: "",
        },
        Claim {
            says: "HTCC commits six times as much as HOCC",
            view: 0,
            quantity: Quantity::Ratio("htcc-rows", "dbx-rows"),
            min: 6.0,
            max: f64::INFINITY,
            threads: 16,
            regions: true,
            because: "",
        },
        Claim {
            says: "OCC and wait-die locking are about equal",
            view: 0,
            quantity: Quantity::Ratio("occ", "wait-die"),
            min: 0.8,
            max: 1.25,
            threads: 2,
            regions: false,
            because: "",
        },
        Claim {
            says: "OCC is 10 % slower than SOCC",
            view: 0,
            quantity: Quantity::Ratio("occ", "silo-rows"),
            min: 0.8,
            max: 0.95,
            threads: 2,
            regions: false,
            because: "",
        },
        Claim {
            says: "HOCC does not scale",
            view: 0,
            quantity: Quantity::Scaling("dbx-rows"),
            min: f64::NEG_INFINITY,
            max: 0.5,
            threads: 8,
            regions: true,
            because: "",
        },
    ],
};
