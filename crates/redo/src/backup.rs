//! Backup, verification and restoring of database directories.
//!
//! A backup is a database directory: the manifest, its checkpoint, and a prefix of each logger's batches.
//! Invariant: it is a state that a power cut during the backup could have left. Its manifest is written last,
//! so an incomplete copy is not a database.
//!
//! **A backup contains every commit that was acknowledged before it began.** Such a commit was flushed, and
//! every logger had recorded its epoch as closed on disk. The logs are read afterwards, so all of these batches
//! are seen. Logs are read one after the other while they are written. So a batch of a later log may state a
//! durable epoch that the copied part of an earlier log does not reach. Such batches are dropped from the ends
//! of the logs. Each was written after the epoch that it states became durable. That was after the backup
//! began, since all copied logs reach the epoch that was durable then.
//!
//! **The process that has the database open** ([`backup_open`]) passes the ends of its logs, and the backup
//! reads up to these ends. The process takes and deletes no checkpoint meanwhile. Tables created meanwhile are
//! not in the copy, nor are their rows: both are behind these ends of the logs.
//!
//! **Another process** ([`backup`]) cannot stop the database from changing.
//! - *The logs are scanned twice.* If a batch of the first scan states a durable epoch, all loggers had flushed that
//!   epoch. So the second scan must see it.
//! - *The manifest is read before and after the scans, and at the end.* If it changed (a checkpoint, an opening), or a
//!   file disappeared, the backup starts over. New tables are in the log, like all else.
//! - *Damage is reported only if it is found again*, at the same place and with the same manifest. A batch that
//!   is being written may look damaged if its successor appears a moment later. Otherwise the database is
//!   reported as busy.
//!
//! The copy is verified before its manifest is written.

#[cfg(all(test, not(loom)))]
mod tests;

mod salvage;

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use seriatim_base::Epoch;
use seriatim_base::disk::{DirEntry, Disk, DiskHold, DiskLock, Locking, Opening};
use seriatim_catalog::TableDef;

pub use self::salvage::{Damaged, Lost, NotSalvaged, Salvaged, salvage};
use crate::batch::{HEADER_BYTES, PAGE};
use crate::checkpoint::{Parts, is_reserved};
use crate::manifest::{MANIFEST, MANIFEST_NEW, Manifest};
use crate::replay::log_scan::{LogScan, LoggerLog};
use crate::{LogError, Tables, catalogue, segment};

/// How often a backup is attempted before the database is reported as busy.
const ATTEMPTS: usize = 10;
const PIECE_BYTES: usize = 1 << 20;
const WHAT: &str = "copying a database";

/// Called with the bytes done and the total bytes.
pub type Progress<'a> = dyn Fn(u64, u64) + 'a;

/// The result of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes of checkpoint and log.
    pub bytes: u64,
    /// The number of attempts.
    pub attempts: usize,
    /// The newest durable epoch in the copy.
    pub durable: Epoch,
}

/// The contents of a sound directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Rows in the checkpoint, without those of the catalogue.
    pub rows: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Batches of the log.
    pub batches: u64,
    /// Entries in the batches that a recovery reads, without those of the catalogue.
    pub entries: u64,
    /// Bytes of batches.
    pub log_bytes: u64,
    /// The newest epoch that a recovery keeps.
    pub durable: Epoch,
    /// Remarks that are not errors: torn ends of logs, and damage in batches that no recovery needs.
    pub notices: Vec<String>,
}

/// Copies a database, which another process may have open, into a directory that is missing or empty.
///
/// # Errors
/// - [`LogError::NotADatabase`] if `from` holds no database, or `to` is not empty or is inside of `from`.
/// - [`LogError::Corrupt`] if the database is damaged.
/// - [`LogError::Io`], with [`ErrorKind::ResourceBusy`] if the database changed during each attempt.
///
/// After an error `to` is as it was before; the error says so if that is not possible.
pub fn backup(disk: &dyn Disk, from: &Path, to: &Path, progress: &Progress<'_>) -> Result<Copied, LogError> {
    let room = prepare(disk, from, to)?;
    let mut is_first = true;
    let copied = attempts(disk, from, &mut |before| {
        if !std::mem::take(&mut is_first) {
            empty(disk, to).map_err(LogError::io(WHAT))?;
        }
        attempt(disk, from, to, before, progress)
    });
    copied.map(|(copied, attempts)| Copied { attempts, ..copied }).map_err(|error| room.clear(disk, error))
}

