//! Opens a database directory: lock, manifest, recovery, a new incarnation.
//!
//! Until the manifest is replaced at the end, only three things change in the directory. The ends of the logs
//! are overwritten with the same bytes, files that did not count are deleted, and segments appear that no
//! manifest names. So a crash meanwhile has the effect of no opening at all.
//!
//! The new manifest names the new incarnation, whose first segments exist by then. It also says where the log
//! of the previous incarnation ends, as if that had been closed. After that, all segments and their unused
//! parts that no recovery needs are deleted. So it does not matter how often a database is killed. The new
//! incarnation begins above every epoch that the log mentions, even in void parts, so TIDs are never reused.
//! Therefore one manifest must say both.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim_base::disk::{self, DirectoryState, Disk, DiskHold, DiskLock, Locking, sticky_errors};
use seriatim_base::{Epoch, rng};
use seriatim_redo::catalogue::Found;
use seriatim_redo::manifest::additions::{ADDITIONS, INDENTATION};
use seriatim_redo::manifest::{DatabaseId, Incarnation, LogEnd, MANIFEST, Manifest, NotWritten};
use seriatim_redo::{Log, LogError, LogOptions, LogStart, Logger, Writer, checkpoint, segment};
use seriatim_txn::UNSAID_MAX;

use super::epochs_left::{self, is_at_limit};
use super::recover::{Ends, Recovery, Source, look, new_tables, recover};
use super::reserve::Reserve;
use crate::engine::{Foundation, Tables};
use crate::error::{OpenError, StorageError};
use crate::settings::{DatabaseLocation, Settings};

/// The name of the file that is locked while a database is open.
const LOCK: &str = "LOCK";

/// A database directory that is open for writing. It remains the directory that was locked, until it is
/// unlocked, even if its path changes.
pub(crate) struct Home {
    pub(crate) disk: Arc<dyn Disk>,
    /// The canonical path at the opening, by which the disk holds the directory.
    pub(crate) directory: PathBuf,
    /// The contents of the manifest's file.
    manifest: Mutex<Manifest>,
    pub(super) reserve: Reserve,
    /// `None` once the database is closed.
    locks: Mutex<Option<Locks>>,
}

/// The directories of a database, held and locked. Its own directory is locked, and the directories of its logs. The
/// file `LOCK` is locked too, as older versions and some file systems lock only that.
struct Locks {
    /// By canonical path.
    directories: BTreeMap<PathBuf, Option<Box<dyn DiskLock>>>,
    _file: Option<Box<dyn DiskLock>>,
    /// By the paths in use.
    holds: Vec<Box<dyn DiskHold>>,
}

impl Locks {
    /// Locks a database's directory. With [`Locking::Shared`], as far as possible: nothing is written, and
    /// files that cannot be opened are no error.
    ///
    /// # Errors
    /// [`OpenError::Locked`]; an error of the file system.
    fn of(disk: &dyn Disk, directory: &Path, how: Locking) -> Result<Locks, OpenError> {
        let mut locks = Locks { directories: BTreeMap::new(), _file: None, holds: Vec::new() };
        locks.add(disk, directory, how)?;
        locks._file = lock(disk, &directory.join(LOCK), directory, how)?;
        if disk.whereabouts(directory) != DirectoryState::InPlace {
            let problem = format!("{} was moved or removed while it was opened: open it again", directory.display());
            return Err(StorageError::io(LOCKING)(Error::new(ErrorKind::NotFound, problem)).into());
        }
        Ok(locks)
    }

