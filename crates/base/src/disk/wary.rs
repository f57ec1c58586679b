//! A directory whose sync failed is not trusted again.
//!
//! Several things share a directory: names of log segments, of checkpoints, of the manifest. When the sync of one of them fails, the names
//! of the others may be forgotten with it, and their own syncs then lie. So the first failure is every later one's.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile, DiskLock, Found, Opening, at};

/// A disk whose directories can be synced until that fails once; from then on it fails for that directory, until it is removed.
/// Directories are told apart by their paths, not through links.
pub fn wary(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(WaryDisk { disk, failed: Mutex::default() })
}

#[derive(Debug)]
struct WaryDisk {
    disk: Arc<dyn Disk>,
    /// By absolute path, what the sync said that failed.
    failed: Mutex<BTreeMap<PathBuf, (io::ErrorKind, String)>>,
}

impl WaryDisk {
    fn failed(&self) -> MutexGuard<'_, BTreeMap<PathBuf, (io::ErrorKind, String)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Its name from the root on; as it is if there is none, for which syncing fails anyway.
fn absolute(dir: &Path) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())
}

impl Disk for WaryDisk {
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let key = absolute(dir);
        // Held meanwhile, so that nobody's sync succeeds after another's failure.
        let mut failed = self.failed();
        if let Some((kind, message)) = failed.get(&key) {
            let message = format!("an earlier sync failed, and a second one may lie: {message}");
            return Err(at("sync", dir, io::Error::new(*kind, message)));
        }
        self.disk.sync_dir(dir).inspect_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                failed.insert(key, (error.kind(), error.to_string()));
            }
        })
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(dir)?;
        let gone = absolute(dir);
        self.failed().retain(|dir, _| !dir.starts_with(&gone));
        Ok(())
    }

    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path, how)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Found>> {
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn find(&self, path: &Path) -> io::Result<Option<Found>> {
        self.disk.find(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.lock(path)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::super::{FaultyDisk, Operation, Times};
    use super::*;

    #[test]
    fn a_directory_whose_sync_failed_is_not_synced_again_by_any_of_its_names() {
        let faulty = FaultyDisk::new(1);
        let disk = wary(Arc::new(faulty.clone()));
        disk.create_dir_all(Path::new("/db/log")).unwrap();
        disk.sync_dir(Path::new("/db")).unwrap();
        faulty.fail(Operation::SyncDir, 1, Times::Once, ErrorKind::Other);
        disk.sync_dir(Path::new("/db/log")).unwrap_err();
        for name in ["/db/log", "/db/./log", "/db/log/."] {
            let error = disk.sync_dir(Path::new(name)).unwrap_err();
            assert!(error.to_string().contains("an earlier sync failed"), "{error}");
            assert_eq!(error.kind(), ErrorKind::Other);
        }
        disk.sync_dir(Path::new("/db")).unwrap();
        // A new one of the same name is another.
        disk.remove_dir_all(Path::new("/db/log")).unwrap();
        disk.create_dir_all(Path::new("/db/log")).unwrap();
        disk.sync_dir(Path::new("/db/log")).unwrap();
    }

    #[test]
    fn a_sync_of_nothing_is_no_failure_of_what_comes_to_be_there() {
        let disk = wary(Arc::new(FaultyDisk::new(2)));
        assert_eq!(disk.sync_dir(Path::new("/db")).unwrap_err().kind(), ErrorKind::NotFound);
        disk.create_dir_all(Path::new("/db")).unwrap();
        disk.sync_dir(Path::new("/db")).unwrap();
    }
}
