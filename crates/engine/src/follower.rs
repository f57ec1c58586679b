//! What is built from the rows of a table while transactions run: an index, or a copy with other columns.
//!
//! Each write of a row also writes it here, in the same transaction. A walk over the rows brings those that no
//! transaction writes. Both are ordinary operations of the protocol, so none is lost and none is seen half. A write
//! that does not fit here is nevertheless valid: then what is built is given up, and the write stands.

use std::sync::{Arc, OnceLock};

use seriatim_catalog::evolution::Evolution;
use seriatim_catalog::{BrokenCheck, Checks, ColumnDef, ColumnSet, Key, KeyBuf, RowRef, TableDef, Value};
use seriatim_txn::{Cause, OnExists, Phase, Reason, RowPtr};

use crate::error::{Abort, AbortKind, Problem, Refusal, TransactError};
use crate::link::Distinct;
use crate::operations::read;
use crate::runtime::DynRow;
use crate::table::{Secondary, TableSet};
use crate::tx::TxCore;

/// What is built from the rows of a table.
pub(crate) struct Follower {
    pub(crate) build: Build,
    /// The unique constraints among it that can be deferred.
    distinct: Vec<Arc<Distinct>>,
    refused: Arc<Refused>,
}

/// Why the rows of a table do not allow what is built, if so, and who has found that.
pub(crate) type Refused = OnceLock<(Problem, By)>;

/// Who writes into what is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The walk, which finds committed rows.
    Walk,
    /// The write of a transaction, which may abort.
    Write,
}

/// What can be built.
pub(crate) enum Build {
    /// The rows, converted.
    Copy { set: Arc<TableSet>, evolution: Box<Evolution> },
    /// The index at this position of a declaration.
    Index(Arc<Secondary>, Arc<TableDef>, usize),
    /// Nothing: all rows must meet the conditions of this declaration.
    Checks(Arc<Checks>, Arc<TableDef>),
}

/// The effect of a write on what is built.
enum Effect {
    /// Of a copy: this row is written.
    Put(Vec<Value>),
    /// Of a copy: the row with the key in this row is deleted.
    Delete(Vec<Value>),
    /// Of an index: one entry is removed, and another added. If rows may agree until the transaction ends: the values
    /// in which they may not.
    Entry { remove: Option<KeyBuf>, add: Option<KeyBuf>, values: Option<Vec<Value>> },
    /// Of conditions: the row does not meet one.
    Broken(BrokenCheck),
}

impl Follower {
    /// What follows the writes of a table.
    pub(crate) fn new(build: Build, source: &Arc<TableSet>) -> Arc<Follower> {
        let refused = Arc::new(Refused::new());
        let of = |set: &Arc<TableSet>, definition: &TableDef, at: usize, index: &Arc<Secondary>| {
            Distinct::of(set, definition, at, index, Some(&refused)).map(Arc::new)
        };
        let distinct = match &build {
            Build::Copy { set, .. } => {
                let indexes = set.indexes.iter().enumerate();
                indexes.filter_map(|(at, index)| of(set, &set.definition, at, index)).collect()
            }
            Build::Index(index, after, at) => of(source, after, *at, index).into_iter().collect(),
            Build::Checks(..) => Vec::new(),
        };
        Arc::new(Follower { build, distinct, refused })
    }

    /// The copy, if it is one.
    pub(crate) fn copy(&self) -> Option<&Arc<TableSet>> {
        match &self.build {
            Build::Copy { set, .. } => Some(set),
            Build::Index(..) | Build::Checks(..) => None,
        }
    }

    /// Why the rows do not allow it, if so.
    pub(crate) fn refusal(&self) -> Option<&Problem> {
        self.refused.get().map(|(problem, _)| problem)
    }

    /// Whether it is not by a transaction that may have aborted.
    pub(crate) fn is_refusal_certain(&self) -> bool {
        self.refused.get().is_some_and(|(_, by)| *by == By::Walk)
    }

    fn refuse(&self, problem: Problem, by: By) {
        let _ = self.refused.set((problem, by));
    }

