//! The simulated disk. It is in memory, deterministic by its seed and the order of calls, and as unkind as
//! POSIX allows.
//!
//! **The power cut.** Everything that was synced survives. Each of the following changes survives or is lost,
//! independently of the others and of their order:
//! - *Every written sector of 512 bytes*: the disk holds the value of the last sync, or that of any later
//!   write. So long writes are torn, and writes are reordered. A sector itself is never torn.
//! - *The length of a file*, likewise. A sector within the length that never arrived reads as zeros. One that
//!   arrived beyond it is cut off. So bytes that a truncation removed may come back.
//! - *The names of a directory*: those created, renamed or removed since [`Disk::sync_dir`]. Changes of one name keep
//!   their order, so a name leads where it led at some moment since. A rename changes two names at once, and is never
//!   half done. A file with synced contents is lost if its name was not synced, or if its directory's name was not.
//!
//! This is what POSIX permits, and worse than a journalling file system (Pillai et al., "All File Systems Are
//! Not Created Equal", OSDI 2014, table 1). A program that survives it relies on nothing but syncs. Not
//! simulated: old contents of other files in newly allocated sectors, and damage to sectors at rest unless requested
//! ([`FaultyDisk::flip_bit`], [`FaultyDisk::zero`]). Nor are disks that lie about a sync.
//!
//! **The failed sync** decides at once, by the seed, which changes reached the disk. The others are still read,
//! but no later sync makes them durable unless they are written again (Rebello et al., USENIX ATC 2020). Names
//! likewise. **The failed write** leaves any prefix of its bytes; **the full disk** as many as fit, or none.
//! Other failed operations have no effect. An operation **at which the power is cut** may be done or not.
//!
//! All state is under one mutex. There is no hidden order in it: maps are ordered, and all random draws come
//! from one generator.

mod contents;
mod faults;
mod names;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::faults::{Operation, Times, is_power_off};

use self::contents::SECTOR_BYTES;
use self::faults::{End, Fate, Faults, PowerOff};
use self::tree::{At, NodeId, Tree, WriteError};
use super::holds::Holds;
use super::{
    DirEntry, DirectoryState, Disk, DiskFile, DiskHold, DiskLock, Locking, Opening, at, opened_for_reading,
    same_directory,
};
use crate::Rng;

/// A handle of a simulated disk. Clones are handles of the same disk.
///
/// A handle is a [`Disk`] that survives power cuts. A program under test uses the handle of
/// [`FaultyDisk::mount`], which does not.
#[derive(Clone)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
    /// The boot that this handle belongs to. A handle with `None` survives power cuts and kills.
    boot: Option<u64>,
    /// The directories held on this handle and its clones. Another mount is another process.
    holds: Holds<NodeId>,
}

struct State {
    seed: u64,
    rng: Rng,
    tree: Tree,
    /// The lock on each locked file or directory, and the number of its holders.
    locks: BTreeMap<NodeId, (Locking, usize)>,
    faults: Faults,
    /// Capacity in sectors.
    capacity: u64,
    powered: bool,
    /// The number of power cuts and kills so far.
    boot: u64,
}

impl FaultyDisk {
    /// An empty disk without faults or bounds.
    pub fn new(seed: u64) -> FaultyDisk {
        FaultyDisk::of(seed, Tree::new(), u64::MAX)
    }

    fn of(seed: u64, tree: Tree, capacity: u64) -> FaultyDisk {
        let rng = Rng::from_seed(seed);
        let (locks, faults) = (BTreeMap::new(), Faults::default());
        let state = State { seed, rng, tree, locks, faults, capacity, powered: true, boot: 0 };
        FaultyDisk { state: Arc::new(Mutex::new(state)), boot: None, holds: Holds::default() }
    }

    /// The seed of all random decisions of this disk.
    pub fn seed(&self) -> u64 {
        self.state().seed
    }

    /// A handle for a process that starts now. After a power cut or a kill all its calls fail, even after a
    /// reboot, so threads of the dead process do no harm.
    #[must_use]
    pub fn mount(&self) -> FaultyDisk {
        let boot = self.state().boot;
        self.of_boot(boot)
    }

    fn of_boot(&self, boot: u64) -> FaultyDisk {
        FaultyDisk { state: Arc::clone(&self.state), boot: Some(boot), holds: Holds::default() }
    }

    /// Another disk with the durable contents of this one, and with its capacity but without its faults.
    #[must_use]
    pub fn fork(&self, seed: u64) -> FaultyDisk {
        let state = self.state();
        FaultyDisk::of(seed, state.tree.durable(), state.capacity)
    }

    /// Cuts the power and restores it: [`FaultyDisk::power_off`] and [`FaultyDisk::reboot`].
    pub fn crash(&self) {
        self.power_off();
        self.reboot();
    }

