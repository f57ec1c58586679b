//! Operations of procedures, compiled for a type of worker.
//!
//! A procedure's body is compiled once for any worker, and once for each protocol of
//! [`for_each_lean_protocol`]. There an operation is a direct call that knows the worker's type and the key's
//! class. These operations omit checks that a registered procedure does not need. Its tables are of its
//! database, and it is no explicit transaction. It does not use the transaction inside an update, and a panic
//! there is caught outside. Recorded histories and watched executions use the general kind. Each attempt
//! chooses its kind once.

use std::any::TypeId;
use std::ptr::NonNull;

use seriatim_catalog::{ColumnSet, ColumnUse, Key, OutOfMemory, RowWriter};
use seriatim_txn::{OnExists, Protocol, RowPtr, Staged, Table, Worker};

use crate::error::Abort;
use crate::table::TableSet;
use crate::tx::{OutOfLineValues, TxCore};

/// The operations whose code differs. All others are those of [`Operations::core`].
pub trait Operations {
    /// The transaction.
    fn core(&self) -> &TxCore;

    /// As [`TxCore::get_at`].
    ///
    /// # Errors
    /// As there.
    fn get_at(&self, set: &TableSet, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, Abort>;

    /// As [`TxCore::change_at`].
    ///
    /// # Errors
    /// As there.
    fn change_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
        change: impl FnOnce(RowWriter<'_>) -> ColumnSet,
    ) -> Result<(), Abort>;

    /// As [`TxCore::insert_at`].
    ///
    /// # Errors
    /// As there.
    fn insert_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), OutOfMemory>,
        exists: OnExists,
    ) -> Result<bool, Abort>;

    /// The first wave of a prefetch of the row with this key: [`TxCore::begin_prefetch`].
    fn prefetch_at(&self, set: &TableSet, key: Key<'_>);
}

impl Operations for TxCore {
    #[inline(always)]
    fn core(&self) -> &TxCore {
        self
    }

    #[inline]
    fn get_at(&self, set: &TableSet, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, Abort> {
        self.get_at(set, key, columns)
    }

    #[inline]
    fn change_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
        change: impl FnOnce(RowWriter<'_>) -> ColumnSet,
    ) -> Result<(), Abort> {
        self.change_at(set, key, columns, change)
    }

    #[inline]
    fn insert_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), OutOfMemory>,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        self.insert_at(set, key, encode, exists)
    }

    #[inline]
    fn prefetch_at(&self, set: &TableSet, key: Key<'_>) {
        // The tables of procedures belong to their database, and their calls need not be announced.
        self.prefetch_at(set, key);
    }
}

/// The body of an attempt of a procedure, for either kind of operations.
pub trait Body {
    /// The body's result.
    type Output;

    /// Runs the body.
    ///
    /// # Errors
    /// Its own abort; a conflict.
    fn run<O: Operations>(&self, operations: &O) -> Result<Self::Output, Abort>;
}

/// Calls a macro with `Variant => protocol` for the protocols for which procedures are compiled. Each adds the
/// code of all its procedures once more to an application.
macro_rules! for_each_lean_protocol {
    ($callback:path) => {
        $callback! {
            Dbx => seriatim_protocol::dbx::Dbx,
            DbxTc => seriatim_protocol::dbx_tc::DbxTc,
            Silo => seriatim_protocol::silo::Silo,
            Partitioned => seriatim_protocol::partitioned::Partitioned,
        }
    };
}

