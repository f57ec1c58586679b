//! DBX, figure 6: an ordered index in regions against an optimistic one.

use super::{GROWS, IN_REGIONS, LOCK_FALLS_BEHIND, OPTIMISTIC, index_claim, index_points, index_views};
use crate::Paper;
use crate::figure::{Figure, Quantity};

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "6",
    title: "An ordered index in regions",
    paper_shows: "With 80 % lookups and 20 % read-modify-writes the B+-tree whose operations run in regions is 7.6 % ahead of Masstree's with eight \
                  threads, since it executes two thirds of its instructions; 1 % ahead with 50 % lookups, 25 % insertions and 25 % changes. With a spin \
                  lock in the place of regions it does not grow with the threads.",
    here: "One B+-tree in all curves, that of the tables here. `in regions`: each operation is whole in one region, with one lock behind, as in the \
           paper. `one spin lock`: the same without regions. `optimistic`: lookups validate the nodes they read, changes lock nodes and rows. \
           `optimistic, changes in regions` is how tables use it. Uniform keys; rows of 104 bytes are changed in place.",
    points: |setting| index_points(setting, "ordered"),
    views: &index_views(),
    claims: &[
        index_claim("in regions it is 7.6 % ahead", 0, Quantity::Ratio(IN_REGIONS, OPTIMISTIC), 1.076, f64::INFINITY).because("The paper's competitor is another tree with more instructions. Here the tree is one, and each operation pays for its region's \
                      begin and end, where a lookup without a region pays for a few comparisons."),
        index_claim(
                "with insertions it is 1 % ahead",
                1,
                Quantity::Ratio(IN_REGIONS, OPTIMISTIC),
                1.01,
                f64::INFINITY,
            ).because("As above."),
        GROWS,
        LOCK_FALLS_BEHIND,
    ],
};
