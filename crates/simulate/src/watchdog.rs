//! Reports a core that holds the thread, instead of a hang.
//!
//! A core that spins without a step, or blocks in the system for another core, keeps all others from running.
//! The watchdog is a thread of its own, on the real clock, that notices when no steps are taken for too long.
//! It cannot stop a core. The function that it calls ends the process or, in tests, lets the core continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use seriatim_base::thread::Periodic;

/// The state that the watchdog observes.
#[derive(Debug, Default)]
pub(crate) struct Signs {
    /// Steps and waits so far.
    pub(crate) steps: AtomicU64,
    /// The core that runs.
    pub(crate) core: AtomicUsize,
}

/// Watches until it is dropped.
pub(crate) struct Watchdog {
    _looks: Periodic,
}

/// Checks in the time that a core may hold the thread.
const LOOKS: u32 = 4;

impl Watchdog {
    /// Calls `held` with the running core, once, when no step was taken for `longest`.
    ///
    /// # Errors
    /// When the operating system refuses another thread.
    pub(crate) fn new(
        signs: Arc<Signs>,
        longest: Duration,
        held: impl FnOnce(usize) + Send + 'static,
    ) -> std::io::Result<Watchdog> {
        let (mut seen, mut still, mut held) = (u64::MAX, 0, Some(held));
        let look = move || {
            let now = signs.steps.load(Ordering::Relaxed);
            still = if now == seen { still + 1 } else { 0 };
            seen = now;
            if still >= LOOKS
                && let Some(held) = held.take()
            {
                held(signs.core.load(Ordering::Relaxed));
            }
        };
        let looks = Periodic::spawn("seriatim-watchdog", longest / LOOKS, look)?;
        Ok(Watchdog { _looks: looks })
    }
}
