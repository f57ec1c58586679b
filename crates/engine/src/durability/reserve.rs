//! Space that is set aside, so that a database can be opened on a disk which is full by now, and what is in it be deleted.
//!
//! Opening writes: a manifest, and a first segment for each logger. So each directory has a file of zeros, some times as large as that
//! takes. Where there is no space for what has to be written the file is cut shorter, and where there is space again it is filled. It
//! takes what nobody else wants: where there is not room for all of it, it is filled no further than it was when the database was opened.
//!
//! It helps where cutting a file gives space back to the next request: not on file systems that give zeros no space, nor if another
//! process is faster.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::disk::{Disk, Opening};
use seriatim_redo::LogError;
use seriatim_redo::manifest::NotWritten;

/// The name of the file.
const RESERVE: &str = "RESERVE";

/// Times a database can be opened on a full disk, if each time ends with a power cut.
const PORTIONS: u64 = 4;

/// What is written at once.
static ZEROS: [u8; 4096] = [0; 4096];

/// What is set aside in a directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Bytes that one opening takes.
    portion: u64,
    /// Bytes that were there at first.
    had: AtomicU64,
}

impl Reserve {
    /// Of a directory in which an opening writes so many bytes.
    pub(super) fn new(disk: &Arc<dyn Disk>, directory: &Path, portion: u64) -> Reserve {
        let path = directory.join(RESERVE);
        let had = disk.find(&path).ok().flatten().map_or(0, |found| found.bytes);
        Reserve { disk: Arc::clone(disk), path, portion, had: AtomicU64::new(had) }
    }

    /// From now on an opening takes so many bytes.
    pub(super) fn set_portion(&mut self, bytes: u64) {
        self.portion = bytes;
    }

    /// Whether it is space of this directory.
    pub(super) fn is_in(&self, directory: &Path) -> bool {
        self.path.parent() == Some(directory)
    }

    /// Runs `write`, and again each time that it finds no space and some could be given back for it.
    pub(super) fn supply<T>(&self, mut write: impl FnMut() -> Result<T, NotWritten>) -> Result<T, LogError> {
        loop {
            match write() {
                Err(NotWritten { error, is_final: false }) if is_full(&error) && self.give(0) => {}
                Err(NotWritten { error, .. }) => return Err(error),
                Ok(written) => return Ok(written),
            }
        }
    }

    /// Gives space back: a portion of it, or all but so many. Whether there was something to give.
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

    /// Sets aside what is missing, or if there is not space for all of it, what was given.
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
        // Space, not safety.
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