macro_rules! lean {
    ($($variant:ident => $protocol:path,)*) => {
        /// The type of a database's workers, if procedures are compiled for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum LeanWorker {
            $(#[doc = concat!("Of [`", stringify!($protocol), "`].")] $variant,)*
        }

        impl LeanWorker {
            /// This type, if procedures are compiled for it.
            pub(crate) fn of(worker: TypeId) -> Option<LeanWorker> {
                $(if worker == TypeId::of::<<$protocol as Protocol>::Worker>() {
                    return Some(LeanWorker::$variant);
                })*
                None
            }
        }

        impl TxCore {
            /// Runs a body in the open attempt, with the operations compiled for its worker if there are any.
            ///
            /// # Errors
            /// As [`Body::run`].
            #[inline]
            pub fn run_body<B: Body>(&self, body: &B) -> Result<B::Output, Abort> {
                match self.lean {
                    $(Some(LeanWorker::$variant) => {
                        let worker = NonNull::from(self.worker()).cast();
                        body.run(&Lean::<<$protocol as Protocol>::Worker> { core: self, worker })
                    })*
                    None => body.run(self),
                }
            }
        }
    };
}
for_each_lean_protocol!(lean);

/// An attempt of a procedure whose worker is a `W`.
pub(crate) struct Lean<'t, W> {
    core: &'t TxCore,
    /// The worker of the lease, which lasts as long as the attempt.
    worker: NonNull<W>,
}

