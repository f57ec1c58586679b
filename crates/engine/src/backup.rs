//! Copies of database directories, and their verification. A copy can be taken while this process or another
//! uses the database. It is consistent, and contains all commits that were acknowledged before it began. A copy
//! is itself a database directory.
//!
//! The argument is in `seriatim_redo::backup`.
//!
//! ```
//! use seriatim::{Database, Table, backup};
//!
//! # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = std::env::temp_dir().join(format!("seriatim-doc-backup-{}", std::process::id()));
//! let db = Database::open(home.join("db"))?;
//! let counters = db.create::<Counter>()?;
//! db.session().transact(|tx| tx.insert(&counters, &Counter { id: 1, n: 41 }))?;
//! db.backup(home.join("copy"))?;
//!
//! assert!(backup::verify(home.join("copy"), &|_, _| {})?.entries > 0);
//! assert_eq!(backup::tables(home.join("copy"))?, [Counter::definition()]);
//! backup::restore(home.join("copy"), home.join("elsewhere"), &|_, _| {})?;
//! let restored = Database::open(home.join("elsewhere"))?;
//! let counters = restored.table::<Counter>()?;
//! let n = restored.session().snapshot(|tx| Ok(tx.get(&counters, &1)?.map(|counter| counter.n())))?;
//! assert_eq!(*n, Some(41));
//! # drop((db, restored));
//! # std::fs::remove_dir_all(home)?;
//! # Ok(())
//! # }
//! ```

use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use seriatim_base::disk::{self, Disk, DiskHold};
use seriatim_catalog::{TableDef, Value};
use seriatim_redo::backup as copies;
pub use seriatim_redo::backup::{Damaged, Lost};

use crate::durability::lock_to_read;
use crate::settings::MissingRows;
use crate::{DatabaseLocation, Durability, DynHandle, Engine, OpenError, Settings, StorageError, TransactError};

/// Called with the bytes done and the bytes in all.
pub type Progress<'a> = dyn Fn(u64, u64) + 'a;

/// The contents of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Bytes of checkpoint and log.
    pub bytes: u64,
    /// How often it was begun. It begins again if another process took a checkpoint of the database meanwhile.
    pub attempts: usize,
    /// The newest epoch that it contains.
    pub durable_epoch: u64,
}

/// The contents of a directory without faults.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Rows of the checkpoint.
    pub checkpoint_rows: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Batches of the log.
    pub batches: u64,
    /// Entries of the log, including those that a recovery ignores.
    pub entries: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// The newest epoch that a recovery keeps.
    pub durable_epoch: u64,
    /// Findings that are not faults, in words, for instance a torn tail.
    pub notices: Vec<String>,
}

/// A copy of a damaged database up to the first damage.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Salvaged {
    /// The copy.
    pub copied: Copied,
    /// The newest epoch that was durable, as far as the undamaged files say. If the log is damaged, the copy lacks the
    /// epochs after [`Copied::durable_epoch`] up to it.
    pub known_epoch: u64,
    /// The damage, the first of each log; none if the copy is whole.
    pub damage: Vec<Damaged>,
    /// What the copy lacks of the log, by file.
    pub lost: Vec<Lost>,
    /// Rows in damaged blocks of the checkpoint; a run of a clustered table is one. The copy lacks those that the log
    /// does not have as a whole.
    pub lost_rows: u64,
    /// How many of these the log changes: the copy certainly lacks them.
    pub changed_rows: u64,
}

impl From<copies::Copied> for Copied {
    fn from(copied: copies::Copied) -> Copied {
        let copies::Copied { bytes, attempts, durable } = copied;
        Copied { bytes, attempts, durable_epoch: durable.0 }
    }
}

impl From<copies::Verified> for Verified {
    fn from(verified: copies::Verified) -> Verified {
        Verified {
            checkpoint_rows: verified.rows,
            checkpoint_bytes: verified.checkpoint_bytes,
            batches: verified.batches,
            entries: verified.entries,
            log_bytes: verified.log_bytes,
            durable_epoch: verified.durable.0,
            notices: verified.notices,
        }
    }
}

/// Copies the database in `from`, which another process may have open, into the directory `to`, which is new or
/// empty. The copy is verified. `Database::backup` does the same for an open database.
///
/// # Errors
/// There is no database; `to` is not a new or empty directory outside of it; damage; an error of the file
/// system. Also a busy database, which changed each time that the copy was begun.
pub fn take(from: impl AsRef<Path>, to: impl AsRef<Path>, progress: &Progress<'_>) -> Result<Copied, StorageError> {
    let (disk, from) = (disk::real(), from.as_ref());
    let _held = hold(disk.as_ref(), from)?;
    copies::backup(disk.as_ref(), from, to.as_ref(), progress).map(Copied::from)
}

