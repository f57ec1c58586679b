//! The platform interface to threads: spawn, sleep, yield, crews that share one piece of work, and helpers that
//! sleep between steps.

use crate::Process;
use crate::turns;
use std::cell::Cell;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

pub use std::thread::{JoinHandle, Result, ScopedJoinHandle, Thread, current, scope};

/// Starts a named thread.
///
/// # Errors
/// When the operating system refuses the thread.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    ask()?;
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Runs `work` on this thread and on `threads - 1` others, or fewer if the operating system refuses some. `work` gets
/// its number, which is 0 for this thread, and the number of threads. Returns the results by number.
///
/// # Panics
/// If one of them panics, after all have ended.
pub fn crew<T: Send>(threads: usize, work: impl Fn(usize, usize) -> T + Sync) -> Vec<T> {
    let size = OnceLock::new();
    scope(|scope| {
        let (size, work) = (&size, &work);
        // No thread begins before the size of the crew is known.
        let hire = |number| {
            ask()?;
            std::thread::Builder::new().spawn_scoped(scope, move || work(number, *size.wait()))
        };
        let others: Vec<ScopedJoinHandle<'_, T>> = (1..threads).map_while(|number| hire(number).ok()).collect();
        let own = work(0, *size.get_or_init(|| 1 + others.len()));
        let join = |other: ScopedJoinHandle<'_, T>| other.join().unwrap_or_else(|panic| resume_unwind(panic));
        std::iter::once(own).chain(others.into_iter().map(join)).collect()
    })
}

thread_local! {
    /// How many threads a test lets this thread start.
    static GRANTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Runs `body` as if the operating system granted this thread `others` threads and then refused. For tests.
pub fn granted<R>(others: usize, body: impl FnOnce() -> R) -> R {
    GRANTED.set(Some(others));
    let result = body();
    GRANTED.set(None);
    result
}

/// Checks whether a test refuses another thread.
fn ask() -> io::Result<()> {
    match GRANTED.get() {
        None => Ok(()),
        Some(0) => Err(io::ErrorKind::WouldBlock.into()),
        Some(left) => {
            GRANTED.set(Some(left - 1));
            Ok(())
        }
    }
}

pub use crate::turns::{interrupt, take_turns};
pub use crate::waiter::{BatchWork, Waiter, batch_work, wait, work};

/// The access to a shared word directly after the step that announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Begins an attempt of a transaction; there is no word.
    Begin,
    /// Loads a word of an index.
    Node,
    /// Locates a word in the header of a record, mostly to load it.
    Header,
    /// Stores a word.
    Store,
    /// Compares and exchanges a word.
    Exchange,
    /// Stores a word of a row version. The store itself may announce another step.
    Copy,
}

/// Sleeps until unparked. May return early, so the caller checks its condition again. (A simulated core, or a
/// thread that takes turns, is not woken: it polls.)
pub fn park() {
    #[cfg(feature = "simulate")]
    if crate::simulated::wait(crate::simulated::Wait::Yield) {
        return;
    }
    if crate::word::wait() {
        return;
    }
    if !turns::wait() {
        std::thread::park();
    }
}

/// As [`park`], for at most `duration`.
pub fn park_timeout(duration: Duration) {
    #[cfg(feature = "simulate")]
    if crate::simulated::wait(crate::simulated::Wait::Yield) {
        return;
    }
    if !turns::wait() {
        std::thread::park_timeout(duration);
    }
}

/// Lets another thread run.
pub fn yield_now() {
    #[cfg(feature = "simulate")]
    if crate::simulated::wait(crate::simulated::Wait::Yield) {
        return;
    }
    if !turns::wait() {
        std::thread::yield_now();
    }
}

/// A point at which another thread may interrupt this one, and the next action of this one. Tests decide about
/// interruptions ([`take_turns`], [`interrupt`]), as do simulated cores. Only builds for these call it.
#[inline]
pub fn step(touch: Touch, word: *const ()) {
    if !simulated(touch, word) {
        turns::step();
    }
}

/// As [`step`], where this thread may hold a latch for which others wait without bound. [`interrupt`] ignores it.
#[inline]
pub fn step_latched(touch: Touch, word: *const ()) {
    if !simulated(touch, word) {
        turns::step_latched();
    }
}

/// Waits for the turn of a simulated core. Returns `false` on a thread.
#[inline]
fn simulated(touch: Touch, word: *const ()) -> bool {
    #[cfg(feature = "simulate")]
    let is_simulated = crate::simulated::step(touch, word);
    #[cfg(not(feature = "simulate"))]
    let is_simulated = {
        let _ = (touch, word);
        false
    };
    is_simulated
}

