//! Remembers failed syncs of directories.
//!
//! Names of log segments, of checkpoints and of the manifest share a directory. When a sync for one of them
//! fails, the kernel may drop the others too, and later syncs then lie. So after one failure every later sync
//! of that directory fails.
//!
//! Invariant: syncs of a directory are serialized, so none succeeds after another one has failed. Different
//! directories, which may be on different disks, do not wait for each other.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Around, Disk, at};

/// Wraps a disk. After a sync of a directory has failed, every later sync of it fails until it is removed.
/// Directories are identified by their paths; links are not resolved.
pub fn sticky_errors(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(StickyDisk { disk, directories: Mutex::default() })
}

#[derive(Debug)]
struct StickyDisk {
    disk: Arc<dyn Disk>,
    /// The directories that are being synced and those whose sync failed, by absolute path. This mutex is not
    /// held while waiting for a directory's lock.
    directories: Mutex<BTreeMap<PathBuf, Arc<Directory>>>,
}

/// Held while the directory is synced. Holds the error of a failed sync.
type Directory = Mutex<Option<(io::ErrorKind, String)>>;

impl StickyDisk {
    fn directories(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Directory>>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a removed directory and the directories that were in it.
    fn removed(&self, dir: &Path) {
        let gone = absolute(dir);
        self.directories().retain(|dir, _| !dir.starts_with(&gone));
    }

    /// Forgets a directory without a failure, unless another thread is about to sync it.
    fn forget(&self, key: &Path, directory: &Arc<Directory>) {
        let mut directories = self.directories();
        let is_it = directories.get(key).is_some_and(|listed| Arc::ptr_eq(listed, directory));
        // The references of the list and of the caller. Other threads get theirs from the list, which is locked.
        if is_it && Arc::strong_count(directory) == 2 {
            directories.remove(key);
        }
    }
}

fn remembered(dir: &Path, (kind, message): &(io::ErrorKind, String)) -> io::Error {
    let message = format!("an earlier sync failed, so a later one cannot be trusted: {message}");
    at("sync", dir, io::Error::new(*kind, message))
}

/// The absolute path, or the path itself if there is none. Syncing then fails anyway.
fn absolute(dir: &Path) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())
}

impl Around for StickyDisk {
    fn inner(&self) -> &dyn Disk {
        &*self.disk
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let key = absolute(dir);
        let directory = Arc::clone(self.directories().entry(key.clone()).or_default());
        let mut failed = directory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failed) = &*failed {
            return Err(remembered(dir, failed));
        }
        let synced = self.disk.sync_dir(dir);
        match &synced {
            Err(error) if error.kind() != io::ErrorKind::NotFound => *failed = Some((error.kind(), error.to_string())),
            _ => self.forget(&key, &directory),
        }
        synced
    }

    fn failed_sync(&self, dir: &Path) -> Option<io::Error> {
        let directory = self.directories().get(&absolute(dir)).map(Arc::clone)?;
        let failed = directory.lock().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().map(|failed| remembered(dir, failed))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)?;
        self.removed(dir);
        Ok(())
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(dir)?;
        self.removed(dir);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::super::{FaultyDisk, Operation, Times};
    use super::*;
    use crate::thread;

    #[test]
    fn a_directory_whose_sync_failed_is_not_synced_again_by_any_of_its_names() {
        let faulty = FaultyDisk::new(1);
        let disk = sticky_errors(Arc::new(faulty.clone()));
        disk.create_dir_all(Path::new("/db/log")).unwrap();
        disk.sync_dir(Path::new("/db")).unwrap();
        faulty.fail(Operation::SyncDir, 1, Times::Once, ErrorKind::Other);
        disk.sync_dir(Path::new("/db/log")).unwrap_err();
        for name in ["/db/log", "/db/./log", "/db/log/."] {
            let error = disk.sync_dir(Path::new(name)).unwrap_err();
            assert!(error.to_string().contains("an earlier sync failed"), "{error}");
            assert_eq!(error.kind(), ErrorKind::Other);
            assert!(disk.failed_sync(Path::new(name)).is_some());
        }
        disk.sync_dir(Path::new("/db")).unwrap();
        assert!(disk.failed_sync(Path::new("/db")).is_none());
        // A new directory of the same name is a different one.
        disk.remove_dir_all(Path::new("/db/log")).unwrap();
        disk.create_dir_all(Path::new("/db/log")).unwrap();
        disk.sync_dir(Path::new("/db/log")).unwrap();
    }

    #[test]
    fn a_failed_sync_of_a_missing_directory_does_not_affect_a_later_one() {
        let disk = sticky_errors(Arc::new(FaultyDisk::new(2)));
        assert_eq!(disk.sync_dir(Path::new("/db")).unwrap_err().kind(), ErrorKind::NotFound);
        disk.create_dir_all(Path::new("/db")).unwrap();
        disk.sync_dir(Path::new("/db")).unwrap();
    }

    /// A disk on which `/slow` is synced only after `/fast` was.
    #[derive(Debug)]
    struct Waiting {
        disk: FaultyDisk,
        fast: Mutex<mpsc::Receiver<()>>,
    }

    impl Around for Waiting {
        fn inner(&self) -> &dyn Disk {
            &self.disk
        }

        fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            if dir == Path::new("/slow") {
                // Only a failing test waits this long.
                let waited = self.fast.lock().unwrap().recv_timeout(Duration::from_secs(600));
                waited.map_err(|_| io::Error::other("no thread synced /fast meanwhile"))?;
            }
            self.disk.sync_dir(dir)
        }
    }

    #[test]
    fn a_directory_is_synced_while_another_one_is() {
        let faulty = FaultyDisk::new(3);
        let (synced, fast) = mpsc::channel();
        let waiting = Waiting { disk: faulty.clone(), fast: Mutex::new(fast) };
        let sticky = StickyDisk { disk: Arc::new(waiting), directories: Mutex::default() };
        for dir in ["/slow", "/fast"] {
            Disk::create_dir_all(&sticky, Path::new(dir)).unwrap();
        }
        thread::scope(|scope| {
            let slow = scope.spawn(|| Disk::sync_dir(&sticky, Path::new("/slow")));
            // Waits until the slow sync has begun.
            while !sticky.directories().contains_key(Path::new("/slow")) {
                thread::yield_now();
            }
            Disk::sync_dir(&sticky, Path::new("/fast")).unwrap();
            synced.send(()).unwrap();
            slow.join().unwrap().unwrap();
        });
        assert!(sticky.directories().is_empty(), "a directory without a failure is not remembered");
    }

    #[test]
    fn no_concurrent_sync_of_a_directory_succeeds_after_a_failure() {
        for n in 1..=4 {
            let faulty = FaultyDisk::new(4);
            let disk = sticky_errors(Arc::new(faulty.clone()));
            disk.create_dir_all(Path::new("/db")).unwrap();
            let before = faulty.count(Operation::SyncDir);
            faulty.fail(Operation::SyncDir, n, Times::Once, ErrorKind::Other);
            let succeeded = thread::scope(|scope| {
                let syncing: Vec<_> = (0..4).map(|_| scope.spawn(|| disk.sync_dir(Path::new("/db")))).collect();
                syncing.into_iter().map(|sync| sync.join().unwrap()).filter(Result::is_ok).count()
            });
            assert_eq!((succeeded as u64, faulty.count(Operation::SyncDir) - before), (n - 1, n));
        }
    }
}
