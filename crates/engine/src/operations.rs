//! The operations of a transaction on encoded keys. Each has one implementation, compiled for each [`Path`] to a
//! worker.
//!
//! A [`TxCore`] reaches its worker through `dyn`, and looks at each operation for what only some transactions have
//! ([`Path::HOOKS`]). A procedure's body is compiled once for that, once for each protocol of
//! [`for_each_compiled_protocol`], and once for all others. In the latter two an operation knows the key's class, and
//! checks nothing else. The tables of a registered procedure are of its database, and it is no explicit transaction. It
//! does not use the transaction inside an update, and a panic there is caught outside. Recorded histories and watched
//! executions use the first kind. Each attempt chooses its kind once.

use std::any::TypeId;
use std::ptr::NonNull;

use seriatim_catalog::{ColumnSet, ColumnUse, Key, OutOfMemory, RowWriter};
use seriatim_procedure::plan::Kind;
use seriatim_txn::{OnExists, OpError, Protocol, RowPtr, Table, Updating, Worker};

use crate::error::Abort;
use crate::procedure::watch;
use crate::scan::Target;
use crate::table::TableSet;
use crate::tx::{Call, NotEncoded, TxCore, change_followed, change_row, insert};

/// A way to the worker of an open transaction.
pub trait Path {
    /// The worker.
    type Worker: Worker + ?Sized;

    /// Whether the transaction may be explicit, recorded or watched, use handles of other databases, or use itself
    /// inside the closure of an update. Otherwise operations look for none of these.
    const HOOKS: bool;

    /// The transaction.
    fn tx(&self) -> &TxCore;

    /// The worker.
    #[allow(clippy::mut_from_ref)]
    fn worker_mut(&self) -> &mut Self::Worker;
}

impl Path for TxCore {
    type Worker = dyn Worker;

    const HOOKS: bool = true;

    #[inline(always)]
    fn tx(&self) -> &TxCore {
        self
    }

    #[inline(always)]
    fn worker_mut(&self) -> &mut (dyn Worker + 'static) {
        self.worker()
    }
}

