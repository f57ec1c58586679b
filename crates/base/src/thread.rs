//! The platform interface to threads: spawn, sleep, yield, crews that share one piece of work, and helpers that sleep
//! between steps and never spin.

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
/// When the operating system refuses another thread.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    ask()?;
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Runs `work` on this thread and on `threads - 1` others, or on fewer where the operating system refuses one.
/// `work` is told its number, from 0 for this thread, and how many there are. What each gave, by number.
///
/// # Panics
/// If one of them does, when all have ended.
pub fn crew<T: Send>(threads: usize, work: impl Fn(usize, usize) -> T + Sync) -> Vec<T> {
    let size = OnceLock::new();
    scope(|scope| {
        let (size, work) = (&size, &work);
        // Nobody begins before all know how many they are.
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
    /// How many threads this one is granted, if a test says so.
    static GRANTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Runs `body` as if the operating system granted this thread so many others and then refused, for tests.
pub fn granted<R>(others: usize, body: impl FnOnce() -> R) -> R {
    GRANTED.set(Some(others));
    let result = body();
    GRANTED.set(None);
    result
}

/// Asks for a thread.
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

/// What code does at a word that threads share, right after the step that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// An attempt of a transaction begins; there is no word.
    Begin,
    /// Loads a word of an index.
    Node,
    /// Finds a word of the header of a record, mostly to load it.
    Header,
    /// Stores a word.
    Store,
    /// Exchanges a word if it has a value.
    Exchange,
    /// Stores a word of a row version; the step of the store itself may follow.
    Copy,
}

/// Sleeps until unparked; or for less, so the caller looks whether it has what it waits for. (A simulated core,
/// or a thread that takes turns, is not woken: it looks again and again.)
pub fn park() {
    #[cfg(feature = "simulate")]
    if crate::simulated::wait(crate::simulated::Wait::Yield) {
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

/// A place where another thread might interrupt this one, and what this one is about to do there: for tests
/// that decide about that ([`take_turns`], [`interrupt`]) and for simulated cores. Crates call it in builds for
/// those only.
#[inline]
pub fn step(touch: Touch, word: *const ()) {
    if !simulated(touch, word) {
        turns::step();
    }
}

/// As [`step`], where this thread may hold a latch for which others wait without bound: [`interrupt`] passes it by.
#[inline]
pub fn step_latched(touch: Touch, word: *const ()) {
    if !simulated(touch, word) {
        turns::step_latched();
    }
}

/// Whether this is a simulated core, which has gone on when it was its turn.
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

/// A wait that is shorter is spent awake: to put a thread to sleep and to wake it takes the operating system
/// about as long.
pub const AWAKE: Duration = Duration::from_micros(50);

/// Lets at least `duration` pass: as [`sleep`], or awake where that is less than [`AWAKE`].
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

/// Processors this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether the current thread is unwinding from a panic.
pub fn panicking() -> bool {
    std::thread::panicking()
}

/// A helper thread that runs a step, sleeps an interval or until woken, and again, until dropped. Dropping wakes it and
/// joins it; in a fork, which has not got it, nothing happens.
#[derive(Debug)]
pub struct Periodic {
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    /// Where the thread is.
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
    /// Has the helper run a step now; another one if it is in a step. Never waits for it.
    pub fn wake(&self) {
        self.signal(Wake::Step);
    }

    fn signal(&self, why: Wake) {
        let mut wake = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that was woken before and has not looked yet will find this, too.
        if why > *wake {
            *wake = why;
            self.0.1.notify_all();
        }
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
    /// Starts the helper; the first step runs one interval from now, or when woken.
    ///
    /// # Errors
    /// When the operating system refuses another thread.
    pub fn spawn(name: &str, interval: Duration, mut step: impl FnMut() + Send + 'static) -> io::Result<Periodic> {
        Periodic::spawn_paced(name, interval, move || {
            step();
            interval
        })
    }

    /// As [`Periodic::spawn`]; each step answers how long to sleep before the next one.
    ///
    /// # Errors
    /// When the operating system refuses another thread.
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

    /// Whether the caller runs on its thread, and so cannot join it.
    pub fn is_current(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }

    /// What wakes it, from any thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // A fork has not got the thread, which may have been holding the lock.
            std::mem::forget(self.thread.take());
            return;
        }
        self.waker.signal(Wake::Stop);
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
            catch_unwind(AssertUnwindSafe(|| crew(2, work))).expect_err("one of them panicked");
        }
    }

    #[test]
    fn a_kicked_helper_steps_long_before_its_interval_is_over_and_dropping_it_joins() {
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
