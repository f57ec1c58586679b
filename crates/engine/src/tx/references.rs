//! Foreign keys are enforced here, and unique constraints that can be deferred.
//!
//! A write of a row notes what its constraints ask for. That is a check that a row exists, or that none refers to
//! another or agrees with it. Or it is an action on rows that refer to it. When the outermost operation has written,
//! it does what was noted, one after the other. Actions are ordinary operations, which note more. So cascades nest as
//! deep as data does, and no function calls itself. Checks come last, on what is there by then; those of deferred
//! constraints at the end of the transaction. A check needs no undo: it looks at what is there when it is made,
//! whatever was rolled back since.
//!
//! A check reads the existence of a row, or that there is none in a range, as any operation of the transaction would.
//! Serializability does the rest: whoever deletes the row, or inserts one that refers to it, conflicts with that. So
//! does whoever inserts another row with the values of a unique constraint: the check has read their range of the
//! index.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hint::cold_path;
use std::ops::ControlFlow;
use std::sync::Arc;

use seriatim_catalog::{
    Checked, ColumnSet, Found, Key, KeyBuf, OnChange, Organization, RowRef, Value, ValueError, watch,
};
use seriatim_store::Direction;
use seriatim_txn::{Cause, Phase, Reason, RowPtr};

use super::{Position, TxCore};
use crate::error::{Abort, AbortKind, Problem, Refusal, TransactError};
use crate::follower::By;
use crate::link::{Distinct, End, Link};
use crate::operations::read;
use crate::scan::{RawScan, Target};
use crate::table::TableSet;

/// What is left to do of the references of a transaction.
#[derive(Default)]
pub(crate) struct Pending {
    /// An operation is going to do what is noted.
    is_open: Cell<bool>,
    /// Something was rolled back since, and perhaps what is noted with it.
    is_rolled_back: Cell<bool>,
    actions: RefCell<VecDeque<Action>>,
    checks: RefCell<Vec<Check>>,
    /// Those that the end of the transaction makes.
    deferred: RefCell<Vec<Check>>,
    /// Whether the transaction has asked for deferred checks of all deferrable constraints, or for none.
    is_deferred: Cell<Option<bool>>,
    /// The same of constraints of these names, asked later.
    named: RefCell<Vec<(String, bool)>>,
    /// What the check at the end has found.
    violation: RefCell<Option<TransactError>>,
}

/// A referenced row was deleted, or has another key.
struct Action {
    link: Arc<Link>,
    /// The values of the key.
    was: Vec<Value>,
    /// Those that it has now, with NULL; `None` if the row was deleted.
    is: Option<Vec<Value>>,
}

/// What is to be looked at.
enum Check {
    Reference(ReferenceCheck),
    /// That one row at most has these values.
    Distinct(Arc<Distinct>, Vec<Value>),
}

impl Check {
    fn constraint(&self) -> &str {
        match self {
            Check::Reference(check) => &check.link.name,
            Check::Distinct(distinct, _) => &distinct.name,
        }
    }

    /// Its tables; `None` for one that has gone.
    fn tables(&self) -> impl Iterator<Item = Option<Arc<TableSet>>> {
        let (one, other) = match self {
            Check::Reference(check) => (check.link.child.set(), Some(check.link.parent.set())),
            Check::Distinct(distinct, _) => (distinct.set(), None),
        };
        std::iter::once(one).chain(other)
    }
}

/// That a row exists, or that none refers to it.
struct ReferenceCheck {
    link: Arc<Link>,
    values: Vec<Value>,
    /// The key of the row that refers to these values. `None`: a referenced row with them has gone.
    child: Option<KeyBuf>,
}

impl Pending {
    pub(super) fn clear(&self) {
        self.close();
        *self.deferred.borrow_mut() = Vec::new();
        self.is_deferred.set(None);
        *self.named.borrow_mut() = Vec::new();
        self.violation.take();
    }

    /// The operation has done what was noted, or does not.
    fn close(&self) {
        self.is_open.set(false);
        self.is_rolled_back.set(false);
        self.actions.borrow_mut().clear();
        self.checks.borrow_mut().clear();
    }

    /// Whether checks of a constraint are put off now.
    fn defers(&self, name: &str, checked: Checked) -> bool {
        let named = || self.named.borrow().iter().rev().find(|(own, _)| own == name).map(|(_, is)| *is);
        checked != Checked::Immediately && named().or(self.is_deferred.get()).unwrap_or(checked == Checked::Deferred)
    }

