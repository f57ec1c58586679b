//! Changes of tables in an explicit transaction.
//!
//! A change is ordinary operations of the transaction. A copy of converted rows and the entries of an index are
//! inserted, and the commit writes rows of the catalogue. So they are undone like any write. What is not a
//! row is a [`Claim`], which is undone with the transaction, whoever ends it: see [`crate::changing`].

use std::hint::cold_path;
use std::ops::ControlFlow;
use std::sync::Arc;

use seriatim_base::clock::Instant;
use seriatim_base::{Epoch, TableId, thread};
use seriatim_catalog::{ColumnSet, RowRef};
use seriatim_txn::{Cause, Mode, Phase, Reason, RowPtr};

use crate::changing::{Changed, Changes, Claim, Held, LOOK, Standing, View, WAIT_MAX};
use crate::durability::{self, CatalogueRows, OpenHandle};
use crate::error::{Abort, InvalidSchema, Problem, Refusal, SchemaError, TransactError};
use crate::evolution::{Left, Step, TableChange, check_links, check_names, follow_names, linked_with, reshape};
use crate::follower::{Build, Follower};
use crate::link::{Link, Links, links};
use crate::runner::Receipt;
use crate::runtime::DynHandle;
use crate::scan::RawScan;
use crate::sequences::{ReadySteps, Sequence, SequenceSteps};
use crate::table::{Secondary, Shape, TableSet};
use crate::table_ids::TableIds;

use super::TxCore;

impl TxCore {
    /// Whether a table that refuses operations admits those of this transaction.
    #[cold]
    pub(super) fn admits_now(&self, set: &TableSet, reason: Reason) -> Result<(), Abort> {
        let standing = || self.changes.borrow().as_ref().map_or(Standing::Other, |changes| changes.standing(set));
        let reason = match reason {
            Reason::TableGone => reason,
            reason => match standing() {
                Standing::Own => {
                    self.uses_changes();
                    return Ok(());
                }
                Standing::Replaced => Reason::TableGone,
                Standing::Other => match self.open_lease().filter(|_| !set.is_closed()) {
                    Some(lease) if self.is_after_change(set, lease, self.mode.get()) => return Ok(()),
                    _ => reason,
                },
            },
        };
        Err(self.stop(Cause { phase: Phase::Execute, reason }))
    }

    /// Whether the transaction has the right to change tables.
    pub fn changes_tables(&self) -> bool {
        self.explicit.get() && self.changes.borrow().is_some()
    }

    /// The table of this name that the transaction sees, if there is one.
    pub fn find_changed(&self, name: &str) -> Option<Arc<TableSet>> {
        match &*self.changes.borrow() {
            None => self.inner.find(name),
            Some(changes) => changes.find(&self.inner, name),
        }
    }

    /// As [`TxCore::find_changed`], for access by values known at run time.
    pub fn open_changed(&self, name: &str) -> Option<DynHandle> {
        self.find_changed(name).map(DynHandle::new)
    }

    /// The tables that the transaction sees, in order of creation.
    pub fn changed_sets(&self) -> Vec<Arc<TableSet>> {
        match &*self.changes.borrow() {
            None => self.inner.sets(),
            Some(changes) => changes.sets(&self.inner),
        }
    }

    /// The tables that only the transaction uses.
    pub(super) fn made(&self) -> Vec<Arc<TableSet>> {
        let made = self.changes.borrow().as_ref().and_then(|changes| changes.claim.with(|held| held.made.clone()));
        made.unwrap_or_default()
    }

    /// The name of a table or index that the transaction made.
    pub(super) fn describe_changed(&self, id: TableId) -> Option<String> {
        self.made().iter().find_map(|set| {
            let at = set.physical().position(|table| table.id == id)?;
            Some(set.name_of(at))
        })
    }

    /// The error of an operation that was part of a change.
    fn failed_change(&self, abort: &Abort) -> SchemaError {
        SchemaError::Transact(Box::new(self.error_of(abort)))
    }

    /// Whether the transaction can go on. Counts no operation.
    fn goes_on(&self) -> Result<(), SchemaError> {
        let cause = self.stopped.get().or_else(|| self.is_over().then(|| self.deadline.cause()));
        cause.map_or(Ok(()), |cause| Err(self.failed_change(&self.stop(cause))))
    }

