//! Model-checks two threads that wait for two things, and a thread that frees them. Loom runs every interleaving and
//! every reordering that the memory model allows. While something is free and threads sleep, one of them must be woken.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p seriatim-base --release --lib loom`.

use loom::sync::Arc as Shared;
use loom::thread;

use super::*;
use crate::TryLock;

/// The fault of a broken thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The store that something is free may be reordered after the load of the count.
    FreedWithoutFence,
    /// The count of the waiting thread may be reordered after its look.
    ListedWithoutFence,
    /// The waiting thread looks before it is listed.
    ListedLate,
    /// A thread that leaves names nobody.
    LeftSilently,
}

/// Two things, of which each is taken or free; and those who wait for one.
#[derive(Default)]
struct Things {
    taken: [Taken; 2],
    waiting: WaitingList<usize>,
    woken: Mutex<[bool; 2]>,
}

struct Taken(TryLock);

impl Default for Taken {
    fn default() -> Taken {
        let taken = TryLock::default();
        assert!(taken.try_lock());
        Taken(taken)
    }
}

impl Things {
    fn free(&self, thing: usize, broken: Broken) {
        self.taken[thing].0.unlock();
        self.wake(match broken {
            Broken::FreedWithoutFence => self.waiting.to_wake_if_seen(),
            _ => self.waiting.to_wake(),
        });
    }

    fn wake(&self, waiter: Option<Arc<usize>>) {
        if let Some(waiter) = waiter {
            self.woken.lock().expect("no panic")[*waiter] = true;
        }
    }

    fn look(&self) -> bool {
        self.taken.iter().any(|taken| taken.0.try_lock())
    }

    fn is_any_free(&self) -> bool {
        self.taken.iter().any(|taken| !taken.0.is_locked())
    }

    /// Returns whether the thread sleeps.
    fn wait(&self, number: usize, broken: Broken) -> bool {
        let own = self.waiting.enter(number);
        let early = broken == Broken::ListedLate && self.look();
        match broken {
            Broken::ListedWithoutFence => self.waiting.listed().push_back(Arc::clone(&own)),
            _ => self.waiting.list(&own),
        }
        let found = if broken == Broken::ListedLate { early } else { self.look() };
        if found {
            let is_any_free = || broken != Broken::LeftSilently && self.is_any_free();
            self.wake(self.waiting.leave(&own, is_any_free));
        }
        !found
    }
}

/// The main thread frees `things`, and as many others wait.
fn step(things: usize, broken: Broken) -> impl Fn() + Sync + Send + 'static {
    move || {
        let shared = Shared::new(Things::default());
        let waits = |number| {
            let shared = Shared::clone(&shared);
            thread::spawn(move || shared.wait(number, broken))
        };
        let waiting: Vec<_> = (0..things).map(waits).collect();
        (0..things).for_each(|thing| shared.free(thing, broken));
        let asleep: Vec<_> = waiting.into_iter().map(|waits| waits.join().expect("no panic")).collect();
        let woken = shared.woken.lock().expect("no panic");
        let mut sleeping = (0..things).filter(|&number| asleep[number]).peekable();
        let is_awaited = sleeping.peek().is_some() && shared.is_any_free();
        assert!(!is_awaited || sleeping.any(|number| woken[number]), "something is free, and no sleeper is woken");
    }
}

fn check(things: usize, broken: Broken) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(step(things, broken));
}

#[test]
fn loom_what_is_free_wakes_a_waiting_thread() {
    check(1, Broken::Nothing);
    check(2, Broken::Nothing);
}

#[test]
fn loom_broken_waiting_lists_are_caught() {
    let broken = [
        (1, Broken::FreedWithoutFence),
        (1, Broken::ListedWithoutFence),
        (1, Broken::ListedLate),
        (2, Broken::LeftSilently),
    ];
    for (things, broken) in broken {
        let caught = std::panic::catch_unwind(|| check(things, broken)).is_err();
        assert!(caught, "{broken:?}");
    }
}
