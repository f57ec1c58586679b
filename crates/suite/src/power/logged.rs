//! The part of a case's log that recovery replays, read from its bytes: whether it had the kinds of entries
//! that need the previous version.

use std::path::Path;
use std::sync::Mutex;

use seriatim_base::disk::FaultyDisk;
use seriatim_redo::LogError;
use seriatim_redo::entry::Change;
use seriatim_redo::manifest::Manifest;
use seriatim_redo::replay::{Apply, Outcome, Replay, Version};

use super::case::DIRECTORY;

/// Entries that say what changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    pub(super) patches: u64,
    pub(super) deltas: u64,
}

/// Counts what a replay hands on.
#[derive(Default)]
struct Counter(Mutex<Changes>);

impl Apply for Counter {
    fn apply(&self, _: usize, version: &Version<'_>) -> Result<Outcome, LogError> {
        let mut counts = self.0.lock().expect("no panic");
        for change in version.changes {
            match change {
                Change::Patch(_) => counts.patches += 1,
                Change::Delta(_) => counts.deltas += 1,
                Change::Row(_) | Change::Delete => {}
            }
        }
        Ok(Outcome::Applied)
    }
}

/// The changes that a recovery of the current log replays.
///
/// # Errors
/// Those of a recovery.
pub(super) fn changes(disk: &FaultyDisk) -> Result<Changes, LogError> {
    let disk = disk.mount();
    let directory = Path::new(DIRECTORY);
    let manifest = Manifest::read(&disk, directory)?;
    let counter = Counter::default();
    Replay::look(&disk, directory, &manifest)?.run(&disk, 1, &counter, &|_| {})?;
    Ok(counter.0.into_inner().expect("no panic"))
}
