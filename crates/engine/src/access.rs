//! Roles and rights of an open database.
//!
//! The engine keeps them and makes changes durable. Whoever runs statements of a role asks for them; a program that
//! uses tables itself is not asked. [`Engine::access_generation`] is another number after each change, so a check is
//! made once for a plan and a generation.
//!
//! Invariant: a change has the right to change tables. So no table is dropped while rights to it are written, and the
//! rows of the catalogue are those of [`AccessState`] before each change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use seriatim_catalog::{Access, Object, Rights};
use seriatim_redo::catalogue::{Row, rows_of_access};

use crate::Engine;
use crate::changing::Changing;
use crate::durability::{self, CatalogueRows};
use crate::engine::Inner;
use crate::error::{Abort, InvalidSchema, SchemaError, StorageError};
use crate::runtime::DynHandle;
use crate::sequences::Sequence;
use crate::table::TableSet;

/// Roles and rights as they are now.
#[derive(Default)]
pub(crate) struct AccessState {
    current: RwLock<Arc<Access>>,
    generation: AtomicU64,
}

impl AccessState {
    pub(crate) fn current(&self) -> Arc<Access> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn publish(&self, access: Access) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
        // ORDERING: pairs with the acquire in `access_generation`: whoever sees the number finds what was published.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Changes what is there, if that is another.
    fn change(&self, change: impl FnOnce(&mut Access)) {
        let before = self.current();
        let mut access = Access::clone(&before);
        change(&mut access);
        if access != *before {
            self.publish(access);
        }
    }

    /// A new table is known.
    pub(crate) fn created(&self, set: &TableSet) {
        if let Some(rights) = rights_of_new(set) {
            self.change(|access| access.set_rights(Object::Table(set.position), rights));
        }
    }

    /// A sequence is new, or no more.
    pub(crate) fn settle_sequence(&self, id: u32, is_dropped: bool, creator: Option<u32>) {
        if is_dropped || creator.is_some() {
            self.change(|access| settle(access, id, is_dropped, creator));
        }
    }

    /// A table is no more.
    pub(crate) fn dropped(&self, set: &TableSet) {
        self.change(|access| access.forget(Object::Table(set.position)));
    }
}

/// The rights to a new table, if it is not the first superuser's.
fn rights_of_new(set: &TableSet) -> Option<Rights> {
    let owner = *set.creator.get()?;
    Some(Rights { owner, grants: Default::default() })
}

/// A sequence is new, or no more.
fn settle(access: &mut Access, id: u32, is_dropped: bool, creator: Option<u32>) {
    match creator.filter(|_| !is_dropped) {
        Some(owner) => access.set_rights(Object::Sequence(id), Rights { owner, grants: Default::default() }),
        None => access.forget(Object::Sequence(id)),
    }
}

/// The rows that are changed from one state to another: those to insert, to update and to delete.
fn differences(before: &Access, after: &Access) -> Result<[Vec<Row>; 3], SchemaError> {
    let invalid = |problem| SchemaError::Invalid(InvalidSchema::Invalid { table: String::new(), problem });
    let [before, after] = [before, after].map(rows_of_access);
    let (before, after) = (before.map_err(invalid)?, after.map_err(invalid)?);
    let of = |rows: &[Row], row: &Row| rows.iter().find(|other| other.key == row.key).cloned();
    let deleted = before.iter().filter(|row| of(&after, row).is_none()).cloned().collect();
    let (mut inserted, mut updated) = (Vec::new(), Vec::new());
    for row in after {
        match of(&before, &row) {
            None => inserted.push(row),
            Some(was) if was != row => updated.push(row),
            Some(_) => {}
        }
    }
    Ok([inserted, updated, deleted])
}

fn write(rows: &CatalogueRows<'_>, [inserted, updated, deleted]: &[Vec<Row>; 3]) -> Result<(), Abort> {
    inserted.iter().try_for_each(|row| rows.insert(row))?;
    updated.iter().try_for_each(|row| rows.update(row))?;
    rows.delete(deleted)
}

