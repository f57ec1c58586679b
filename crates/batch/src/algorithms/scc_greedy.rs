//! SCC greedy (Algorithm 1): removes the highest-ranked vertex of each strongly connected component, and
//! splits what is left of the component again.
//!
//! O(V (V + E)). A list of open components replaces the paper's recursion.

use super::{Algorithm, Search};
use crate::residual::Residual;

pub(super) const ENTRY: Algorithm =
    Algorithm { name: "scc-greedy", about: "the highest-ranked of each strongly connected component", solve };

pub(super) fn solve(residual: &mut Residual<'_>, search: &mut Search<'_>) -> Vec<u32> {
    by_components(residual, search, |_, _, _| None)
}

/// Solves each component at once by `whole`, or removes its highest-ranked vertex.
pub(super) fn by_components(
    residual: &mut Residual<'_>,
    search: &mut Search<'_>,
    whole: impl Fn(&Residual<'_>, &mut Search<'_>, &[u32]) -> Option<Vec<u32>>,
) -> Vec<u32> {
    let mut set = Vec::new();
    let vertices = residual.vertices();
    let mut components = residual.split(&vertices);
    while let Some(mut component) = components.pop() {
        if let Some(solution) = whole(residual, search, &component) {
            component.iter().for_each(|&vertex| residual.remove(vertex));
            set.extend(solution);
            continue;
        }
        let ranks = component.iter().map(|&vertex| search.rank(residual, vertex));
        let (_, highest) = ranks.max().expect("a component has vertices");
        residual.remove(highest);
        residual.trim();
        set.push(highest);
        component.retain(|&vertex| residual.is_left(vertex));
        components.extend(residual.split(&component));
    }
    set
}
