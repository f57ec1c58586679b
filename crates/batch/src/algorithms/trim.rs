//! Trimming alone: every vertex that it leaves aborts. It takes the least work, O(V + E), and gives the
//! largest set: all vertices on a cycle or between two cycles.
//!
//! Trimming itself is [`Residual::trim`], which the other algorithms use first and after each removal.

use super::{Algorithm, Search};
use crate::residual::Residual;

pub(super) const ENTRY: Algorithm = Algorithm { name: "trim", about: "all that trimming leaves", solve };

fn solve(residual: &mut Residual<'_>, _: &mut Search<'_>) -> Vec<u32> {
    residual.vertices()
}
