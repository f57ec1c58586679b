//! The environment of a protocol, from its database: memory, regions, the epoch.

use std::sync::Arc;

use seriatim_base::{Epoch, Tid};
use seriatim_catalog::Key;
use seriatim_htm::{Agent, Budget, Htm, Outside};
use seriatim_memory::{Local, Memory};
use seriatim_store::{RecordPtr, StoreCx};

use crate::{Census, Counts, Epochs, Fault, Partitions, Table, TakenSnapshot, UndurableDeletions};

/// Shared by all workers of a database.
#[derive(Clone)]
pub struct Environment {
    /// Regions.
    pub htm: Htm,
    /// The heap and the quiescence domain.
    pub memory: Memory,
    /// The epoch.
    pub epochs: Arc<Epochs>,
    /// Unlinked records whose deletion is not durable.
    pub undurable_deletions: Arc<UndurableDeletions>,
    /// Rows and bytes of each table.
    pub census: Arc<Census>,
    /// Retries of a region before its fallback.
    pub budget: Budget,
    /// Tables whose records, and no others, are hot from their first commit on. If there are none, the
    /// protocol finds hot records itself.
    pub hot_tables: Arc<[String]>,
    /// For protocols that have partitions.
    pub partitions: Arc<Partitions>,
    /// The injected fault.
    #[cfg(feature = "canary")]
    pub fault: Fault,
}

/// One worker's own: never shared, reused from transaction to transaction.
pub struct Core {
    /// Memory of this worker; online while a transaction is open.
    pub local: Local,
    /// Runs this worker's regions and counts them.
    pub agent: Agent,
    /// Proof that this worker is not inside a region.
    pub outside: Outside,
    /// Regions, for changes of words they read.
    pub htm: Htm,
    /// The epoch.
    pub epochs: Arc<Epochs>,
    /// The durable epoch that the next snapshots of this worker show; the caller that sets it holds it
    /// ([`DurablePoint::hold`](seriatim_base::DurablePoint::hold)) until they have ended.
    pub held: Option<Epoch>,
    /// The next snapshot of this worker shows what committed in epochs up to this one, where snapshots are
    /// eventual ([`Snapshots`]); the caller sets it. Elsewhere they show all.
    ///
    /// [`Snapshots`]: crate::Snapshots
    pub includes: Epoch,
    /// The eventual snapshot that this worker has taken last. One that shows the durable epoch is whole up to that.
    pub taken: Option<TakenSnapshot>,
    /// The changes of row and byte counts, by table, of this worker's commits.
    pub counts: Counts,
    undurable_deletions: Arc<UndurableDeletions>,
    /// The newest deletion that this worker has noted there, if any.
    noted: Epoch,
    #[cfg(feature = "canary")]
    fault: Fault,
    /// The database's epoch. (`epochs` is this worker's own, which does not change from begin to begin.)
    #[cfg(feature = "canary")]
    followed: Option<Arc<Epochs>>,
}

impl Environment {
    /// An environment in which the epoch has just begun, for callers that run a protocol without a database.
    pub fn new(htm: Htm, memory: Memory, budget: Budget) -> Environment {
        Environment {
            undurable_deletions: Arc::new(UndurableDeletions::new(&memory)),
            htm,
            memory,
            epochs: Arc::default(),
            census: Arc::default(),
            budget,
            hot_tables: Arc::default(),
            partitions: Arc::new(Partitions::new(Partitions::DEFAULT, None)),
            #[cfg(feature = "canary")]
            fault: Fault::None,
        }
    }

    /// Whether this fault is deliberately built in. Always `false` without the feature `canary`.
    pub fn injects(&self, fault: Fault) -> bool {
        #[cfg(feature = "canary")]
        return self.fault == fault;
        #[cfg(not(feature = "canary"))]
        {
            let _ = fault;
            false
        }
    }

    /// Begins the next epoch, and moves the horizon on if that is possible; makes the next snapshot.
    pub fn advance_epoch(&self) {
        self.end_epoch();
        if !self.epochs.snapshots().end_epochs() {
            self.advance_snapshot();
        }
    }

    /// Begins the next epoch, as a ticker does, unless epochs are far ahead, and advances the horizon if that
    /// is possible. Where snapshots are durable, this also makes the next snapshot, and releases the versions
    /// that only older ones need.
    pub fn end_epoch(&self) {
        let current = self.epochs.advance_unless_far(&self.htm);
        self.memory.advance_horizon(current);
        if self.epochs.snapshots().end_epochs() {
            self.memory.pass_snapshot(Epoch(current.0 - 1));
        }
    }

    /// Makes a snapshot and offers it to readers of eventual snapshots, if they have wanted one recently. Otherwise
    /// withdraws the offer ([`Snapshots`](crate::Snapshots)). It also releases the versions that only older snapshots
    /// need, unless those are still read.
    pub fn advance_snapshot(&self) {
        let Some(eventual) = self.epochs.snapshots().eventual() else { return };
        if self.epochs.snapshots().end_epochs() {
            return self.end_epoch();
        }
        let (_turn, is_wanted) = eventual.turn();
        // A renewed offer begins with an epoch. Rows that were deleted in earlier epochs may have been freed
        // while nothing was kept; their deletions are not later than the snapshot.
        let is_renewed = is_wanted && !eventual.is_offered();
        let current = match is_renewed {
            true => self.epochs.advance(&self.htm),
            false => self.epochs.current(),
        };
        // Commits of epochs up to this one have read S, and have a number that is whole when S is advanced.
        let over = Epoch(current.0.saturating_sub(1));
        if is_wanted {
            if is_renewed {
                self.memory.resume_snapshots(over);
            }
            let closes = !self.injects(Fault::SnapshotAmidWindows);
            let whole = self.epochs.advance_snapshot(&self.htm, closes);
            self.memory.pass_snapshot(whole.unwrap_or(over));
        } else {
            eventual.withdraw(over);
            // A reader that comes online from now on makes its own snapshot.
            self.memory.pass_snapshot(Epoch(u64::MAX));
        }
    }

