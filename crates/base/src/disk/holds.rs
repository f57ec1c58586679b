//! The held directories of one disk.
//!
//! Invariant: while a directory is held, its path and every path below it lead to that directory. They do not lead to
//! another one that gets its name.

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::DiskHold;

/// The held directories by path, each with its handle. Clones share the list.
#[derive(Clone, Debug)]
pub(super) struct Holds<H>(Arc<Mutex<Vec<Held<H>>>>);

#[derive(Debug)]
struct Held<H> {
    path: PathBuf,
    handle: H,
    /// The number of guards.
    guards: usize,
}

impl<H> Default for Holds<H> {
    fn default() -> Holds<H> {
        Holds(Arc::default())
    }
}

impl<H: Clone + Debug + Send + 'static> Holds<H> {
    fn list(&self) -> MutexGuard<'_, Vec<Held<H>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the path lead to the directory with this handle until the guard is dropped.
    ///
    /// # Errors
    /// `ResourceBusy` if another directory is still held by this path.
    pub(super) fn add(
        &self,
        path: &Path,
        handle: H,
        is_same: impl Fn(&H, &H) -> bool,
    ) -> io::Result<Box<dyn DiskHold>> {
        let mut list = self.list();
        match list.iter_mut().find(|held| held.path == path) {
            Some(held) if is_same(&held.handle, &handle) => held.guards += 1,
            Some(_) => {
                let problem = "a directory that was at this path before is still in use: close its database first";
                return Err(io::Error::new(ErrorKind::ResourceBusy, problem));
            }
            None => list.push(Held { path: path.to_owned(), handle, guards: 1 }),
        }
        drop(list);
        Ok(Box::new(Guard { holds: self.clone(), path: path.to_owned() }))
    }

    /// The innermost held directory on the path, and the rest of the path.
    pub(super) fn locate<'p>(&self, path: &'p Path) -> Option<(H, &'p Path)> {
        self.innermost(path, |_| true)
    }

    /// The innermost held directory above the last name of the path, and the path from there.
    pub(super) fn locate_name<'p>(&self, path: &'p Path) -> Option<(H, &'p Path)> {
        self.innermost(path, |rest| !rest.as_os_str().is_empty())
    }

    fn innermost<'p>(&self, path: &'p Path, wanted: impl Fn(&Path) -> bool) -> Option<(H, &'p Path)> {
        let list = self.list();
        let rests = list.iter().filter_map(|held| path.strip_prefix(&held.path).ok().map(|rest| (held, rest)));
        let innermost = rests.filter(|(_, rest)| wanted(rest)).min_by_key(|(_, rest)| rest.as_os_str().len());
        innermost.map(|(held, rest)| (held.handle.clone(), rest))
    }

    /// The handle of the directory that is held by this path.
    pub(super) fn held(&self, path: &Path) -> Option<H> {
        self.list().iter().find(|held| held.path == path).map(|held| held.handle.clone())
    }
}

#[derive(Debug)]
struct Guard<H: Clone + Debug + Send + 'static> {
    holds: Holds<H>,
    path: PathBuf,
}

impl<H: Clone + Debug + Send + 'static> DiskHold for Guard<H> {}

impl<H: Clone + Debug + Send + 'static> Drop for Guard<H> {
    fn drop(&mut self) {
        let mut list = self.holds.list();
        if let Some(at) = list.iter().position(|held| held.path == self.path) {
            list[at].guards -= 1;
            if list[at].guards == 0 {
                list.swap_remove(at);
            }
        }
    }
}
