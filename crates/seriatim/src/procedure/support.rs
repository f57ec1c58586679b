//! What the code that `#[procedure]` generates calls. Not for people: it may change with the macro.

use std::any::{Any, TypeId};

use seriatim_catalog::{OutOfMemory, Table};
use seriatim_procedure::ir;

pub use super::kept::*;
pub use super::slots::*;
pub use super::values::*;
use super::{Datum, Declared, call, interpret};
use crate::{Abort, Committed, Database, Handle, SchemaError, Session, TransactError, Tx};
pub use seriatim_catalog::watch::unwatched;

pub(crate) type CallByName = fn(&mut Session, &Datum) -> Result<Committed<Datum>, TransactError>;

/// A declared procedure without its type.
pub struct Erased {
    pub(crate) name: &'static str,
    pub(crate) id: TypeId,
    pub(crate) schedules: bool,
    pub(crate) declaration: fn() -> ir::Procedure,
    pub(crate) handles: fn(&Database) -> Result<Box<dyn Any + Send + Sync>, SchemaError>,
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
            handles: |database| Ok(Box::new(P::handles(database)?)),
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
    change: impl FnOnce(&mut T::Update<'_>) -> Result<(), Abort>,
) -> Result<(), Abort> {
    tx.try_change(table, key, change)
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
