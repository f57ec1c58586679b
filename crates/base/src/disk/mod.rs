//! The platform interface to files: the real implementation ([`real`]) and, in builds for tests (`test-support`), a
//! simulated one (`FaultyDisk`). [`sticky_errors`] remembers failures of either. [`Around`] wraps another disk.
//! [`NewFile`] is for files outside of databases.
//!
//! Invariant: only a successful sync promises that something survives a power cut. [`DiskFile::sync_data`]
//! makes a file's contents and length durable, [`Disk::sync_dir`] the names in a directory. Neither does the
//! other's work, and a new directory needs a sync of its parent. A rename is atomic and stays within one
//! directory. Across directories file systems differ in the result of a power cut, so such a rename is refused.
//!
//! **A failed sync must not be repeated.** The kernel reports the error once and drops the pages, so the next sync
//! succeeds without them. (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.)
//!
//! Every error keeps its [`io::ErrorKind`] and names the operation and the path.

mod around;
#[cfg(any(test, feature = "test-support"))]
mod faulty;
mod holds;
mod new_file;
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
pub use new_file::NewFile;
pub use real::real;
pub use sticky::sticky_errors;

/// Files and directories.
pub trait Disk: Debug + Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` (for [`Opening::Create`]), `IsADirectory`, and errors of the file system.
    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>>;

    /// Lists a directory, sorted by name.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, and errors of the file system.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;

    /// Creates a directory and its missing parents. The parent of each new directory needs a [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `AlreadyExists` or `NotADirectory` if a file is in the way, and errors of the file system.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Renames a file or directory within its directory, atomically. Replaces a file or an empty directory of
    /// the new name.
    ///
    /// # Errors
    /// `CrossesDevices` if the names are in different directories; `NotFound`, and errors of the file system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, and errors of the file system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`, and errors of the file system.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Removes a directory with its contents, not atomically.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, and errors of the file system.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable: those created, renamed or removed in it.
    ///
    /// # Errors
    /// Errors of the file system. The state of these names is then unknown, and a second sync may lie.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// The error of an earlier sync of this directory, if the disk remembers it ([`sticky_errors`]). No later
    /// sync can succeed.
    fn failed_sync(&self, dir: &Path) -> Option<io::Error> {
        let _ = dir;
        None
    }

    /// Looks up a path. Returns `None` if nothing is there.
    ///
    /// # Errors
    /// Errors of the file system, but not `NotFound`.
    fn find(&self, path: &Path) -> io::Result<Option<DirEntry>>;

    /// Identifies the file or directory at a path among all that exist, whatever their names are. Returns `None` if
    /// nothing is there.
    ///
    /// # Errors
    /// Errors of the file system.
    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>>;

    /// The canonical path: absolute, without links.
    ///
    /// # Errors
    /// `NotFound`, and errors of the file system.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;

    /// Binds the path of a directory to the directory that is there now, on this disk and until the guard is
    /// dropped. Its paths keep leading to it even if it is moved, removed or replaced by another directory.
    /// Paths below it are resolved from it.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`; `ResourceBusy` while another directory is held by that path; errors of the
    /// file system.
    fn hold(&self, dir: &Path) -> io::Result<Box<dyn DiskHold>>;

    /// Where the directory is that is held by this path. Returns `InPlace` if that is unknown, and for a
    /// directory that is not held.
    fn whereabouts(&self, dir: &Path) -> DirectoryState;

    /// Locks a directory or file until the guard is dropped or the process ends. Returns `None` while a
    /// conflicting lock of another process or guard exists. When this returns, the lock is on whatever the path
    /// leads to. An exclusive lock creates a missing file; a shared one writes nothing.
    ///
    /// # Errors
    /// `Unsupported` if the file system has no such locks, as NFS has none for directories; `NotFound`, and
    /// errors of the file system.
    fn lock(&self, path: &Path, how: Locking) -> io::Result<Option<Box<dyn DiskLock>>>;
}

/// An open file. Offsets and lengths are in bytes. Several threads may call at once.
pub trait DiskFile: Debug + Send + Sync {
    /// The path with which it was opened.
    fn path(&self) -> &Path;

    /// Reads at most `buffer.len()` bytes. Returns zero at the end of the file.
    ///
    /// # Errors
    /// Errors of the file system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes. A gap behind the end of the file becomes zeros. Not durable before [`DiskFile::sync_data`].
    ///
    /// # Errors
    /// `StorageFull`, `PermissionDenied` if opened for reading, and errors of the file system. Any part of the
    /// bytes may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes contents and length durable, but not the name. The module comment explains failures.
    ///
    /// # Errors
    /// Errors of the file system. The state of everything written since the last sync is then unknown.
    fn sync_data(&self) -> io::Result<()>;

    /// Whether the file has no name any more and vanishes when it is closed.
    fn is_removed(&self) -> bool;

    /// The file's length.
    ///
    /// # Errors
    /// Errors of the file system.
    fn bytes(&self) -> io::Result<u64>;

    /// Truncates the file, or extends it by zeros that occupy no space. Not durable before [`DiskFile::sync_data`].
    ///
    /// # Errors
    /// `PermissionDenied` if opened for reading, and errors of the file system.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;

    /// Fills the buffer.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends earlier, and errors of the file system.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => {
                    let message =
                        format!("the file ends {filled} bytes after offset {offset}, but {} are needed", buffer.len());
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

/// Holds a lock until it is dropped.
pub trait DiskLock: Debug + Send + Sync {}

/// Holds a directory until it is dropped.
pub trait DiskHold: Debug + Send + Sync {}

/// The state of a held directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryState {
    /// Its path leads to it.
    InPlace,
    /// It was moved, and nothing has its former path.
    Moved,
    /// It was moved, and something else has its former path.
    Replaced,
    /// It was removed.
    Removed,
}

/// Whether other guards may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// No other guard may.
    Exclusive,
    /// Other shared guards may.
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

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The last component of its path.
    pub name: OsString,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// The length of a file; zero for a directory.
    pub bytes: u64,
}

/// An error with its operation and path.
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

/// Adds operation and path to an error.
fn at(operation: &'static str, path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), Located { operation, path: path.to_owned(), error })
}

/// Refuses a rename across directories.
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