    /// The effect of a write, computed while both rows are readable.
    fn effect(&self, set: &TableSet, before: Option<RowPtr>, after: Option<RowPtr>, by: By) -> Option<Effect> {
        match &self.build {
            Build::Copy { evolution, .. } => {
                let values = |row| evolution.convert(&DynRow::new(set, row).values());
                let converted = match (before, after) {
                    (_, Some(after)) => values(after).map(Effect::Put),
                    (Some(before), None) => values(before).map(Effect::Delete),
                    (None, None) => return None,
                };
                converted.map_err(|error| self.refuse(error.into(), by)).ok()
            }
            Build::Index(index, ..) => {
                // SAFETY: a row of the index's table, readable during the call.
                let row = |row: RowPtr| unsafe { RowRef::from_raw(row.as_ptr()) };
                let key = |of: RowPtr| index.table.codec.encode_row(row(of), |key| key.to_buf());
                let (remove, add) = (before.map(key), after.map(key));
                let values = || self.distinct.first()?.values_of(set, after?);
                (remove != add).then(|| Effect::Entry { remove, add, values: values() })
            }
            Build::Checks(checks, definition) => {
                // SAFETY: as above.
                let row = unsafe { RowRef::from_raw(after?.as_ptr()) };
                checks.broken_by(definition, row, ColumnSet::ALL).map(Effect::Broken)
            }
        }
    }

