//! Deletes the files of a database directory that are no longer needed.
//!
//! Invariant: only files that the durable manifest does not need are deleted, so the caller has made it
//! durable. No manifest lists an unfinished checkpoint. A power cut leaves some of these files, and the next
//! call finds them. A file that cannot be deleted does not keep the others from being deleted.

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

/// Whether a recovery needs the log of an incarnation. It does not if the checkpoint has all of it or if it is void.
/// The next manifest may drop such an incarnation after [`delete_superfluous_logs`] has deleted its segments.
pub fn is_needed(manifest: &Manifest, incarnation: &Incarnation) -> bool {
    let begin = manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.begin_epoch);
    !incarnation.is_void() && incarnation.durable_epoch.zip(begin).is_none_or(|(durable, begin)| durable >= begin)
}

/// Deletes all checkpoints except the manifest's, unfinished ones too. Returns how many. No checkpoint may be
/// in progress, and `manifest` must be durable.
///
/// # Errors
/// The first [`LogError::Io`]. The remaining files are still superfluous.
pub fn delete_unnamed(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<usize, LogError> {
    delete_checkpoints(disk, directory, manifest, |_| true)
}

/// As [`delete_unnamed`], but only unfinished checkpoints. No manifest lists these, so it may be unknown which
/// manifest is durable.
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
    // An older version may have been configured to keep its log in a directory of such a name.
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

/// Deletes the segments of incarnations that no recovery needs ([`is_needed`]), and the segments and bytes
/// behind the ends of ended logs. Returns how many segments were deleted. `manifest` must be durable. The log
/// itself deletes segments of the current incarnation ([`Log::delete_before`](crate::Log::delete_before)).
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

/// Removes from a manifest the incarnations that no recovery needs, after [`delete_superfluous_logs`] has
/// deleted their segments.
pub fn forget_superfluous_logs(manifest: &mut Manifest) {
    let before = manifest.clone();
    manifest.incarnations.retain(|incarnation| is_needed(&before, incarnation));
}

/// The action for a segment.
enum Fate {
    Kept,
    Deleted,
    /// Cut to this many bytes.
    Cut(u64),
}

fn fate(manifest: &Manifest, segment: &FoundSegment) -> Fate {
    let Segment { incarnation: number, logger, sequence } = segment.name;
    let newest = manifest.incarnations.last().map_or(0, |incarnation| incarnation.number);
    let Some(incarnation) = manifest.incarnations.iter().find(|incarnation| incarnation.number == number) else {
        // An incarnation below the newest was dropped from the manifest. One above it is not listed yet.
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

/// Deletes the segments of one directory, in order.
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
                // Nothing relies on the cut: if a power cut undoes it, the next call repeats it.
                let cut = || disk.open(&segment.path, Opening::Write)?.set_bytes(bytes);
                cut().map_err(LogError::io(WHAT))?;
            }
            _ => {}
        }
    }
    Ok(deleted)
}

/// Whether a segment belongs to this database, or has no header. Opening refuses a directory with segments of
/// another database, but nothing locks that directory.
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

/// Collects the results of deletions, each of which is attempted even after a failure.
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

    /// The number of deletions, or the first error.
    pub(crate) fn end(self) -> Result<usize, LogError> {
        self.error.map_or(Ok(self.deleted), Err)
    }
}
