//! Sort greedy (Algorithm 2): the k highest-ranked vertices of what is left go, as long as something is left; k is 1 as soon as no more
//! than k are.
//!
//! O(V² / k + V + E). The k are found by quickselect. One of them that was trimmed because of those before it is not in the set.

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