    /// Cuts the power. Every call fails until the reboot (see [`is_power_off`]); open files, locks and mounts
    /// fail for ever. Does nothing while the power is off.
    pub fn power_off(&self) {
        self.state().power_off();
    }

    /// Kills the process that uses the disk: its mounts, open files and locks fail for ever. Its changes
    /// remain, and unsynced ones are no more durable than before. Does nothing while the power is off.
    pub fn kill(&self) {
        self.state().kill();
    }

    /// Restores the power.
    pub fn reboot(&self) {
        self.state().powered = true;
    }

    /// Whether the power is on.
    pub fn is_powered(&self) -> bool {
        self.state().powered
    }

    /// Cuts the power at the n-th operation of any kind from now; 1 is the next. If the process ends earlier,
    /// the plan is dropped.
    pub fn crash_at(&self, n: u64) {
        self.state().faults.end(n, End::PowerCut);
    }

    /// As [`FaultyDisk::crash_at`], with [`FaultyDisk::kill`]. The operation may be done or not.
    pub fn kill_at(&self, n: u64) {
        self.state().faults.end(n, End::Kill);
    }

    /// Whether the process of this mount is alive. A handle that is not a mount is alive while the power is on.
    pub fn is_alive(&self) -> bool {
        let state = self.state();
        state.powered && self.boot.is_none_or(|boot| boot == state.boot)
    }

    /// Makes the n-th operation of this kind from now fail; 1 is the next. A power cut does not cancel this.
    pub fn fail(&self, operation: Operation, n: u64, times: Times, kind: ErrorKind) {
        self.state().faults.fail(operation, n, times, kind);
    }

    /// Cancels all planned failures. Lost changes stay lost.
    pub fn heal(&self) {
        self.state().faults.heal();
    }

    /// Sets the capacity, rounded down to sectors; `u64::MAX` is unlimited. A write that needs more space fails
    /// with `StorageFull`, a write to occupied space does not.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes / SECTOR_BYTES as u64;
    }

    /// Occupied space. Holes, directories and files without a name occupy none.
    pub fn used_bytes(&self) -> u64 {
        self.state().tree.sectors() * SECTOR_BYTES as u64
    }

    /// The number of operations of a kind, including failed ones, but not those refused because the power was off.
    pub fn count(&self, operation: Operation) -> u64 {
        self.state().faults.count(operation)
    }

    /// The number of operations of all kinds.
    pub fn operations(&self) -> u64 {
        self.state().faults.total()
    }

    /// Inverts a bit (modulo 8) of the byte at `offset`, on the disk and in the page cache. Works without power.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `InvalidInput` if the file is shorter.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let changed = self.state().tree.corrupt(path, (offset, 1), |contents| contents.flip_bit(offset, bit));
        changed.map_err(|error| at("corrupt", path, error))
    }

    /// Zeroes `bytes` bytes from `offset`, on the disk and in the page cache. Works without power.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `InvalidInput` if the file is shorter.
    pub fn zero(&self, path: &Path, offset: u64, bytes: u64) -> io::Result<()> {
        let changed =
            self.state().tree.corrupt(path, (offset, bytes), |contents| contents.zero(offset, bytes as usize));
        changed.map_err(|error| at("corrupt", path, error))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves consistent state: nothing here panics between two related changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves a path.
    fn at<'p>(&self, path: &'p Path) -> At<'p> {
        self.holds.locate(path).map_or(path.into(), |(dir, path)| At { dir, path })
    }

    /// Resolves a path up to its last name, whatever has that name.
    fn named<'p>(&self, path: &'p Path) -> At<'p> {
        self.holds.locate_name(path).map_or(path.into(), |(dir, path)| At { dir, path })
    }

    /// Runs an operation that has no effect if it fails.
    fn run<T>(
        &self,
        operation: Operation,
        verb: &'static str,
        path: &Path,
        act: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        self.state().run(self.boot, operation, act, |_| ()).map_err(|error| at(verb, path, error))
    }
}

impl State {
    /// Runs an operation with its planned outcome: `act` is its effect, `fail` the effect of its failure.
    fn run<T>(
        &mut self,
        boot: Option<u64>,
        operation: Operation,
        act: impl FnOnce(&mut State) -> io::Result<T>,
        fail: impl FnOnce(&mut State),
    ) -> io::Result<T> {
        if !self.powered {
            return Err(PowerOff::Still.into());
        }
        if boot.is_some_and(|boot| boot != self.boot) {
            return Err(PowerOff::Since.into());
        }
        match self.faults.next(operation) {
            Fate::Succeeds => act(self),
            Fate::Fails(kind) => {
                fail(self);
                Err(io::Error::new(kind, Injected(kind)))
            }
            Fate::Ends(end) => {
                if self.rng.percent(50) {
                    // No caller learns the result.
                    let _ = act(self);
                }
                match end {
                    End::PowerCut => self.power_off(),
                    End::Kill => self.kill(),
                }
                Err(PowerOff::Still.into())
            }
        }
    }