/// The tables of a database, which another process may have open. Rows are not read.
///
/// # Errors
/// As [`backup`], without those of the copy.
pub fn tables(disk: &dyn Disk, directory: &Path) -> Result<Vec<TableDef>, LogError> {
    refuse_empty(directory)?;
    let (tables, _) = attempts(disk, directory, &mut |before| {
        let scan = LogScan::while_written(disk, directory, before)?;
        let found = catalogue::find(disk, directory, before, &scan)?;
        let is_same = differs_in_ends_only(before, &Manifest::read(disk, directory)?);
        Ok(is_same.then_some(found.catalogue.tables))
    })?;
    Ok(tables.into_iter().filter(|table| !table.is_void).map(|table| table.definition).collect())
}

/// Reads what another process may have open, until that is not interrupted. Also returns the number of attempts.
fn attempts<R>(
    disk: &dyn Disk,
    from: &Path,
    attempt: &mut dyn FnMut(&Manifest) -> Result<Option<R>, LogError>,
) -> Result<(R, usize), LogError> {
    let mut damage: Option<Damage> = None;
    for attempts in 1..=ATTEMPTS {
        let before = Manifest::read(disk, from)?;
        match attempt(&before) {
            Ok(Some(read)) => return Ok((read, attempts)),
            Ok(None) => damage = None,
            Err(LogError::Corrupt { file, offset, problem, advice }) => {
                let is_same = Manifest::read(disk, from)? == before;
                let found = Damage { manifest: before, file: file.clone(), offset };
                if is_same && damage.as_ref() == Some(&found) {
                    return Err(LogError::Corrupt { file, offset, problem, advice });
                }
                damage = is_same.then_some(found);
            }
            Err(LogError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => damage = None,
            Err(error) => return Err(error),
        }
    }
    let problem = format!(
        "it is busy: it changed {ATTEMPTS} times while it was read; try again, or have the process that has it open \
         back it up"
    );
    Err(LogError::io("reading a database")(Error::new(ErrorKind::ResourceBusy, problem)))
}

/// Suspected damage, and the manifest with which it was found.
#[derive(PartialEq)]
struct Damage {
    manifest: Manifest,
    file: PathBuf,
    offset: u64,
}

/// Copies the database of this process into a directory that is missing or empty. The last incarnation of
/// `manifest` states its durable epoch, and positions up to which its logs are flushed. The caller takes no
/// checkpoint and deletes no log before this returns.
///
/// # Errors
/// As [`backup`], except that the database is never busy.
pub fn backup_open(
    disk: &dyn Disk,
    from: &Path,
    manifest: &Manifest,
    to: &Path,
    progress: &Progress<'_>,
) -> Result<Copied, LogError> {
    let room = prepare(disk, from, to)?;
    let copy = || {
        let scan = LogScan::up_to_ends(disk, from, manifest)?;
        copy(disk, from, to, manifest, &scan, progress)
    };
    let copied = copy().and_then(|(copy, copied)| {
        copy.write(disk, to)?;
        Ok(copied)
    });
    copied.map_err(|error| room.clear(disk, error))
}

/// The directory of an unfinished copy. The handle keeps the same directory even if its path changes, and the
/// lock excludes other processes.
struct Room {
    directory: PathBuf,
    /// The directories that were made for it, the outermost first.
    made: Vec<PathBuf>,
    _hold: Box<dyn DiskHold>,
    /// `None` if the file system cannot lock directories.
    _lock: Option<Box<dyn DiskLock>>,
}

impl Room {
    /// The copy is not complete, because of this error: removes what is there of it, and the directories that were made
    /// for it. If that fails the error says so, too.
    fn clear(self, disk: &dyn Disk, error: LogError) -> LogError {
        let Room { directory, made, .. } = &self;
        let Err(left) = empty(disk, directory).and_then(|()| unmake(disk, made)) else { return error };
        let note = format!("what is left of the copy in {} could not be removed: {left}", directory.display());
        match error {
            LogError::Io { what, source } => LogError::Io { what: format!("{what} ({note})"), source },
            LogError::Corrupt { file, offset, problem, advice } => {
                LogError::Corrupt { file, offset, problem, advice: format!("{advice} ({note})") }
            }
            error => error,
        }
    }
}

fn refused(to: &Path, problem: &str) -> LogError {
    LogError::NotADatabase { directory: to.to_owned(), problem: problem.to_owned() }
}

const NOT_EMPTY: &str = "it is not empty: name a new or empty directory for the copy";

/// Refuses what cannot become a copy; nothing is made. Whether the directory is there.
fn check(disk: &dyn Disk, from: &Path, to: &Path) -> Result<bool, LogError> {
    let (refused, looking) = (|problem| refused(to, problem), || LogError::io(WHAT));
    refuse_empty(from)?;
    refuse_empty(to)?;
    // The database's directory may have been moved since it was opened: then it has another path than `from`. Where
    // there is no database that is said later.
    if let Ok(Some(own)) = disk.identity(from) {
        for above in canonical_above(disk, to).map_err(looking())?.ancestors() {
            if disk.identity(above).map_err(looking())? == Some(own) {
                return Err(refused("it is in the database's own directory: name one outside of it for the copy"));
            }
        }
    }
    if to.iter().any(is_reserved) {
        return Err(refused(
            "a database keeps its own checkpoints in directories of such a name: name another for the copy",
        ));
    }
    match disk.find(to).map_err(looking())? {
        Some(found) if !found.is_dir => Err(refused("it is a file: name a new or empty directory for the copy")),
        Some(_) if !disk.list(to).map_err(looking())?.is_empty() => Err(refused(NOT_EMPTY)),
        found => Ok(found.is_some()),
    }
}

/// Makes an empty directory, or finds one, which is not in the database's.
fn prepare(disk: &dyn Disk, from: &Path, to: &Path) -> Result<Room, LogError> {
    let made = if check(disk, from, to)? { Vec::new() } else { make(disk, to).map_err(LogError::io(WHAT))? };
    take(disk, to, &made).inspect_err(|_| {
        // The first error says more.
        let _ = unmake(disk, &made);
    })
}

/// Takes a directory that is to be empty.
fn take(disk: &dyn Disk, to: &Path, made: &[PathBuf]) -> Result<Room, LogError> {
    let (refused, looking) = (|problem| refused(to, problem), || LogError::io(WHAT));
    let hold = disk.hold(to).map_err(looking())?;
    let lock = match disk.lock(to, Locking::Exclusive) {
        Ok(Some(lock)) => Some(lock),
        Ok(None) => {
            return Err(refused("another copy is being made in it, or a database is open: name another directory"));
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => None,
        Err(error) => return Err(looking()(error)),
    };
    match disk.list(to).map_err(looking())?.is_empty() {
        true => Ok(Room { directory: to.to_owned(), made: made.to_vec(), _hold: hold, _lock: lock }),
        false => Err(refused(NOT_EMPTY)),
    }
}

/// The empty path would mean the current directory of the process.
fn refuse_empty(path: &Path) -> Result<(), LogError> {
    if !path.as_os_str().is_empty() {
        return Ok(());
    }
    let problem = "the path is empty: name a directory, `.` for the one that the process is in".to_owned();
    Err(LogError::NotADatabase { directory: path.to_owned(), problem })
}

/// The canonical path of the existing part of `path`, followed by the rest.
fn canonical_above(disk: &dyn Disk, path: &Path) -> Result<PathBuf, Error> {
    let absolute = std::path::absolute(path)?;
    for above in absolute.ancestors() {
        match disk.canonical(above) {
            Ok(canonical) => return Ok(canonical.join(absolute.strip_prefix(above).unwrap_or(Path::new("")))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(absolute)
}

/// Makes a directory and those above it, durably: which ones, the outermost first. If that fails nothing is left: an
/// attempt that finds the directory would not know that its name is not durable.
fn make(disk: &dyn Disk, to: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut missing = Vec::new();
    for directory in to.ancestors().filter(|directory| !directory.as_os_str().is_empty()) {
        if disk.find(directory)?.is_some() {
            break;
        }
        missing.push(directory.to_owned());
    }
    missing.reverse();
    let make = || {
        disk.create_dir_all(to)?;
        let parents = missing.iter().filter_map(|made| made.parent());
        parents.filter(|parent| !parent.as_os_str().is_empty()).try_for_each(|parent| disk.sync_dir(parent))
    };
    match make() {
        Ok(()) => Ok(missing),
        Err(error) => {
            // The first error says more.
            let _ = unmake(disk, &missing);
            Err(error)
        }
    }
}

/// Removes directories that were made, unless something is in them by now.
fn unmake(disk: &dyn Disk, made: &[PathBuf]) -> Result<(), Error> {
    for directory in made.iter().rev() {
        match disk.remove_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => return Ok(()),
            removed => removed?,
        }
    }
    Ok(())
}

/// Removes what a copy makes in a directory, the manifest first. Files of other names stay.
fn empty(disk: &dyn Disk, directory: &Path) -> Result<(), Error> {
    let is_of_a_copy = |found: &DirEntry| match found.is_dir {
        true => is_reserved(&found.name),
        false => found
            .name
            .to_str()
            .is_some_and(|name| name == MANIFEST || name == MANIFEST_NEW || segment::Name::parse(name).is_some()),
    };
    let mut found = disk.list(directory)?;
    found.sort_by_key(|found| found.is_dir);
    for found in found.into_iter().filter(is_of_a_copy) {
        let path = directory.join(&found.name);
        if found.is_dir { disk.remove_dir_all(&path)? } else { disk.remove_file(&path)? }
    }
    Ok(())
}

/// Makes one attempt at copying a database that another process may have open. Returns `None` if the database
/// changed and the copy is useless.
fn attempt(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    before: &Manifest,
    progress: &Progress<'_>,
) -> Result<Option<Copied>, LogError> {
    let scan = LogScan::while_written(disk, from, before)?;
    let manifest = Manifest::read(disk, from)?;
    if !differs_in_ends_only(before, &manifest) {
        return Ok(None);
    }
    let (copy, copied) = copy(disk, from, to, &manifest, &scan, progress)?;
    if !differs_in_ends_only(before, &Manifest::read(disk, from)?) {
        return Ok(None);
    }
    copy.write(disk, to)?;
    Ok(Some(copied))
}

/// Whether the manifests differ only in the ends of logs, which every manifest states anew.
fn differs_in_ends_only(before: &Manifest, after: &Manifest) -> bool {
    let without_ends = |manifest: &Manifest| {
        let mut incarnations = manifest.incarnations.clone();
        if let Some(last) = incarnations.last_mut().filter(|last| last.durable_epoch.is_none()) {
            last.ends.clear();
        }
        incarnations
    };
    Manifest { incarnations: without_ends(after), ..after.clone() }
        == Manifest { incarnations: without_ends(before), ..before.clone() }
}

/// Copies the files that the manifest lists and the batches of the scan. Returns the manifest of the copy,
/// which is not written yet.
fn copy(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    manifest: &Manifest,
    scan: &LogScan,
    progress: &Progress<'_>,
) -> Result<(Manifest, Copied), LogError> {
    let parts = match &manifest.checkpoint {
        Some(checkpoint) => Some((checkpoint, Parts::open(disk, from, manifest, checkpoint)?)),
        None => None,
    };
    let wanted = scan.logs.iter().flat_map(|log| &scan.batches[log.batches.clone()]);
    let log_bytes: u64 = wanted.map(|batch| batch.header.bytes()).sum();
    let total = log_bytes + manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.bytes);
    let mut done = 0;
    let mut more = |bytes| {
        done += bytes;
        progress(done, total);
    };
    let mut copy = manifest.clone();
    if let Some((checkpoint, parts)) = &parts {
        let directory = PathBuf::from(checkpoint.directory.file_name().unwrap_or("checkpoint".as_ref()));
        let into = to.join(&directory);
        disk.create_dir_all(&into).map_err(LogError::io(WHAT))?;
        for part in parts.files() {
            let name = part.file_name().unwrap_or_default();
            copy_file(disk, part, &into.join(name), &mut more).map_err(LogError::io(WHAT))?;
        }
        disk.sync_dir(&into).map_err(LogError::io(WHAT))?;
        copy.checkpoint = Some(crate::manifest::Checkpoint { directory, ..(*checkpoint).clone() });
    }
    let needed = scan.needed(manifest);
    for log in &scan.logs {
        copy_log(disk, scan, log, &needed, to, &mut more)?;
    }
    let last = copy.incarnations.last().map(|last| last.number);
    for incarnation in &mut copy.incarnations {
        incarnation.loggers.fill(PathBuf::from("."));
        if Some(incarnation.number) == last
            && let Some(found) = scan.incarnations.iter().find(|found| found.number == incarnation.number)
        {
            incarnation.ends = scan.logs_of(found).map(|log| scan.end_of(log.batches.clone())).collect();
        }
    }
    disk.sync_dir(to).map_err(LogError::io(WHAT))?;
    let verified = verify_as(disk, to, &copy, &|_, _| {})?;
    Ok((copy, Copied { bytes: total, attempts: 1, durable: verified.durable }))
}

fn copy_file(disk: &dyn Disk, from: &Path, to: &Path, more: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let (from, to) = (disk.open(from, Opening::Read)?, disk.open(to, Opening::Create)?);
    let bytes = from.bytes()?;
    let mut buffer = vec![0; PIECE_BYTES.min(usize::try_from(bytes).unwrap_or(PIECE_BYTES))];
    let mut at = 0;
    while at < bytes {
        let piece = &mut buffer[..PIECE_BYTES.min((bytes - at) as usize)];
        from.read_exact_at(piece, at)?;
        to.write_all_at(piece, at)?;
        at += piece.len() as u64;
        more(piece.len() as u64);
    }
    to.sync_data()
}

/// Copies the batches of a log, and only the segments that hold them.
fn copy_log(
    disk: &dyn Disk,
    scan: &LogScan,
    log: &LoggerLog,
    needed: &[bool],
    to: &Path,
    more: &mut dyn FnMut(u64),
) -> Result<(), LogError> {
    let copying = || LogError::io(WHAT);
    // A log without batches still needs its first segment, or the segment would be missing.
    let last = scan.batches[log.batches.clone()].last().map(|batch| batch.segment as usize);
    let first = log.segments.clone().next().filter(|&at| scan.segments[at].bytes >= PAGE as u64);
    let Some(last) = last.or(first) else { return Ok(()) };
    let mut buffer = Vec::new();
    for at in log.segments.start..=last {
        let segment = &scan.segments[at];
        let of_segment = log.batches.clone().filter(|&number| scan.batches[number].segment as usize == at);
        let mut page = [0; PAGE];
        match scan.headers[at] {
            // The copy must have the length that its header states.
            Some(header) if header.whole_bytes().is_some() => {
                let end = of_segment.clone().next_back().map(|last| scan.end_of(last..last + 1).bytes);
                page = segment::Header { bytes: end.unwrap_or(PAGE as u64), ..header }.encode();
            }
            _ => {
                let file = disk.open(&segment.path, Opening::Read).map_err(copying())?;
                file.read_exact_at(&mut page, 0).map_err(copying())?;
            }
        }
        let copy = disk.open(&to.join(segment.name.to_string()), Opening::Create).map_err(copying())?;
        copy.write_all_at(&page, 0).map_err(copying())?;
        for number in of_segment {
            let batch = &scan.batches[number];
            match needed[number] {
                true => scan.read(disk, number, &mut buffer)?,
                // Recovery does not need this batch. It is copied, even if damaged, so that no number is missing.
                false => scan.read_raw(disk, number, &mut buffer)?,
            }
            let bytes = batch.header.bytes();
            buffer.splice(..0, scan.encoded_header(batch));
            debug_assert!(buffer.len() >= HEADER_BYTES);
            buffer.resize(bytes as usize, 0);
            copy.write_all_at(&buffer, batch.offset).map_err(copying())?;
            more(bytes);
        }
        copy.sync_data().map_err(copying())?;
    }
    Ok(())
}

/// Reads a whole database directory that no process writes to: manifest, checkpoint, and every batch that a
/// recovery would read.
///
/// # Errors
/// [`LogError::Corrupt`] for the first damage; [`LogError::NotADatabase`], [`LogError::Format`], [`LogError::Io`].
pub fn verify(disk: &dyn Disk, directory: &Path, progress: &Progress<'_>) -> Result<Verified, LogError> {
    refuse_empty(directory)?;
    let manifest = Manifest::read(disk, directory)?;
    verify_as(disk, directory, &manifest, progress)
}

/// Verifies a directory with a manifest that may not be in it yet.
fn verify_as(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
    progress: &Progress<'_>,
) -> Result<Verified, LogError> {
    let scan = LogScan::of(disk, directory, manifest)?;
    scan.check(manifest)?;
    let tables = Tables::new(&catalogue::find(disk, directory, manifest, &scan)?.catalogue);
    let mut verified = Verified {
        durable: scan.durable,
        notices: scan.torn.iter().map(ToString::to_string).collect(),
        batches: scan.batches.len() as u64,
        log_bytes: scan.batches.iter().map(|batch| batch.bytes()).sum(),
        ..Verified::default()
    };
    let checkpoint_bytes = manifest.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.bytes);
    let total = verified.log_bytes + checkpoint_bytes;
    let mut done = 0;
    if let Some(checkpoint) = &manifest.checkpoint {
        let parts = Parts::open(disk, directory, manifest, checkpoint)?;
        parts.verify(disk, &tables, |bytes| {
            done += bytes;
            progress(done, total);
        })?;
        (verified.rows, verified.checkpoint_bytes) = (parts.rows(), checkpoint.bytes);
    }
    let (mut buffer, needed) = (Vec::new(), scan.needed(manifest));
    let begin = manifest.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.begin_epoch);
    done = checkpoint_bytes;
    for (at, batch) in scan.batches.iter().enumerate() {
        let mut entries = 0;
        let read = scan.read(disk, at, &mut buffer).and_then(|()| {
            scan.each_group(at, &buffer, |group| {
                // The catalogue no longer has every table of other groups, or never had.
                if !scan.counts(at, group.tid.epoch(), begin) {
                    return Ok(());
                }
                for entry in group.entries(&tables) {
                    entries += u64::from(entry?.layout != catalogue::LAYOUT);
                }
                Ok(())
            })
        });
        match read {
            Ok(()) => verified.entries += entries,
            Err(LogError::Corrupt { file, offset, problem, .. }) if !needed[at] => verified.notices.push(format!(
                "{} is damaged at byte {offset}: {problem}; no recovery needs it, since the checkpoint has its rows",
                file.display()
            )),
            Err(error) => return Err(error),
        }
        done += batch.bytes();
        progress(done, total);
    }
    Ok(verified)
}

/// Verifies a backup, and copies it into a directory that is missing or empty.
///
/// # Errors
/// As [`verify`] and [`backup`].
pub fn restore(disk: &dyn Disk, from: &Path, to: &Path, progress: &Progress<'_>) -> Result<Copied, LogError> {
    // A backup that is refused is refused before all of it is read. Nothing is made for a backup that is damaged.
    check(disk, from, to)?;
    verify(disk, from, &|_, _| {})?;
    backup(disk, from, to, progress)
}