/// The operations that are compiled for a path. All others are those of [`TxCore`].
pub trait Operations: Path + Sized {
    /// The row at an encoded key, for the body, which reads these columns.
    ///
    /// # Errors
    /// A conflict; a handle of another database.
    #[inline(always)]
    fn get_at(&self, set: &TableSet, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, Abort> {
        match key {
            _ if !set.is_plain() => get_from_run(self, set, &key, columns),
            Key::Word8(key) if !Self::HOOKS => self.tx().found(get_word(self, set, key, columns)),
            key => get_any(self, set, &key, columns),
        }
    }

    /// The first row with a key between two keys, both included. `None` if there is no row, or it takes a scan to find
    /// it.
    ///
    /// # Errors
    /// A conflict.
    #[inline(always)]
    fn first_at(&self, set: &TableSet, (low, high): (Key<'_>, Key<'_>)) -> Result<Option<RowPtr>, Abort> {
        // Scans are recorded, watched, and know of runs.
        if Self::HOOKS || !set.is_plain() {
            return Ok(None);
        }
        first(self, &set.primary, &low, &high)
    }

    /// Updates the row at `key` by `change`, which reads and sets only these columns, and returns those that it
    /// set. `change` is not called if there is no such row.
    ///
    /// # Errors
    /// A conflict, a duplicate key of a unique index, a handle of another database.
    // `change` stores its result in the caller's frame: large results are not moved from function to function.
    #[inline(always)]
    fn change_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        columns: ColumnUse,
        change: impl FnOnce(RowWriter<'_>) -> ColumnSet,
    ) -> Result<(), Abort> {
        let tx = self.tx();
        let _call = enter(self, set)?;
        let rows = if set.is_plain_for(columns) && !(Self::HOOKS && tx.watching.get()) {
            match key {
                Key::Word8(key) if !Self::HOOKS => tx.found(update_word(self, set, key, columns))?,
                key => update_any(self, set, &key, columns)?,
            }
        } else if !Self::HOOKS
            && let Some(row) = tx.own_row(set, key)
        {
            count(self)?;
            Some(Updating { before: row, after: row })
        } else {
            return change_followed(self, set, key, columns, change);
        };
        match rows {
            Some(rows) => change_row(self, set, rows, columns, change).map(drop),
            None => Ok(()),
        }
    }

    /// Inserts the row that `encode` writes; `false` if the key exists and must not be replaced.
    ///
    /// # Errors
    /// A conflict, a duplicate key of a unique index, no memory.
    #[inline(always)]
    fn insert_at(
        &self,
        set: &TableSet,
        key: Key<'_>,
        encode: impl FnOnce(&mut RowWriter<'_>) -> Result<(), OutOfMemory>,
        exists: OnExists,
    ) -> Result<bool, Abort> {
        insert(self, set, key, |writer| encode(writer).map_err(NotEncoded::OutOfMemory), exists, false)
    }

    /// The first wave of a prefetch of these columns of the row with this key. Only a hint.
    #[inline(always)]
    fn prefetch_at(&self, set: &TableSet, key: Key<'_>, columns: ColumnSet) {
        match key {
            _ if !set.is_plain() => self.tx().prefetch_run(set, key),
            Key::Word8(key) => prefetch_word(self, &set.primary, key, columns),
            key => self.worker_mut().prefetch(&set.primary, key, columns),
        }
    }
}

impl<P: Path> Operations for P {}

/// Counts an operation: refuses it if the transaction has stopped, or is over. Without hooks the clock is looked at
/// only now and then.
#[inline(always)]
pub(crate) fn count<P: Path>(path: &P) -> Result<(), Abort> {
    path.tx().count_operation(P::HOOKS)
}

/// Begins an operation on a table: a call of the transaction, on a table of its database.
#[inline(always)]
pub(crate) fn enter<'t, P: Path>(path: &'t P, set: &TableSet) -> Result<Option<Call<'t>>, Abort> {
    if !P::HOOKS {
        return Ok(None);
    }
    path.tx().own(set)?;
    path.tx().call().map(Some)
}

/// Runs one operation of the worker. Refuses it if the transaction has stopped, waits if the protocol requires it, and
/// notes why the transaction stopped.
#[inline(always)]
pub(crate) fn operate<P: Path, R>(
    path: &P,
    mut operation: impl FnMut(&mut P::Worker) -> Result<R, OpError>,
) -> Result<R, Abort> {
    count(path)?;
    match operation(path.worker_mut()) {
        Ok(result) => Ok(result),
        Err(stop) => path.tx().retry_or_stop(stop, || operation(path.worker_mut())),
    }
}

/// The row of a table at an encoded key, of which these columns are read.
#[inline(always)]
pub(crate) fn read<P: Path>(
    path: &P,
    table: &Table,
    key: Key<'_>,
    columns: ColumnSet,
) -> Result<Option<RowPtr>, Abort> {
    // Copies of the key: a closure that refers to it would force it from registers into memory.
    count(path)?;
    let row = match path.worker_mut().read(table, key.anew(), columns) {
        Ok(row) => row,
        Err(stop) => {
            let key = key.anew();
            path.tx().retry_or_stop(stop, move || path.worker_mut().read(table, key.anew(), columns))?
        }
    };
    if P::HOOKS {
        path.tx().note(table, key, columns);
    }
    Ok(row)
}

