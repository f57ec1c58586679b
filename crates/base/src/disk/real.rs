//! Files of the operating system.
//!
//! Invariant: each call is one system call; nothing is buffered, cached or repeated. A path below a held
//! directory is resolved from that directory's handle. `sync_data` is fdatasync(2), which also writes the
//! metadata needed to read the data, such as the length. A lock is flock(2). It belongs to the open file or
//! directory, so it also excludes other guards of this process.

use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::holds::Holds;
use super::posix::{self, Status, flags};
use super::{
    DirEntry, Disk, DiskFile, DiskHold, DiskLock, Locking, Opening, Whereabouts, at, opened_for_reading, same_directory,
};

/// The disk of this machine. A held directory is held only on this handle and its clones.
pub fn real() -> Arc<dyn Disk> {
    Arc::new(RealDisk::default())
}

#[derive(Debug, Default)]
struct RealDisk {
    holds: Holds<Arc<HeldDir>>,
}

/// A directory that is held.
#[derive(Debug)]
struct HeldDir {
    dir: File,
    /// Device and inode.
    id: (u64, u64),
    /// Its path when it was opened, without links.
    canonical: PathBuf,
    links: Links,
}

/// A path relative to a held directory, or to the working directory of the process.
struct Target<'p> {
    held: Option<Arc<HeldDir>>,
    path: &'p Path,
}

impl<'p> Target<'p> {
    fn new(path: &'p Path, located: Option<(Arc<HeldDir>, &'p Path)>) -> Target<'p> {
        located.map_or(Target { held: None, path }, |(held, path)| Target { held: Some(held), path })
    }

    fn dir(&self) -> RawFd {
        self.held.as_ref().map_or(posix::WORKING, |held| held.dir.as_raw_fd())
    }

    fn open(&self, flags: i32) -> io::Result<File> {
        posix::open(self.dir(), self.path, flags)
    }

    fn status(&self) -> io::Result<Status> {
        posix::status(self.dir(), self.path)
    }

    /// Creates a directory and its missing parents, up to the held directory.
    fn create_dir_all(&self) -> io::Result<()> {
        let create = || match posix::create_dir(self.dir(), self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound && self.status().is_ok_and(|found| found.is_dir) => {
                Ok(())
            }
            created => created,
        };
        match (create(), self.path.parent()) {
            (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound && !parent.as_os_str().is_empty() => {
                Target { held: self.held.clone(), path: parent }.create_dir_all()?;
                create()
            }
            (created, _) => created,
        }
    }
}

