//! Reserved disk space, so that a database can be opened on a full disk and its rows be deleted.
//!
//! Opening a database writes a manifest, and a first segment for each logger. So each directory has a file of
//! zeros that is some times as large. When a write finds no space, the file is cut shorter; when there is space
//! again, the file is filled. It must not take the last space. If there is not room for all of it, it is only
//! filled up to its size at the opening.
//!
//! This helps if cutting a file frees space for the next request. It does not on file systems that store no
//! zeros, or if another process is faster.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::disk::{Disk, Opening};
use seriatim_redo::LogError;
use seriatim_redo::manifest::NotWritten;

/// The name of the file.
const RESERVE: &str = "RESERVE";

/// How often a database can be opened on a full disk, if each time ends with a power cut.
const PORTIONS: u64 = 4;

/// The zeros of one write.
static ZEROS: [u8; 4096] = [0; 4096];

/// The reserved space of a directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Bytes that one opening needs.
    portion: u64,
    /// Bytes of the file at the opening.
    had: AtomicU64,
}

impl Reserve {
    /// The reserve of a directory in which an opening writes this many bytes.
    pub(super) fn new(disk: &Arc<dyn Disk>, directory: &Path, portion: u64) -> Reserve {
        let path = directory.join(RESERVE);
        let had = disk.find(&path).ok().flatten().map_or(0, |found| found.bytes);
        Reserve { disk: Arc::clone(disk), path, portion, had: AtomicU64::new(had) }
    }

    /// Sets the bytes that one opening needs.
    pub(super) fn set_portion(&mut self, bytes: u64) {
        self.portion = bytes;
    }

    /// Whether it is space of this directory.
    pub(super) fn is_in(&self, directory: &Path) -> bool {
        self.path.parent() == Some(directory)
    }

    /// Runs `write`, and repeats it while it finds no space and some can be freed for it.
    pub(super) fn supply<T>(&self, mut write: impl FnMut() -> Result<T, NotWritten>) -> Result<T, LogError> {
        loop {
            match write() {
                Err(NotWritten { error, is_final: false }) if is_full(&error) && self.give(0) => {}
                Err(NotWritten { error, .. }) => return Err(error),
                Ok(written) => return Ok(written),
            }
        }
    }

    /// Frees space: one portion, or if `all_but` is not zero, all but that many portions. Returns whether there
    /// was any.
    pub(super) fn give(&self, all_but: u64) -> bool {
        let give = || {
            let bytes = self.disk.find(&self.path)?.map_or(0, |found| found.bytes);
            let left = match all_but {
                0 => bytes.saturating_sub(self.portion),
                portions => bytes.min(portions * self.portion),
            };
            if left < bytes {
                let file = self.disk.open(&self.path, Opening::Write)?;
                file.set_bytes(left)?;
                file.sync_data()?;
            }
            Ok::<_, std::io::Error>(left < bytes)
        };
        give().unwrap_or(false)
    }

    /// Reserves the missing space, or without room for all of it, the space that was freed.
    pub(super) fn fill(&self) {
        let wanted = PORTIONS * self.portion;
        let fill = || {
            let found = self.disk.find(&self.path)?;
            let before = found.as_ref().map_or(0, |found| found.bytes);
            if before >= wanted {
                return Ok(());
            }
            let how = if found.is_some() { Opening::Write } else { Opening::Create };
            let file = self.disk.open(&self.path, how)?;
            let mut at = before;
            while at < wanted {
                let now = (wanted - at).min(ZEROS.len() as u64);
                if let Err(error) = file.write_all_at(&ZEROS[..now as usize], at) {
                    file.set_bytes(at.min(self.had.load(Ordering::Relaxed)).max(before))?;
                    file.sync_data()?;
                    return Err(error);
                }
                at += now;
            }
            file.sync_data()?;
            self.had.store(wanted, Ordering::Relaxed);
            Ok::<_, std::io::Error>(())
        };
        // This frees space and is not needed for safety.
        let _ = fill();
    }
}

/// Whether there was no space.
pub(super) fn is_full(error: &LogError) -> bool {
    match error {
        LogError::Full { .. } => true,
        LogError::Io { source, .. } => matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded),
        _ => false,
    }
}
