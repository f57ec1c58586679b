//! Which transactions a table admits that an explicit transaction has changed.
//!
//! Its rows and its declaration committed together, so a transaction that comes earlier in the serial order finds the
//! rows of neither. A read-write transaction comes later, if its place in the order is at its commit. Others are
//! admitted if they began after the change was durable: snapshots of the durable epoch show it then, too.
//!
//! Under protocols that read the past, a snapshot is as old as the oldest transaction that is open. There a snapshot is
//! admitted that had to show all that has ended. Others are when every transaction has ended that was open when those
//! had ended that were open at the change.

use seriatim_base::Epoch;
use seriatim_txn::{Freshness, Mode};

use crate::engine::Inner;
use crate::freshness::{ALL, Measure};
use crate::pool::{Lease, Open};
use crate::table::TableSet;
use crate::tx::TxCore;

/// The transactions that a table does not admit.
#[derive(Clone, Debug)]
pub(crate) struct Settling {
    /// The epoch of the change, while it is not durable: nobody is admitted who may read a snapshot.
    undurable: Option<Epoch>,
    /// Those that were open.
    open: Vec<Open>,
    round: Round,
}

/// Which transactions a table waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Those that were open at the change. No others follow.
    Only,
    /// The same, and others follow.
    First,
    /// Those that were open when the first had ended. They are admitted, if they are no old snapshots.
    Second,
}

impl Inner {
    /// Begins when a change has committed: in this epoch, if that is not durable.
    pub(crate) fn settling(&self, undurable: Option<Epoch>) -> Settling {
        if undurable.is_none() {
            self.environment.epochs.renew_snapshot(&self.environment.htm);
        }
        let round = if self.capabilities.snapshots == Freshness::Past { Round::First } else { Round::Only };
        Settling { undurable, open: self.pool.open_now(None), round }
    }

    /// Whether the change is durable, and shown by every snapshot that begins.
    fn is_shown(&self, epoch: Epoch) -> bool {
        let is_durable = self.persistence.as_ref().is_none_or(|persistence| persistence.durable_epoch() >= epoch);
        let newest = || self.environment.epochs.newest_snapshot().is_none_or(|newest| newest.whole >= epoch);
        is_durable && newest()
    }

    /// Whether a table admits every transaction by now.
    fn settle(&self, set: &TableSet) -> bool {
        let mut place = set.settling();
        let Some(settling) = &mut *place else { return true };
        if let Some(epoch) = settling.undurable {
            if !self.is_shown(epoch) {
                return false;
            }
            (settling.undurable, settling.open) = (None, self.pool.open_now(None));
        }
        settling.open.retain(|open| !self.pool.has_ended(*open));
        if settling.open.is_empty() && settling.round == Round::First {
            (settling.open, settling.round) = (self.pool.open_now(None), Round::Second);
        }
        if !settling.open.is_empty() {
            return false;
        }
        set.end_settling(place);
        true
    }
}

impl TxCore {
    /// Whether the transaction's place in the serial order is at its commit. Otherwise it may be where it began.
    pub(crate) fn is_ordered_at_commit(&self) -> bool {
        let capabilities = &self.inner().capabilities;
        capabilities.strict && capabilities.snapshots != Freshness::Past
    }

    /// Whether a table that is settling admits this transaction.
    pub(crate) fn is_after_change(&self, set: &TableSet, own: Lease, mode: Mode) -> bool {
        if mode == Mode::ReadWrite && self.is_ordered_at_commit() || self.inner().settle(set) {
            return true;
        }
        let own = self.inner().pool.open_of(own);
        let is_later = |it: &Settling| it.round == Round::Second || !it.open.contains(&own);
        let began_after = set.settling().as_ref().is_none_or(|it| it.undurable.is_none() && is_later(it));
        match self.freshness.as_ref().filter(|freshness| freshness.measure() == Measure::Places) {
            Some(freshness) if mode == Mode::ReadOnly => {
                // If it is not, the next one is.
                let shows_all = freshness.wanted(false) == ALL;
                freshness.read_after(Epoch(0));
                began_after && shows_all
            }
            _ => began_after,
        }
    }
}