    /// Takes the right to change tables, until the transaction ends.
    ///
    /// # Errors
    /// It is no explicit transaction that may write, or has stopped. Others change tables for longer than 10 s.
    pub(crate) fn begin_changes(&self, open: &Arc<OpenHandle>) -> Result<(), SchemaError> {
        let _call = self.call().map_err(|abort| self.failed_change(&abort))?;
        self.goes_on()?;
        if self.changes.borrow().is_some() {
            return Ok(());
        }
        if !self.explicit.get() || !self.is_open() || self.mode.get() != Mode::ReadWrite {
            let problem = "tables are changed by `Database::migration`, or in a transaction of `Session::begin`";
            let (table, problem) = (String::new(), problem.to_owned());
            return Err(SchemaError::Invalid(InvalidSchema::Invalid { table, problem }));
        }
        let claim = Claim::new(&self.inner, || self.goes_on())?;
        if let Some(persistence) = &self.inner.persistence
            && let Err(error) = durability::inherit_catalogue(&self.inner, open, persistence)
        {
            claim.undo();
            return Err(error);
        }
        if let Some(parking) = &*self.parking.borrow() {
            parking.claim(Arc::clone(&claim));
        }
        self.is_untidy.set(true);
        *self.changes.borrow_mut() = Some(Box::new(Changes::new(claim)));
        Ok(())
    }

