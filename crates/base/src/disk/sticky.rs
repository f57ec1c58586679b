//! A directory whose sync failed is not trusted again.
//!
//! Several things share a directory: names of log segments, of checkpoints, of the manifest. When the sync of
//! one of them fails, the names of the others may be forgotten with it, and their own syncs then lie. So the
//! first failure is every later one's.
//!
//! Invariant: a directory is synced by one at a time, so that nobody's sync succeeds after another's failure.
//! Different directories, which may be on different disks, do not wait for each other.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Around, Disk, at};

/// A disk whose directories can be synced until that fails once; from then on it fails for that directory,
/// until it is removed. Directories are told apart by their paths, not through links.
pub fn sticky_errors(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(StickyDisk { disk, directories: Mutex::default() })
}

#[derive(Debug)]
struct StickyDisk {
    disk: Arc<dyn Disk>,
    /// By absolute path, those that are being synced, and those whose sync failed. Never held while a
    /// directory's own lock is awaited.
    directories: Mutex<BTreeMap<PathBuf, Arc<Directory>>>,
}

/// Held while the directory is synced; what the sync said that failed.
type Directory = Mutex<Option<(io::ErrorKind, String)>>;

impl StickyDisk {
    fn directories(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Directory>>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A directory, and what was in it, is there no more.
    fn removed(&self, dir: &Path) {
        let gone = absolute(dir);
        self.directories().retain(|dir, _| !dir.starts_with(&gone));
    }

    /// Nothing failed, and if nobody else is about to sync it there is nothing to remember.
    fn forget(&self, key: &Path, directory: &Arc<Directory>) {
        let mut directories = self.directories();
        let is_it = directories.get(key).is_some_and(|listed| Arc::ptr_eq(listed, directory));
        // The list's and the caller's: others get theirs from the list, which is locked.
        if is_it && Arc::strong_count(directory) == 2 {
            directories.remove(key);
        }
    }
}

fn remembered(dir: &Path, (kind, message): &(io::ErrorKind, String)) -> io::Error {
    let message = format!("an earlier sync failed, and a second one may lie: {message}");
    at("sync", dir, io::Error::new(*kind, message))
}

/// Its name from the root on; as it is if there is none, for which syncing fails anyway.
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
        // A new one of the same name is another.
        disk.remove_dir_all(Path::new("/db/log")).unwrap();
        disk.create_dir_all(Path::new("/db/log")).unwrap();
        disk.sync_dir(Path::new("/db/log")).unwrap();
    }

    #[test]
    fn a_sync_of_nothing_is_no_failure_of_what_comes_to_be_there() {
        let disk = sticky_errors(Arc::new(FaultyDisk::new(2)));
        assert_eq!(disk.sync_dir(Path::new("/db")).unwrap_err().kind(), ErrorKind::NotFound);
        disk.create_dir_all(Path::new("/db")).unwrap();
        disk.sync_dir(Path::new("/db")).unwrap();
    }

    /// A disk on which `/slow` is synced when `/fast` was, at last.
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
                // Only a test that fails waits so long.
                let waited = self.fast.lock().unwrap().recv_timeout(Duration::from_secs(600));
                waited.map_err(|_| io::Error::other("nobody synced /fast meanwhile"))?;
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
            // Not before the slow one is under way.
            while !sticky.directories().contains_key(Path::new("/slow")) {
                thread::yield_now();
            }
            Disk::sync_dir(&sticky, Path::new("/fast")).unwrap();
            synced.send(()).unwrap();
            slow.join().unwrap().unwrap();
        });
        assert!(sticky.directories().is_empty(), "what succeeded need not be remembered");
    }

    #[test]
    fn of_syncs_of_one_directory_at_once_none_succeeds_after_a_failure() {
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
