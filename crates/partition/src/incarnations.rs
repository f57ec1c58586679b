//! Lives of peers: how often one has restarted. A notice that one is down names the life that ended, so a late one does no harm.

use std::collections::BTreeMap;

/// What is known of each.
#[derive(Debug)]
pub(crate) struct Lives<N> {
    of: BTreeMap<N, Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The latest life that something was heard of.
    heard: Option<u64>,
    /// The latest that is said to have ended.
    ended: Option<u64>,
}

impl<N: Ord> Lives<N> {
    pub(crate) fn new() -> Lives<N> {
        Lives { of: BTreeMap::new() }
    }

    /// Something is heard of this life; whether it may still go on.
    pub(crate) fn hear(&mut self, one: N, life: u64) -> bool {
        let known = self.of.entry(one).or_default();
        known.heard = known.heard.max(Some(life));
        known.ended < Some(life)
    }

    /// This life is said to have ended; whether no later one is known.
    pub(crate) fn end(&mut self, one: N, life: u64) -> bool {
        let known = self.of.entry(one).or_default();
        known.ended = known.ended.max(Some(life));
        known.heard <= known.ended
    }
}
