//! The door to threads: spawn, sleep, yield, and helpers that sleep between steps and never spin.

use std::sync::{Arc, Condvar, Mutex};
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

/// A helper thread that runs a step, sleeps an interval, and again, until dropped. Dropping wakes it and joins it.
#[derive(Debug)]
pub struct Periodic {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// Starts the helper; the first step runs one interval from now.
    ///
    /// # Errors
    /// When the operating system refuses another thread.
    pub fn spawn(name: &str, interval: Duration, mut step: impl FnMut() + Send + 'static) -> std::io::Result<Periodic> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = Arc::clone(&stop);
        let thread = spawn(name, move || {
            loop {
                let guard = seen.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let waited = seen.1.wait_timeout_while(guard, interval, |stop| !*stop);
                if *waited.unwrap_or_else(std::sync::PoisonError::into_inner).0 {
                    return;
                }
                step();
            }
        })?;
        Ok(Periodic { stop, thread: Some(thread) })
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        let thread = self.thread.take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A helper that panicked already reported itself; its owner goes on shutting down.
            let _ = thread.join();
        }
    }
}