impl RealDisk {
    /// Resolves a path.
    fn at<'p>(&self, path: &'p Path) -> Target<'p> {
        Target::new(path, self.holds.locate(path))
    }

    /// Resolves a path up to its last name, whatever has that name.
    fn named<'p>(&self, path: &'p Path) -> Target<'p> {
        Target::new(path, self.holds.locate_name(path))
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>> {
        let fail = |error| at("open", path, error);
        let (target, flags) = match how {
            Opening::Read => (self.at(path), flags::READ),
            Opening::Write => (self.at(path), flags::WRITE),
            Opening::Create => (self.named(path), flags::CREATE),
        };
        let file = target.open(flags).map_err(fail)?;
        let status = file.metadata().map_err(fail)?;
        if status.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        let links = Links::of(&status);
        Ok(Box::new(RealFile { file, path: path.to_owned(), writable: how != Opening::Read, links }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let fail = |error| at("list", dir, error);
        let open = self.at(dir).open(flags::DIRECTORY).map_err(fail)?;
        let mut found = Vec::new();
        for name in open.try_clone().and_then(posix::names).map_err(fail)? {
            match posix::status(open.as_raw_fd(), name.as_ref()) {
                Ok(status) => found.push(DirEntry::of(name, &status)),
                // It was removed meanwhile, or is a dangling link.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at("list", &dir.join(name), error)),
            }
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let target = self.at(dir);
        // A held directory exists.
        let created = if target.path.as_os_str().is_empty() { Ok(()) } else { target.create_dir_all() };
        created.map_err(|error| at("create directory", dir, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let rename = || {
            same_directory(from, to)?;
            let target = self.named(from);
            posix::rename(target.dir(), target.path, self.named(to).path)
        };
        rename().map_err(|error| at("rename", from, error))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let target = self.named(path);
        posix::remove_file(target.dir(), target.path).map_err(|error| at("remove", path, error))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let target = self.named(dir);
        posix::remove_dir(target.dir(), target.path).map_err(|error| at("remove", dir, error))
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        let target = self.named(dir);
        posix::remove_dir_all(target.dir(), target.path).map_err(|error| at("remove", dir, error))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let target = self.at(dir);
        let synced = match &target.held {
            Some(held) if target.path.as_os_str().is_empty() => held.dir.sync_all(),
            _ => target.open(flags::READ).and_then(|dir| dir.sync_all()),
        };
        synced.map_err(|error| at("sync", dir, error))
    }

    fn find(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        match self.at(path).status() {
            Ok(status) => Ok(Some(DirEntry::of(path.file_name().unwrap_or_default().to_owned(), &status))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at("find", path, error)),
        }
    }

    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        match self.at(path).status() {
            Ok(status) => Ok(Some(status.id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at("find", path, error)),
        }
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path).map_err(|error| at("find", path, error))
    }

    fn hold(&self, dir: &Path) -> io::Result<Box<dyn DiskHold>> {
        let hold = || {
            let target = self.named(dir);
            let opened = target.open(flags::DIRECTORY)?;
            let status = opened.metadata()?;
            let path = target.held.as_ref().map_or(dir.to_owned(), |above| above.canonical.join(target.path));
            // A symbolic link in the path may be changed later.
            let canonical = fs::canonicalize(&path).unwrap_or(path);
            let held = HeldDir { dir: opened, id: (status.dev(), status.ino()), canonical, links: Links::of(&status) };
            self.holds.add(dir, Arc::new(held), |a, b| a.id == b.id)
        };
        hold().map_err(|error| at("hold", dir, error))
    }

    fn whereabouts(&self, dir: &Path) -> Whereabouts {
        let Some(held) = self.holds.held(dir) else { return Whereabouts::InPlace };
        // A directory that was not removed has a link from its own `.` or from its parent.
        let is_removed = held.links.are_gone(&held.dir);
        match fs::metadata(&held.canonical) {
            _ if is_removed => Whereabouts::Removed,
            Ok(found) if (found.dev(), found.ino()) == held.id => Whereabouts::InPlace,
            Ok(_) => Whereabouts::Replaced,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Whereabouts::Moved,
            // Unknown.
            Err(_) => Whereabouts::InPlace,
        }
    }

    fn lock(&self, path: &Path, how: Locking) -> io::Result<Option<Box<dyn DiskLock>>> {
        let fail = |error| at("lock", path, error);
        let target = self.at(path);
        let flags = match target.status() {
            Ok(found) if found.is_dir || how == Locking::Shared => flags::READ,
            Err(_) if how == Locking::Shared => flags::READ,
            _ => flags::FIND_OR_CREATE,
        };
        loop {
            let file = target.open(flags).map_err(fail)?;
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
                // If it was removed after it was opened, another file may have its name.
                Ok(()) if is_at(&file, &target).map_err(fail)? => {
                    return Ok(Some(Box::new(RealLock { file, process: std::process::id() })));
                }
                Ok(()) => {}
            }
        }
    }
}

/// Whether the file system counts links. Some file systems in user space report 0 links for every file.
#[derive(Clone, Copy, Debug)]
struct Links {
    are_counted: bool,
}

impl Links {
    /// `status` was read while the file or directory existed.
    fn of(status: &Metadata) -> Links {
        Links { are_counted: status.nlink() > 0 }
    }

    /// Whether the open file or directory has lost its last name since.
    fn are_gone(self, open: &File) -> bool {
        self.are_counted && open.metadata().is_ok_and(|status| status.nlink() == 0)
    }
}

/// Whether the path leads to the open file.
fn is_at(file: &File, target: &Target<'_>) -> io::Result<bool> {
    let opened = file.metadata()?;
    match target.status() {
        Ok(found) => Ok(found.id == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether flock(2) reports that this file cannot be locked. NFS returns `EBADF`, since it locks only files
/// that are open for writing.
fn is_unsupported(error: &io::Error) -> bool {
    use libc::{EBADF, EINVAL, ENOLCK, ENOSYS, EOPNOTSUPP};
    matches!(error.raw_os_error(), Some(EBADF | EINVAL | ENOLCK | ENOSYS | EOPNOTSUPP))
}

#[derive(Debug)]
struct RealFile {
    file: File,
    path: PathBuf,
    writable: bool,
    links: Links,
}

impl RealFile {
    /// Refuses changes of read-only handles with one kind of error; the system has a different one for each call.
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

    fn is_removed(&self) -> bool {
        self.links.are_gone(&self.file)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.writable().and_then(|file| file.set_len(bytes)).map_err(|error| at("resize", &self.path, error))
    }
}

/// A lock, released when it is dropped. Closing the file would not suffice: children that another thread has
/// forked, and that have not called exec yet, have it open, too.
#[derive(Debug)]
struct RealLock {
    file: File,
    /// The process that owns the lock.
    process: u32,
}

impl DiskLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // A fork that drops its copy must not release the lock of its parent.
        if std::process::id() == self.process {
            // The file is closed next, which also unlocks it if no other process has it open.
            let _ = self.file.unlock();
        }
    }
}

impl DirEntry {
    fn of(name: std::ffi::OsString, &Status { is_dir, bytes, .. }: &Status) -> DirEntry {
        DirEntry { name, is_dir, bytes: if is_dir { 0 } else { bytes } }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// A file without a name, opened once more, is like one of a file system that counts no links.
    #[test]
    fn a_file_is_not_removed_because_no_links_are_counted() {
        let path = std::env::temp_dir().join(format!("seriatim-links-{}", std::process::id()));
        let disk = RealDisk::default();
        let counted = disk.open(&path, Opening::Create).expect("there is room");
        assert!(!counted.is_removed());
        let same = File::open(&path).expect("it is there");
        fs::remove_file(&path).expect("it is there");
        assert!(counted.is_removed());
        let uncounted = disk.open(Path::new(&format!("/proc/self/fd/{}", same.as_raw_fd())), Opening::Read);
        assert!(!uncounted.expect("it is open").is_removed());
    }
}