    /// Locks the directories of all logs that recovery may read, if they exist.
    fn add_logs(&mut self, disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<(), OpenError> {
        let loggers: BTreeSet<PathBuf> =
            manifest.incarnations.iter().flat_map(|incarnation| &incarnation.loggers).cloned().collect();
        for logger in loggers.into_iter().map(|logger| directory.join(logger)) {
            if disk.find(&logger).map_err(StorageError::io(LOCKING))?.is_some_and(|found| found.is_dir) {
                self.add(disk, &logger, Locking::Exclusive)?;
            }
        }
        Ok(())
    }

    /// Locks another directory, unless it is locked already.
    fn add(&mut self, disk: &dyn Disk, directory: &Path, how: Locking) -> Result<(), OpenError> {
        // First, so that the locked directory is the one in use.
        self.holds.push(disk.hold(directory).map_err(StorageError::io(LOCKING))?);
        let path = disk.canonical(directory).map_err(StorageError::io(LOCKING))?;
        if let Entry::Vacant(vacant) = self.directories.entry(path) {
            vacant.insert(lock(disk, directory, directory, how)?);
        }
        Ok(())
    }
}

const LOCKING: &str = "locking the database's directory";

/// Locks a path of a directory; `None` if the file system cannot lock it.
fn lock(disk: &dyn Disk, path: &Path, of: &Path, how: Locking) -> Result<Option<Box<dyn DiskLock>>, OpenError> {
    match disk.lock(path, how) {
        Ok(Some(held)) => Ok(Some(held)),
        Ok(None) => Err(OpenError::Locked { directory: of.to_owned() }),
        Err(error) if error.kind() == ErrorKind::Unsupported || how == Locking::Shared => Ok(None),
        Err(error) => Err(StorageError::io(LOCKING)(error).into()),
    }
}

/// Locks a directory for reading, as far as possible; nothing is written.
///
/// # Errors
/// [`OpenError::Locked`] while a process writes to it.
pub(crate) fn lock_to_read(disk: &dyn Disk, directory: &Path) -> Result<impl Sized, OpenError> {
    Locks::of(disk, directory, Locking::Shared)
}

/// The result of an opening.
pub(crate) struct Opened {
    pub(crate) tables: Tables,
    /// The recovery; `None` if the directory was new.
    pub(crate) recovery: Option<Recovery>,
    /// The catalogue that was recovered.
    pub(crate) catalogue: Found,
    /// `None` if the directory was opened for inspection.
    pub(crate) log: Option<OpenLog>,
}

/// A log that is ready for its first commit.
pub(crate) struct OpenLog {
    pub(crate) home: Home,
    pub(crate) log: Log,
    pub(crate) loggers: Vec<Logger>,
    pub(crate) writers: Vec<Writer>,
}

/// Opens the directory, recovers its contents and begins a new incarnation, except for an inspection.
///
/// # Errors
/// The directory belongs to another process, has a newer format or is damaged; no memory; an error of the file
/// system.
pub(crate) fn open(
    options: &Settings,
    location: &DatabaseLocation,
    foundation: &Foundation,
) -> Result<Opened, OpenError> {
    let inspect = location.inspect;
    // Each opening holds its own directories.
    let disk = &sticky_errors(location.disk.clone().unwrap_or_else(disk::real));
    let finding = || StorageError::io("finding the database's directory");
    // The process may change its working directory while the database is open.
    let absolute = std::path::absolute(&location.directory).map_err(finding())?;
    let found = Manifest::find(disk.as_ref(), &absolute)?;
    if (inspect || !options.create) && found.is_none() {
        return Err(OpenError::NoDatabase { directory: absolute });
    }
    if !inspect && found.is_none() {
        create_directory(disk.as_ref(), &absolute)?;
    }
    // Symbolic links may change as well.
    let directory = &disk.canonical(&absolute).map_err(finding())?;
    let _held = disk.hold(directory).map_err(finding())?;
    let source = Source { disk: disk.as_ref(), directory, in_use: inspect };
    let (mut locks, _reading) = match inspect {
        // An inspection beside a writer gets no lock: `look` allows for that.
        true => (None, lock_to_read(disk.as_ref(), directory).ok()),
        false => (Some(Locks::of(disk.as_ref(), directory, Locking::Exclusive)?), None),
    };
    // Read again under the lock: another process may have changed it.
    let found = if inspect { found } else { Manifest::find(disk.as_ref(), directory)? };
    if let (Some(locks), Some(manifest)) = (&mut locks, &found) {
        locks.add_logs(disk.as_ref(), directory, manifest)?;
    }
    // Whether the incarnations that the current manifest does not need have no segments left.
    let mut is_clean = false;
    // Until the log's directories are known. The manifest may be on the disk twice, and grows by an incarnation.
    let bytes_of = |name| disk.find(&directory.join(name)).ok().flatten().map_or(0, |found| found.bytes);
    let manifest_bytes = bytes_of(MANIFEST) + INDENTATION * bytes_of(ADDITIONS);
    let portion = |segments| 2 * (manifest_bytes + 4096).next_multiple_of(4096) + segments;
    let mut reserve = Reserve::new(disk, directory, portion(0));
    let (mut manifest, recovered) = match found {
        Some(manifest) if inspect => {
            let (manifest, recovered) = look(options, source, foundation, manifest)?;
            (manifest, Some(recovered))
        }
        Some(manifest) => {
            let recovered = recover(options, source, foundation, &manifest)?;
            // This frees space and is not needed for safety: the next checkpoint deletes what remains. It comes
            // before all writes, which may need that space.
            let _ = checkpoint::delete_unfinished(disk.as_ref(), directory, &manifest);
            // The same manifest again. The process that wrote it may have ended before its name was durable, or
            // that sync may have failed.
            reserve.supply(|| manifest.write(disk.as_ref(), directory))?;
            // Only now it is certain that none of them counts.
            let _ = checkpoint::delete_unnamed(disk.as_ref(), directory, &manifest);
            is_clean = checkpoint::delete_superfluous_logs(disk.as_ref(), directory, &manifest).is_ok();
            (manifest, Some(recovered))
        }
        None => {
            let manifest = empty();
            if !inspect {
                // Before any other file exists.
                manifest.write(disk.as_ref(), directory).map_err(StorageError::from)?;
            }
            (manifest, None)
        }
    };
    let (tables, recovery, catalogue, ends) = match recovered {
        Some(recovered) => {
            let mut recovery = recovered.recovery;
            recovery.notices.extend(epochs_left::notice(recovered.ends.newest));
            recovery.notices.extend(recovered.tables.ids.warning());
            (recovered.tables, Some(recovery), recovered.catalogue, recovered.ends)
        }
        None => (new_tables(foundation)?, None, Found::default(), Ends::of_nothing()),
    };
    let Some(mut locks) = locks else { return Ok(Opened { tables, recovery, catalogue, log: None }) };
    // Snapshots were read and reported that are not on the disk.
    let are_told = foundation.environment.epochs.snapshots().end_epochs() && recovery.is_some();
    let first_epoch = Epoch(ends.newest.0 + 1 + if are_told { UNSAID_MAX } else { 0 });
    // By canonical path: a symbolic link may change while the database is open, and the next opening must read
    // the directories that were written.
    let logs: Result<Vec<PathBuf>, OpenError> =
        options.log.directories.iter().map(|at| created(disk.as_ref(), &directory.join(at))).collect();
    let start = begin_incarnation(&logs?, directory, &mut manifest, (ends, first_epoch), is_clean);
    if is_at_limit(start.first_epoch) {
        return Err(OpenError::Invalid(format!(
            "the epochs of the database in {} are used up: load its rows into a new one",
            directory.display()
        )));
    }
    foundation.environment.epochs.skip_to(start.first_epoch);
    let loggers = manifest.incarnations.last().map_or(&[][..], |current| &current.loggers);
    // By components, without `.`.
    let loggers: Vec<PathBuf> = loggers.iter().map(|at| directory.join(at).components().collect()).collect();
    for logger in &loggers {
        create_directory(disk.as_ref(), logger)?;
        locks.add(disk.as_ref(), logger, Locking::Exclusive)?;
        segment::delete_unnamed(disk.as_ref(), logger, start.database, start.incarnation)?;
    }
    let log_options = LogOptions {
        segment_bytes: options.log.segment_bytes,
        chunk_bytes: options.log.buffer_bytes,
        backlog_bytes_max: options.log.backlog_bytes as u64,
        #[cfg(feature = "canary")]
        fault: options.log_fault,
        database: Some(directory.clone()),
        backlog_wait_max: if options.step_helpers { Duration::ZERO } else { BACKLOG_WAIT_MAX },
        ..LogOptions::new(loggers)
    };
    // Space for a small first segment of each logger.
    let segments_bytes = |at: &Path| {
        let segments = log_options.directories.iter().filter(|logger| *logger == at).count() as u64;
        segments * log_options.small_segment_bytes()
    };
    reserve.set_portion(portion(segments_bytes(directory)));
    let elsewhere = log_options.directories.iter().filter(|at| *at != directory);
    let elsewhere: Vec<Reserve> = elsewhere.map(|at| Reserve::new(disk, at, segments_bytes(at))).collect();
    // Their names become durable with those of the first segments.
    elsewhere.iter().for_each(Reserve::fill);
    // Deferred additions are published by a worker of their own.
    let writers = options.workers + usize::from(foundation.defers());
    let open_log = || Log::open(Arc::clone(disk), log_options.clone(), start, writers);
    let (log, writers, loggers) = loop {
        match open_log() {
            Err(LogError::Full { directory: at })
                if elsewhere.iter().chain([&reserve]).any(|reserve| reserve.is_in(&at) && reserve.give(0)) => {}
            opened => break opened?,
        }
    };
    // Its name becomes durable with the manifest's.
    reserve.fill();
    // After its first segments, so that a loss of these is noticed.
    reserve.supply(|| manifest.write(disk.as_ref(), directory))?;
    // This frees space and is not needed for safety: the next opening deletes what remains.
    let _ = checkpoint::delete_superfluous_logs(disk.as_ref(), directory, &manifest);
    // But a sync that failed here would stop the log at its next segment, and fail each checkpoint.
    if let Some(error) = log_options.directories.iter().chain([directory]).find_map(|at| disk.failed_sync(at)) {
        return Err(StorageError::io("opening the database")(error).into());
    }
    // Space that was freed and not used.
    reserve.fill();
    let home = Home {
        disk: Arc::clone(disk),
        directory: directory.clone(),
        manifest: Mutex::new(manifest),
        reserve,
        locks: Mutex::new(Some(locks)),
    };
    Ok(Opened { tables, recovery, catalogue, log: Some(OpenLog { home, log, loggers, writers }) })
}

/// How long a transaction waits for a disk that is behind, before it begins.
pub(super) const BACKLOG_WAIT_MAX: Duration = Duration::from_secs(1);

/// The manifest of a new database.
fn empty() -> Manifest {
    Manifest {
        database: DatabaseId(u128::from(rng::entropy()) << 64 | u128::from(rng::entropy())),
        incarnations: Vec::new(),
        checkpoint: None,
        inherited: None,
    }
}

/// Creates the directory and its missing parents, durably.
///
/// Each is made durable before anything is put into it. So among existing directories only the last may have a
/// name that is not durable, as its creator was killed. It is synced in any case. Its parents are durable, or their
/// creators are responsible for them. A new directory whose sync fails is removed: a second sync of the same name may
/// report a false success.
fn create_directory(disk: &dyn Disk, directory: &Path) -> Result<(), OpenError> {
    let create = || {
        let mut missing = Vec::new();
        let mut found = None;
        for path in directory.ancestors() {
            if disk.find(path)?.is_some() {
                found = path.parent();
                break;
            }
            missing.push(path);
        }
        if let Some(parent) = found {
            disk.sync_dir(parent).or_else(|error| if is_not_ours_to_sync(&error) { Ok(()) } else { Err(error) })?;
        }
        for path in missing.into_iter().rev() {
            disk.create_dir_all(path)?;
            if let Some(parent) = path.parent()
                && let Err(error) = disk.sync_dir(parent)
            {
                if disk.list(path)?.is_empty() {
                    disk.remove_dir_all(path)?;
                }
                return Err(error);
            }
        }
        Ok(())
    };
    create().map_err(StorageError::io("creating the database's directory")).map_err(OpenError::Storage)
}

/// Whether this process cannot sync entries of a directory: it may not read the directory, or the file system syncs no
/// directories or is read-only. Existing entries are then not this database's: it could not have made them durable.
fn is_not_ours_to_sync(error: &Error) -> bool {
    use ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported | ReadOnlyFilesystem)
}

