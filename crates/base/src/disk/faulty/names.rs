//! The names in one directory of the simulated disk.
//!
//! Invariant: `live` is `durable` after all of `unsynced`, except for changes that a failed sync dropped. A power cut
//! keeps a prefix of the changes of each name. A rename changes two names, and survives for both or for neither.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use super::draw_survival;
use super::tree::NodeId;
use crate::Rng;

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    live: BTreeMap<OsString, NodeId>,
    durable: BTreeMap<OsString, NodeId>,
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Link { name: OsString, node: NodeId },
    Unlink { name: OsString },
    Rename { from: OsString, to: OsString, node: NodeId },
}

impl Names {
    /// A directory with durable names.
    pub(super) fn of(names: BTreeMap<OsString, NodeId>) -> Names {
        Names { live: names.clone(), durable: names, unsynced: Vec::new() }
    }

    pub(super) fn live(&self) -> &BTreeMap<OsString, NodeId> {
        &self.live
    }

    pub(super) fn durable(&self) -> &BTreeMap<OsString, NodeId> {
        &self.durable
    }

    pub(super) fn get(&self, name: &OsStr) -> Option<NodeId> {
        self.live.get(name).copied()
    }

    /// Every node that has a name here now, or may have one after a power cut.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let unsynced = self.unsynced.iter().filter_map(|change| match *change {
            Change::Link { node, .. } | Change::Rename { node, .. } => Some(node),
            Change::Unlink { .. } => None,
        });
        self.live.values().chain(self.durable.values()).copied().chain(unsynced)
    }

    pub(super) fn link(&mut self, name: &OsStr, node: NodeId) {
        self.make(Change::Link { name: name.to_owned(), node });
    }

    pub(super) fn unlink(&mut self, name: &OsStr) {
        self.make(Change::Unlink { name: name.to_owned() });
    }

    pub(super) fn rename(&mut self, from: &OsStr, to: &OsStr, node: NodeId) {
        self.make(Change::Rename { from: from.to_owned(), to: to.to_owned(), node });
    }

    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// A failed sync: changes that have not reached the disk now never will.
    pub(super) fn fail_sync(&mut self, rng: &mut Rng) {
        self.settle(rng);
    }

    /// A power cut: some unsynced changes survive, the others are lost.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        self.settle(rng);
        self.live.clone_from(&self.durable);
    }

    fn make(&mut self, change: Change) {
        change.clone().apply(&mut self.live);
        self.unsynced.push(change);
    }

    fn settle(&mut self, rng: &mut Rng) {
        if self.unsynced.is_empty() {
            return;
        }
        let survival = draw_survival(rng);
        let mut lost = BTreeSet::new();
        for change in self.unsynced.drain(..) {
            let follows_lost = change.names().any(|name| lost.contains(name));
            if follows_lost || !rng.percent(survival) {
                lost.extend(change.names().map(OsStr::to_owned));
            } else {
                change.apply(&mut self.durable);
            }
        }
    }
}

impl Change {
    fn names(&self) -> impl Iterator<Item = &OsStr> {
        let (first, second) = match self {
            Change::Link { name, .. } | Change::Unlink { name } => (name, None),
            Change::Rename { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second).map(OsString::as_os_str)
    }

    fn apply(self, names: &mut BTreeMap<OsString, NodeId>) {
        match self {
            Change::Link { name, node } => {
                names.insert(name, node);
            }
            Change::Unlink { name } => {
                names.remove(&name);
            }
            Change::Rename { from, to, node } => {
                names.remove(&from);
                names.insert(to, node);
            }
        }
    }
}
