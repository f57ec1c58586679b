//! Simulated cores: the simulated implementation of threads and clocks, in builds with the feature `simulate`.
//!
//! A [`Machine`] runs many cores on one thread, one at a time. While a machine is [in charge](in_charge) of a thread,
//! platform calls of that thread act on the core that is running. Steps and waits pass virtual time and may let other
//! cores run, and the clock is virtual. The crate `simulate` implements the machine; this module only calls it.

use std::cell::Cell;
use std::time::Duration;

use crate::thread::{BatchWork, Touch};

/// Why virtual time passes on a core without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The core executes so many pause instructions.
    Spin(u32),
    /// The core yields its processor.
    Yield,
    /// The core sleeps at least this long.
    Sleep(Duration),
    /// The core stays awake for this long, and yields its processor.
    Awake(Duration),
}

/// An operation on a region: code that takes effect at one moment of virtual time, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// Begins a region.
    Begin,
    /// Loads a word.
    Load,
    /// Stores a word, which stays invisible to other cores until the commit.
    Store,
    /// Commits the region. Its stores become visible before any core takes another step.
    Commit {
        /// Whether the region decides a transaction, or publishes a piece of one.
        decides: bool,
    },
    /// Aborts the region.
    Abort,
}

/// The cache lines that a region touched, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkingSet {
    /// Lines that it loaded from.
    pub read: usize,
    /// Lines that it stored to.
    pub written: usize,
    /// Lines that it touched.
    pub lines: usize,
    /// Whether the region decided a transaction, or published a piece of one.
    pub decides: bool,
}

/// Why a region cannot commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Another core touched a line that the region has written, or wrote a line that it has read.
    Conflict,
    /// The region touched more lines than a core can track.
    Capacity,
}

/// A simulated machine. The calls concern the core that is running.
pub trait Machine {
    /// Waits for the core's turn to touch this address. Returns `false` if no core is running.
    fn step(&self, touch: Touch, address: usize) -> bool;
    /// Performs an operation on the core's region; a load or a store waits for the core's turn to touch this
    /// address. Returns `Ok(false)` if no core is running.
    ///
    /// # Errors
    /// The region is lost and must be aborted.
    fn region(&self, act: Region, address: usize) -> Result<bool, Lost>;
    /// The core waits. Returns `false` if no core is running.
    fn wait(&self, wait: Wait) -> bool;
    /// The core works for this long, without steps. Returns `false` if no core is running.
    fn work(&self, time: Duration) -> bool;
    /// The core orders a batch, and does this work so many times.
    fn batch_work(&self, work: BatchWork, times: u64);
    /// The core waits until it is woken, or until its clock shows this time in nanoseconds. Returns at once if
    /// it was woken since the last call. Returns `false` if no core is running.
    fn park(&self, until: Option<u64>) -> bool;
    /// Wakes a core, which waits or will wait. It continues no earlier than the running core.
    fn wake(&self, core: usize);
    /// The number of the running core.
    fn core(&self) -> Option<usize>;
    /// The regions that the core has committed since the last call, in order. The machine records them from the
    /// first call on.
    fn working_sets(&self) -> Vec<WorkingSet>;
    /// The core's clock, in nanoseconds. `None` if no core is running.
    fn now(&self) -> Option<u64>;
}

thread_local! {
    /// The machine in charge of this thread.
    static MACHINE: Cell<Option<&'static dyn Machine>> = const { Cell::new(None) };
}

/// Runs `body` with the machine in charge of this thread.
///
/// # Panics
/// If a machine is already in charge.
pub fn in_charge<R>(machine: &dyn Machine, body: impl FnOnce() -> R) -> R {
    /// Removes the machine again, even if the body panics.
    struct Away;
    impl Drop for Away {
        fn drop(&mut self) {
            MACHINE.set(None);
        }
    }
    // SAFETY: `Away` removes the reference before the borrow ends.
    let machine = unsafe { std::mem::transmute::<&dyn Machine, &'static dyn Machine>(machine) };
    assert!(MACHINE.replace(Some(machine)).is_none(), "a simulation within a simulation");
    let _away = Away;
    body()
}

#[inline]
pub(crate) fn step(touch: Touch, word: *const ()) -> bool {
    MACHINE.get().is_some_and(|machine| machine.step(touch, word.addr()))
}

/// As [`Machine::region`], for code that runs regions.
///
/// # Errors
/// As [`Machine::region`].
pub fn region(act: Region, word: *const ()) -> Result<bool, Lost> {
    MACHINE.get().map_or(Ok(false), |machine| machine.region(act, word.addr()))
}

pub(crate) fn wait(wait: Wait) -> bool {
    MACHINE.get().is_some_and(|machine| machine.wait(wait))
}

pub(crate) fn work(time: Duration) -> bool {
    MACHINE.get().is_some_and(|machine| machine.work(time))
}

pub(crate) fn batch_work(work: BatchWork, times: u64) {
    if let Some(machine) = MACHINE.get() {
        machine.batch_work(work, times);
    }
}

pub(crate) fn park(until: Option<u64>) -> bool {
    MACHINE.get().is_some_and(|machine| machine.park(until))
}

pub(crate) fn wake(core: usize) {
    if let Some(machine) = MACHINE.get() {
        machine.wake(core);
    }
}

/// As [`Machine::working_sets`], for code that counts what transactions touch. Empty if no machine is in charge.
pub fn working_sets() -> Vec<WorkingSet> {
    MACHINE.get().map_or_else(Vec::new, |machine| machine.working_sets())
}

pub(crate) fn core() -> Option<usize> {
    MACHINE.get().and_then(|machine| machine.core())
}

pub(crate) fn now() -> Option<u64> {
    MACHINE.get().and_then(|machine| machine.now())
}
