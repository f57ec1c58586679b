//! What the code that `#[procedure]` generates calls. Not for people: it may change with the macro.

use std::any::{Any, TypeId};

pub use seriatim_catalog::{ColumnSet, ColumnUse};
use seriatim_catalog::{OutOfMemory, RowRef, Table, TableKey, kind};
pub use seriatim_engine::Operations;
pub use seriatim_engine::procedure::{Reference, Stopped};
use seriatim_engine::{TxCore, unless_failed};
use seriatim_procedure::ir;
use seriatim_txn::OnExists;

use super::divided::Compiled;
pub use super::kept::*;
pub use super::slots::*;
pub use super::values::*;
use super::{Declared, Value, call, interpret};
pub use crate::scan::{Limit, Steps};
use crate::{Abort, Committed, Database, Handle, IndexHandle, ReadTx, Scan, SchemaError, Session, TransactError, Tx};
pub use seriatim_catalog::watch::unwatched;

pub(crate) type CallByName = fn(&mut Session, &Value) -> Result<Committed<Value>, TransactError>;

/// Finds a procedure's tables and notes the columns of its operations.
type MakeHandles = fn(&Database, &[ColumnUse]) -> Result<Box<dyn Any + Send + Sync>, SchemaError>;

/// A declared procedure without its type.
pub struct Erased {
    pub(crate) name: &'static str,
    pub(crate) id: TypeId,
    pub(crate) schedules: bool,
    pub(crate) told: &'static [ir::OperationId],
    pub(crate) declaration: fn() -> ir::Procedure,
    pub(crate) handles: MakeHandles,
    pub(crate) call_by_name: CallByName,
    pub(crate) interpret_by_name: CallByName,
    pub(crate) compiled: Compiled,
}

impl Erased {
    pub(crate) fn of<P: Declared>() -> Erased {
        Erased {
            name: P::NAME,
            id: TypeId::of::<P>(),
            schedules: P::SCHEDULES,
            told: P::TOLD,
            declaration: P::declaration,
            handles: |database, columns| {
                let mut handles = P::handles(database)?;
                P::set_columns(&mut handles, columns);
                Ok(Box::new(handles))
            },
            call_by_name: call::by_name::<P>,
            interpret_by_name: interpret::by_name::<P>,
            compiled: Compiled::of::<P>(),
        }
    }
}

/// The transaction, for all that is not an operation of [`Operations`].
#[inline(always)]
pub fn tx<O: Operations>(operations: &O) -> &Tx {
    Tx::of(operations.core())
}

/// The operations of a transaction of any kind.
#[inline(always)]
pub fn operations(tx: &Tx) -> &TxCore {
    &tx.core
}

/// Updates a row, if there is one. The closure leaves its value in a variable of the caller's: passed up through results of options
/// of results, a large value would be copied at every step. The closure's abort is the transaction's: the caller passes it on.
///
/// # Errors
/// As [`Tx::update`]; the closure's own.
#[inline(always)]
pub fn update<O: Operations, T: Table>(
    operations: &O,
    table: &Handle<T>,
    key: &T::Key,
    columns: ColumnUse,
    change: impl FnOnce(&mut T::Update<'_>) -> Result<(), Abort>,
) -> Result<(), Abort> {
    let mut result = Ok(());
    key.encode(|key| {
        operations.change_at(&table.set, key, columns, |writer| {
            let mut update = T::update(writer);
            result = change(&mut update);
            unless_failed(&result, T::finish(update))
        })
    })?;
    result
}

/// Inserts a row.
///
/// # Errors
/// As [`Tx::insert`].
#[inline]
pub fn insert<O: Operations, T: Table>(operations: &O, table: &Handle<T>, row: &T) -> Result<(), Abort> {
    let set = &table.set;
    row.key().encode(|key| match operations.insert_at(set, key, |writer| row.encode(writer), OnExists::Refuse)? {
        true => Ok(()),
        false => Err(operations.core().duplicate(&set.primary, key)),
    })
}

/// The first wave of fetching a row.
#[inline(always)]
pub fn prefetch<O: Operations, T: Table>(operations: &O, table: &Handle<T>, key: &T::Key) {
    key.encode(|key| operations.prefetch_at(&table.set, key));
}

/// As [`ReadTx::get`], of these columns.
///
/// # Errors
/// As there.
#[inline(always)]
pub fn get<'t, O: Operations, T: Table>(
    operations: &'t O,
    table: &Handle<T>,
    key: &T::Key,
    columns: ColumnSet,
) -> Result<Option<T::Row<'t>>, Abort> {
    let row = key.encode(|key| operations.get_at(&table.set, key, columns))?;
    // SAFETY: the access rule of `tx`: what `operations` is of cannot end while it is borrowed.
    Ok(row.map(|row| T::row(unsafe { RowRef::from_raw(row.as_ptr()) }.only(columns))))
}

/// As [`ReadTx::require`], of these columns.
///
/// # Errors
/// As there.
#[inline(always)]
pub fn require<'t, O: Operations, T: Table>(
    operations: &'t O,
    table: &Handle<T>,
    key: &T::Key,
    columns: ColumnSet,
) -> Result<T::Row<'t>, Abort> {
    match get(operations, table, key, columns)? {
        Some(row) => Ok(row),
        None => Err(tx(operations).missing(table, key)),
    }
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
