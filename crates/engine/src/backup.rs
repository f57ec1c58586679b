//! Copies of database directories, and their verification. A copy can be taken while the database is in use, by this process or
//! another: it is consistent, and holds all that was acknowledged before it began. A copy is a database directory itself.
//!
//! `seriatim_redo::backup` says why.
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
use std::sync::PoisonError;

use seriatim_base::disk::{self, Disk, DiskHold};
use seriatim_redo::backup as copies;

use crate::durability::lock_to_read;
use crate::{Engine, OpenError, StorageError};

/// Told bytes done, and bytes in all.
pub type Progress<'a> = dyn Fn(u64, u64) + 'a;

/// What a copy consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Bytes of checkpoint and log.
    pub bytes: u64,
    /// How often it was begun: anew when another process took a checkpoint of the database meanwhile.
    pub attempts: usize,
    /// The newest epoch that it holds.
    pub durable_epoch: u64,
}

/// What a directory was found to hold, without fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Rows of the checkpoint.
    pub checkpoint_rows: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Batches of the log.
    pub batches: u64,
    /// Entries of the log, also such as a recovery leaves out.
    pub entries: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// The newest epoch that a recovery keeps.
    pub durable_epoch: u64,
    /// What is worth knowing and no fault, in words: a torn tail, say.
    pub notices: Vec<String>,
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

/// Copies the database in `from`, which another process may have open, into the directory `to`, which is new or empty. The copy is
/// verified. `Database::backup` does the same from within.
///
/// # Errors Where there is no database, or `to` is no new or empty directory outside of it; damage; what the file
/// system says, also that the database was busy: it changed each time that the copy was begun.
pub fn take(from: impl AsRef<Path>, to: impl AsRef<Path>, progress: &Progress<'_>) -> Result<Copied, StorageError> {
    let (disk, from) = (disk::real(), from.as_ref());
    let _held = hold(disk.as_ref(), from)?;
    copies::backup(disk.as_ref(), from, to.as_ref(), progress).map(Copied::from)
}

/// Has a directory be the same for as long as it is read; `None` where there is none, which is said later.
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
/// As [`take`]; nothing is copied from a directory that is damaged.
pub fn restore(from: impl AsRef<Path>, to: impl AsRef<Path>, progress: &Progress<'_>) -> Result<Copied, StorageError> {
    let (disk, from) = (disk::real(), from.as_ref());
    let _held = hold(disk.as_ref(), from)?;
    copies::restore(disk.as_ref(), from, to.as_ref(), progress).map(Copied::from)
}

/// Reads a whole database directory that nobody has open, and verifies every checksum.
///
/// # Errors
/// The first fault found, as [`StorageError::Corrupt`]; where there is no database; what the file system says, also that somebody
/// has it open.
pub fn verify(directory: impl AsRef<Path>, progress: &Progress<'_>) -> Result<Verified, StorageError> {
    verify_on(disk::real().as_ref(), directory.as_ref(), progress)
}

/// As [`verify`], on another disk.
#[doc(hidden)]
pub fn verify_on(disk: &dyn Disk, directory: &Path, progress: &Progress<'_>) -> Result<Verified, StorageError> {
    // Where there is no directory that is said below.
    let _lock = match lock_to_read(disk, directory) {
        Err(OpenError::Locked { .. }) => {
            let problem = format!("{} is open: close it, or verify a backup of it", directory.display());
            return Err(StorageError::io("verifying a database")(Error::new(ErrorKind::ResourceBusy, problem)));
        }
        locked => locked.ok(),
    };
    copies::verify(disk, directory, progress).map(Verified::from)
}

impl Engine {
    /// Copies the database into the directory `to`, which is new or empty, while transactions go on. Checkpoints wait
    /// until it is done, and so does closing the database. `None` in memory, and where the directory was only looked
    /// at.
    ///
    /// # Errors
    /// As [`take`]; that the log has stopped, or that what is committed was not durable in time.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<Option<Copied>, StorageError> {
        let Some(persistence) = &self.inner().persistence else { return Ok(None) };
        self.inner().check_process()?;
        if !persistence.flush(self.inner().options.wait_max)? {
            let problem = "the disk did not take within the bound of waits what the copy should hold: try again";
            return Err(StorageError::io("backing up")(Error::new(ErrorKind::TimedOut, problem)));
        }
        // Until it is done nothing that it copies is deleted.
        let _no_checkpoint = persistence.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
        // A database that was closed while this waited has given its directory back.
        if persistence.is_closing() {
            return Err(StorageError::Closed);
        }
        let (home, manifest) = (persistence.home(), persistence.manifest_now());
        let copied = copies::backup_open(home.disk.as_ref(), &home.directory, &manifest, to.as_ref(), &|_, _| {});
        copied.map(|copied| Some(copied.into()))
    }
}