    /// Writes were rolled back.
    pub(super) fn rolled_back(&self) {
        self.is_rolled_back.set(self.is_open.get());
    }
}

/// Undoes a statement that panics: the body may catch the panic and commit. Forgotten once it has returned.
struct UndoStatement<'t> {
    tx: &'t TxCore,
    position: Position,
}

impl Drop for UndoStatement<'_> {
    #[cold]
    fn drop(&mut self) {
        self.tx.pending.close();
        if self.tx.stopped.get().is_none() {
            // An error stops the transaction.
            let _ = self.tx.rollback_writes(self.position);
        }
    }
}

/// Why a row does not allow a reference.
fn contradiction(link: &Link, of: &TableSet, to: &TableSet, values: &[Value]) -> Problem {
    let (key, name) = (link.child.describe(of, values), &link.name);
    let (of, to) = (&of.definition.name, &to.definition.name);
    let says = format!("a row of {of} with {key} refers to no row of {to} (reference {name})");
    Problem::new(Refusal::ForeignKey { constraint: name.clone(), referenced: to.to_string() }, says)
}

impl TxCore {
    /// Notes what the references of a table ask for after the write of a row, in a [`TxCore::statement`].
    #[cold]
    pub(crate) fn refer(
        &self,
        set: &TableSet,
        primary: Key<'_>,
        before: Option<RowPtr>,
        after: Option<RowPtr>,
        dirty: ColumnSet,
    ) -> Result<(), Abort> {
        self.ends.set(self.ends.get() | super::ends::LINKED);
        self.is_untidy.set(true);
        let unfit = |error: ValueError| self.abort(error);
        // All before the next operation: rows may lie where it writes.
        watch::unwatched(|| {
            for link in set.links.own.iter().filter(|link| link.child.mask.intersects(dirty)) {
                let [was, is] = [before, after].map(|row| row.and_then(|row| link.child.values(set, row)));
                let Some(values) = is else { continue };
                if was.is_none_or(|was| was != values) {
                    self.note_check(ReferenceCheck { link: Arc::clone(link), values, child: Some(primary.to_buf()) });
                }
            }
            for distinct in set.links.distinct.iter().filter(|distinct| distinct.mask.intersects(dirty)) {
                let [was, is] = [before, after].map(|row| row.and_then(|row| distinct.values_of(set, row)));
                if let Some(values) = is.filter(|is| was.is_none_or(|was| was != *is)) {
                    self.note_distinct(distinct, values);
                }
            }
            for link in set.links.to_it.iter().filter(|link| link.parent.mask.intersects(dirty)) {
                let [was, is] = [before, after].map(|row| row.and_then(|row| link.parent.values(set, row)));
                let Some(was) = was else { continue };
                // While the link is being built, the table may lack the index by which it finds rows.
                let parent = self.end_of(&link.parent)?;
                let key = |values: &Vec<Value>| link.parent.key(&parent, values).map_err(unfit);
                // Values that differ can be one key.
                if let Some(is) = &is
                    && key(is)? == key(&was)?
                {
                    continue;
                }
                let is = after.map(|row| {
                    let row = crate::runtime::DynRow::new(set, row);
                    link.parent.columns.iter().map(|at| row.value(*at)).collect()
                });
                self.pending.actions.borrow_mut().push_back(Action { link: Arc::clone(link), was, is });
            }
            Ok(())
        })
    }

    fn note_check(&self, check: ReferenceCheck) {
        let is_deferred = self.pending.defers(&check.link.name, check.link.checked);
        self.note_for_later(Check::Reference(check), is_deferred);
    }

    /// Notes that no row but one may have these values. While the index is being built, the end of the transaction
    /// looks at that: rows that agree before have always been allowed.
    pub(crate) fn note_distinct(&self, distinct: &Arc<Distinct>, values: Vec<Value>) {
        let is_deferred = distinct.building.is_some() || self.pending.defers(&distinct.name, distinct.checked);
        self.note_for_later(Check::Distinct(Arc::clone(distinct), values), is_deferred);
    }

