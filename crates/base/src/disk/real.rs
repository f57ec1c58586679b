//! The operating system's files.
//!
//! Invariant: one call here is one call there; nothing is buffered, cached or repeated. `sync_data` is fdatasync(2), which also
//! writes the metadata needed to read the data back, so the length; a lock is flock(2), which belongs to the open file or directory
//! and so keeps out other guards of this process, too.

use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, DiskFile, DiskLock, Found, Locking, Opening, at, opened_for_reading, same_directory};

/// The disk of this machine.
pub fn real() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

#[derive(Debug)]
struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>> {
        let writable = how != Opening::Read;
        let mut options = File::options();
        options.read(true).write(writable).create_new(how == Opening::Create);
        let file = options.open(path).map_err(|error| at("open", path, error))?;
        let is_dir = file.metadata().map_err(|error| at("open", path, error))?.is_dir();
        match is_dir {
            true => Err(at("open", path, io::ErrorKind::IsADirectory.into())),
            false => Ok(Box::new(RealFile { file, path: path.to_owned(), writable })),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Found>> {
        let fail = |error| at("list", dir, error);
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            match fs::metadata(entry.path()) {
                Ok(metadata) => found.push(Found::of(entry.file_name(), &metadata)),
                // Removed since, or a link to nothing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at("list", &entry.path(), error)),
            }
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir).map_err(|error| at("create directory", dir, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        same_directory(from, to).and_then(|()| fs::rename(from, to)).map_err(|error| at("rename", from, error))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path).map_err(|error| at("remove", path, error))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(dir).map_err(|error| at("remove", dir, error))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| at("sync", dir, error))
    }

    fn find(&self, path: &Path) -> io::Result<Option<Found>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(Found::of(path.file_name().unwrap_or_default().to_owned(), &metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at("find", path, error)),
        }
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path).map_err(|error| at("find", path, error))
    }

    fn lock(&self, path: &Path, how: Locking) -> io::Result<Option<Box<dyn DiskLock>>> {
        let fail = |error| at("lock", path, error);
        let mut options = File::options();
        match fs::metadata(path) {
            Ok(found) if found.is_dir() || how == Locking::Shared => options.read(true),
            Err(_) if how == Locking::Shared => options.read(true),
            _ => options.write(true).create(true).truncate(false),
        };
        loop {
            let file = options.open(path).map_err(fail)?;
            let locked = match how {
                Locking::Exclusive => file.try_lock(),
                Locking::Shared => file.try_lock_shared(),
            };
            match locked {
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) if is_unsupported(&error) => {
                    return Err(fail(io::Error::new(io::ErrorKind::Unsupported, error)));
                }
                Err(TryLockError::Error(error)) => return Err(fail(error)),
                // Another one has its name if it was removed since it was opened.
                Ok(()) if is_at(&file, path).map_err(fail)? => {
                    return Ok(Some(Box::new(RealLock { file, process: std::process::id() })));
                }
                Ok(()) => {}
            }
        }
    }
}

/// Whether what is open is what the path leads to.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether flock(2) says that this file cannot be locked: `EBADF` comes from NFS, where only files that are open for writing can be.
fn is_unsupported(error: &io::Error) -> bool {
    const EBADF: i32 = 9;
    const EINVAL: i32 = 22;
    const ENOLCK: i32 = 37;
    const ENOSYS: i32 = 38;
    const EOPNOTSUPP: i32 = 95;
    matches!(error.raw_os_error(), Some(EBADF | EINVAL | ENOLCK | ENOSYS | EOPNOTSUPP))
}

#[derive(Debug)]
struct RealFile {
    file: File,
    path: PathBuf,
    writable: bool,
}

impl RealFile {
    /// Reading handles refuse changes with one kind of error; the system has a different one for each call.
    fn writable(&self) -> io::Result<&File> {
        self.writable.then_some(&self.file).ok_or_else(opened_for_reading)
    }
}

impl DiskFile for RealFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset).map_err(|error| at("read", &self.path, error))
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let written = self.writable().and_then(|file| file.write_all_at(bytes, offset));
        written.map_err(|error| at("write", &self.path, error))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().map_err(|error| at("sync", &self.path, error))
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|error| at("measure", &self.path, error))
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.writable().and_then(|file| file.set_len(bytes)).map_err(|error| at("resize", &self.path, error))
    }
}

/// Unlocked when it is dropped. To close the file is not enough: children that another thread has started, and that are not another program
/// yet, have it open, too.
#[derive(Debug)]
struct RealLock {
    file: File,
    /// Whose lock it is.
    process: u32,
}

impl DiskLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // A fork that drops its copy leaves the lock to who has it.
        if std::process::id() == self.process {
            // It is closed next, which unlocks as well where nobody else has it open.
            let _ = self.file.unlock();
        }
    }
}

impl Found {
    fn of(name: std::ffi::OsString, metadata: &Metadata) -> Found {
        let is_dir = metadata.is_dir();
        Found { name, is_dir, bytes: if is_dir { 0 } else { metadata.len() } }
    }
}