    /// Makes changes, all of them or none. They are undone with the transaction. Returns the tables that they changed
    /// or created.
    ///
    /// # Errors
    /// A change that makes no sense, or that rows contradict. [`SchemaError::Busy`] if a transaction stays open that
    /// may use a table. A conflict, and whatever else stops the transaction.
    pub(crate) fn change_tables(&self, changes: Vec<TableChange>) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        let _call = self.call().map_err(|abort| self.failed_change(&abort))?;
        self.goes_on()?;
        let (sets, asked) = (self.changed_sets(), changes.len());
        let changes = follow_names(&sets, changes);
        check_names(&sets, &changes)?;
        check_links(&sets, &changes)?;
        let (position, before) = (self.position(), self.with_changes(|changes| changes.view.clone()));
        let made = self.make_changes(&sets, changes, asked);
        if made.is_err() {
            self.set_view(before);
            if self.stopped.get().is_none() {
                self.rollback_writes(position).map_err(|abort| self.failed_change(&abort))?;
            }
        }
        made
    }

    fn with_changes<R>(&self, act: impl FnOnce(&mut Changes) -> R) -> R {
        act(self.changes.borrow_mut().as_mut().expect("`begin_changes` came first"))
    }

    /// Calls `see` with what the transaction has changed, if it may change tables.
    pub(crate) fn with_view<R>(&self, see: impl FnOnce(&View) -> R) -> Option<R> {
        self.changes.borrow().as_ref().map(|changes| see(&changes.view))
    }

    /// After writes were undone: the changes are those of a savepoint again.
    pub(super) fn restore_changes(&self, serial: u64) {
        let saved = self.changes.borrow_mut().as_mut().map(|changes| changes.saved(serial));
        if let Some(view) = saved {
            self.set_view(view);
        }
    }

    /// The changes are those of before again.
    fn set_view(&self, view: View) {
        self.with_changes(|changes| {
            changes.view = view;
            let all = |held: &mut Held| held.sequences.clone();
            let sequences = changes.claim.with(all).unwrap_or_default();
            sequences.iter().for_each(|sequence| changes.view.sequences.settle(&self.inner, sequence));
        });
        self.forget_checks(|set| self.with_changes(|changes| changes.standing(set)) == Standing::Replaced);
        self.relink();
    }

    /// Leads the links of all tables that only the transaction uses to those that it sees.
    fn relink(&self) {
        let sets = self.changed_sets();
        let all: Vec<_> = sets.iter().map(|set| (Arc::clone(set), set.shape())).collect();
        for (set, links) in sets.iter().zip(links(&all, |_, _| false)) {
            if self.with_changes(|changes| changes.standing(set)) == Standing::Own {
                set.set_links(Arc::new(links));
            }
        }
    }

    /// Makes changes of these tables. Returns those that were asked for, which are the first ones.
    fn make_changes(
        &self,
        sets: &[Arc<TableSet>],
        changes: Vec<TableChange>,
        asked: usize,
    ) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        // By the names of before: tables may swap theirs.
        let find = |name: &str| self.find_changed(name).ok_or_else(|| SchemaError::Unknown(name.to_owned()));
        let targets = changes.iter().map(|change| match change {
            TableChange::Create(_) => Ok(None),
            TableChange::Evolve(evolution) => find(&evolution.before().name).map(Some),
            TableChange::Truncate(name) | TableChange::Drop(name) => find(name).map(Some),
            _ => Ok(None),
        });
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        targets.iter().flatten().try_for_each(|set| self.lock_table(set))?;
        let before: Vec<_> = targets.iter().flatten().map(|set| set.shape().definition).collect();
        let after = changes.iter().filter_map(|change| match change {
            TableChange::Create(definition) => Some(definition),
            TableChange::Evolve(evolution) => Some(evolution.after()),
            _ => None,
        });
        let linked = linked_with(sets, before.iter().map(|definition| &**definition).chain(after));
        linked.iter().try_for_each(|set| self.lock_table(set))?;
        if let Some(set) = targets.iter().flatten().find(|set| self.has_deferred(set)) {
            let says = "checks of its constraints are put off until the commit: have them made first";
            return Err(Problem::new(Refusal::Deferred, says).of(&set.definition.name));
        }
        let new = changes.iter().filter_map(|change| match change {
            TableChange::Evolve(evolution) => Some((
                evolution.after().name.clone(),
                evolution.new_references().map(|reference| reference.name.clone()).collect::<Vec<_>>(),
            )),
            _ => None,
        });
        let new: Vec<_> = new.filter(|(_, references)| !references.is_empty()).collect();
        let mut made = Vec::new();
        for (at, (change, before)) in changes.into_iter().zip(targets).enumerate() {
            let now = self.make_change(change, before.as_ref())?;
            made.extend(now.filter(|_| at < asked));
        }
        self.relink();
        for (table, references) in new {
            let Some(set) = self.find_changed(&table) else { continue };
            let own = set.links.own.iter().filter(|link| references.iter().any(|name| *name == link.name));
            own.into_iter().try_for_each(|link| self.prove(&set, link))?;
        }
        Ok(made)
    }

    /// Makes one change. Returns the table that the transaction sees afterwards.
    fn make_change(
        &self,
        change: TableChange,
        before: Option<&Arc<TableSet>>,
    ) -> Result<Option<Arc<TableSet>>, SchemaError> {
        let inner = &self.inner;
        if let TableChange::Own(name, role) = change {
            inner.check_creator(&name, role)?;
            match self.find_changed(&name) {
                Some(created) => created.note_creator(role),
                None => self.change_sequences(|sequences| sequences.note_creator(&name, role))?,
            }
            return Ok(None);
        }
        let mut keeps = true;
        let now = match (change, before) {
            (TableChange::Create(definition), _) => {
                let next = inner.tables_mut().next_position();
                let created = self.with_changes(|changes| {
                    changes.view.tables.iter().filter(|changed| changed.original.is_none()).count() as u64
                });
                let position = next + created;
                self.change_sequences(|sequences| sequences.create_owned(inner, &definition, position))?;
                Some(self.with_ids(|ids| inner.make_table(definition, ids, position))?)
            }
            (TableChange::Truncate(_), Some(set)) => {
                let definition = set.shape().definition;
                Some(self.with_ids(|ids| inner.make_table((*definition).clone(), ids, set.position))?)
            }
            (TableChange::Evolve(evolution), Some(set)) => {
                keeps = evolution.keeps_handles();
                self.change_sequences(|sequences| sequences.follow_column(inner, &evolution, set.position, true))?;
                let (shape, builds) = self.with_ids(|ids| reshape(inner, set, evolution, ids))?;
                let now = Arc::new(TableSet::of(inner, shape, set.position));
                self.note_made(&now);
                builds.into_iter().try_for_each(|build| self.build(set, build))?;
                Some(now)
            }
            (TableChange::Drop(_), Some(set)) => {
                self.change_sequences(|sequences| {
                    sequences.drop_owned(inner, set.position);
                    Ok(())
                })?;
                None
            }
            (TableChange::CreateSequence(definition), _) => {
                self.change_sequences(|sequences| sequences.create(inner, definition, None))?;
                return Ok(None);
            }
            (TableChange::AlterSequence(name, changes), _) => {
                self.change_sequences(|sequences| sequences.alter(inner, &name, &changes, true))?;
                return Ok(None);
            }
            (TableChange::DropSequence(name), _) => {
                let sets = self.changed_sets();
                self.change_sequences(|sequences| sequences.drop(inner, &name, &sets))?;
                return Ok(None);
            }
            _ => return Ok(None),
        };
        if let Some(now) = &now {
            self.with_changes(|changes| changes.view.sequences.bind_identity(inner, now));
            self.note_made(now);
            if let Some(creator) = before.and_then(|before| before.creator.get()) {
                now.note_creator(*creator);
            }
        }
        self.with_changes(|changes| changes.replace(before, now.clone(), keeps));
        Ok(now)
    }

    /// Changes sequences. The end of the transaction undoes what only it uses.
    fn change_sequences(
        &self,
        change: impl FnOnce(&mut SequenceSteps) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        self.with_changes(|changes| {
            let changed = change(&mut changes.view.sequences);
            changes.claim.with(|held| {
                for sequence in changes.view.sequences.all() {
                    if !held.sequences.iter().any(|known| Arc::ptr_eq(known, sequence)) {
                        held.sequences.push(Arc::clone(sequence));
                    }
                }
            });
            changed
        })
    }

    /// The sequence of this name, as the transaction sees it.
    ///
    /// # Errors
    /// There is none.
    pub fn find_sequence(&self, name: &str) -> Result<Arc<Sequence>, SchemaError> {
        let found = self.with_view(|view| view.sequences.find(&self.inner, name));
        found.unwrap_or_else(|| self.inner.sequence(name))
    }

    fn with_ids<R>(&self, make: impl FnOnce(&mut TableIds) -> Result<R, SchemaError>) -> Result<R, SchemaError> {
        // Whoever has the right to change tables is the only one to take ids.
        let mut ids = self.inner.tables_mut().ids.clone();
        let made = make(&mut ids);
        self.inner.tables_mut().ids = ids;
        made
    }

    /// Only this transaction may use the table, and its end ends it.
    fn note_made(&self, set: &Arc<TableSet>) {
        set.close();
        self.with_changes(|changes| {
            changes.claim.with(|held| {
                if !held.made.iter().any(|made| Arc::ptr_eq(made, set)) {
                    held.made.push(Arc::clone(set));
                }
            })
        });
    }

    /// Closes a table to others, and waits until those have ended who may use it.
    ///
    /// # Errors
    /// They do not end, or the transaction stops meanwhile. The table is open then.
    fn lock_table(&self, set: &Arc<TableSet>) -> Result<(), SchemaError> {
        if self.with_changes(|changes| changes.standing(set)) == Standing::Own {
            return Ok(());
        }
        self.admits(set).map_err(|abort| self.failed_change(&abort))?;
        set.close();
        let links = set.shape().links;
        self.with_changes(|changes| changes.claim.with(|held| held.closed.push((Arc::clone(set), links))));
        let locked = self.wait_for_others(set);
        if locked.is_err() {
            set.reopen();
            self.with_changes(|changes| changes.claim.with(|held| held.closed.pop()));
        }
        locked
    }

    fn wait_for_others(&self, set: &TableSet) -> Result<(), SchemaError> {
        let (pool, lease) = (&self.inner.pool, self.open_lease());
        let began = Instant::now();
        let mut open = pool.open_now(lease);
        loop {
            open.retain(|open| !pool.has_ended(*open));
            if open.is_empty() {
                break;
            }
            self.goes_on()?;
            if began.elapsed() >= WAIT_MAX {
                return Err(SchemaError::Busy);
            }
            thread::sleep(LOOK);
        }
        // Deferred additions belong to the transactions that deferred them.
        drop(self.inner.environment.epochs.windows().close());
        if let Some(lease) = lease.filter(|_| !self.is_ordered_at_commit()) {
            self.be_after_others(set, pool.leases(lease))?;
        }
        Ok(())
    }

    /// The place of the transaction may be where its first operation is, before those who used the table. So it must
    /// have done nothing yet, or no other transaction may have been open since it began.
    fn be_after_others(&self, set: &TableSet, now: Vec<(u32, bool)>) -> Result<(), SchemaError> {
        let begun = self.begun.borrow();
        let is_alone = *begun == now && begun.iter().all(|(_, is_open)| !is_open);
        if is_alone || self.has_done_nothing() {
            return Ok(());
        }
        let protocol = self.inner.protocol.info().name;
        let says = format!(
            "under {protocol} a transaction changes tables that exist before it does anything else, unless no other \
             transaction runs meanwhile: begin again, and change them first"
        );
        Err(Problem::new(Refusal::Late, says).of(&set.definition.name))
    }

    /// Whether no operation of the transaction has been counted: it has no place in the serial order yet.
    fn has_done_nothing(&self) -> bool {
        self.operations.get() == 0 && self.left.get() == self.stride.get()
    }

    /// Builds a copy or an index from the rows of a table, as the transaction sees them.
    fn build(&self, set: &Arc<TableSet>, build: Build) -> Result<(), SchemaError> {
        let follower = Follower::new(build, set);
        if let Some(copy) = follower.copy() {
            self.with_changes(|changes| changes.view.sequences.bind_identity(&self.inner, copy));
        }
        self.each_row(set, ColumnSet::ALL, |row| {
            // SAFETY: a row of the table, which the scan shows.
            let key = set.primary.codec.encode_row(unsafe { RowRef::from_raw(row.as_ptr()) }, |key| key.to_buf());
            follower.bring_row(self, set, (key.as_key(), row), true)?;
            Ok(follower.refusal().cloned())
        })
    }

    /// Checks the rows of a table to which a reference was added.
    fn prove(&self, set: &TableSet, link: &Link) -> Result<(), SchemaError> {
        self.each_row(set, link.child.mask, |row| self.contradiction(link, set, row))
    }

    /// Calls `see` for each row of a table until it says why they do not allow its change.
    fn each_row(
        &self,
        set: &TableSet,
        columns: ColumnSet,
        see: impl Fn(RowPtr) -> Result<Option<Problem>, Abort>,
    ) -> Result<(), SchemaError> {
        let mut problem = None;
        let seen = RawScan::of_table(self, set).with_columns(columns).try_for_each(|row| {
            self.uses_changes();
            problem = see(row)?;
            Ok(if problem.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        seen.map(drop).map_err(|abort| self.failed_change(&abort))?;
        let Some(problem) = problem else { return Ok(()) };
        // What was read may never have existed.
        self.validate().map_err(|cause| self.failed_change(&self.stop(cause)))?;
        Err(problem.of(&set.definition.name))
    }

    fn uses_changes(&self) {
        self.with_changes(|changes| changes.claim.uses());
    }
}

/// A commit whose changes of tables are to be published.
pub(crate) struct CommittedChanges {
    pub(crate) receipt: Receipt,
    pub(crate) steps: Vec<Step>,
    pub(crate) sequences: ReadySteps,
    /// What nobody needs when they are.
    pub(crate) left: Vec<Left>,
    pub(crate) claim: Arc<Claim>,
    /// Whether the transaction has not left the gate.
    pub(crate) is_gated: bool,
}

/// The end of a transaction that changes tables.
impl TxCore {
    /// The steps that lead from the tables that others see to those of the transaction.
    fn steps(&self) -> Vec<Step> {
        let step = |changed: &Changed| match (&changed.original, &changed.current) {
            (None, None) => None,
            (None, Some(set)) => Some(Step::Create(Arc::clone(set))),
            (Some(set), None) => Some(Step::Drop(Arc::clone(set))),
            (Some(set), Some(current)) => Some(Step::Reshape {
                set: Arc::clone(set),
                before: set.shape(),
                after: current.shape(),
                follower: Vec::new(),
                new_references: Vec::new(),
                is_new_identity: !changed.keeps_handles || set.had_other_indexes(&current.definition),
            }),
        };
        // Only their links change.
        let linked = |held: &mut Held| {
            let is_linked = |(set, links): &&(Arc<TableSet>, Arc<Links>)| !links.is_empty() || !set.links.is_empty();
            held.closed.iter().filter(is_linked).map(|(set, _)| Arc::clone(set)).collect::<Vec<_>>()
        };
        self.with_changes(|changes| {
            let linked = changes.claim.with(linked).unwrap_or_default().into_iter();
            let linked = linked.filter(|set| !changes.is_changed(set)).map(|set| {
                let shape = set.shape();
                Step::reshape(set, shape.clone(), shape)
            });
            changes.view.tables.iter().filter_map(step).chain(linked).collect()
        })
    }

    /// The tables and indexes that the transaction made, and nobody will see: each once.
    fn superseded(&self, steps: &[Step]) -> (Vec<(Shape, u64)>, Vec<Arc<Secondary>>) {
        let held = self.with_changes(|changes| changes.claim.with(|held| (held.closed.clone(), held.made.clone())));
        let (closed, made) = held.unwrap_or_default();
        // Changes that were rolled back to a savepoint made other tables of rows that stay.
        let kept = closed.iter().map(|(set, _)| set.shape()).chain(steps.iter().flat_map(Step::shapes));
        let kept: Vec<Shape> = kept.collect();
        let (mut tables, mut indexes): (Vec<(Shape, u64)>, Vec<Arc<Secondary>>) = (Vec::new(), Vec::new());
        for set in made {
            let shape = set.shape();
            let is_kept = |other: &Shape| Arc::ptr_eq(&other.primary, &shape.primary);
            if !kept.iter().chain(tables.iter().map(|(shape, _)| shape)).any(is_kept) {
                tables.push((shape.clone(), set.position));
            }
            for index in shape.indexes.iter() {
                let has = |indexes: &[Arc<Secondary>]| indexes.iter().any(|other| Arc::ptr_eq(other, index));
                if !kept.iter().any(|shape| has(&shape.indexes)) && !has(&indexes) {
                    indexes.push(Arc::clone(index));
                }
            }
        }
        (tables, indexes)
    }

    /// Writes the changes into the catalogue, to commit with the transaction. Returns how to make them, and what nobody
    /// needs then.
    ///
    /// # Errors
    /// A conflict, or whatever stops the transaction.
    fn record_changes(&self) -> Result<(Vec<Step>, ReadySteps, Vec<Left>), TransactError> {
        let steps = self.steps();
        let sequences = self.with_changes(|changes| changes.view.sequences.begin(&self.inner));
        let sequences = sequences.map_err(|error| TransactError::User(Arc::new(error)))?;
        let (tables, indexes) = self.superseded(&steps);
        if let Some(catalogue) = self.inner.catalogue() {
            let rows = CatalogueRows::of(self, &catalogue);
            let recorded = steps.iter().try_for_each(|step| step.record(&rows)).and_then(|()| sequences.record(&rows));
            // The log has entries of rows in them.
            let void = || tables.iter().try_for_each(|(shape, position)| rows.add_shape(shape, *position, true));
            recorded.and_then(|()| void()).map_err(|abort| self.error_of(&abort))?;
        }
        let left = tables
            .into_iter()
            .map(|(shape, position)| Left::Table(Box::new(TableSet::of(&self.inner, shape, position))));
        Ok((steps, sequences, left.chain(indexes.into_iter().map(Left::Index)).collect()))
    }

    /// Commits the transaction with its changes, which the caller publishes.
    ///
    /// # Errors
    /// A conflict, or whatever stops the transaction.
    pub(crate) fn commit_changes(&mut self) -> Result<CommittedChanges, TransactError> {
        let tx: &TxCore = self;
        tx.renew();
        let _call = tx.call().map_err(|abort| tx.error_of(&abort))?;
        let (steps, sequences, left) = tx.record_changes()?;
        // From here on nobody else undoes the changes. Chains of pieces stay out until they are published.
        let (claim, is_gated) = (tx.with_changes(|changes| Arc::clone(&changes.claim)), tx.gated.replace(false));
        if let Some(parking) = &*tx.parking.borrow() {
            let _ = parking.take_claim();
        }
        match tx.end_or_abandon() {
            Ok(receipt) => {
                // The catalogue knows them.
                claim.uses();
                Ok(CommittedChanges { receipt, steps, sequences, left, claim, is_gated })
            }
            Err(error) => {
                claim.undo();
                tx.gated.set(is_gated);
                tx.leave_gate();
                Err(error)
            }
        }
    }

    /// The changes were published, or undone.
    pub(crate) fn end_changes(&self) {
        self.changes.take();
    }

    /// When the epoch of a change is durable. Returns it if it is not, but may become so.
    ///
    /// # Errors
    /// The log has stopped.
    pub(crate) fn wait_for_change(&self, epoch: Epoch) -> Result<Option<Epoch>, ()> {
        let Some(persistence) = &self.inner.persistence else { return Ok(None) };
        match persistence.wait_for(epoch) {
            Ok(()) => Ok(None),
            Err(_) if persistence.log().durable().stop_reason().is_some() => Err(()),
            Err(_) => {
                cold_path();
                Ok(Some(epoch))
            }
        }
    }
}