/// Ends the earlier incarnations and begins a new one. With `is_clean` it also forgets those that were not
/// needed before. Changes only the manifest in memory. `logs` and `directory` are canonical paths.
fn begin_incarnation(
    logs: &[PathBuf],
    directory: &Path,
    manifest: &mut Manifest,
    (ends, first_epoch): (Ends, Epoch),
    is_clean: bool,
) -> LogStart {
    let number = manifest.incarnations.last().map_or(1, |last| last.number + 1);
    if is_clean {
        checkpoint::forget_superfluous_logs(manifest);
    }
    let left: BTreeSet<u64> = manifest.incarnations.iter().map(|incarnation| incarnation.number).collect();
    manifest.incarnations = ends.incarnations;
    manifest.incarnations.retain(|ended| left.contains(&ended.number));
    // Directories inside move with the database.
    let inside = |at: &PathBuf| match at.strip_prefix(directory) {
        Ok(rest) if rest.as_os_str().is_empty() => PathBuf::from("."),
        Ok(rest) => rest.to_owned(),
        Err(_) => at.clone(),
    };
    let loggers = if logs.is_empty() { vec![PathBuf::from(".")] } else { logs.iter().map(inside).collect() };
    let logs = vec![LogEnd::FIRST; loggers.len()];
    manifest.incarnations.push(Incarnation { number, first_epoch, durable_epoch: None, loggers, ends: logs });
    let (database, nonce_seed) = (manifest.database.0, rng::entropy());
    LogStart { database, incarnation: number, first_epoch, durable: ends.durable, nonce_seed }
}

