//! A core that holds the thread is told of, instead of a hang.
//!
//! A core that spins without saying so, or blocks in the system for what another core would do, keeps all others from running. The
//! watchdog is a thread of its own, on the real clock, that sees no steps being taken for too long. It can stop nobody; what it calls
//! ends the process, or, in tests, lets the core go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use seriatim_base::thread::Periodic;

/// What the watchdog looks at.
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

/// Looks in the time that a core may hold the thread.
const LOOKS: u32 = 4;

impl Watchdog {
    /// Calls `held` with the core that runs, once, when no step was taken for `longest`.
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