    fn note_for_later(&self, check: Check, is_deferred: bool) {
        if !is_deferred {
            return self.pending.checks.borrow_mut().push(check);
        }
        self.pending.deferred.borrow_mut().push(check);
        self.ends.set(self.ends.get() | super::ends::CHECKED);
        self.is_untidy.set(true);
    }

    fn check_constraint(&self, check: &Check) -> Result<(), Abort> {
        match check {
            Check::Reference(check) => self.check_reference(check),
            Check::Distinct(distinct, values) => self.check_distinct(distinct, values, By::Write),
        }
    }

    /// Whether one row at most has these values. If the index is being built, rows that agree refuse that only.
    pub(crate) fn check_distinct(&self, distinct: &Distinct, values: &[Value], by: By) -> Result<(), Abort> {
        let Some(set) = distinct.set() else {
            let gone = Cause { phase: Phase::Execute, reason: Reason::TableGone };
            return if distinct.building.is_some() { Ok(()) } else { Err(self.stop(gone)) };
        };
        if distinct.building.as_ref().is_some_and(|refused| refused.get().is_some()) {
            return Ok(());
        }
        let range = distinct.index.table.codec.range_of_values(values).map_err(|error| self.abort(error))?;
        if RawScan::count_entries(self, &set, &distinct.index, &range, 2)? < 2 {
            return Ok(());
        }
        let Some(refused) = &distinct.building else {
            let (table, constraint) = (set.definition.name.to_string(), distinct.name.as_str().into());
            let key = distinct.describe(values);
            let error = TransactError::Duplicate { table, constraint, key };
            return Err(self.about(|| Abort::explained(AbortKind::Duplicate, error)));
        };
        // Rows that were read one after the other may never have existed together.
        self.validate().map_err(|cause| self.stop(cause))?;
        let (says, constraint) = (format!("two rows have {}", distinct.describe(values)), distinct.name.clone());
        let _ = refused.set((Problem::new(Refusal::Duplicate { constraint }, says), by));
        Ok(())
    }

    /// Runs several operations that are one statement, and then what their writes have noted. If it fails, nothing of
    /// it remains.
    ///
    /// # Errors
    /// Those of `act`; a foreign key that is violated.
    pub fn whole_statement<R>(&self, act: impl FnOnce() -> Result<R, Abort>) -> Result<R, Abort> {
        if self.is_in_statement() {
            return act();
        }
        let _call = self.call()?;
        let position = self.position();
        let undo = UndoStatement { tx: self, position };
        let result = self.statement(act);
        std::mem::forget(undo);
        self.keep_or_roll_back(position, result)
    }

    /// Runs an operation, and then what its writes have noted. The caller undoes one that fails.
    ///
    /// # Errors
    /// Those of `act`; a foreign key that is violated.
    pub(crate) fn statement<R>(&self, act: impl FnOnce() -> Result<R, Abort>) -> Result<R, Abort> {
        if self.pending.is_open.replace(true) {
            return act();
        }
        self.is_untidy.set(true);
        let _call = match self.call() {
            Ok(call) => call,
            Err(abort) => {
                self.pending.is_open.set(false);
                return Err(abort);
            }
        };
        let result = act();
        // The operations are not those of the body. Nor are they undone: see `Division::new`.
        let watching = self.watching.replace(false);
        let result = watch::unwatched(|| result.and_then(|result| self.settle().map(|()| result)));
        self.watching.set(watching);
        self.pending.close();
        result
    }

    /// Whether an operation is going to do what its writes note.
    pub(super) fn is_in_statement(&self) -> bool {
        self.pending.is_open.get()
    }

    /// Does what was noted.
    fn settle(&self) -> Result<(), Abort> {
        loop {
            let next = self.pending.actions.borrow_mut().pop_front();
            match next {
                Some(action) => self.act(action)?,
                None => break,
            }
        }
        let checks = self.pending.checks.take();
        checks.iter().try_for_each(|check| self.check_constraint(check))
    }

