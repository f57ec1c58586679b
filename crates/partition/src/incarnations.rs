//! Incarnations of peers: an incarnation is the time of a peer between two restarts. A notice that a peer is
//! down names the incarnation that ended, so a late notice does no harm.

use std::collections::BTreeMap;

/// The known incarnations of each peer.
#[derive(Debug)]
pub(crate) struct Incarnations<N> {
    of: BTreeMap<N, Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The latest incarnation from which a message came.
    heard: Option<u64>,
    /// The latest incarnation that was reported as ended.
    ended: Option<u64>,
}

impl<N: Ord> Incarnations<N> {
    pub(crate) fn new() -> Incarnations<N> {
        Incarnations { of: BTreeMap::new() }
    }

    /// Notes a message of this incarnation. Returns whether the incarnation may still be alive.
    pub(crate) fn hear(&mut self, one: N, incarnation: u64) -> bool {
        let known = self.of.entry(one).or_default();
        known.heard = known.heard.max(Some(incarnation));
        known.ended < Some(incarnation)
    }

    /// Notes that this incarnation has ended. Returns whether no later one is known.
    pub(crate) fn end(&mut self, one: N, incarnation: u64) -> bool {
        let known = self.of.entry(one).or_default();
        known.ended = known.ended.max(Some(incarnation));
        known.heard <= known.ended
    }
}