    fn power_off(&mut self) {
        if std::mem::take(&mut self.powered) {
            self.boot += 1;
            self.locks.clear();
            self.faults.forget_end();
            self.tree.crash(&mut self.rng);
        }
    }

    fn kill(&mut self) {
        if self.powered {
            self.boot += 1;
            self.locks.clear();
            self.faults.forget_end();
            self.tree.close_all();
        }
    }

    fn write_at(&mut self, file: NodeId, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.tree.write_at(file, bytes, offset, self.capacity) {
            Ok(()) => Ok(()),
            Err(WriteError::Refused(error)) => Err(error),
            Err(WriteError::Full { fitting }) => {
                if self.rng.percent(50) {
                    // It fits, as `fitting` says.
                    let _ = self.tree.write_at(file, &bytes[..fitting], offset, self.capacity);
                }
                Err(ErrorKind::StorageFull.into())
            }
        }
    }

    fn lock(&mut self, path: At<'_>, how: Locking) -> io::Result<Option<(NodeId, bool, u64)>> {
        let (node, is_dir) = match self.tree.at(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && how == Locking::Exclusive => {
                (self.tree.create_file(path)?, false)
            }
            found => found?,
        };
        let (held, holders) = self.locks.entry(node).or_insert((how, 0));
        if *holders > 0 && (how, *held) != (Locking::Shared, Locking::Shared) {
            return Ok(None);
        }
        *holders += 1;
        if !is_dir {
            self.tree.file(node).handles += 1;
        }
        Ok(Some((node, is_dir, self.boot)))
    }

    /// A lock was dropped that was taken in boot `boot`.
    fn unlock(&mut self, node: NodeId, is_dir: bool, boot: u64) {
        if boot != self.boot || (!is_dir && !self.close(node, boot)) {
            return;
        }
        if let Some((_, holders)) = self.locks.get_mut(&node) {
            *holders -= 1;
            if *holders == 0 {
                self.locks.remove(&node);
            }
        }
    }

