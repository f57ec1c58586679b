//! Algorithms that find feedback vertex sets (§4.1): each is a file, and a line in [`ALGORITHMS`].
//!
//! Each is given a trimmed graph. It removes vertices until no cycle is left, and returns those that it
//! removed.

mod exact;
mod hybrid;
mod random;
mod scc_greedy;
mod sort_greedy;
mod trim;

use seriatim_base::Rng;

use crate::policy::{Policy, Vertex};
use crate::residual::Residual;
use crate::{Member, Settings};

/// An algorithm that chooses which transactions abort, in [`ALGORITHMS`].
#[derive(Debug)]
pub struct Algorithm {
    /// Its name.
    pub name: &'static str,
    /// One line: what it does.
    pub about: &'static str,
    pub(crate) solve: fn(&mut Residual<'_>, &mut Search<'_>) -> Vec<u32>,
}

/// All algorithms, with the least work first.
pub static ALGORITHMS: &[Algorithm] = &[
    trim::ENTRY,
    sort_greedy::ENTRY,
    scc_greedy::ENTRY,
    random::ENTRY,
    random::ENTRY_BEST_OF_3,
    hybrid::ENTRY,
    exact::ENTRY,
];

impl Algorithm {
    /// The algorithm of this name.
    pub fn named(name: &str) -> Option<&'static Algorithm> {
        ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
    }
}

/// The state of a search: the settings, the members and the policy.
pub(crate) struct Search<'s> {
    settings: &'s Settings,
    policy: &'static Policy,
    members: &'s [Member],
    rng: Rng,
    /// The rest of [`Settings::search_steps_max`].
    steps: u32,
}

impl<'s> Search<'s> {
    pub(crate) fn new(settings: &'s Settings, members: &'s [Member]) -> Search<'s> {
        let rng = Rng::from_seed(settings.seed);
        Search { settings, policy: settings.policy, members, rng, steps: settings.search_steps_max }
    }

    /// The rank of a vertex: by policy, then by arrival. The highest is removed first.
    fn rank(&mut self, residual: &Residual<'_>, vertex: u32) -> (u128, u32) {
        residual.look(1);
        let (ins, outs) = residual.degrees(vertex);
        let rank = (self.policy.rank)(&Vertex { ins, outs, member: self.members[vertex as usize] }, &mut self.rng);
        (rank, vertex)
    }

    fn cost(&self, vertex: u32) -> u64 {
        (self.policy.cost)(&self.members[vertex as usize])
    }
}