    /// A worker's own part; `None` when all workers the memory was opened for are registered.
    pub fn core(&self) -> Option<Core> {
        let local = self.memory.register()?;
        let agent = self.htm.agent(local.worker(), self.budget);
        let core = Core {
            local,
            agent,
            outside: Outside::claim(),
            htm: self.htm.clone(),
            epochs: Arc::clone(&self.epochs),
            counts: Counts::new(&self.census),
            undurable_deletions: Arc::clone(&self.undurable_deletions),
            held: None,
            includes: Epoch(0),
            taken: None,
            noted: Epoch(0),
            #[cfg(feature = "canary")]
            fault: self.fault,
            #[cfg(feature = "canary")]
            followed: None,
        };
        #[cfg(feature = "canary")]
        if core.injects(Fault::EpochAtBegin) {
            let (epochs, followed) = (Arc::<Epochs>::default(), Some(core.epochs));
            // For protocols that open windows.
            epochs.windows().allow(self.memory.workers_max());
            return Some(Core { epochs, followed, ..core });
        }
        Some(core)
    }
}

impl Core {
    /// Goes online: a transaction begins.
    #[inline(always)]
    pub fn enter(&mut self) {
        self.local.enter();
        #[cfg(feature = "canary")]
        if let Some(followed) = &self.followed {
            self.epochs.follow(followed);
        }
    }

    /// Whether this fault is deliberately built in. Always `false` without the feature `canary`.
    #[inline(always)]
    pub fn injects(&self, fault: Fault) -> bool {
        #[cfg(feature = "canary")]
        return self.fault == fault;
        #[cfg(not(feature = "canary"))]
        {
            let _ = fault;
            false
        }
    }

    /// Whether memory is leaked instead of freed. Under an injected fault two transactions may free the same version,
    /// and a canary must show the anomaly, not a double free. Always `false` without the feature `canary`.
    #[inline(always)]
    pub fn leaks(&self) -> bool {
        !self.injects(Fault::None) && cfg!(feature = "canary")
    }

    /// Before which epoch replaced versions may be overwritten ([`Local::horizon`]): none where memory leaks.
    #[inline(always)]
    pub fn horizon(&self) -> Epoch {
        if self.leaks() { Epoch(0) } else { self.local.horizon() }
    }

    /// The durable epoch that a snapshot must show, if versions are kept for its readers. It is the epoch at which the
    /// log stopped, or the one that the opener of the snapshot holds.
    pub fn shown_epoch(&self) -> Option<Epoch> {
        self.held.or_else(|| self.local.kept_until()?.final_epoch())
    }

    /// Unlinks a record whose row was deleted under `tid`, by `unlink`, which returns whether it succeeded.
    /// Until the deletion is durable, and part of every snapshot that is read, the record is among
    /// [`Core::undurable_deletions`].
    pub fn note_undurable_deletion(
        &mut self,
        table: &Table,
        record: RecordPtr,
        tid: Tid,
        unlink: impl FnOnce(&mut Core) -> bool,
    ) -> bool {
        let worker = self.local.worker();
        let durable = self.local.released().filter(|&durable| durable < tid.epoch());
        let durable = durable.filter(|_| !self.injects(Fault::ForgetUndurableDeletions));
        if let Some(durable) = durable {
            self.undurable_deletions.note(worker, table, record, tid, durable);
            self.noted = self.noted.max(tid.epoch());
        }
        let unlinked = unlink(self);
        if durable.is_some() && !unlinked {
            self.undurable_deletions.forget_last(worker);
        }
        unlinked
    }

    /// Forgets what this worker has noted as undurable, once all of it is durable.
    #[inline]
    pub fn forget_undurable_deletions(&mut self) {
        if self.noted == Epoch(0) {
            return;
        }
        let durable = self.local.released();
        if let Some(durable) = durable.filter(|&durable| durable >= self.noted) {
            self.undurable_deletions.forget(self.local.worker(), durable);
            self.undurable_deletions.forget_keys();
            self.noted = Epoch(0);
        }
    }

    /// The records of a table whose rows were deleted after `durable`. That is the epoch at which the log
    /// stopped, or one that the caller holds, so that their memory is not reused. Some may still be in the
    /// index. Several may have had the same key; at most one of these has a version of that epoch or before.
    pub fn undurable_deletions(&self, table: &Table, durable: Epoch) -> Vec<RecordPtr> {
        self.undurable_deletions.of(table, durable)
    }

    /// As [`Core::undurable_deletions`], those of one key.
    pub fn undurable_deletions_of(&self, table: &Table, key: Key<'_>, durable: Epoch) -> Vec<RecordPtr> {
        self.undurable_deletions.under(table, key, durable)
    }

    /// As [`Core::undurable_deletions`], optionally of one key, while other transactions delete. It is for the reader
    /// of an eventual snapshot that shows all deletions of epochs up to `whole`.
    pub fn later_deletions(&self, table: &Table, key: Option<Key<'_>>, whole: Epoch) -> Vec<RecordPtr> {
        self.undurable_deletions.later(table, key, whole)
    }

    /// The store's context for changes of an index.
    #[inline]
    pub fn store(&mut self) -> StoreCx<'_> {
        StoreCx { local: &mut self.local, agent: &mut self.agent, outside: &mut self.outside }
    }
}
