//! Random: SCC greedy that removes a random vertex, the baseline of §5.1; and the smallest set of three such
//! runs.

use super::{Algorithm, Search, scc_greedy};
use crate::policy::Policy;
use crate::residual::Residual;

pub(super) const ENTRY: Algorithm =
    Algorithm { name: "random", about: "anyone of each strongly connected component", solve };

pub(super) const ENTRY_BEST_OF_3: Algorithm =
    Algorithm { name: "random-3", about: "the smallest set of three of random's", solve: solve_best_of_3 };

fn solve(residual: &mut Residual<'_>, search: &mut Search<'_>) -> Vec<u32> {
    search.policy = Policy::named("random").expect("it is listed");
    scc_greedy::solve(residual, search)
}

fn solve_best_of_3(residual: &mut Residual<'_>, search: &mut Search<'_>) -> Vec<u32> {
    let sets = [(); 3].map(|()| solve(&mut residual.clone(), search));
    sets.into_iter().min_by_key(Vec::len).expect("there are three")
}
