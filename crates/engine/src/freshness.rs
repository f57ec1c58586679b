//! How fresh the snapshots of a session are to be, where they may be older than the present.
//!
//! A session's snapshot shows what the session did before, whatever its read-write transactions committed or read, and what had
//! committed when the session was opened; and what it was told to read after. There are two measures of that, by where snapshots come from:
//!
//! - Where they are made every so often ([`seriatim_txn::Snapshots`]), *epochs*. All that is wanted has ended, so a snapshot that is made now has it,
//!   and the newest has it if that is whole up to the epoch. What one snapshot has, all later ones have: then nothing is wanted any more.
//! - Where they are of the past, and nobody makes them, *places* in the protocol's order ([`seriatim_txn::Worker::place`]). The place of a
//!   snapshot is what its session saw; what it was told, and what there was when it was opened, has no place: that is all that has ended.

use std::cell::Cell;
use std::num::NonZeroU64;

use seriatim_base::Epoch;
use seriatim_txn::{Freshness, Mode, TakenSnapshot};

use crate::engine::Inner;

/// What the next snapshot of a session is to show.
#[derive(Debug)]
pub(crate) struct SessionFreshness {
    measure: Measure,
    /// Everything up to this one that has ended, as the session was there or did it.
    own: Cell<u64>,
    /// The same, as the session was told.
    told: Cell<u64>,
    /// Always all that has committed: a chain of pieces that is not whole may be older than the snapshot.
    present: bool,
    /// Whether durability is by snapshot.
    durable: bool,
    /// The number of the last that was taken, if it is.
    taken: Cell<Option<NonZeroU64>>,
}

/// What is counted: see the module comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Epochs,
    Places,
}

const NONE: u64 = 0;

/// What no snapshot has that was made before.
pub(crate) const ALL: u64 = u64::MAX;

impl SessionFreshness {
    /// Of a session that is being opened; `None` where each snapshot is of the present, or there are none.
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

    /// A snapshot has been taken.
    pub(crate) fn took(&self, snapshot: Option<TakenSnapshot>) {
        // Its number is the epoch that it ended.
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

    /// It has ended a transaction that depends on epochs up to this one, and has this place; whether snapshots come after it now, and did not.
    #[inline]
    pub(crate) fn did(&self, mode: Mode, epoch: Epoch, place: impl FnOnce() -> u64) -> bool {
        let done = match (self.measure, mode) {
            // It has shown what was wanted, and nothing more is.
            (Measure::Epochs, Mode::ReadOnly) => return false,
            (Measure::Epochs, Mode::ReadWrite) => epoch.0,
            (Measure::Places, _) => place(),
        };
        // One that accessed nothing has no place of its own.
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

    /// Another caller has it now, who may have seen anything.
    pub(crate) fn change_hands(&self) {
        self.own.set(ALL);
    }

    /// Up to where a snapshot has to have everything that has ended; `own`: what the session did, too.
    pub(crate) fn wanted(&self, own: bool) -> u64 {
        let done = if own { self.own.get() } else { NONE };
        if self.present { ALL } else { self.told.get().max(done) }
    }

    /// It has had a snapshot that was asked for so, if one was made for it. Whether another was right is seen when that has ended.
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
    /// How fresh snapshots are: as the protocol says, or of the present where procedures run in pieces.
    pub(crate) fn freshness(&self) -> Freshness {
        match self.capabilities.snapshots {
            Freshness::Eventual if self.gate.is_some() => Freshness::Latest,
            stated => stated,
        }
    }
}
