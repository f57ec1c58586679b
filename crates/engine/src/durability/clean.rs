//! Deletes files that checkpoints made superfluous, and files of checkpoints that were given up.
//!
//! This frees space and is not needed for safety: a failed deletion fails no checkpoint. Statistics report it,
//! and the next checkpoint tries again. The caller holds the lock under which checkpoints are taken, so none is
//! being written. It also knows that the manifest in memory and that on disk name the same checkpoint. The log
//! had not stopped when the lock was taken, and no change of the checkpoint has been left in doubt since.

use std::sync::PoisonError;

use seriatim_base::Epoch;
use seriatim_redo::{LogError, checkpoint};

use super::persistence::Persistence;

/// Deletes checkpoints that are not valid, complete or not.
pub(super) fn delete_unnamed(persistence: &Persistence) {
    // Files that another attempt could not delete still exist, so its error stays.
    if let Err(error) = try_delete_unnamed(persistence) {
        note_error(persistence, Some(error));
    }
}

/// Deletes files that are no longer needed after the checkpoint of `begin` became durable. Returns the number
/// of deleted segments and checkpoints.
pub(super) fn delete_superfluous(persistence: &Persistence, begin: Epoch) -> usize {
    let (mut deleted, mut failed) = (0, None);
    for result in
        [try_delete_unnamed(persistence), delete_incarnations(persistence), persistence.log().delete_before(begin)]
    {
        match result {
            Ok(more) => deleted += more,
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    note_error(persistence, failed);
    deleted
}

fn note_error(persistence: &Persistence, failed: Option<LogError>) {
    let mut checkpoints = persistence.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
    checkpoints.deletion_error = failed.map(|error| error.to_string());
}

fn try_delete_unnamed(persistence: &Persistence) -> Result<usize, LogError> {
    let home = persistence.home();
    let manifest = home.manifest().clone();
    checkpoint::delete_unnamed(home.disk.as_ref(), &home.directory, &manifest)
}

/// Deletes the logs of earlier incarnations, then removes these from the manifest.
fn delete_incarnations(persistence: &Persistence) -> Result<usize, LogError> {
    let home = persistence.home();
    let manifest = home.manifest().clone();
    let deleted = checkpoint::delete_superfluous_logs(home.disk.as_ref(), &home.directory, &manifest)?;
    if manifest.incarnations.iter().any(|incarnation| !checkpoint::is_needed(&manifest, incarnation)) {
        persistence.change(checkpoint::forget_superfluous_logs)?;
    }
    Ok(deleted)
}
