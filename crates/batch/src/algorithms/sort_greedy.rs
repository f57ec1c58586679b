//! Sort greedy (Algorithm 2): removes the k highest-ranked vertices as long as any are left; k becomes 1 once
//! no more than k are left.
//!
//! O(V² / k + V + E). The k vertices are found by quickselect. A vertex that was trimmed because of earlier
//! ones of the k is not in the set.

use super::{Algorithm, Search};
use crate::residual::Residual;

pub(super) const ENTRY: Algorithm =
    Algorithm { name: "sort-greedy", about: "the k highest-ranked, again and again", solve };

fn solve(residual: &mut Residual<'_>, search: &mut Search<'_>) -> Vec<u32> {
    let mut set = Vec::new();
    let mut left = residual.vertices();
    while !left.is_empty() {
        let mut ranked: Vec<_> = left.iter().map(|&vertex| search.rank(residual, vertex)).collect();
        let factor = Some(search.settings.factor.get()).filter(|&factor| factor < left.len()).unwrap_or(1);
        let (higher, lowest, _) = ranked.select_nth_unstable_by(factor - 1, |a, b| b.cmp(a));
        higher.sort_unstable_by(|a, b| b.cmp(a));
        for (_, vertex) in higher.iter().chain([&*lowest]) {
            if residual.is_left(*vertex) {
                residual.remove(*vertex);
                residual.trim();
                set.push(*vertex);
            }
        }
        left.retain(|&vertex| residual.is_left(vertex));
    }
    set
}