impl Inner {
    /// Checks the role that creates a table or sequence. The right to change tables keeps the role until that is there.
    ///
    /// # Errors
    /// There is no such role: a directory with rights of one could not be opened.
    pub(crate) fn check_creator(&self, created: &str, role: u32) -> Result<(), SchemaError> {
        if self.access.current().role(role).is_none() {
            let (table, problem) = (created.to_owned(), format!("is of role {role}, which there is not"));
            return Err(SchemaError::Invalid(InvalidSchema::Invalid { table, problem }));
        }
        Ok(())
    }

    /// Writes the rights of a table that is created or dropped, with its other rows.
    pub(crate) fn record_rights(&self, rows: &CatalogueRows<'_>, set: &TableSet, is_new: bool) -> Result<(), Abort> {
        let before = self.access.current();
        let mut after = Access::clone(&before);
        match (is_new, rights_of_new(set)) {
            (true, Some(rights)) => after.set_rights(Object::Table(set.position), rights),
            (true, None) => return Ok(()),
            (false, _) => after.forget(Object::Table(set.position)),
        }
        self.record_differences(rows, (&*before, &after))
    }

    /// As [`Inner::record_rights`], of a sequence.
    pub(crate) fn record_sequence_rights(
        &self,
        rows: &CatalogueRows<'_>,
        id: u32,
        is_dropped: bool,
        creator: Option<u32>,
    ) -> Result<(), Abort> {
        if !is_dropped && creator.is_none() {
            return Ok(());
        }
        let before = self.access.current();
        let mut after = Access::clone(&before);
        settle(&mut after, id, is_dropped, creator);
        self.record_differences(rows, (&*before, &after))
    }

    fn record_differences(&self, rows: &CatalogueRows<'_>, (before, after): (&Access, &Access)) -> Result<(), Abort> {
        match differences(before, after) {
            Ok(changes) => write(rows, &changes),
            Err(error) => Err(rows.abort(error)),
        }
    }
}

impl Engine {
    /// The roles and rights that there are.
    pub fn access(&self) -> Arc<Access> {
        self.inner.access.current()
    }

    /// A number that is another one after each change of roles and rights.
    #[inline]
    pub fn access_generation(&self) -> u64 {
        self.inner.access.generation.load(Ordering::Acquire)
    }

    /// Changes roles and rights. Durable when this returns.
    ///
    /// # Errors
    /// That of `change`; the result makes no sense, or cannot be made durable. Nothing is changed then, unless the disk
    /// is full: what was changed becomes durable when there is space.
    pub fn change_access<E: From<SchemaError>>(
        &self,
        _changing: &Changing<'_>,
        change: impl FnOnce(&mut Access) -> Result<(), E>,
    ) -> Result<(), E> {
        let inner = &self.inner;
        let before = inner.access.current();
        let mut after = Access::clone(&before);
        change(&mut after)?;
        if after == *before {
            return Ok(());
        }
        let sets = inner.sets();
        let invalid = |problem| SchemaError::Invalid(InvalidSchema::Invalid { table: String::new(), problem });
        after.check().map_err(invalid)?;
        let is_gone = |object| match object {
            Object::Table(position) => sets.iter().all(|set| set.position != position),
            Object::Sequence(id) => !inner.sequences.has(id),
            Object::Schema => false,
        };
        if let Some((object, _)) = after.objects().find(|(object, _)| is_gone(*object)) {
            return Err(invalid(format!("there are rights to {object:?}, which there is not")).into());
        }
        let Some(persistence) = &inner.persistence else {
            inner.access.publish(after);
            return Ok(());
        };
        durability::inherit_catalogue(inner, &self.open, persistence)?;
        let changes = differences(&before, &after)?;
        let epoch = durability::change_catalogue(inner, &self.open, |rows| write(rows, &changes))?;
        let durable = persistence.wait_for(epoch);
        if let (Err(_), Some(reason)) = (&durable, persistence.log().durable().stop_reason()) {
            return Err(SchemaError::storage(StorageError::Stopped(reason)).into());
        }
        inner.access.publish(after);
        durable.map_err(|error| SchemaError::storage(error).into())
    }

    /// A sequence as an object of rights.
    pub fn object_of_sequence(&self, sequence: &Sequence) -> Object {
        Object::Sequence(sequence.id)
    }

    /// A table as an object of rights.
    pub fn object_of(&self, table: &DynHandle) -> Object {
        Object::Table(table.set.position)
    }
}
