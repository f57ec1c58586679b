//! Deleting what checkpoints made superfluous, and what is left of those that were given up.
//!
//! Space, not safety: what cannot be deleted fails no checkpoint. Statistics tell of it, and the next checkpoint tries again.
//! The caller holds the lock under which checkpoints are taken, so none is being written, and knows that the manifest in memory names
//! the checkpoint that the one on disk does: the log had not stopped when that lock was taken, and since then no change of its
//! checkpoint may or may not have been made.

use std::sync::PoisonError;

use seriatim_base::Epoch;
use seriatim_redo::{LogError, checkpoint};

use super::persistence::Persistence;

/// Deletes checkpoints that do not count, complete or not.
pub(super) fn delete_unnamed(persistence: &Persistence) {
    // What else could not be deleted is still there.
    if let Err(error) = try_delete_unnamed(persistence) {
        tell(persistence, Some(error));
    }
}

/// Deletes what is not needed any more, now that a checkpoint which begins at `begin` is durable: how many segments and checkpoints.
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
    tell(persistence, failed);
    deleted
}

fn tell(persistence: &Persistence, failed: Option<LogError>) {
    let mut checkpoints = persistence.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
    checkpoints.deletion_error = failed.map(|error| error.to_string());
}

fn try_delete_unnamed(persistence: &Persistence) -> Result<usize, LogError> {
    let home = persistence.home();
    let manifest = home.manifest().clone();
    checkpoint::delete_unnamed(home.disk.as_ref(), &home.directory, &manifest)
}

/// Deletes the logs of earlier incarnations, and then has the manifest forget them.
fn delete_incarnations(persistence: &Persistence) -> Result<usize, LogError> {
    let home = persistence.home();
    let manifest = home.manifest().clone();
    let deleted = checkpoint::delete_superfluous_logs(home.disk.as_ref(), &home.directory, &manifest)?;
    if manifest.incarnations.iter().any(|incarnation| !checkpoint::is_needed(&manifest, incarnation)) {
        persistence.change(checkpoint::forget_superfluous_logs)?;
    }
    Ok(deleted)
}
