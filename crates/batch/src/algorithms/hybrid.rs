//! Hybrid (§4.1): SCC greedy, which searches components of at most
//! [`Settings::exact_max`](crate::Settings::exact_max) exactly.

use super::{Algorithm, Search, exact, scc_greedy};
use crate::EXACT_MAX;
use crate::residual::Residual;

pub(super) const ENTRY: Algorithm =
    Algorithm { name: "hybrid", about: "scc-greedy, and exact for small components", solve };

fn solve(residual: &mut Residual<'_>, search: &mut Search<'_>) -> Vec<u32> {
    let most = search.settings.exact_max.min(EXACT_MAX);
    up_to(most, residual, search)
}

pub(super) fn up_to(most: usize, residual: &mut Residual<'_>, search: &mut Search<'_>) -> Vec<u32> {
    scc_greedy::by_components(residual, search, |residual, search, component| {
        (component.len() <= most).then(|| exact::search(residual, search, component))
    })
}
