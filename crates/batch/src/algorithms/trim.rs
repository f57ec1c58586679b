//! Trimming alone: what it leaves aborts. The least work there is, O(V + E), and the largest set: all that is on a cycle or between two.
//!
//! Trimming itself is [`Residual::trim`], which the other algorithms begin and go on with.

use super::{Algorithm, Search};
use crate::residual::Residual;

pub(super) const ENTRY: Algorithm = Algorithm { name: "trim", about: "all that trimming leaves", solve };

fn solve(residual: &mut Residual<'_>, _: &mut Search<'_>) -> Vec<u32> {
    residual.vertices()
}
