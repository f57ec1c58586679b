//! DBX, figure 7: a hash table in regions against one without.

use super::{IN_REGIONS, OPTIMISTIC, SPIN_LOCK, index_claim, index_points, index_views};
use crate::Paper;
use crate::figure::{Claim, Figure, Quantity};

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "7",
    title: "A hash table in regions",
    paper_shows: "With 80 % lookups and 20 % read-modify-writes the hash table whose operations run in regions is 19 % behind a lock-free one with \
                  eight threads: its operations are so short that the begin and end of a region count, nine tenths of them those of lookups.",
    here: "As figure 6, over the hash table of the tables here. The optimistic curves stand for the lock-free table: their lookups validate a bucket, \
           their changes lock one. The paper's cannot delete or grow.",
    points: |setting| index_points(setting, "hash"),
    views: &index_views(),
    claims: &[
        index_claim("regions cost it about a fifth", 0, Quantity::Ratio(IN_REGIONS, OPTIMISTIC), 0.65, 0.95),
        Claim {
            threads: 2,
            ..index_claim("in regions it grows with the threads", 0, Quantity::Scaling(IN_REGIONS), 0.7, f64::INFINITY)
        },
        Claim {
            threads: 2,
            ..index_claim(
                "a spin lock in their place falls behind",
                0,
                Quantity::Ratio(SPIN_LOCK, IN_REGIONS),
                f64::NEG_INFINITY,
                0.8,
            )
        },
    ],
};
