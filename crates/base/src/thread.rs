//! The door to threads: spawn, sleep, yield, and helpers that sleep between steps and never spin.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

pub use std::thread::{JoinHandle, ScopedJoinHandle, scope};

/// Starts a named thread.
///
/// # Errors
/// When the operating system refuses another thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Lets another thread run.
pub fn yield_now() {
    std::thread::yield_now();
}

/// Sleeps at least `duration`.
pub fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// Processors this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether the current thread is unwinding from a panic.
pub fn panicking() -> bool {
    std::thread::panicking()
}

/// A helper thread that runs a step, sleeps an interval or until kicked, and again, until dropped. Dropping wakes it and joins it.
#[derive(Debug)]
pub struct Periodic {
    kicker: Kicker,
    thread: Option<JoinHandle<()>>,
}

/// Wakes a [`Periodic`].
#[derive(Clone, Debug)]
pub struct Kicker(Arc<(Mutex<Wake>, Condvar)>);

/// Why a helper wakes before its interval is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    #[default]
    No,
    Step,
    Stop,
}

impl Kicker {
    /// Has the helper run a step now; another one if it is in a step. Never waits for it.
    pub fn kick(&self) {
        self.wake(Wake::Step);
    }

    fn wake(&self, why: Wake) {
        let mut wake = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        *wake = why.max(*wake);
        self.0.1.notify_all();
    }

    /// Sleeps; whether to go on.
    fn sleep(&self, interval: Duration) -> bool {
        let guard = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(guard, interval, |wake| *wake == Wake::No);
        let mut wake = waited.unwrap_or_else(PoisonError::into_inner).0;
        let stop = *wake == Wake::Stop;
        if !stop {
            *wake = Wake::No;
        }
        !stop
    }
}

impl Periodic {
    /// Starts the helper; the first step runs one interval from now, or when kicked.
    ///
    /// # Errors
    /// When the operating system refuses another thread.
    pub fn spawn(name: &str, interval: Duration, mut step: impl FnMut() + Send + 'static) -> std::io::Result<Periodic> {
        let kicker = Kicker(Arc::default());
        let seen = kicker.clone();
        let thread = spawn(name, move || {
            while seen.sleep(interval) {
                step();
            }
        })?;
        Ok(Periodic { kicker, thread: Some(thread) })
    }

    /// Whether the caller runs on its thread, and so cannot join it.
    pub fn is_current(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }

    /// What wakes it, from any thread.
    pub fn kicker(&self) -> Kicker {
        self.kicker.clone()
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        self.kicker.wake(Wake::Stop);
        if self.is_current() {
            return;
        }
        if let Some(thread) = self.thread.take() {
            // A helper that panicked already reported itself; its owner goes on shutting down.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_kicked_helper_steps_long_before_its_interval_is_over_and_dropping_it_joins() {
        let (steps, seen) = mpsc::channel();
        let helper = Periodic::spawn("kicked", Duration::from_secs(3600), move || steps.send(()).expect("a listener"));
        let helper = helper.expect("a thread");
        for _ in 0..3 {
            helper.kicker().kick();
            seen.recv().expect("a step");
        }
        drop(helper);
        assert!(seen.recv().is_err(), "the step, and with it the sender, is gone");
    }
}