#[inline(never)]
fn get_from_run<P: Path>(path: &P, set: &TableSet, key: &Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, Abort> {
    let _call = enter(path, set)?;
    let row = path.tx().read_row(set, *key, columns)?;
    if P::HOOKS { give(path.tx(), set, key, row) } else { Ok(row) }
}

/// Gives a row to the body.
#[inline(always)]
fn give(tx: &TxCore, set: &TableSet, key: &Key<'_>, row: Option<RowPtr>) -> Result<Option<RowPtr>, Abort> {
    let access = tx.watch(Kind::Get, set, Target::Rows, || watch::one(*key));
    tx.watch_row(access, row.map(|row| row.as_ptr().cast_const()), ColumnSet::EMPTY);
    row.map(|row| tx.lend(set, row)).transpose()
}

/// Keys of one word, and their rows, go by register. One copy of this code for all tables stays in the instruction
/// cache. [`TxCore::found`] says whether the operation was refused.
// All that calls a function is behind a tail call, so that this function saves few registers.
#[inline(never)]
fn get_word<P: Path>(path: &P, set: &TableSet, key: u64, columns: ColumnSet) -> Option<RowPtr> {
    let read = || path.worker_mut().read_prefetched(&set.primary, Key::Word8(key));
    path.tx().count_if_some(read).or_else(|| read_word(path, set, key, columns))
}

#[inline(never)]
fn read_word<P: Path>(path: &P, set: &TableSet, key: u64, columns: ColumnSet) -> Option<RowPtr> {
    read(path, &set.primary, Key::Word8(key), columns).ok().flatten()
}

#[inline(never)]
fn get_any<P: Path>(path: &P, set: &TableSet, key: &Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, Abort> {
    let _call = enter(path, set)?;
    let row = read(path, &set.primary, *key, columns)?;
    if P::HOOKS { give(path.tx(), set, key, row) } else { Ok(row) }
}

#[inline(never)]
fn first<P: Path>(path: &P, table: &Table, low: &Key<'_>, high: &Key<'_>) -> Result<Option<RowPtr>, Abort> {
    operate(path, |worker| worker.first(table, (*low, *high)))
}

/// The row to change, of a table of records whose update with this use of columns changes no index.
#[inline(always)]
fn update<P: Path>(path: &P, set: &TableSet, key: Key<'_>, columns: ColumnUse) -> Result<Option<Updating>, Abort> {
    let (tx, table) = (path.tx(), &*set.primary);
    if P::HOOKS {
        tx.writable()?;
    }
    count(path)?;
    let rows = match path.worker_mut().update(table, key.anew(), columns) {
        Ok(rows) => rows,
        Err(stop) => {
            let key = key.anew();
            tx.retry_or_stop(stop, move || path.worker_mut().update(table, key.anew(), columns))?
        }
    };
    if P::HOOKS {
        tx.note(table, key, columns.read());
        if rows.is_some() {
            tx.wrote(table, key);
        }
    }
    Ok(rows)
}

/// As [`get_word`], of the row to change.
#[inline(never)]
fn update_word<P: Path>(path: &P, set: &TableSet, key: u64, columns: ColumnUse) -> Option<Updating> {
    update(path, set, Key::Word8(key), columns).ok().flatten()
}

#[inline(never)]
fn update_any<P: Path>(path: &P, set: &TableSet, key: &Key<'_>, columns: ColumnUse) -> Result<Option<Updating>, Abort> {
    update(path, set, *key, columns)
}

#[inline(never)]
fn prefetch_word<P: Path>(path: &P, table: &Table, key: u64, columns: ColumnSet) {
    path.worker_mut().prefetch(table, Key::Word8(key), columns);
}

/// The body of an attempt of a procedure, for either kind of operations.
pub trait Body {
    /// The body's result.
    type Output;

    /// Runs the body, which leaves its result in `output`. A large result would be copied at every return.
    ///
    /// # Errors
    /// Its own abort; a conflict.
    fn run<O: Operations>(&self, operations: &O, output: &mut Option<Self::Output>) -> Result<(), Abort>;
}

/// Calls a macro with `Variant => protocol` for the protocols for which procedures are compiled. Each adds the
/// code of all its procedures once more to an application.
macro_rules! for_each_compiled_protocol {
    ($callback:path) => {
        $callback! {
            Dbx => seriatim_protocol::dbx::Dbx,
            DbxTc => seriatim_protocol::dbx_tc::DbxTc,
            Silo => seriatim_protocol::silo::Silo,
            Partitioned => seriatim_protocol::partitioned::Partitioned,
        }
    };
}

macro_rules! compiled {
    ($($variant:ident => $protocol:path,)*) => {
        /// The type of a database's workers, as the bodies of procedures are compiled for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum CompiledWorker {
            $(#[doc = concat!("Of [`", stringify!($protocol), "`].")] $variant,)*
            /// Of another protocol, behind a pointer.
            Other,
        }

        impl CompiledWorker {
            /// This type.
            pub(crate) fn of(worker: TypeId) -> CompiledWorker {
                $(if worker == TypeId::of::<<$protocol as Protocol>::Worker>() {
                    return CompiledWorker::$variant;
                })*
                CompiledWorker::Other
            }
        }

        impl TxCore {
            /// Runs a body in the open attempt, with the operations compiled for its worker unless it is watched or
            /// recorded.
            ///
            /// # Errors
            /// As [`Body::run`].
            #[inline]
            pub fn run_body<B: Body>(&self, body: &B, output: &mut Option<B::Output>) -> Result<(), Abort> {
                let Some(compiled) = self.compiled.filter(|_| !self.watching.get()) else {
                    return body.run(self, output);
                };
                let worker = NonNull::from(self.worker());
                match compiled {
                    $(CompiledWorker::$variant => {
                        let worker = worker.cast();
                        body.run(&Compiled::<<$protocol as Protocol>::Worker> { tx: self, worker }, output)
                    })*
                    CompiledWorker::Other => body.run(&Compiled::<dyn Worker> { tx: self, worker }, output),
                }
            }
        }
    };
}
for_each_compiled_protocol!(compiled);

/// The path to a worker that is a `W`, in an attempt of a procedure.
pub(crate) struct Compiled<'t, W: ?Sized> {
    tx: &'t TxCore,
    /// The worker of the lease, which lasts as long as the attempt.
    worker: NonNull<W>,
}

impl<W: Worker + ?Sized> Path for Compiled<'_, W> {
    type Worker = W;

    const HOOKS: bool = false;

    #[inline(always)]
    fn tx(&self) -> &TxCore {
        self.tx
    }

    #[inline(always)]
    fn worker_mut(&self) -> &mut W {
        // SAFETY: access rule 1 of `tx`; the transaction noted the type of its database's workers.
        unsafe { &mut *self.worker.as_ptr() }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use seriatim_catalog::{ColumnDef, ColumnType, RowRef, TableDef};
    use seriatim_htm::{Emulation, HtmMode};
    use seriatim_store::Direction;
    use seriatim_txn::Mode;

    use super::*;
    use crate::scan::RawScan;
    use crate::tx::Origin;
    use crate::{Runner, Settings, available_protocols, for_each_protocol, protocols};

    /// Reports which kind of operations runs it.
    struct KindOf;

    impl Body for KindOf {
        type Output = &'static str;

        fn run<O: Operations>(&self, _: &O, output: &mut Option<&'static str>) -> Result<(), Abort> {
            *output = Some(std::any::type_name::<O>());
            Ok(())
        }
    }

    fn kind(settings: Settings, watches: bool) -> &'static str {
        let engine = settings.open().expect("a protocol of this name");
        let mut runner: Runner = engine.runner();
        let mut kind = None;
        let run = |core: &TxCore| {
            core.watching.set(watches);
            core.run_body(&KindOf, &mut kind)
        };
        runner.run(Mode::ReadWrite, Origin::Procedure, run).expect("no conflict");
        kind.expect("the body ran")
    }

    #[test]
    fn a_body_runs_by_the_operations_of_its_worker_unless_it_is_recorded_or_watched() {
        for info in available_protocols() {
            let settings = Settings { protocol: info.name.to_owned(), ..Settings::default() };
            let path = kind(settings.clone(), false);
            let is_direct = ["dbx", "dbx-tc", "silo", "partitioned"].contains(&info.name);
            assert!(path.contains("Compiled"), "{}: {path}", info.name);
            assert_eq!(!path.contains("dyn"), is_direct, "{}: {path}", info.name);
            assert!(!kind(settings.clone(), true).contains("Compiled"), "{}", info.name);
            let recorded = kind(Settings { record_history: true, ..settings }, false);
            assert!(!recorded.contains("Compiled"), "{}", info.name);
        }
    }

    /// Proof that the caller may access what a transaction is going to access: the owner of a partition, for example.
    struct Guard;

    /// A path that only the holder of a guard has.
    struct Guarded<'g, W> {
        _guard: &'g Guard,
        path: Compiled<'g, W>,
    }

    impl<W: Worker> Path for Guarded<'_, W> {
        type Worker = W;

        const HOOKS: bool = false;

        fn tx(&self) -> &TxCore {
            self.path.tx
        }

        fn worker_mut(&self) -> &mut W {
            self.path.worker_mut()
        }
    }

    /// Writes and reads by operations that are compiled for the worker of `P`.
    fn run<P: Protocol>() {
        let htm = match P::INFO.opens_on(HtmMode::Auto) {
            true => HtmMode::Auto,
            false => HtmMode::Emulated(Emulation::default()),
        };
        let protocol = P::INFO.name.to_owned();
        let settings = Settings { protocol, htm, workers: 1, step_helpers: true, ..Settings::default() };
        let engine = settings.open().expect("a protocol of this name");
        let column = |name: &'static str| ColumnDef::new(name, ColumnType::U64);
        let table = TableDef::builder("cell").column(column("id")).column(column("value")).key(["id"]);
        let set = engine.create(table.finish().expect("a table")).expect("memory");
        let (places, guard) = (&set.layout.places, Guard);
        let body = |tx: &TxCore| {
            let path = Compiled::<P::Worker> { tx, worker: NonNull::from(tx.worker()).cast() };
            let path = Guarded { _guard: &guard, path };
            for id in 0..9u64 {
                let encode = |writer: &mut RowWriter<'_>| {
                    writer.set::<u64>(&places[0], id)?;
                    writer.set::<u64>(&places[1], 10 * id)
                };
                assert!(path.insert_at(&set, Key::Word8(id), encode, OnExists::Refuse)?);
                assert!(!path.insert_at(&set, Key::Word8(id), encode, OnExists::Refuse)?);
            }
            let change = |mut writer: RowWriter<'_>| {
                writer.set::<u64>(&places[1], 7).expect("it is no text");
                writer.dirty()
            };
            path.change_at(&set, Key::Word8(4), ColumnUse::ALL, change)?;
            assert!(tx.delete_at(&set, Key::Word8(3))?);
            let row = path.get_at(&set, Key::Word8(4), ColumnSet::ALL)?.expect("it was inserted");
            // SAFETY: a row of this table, readable until the transaction ends.
            assert_eq!(unsafe { RowRef::from_raw(row.as_ptr()) }.get::<u64>(&places[1]), 7);
            let scan = RawScan::new(tx, &set, Target::Rows, (&Bound::Unbounded, &Bound::Unbounded), Direction::Forward);
            assert_eq!(scan.count()?, 8);
            Ok(())
        };
        engine.runner().run(Mode::ReadWrite, Origin::Procedure, body).expect("it runs alone");
    }

    #[test]
    fn operations_can_be_compiled_for_the_worker_of_each_protocol_behind_a_guard() {
        let mut ran = 0;
        macro_rules! each {
            ($($protocol:ident => $type:path,)*) => {
                $({
                    run::<$type>();
                    ran += 1;
                })*
            };
        }
        for_each_protocol!(each);
        assert_eq!(ran, protocols().len());
    }
}
