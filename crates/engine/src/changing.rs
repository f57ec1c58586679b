//! The right to change tables, and what an explicit transaction has changed.
//!
//! One migration or explicit transaction has the right at a time. A transaction keeps it until it ends. It closes each
//! table that it changes, and waits until the transactions have ended that were open then. The table itself stays as
//! it is. The transaction works on other [`TableSet`]s, which admit nobody else, and its commit puts their parts in
//! place. So others find the declarations of before, checkpoints walk over the rows of before, and a roll-back only
//! opens the tables again.
//!
//! Tables that are linked with these by foreign keys are closed, too. Only their links change, in place, as nobody else
//! looks at them: they lead to the tables of the transaction. A roll-back puts those of before back.
//!
//! A sequence that the transaction creates is its own until it commits. One that it alters gives others no number until
//! then; the transaction takes the numbers of another one, which its commit puts in place.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread;

use crate::engine::Inner;
use crate::error::SchemaError;
use crate::link::Links;
use crate::sequences::{Sequence, SequenceSteps};
use crate::table::TableSet;
use crate::table_ids::TableIds;

/// How long a transaction keeps others from changing tables, or transactions keep a change from its table.
pub(crate) const WAIT_MAX: Duration =
    Duration::from_millis(if cfg!(any(test, feature = "test-support")) { 3_000 } else { 10_000 });

/// A change that has waited for so long, and still waits for a moment without transactions, waits for one that is open.
const QUIET_WAIT: Duration = Duration::from_millis(50);

/// How long a thread that waits sleeps between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// Who has the right to change tables.
#[derive(Debug, Default)]
pub(crate) struct ChangeLock {
    owner: AtomicU32,
    /// How often others had the right.
    ended: AtomicU64,
}

const NOBODY: u32 = 0;
const MIGRATION: u32 = 1;
const TRANSACTION: u32 = 2;

impl ChangeLock {
    /// Takes the right for an owner. Waits for at most [`WAIT_MAX`] for a transaction that has it, and for a migration
    /// as long as `waits` returns no error.
    fn take(&self, owner: u32, mut waits: impl FnMut(Duration) -> Result<(), SchemaError>) -> Result<(), SchemaError> {
        let began = Instant::now();
        // ORDERING: acquire pairs with the release in `give_back`.
        while let Err(other) = self.owner.compare_exchange(NOBODY, owner, Ordering::Acquire, Ordering::Relaxed) {
            if other == TRANSACTION && began.elapsed() >= WAIT_MAX {
                return Err(SchemaError::Busy);
            }
            waits(began.elapsed())?;
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Takes the right for work that changes no declaration, if nobody has it.
    pub(crate) fn try_use(&self) -> Option<Using<'_>> {
        let taken = self.owner.compare_exchange(NOBODY, MIGRATION, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| Using(self))
    }

    fn give_back(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.owner.store(NOBODY, Ordering::Release);
    }
}

/// The right to change tables, of a migration.
#[derive(Debug)]
pub struct Changing<'i>(&'i ChangeLock);

impl Changing<'_> {
    /// How often others had the right before.
    pub fn number(&self) -> u64 {
        self.0.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// The right to change tables, of work that changes no declaration.
pub(crate) struct Using<'i>(&'i ChangeLock);

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.0.owner.store(NOBODY, Ordering::Release);
    }
}

impl Inner {
    /// The right to change tables. Waits for migrations, and for a transaction up to [`WAIT_MAX`].
    ///
    /// # Errors
    /// [`SchemaError::Busy`], or that this is a fork.
    pub(crate) fn changing(&self) -> Result<Changing<'_>, SchemaError> {
        self.check_process().map_err(SchemaError::storage)?;
        self.changes.take(MIGRATION, |_| Ok(()))?;
        self.dispose_unused();
        Ok(Changing(&self.changes))
    }

    /// Frees tables that nobody has used, and gives their ids back.
    fn dispose_unused(&self) {
        let unused = std::mem::take(&mut self.tables_mut().unused);
        if !unused.is_empty() {
            self.dispose(unused);
        }
    }
}

