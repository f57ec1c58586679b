//! What a database directory no longer needs.
//!
//! Invariant: only what the manifest on disk does not need is deleted, so the caller has made that manifest
//! durable; but an unfinished checkpoint is named by none. A power cut in between leaves some of it, which is
//! found again. One thing that cannot be deleted keeps none of the others.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use seriatim_base::disk::{Disk, Opening};

use super::name::Name;
use crate::LogError;
use crate::batch::PAGE;
use crate::manifest::{Incarnation, Manifest};
use crate::segment::{self, FoundSegment, Name as Segment};

const WHAT: &str = "deleting what a checkpoint made superfluous";

/// Whether a recovery needs the log of an incarnation: not if the checkpoint has all of it, or if nothing in it
/// counts. One that it does not need may be left out of the next manifest, when [`delete_superfluous_logs`] has
/// deleted its segments.
pub fn is_needed(manifest: &Manifest, incarnation: &Incarnation) -> bool {
    let begin = manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.begin_epoch);
    !incarnation.is_void() && incarnation.durable_epoch.zip(begin).is_none_or(|(durable, begin)| durable >= begin)
}

/// Deletes the checkpoints that do not count: all but the manifest's, unfinished ones too. Answers how many. No
/// checkpoint is being written, and `manifest` is the durable one.
///
/// # Errors
/// The first [`LogError::Io`]; what is left is superfluous still.
pub fn delete_unnamed(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<usize, LogError> {
    delete_checkpoints(disk, directory, manifest, |_| true)
}

/// As [`delete_unnamed`], but only those that were not finished: also where it is not known which manifest is
/// the durable one, since none names them.
///
/// # Errors
/// As [`delete_unnamed`].
pub fn delete_unfinished(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<usize, LogError> {
    delete_checkpoints(disk, directory, manifest, |name| name.unfinished)
}

fn delete_checkpoints(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
    wanted: impl Fn(&Name) -> bool,
) -> Result<usize, LogError> {
    let newest = manifest.checkpoint.as_ref().map(|checkpoint| directory.join(&checkpoint.directory));
    // An older version may have been told to keep its log in a directory of such a name.
    let logs: Vec<PathBuf> = manifest
        .incarnations
        .iter()
        .flat_map(|incarnation| &incarnation.loggers)
        .map(|log| directory.join(log))
        .collect();
    let mut deleting = Deleting::default();
    for found in disk.list(directory).map_err(LogError::io(WHAT))? {
        let path = directory.join(&found.name);
        let superfluous = found.is_dir && Name::parse(&found.name).is_some_and(|name| wanted(&name));
        if superfluous && newest.as_ref() != Some(&path) && !logs.iter().any(|log| log.starts_with(&path)) {
            let deleted = match disk.remove_dir_all(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(LogError::io(WHAT)(error)),
                _ => Ok(1),
            };
            deleting.add(deleted);
        }
    }
    deleting.end()
}

/// Deletes the segments of incarnations that no recovery needs ([`is_needed`]), and what those that have ended
/// have behind their last batches. Answers how many segments. `manifest` is the durable one. The log itself
/// deletes segments of the present incarnation ([`Log::delete_before`](crate::Log::delete_before)).
///
/// # Errors
/// As [`delete_unnamed`].
pub fn delete_superfluous_logs(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<usize, LogError> {
    let directories: BTreeSet<PathBuf> =
        manifest.incarnations.iter().flat_map(|incarnation| &incarnation.loggers).cloned().collect();
    let mut deleting = Deleting::default();
    for loggers in directories {
        deleting.add(delete_superfluous_segments(disk, &directory.join(loggers), manifest));
    }
    deleting.end()
}

/// Has a manifest forget the incarnations that no recovery needs, once [`delete_superfluous_logs`] has deleted
/// their segments.
pub fn forget_superfluous_logs(manifest: &mut Manifest) {
    let before = manifest.clone();
    manifest.incarnations.retain(|incarnation| is_needed(&before, incarnation));
}

/// What becomes of a segment.
enum Fate {
    Kept,
    Deleted,
    /// Cut to so many bytes.
    Cut(u64),
}

fn fate(manifest: &Manifest, segment: &FoundSegment) -> Fate {
    let Segment { incarnation: number, logger, sequence } = segment.name;
    let newest = manifest.incarnations.last().map_or(0, |incarnation| incarnation.number);
    let Some(incarnation) = manifest.incarnations.iter().find(|incarnation| incarnation.number == number) else {
        // One that was forgotten; one above the newest is not named yet.
        return if number < newest { Fate::Deleted } else { Fate::Kept };
    };
    if !is_needed(manifest, incarnation) {
        return Fate::Deleted;
    }
    match incarnation.ends.get(logger as usize).filter(|_| incarnation.durable_epoch.is_some()) {
        Some(end) if sequence > end.segment => Fate::Deleted,
        Some(end) if sequence == end.segment && segment.bytes > end.bytes => Fate::Cut(end.bytes),
        _ => Fate::Kept,
    }
}

/// Those of one directory, in order.
fn delete_superfluous_segments(disk: &dyn Disk, loggers: &Path, manifest: &Manifest) -> Result<usize, LogError> {
    if disk.find(loggers).map_err(LogError::io(WHAT))?.is_none() {
        return Ok(0);
    }
    let mut deleted = 0;
    for segment in segment::list(disk, loggers)? {
        match fate(manifest, &segment) {
            Fate::Deleted if is_of(disk, &segment.path, manifest)? => {
                segment::delete(disk, &segment.path)?;
                deleted += 1;
            }
            Fate::Cut(bytes) if is_of(disk, &segment.path, manifest)? => {
                // Nothing relies on it: a cut that a power cut undoes leaves what it left.
                let cut = || disk.open(&segment.path, Opening::Write)?.set_bytes(bytes);
                cut().map_err(LogError::io(WHAT))?;
            }
            _ => {}
        }
    }
    Ok(deleted)
}

/// Whether a segment is of this database, or never said of which. Opening refuses a directory that has
/// another's, but nothing locks it.
fn is_of(disk: &dyn Disk, path: &Path, manifest: &Manifest) -> Result<bool, LogError> {
    let read = || {
        let file = disk.open(path, Opening::Read)?;
        let mut page = [0; PAGE];
        let bytes = file.read_at(&mut page, 0)?;
        Ok(segment::Header::decode(&page[..bytes]))
    };
    let header = read().map_err(LogError::io(WHAT))?;
    Ok(header.is_none_or(|header| header.database == manifest.database.0))
}

/// Deletions of which each is tried, whatever became of those before it.
#[derive(Debug, Default)]
pub(crate) struct Deleting {
    deleted: usize,
    error: Option<LogError>,
}

impl Deleting {
    pub(crate) fn add(&mut self, deleted: Result<usize, LogError>) {
        match deleted {
            Ok(deleted) => self.deleted += deleted,
            Err(error) => drop(self.error.get_or_insert(error)),
        }
    }

    /// How many were deleted, or why not all.
    pub(crate) fn end(self) -> Result<usize, LogError> {
        self.error.map_or(Ok(self.deleted), Err)
    }
}
