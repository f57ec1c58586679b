//! How fresh the snapshots of a session must be, under protocols whose snapshots may be older than the present.
//!
//! A session's snapshot shows all that the session's read-write transactions committed or read before, and all
//! that had committed when the session was opened. It also shows the commits of receipts that the session was
//! given ([`SessionFreshness::read_after`]). There are two measures of this, by the kind of snapshots:
//!
//! - If snapshots are made periodically ([`seriatim_txn::Snapshots`]): *epochs*. The wanted transactions have
//!   ended, so a snapshot that is made now shows them. The newest snapshot shows them if it is complete up to
//!   the wanted epoch. Later snapshots show all that earlier ones show, so one such snapshot satisfies the
//!   session.
//! - If snapshots are of the past and need not be made: *places* in the protocol's order
//!   ([`seriatim_txn::Worker::place`]). A snapshot's place must come after that of the session's own
//!   transactions. Receipts, and commits before the session was opened, have no place: the snapshot must then
//!   show all that has ended.

use std::cell::Cell;
use std::num::NonZeroU64;

use seriatim_base::Epoch;
use seriatim_txn::{Freshness, Mode, TakenSnapshot};

use crate::engine::Inner;

/// The state that the next snapshot of a session must show.
#[derive(Debug)]
pub(crate) struct SessionFreshness {
    measure: Measure,
    /// All that has ended up to this measure must be shown: the session did it, or was opened after it.
    own: Cell<u64>,
    /// The same for receipts that the session was given.
    told: Cell<u64>,
    /// Snapshots always show all commits: a chain of pieces that is not complete may be older than the
    /// snapshot.
    present: bool,
    /// Whether durability is by snapshot.
    durable: bool,
    /// The number of the snapshot that was taken last, if durability is by snapshot.
    taken: Cell<Option<NonZeroU64>>,
}

/// The unit of freshness: see the module comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Epochs,
    Places,
}

const NONE: u64 = 0;

/// All that has ended: no snapshot that was made before shows it.
pub(crate) const ALL: u64 = u64::MAX;

impl SessionFreshness {
    /// For a session that is being opened. `None` if each snapshot is of the present, or if there are none.
    pub(crate) fn of(inner: &Inner) -> Option<SessionFreshness> {
        let epochs = &inner.environment.epochs;
        let (measure, own, told) = match inner.capabilities.snapshots {
            Freshness::None | Freshness::Latest => return None,
            Freshness::Eventual => (Measure::Epochs, epochs.current().0, NONE),
            Freshness::Past => (Measure::Places, NONE, ALL),
        };
        let (own, told, taken) = (Cell::new(own), Cell::new(told), Cell::default());
        let (present, durable) = (inner.gate.is_some(), epochs.snapshots().end_epochs());
        Some(SessionFreshness { measure, own, told, present, durable, taken })
    }

    #[inline]
    pub(crate) fn is_durable(&self) -> bool {
        self.durable
    }

    /// Notes that a snapshot was taken.
    pub(crate) fn took(&self, snapshot: Option<TakenSnapshot>) {
        // A snapshot's number is the epoch that it ended.
        self.taken.set(snapshot.filter(|_| self.durable).and_then(|taken| NonZeroU64::new(taken.whole.0)));
    }

    /// The number of the snapshot that was taken last, where durability is by snapshot.
    #[inline]
    pub(crate) fn taken(&self) -> Option<NonZeroU64> {
        self.taken.get()
    }

    #[inline]
    pub(crate) fn measure(&self) -> Measure {
        self.measure
    }

    /// Notes a transaction of the session that has ended: it depends on epochs up to `epoch`, and has this
    /// place. Returns whether later snapshots must be newer than before.
    #[inline]
    pub(crate) fn did(&self, mode: Mode, epoch: Epoch, place: impl FnOnce() -> u64) -> bool {
        let done = match (self.measure, mode) {
            // The snapshot showed all that was wanted, and adds nothing.
            (Measure::Epochs, Mode::ReadOnly) => return false,
            (Measure::Epochs, Mode::ReadWrite) => epoch.0,
            (Measure::Places, _) => place(),
        };
        // A transaction that accessed nothing has no place of its own.
        let is_newer = done > self.own.get();
        if is_newer {
            self.own.set(done);
            if mode == Mode::ReadOnly {
                self.told.set(NONE);
            }
        }
        is_newer
    }

    pub(crate) fn read_after(&self, epoch: Epoch) {
        let told = if self.measure == Measure::Epochs { epoch.0 } else { ALL };
        self.told.set(self.told.get().max(told));
    }

    /// The session has another caller now, which may know of any commit.
    pub(crate) fn change_hands(&self) {
        self.own.set(ALL);
    }

    /// The measure up to which a snapshot must show all that has ended. `own`: including the session's own
    /// transactions.
    pub(crate) fn wanted(&self, own: bool) -> u64 {
        let done = if own { self.own.get() } else { NONE };
        if self.present { ALL } else { self.told.get().max(done) }
    }

    /// Notes that a snapshot was requested with `own`, and made if needed. By places this is known only when it
    /// has ended.
    pub(crate) fn had(&self, own: bool) {
        if self.measure == Measure::Epochs {
            self.told.set(NONE);
            if own {
                self.own.set(NONE);
            }
        }
    }
}

impl Inner {
    /// How fresh snapshots are: as the protocol says, or of the present if procedures run in pieces.
    pub(crate) fn freshness(&self) -> Freshness {
        match self.capabilities.snapshots {
            Freshness::Eventual if self.gate.is_some() => Freshness::Latest,
            stated => stated,
        }
    }
}