/// The right to change tables, of an explicit transaction, and what its end undoes.
pub(crate) struct Claim {
    inner: Weak<Inner>,
    /// Whether the transaction may have used tables that it made.
    is_used: AtomicBool,
    held: Mutex<Option<Held>>,
}

/// What the end of a transaction undoes.
pub(crate) struct Held {
    /// Tables that others may not use, each with the links that it had.
    pub(crate) closed: Vec<(Arc<TableSet>, Arc<Links>)>,
    /// Tables that only the transaction may use.
    pub(crate) made: Vec<Arc<TableSet>>,
    /// Sequences that give others no number, and those that only the transaction knows.
    pub(crate) sequences: Vec<Arc<Sequence>>,
    /// The ids that were free before.
    ids: TableIds,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("is_used", &self.is_used).finish_non_exhaustive()
    }
}

impl Claim {
    /// Takes the right. Waits for others up to [`WAIT_MAX`], and while `waits` returns no error. It does not wait for a
    /// migration that waits until no transaction is open: this one is.
    ///
    /// # Errors
    /// [`SchemaError::Busy`], or that of `waits`.
    pub(crate) fn new(
        inner: &Arc<Inner>,
        mut waits: impl FnMut() -> Result<(), SchemaError>,
    ) -> Result<Arc<Claim>, SchemaError> {
        let is_in_vain = |waited| waited >= WAIT_MAX || waited >= QUIET_WAIT && inner.attention.wants_quiet();
        inner.changes.take(TRANSACTION, |waited| if is_in_vain(waited) { Err(SchemaError::Busy) } else { waits() })?;
        inner.dispose_unused();
        let ids = inner.tables_mut().ids.clone();
        let held = Held { closed: Vec::new(), made: Vec::new(), sequences: Vec::new(), ids };
        let (inner, held) = (Arc::downgrade(inner), Mutex::new(Some(held)));
        Ok(Arc::new(Claim { inner, is_used: AtomicBool::new(false), held }))
    }

    /// Notes that the transaction uses a table that it made.
    pub(crate) fn uses(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Calls `see` with what is held, unless the transaction has ended.
    pub(crate) fn with<R>(&self, see: impl FnOnce(&mut Held) -> R) -> Option<R> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(see)
    }

    /// The transaction has ended, and its rows are rolled back: undoes its changes of tables. Does nothing the second
    /// time.
    pub(crate) fn undo(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The session that has the transaction keeps the database open.
        let (Some(held), Some(inner)) = (held, self.inner.upgrade()) else { return };
        held.made.iter().for_each(|set| set.end());
        {
            let mut tables = inner.tables_mut();
            match self.is_used.load(Ordering::Relaxed) {
                true => tables.replaced.extend(held.made),
                false => {
                    tables.ids = held.ids;
                    tables.unused.extend(held.made);
                }
            }
        }
        held.sequences.iter().for_each(|sequence| sequence.undo(&inner));
        for (set, links) in held.closed {
            set.set_links(links);
            set.reopen();
        }
        inner.changes.give_back();
    }

    /// Others see the changes: does what is left, and gives the right back. Tables that were made stay, as workers may
    /// refer to them.
    pub(crate) fn publish(&self, inner: &Inner, act: impl FnOnce()) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(held) = held else { return };
        let _right = Changing(&inner.changes);
        // Those that were created are open.
        let replaced: Vec<_> = held.made.into_iter().filter(|set| set.is_closed()).collect();
        replaced.iter().for_each(|set| set.end());
        inner.tables_mut().replaced.extend(replaced);
        // Those that the transaction did not change after all.
        held.closed.iter().for_each(|(set, _)| set.reopen());
        act();
    }
}

/// A table that a transaction changes.
#[derive(Clone)]
pub(crate) struct Changed {
    /// The table that others see, if there is one.
    pub(crate) original: Option<Arc<TableSet>>,
    /// The table that the transaction sees; `None` if it was dropped.
    pub(crate) current: Option<Arc<TableSet>>,
    /// Whether handles of the original stay valid.
    pub(crate) keeps_handles: bool,
}

