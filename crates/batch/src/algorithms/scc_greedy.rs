//! SCC greedy (Algorithm 1): of each strongly connected component the highest-ranked vertex goes, and what is left of it is split again.
//!
//! O(V (V + E)). The paper's recursion is a list of components to go.

use super::{Algorithm, Search};
use crate::residual::Residual;

pub(super) const ENTRY: Algorithm =
    Algorithm { name: "scc-greedy", about: "the highest-ranked of each strongly connected component", solve };

pub(super) fn solve(residual: &mut Residual<'_>, search: &mut Search<'_>) -> Vec<u32> {
    by_components(residual, search, |_, _, _| None)
}

/// Each component is solved at once by `whole`, or loses its highest-ranked vertex.
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
