//! The platform interface to files: a real side ([`real`]) and, in builds for tests (`test-support`), a
//! simulated one (`FaultyDisk`); [`sticky_errors`] remembers failures of either. [`Around`] makes a disk of
//! another one.
//!
//! Invariant: nothing is promised to survive a power cut but what a sync answered for. [`DiskFile::sync_data`]
//! makes a file's contents and length durable, [`Disk::sync_dir`] the names in a directory; neither does the
//! other's work, and a new directory needs a sync of the one that holds it. A rename is atomic and stays within
//! one directory: across directories the outcome of a power cut differs between file systems, so it is refused.
//! **A sync that failed must not be repeated.** The kernel reports the error once and forgets the pages, so
//! that the next sync succeeds without them (Rebello et al., "Can Applications Recover from fsync Failures?",
//! USENIX ATC 2020).
//!
//! Every error keeps its [`io::ErrorKind`] and says what was tried on which path.

mod around;
#[cfg(any(test, feature = "test-support"))]
mod faulty;
mod holds;
mod posix;
mod real;
mod sticky;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt::{self, Debug};
use std::io;
use std::path::{Path, PathBuf};

pub use around::Around;
#[cfg(any(test, feature = "test-support"))]
pub use faulty::{FaultyDisk, Operation, Times, is_power_off};
pub use real::real;
pub use sticky::sticky_errors;

/// Files and directories.
pub trait Disk: Debug + Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` (for [`Opening::Create`]), `IsADirectory`, and what the file system says.
    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>>;

    /// What is in a directory, by name.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, and what the file system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<Found>>;

    /// Creates a directory and those above it, as far as they do not exist. The parent of each new one needs a
    /// [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `AlreadyExists` or `NotADirectory` if a file is in the way, and what the file system says.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Gives a file or directory another name in its directory, atomically; a file of that name, or an empty
    /// directory, is replaced.
    ///
    /// # Errors
    /// `CrossesDevices` if the names are in different directories; `NotFound`, and what the file system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, and what the file system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`, and what the file system says.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Removes a directory and all in it; not atomically.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, and what the file system says.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable: what was created, renamed or removed in it.
    ///
    /// # Errors
    /// What the file system says; then nothing is known about these names, and a second try may lie.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Why no sync of a directory can succeed any more, where the disk remembers that one has failed
    /// ([`sticky_errors`]).
    fn failed_sync(&self, dir: &Path) -> Option<io::Error> {
        let _ = dir;
        None
    }

    /// What is at a path, if anything.
    ///
    /// # Errors
    /// What the file system says; that there is nothing is no error.
    fn find(&self, path: &Path) -> io::Result<Option<Found>>;

    /// What tells the file or directory at a path from all others that are there, whatever they are called; `None` if
    /// nothing is there.
    ///
    /// # Errors
    /// What the file system says.
    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>>;

    /// The path of what is there by which it is called from everywhere: absolute, without links.
    ///
    /// # Errors
    /// `NotFound`, and what the file system says.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;

    /// Has the path of a directory lead to the directory that is there now, on this disk and until the guard is
    /// dropped, whatever becomes of its name. It may be moved, removed, or replaced by another. So do the paths below
    /// it, by the names in it.
    ///
    /// # Errors `NotFound`, `NotADirectory`; `ResourceBusy` while another directory is held by that path; what the file
    /// system says.
    fn hold(&self, dir: &Path) -> io::Result<Box<dyn DiskHold>>;

    /// Where a directory is that is held by this path. Where that cannot be found out, it is taken to be in place, and
    /// so is one that is not held.
    fn whereabouts(&self, dir: &Path) -> Whereabouts;

    /// A lock on a directory or file, until the guard is dropped or the process ends; `None` while another
    /// process or guard holds one that excludes it. What is at the path when this returns is locked. A file
    /// that is not there is created for an exclusive lock; nothing is written for a shared one.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no such locks, as NFS has none for directories; `NotFound`, and
    /// what the file system says.
    fn lock(&self, path: &Path, how: Locking) -> io::Result<Option<Box<dyn DiskLock>>>;
}

/// An open file. Offsets and lengths are in bytes. All calls may come from several threads at once.
pub trait DiskFile: Debug + Send + Sync {
    /// The path it was opened by.
    fn path(&self) -> &Path;

    /// Reads at most `buffer.len()` bytes; zero at the end of the file.
    ///
    /// # Errors
    /// What the file system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes; a gap after the end of the file becomes zeros. Not durable before [`DiskFile::sync_data`].
    ///
    /// # Errors
    /// `StorageFull`, `PermissionDenied` if opened for reading, and what the file system says; any part of the
    /// bytes may then have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes contents and length durable, not the name. See the module on failure.
    ///
    /// # Errors
    /// What the file system says; then nothing is known about what was written since the last sync.
    fn sync_data(&self) -> io::Result<()>;

    /// Whether it has no name any more, and is gone when it is closed.
    fn is_removed(&self) -> bool;

    /// The file's length.
    ///
    /// # Errors
    /// What the file system says.
    fn bytes(&self) -> io::Result<u64>;

    /// Cuts the file off, or extends it by zeros that occupy no space yet. Not durable before [`DiskFile::sync_data`].
    ///
    /// # Errors
    /// `PermissionDenied` if opened for reading, and what the file system says.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;

    /// Fills the buffer.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before, and what the file system says.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => {
                    let message =
                        format!("the file ends {filled} bytes after offset {offset}, {} wanted", buffer.len());
                    return Err(at("read", self.path(), io::Error::new(io::ErrorKind::UnexpectedEof, message)));
                }
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Holds a lock while it lives.
pub trait DiskLock: Debug + Send + Sync {}

/// Holds a directory while it lives.
pub trait DiskHold: Debug + Send + Sync {}

/// What has become of a directory that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Its path leads to it.
    InPlace,
    /// It has another path, and nothing is at its own.
    Moved,
    /// It has another path, and something else is at its own.
    Replaced,
    /// It was removed.
    Removed,
}

/// Who else may hold a lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// Nobody.
    Exclusive,
    /// Others who share it.
    Shared,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A file that must not exist yet, to read and write.
    Create,
}

/// What was found under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The last part of its path.
    pub name: OsString,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// A file's length; zero for a directory.
    pub bytes: u64,
}

/// An error with what was tried, and where.
#[derive(Debug)]
struct Located {
    operation: &'static str,
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.path.display(), self.error)
    }
}

impl std::error::Error for Located {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The error, with operation and path before its text.
fn at(operation: &'static str, path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), Located { operation, path: path.to_owned(), error })
}

/// Renames stay within a directory.
fn same_directory(from: &Path, to: &Path) -> io::Result<()> {
    if from.parent() == to.parent() {
        return Ok(());
    }
    let message = format!("{} is in another directory", to.display());
    Err(io::Error::new(io::ErrorKind::CrossesDevices, message))
}

fn opened_for_reading() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading")
}