/// What a transaction has changed, at one of its savepoints or now.
#[derive(Clone, Default)]
pub(crate) struct View {
    pub(crate) tables: Vec<Changed>,
    pub(crate) sequences: SequenceSteps,
}

/// The changes of a transaction.
pub(crate) struct Changes {
    pub(crate) claim: Arc<Claim>,
    pub(crate) view: View,
    /// What it had changed at each savepoint.
    saved: Vec<(u64, View)>,
}

/// What a table is to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// One that the transaction does not change.
    Other,
    /// Closed to others, or made by the transaction.
    Own,
    /// Changed since by the transaction, or dropped.
    Replaced,
}

impl Changes {
    pub(crate) fn new(claim: Arc<Claim>) -> Changes {
        Changes { claim, view: View::default(), saved: Vec::new() }
    }

    /// The table of this name, if there is one.
    pub(crate) fn find(&self, inner: &Inner, name: &str) -> Option<Arc<TableSet>> {
        let mut own = self.view.tables.iter().filter_map(|changed| changed.current.as_ref());
        own.find(|set| set.definition.name == name).cloned().or_else(|| {
            let set = inner.find(name)?;
            self.of(&set).is_none().then_some(set)
        })
    }

    /// The change of a table that others see.
    fn of(&self, original: &Arc<TableSet>) -> Option<&Changed> {
        let is_it = |changed: &&Changed| changed.original.as_ref().is_some_and(|set| Arc::ptr_eq(set, original));
        self.view.tables.iter().find(is_it)
    }

    /// Whether a table that others see is replaced or dropped.
    pub(crate) fn is_changed(&self, original: &Arc<TableSet>) -> bool {
        self.of(original).is_some()
    }

    /// The tables, in order of creation.
    pub(crate) fn sets(&self, inner: &Inner) -> Vec<Arc<TableSet>> {
        let existing = inner.sets().into_iter().filter_map(|set| match self.of(&set) {
            None => Some(set),
            Some(changed) => changed.current.clone(),
        });
        let created = self.view.tables.iter().filter(|changed| changed.original.is_none());
        existing.chain(created.filter_map(|changed| changed.current.clone())).collect()
    }

    /// What a table is to the transaction.
    pub(crate) fn standing(&self, set: &TableSet) -> Standing {
        let is = |other: &Arc<TableSet>| std::ptr::eq(&**other, set);
        if self.view.tables.iter().filter_map(|changed| changed.current.as_ref()).any(is) {
            return Standing::Own;
        }
        let known = self.claim.with(|held| (held.closed.iter().any(|(set, _)| is(set)), held.made.iter().any(is)));
        match known {
            // It was closed, and the changes were rolled back to a savepoint.
            Some((true, _)) if !self.view.tables.iter().filter_map(|changed| changed.original.as_ref()).any(is) => {
                Standing::Own
            }
            Some((false, false)) | None => Standing::Other,
            Some(_) => Standing::Replaced,
        }
    }

    /// Notes a table that took the place of another, or was created.
    pub(crate) fn replace(&mut self, before: Option<&Arc<TableSet>>, now: Option<Arc<TableSet>>, keeps_handles: bool) {
        let is_it = |changed: &&mut Changed| {
            changed.current.as_ref().zip(before).is_some_and(|(current, before)| Arc::ptr_eq(current, before))
        };
        match self.view.tables.iter_mut().find(is_it) {
            Some(changed) => {
                changed.current = now;
                changed.keeps_handles &= keeps_handles;
            }
            None => self.view.tables.push(Changed { original: before.cloned(), current: now, keeps_handles }),
        }
    }

    /// Notes a savepoint.
    pub(crate) fn save(&mut self, serial: u64) {
        self.saved.push((serial, self.view.clone()));
    }

    /// What the transaction had changed at a savepoint. If that was made before the first change, it is nothing. Later
    /// savepoints end.
    pub(crate) fn saved(&mut self, serial: u64) -> View {
        self.saved.retain(|(saved, _)| *saved <= serial);
        let saved = self.saved.iter().find(|(saved, _)| *saved == serial);
        saved.map_or_else(View::default, |(_, view)| view.clone())
    }
}
