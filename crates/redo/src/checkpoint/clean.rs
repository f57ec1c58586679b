//! What a database directory no longer needs.
//!
//! Invariant: only what the manifest on disk does not need is deleted, so the caller has made that manifest durable. A power cut in
//! between leaves some of it, which is found again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use seriatim_base::disk::{Disk, Opening};

use crate::LogError;
use crate::batch::PAGE;
use crate::manifest::{Incarnation, Manifest};
use crate::segment;

/// Whether a recovery needs the log of an incarnation. One that it does not need may be left out of the next manifest, when
/// [`delete_superfluous`] has deleted its segments.
pub fn is_needed(manifest: &Manifest, incarnation: &Incarnation) -> bool {
    let begin = manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.begin_epoch);
    incarnation.durable_epoch.zip(begin).is_none_or(|(durable, begin)| durable >= begin)
}

/// Deletes checkpoints other than the manifest's, unfinished ones too, and the segments of incarnations whose epochs are all before
/// it. Answers how many checkpoints and segments. No checkpoint is being written, and `manifest` is the durable one. The log itself
/// deletes segments of the present incarnation ([`Log::delete_before`](crate::Log::delete_before)).
///
/// # Errors
/// [`LogError::Io`]; what is left is superfluous still.
pub fn delete_superfluous(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<usize, LogError> {
    let failed = || LogError::io("deleting what a checkpoint made superfluous");
    let mut deleted = 0;
    let newest = manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.directory.as_path());
    for found in disk.list(directory).map_err(failed())? {
        let is_checkpoint = found.is_dir && found.name.to_str().is_some_and(|name| name.starts_with("checkpoint-"));
        if is_checkpoint && newest != Some(Path::new(&found.name)) {
            disk.remove_dir_all(&directory.join(&found.name)).map_err(failed())?;
            deleted += 1;
        }
    }
    let directories: BTreeSet<PathBuf> =
        manifest.incarnations.iter().flat_map(|incarnation| &incarnation.loggers).cloned().collect();
    let first = manifest.incarnations.first().map_or(0, |incarnation| incarnation.number);
    for loggers in directories {
        let loggers = directory.join(loggers);
        if disk.find(&loggers).map_err(failed())?.is_none() {
            continue;
        }
        for segment in segment::list(disk, &loggers)? {
            let number = segment.name.incarnation;
            let known = manifest.incarnations.iter().find(|incarnation| incarnation.number == number);
            let superfluous = known.map_or(number < first, |incarnation| !is_needed(manifest, incarnation));
            if superfluous && is_of(disk, &segment.path, manifest)? {
                segment::delete(disk, &segment.path)?;
                deleted += 1;
            }
        }
    }
    Ok(deleted)
}

/// Whether a segment is of this database, or never said of which. Opening refuses a directory that has another's, but nothing locks it.
fn is_of(disk: &dyn Disk, path: &Path, manifest: &Manifest) -> Result<bool, LogError> {
    let read = || {
        let file = disk.open(path, Opening::Read)?;
        let mut page = [0; PAGE];
        let bytes = file.read_at(&mut page, 0)?;
        Ok(segment::Header::decode(&page[..bytes]))
    };
    let header = read().map_err(LogError::io("deleting what a checkpoint made superfluous"))?;
    Ok(header.is_none_or(|header| header.database == manifest.database.0))
}