impl<W: Worker> Lean<'_, W> {
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    fn worker(&self) -> &mut W {
        // SAFETY: access rule 1 of `tx`; the transaction noted the type of its database's workers.
        unsafe { &mut *self.worker.as_ptr() }
    }

    #[inline(always)]
    fn read(&self, table: &Table, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, Abort> {
        self.core.count_operation()?;
        match self.worker().read(table, key.anew(), columns) {
            Ok(row) => Ok(row),
            Err(stop) => {
                let key = key.anew();
                self.core.retry_or_stop(stop, move |worker| worker.read(table, key.anew(), columns))
            }
        }
    }

    /// Keys of one word go by register. One copy of this code for all tables stays in the instruction cache.
    #[inline(never)]
    fn read_word(&self, table: &Table, key: u64, columns: ColumnSet) -> Result<Option<RowPtr>, Abort> {
        self.read(table, Key::Word8(key), columns)
    }

    #[inline(never)]
    fn read_any(&self, table: &Table, key: &Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, Abort> {
        self.read(table, *key, columns)
    }

    /// The private row version of the row to be changed.
    #[inline(always)]
    fn update(&self, table: &Table, key: Key<'_>, columns: ColumnUse) -> Result<Option<RowPtr>, Abort> {
        self.core.count_operation()?;
        let rows = match self.worker().update(table, key.anew(), columns) {
            Ok(rows) => rows,
            Err(stop) => {
                let key = key.anew();
                self.core.retry_or_stop(stop, move |worker| worker.update(table, key.anew(), columns))?
            }
        };
        Ok(rows.map(|rows| rows.after))
    }

    #[inline(never)]
    fn update_word(&self, table: &Table, key: u64, columns: ColumnUse) -> Result<Option<RowPtr>, Abort> {
        self.update(table, Key::Word8(key), columns)
    }

    #[inline(never)]
    fn update_any(&self, table: &Table, key: &Key<'_>, columns: ColumnUse) -> Result<Option<RowPtr>, Abort> {
        self.update(table, *key, columns)
    }

    #[inline(never)]
    fn stage(&self, table: &Table) -> Result<Staged, Abort> {
        self.core.count_operation()?;
        match self.worker().stage(table) {
            Ok(staged) => Ok(staged),
            Err(stop) => self.core.retry_or_stop(stop, |worker| worker.stage(table)),
        }
    }

    #[inline(never)]
    fn prefetch_word(&self, table: &Table, key: u64) {
        self.worker().prefetch(table, Key::Word8(key));
    }
}

impl<W: Worker> Operations for Lean<'_, W> {
    #[inline(always)]
    fn core(&self) -> &TxCore {
        self.core
    }

    #[inline(always)]
    fn get_at(&self, set: &TableSet, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, Abort> {
        match key {
            _ if set.cluster.is_on() => self.core.get_at(set, key, columns),
            Key::Word8(key) => self.read_word(&set.primary, key, columns),
            key => self.read_any(&set.primary, &key, columns),
        }
    }

    #[inline(always)]
    fn change_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
        change: impl FnOnce(RowWriter<'_>) -> ColumnSet,
    ) -> Result<(), Abort> {
        let row = if set.is_plain_for(columns) {
            match key {
                Key::Word8(key) => self.update_word(&set.primary, key, columns)?,
                key => self.update_any(&set.primary, &key, columns)?,
            }
        } else if let Some(row) = self.core.own_row(set, key) {
            self.core.count_operation()?;
            Some(row)
        } else {
            // A run must be copied, or index entries maintained: the general operation does it.
            return self.core.change_at(set, key, columns, change);
        };
        if let Some(row) = row {
            let mut out_of_line_values = OutOfLineValues::of(self.core, set);
            // SAFETY: a private row version of the table's layout, which is not read before the body's next operation.
            change(unsafe { RowWriter::for_update(row.as_ptr(), &mut out_of_line_values) }.only(columns.either()));
        }
        Ok(())
    }

    #[inline(always)]
    fn insert_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), OutOfMemory>,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        let mut out_of_line_values = OutOfLineValues::of(self.core, set);
        if !set.is_plain() {
            let Some(row) = self.core.append_place(set, key) else {
                return self.core.insert_at(set, key, encode, exists);
            };
            self.core.count_operation()?;
            // SAFETY: a zeroed row of the table's layout, which has no fixed part; private until the next operation.
            let mut writer = unsafe { RowWriter::for_insert(row, std::ptr::null_mut(), &mut out_of_line_values) };
            return match encode(&mut writer) {
                Ok(()) => {
                    self.core.end_append(key);
                    Ok(true)
                }
                Err(OutOfMemory) => Err(self.core.out_of_memory()),
            };
        }
        let staged = self.stage(&set.primary)?;
        // SAFETY: a staged row is private, zeroed, and of the table's layout.
        let mut writer =
            unsafe { RowWriter::for_insert(staged.row.as_ptr(), staged.fixed.as_ptr(), &mut out_of_line_values) };
        match encode(&mut writer) {
            Ok(()) => self.core.insert_row(&set.primary, key, staged, exists),
            Err(OutOfMemory) => Err(self.core.discard_row(&set.primary, staged)),
        }
    }

    #[inline(always)]
    fn prefetch_at(&self, set: &TableSet, key: Key<'_>) {
        match key {
            _ if set.cluster.is_on() => self.core.prefetch_at(set, key),
            Key::Word8(key) => self.prefetch_word(&set.primary, key),
            key => self.worker().prefetch(&set.primary, key),
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_txn::Mode;

    use super::*;
    use crate::tx::Origin;
    use crate::{Runner, Settings, available_protocols};

    /// Reports which kind of operations runs it.
    struct Kind;

    impl Body for Kind {
        type Output = &'static str;

        fn run<O: Operations>(&self, _: &O) -> Result<&'static str, Abort> {
            Ok(std::any::type_name::<O>())
        }
    }

    fn kind(settings: Settings) -> &'static str {
        let engine = settings.open().expect("a protocol of this name");
        let mut runner: Runner = engine.runner();
        runner.run(Mode::ReadWrite, Origin::Procedure, |core| core.run_body(&Kind)).expect("no conflict").value
    }

    #[test]
    fn a_body_runs_by_the_operations_of_its_worker_unless_it_is_recorded() {
        for info in available_protocols() {
            let settings = Settings { protocol: info.name.to_owned(), ..Settings::default() };
            let is_lean = kind(settings.clone()).contains("Lean");
            assert_eq!(is_lean, ["dbx", "dbx-tc", "silo", "partitioned"].contains(&info.name), "{}", info.name);
            let recorded = kind(Settings { record_history: true, ..settings });
            assert!(!recorded.contains("Lean"), "{}", info.name);
        }
    }
}