    fn act(&self, Action { link, was, is }: Action) -> Result<(), Abort> {
        let action = link.action(is.is_none());
        if action == OnChange::NoAction {
            self.note_check(ReferenceCheck { link, values: was, child: None });
            return Ok(());
        }
        if self.pending.is_rolled_back.get() && self.has_parent(&link, &*self.end_of(&link.parent)?, &was)? {
            // It was noted by what was rolled back, or the row is there again.
            return Ok(());
        }
        let child = self.end_of(&link.child)?;
        if action == OnChange::Restrict {
            return match self.has_child(&link, &child, &was)? {
                false => Ok(()),
                true => Err(self.violation(&link, &was, false)),
            };
        }
        let mut keys = Vec::new();
        self.each_child(&link, &child, &was, |row| {
            // SAFETY: a row of this table, readable during this call.
            let row = unsafe { RowRef::from_raw(row.as_ptr()) };
            keys.push(child.primary.codec.encode_row(row, |key| key.to_buf()));
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)?;
        let (columns, at) = (&child.definition.columns, &link.child.columns);
        let values: Vec<Value> = match (action, &is) {
            (OnChange::Cascade, None) => {
                return keys.iter().try_for_each(|key| self.delete_at(&child, key.as_key()).map(drop));
            }
            (OnChange::Cascade, Some(is)) => {
                let present = |value: &Value| match value {
                    Value::Option(None) => Value::NONE,
                    Value::Option(Some(value)) => Value::clone(value),
                    value => value.clone(),
                };
                let fit = |(at, value): (&usize, Value)| match value {
                    Value::Option(None) => columns[*at].nullable.then_some(Value::NONE),
                    value if columns[*at].nullable => Some(value.some()),
                    value => Some(value),
                };
                match at.iter().zip(is.iter().map(present)).map(fit).collect() {
                    Some(values) => values,
                    // NULL, which rows that refer to the key may not have.
                    None if keys.is_empty() => return Ok(()),
                    None => return Err(self.violation(&link, &was, false)),
                }
            }
            (OnChange::SetDefault, _) => {
                let default = |at: &usize| columns[*at].default_value().ok().flatten().unwrap_or(Value::NONE);
                at.iter().map(default).collect()
            }
            _ => at.iter().map(|_| Value::NONE).collect(),
        };
        keys.iter().try_for_each(|key| self.set_values(&child, key.as_key(), at, link.child.mask, &values))?;
        if action == OnChange::SetDefault {
            // The default may be the key that has gone.
            self.note_check(ReferenceCheck { link, values: was, child: None });
        }
        Ok(())
    }

    /// Sets columns of a row, if it is there.
    fn set_values(
        &self,
        set: &TableSet,
        key: Key<'_>,
        at: &[usize],
        mask: ColumnSet,
        values: &[Value],
    ) -> Result<(), Abort> {
        let written = self.update_at(set, key, mask.into(), |mut writer| {
            let (defs, places) = (&set.definition.columns, &set.layout.places);
            let write = |(&at, value): (&usize, &Value)| value.write(&defs[at], &places[at], &mut writer);
            let result = at.iter().zip(values).try_for_each(write);
            (result, writer.dirty())
        })?;
        match written {
            None | Some(Ok(())) => Ok(()),
            Some(Err(ValueError::OutOfMemory(_))) => Err(self.out_of_memory()),
            Some(Err(error)) => Err(self.abort(error)),
        }
    }

    /// A table of a link.
    fn end_of(&self, end: &End) -> Result<Arc<TableSet>, Abort> {
        let gone = || self.stop(Cause { phase: Phase::Execute, reason: Reason::TableGone });
        let set = end.set().ok_or_else(gone)?;
        self.admits(&set)?;
        Ok(set)
    }

    fn check_reference(&self, check: &ReferenceCheck) -> Result<(), Abort> {
        let ReferenceCheck { link, values, child } = check;
        if link.refusal().is_some() {
            return Ok(());
        }
        let parent = self.end_of(&link.parent)?;
        if self.has_parent(link, &parent, values)? {
            return Ok(());
        }
        let children = self.end_of(&link.child)?;
        let is_referred = match child {
            None => self.has_child(link, &children, values)?,
            Some(key) => {
                let row = self.read_row(&children, key.as_key(), link.child.mask)?;
                let now = row.and_then(|row| link.child.values(&children, row));
                // Values that are one key may differ; a float may differ from itself.
                let key = |values: &[Value]| link.parent.key(&parent, values).map_err(|error| self.abort(error));
                now.is_some_and(|now| key(&now) == key(values))
            }
        };
        match is_referred {
            false => Ok(()),
            true if link.is_building() => {
                // Rows that were read one after the other may never have existed together.
                self.validate().map_err(|cause| self.stop(cause))?;
                link.refuse(contradiction(link, &children, &parent, values));
                Ok(())
            }
            true => Err(self.violation(link, values, child.is_some())),
        }
    }

    /// Whether there is a row that can be referred to by these values.
    fn has_parent(&self, link: &Link, parent: &TableSet, values: &[Value]) -> Result<bool, Abort> {
        let key = link.parent.key(parent, values).map_err(|error| self.abort(error))?;
        let row = match link.parent.found {
            Found::Index(at, _) => read(self, &self.index(parent, at)?.table, key.as_key(), ColumnSet::ALL)?,
            _ => self.read_row(parent, key.as_key(), ColumnSet::EMPTY)?,
        };
        Ok(row.is_some())
    }

    fn has_child(&self, link: &Link, child: &TableSet, values: &[Value]) -> Result<bool, Abort> {
        let found = self.each_child(link, child, values, |_| Ok(ControlFlow::Break(())))?;
        Ok(found.is_break())
    }

    /// Calls `see` for each row that refers to these values.
    fn each_child(
        &self,
        link: &Link,
        child: &TableSet,
        values: &[Value],
        mut see: impl FnMut(RowPtr) -> Result<ControlFlow<()>, Abort>,
    ) -> Result<ControlFlow<()>, Abort> {
        let unfit = |error: ValueError| self.abort(error);
        let end = &link.child;
        match &end.found {
            Found::Key(_) if child.primary.organization == Organization::Hash => {
                let key = end.key(child, values).map_err(unfit)?;
                match self.read_row(child, key.as_key(), ColumnSet::EMPTY)? {
                    None => Ok(ControlFlow::Continue(())),
                    Some(row) => see(row),
                }
            }
            Found::Key(_) => {
                let range = end.range(child, values).map_err(unfit)?;
                let bounds = (&range.low, &range.high);
                let scan = RawScan::new(self, child, Target::Rows, bounds, Direction::Forward);
                scan.with_columns(ColumnSet::EMPTY).try_for_each(see)
            }
            Found::Index(at, _) => {
                self.index(child, *at)?;
                let scan = RawScan::of_values(self, child, *at, &end.index_values(child, values), Direction::Forward)
                    .map_err(unfit)?;
                scan.with_columns(ColumnSet::EMPTY).try_for_each(see)
            }
            Found::Scan => {
                cold_path();
                let parent = self.end_of(&link.parent)?;
                let key = |values: &[Value]| link.parent.key(&parent, values).map_err(unfit);
                let wanted = key(values)?;
                RawScan::of_table(self, child).with_columns(end.mask).try_for_each(|row| match end.values(child, row) {
                    Some(found) if key(&found)? == wanted => see(row),
                    _ => Ok(ControlFlow::Continue(())),
                })
            }
        }
    }

    /// The abort for a reference to no row, or a row that is referred to.
    #[cold]
    fn violation(&self, link: &Link, values: &[Value], is_missing: bool) -> Abort {
        let name = |end: &End| end.set().map_or_else(Box::default, |set| Box::from(&*set.definition.name));
        self.about(|| {
            let end = if is_missing { &link.child } else { &link.parent };
            let key = end.set().map_or_else(Box::default, |set| end.describe(&set, values).into());
            let (constraint, table, referenced) = (link.name.as_str().into(), name(&link.child), name(&link.parent));
            let error = TransactError::ForeignKey { constraint, table, referenced, key, is_missing };
            Abort::explained(AbortKind::ForeignKey, error)
        })
    }

    /// Why a row of a table to which a reference was added does not allow it, if so.
    pub(crate) fn contradiction(&self, link: &Link, set: &TableSet, row: RowPtr) -> Result<Option<Problem>, Abort> {
        let Some(values) = link.child.values(set, row) else { return Ok(None) };
        let parent = self.end_of(&link.parent)?;
        let is_kept = self.has_parent(link, &parent, &values)?;
        Ok((!is_kept).then(|| contradiction(link, set, &parent, &values)))
    }

    /// Whether a row of a table refers to a row that exists, or to none.
    pub(crate) fn is_reference_kept(&self, link: &Link, set: &TableSet, row: RowPtr) -> Result<bool, Abort> {
        match link.child.values(set, row) {
            None => Ok(true),
            Some(values) => self.has_parent(link, &*self.end_of(&link.parent)?, &values),
        }
    }

    /// Checks a row of a table to which a reference is being added.
    pub(crate) fn prove_reference(&self, link: &Arc<Link>, set: &TableSet, key: Key<'_>) -> Result<(), Abort> {
        let Some(row) = self.read_row(set, key, link.child.mask)? else { return Ok(()) };
        let Some(values) = link.child.values(set, row) else { return Ok(()) };
        self.check_reference(&ReferenceCheck { link: Arc::clone(link), values, child: Some(key.to_buf()) })
    }

    /// Checks that no other row has the values of a row in a unique constraint.
    pub(crate) fn prove_distinct(&self, distinct: &Distinct, set: &TableSet, row: RowPtr) -> Result<(), Abort> {
        match distinct.values_of(set, row) {
            None => Ok(()),
            Some(values) => self.check_distinct(distinct, &values, By::Walk),
        }
    }

    /// Makes the checks that were put off.
    ///
    /// # Errors
    /// The cause that ends the transaction.
    #[cold]
    pub(super) fn check_deferred(&self) -> Result<(), Cause> {
        let _call = self.call().map_err(|abort| abort.cause().unwrap_or(crate::parking::TOO_OLD))?;
        let (watching, checks) = (self.watching.replace(false), self.pending.deferred.take());
        let result = watch::unwatched(|| checks.iter().try_for_each(|check| self.check_constraint(check)));
        self.watching.set(watching);
        self.ends.set(self.ends.get() & !super::ends::CHECKED);
        match result {
            Ok(()) => Ok(()),
            Err(abort) => Err(self.cause_of(&abort).unwrap_or_else(|| {
                *self.pending.violation.borrow_mut() = Some(abort.into());
                self.is_untidy.set(true);
                Cause { phase: Phase::Validate, reason: Reason::ConstraintViolated }
            })),
        }
    }

    /// Whether a check was put off that looks at this table.
    pub(super) fn has_deferred(&self, set: &Arc<TableSet>) -> bool {
        let deferred = self.pending.deferred.borrow();
        deferred.iter().flat_map(Check::tables).flatten().any(|table| Arc::ptr_eq(&table, set))
    }

    /// After a roll-back: forgets the checks of rows of tables that are gone with it, as the rows are.
    pub(super) fn forget_checks(&self, is_gone: impl Fn(&TableSet) -> bool) {
        let mut deferred = self.pending.deferred.borrow_mut();
        deferred.retain(|check| check.tables().all(|table| table.is_some_and(|table| !is_gone(&table))));
    }

    /// What the check at the end of the transaction has found.
    pub(crate) fn found_violation(&self) -> TransactError {
        let found = self.pending.violation.borrow().clone();
        found.unwrap_or_else(|| TransactError::of(AbortKind::ForeignKey))
    }

    /// Whether checks of deferrable constraints are put off until the end of the transaction: of all, or of those with
    /// these names. If not, those that were put off are made now.
    ///
    /// # Errors
    /// A row contradicts its constraint: then checks are put off as before.
    pub fn set_constraints(&self, names: Option<&[&str]>, is_deferred: bool) -> Result<(), Abort> {
        let _call = self.call()?;
        self.is_untidy.set(true);
        if !is_deferred {
            let is_asked = |check: &Check| names.is_none_or(|names| names.contains(&check.constraint()));
            let (mut checks, others): (Vec<Check>, Vec<Check>) =
                self.pending.deferred.take().into_iter().partition(is_asked);
            let made = watch::unwatched(|| checks.iter().try_for_each(|check| self.check_constraint(check)));
            let left = match &made {
                Ok(()) => others,
                Err(_) => {
                    checks.extend(others);
                    checks
                }
            };
            if left.is_empty() {
                self.ends.set(self.ends.get() & !super::ends::CHECKED);
            }
            *self.pending.deferred.borrow_mut() = left;
            made?;
        }
        match names {
            None => {
                self.pending.named.borrow_mut().clear();
                self.pending.is_deferred.set(Some(is_deferred));
            }
            Some(names) => {
                let mut named = self.pending.named.borrow_mut();
                named.retain(|(own, _)| !names.contains(&&**own));
                named.extend(names.iter().map(|own| ((*own).to_owned(), is_deferred)));
            }
        }
        Ok(())
    }
}
