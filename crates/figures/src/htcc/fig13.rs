//! HTCC, figure 13: TPC-C with low contention.

use super::{PROTOCOLS, low_contention, tpcc_by_threads};
use crate::figure::{Axis, Claim, Figure, Quantity, Shows, View};
use crate::metric::THROUGHPUT;

pub(crate) const FIGURE: Figure = Figure {
    paper: crate::Paper::Htcc,
    number: "13",
    title: "TPC-C with low contention",
    paper_shows: "With 40 warehouses the optimistic protocols (HTCC, OCC, SOCC, HOCC) grow nearly linearly up to the 40 cores and no further with \
                  hyper-threads. HTCC commits over 10 % more than OCC, HOCC about as much as SOCC; wait-die locking (2PL) is below them, and HTO \
                  far below.",
    here: "TPC-C's full mix. On the machine's threads there is a warehouse for each processor, on simulated cores there are 40. `htcc`, `silo` and `dbx` \
           validate by columns, `htcc-rows`, `silo-rows` and `dbx-rows` whole rows as the paper's do.",
    points: |setting| tpcc_by_threads(setting, &PROTOCOLS, low_contention(setting)),
    views: &[View { title: "", part: "", x: Axis::Number("threads"), shows: Shows::One(THROUGHPUT) }],
    claims: &[
        Claim {
            says: "HTCC is over 10 % ahead of OCC",
            view: 0,
            quantity: Quantity::Ratio("htcc-rows", "occ"),
            min: 1.1,
            max: f64::INFINITY,
            threads: 40,
            regions: true,
            because: "",
        },
        Claim {
            says: "with low contention HTCC costs little over HOCC",
            view: 0,
            quantity: Quantity::Ratio("htcc", "dbx"),
            min: 0.95,
            max: f64::INFINITY,
            threads: 1,
            regions: false,
            because: "",
        },
        Claim {
            says: "HOCC and SOCC are about equal",
            view: 0,
            quantity: Quantity::Ratio("dbx-rows", "silo-rows"),
            min: 0.9,
            max: 1.1,
            threads: 1,
            regions: true,
            because: "",
        },
        Claim {
            says: "wait-die locking is below SOCC",
            view: 0,
            quantity: Quantity::Ratio("wait-die", "silo"),
            min: f64::NEG_INFINITY,
            max: 0.95,
            threads: 1,
            regions: false,
            because: "",
        },
        Claim {
            says: "HTO is far below SOCC",
            view: 0,
            quantity: Quantity::Ratio("hto", "silo"),
            min: f64::NEG_INFINITY,
            max: 0.7,
            threads: 1,
            regions: true,
            because: "",
        },
        Claim {
            says: "HTCC grows nearly linearly with cores",
            view: 0,
            quantity: Quantity::Scaling("htcc"),
            min: 0.75,
            max: f64::INFINITY,
            threads: 2,
            regions: false,
            because: "",
        },
    ],
};