/// Creates a directory if it is missing. Returns its canonical path.
fn created(disk: &dyn Disk, directory: &Path) -> Result<PathBuf, OpenError> {
    create_directory(disk, directory)?;
    disk.canonical(directory).map_err(StorageError::io("finding a directory of the log")).map_err(OpenError::from)
}

impl Opened {
    /// A database in memory.
    pub(crate) fn in_memory() -> Opened {
        Opened { tables: Tables::default(), recovery: None, catalogue: Found::default(), log: None }
    }
}

impl Home {
    /// The contents of the directory.
    pub(crate) fn manifest(&self) -> MutexGuard<'_, Manifest> {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes this as the manifest.
    pub(super) fn write(&self, manifest: &Manifest) -> Result<(), NotWritten> {
        manifest.write(self.disk.as_ref(), &self.directory)
    }

    /// Lets others open the directory. Nothing in it changes from here on.
    pub(super) fn unlock(&self) {
        drop(self.locks.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Notes in the manifest up to which epoch the closed log of the current incarnation is recorded in its
    /// batches, and where it ends. A later end would mean missing batches.
    ///
    /// # Errors
    /// The manifest cannot be written: a recovery then finds the end itself.
    pub(super) fn note_end(&self, recorded: Epoch, ends: Vec<LogEnd>) -> Result<(), LogError> {
        let mut manifest = self.manifest();
        if let Some(current) = manifest.incarnations.last_mut() {
            current.durable_epoch = Some(recorded);
            current.ends = ends;
        }
        self.reserve.supply(|| self.write(&manifest))
    }
}