    /// Has an effect. The row's own key is `primary`.
    fn apply(&self, tx: &TxCore, primary: Key<'_>, effect: Effect, by: By) -> Result<(), Abort> {
        match (&self.build, effect) {
            (Build::Copy { set, evolution }, Effect::Put(mut values)) => {
                let key = tx.key_in(set, &values)?;
                match self.number(tx, (set, evolution), Some(key.as_key()), &mut values, by)? {
                    true => {
                        self.unless_refused(tx.write_values(set, &values, OnExists::Replace).map(drop), by)?;
                        self.note_distinct(tx, |distinct| distinct.values(|at| values[at].clone()));
                        Ok(())
                    }
                    false => Ok(()),
                }
            }
            (Build::Copy { set, .. }, Effect::Delete(values)) => {
                let key = tx.key_in(set, &values)?;
                tx.delete_at(set, key.as_key()).map(drop)
            }
            (Build::Index(index, definition, at), Effect::Entry { remove, add, values }) => {
                // The entry may not be there yet, or be that of a row with the same values.
                if let Some(key) = remove
                    && is_entry_of(tx, index, key.as_key(), primary)? == Some(true)
                {
                    tx.unlink_entry(&index.table, key.as_key())?;
                }
                let Some(key) = add else { return Ok(()) };
                self.enter(tx, (index, &definition.indexes[*at].name), (key.as_key(), primary), by)?;
                match by {
                    By::Write => self.note_distinct(tx, |_| values.clone()),
                    By::Walk => self.find_twins(tx, |_| values.clone())?,
                }
                Ok(())
            }
            (Build::Checks(..), Effect::Broken(broken)) => {
                // What was read may never have existed.
                tx.validate().map_err(|cause| tx.stop(cause))?;
                self.refuse(broken.into(), by);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Has the end of the transaction look whether a row that it writes agrees with another.
    fn note_distinct(&self, tx: &TxCore, values: impl Fn(&Distinct) -> Option<Vec<Value>>) {
        for distinct in &self.distinct {
            if let Some(values) = values(distinct) {
                tx.note_distinct(distinct, values);
            }
        }
    }

    /// Looks whether a row that the walk has brought agrees with another.
    fn find_twins(&self, tx: &TxCore, values: impl Fn(&Distinct) -> Option<Vec<Value>>) -> Result<(), Abort> {
        self.distinct.iter().try_for_each(|distinct| match values(distinct) {
            Some(values) => tx.check_distinct(distinct, &values, By::Walk),
            None => Ok(()),
        })
    }

    /// Gives a row of a copy its number, if it is to have one: that which it has there, or the next. Returns whether
    /// there is one.
    fn number(
        &self,
        tx: &TxCore,
        (copy, evolution): (&TableSet, &Evolution),
        key: Option<Key<'_>>,
        values: &mut [Value],
        by: By,
    ) -> Result<bool, Abort> {
        let Some(column) = evolution.numbered() else { return Ok(true) };
        let at = column.index();
        let there = key.map(|key| tx.read_row(copy, key, ColumnSet::of(column))).transpose()?.flatten();
        let given = there.map(|row| DynRow::new(copy, row).value(at));
        let next = || copy.identity.get()?.next_private().map(|number| Value::Integer(number.into(), None));
        let Some(number) = given.or_else(next) else {
            let ColumnDef { name, ty, .. } = &copy.definition.columns[at];
            let says = format!("column `{name}`: its sequence has fewer numbers than the table has rows");
            self.refuse(Problem::new(Refusal::Value { column: name.to_string(), ty: *ty }, says), by);
            return Ok(false);
        };
        values[at] = number;
        Ok(true)
    }

    /// Enters a row into the index, unless the walk or a write has done it.
    fn enter(
        &self,
        tx: &TxCore,
        (index, name): (&Secondary, &str),
        (key, primary): (Key<'_>, Key<'_>),
        by: By,
    ) -> Result<(), Abort> {
        match is_entry_of(tx, index, key, primary)? {
            None => tx.link_entry(&index.table, key, primary),
            Some(true) => Ok(()),
            Some(false) => {
                // Rows that were read one after the other may never have existed together.
                tx.validate().map_err(|cause| tx.stop(cause))?;
                let says = format!("two rows have {}", index.table.codec.describe(key));
                self.refuse(Problem::new(Refusal::Duplicate { constraint: name.to_owned() }, says), by);
                Ok(())
            }
        }
    }

    /// A row that contradicts a unique index or a condition of the copy ends the copy, not the transaction.
    fn unless_refused(&self, written: Result<(), Abort>, by: By) -> Result<(), Abort> {
        match written {
            Err(abort) if matches!(abort.kind(), AbortKind::Duplicate | AbortKind::Check) => {
                let problem = Problem::of_row(&TransactError::from(abort.clone())).ok_or(abort)?;
                self.refuse(problem, by);
                Ok(())
            }
            written => written,
        }
    }

    /// Brings a row that may not be there yet; `set` is its table.
    pub(crate) fn bring(&self, tx: &TxCore, set: &TableSet, key: Key<'_>) -> Result<(), Abort> {
        let row = tx.read_row(set, key, ColumnSet::ALL)?;
        row.map_or(Ok(()), |row| self.bring_row(tx, set, (key, row), false))
    }

    /// As [`Follower::bring`], of a row that was read; `once` if nobody else brings it.
    pub(crate) fn bring_row(
        &self,
        tx: &TxCore,
        set: &TableSet,
        (key, row): (Key<'_>, RowPtr),
        once: bool,
    ) -> Result<(), Abort> {
        let Some(effect) = self.effect(set, None, Some(row), By::Walk) else { return Ok(()) };
        match (&self.build, effect) {
            (Build::Copy { set: copy, evolution }, Effect::Put(mut values)) => {
                let key = (!once).then(|| tx.key_in(copy, &values)).transpose()?;
                let key = key.as_ref().map(|key| key.as_key());
                // A write has brought it already, or the walk shows it twice.
                if let Some(key) = key
                    && tx.read_row(copy, key, ColumnSet::EMPTY)?.is_some()
                {
                    return Ok(());
                }
                if !self.number(tx, (copy, evolution), key, &mut values, By::Walk)? {
                    return Ok(());
                }
                self.unless_refused(tx.insert_values(copy, &values), By::Walk)?;
                self.find_twins(tx, |distinct| distinct.values(|at| values[at].clone()))
            }
            (_, effect) => self.apply(tx, key, effect, By::Walk),
        }
    }
}

/// Whether the entry with this key is that of the row with this key, if there is one.
fn is_entry_of(tx: &TxCore, index: &Secondary, key: Key<'_>, primary: Key<'_>) -> Result<Option<bool>, Abort> {
    let entry = read(tx, &index.table, key, ColumnSet::ALL)?;
    // SAFETY: an entry of an index of a table with keys of this class, readable until the transaction ends.
    Ok(entry.map(|entry| unsafe { crate::index::read_primary(entry, primary.class()) } == primary))
}

impl TxCore {
    /// Has what is built from a table follow the write of a row.
    #[cold]
    pub(crate) fn follow_row(
        &self,
        set: &TableSet,
        primary: Key<'_>,
        before: Option<RowPtr>,
        after: Option<RowPtr>,
    ) -> Result<(), Abort> {
        let live = set.followers.iter().filter(|follower| follower.refusal().is_none());
        // All before the first write: rows may lie where the next operation writes.
        let effects: Vec<_> =
            live.filter_map(|follower| Some((follower, follower.effect(set, before, after, By::Write)?))).collect();
        // The writes are not those of the body.
        let (watching, undo) = (self.watching.replace(false), self.undo.take());
        let followed = effects.into_iter().try_for_each(|(follower, effect)| {
            follower.apply(self, primary, effect, By::Write).map_err(|abort| self.without(follower, abort))
        });
        self.watching.set(watching);
        *self.undo.borrow_mut() = undo;
        followed
    }

    /// If there is no memory for what is built, it is given up, and the transaction begins again.
    fn without(&self, follower: &Follower, abort: Abort) -> Abort {
        if abort.cause().is_none_or(|cause| cause.reason != Reason::OutOfMemory) {
            return abort;
        }
        // It would be given up again.
        follower.refuse(Problem::new(Refusal::NoRoom, self.no_room().to_string()), By::Walk);
        self.too_large.take();
        self.stop_instead(Cause { phase: Phase::Execute, reason: Reason::TableChanging })
    }
}

#[cfg(test)]
mod tests {
    use seriatim_catalog::evolution::Change;
    use seriatim_catalog::{ColumnDef, ColumnType, OnChange, Organization, ReferenceDef, TableDef};
    use seriatim_txn::Mode;

    use super::*;
    use crate::Settings;
    use crate::table::Shape;
    use crate::tx::Origin;

    /// Rows that agree in the columns of a unique index may change before the walk has come to both.
    #[test]
    fn a_row_that_changes_leaves_the_entry_of_another_row_with_its_values() {
        let engine = Settings { step_helpers: true, ..Settings::default() }.open().expect("in memory");
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
        let table = TableDef::builder("t").column(column("id")).column(column("code")).key(["id"]);
        let table = engine.declare(table.finish().expect("a valid table")).expect("there is room");
        let set = &table.set;
        let mut runner = engine.runner();
        let row = |id: u32, code: u32| [Value::from(id), Value::from(code)];
        let load = |tx: &TxCore| tx.insert_dyn(&table, &row(1, 5)).and_then(|()| tx.insert_dyn(&table, &row(2, 5)));
        runner.run(Mode::ReadWrite, Origin::Closure, load).expect("it runs alone");

        let mut evolution = Evolution::of(&set.definition);
        evolution.apply(Change::add_unique_index("by_code", ["code"])).expect("the column exists");
        let mut ids = engine.inner().tables_mut().ids.clone();
        let index = engine.inner().make_index(evolution.after(), 0, set.primary.class, &mut ids);
        let index = Arc::new(index.expect("there is room"));
        let definition = Arc::new(evolution.after().clone());
        let follower = Follower::new(Build::Index(Arc::clone(&index), definition, 0), set);
        set.set_shape(Shape { followers: Arc::new(vec![Arc::clone(&follower)]), ..set.shape() });

        let source = set.apart(engine.inner());
        let key = |id: u32| set.primary.codec.encode_values(&[Value::from(id)]).expect("it fits");
        let entry = |code: u32| index.table.codec.encode_values(&[Value::from(code)]).expect("it fits");
        let mut run = |act: &dyn Fn(&TxCore) -> Result<(), Abort>| {
            runner.run(Mode::ReadWrite, Origin::Closure, |tx| act(tx)).map(drop).expect("it runs alone");
        };
        run(&|tx| follower.bring(tx, &source, key(2).as_key()));
        run(&|tx| tx.update_dyn(&table, &[Value::from(1u32)], &[("code", Value::from(6u32))]).map(drop));
        run(&|tx| {
            let is_of = |code: u32, id: u32| is_entry_of(tx, &index, entry(code).as_key(), key(id).as_key());
            assert_eq!((is_of(5, 2)?, is_of(6, 1)?), (Some(true), Some(true)));
            Ok(())
        });
        run(&|tx| tx.delete_dyn(&table, &[Value::from(2u32)]).map(drop));
        run(&|tx| {
            assert_eq!(is_entry_of(tx, &index, entry(5).as_key(), key(2).as_key())?, None);
            Ok(())
        });
        assert_eq!(follower.refusal(), None);
    }

    /// A row of a clustered table lies where the next row of one is kept.
    #[test]
    fn a_clustered_row_that_is_deleted_takes_those_along_that_refer_to_it() {
        let engine = Settings { step_helpers: true, ..Settings::default() }.open().expect("in memory");
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
        let parent = TableDef::builder("parent").column(column("of")).column(column("id")).column(column("x"));
        let parent = parent.column(column("code")).key(["of", "id"]).cluster(["of"]);
        let parent = parent.unique_index("by_code", ["code"], Organization::Ordered);
        let child = TableDef::builder("child").column(column("code")).key(["code"]);
        let to_code = ReferenceDef::new(["code"], "parent").referenced(["code"]).on_delete(OnChange::Cascade);
        let tables = [parent, child.reference(to_code)].map(|table| table.finish().expect("a valid table"));
        let tables = engine.declare_all(tables.into()).expect("there is room");
        let [parent, child] = &tables[..] else { panic!("there are two") };
        let mut runner = engine.runner();
        let row = |values: &[u32]| values.iter().map(|value| Value::from(*value)).collect::<Vec<_>>();
        let load = |tx: &TxCore| {
            for id in 0..3 {
                tx.insert_dyn(parent, &row(&[1, id, 7, 40 + id]))?;
                tx.insert_dyn(child, &row(&[40 + id]))?;
            }
            Ok(())
        };
        runner.run(Mode::ReadWrite, Origin::Closure, load).expect("it runs alone");

        let mut evolution = Evolution::of(&parent.set.definition);
        evolution.apply(Change::drop_column("x")).expect("no key has it");
        let mut ids = engine.inner().tables_mut().ids.clone();
        let copy = engine.inner().make_table(evolution.after().clone(), &mut ids, 9).expect("there is room");
        let follower = Follower::new(Build::Copy { set: copy, evolution: Box::new(evolution) }, &parent.set);
        let source = parent.set.apart(engine.inner());
        parent.set.set_shape(Shape { followers: Arc::new(vec![Arc::clone(&follower)]), ..parent.set.shape() });
        let mut run = |act: &dyn Fn(&TxCore) -> Result<(), Abort>| {
            runner.run(Mode::ReadWrite, Origin::Closure, |tx| act(tx)).map(drop).expect("it runs alone");
        };
        let key = |id: u32| source.primary.codec.encode_values(&row(&[1, id])).expect("it fits");
        run(&|tx| (0..3).try_for_each(|id| follower.bring(tx, &source, key(id).as_key())));
        run(&|tx| tx.delete_dyn(parent, &row(&[1, 1])).map(drop));
        run(&|tx| {
            let left = [40, 41, 42].map(|code| tx.exists_dyn(child, &row(&[code])));
            assert_eq!(left.into_iter().collect::<Result<Vec<_>, _>>()?, [true, false, true]);
            Ok(())
        });
        assert_eq!(follower.refusal(), None);
    }

    /// A transaction that aborts leaves no duplicate.
    #[test]
    fn a_duplicate_of_a_transaction_that_aborts_refuses_no_index() {
        let engine = Settings { workers: 3, ..Settings::default() }.open().expect("in memory");
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U32);
        let table = TableDef::builder("t").column(column("id")).column(column("code")).key(["id"]);
        let table = engine.declare(table.finish().expect("a valid table")).expect("there is room");
        const ROWS: u32 = 20_000;
        let row = |id: u32, code: u32| [Value::from(id), Value::from(code)];
        let mut runner = engine.runner();
        let load = |tx: &TxCore| (0..ROWS).try_for_each(|id| tx.insert_dyn(&table, &row(id, id)));
        runner.run(Mode::ReadWrite, Origin::Closure, load).expect("it runs alone");
        let mut evolution = Evolution::of(&table.set.definition);
        evolution.apply(Change::add_unique_index("by_code", ["code"])).expect("the column exists");
        let (changed, is_refused) = std::thread::scope(|scope| {
            let changed = scope.spawn(|| {
                let changing = engine.changing().expect("nobody changes tables");
                engine.change_tables(&changing, vec![crate::TableChange::Evolve(Box::new(evolution))]).map(drop)
            });
            let mut is_refused = false;
            while !changed.is_finished() && !is_refused {
                runner.begin(Mode::ReadWrite).expect("a worker is free");
                // The last one is there, or comes by the walk.
                let _ = runner.tx.insert_dyn(&table, &row(ROWS, 0));
                runner.end_explicit();
                is_refused = table.set.followers.iter().any(|follower| follower.refusal().is_some());
            }
            (changed.join().expect("no panic"), is_refused)
        });
        assert!(is_refused, "it was over before the duplicate");
        changed.expect("no two rows have one code");
        assert_eq!(table.set.definition.indexes.len(), 1);
    }
}
