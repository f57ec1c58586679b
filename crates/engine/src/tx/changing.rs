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
use seriatim_catalog::{ColumnSet, KeyBuf, RowRef, TableDef};
use seriatim_txn::{Cause, Mode, Phase, Reason};

use crate::changing::{Changed, Changes, Claim, LOOK, Standing, WAIT_MAX};
use crate::durability::{self, CatalogueRows, OpenHandle};
use crate::error::{Abort, AbortKind, InvalidSchema, SchemaError, TransactError};
use crate::evolution::{Left, Step, TableChange, check_names, reshape};
use crate::follower::{Build, violation};
use crate::runner::Receipt;
use crate::runtime::{DynHandle, DynRow};
use crate::scan::RawScan;
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

    /// The name of a table or index that the transaction made.
    pub(super) fn describe_changed(&self, id: TableId) -> Option<String> {
        let changes = self.changes.borrow();
        let mut current = changes.as_ref()?.view.iter().filter_map(|changed| changed.current.as_ref());
        current.find_map(|set| {
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
        check_names(&self.changed_sets(), &changes)?;
        let (position, before) = (self.position(), self.with_changes(|changes| changes.view.clone()));
        let made = self.make_changes(changes);
        if made.is_err() {
            self.with_changes(|changes| changes.view = before);
            if self.stopped.get().is_none() {
                self.rollback_writes(position).map_err(|abort| self.failed_change(&abort))?;
            }
        }
        made
    }

    fn with_changes<R>(&self, act: impl FnOnce(&mut Changes) -> R) -> R {
        act(self.changes.borrow_mut().as_mut().expect("`begin_changes` came first"))
    }

    fn make_changes(&self, changes: Vec<TableChange>) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        // By the names of before: tables may swap theirs.
        let find = |name: &str| self.find_changed(name).ok_or_else(|| SchemaError::Unknown(name.to_owned()));
        let targets = changes.iter().map(|change| match change {
            TableChange::Create(_) => Ok(None),
            TableChange::Evolve(evolution) => find(&evolution.before().name).map(Some),
            TableChange::Truncate(name) | TableChange::Drop(name) => find(name).map(Some),
            TableChange::CreateSequence(sequence) => Err(refused_sequence(&sequence.name)),
            TableChange::AlterSequence(name, _) | TableChange::DropSequence(name) => Err(refused_sequence(name)),
            // The table is created by a change before it.
            TableChange::Own(..) => Ok(None),
        });
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        targets.iter().flatten().try_for_each(|set| refuse_tied(&set.definition, !set.links.is_empty()))?;
        changes.iter().try_for_each(|change| match change {
            TableChange::Create(definition) => refuse_tied(definition, false),
            TableChange::Evolve(evolution) => refuse_tied(evolution.after(), false),
            _ => Ok(()),
        })?;
        targets.iter().flatten().try_for_each(|set| self.lock_table(set))?;
        let mut made = Vec::new();
        for (change, before) in changes.into_iter().zip(targets) {
            let now = self.make_change(change, before.as_ref())?;
            made.extend(now);
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
            let created = self.find_changed(&name).ok_or(SchemaError::Unknown(name))?;
            created.note_creator(role);
            return Ok(None);
        }
        let mut keeps = true;
        let now = match (change, before) {
            (TableChange::Create(definition), _) => {
                let next = inner.tables_mut().next_position();
                let created = self.with_changes(|changes| {
                    changes.view.iter().filter(|changed| changed.original.is_none()).count() as u64
                });
                Some(self.with_ids(|ids| inner.make_table(definition, ids, next + created))?)
            }
            (TableChange::Truncate(_), Some(set)) => {
                let definition = set.shape().definition;
                Some(self.with_ids(|ids| inner.make_table((*definition).clone(), ids, set.position))?)
            }
            (TableChange::Evolve(evolution), Some(set)) => {
                keeps = evolution.keeps_handles();
                let (shape, builds) = self.with_ids(|ids| reshape(inner, set, evolution, ids))?;
                let now = Arc::new(TableSet::of(inner, shape, set.position));
                self.note_made(&now);
                builds.iter().try_for_each(|build| self.build(set, build))?;
                Some(now)
            }
            _ => None,
        };
        if let Some(now) = &now {
            self.note_made(now);
            if let Some(creator) = before.and_then(|before| before.creator.get()) {
                now.note_creator(*creator);
            }
        }
        self.with_changes(|changes| changes.replace(before, now.clone(), keeps));
        Ok(now)
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
        self.with_changes(|changes| changes.claim.with(|held| held.closed.push(Arc::clone(set))));
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
        let problem = format!(
            "under {protocol} a transaction changes tables that exist before it does anything else, unless no other \
             transaction runs meanwhile: begin again, and change them first"
        );
        Err(SchemaError::Refused { table: set.definition.name.to_string(), problem })
    }

    /// Whether no operation of the transaction has been counted: it has no place in the serial order yet.
    fn has_done_nothing(&self) -> bool {
        self.operations.get() == 0 && self.left.get() == self.stride.get()
    }

    /// Builds a copy or an index from the rows of a table, as the transaction sees them.
    fn build(&self, set: &TableSet, build: &Build) -> Result<(), SchemaError> {
        let table = set.definition.name.to_string();
        let mut refused = None;
        let built = match build {
            Build::Copy { set: copy, evolution } => RawScan::of_table(self, set).try_for_each(|row| {
                self.uses_changes();
                match evolution.convert(&DynRow::new(set, row).values()) {
                    Ok(values) => self.insert_values(copy, &values).map(|()| ControlFlow::Continue(())),
                    Err(problem) => {
                        refused = Some(problem);
                        Ok(ControlFlow::Break(()))
                    }
                }
            }),
            Build::Index(index) => RawScan::of_table(self, set).try_for_each(|row| {
                self.uses_changes();
                let (entry, primary) = keys_of(set, index, row.as_ptr());
                let linked = self.link_entry(&index.table, entry.as_key(), primary.as_key());
                linked.map_err(|abort| match abort.kind() {
                    AbortKind::Duplicate => {
                        refused = Some(format!("two rows have {}", index.table.codec.describe(entry.as_key())));
                        abort
                    }
                    _ => abort,
                })?;
                Ok(ControlFlow::Continue(()))
            }),
            Build::Checks(checks, definition) => RawScan::of_table(self, set).try_for_each(|row| {
                self.uses_changes();
                // SAFETY: a row of the table, which the scan shows.
                let row = unsafe { RowRef::from_raw(row.as_ptr()) };
                refused = checks.broken_by(definition, row, ColumnSet::ALL).map(violation);
                Ok(if refused.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            }),
        };
        match (built, refused) {
            (Ok(_), None) => Ok(()),
            (Err(_), Some(problem)) if self.stopped.get().is_none() => Err(SchemaError::Refused { table, problem }),
            (Err(abort), _) => Err(match abort.kind() {
                AbortKind::Duplicate | AbortKind::Check => {
                    SchemaError::Refused { table, problem: TransactError::from(abort).to_string() }
                }
                _ => self.failed_change(&abort),
            }),
            (Ok(_), Some(problem)) => {
                // What was read may never have existed.
                self.validate().map_err(|cause| self.failed_change(&self.stop(cause)))?;
                Err(SchemaError::Refused { table, problem })
            }
        }
    }

    fn uses_changes(&self) {
        self.with_changes(|changes| changes.claim.uses());
    }
}

/// A transaction does not change sequences: their numbers are not those of transactions.
fn refused_sequence(name: &str) -> SchemaError {
    let problem = "is not changed in a transaction: `Database::migration` changes it".to_owned();
    SchemaError::Invalid(InvalidSchema::Sequence { sequence: name.to_owned(), problem })
}

/// A link is between tables that all transactions see, and a sequence is of a table that they see.
fn refuse_tied(table: &TableDef, is_linked: bool) -> Result<(), SchemaError> {
    let has = if is_linked || !table.references.is_empty() {
        "it has foreign keys, or others refer to it"
    } else if table.identity_column().is_some() {
        "it has an identity column"
    } else {
        return Ok(());
    };
    let problem = format!("{has}: `Database::migration` changes such tables, and `Database::create` creates them");
    Err(SchemaError::Refused { table: table.name.to_string(), problem })
}

/// The keys of the entry and of the row.
fn keys_of(set: &TableSet, index: &Secondary, row: *mut u8) -> (KeyBuf, KeyBuf) {
    // SAFETY: a row of the table, which the scan shows.
    let row = unsafe { RowRef::from_raw(row) };
    let key = |codec: &seriatim_catalog::KeyCodec| codec.encode_row(row, |key| key.to_buf());
    (key(&index.table.codec), key(&set.primary.codec))
}

/// A commit whose changes of tables are to be published.
pub(crate) struct CommittedChanges {
    pub(crate) receipt: Receipt,
    pub(crate) steps: Vec<Step>,
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
        self.with_changes(|changes| changes.view.iter().filter_map(step).collect())
    }

    /// The tables and indexes that the transaction made, and nobody will see: each once.
    fn superseded(&self, steps: &[Step]) -> (Vec<(Shape, u64)>, Vec<Arc<Secondary>>) {
        let held = self.with_changes(|changes| changes.claim.with(|held| (held.closed.clone(), held.made.clone())));
        let (closed, made) = held.unwrap_or_default();
        // Changes that were rolled back to a savepoint made other tables of rows that stay.
        let kept = closed.iter().map(|set| set.shape()).chain(steps.iter().flat_map(Step::shapes));
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
    fn record_changes(&self) -> Result<(Vec<Step>, Vec<Left>), TransactError> {
        let steps = self.steps();
        let (tables, indexes) = self.superseded(&steps);
        if let Some(catalogue) = self.inner.catalogue() {
            let rows = CatalogueRows::of(self, &catalogue);
            let recorded = steps.iter().try_for_each(|step| step.record(&rows));
            // The log has entries of rows in them.
            let void = || tables.iter().try_for_each(|(shape, position)| rows.add_shape(shape, *position, true));
            recorded.and_then(|()| void()).map_err(|abort| self.error_of(&abort))?;
        }
        let left = tables
            .into_iter()
            .map(|(shape, position)| Left::Table(Box::new(TableSet::of(&self.inner, shape, position))));
        Ok((steps, left.chain(indexes.into_iter().map(Left::Index)).collect()))
    }

    /// Commits the transaction with its changes, which the caller publishes.
    ///
    /// # Errors
    /// A conflict, or whatever stops the transaction.
    pub(crate) fn commit_changes(&mut self) -> Result<CommittedChanges, TransactError> {
        let tx: &TxCore = self;
        tx.renew();
        let _call = tx.call().map_err(|abort| tx.error_of(&abort))?;
        let (steps, left) = tx.record_changes()?;
        // From here on nobody else undoes the changes. Chains of pieces stay out until they are published.
        let (claim, is_gated) = (tx.with_changes(|changes| Arc::clone(&changes.claim)), tx.gated.replace(false));
        if let Some(parking) = &*tx.parking.borrow() {
            let _ = parking.take_claim();
        }
        match tx.end_or_abandon() {
            Ok(receipt) => {
                // The catalogue knows them.
                claim.uses();
                Ok(CommittedChanges { receipt, steps, left, claim, is_gated })
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
