//! Simulated cores: the other side of the platform interface to threads and clocks, in builds with the feature `simulate`.
//!
//! A [`Machine`] runs many cores on one thread, one at a time. While it is [in charge](in_charge) of a thread, what that thread asks of
//! the platform concerns the core that runs: steps and waits pass virtual time and may let other cores run, and the clock is virtual.
//! What the machine does then is the crate `simulate`'s; this module only asks it.

use std::cell::Cell;
use std::time::Duration;

use crate::thread::Touch;

/// Why a core lets time pass without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// So many pause instructions.
    Spin(u32),
    /// It offers its processor to others.
    Yield,
    /// It sleeps at least so long.
    Sleep(Duration),
}

/// What is asked about the core that runs.
pub trait Machine {
    /// The core goes on to this, at this address, when it is its turn. `false`: no core runs.
    fn step(&self, touch: Touch, address: usize) -> bool;
    /// The core waits. `false`: no core runs.
    fn wait(&self, wait: Wait) -> bool;
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

pub(crate) fn wait(wait: Wait) -> bool {
    MACHINE.get().is_some_and(|machine| machine.wait(wait))
}

pub(crate) fn now() -> Option<u64> {
    MACHINE.get().and_then(|machine| machine.now())
}
