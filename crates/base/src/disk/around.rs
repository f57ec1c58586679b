//! Disks that wrap another disk: they override some operations and delegate the rest.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

use super::{DirEntry, Disk, DiskFile, DiskHold, DiskLock, Locking, Opening, Whereabouts};

/// A disk that wraps another one. By default each operation is delegated to the inner disk.
#[allow(missing_docs, clippy::missing_errors_doc, reason = "the operations are those of a disk")]
pub trait Around: Debug + Send + Sync {
    /// The inner disk.
    fn inner(&self) -> &dyn Disk;

    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>> {
        self.inner().open(path, how)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner().list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner().create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner().rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner().remove_file(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner().remove_dir(dir)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner().remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner().sync_dir(dir)
    }

    fn failed_sync(&self, dir: &Path) -> Option<io::Error> {
        self.inner().failed_sync(dir)
    }

    fn find(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        self.inner().find(path)
    }

    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        self.inner().identity(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner().canonical(path)
    }

    fn hold(&self, dir: &Path) -> io::Result<Box<dyn DiskHold>> {
        self.inner().hold(dir)
    }

    fn whereabouts(&self, dir: &Path) -> Whereabouts {
        self.inner().whereabouts(dir)
    }

    fn lock(&self, path: &Path, how: Locking) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.inner().lock(path, how)
    }
}

impl<D: Around> Disk for D {
    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>> {
        Around::open(self, path, how)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        Around::list(self, dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        Around::create_dir_all(self, dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Around::rename(self, from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Around::remove_file(self, path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        Around::remove_dir(self, dir)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        Around::remove_dir_all(self, dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Around::sync_dir(self, dir)
    }

    fn failed_sync(&self, dir: &Path) -> Option<io::Error> {
        Around::failed_sync(self, dir)
    }

    fn find(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        Around::find(self, path)
    }

    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        Around::identity(self, path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Around::canonical(self, path)
    }

    fn hold(&self, dir: &Path) -> io::Result<Box<dyn DiskHold>> {
        Around::hold(self, dir)
    }

    fn whereabouts(&self, dir: &Path) -> Whereabouts {
        Around::whereabouts(self, dir)
    }

    fn lock(&self, path: &Path, how: Locking) -> io::Result<Option<Box<dyn DiskLock>>> {
        Around::lock(self, path, how)
    }
}