/// Sleeps at least `duration`.
pub fn sleep(duration: Duration) {
    #[cfg(feature = "simulate")]
    if crate::simulated::wait(crate::simulated::Wait::Sleep(duration)) {
        return;
    }
    std::thread::sleep(duration);
}

/// A shorter wait is spent awake: putting a thread to sleep and waking it takes the operating system about as long.
pub const AWAKE: Duration = Duration::from_micros(50);

/// Waits at least `duration`: as [`sleep`], or awake if that is less than [`AWAKE`].
pub fn pause(duration: Duration) {
    if duration >= AWAKE {
        return sleep(duration);
    }
    #[cfg(feature = "simulate")]
    if crate::simulated::wait(crate::simulated::Wait::Awake(duration)) {
        return;
    }
    let began = crate::clock::Instant::now();
    while began.elapsed() < duration {
        std::thread::yield_now();
    }
}

/// The number of processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether the current thread is unwinding from a panic.
pub fn panicking() -> bool {
    std::thread::panicking()
}

/// A helper thread. It runs a step, sleeps for an interval or until woken, and repeats this until it is
/// dropped. Dropping wakes and joins it. In a fork, which lacks the thread, dropping does nothing.
#[derive(Debug)]
pub struct Periodic {
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: Process,
}

/// Wakes a [`Periodic`].
#[derive(Clone, Debug)]
pub struct Waker(Arc<(Mutex<Wake>, Condvar)>);

/// Why a helper wakes before its interval is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    #[default]
    No,
    Step,
    Stop,
}

impl Waker {
    /// Makes the helper run a step now, or another one if it is in a step. Never waits for it.
    pub fn wake(&self) {
        self.signal(Wake::Step);
    }

    fn signal(&self, why: Wake) {
        let mut wake = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that was woken before and has not looked yet sees this value, too.
        if why > *wake {
            *wake = why;
            self.0.1.notify_all();
        }
    }

    /// Sleeps. Returns whether to continue.
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
    /// Starts the helper. The first step runs after one interval, or when woken.
    ///
    /// # Errors
    /// When the operating system refuses the thread.
    pub fn spawn(name: &str, interval: Duration, mut step: impl FnMut() + Send + 'static) -> io::Result<Periodic> {
        Periodic::spawn_paced(name, interval, move || {
            step();
            interval
        })
    }

    /// As [`Periodic::spawn`], but each step returns how long to sleep afterwards.
    ///
    /// # Errors
    /// When the operating system refuses the thread.
    pub fn spawn_paced(
        name: &str,
        first: Duration,
        mut step: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Periodic> {
        let waker = Waker(Arc::default());
        let seen = waker.clone();
        let thread = spawn(name, move || {
            let mut interval = first;
            while seen.sleep(interval) {
                interval = step();
            }
        })?;
        Ok(Periodic { waker, thread: Some(thread), process: Process::current() })
    }

    /// Whether the caller runs on this helper's thread, and so cannot join it.
    pub fn is_current(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }

    /// A waker of the helper, for use by any thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // A fork lacks the thread, which may have held the lock.
            std::mem::forget(self.thread.take());
            return;
        }
        self.waker.signal(Wake::Stop);
        if self.is_current() {
            return;
        }
        if let Some(thread) = self.thread.take() {
            // A helper that panicked has already reported it. Its owner continues to shut down.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Barrier, mpsc};

    #[test]
    fn a_crew_is_as_large_as_the_system_allows_and_all_know_its_size() {
        let barriers: Vec<Barrier> = (0..=4).map(Barrier::new).collect();
        let meet = |number, size: usize| {
            barriers[size].wait();
            (number, size)
        };
        assert_eq!(crew(4, meet), [(0, 4), (1, 4), (2, 4), (3, 4)]);
        assert_eq!(granted(2, || crew(4, meet)), [(0, 3), (1, 3), (2, 3)]);
        assert_eq!(granted(0, || crew(4, meet)), [(0, 1)]);
        assert_eq!([crew(1, meet), crew(0, meet)], [[(0, 1)], [(0, 1)]]);
    }

    #[test]
    fn a_panic_of_one_of_a_crew_is_raised_again() {
        for failing in 0..2 {
            let work = |number, _| assert_ne!(number, failing, "deliberately");
            catch_unwind(AssertUnwindSafe(|| crew(2, work))).expect_err("one of the crew panicked");
        }
    }

    #[test]
    fn a_woken_helper_steps_long_before_its_interval_is_over_and_dropping_it_joins() {
        let (steps, seen) = mpsc::channel();
        let helper = Periodic::spawn("woken", Duration::from_secs(3600), move || steps.send(()).expect("a listener"));
        let helper = helper.expect("a thread");
        for _ in 0..3 {
            helper.waker().wake();
            seen.recv().expect("a step");
        }
        drop(helper);
        assert!(seen.recv().is_err(), "the step, and with it the sender, is gone");
    }
}