    /// A handle was dropped that was opened in boot `boot`. Returns whether `boot` is current.
    fn close(&mut self, file: NodeId, boot: u64) -> bool {
        let current = boot == self.boot;
        if current {
            self.tree.file(file).handles -= 1;
        }
        current
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, how: Opening) -> io::Result<Box<dyn DiskFile>> {
        let (file, boot) = self.run(Operation::Open, "open", path, |state| {
            let file = match how {
                Opening::Create => state.tree.create_file(self.named(path))?,
                Opening::Read | Opening::Write => state.tree.file_at(self.at(path))?,
            };
            state.tree.file(file).handles += 1;
            Ok((file, state.boot))
        })?;
        let disk = self.of_boot(boot);
        Ok(Box::new(FaultyFile { disk, boot, file, path: path.to_owned(), writable: how != Opening::Read }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.run(Operation::Look, "list", dir, |state| state.tree.list(self.at(dir)))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.run(Operation::CreateDir, "create directory", dir, |state| state.tree.create_dir_all(self.at(dir)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.run(Operation::Rename, "rename", from, |state| {
            same_directory(from, to)?;
            state.tree.rename(self.named(from), self.named(to))
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.run(Operation::Remove, "remove", path, |state| state.tree.remove_file(self.named(path)))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.run(Operation::Remove, "remove", dir, |state| match state.tree.list(self.named(dir))?.is_empty() {
            true => state.tree.remove_dir_all(self.named(dir)),
            false => Err(ErrorKind::DirectoryNotEmpty.into()),
        })
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.run(Operation::Remove, "remove", dir, |state| state.tree.remove_dir_all(self.named(dir)))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let fail = |state: &mut State| {
            if let Ok(names) = state.tree.dir(self.at(dir)) {
                names.fail_sync(&mut state.rng);
            }
        };
        let synced = self.state().run(self.boot, Operation::SyncDir, |state| state.tree.sync_dir(self.at(dir)), fail);
        synced.map_err(|error| at("sync", dir, error))
    }

    fn find(&self, path: &Path) -> io::Result<Option<DirEntry>> {
        self.run(Operation::Look, "find", path, |state| {
            match state.tree.found(self.at(path), path.file_name().unwrap_or_default()) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                found => found.map(Some),
            }
        })
    }

    fn identity(&self, path: &Path) -> io::Result<Option<(u64, u64)>> {
        self.run(Operation::Look, "find", path, |state| match state.tree.find(self.at(path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => found.map(|node| Some((0, node))),
        })
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let named =
            |state: &mut State| state.tree.at(path.into()).map(|_| Path::new("/").join(path).components().collect());
        self.run(Operation::Look, "find", path, named)
    }

    fn hold(&self, dir: &Path) -> io::Result<Box<dyn DiskHold>> {
        let found = self.run(Operation::Look, "hold", dir, |state| match state.tree.at(self.named(dir))? {
            (node, true) => Ok(node),
            (_, false) => Err(ErrorKind::NotADirectory.into()),
        });
        self.holds.add(dir, found?, |a, b| a == b).map_err(|error| at("hold", dir, error))
    }

    fn whereabouts(&self, dir: &Path) -> DirectoryState {
        let Some(held) = self.holds.held(dir) else { return DirectoryState::InPlace };
        let state = self.state();
        match state.tree.find(dir.into()) {
            _ if !state.tree.is_linked(held) => DirectoryState::Removed,
            Ok(found) if found == held => DirectoryState::InPlace,
            Ok(_) => DirectoryState::Replaced,
            Err(_) => DirectoryState::Moved,
        }
    }

    fn lock(&self, path: &Path, how: Locking) -> io::Result<Option<Box<dyn DiskLock>>> {
        let locked = self.run(Operation::Lock, "lock", path, |state| state.lock(self.at(path), how))?;
        Ok(locked.map(|(node, is_dir, boot)| -> Box<dyn DiskLock> {
            let disk = self.of_boot(boot);
            Box::new(FaultyLock { disk, boot, node, is_dir })
        }))
    }
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("FaultyDisk")
            .field("seed", &state.seed)
            .field("operations", &state.faults.total())
            .field("boots", &state.boot)
            .field("powered", &state.powered)
            .field("ends_at_operation", &state.faults.ends_at())
            .field("has_faults", &state.faults.is_planned())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct FaultyFile {
    disk: FaultyDisk,
    boot: u64,
    file: NodeId,
    path: PathBuf,
    writable: bool,
}

impl FaultyFile {
    fn writable(&self) -> io::Result<()> {
        self.writable.then_some(()).ok_or_else(opened_for_reading)
    }
}

impl DiskFile for FaultyFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.run(Operation::Read, "read", &self.path, |state| {
            Ok(state.tree.file(self.file).contents.read_at(buffer, offset))
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fail = |state: &mut State| {
            if self.writable {
                let torn = state.rng.below(bytes.len() as u64 + 1) as usize;
                // The write fails in any case.
                let _ = state.write_at(self.file, &bytes[..torn], offset);
            }
        };
        let write = |state: &mut State| self.writable().and_then(|()| state.write_at(self.file, bytes, offset));
        let written = self.disk.state().run(self.disk.boot, Operation::Write, write, fail);
        written.map_err(|error| at("write", &self.path, error))
    }

    fn sync_data(&self) -> io::Result<()> {
        let sync = |state: &mut State| {
            state.tree.file(self.file).contents.sync();
            Ok(())
        };
        let fail = |state: &mut State| state.tree.file(self.file).contents.fail_sync(&mut state.rng);
        let synced = self.disk.state().run(self.disk.boot, Operation::Sync, sync, fail);
        synced.map_err(|error| at("sync", &self.path, error))
    }

    fn bytes(&self) -> io::Result<u64> {
        self.disk.run(Operation::Look, "measure", &self.path, |state| Ok(state.tree.file(self.file).contents.bytes()))
    }

    fn is_removed(&self) -> bool {
        let mut state = self.disk.state();
        state.boot == self.boot && !state.tree.file(self.file).linked
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.disk.run(Operation::Resize, "resize", &self.path, |state| {
            self.writable()?;
            state.tree.set_bytes(self.file, bytes)
        })
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        self.disk.state().close(self.file, self.boot);
    }
}

#[derive(Debug)]
struct FaultyLock {
    disk: FaultyDisk,
    boot: u64,
    node: NodeId,
    is_dir: bool,
}

impl DiskLock for FaultyLock {}

impl Drop for FaultyLock {
    fn drop(&mut self) {
        self.disk.state().unlock(self.node, self.is_dir, self.boot);
    }
}

/// The text of an injected error.
#[derive(Debug)]
struct Injected(ErrorKind);

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (injected)", self.0)
    }
}

impl std::error::Error for Injected {}

/// The probability that each change survives one power cut or failed sync, in percent. With 50 % only, a long
/// history would hardly ever survive or be lost as a whole.
fn draw_survival(rng: &mut Rng) -> u64 {
    25 * rng.below(5)
}