/// The declarations of the tables of a database, which another process may have open. Rows are not read.
///
/// # Errors
/// There is no database; damage; an error of the file system; a busy database, as in [`take`].
pub fn tables(directory: impl AsRef<Path>) -> Result<Vec<TableDef>, StorageError> {
    let (disk, directory) = (disk::real(), directory.as_ref());
    let _held = hold(disk.as_ref(), directory)?;
    copies::tables(disk.as_ref(), directory)
}

/// Keeps a directory from being replaced while it is read. `None` if there is none: the caller reports that.
fn hold(disk: &dyn Disk, from: &Path) -> Result<Option<Box<dyn DiskHold>>, StorageError> {
    match disk.hold(from) {
        Ok(held) => Ok(Some(held)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(StorageError::io("reading a database")(error)),
    }
}

/// Verifies the copy in `from`, then copies it into the directory `to`, which is new or empty.
///
/// # Errors
/// As [`take`]; nothing is copied from a directory that is damaged, or that a process has open.
pub fn restore(from: impl AsRef<Path>, to: impl AsRef<Path>, progress: &Progress<'_>) -> Result<Copied, StorageError> {
    restore_on(disk::real().as_ref(), from.as_ref(), to.as_ref(), progress)
}

/// As [`restore`], on another disk.
#[doc(hidden)]
pub fn restore_on(disk: &dyn Disk, from: &Path, to: &Path, progress: &Progress<'_>) -> Result<Copied, StorageError> {
    let _lock = lock_closed(disk, from, "restoring a database", "restore a backup of it")?;
    let _held = hold(disk, from)?;
    copies::restore(disk, from, to, progress).map(Copied::from)
}

/// Copies the database in `from`, which no process has open, up to its first damage into the directory `to`, which is
/// new or empty. The copy is the state at the end of an epoch, with everything up to it and nothing later. `from` is
/// not changed.
///
/// If only the checkpoint is damaged there is no such state. The copy then has the rows that can be read, each as it
/// was at the end of the log ([`Salvaged::lost_rows`]). They are loaded into memory twice.
///
/// # Errors
/// [`StorageError::Corrupt`] if the manifest is damaged, the tables of the checkpoint, or the log that the checkpoint
/// needs. A database that is open; others as [`take`].
pub fn salvage(from: impl AsRef<Path>, to: impl AsRef<Path>, progress: &Progress<'_>) -> Result<Salvaged, OpenError> {
    let (disk, from, to) = (disk::real(), from.as_ref(), to.as_ref());
    let _lock = lock_closed(disk.as_ref(), from, "salvaging a database", "copy it by a backup")?;
    let _held = hold(disk.as_ref(), from)?;
    match copies::salvage(disk.as_ref(), from, to, progress) {
        Ok(copies::Salvaged { copied, known, damage, lost }) => {
            let (lost_rows, changed_rows) = (0, 0);
            Ok(Salvaged { copied: copied.into(), known_epoch: known.0, damage, lost, lost_rows, changed_rows })
        }
        Err(copies::NotSalvaged { is_checkpoint: true, .. }) => {
            let was_there = disk.find(to).is_ok_and(|found| found.is_some());
            salvage_rows(from, to).inspect_err(|_| {
                // What is there of the copy is no database to be taken for one. The first error says more.
                let _ = if was_there { empty(disk.as_ref(), to) } else { disk.remove_dir_all(to) };
            })
        }
        Err(copies::NotSalvaged { error, .. }) => Err(error.into()),
    }
}

fn empty(disk: &dyn Disk, directory: &Path) -> Result<(), Error> {
    for found in disk.list(directory)? {
        let path = directory.join(&found.name);
        if found.is_dir { disk.remove_dir_all(&path)? } else { disk.remove_file(&path)? }
    }
    Ok(())
}

/// Writes the rows that can be read of a database whose checkpoint is damaged into a new one.
fn salvage_rows(from: &Path, to: &Path) -> Result<Salvaged, OpenError> {
    let missing = Arc::new(Mutex::new(MissingRows::default()));
    let location =
        |directory: &Path, inspect| Some(DatabaseLocation { directory: directory.to_owned(), inspect, disk: None });
    let settings =
        Settings { location: location(from, true), salvage: Some(Arc::clone(&missing)), ..Settings::default() };
    let old = settings.open()?;
    let settings =
        Settings { location: location(to, false), durability: Some(Durability::Async), ..Settings::default() };
    let new = settings.open()?;
    let failed = |error: &dyn std::fmt::Display| OpenError::Invalid(format!("the rows cannot be copied: {error}"));
    let tables: Result<Vec<DynHandle>, _> = old.table_names().iter().map(|name| old.open_dyn(name)).collect();
    let tables = tables.map_err(|error| failed(&error))?;
    let declared = tables.iter().map(|table| table.definition().clone()).collect();
    let copies = new.declare_all(declared).map_err(|error| failed(&error))?;
    let mut runner = new.runner();
    for (table, copy) in tables.iter().zip(&copies) {
        let insert = |rows: Vec<Vec<Value>>| loop {
            match runner.transact(|tx| rows.iter().try_for_each(|row| tx.insert_dyn(copy, row))) {
                Err(TransactError::DiskBehind { .. }) if new.flush().is_ok() => {}
                inserted => return inserted.map(drop),
            }
        };
        old.each_row(table, &mut { insert }).map_err(|error| failed(&error))?;
    }
    drop((runner, copies));
    new.flush().map_err(|error| failed(&error))?;
    let durable_epoch = new.durable_epoch().map_or(0, |epoch| epoch.0);
    new.close().map_err(|error| failed(&error))?;
    let known_epoch = old.recovery().map_or(0, |recovery| recovery.durable_epoch);
    let MissingRows { damage, rows, changed } = missing.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let copied = Copied { bytes: 0, attempts: 1, durable_epoch };
    Ok(Salvaged { copied, known_epoch, damage, lost: Vec::new(), lost_rows: rows, changed_rows: changed })
}

/// Locks a directory that no process has open, so that none opens it while it is read. A directory that is open
/// changes, and would look damaged. `None` if it cannot be locked: the caller reports a missing directory.
///
/// # Errors
/// The directory is open.
fn lock_closed(
    disk: &dyn Disk,
    directory: &Path,
    what: &'static str,
    instead: &str,
) -> Result<Option<impl Sized>, StorageError> {
    match lock_to_read(disk, directory) {
        Err(OpenError::Locked { .. }) => {
            let problem = format!("{} is open: close it, or {instead}", directory.display());
            Err(StorageError::io(what)(Error::new(ErrorKind::ResourceBusy, problem)))
        }
        locked => Ok(locked.ok()),
    }
}

/// Reads a whole database directory that no process has open, and verifies every checksum.
///
/// # Errors
/// The first fault found, as [`StorageError::Corrupt`]; a directory without a database; an error of the file
/// system, or a database that is open.
pub fn verify(directory: impl AsRef<Path>, progress: &Progress<'_>) -> Result<Verified, StorageError> {
    verify_on(disk::real().as_ref(), directory.as_ref(), progress)
}

/// As [`verify`], on another disk.
#[doc(hidden)]
pub fn verify_on(disk: &dyn Disk, directory: &Path, progress: &Progress<'_>) -> Result<Verified, StorageError> {
    let _lock = lock_closed(disk, directory, "verifying a database", "verify a backup of it")?;
    copies::verify(disk, directory, progress).map(Verified::from)
}

impl Engine {
    /// Copies the database into the directory `to`, which is new or empty, while transactions continue.
    /// Checkpoints, and closing the database, wait for the copy. `None` in memory, and for a directory that is
    /// open for inspection.
    ///
    /// # Errors
    /// As [`take`]; the log has stopped, or the commits were not durable in time.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<Option<Copied>, StorageError> {
        let Some(persistence) = &self.inner().persistence else { return Ok(None) };
        self.inner().check_process()?;
        if !persistence.flush(self.inner().options.wait_max)? {
            let problem = "the disk did not take within the bound of waits what the copy should hold: try again";
            return Err(StorageError::io("backing up")(Error::new(ErrorKind::TimedOut, problem)));
        }
        // No file of the copy may be deleted meanwhile.
        let _no_checkpoint = persistence.without_checkpoint();
        // If the database was closed while this waited, its directory is unlocked.
        if persistence.is_closing() {
            return Err(StorageError::Closed);
        }
        let (home, manifest) = (persistence.home(), persistence.manifest_now());
        let copied = copies::backup_open(home.disk.as_ref(), &home.directory, &manifest, to.as_ref(), &|_, _| {});
        copied.map(|copied| Some(copied.into()))
    }
}
