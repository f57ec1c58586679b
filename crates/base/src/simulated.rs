//! Simulated cores: the other side of the platform interface to threads and clocks, in builds with the feature
//! `simulate`.
//!
//! A [`Machine`] runs many cores on one thread, one at a time. While it is [in charge](in_charge) of a thread,
//! what that thread asks of the platform concerns the core that runs: steps and waits pass virtual time and may
//! let other cores run, and the clock is virtual. What the machine does then is the crate `simulate`'s; this
//! module only asks it.

use std::cell::Cell;
use std::time::Duration;

use crate::thread::{BatchWork, Touch};

/// Why a core lets time pass without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// So many pause instructions.
    Spin(u32),
    /// It offers its processor to others.
    Yield,
    /// It sleeps at least so long.
    Sleep(Duration),
    /// It stays awake for so long, and offers its processor to others.
    Awake(Duration),
}

/// What a core does with its region, a stretch of code that takes effect at one moment of virtual time or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// It begins one.
    Begin,
    /// Loads a word in it.
    Load,
    /// Stores a word in it, which others do not see before it commits.
    Store,
    /// Commits it: what was stored is to be seen before anybody takes another step.
    Commit {
        /// Whether it decides a transaction, or publishes a piece of one.
        decides: bool,
    },
    /// Gives it up.
    Abort,
}

/// The cache lines that a region touched, each once however often it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkingSet {
    /// Those that it loaded from.
    pub read: usize,
    /// Those that it stored to.
    pub written: usize,
    /// Both together.
    pub lines: usize,
    /// Whether it decided a transaction, or published a piece of one.
    pub decides: bool,
}

/// Why a region cannot commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Another core touched a line that it has written, or wrote one that it has read.
    Conflict,
    /// It touched more lines than a core can keep.
    Capacity,
}

/// What is asked about the core that runs.
pub trait Machine {
    /// The core goes on to this, at this address, when it is its turn. `false`: no core runs.
    fn step(&self, touch: Touch, address: usize) -> bool;
    /// The core does this with its region; a load or a store, at this address, when it is its turn.
    /// `Ok(false)`: no core runs.
    ///
    /// # Errors
    /// The region is lost: all that is left is to give it up.
    fn region(&self, act: Region, address: usize) -> Result<bool, Lost>;
    /// The core waits. `false`: no core runs.
    fn wait(&self, wait: Wait) -> bool;
    /// The core works for so long, without steps. `false`: no core runs.
    fn work(&self, time: Duration) -> bool;
    /// The core orders a batch: it does this work so many times.
    fn batch_work(&self, work: BatchWork, times: u64);
    /// The core waits until it is woken, or until its clock shows this, in nanoseconds. If it was woken since
    /// it last did so it goes on at once. `false`: no core runs.
    fn park(&self, until: Option<u64>) -> bool;
    /// The core of this number, which waits or will, goes on: not before the core that runs.
    fn wake(&self, core: usize);
    /// The number of the core that runs.
    fn core(&self) -> Option<usize>;
    /// Of the regions that the core has committed since it was asked last, in their order. It notes them from
    /// the first time on that it is asked.
    fn working_sets(&self) -> Vec<WorkingSet>;
    /// The core's clock, in nanoseconds. `None`: no core runs.
    fn now(&self) -> Option<u64>;
}

thread_local! {
    /// The machine in charge of this thread.
    static MACHINE: Cell<Option<&'static dyn Machine>> = const { Cell::new(None) };
}

/// Runs `body` with the machine in charge of this thread.
///
/// # Panics
/// If one is already.
pub fn in_charge<R>(machine: &dyn Machine, body: impl FnOnce() -> R) -> R {
    /// Takes the machine away again, also when the body panics.
    struct Away;
    impl Drop for Away {
        fn drop(&mut self) {
            MACHINE.set(None);
        }
    }
    // SAFETY: `Away` takes it away before the borrow ends.
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
/// As there.
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

/// As [`Machine::working_sets`], for who counts what transactions touch; none where no machine is in charge.
pub fn working_sets() -> Vec<WorkingSet> {
    MACHINE.get().map_or_else(Vec::new, |machine| machine.working_sets())
}

pub(crate) fn core() -> Option<usize> {
    MACHINE.get().and_then(|machine| machine.core())
}

pub(crate) fn now() -> Option<u64> {
    MACHINE.get().and_then(|machine| machine.now())
}
