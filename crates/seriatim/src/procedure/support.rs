//! What the code that `#[procedure]` generates calls. Not for people: it may change with the macro.

use std::any::{Any, TypeId};

pub use seriatim_catalog::ColumnSet;
use seriatim_catalog::{OutOfMemory, Table, TableKey, kind};
use seriatim_procedure::ir;

pub use super::kept::*;
pub use super::slots::*;
pub use super::values::*;
use super::{Datum, Declared, call, interpret};
pub use crate::scan::{Limit, Steps};
use crate::{Abort, Committed, Database, Handle, IndexHandle, ReadTx, Scan, SchemaError, Session, TransactError, Tx};
pub use seriatim_catalog::watch::unwatched;

pub(crate) type CallByName = fn(&mut Session, &Datum) -> Result<Committed<Datum>, TransactError>;

/// Finds a procedure's tables and notes the columns of its operations.
type MakeHandles = fn(&Database, &[ColumnSet]) -> Result<Box<dyn Any + Send + Sync>, SchemaError>;

/// A declared procedure without its type.
pub struct Erased {
    pub(crate) name: &'static str,
    pub(crate) id: TypeId,
    pub(crate) schedules: bool,
    pub(crate) declaration: fn() -> ir::Procedure,
    pub(crate) handles: MakeHandles,
    pub(crate) call_by_name: CallByName,
    pub(crate) interpret_by_name: CallByName,
}

impl Erased {
    pub(crate) fn of<P: Declared>() -> Erased {
        Erased {
            name: P::NAME,
            id: TypeId::of::<P>(),
            schedules: P::SCHEDULES,
            declaration: P::declaration,
            handles: |database, columns| {
                let mut handles = P::handles(database)?;
                P::set_columns(&mut handles, columns);
                Ok(Box::new(handles))
            },
            call_by_name: call::by_name::<P>,
            interpret_by_name: interpret::by_name::<P>,
        }
    }
}

/// Updates a row, if there is one. The closure leaves its value in a variable of the caller's: passed up through results of options
/// of results, a large value would be copied at every step. The closure's abort is the transaction's: the caller passes it on.
///
/// # Errors
/// As [`Tx::update`]; the closure's own.
#[inline]
pub fn update<T: Table>(
    tx: &Tx,
    table: &Handle<T>,
    key: &T::Key,
    columns: ColumnSet,
    change: impl FnOnce(&mut T::Update<'_>) -> Result<(), Abort>,
) -> Result<(), Abort> {
    tx.try_change(table, key, columns, change)
}

/// As [`ReadTx::get`], of these columns.
///
/// # Errors
/// As there.
#[inline]
pub fn get<'t, T: Table>(
    tx: &'t ReadTx,
    table: &Handle<T>,
    key: &T::Key,
    columns: ColumnSet,
) -> Result<Option<T::Row<'t>>, Abort> {
    tx.get_named(table, key, columns)
}

/// As [`ReadTx::require`], of these columns.
///
/// # Errors
/// As there.
#[inline]
pub fn require<'t, T: Table>(
    tx: &'t ReadTx,
    table: &Handle<T>,
    key: &T::Key,
    columns: ColumnSet,
) -> Result<T::Row<'t>, Abort> {
    tx.require_named(table, key, columns)
}

/// As [`ReadTx::get_by`], of these columns.
///
/// # Errors
/// As there.
#[inline]
pub fn get_by<'t, T: Table, K: TableKey, I: kind::Unique>(
    tx: &'t ReadTx,
    index: &IndexHandle<T, K, I>,
    key: &K,
    columns: ColumnSet,
) -> Result<Option<T::Row<'t>>, Abort> {
    tx.get_named_by(index, key, columns)
}

/// As [`ReadTx::require_by`], of these columns.
///
/// # Errors
/// As there.
#[inline]
pub fn require_by<'t, T: Table, K: TableKey, I: kind::Unique>(
    tx: &'t ReadTx,
    index: &IndexHandle<T, K, I>,
    key: &K,
    columns: ColumnSet,
) -> Result<T::Row<'t>, Abort> {
    tx.require_named_by(index, key, columns)
}

/// A scan, of these columns.
#[inline]
pub fn scan<T: Table>(scan: Scan<'_, T>, columns: ColumnSet) -> Scan<'_, T> {
    scan.named(columns)
}

/// A scan, of these columns, whose rows live for one step each; `()` for no limit.
#[inline]
pub fn steps<T: Table, L: Limit>(scan: Scan<'_, T>, columns: ColumnSet, limit: L) -> Steps<'_, T, L> {
    Steps::new(scan, columns, limit)
}

/// Deletes a row that must exist.
///
/// # Errors
/// As [`Tx::delete`]; a missing row.
#[inline]
pub fn delete<T: Table>(tx: &Tx, table: &Handle<T>, key: &T::Key) -> Result<(), Abort> {
    match tx.delete(table, key)? {
        true => Ok(()),
        false => Err(tx.missing(table, key)),
    }
}

/// What a setter of an update gives: nothing, or, for long text, whether there was memory.
pub trait Stored {
    /// The outcome as an abort.
    ///
    /// # Errors
    /// The memory limit.
    fn stored(self, tx: &Tx) -> Result<(), Abort>;
}

impl Stored for () {
    #[inline(always)]
    fn stored(self, _: &Tx) -> Result<(), Abort> {
        Ok(())
    }
}

impl Stored for Result<(), OutOfMemory> {
    #[inline]
    fn stored(self, tx: &Tx) -> Result<(), Abort> {
        self.map_err(|_| tx.core.out_of_memory())
    }
}
