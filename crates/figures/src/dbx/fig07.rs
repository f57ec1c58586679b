//! DBX, figure 7: a hash table in regions against one without.

use super::{GROWS, IN_REGIONS, LOCK_FALLS_BEHIND, OPTIMISTIC, index_claim, index_points, index_views};
use crate::Paper;
use crate::figure::{Figure, Quantity};

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
        index_claim("in regions it is about 19 % behind", 0, Quantity::Ratio(IN_REGIONS, OPTIMISTIC), 0.75, 0.85),
        GROWS,
        LOCK_FALLS_BEHIND,
    ],
};
