//! Waiting threads and simulated cores. One registers itself and sleeps, another one wakes it.

use std::time::Duration;

use crate::clock::Instant;

/// A thread or a simulated core that can be woken.
#[derive(Clone, Debug)]
pub struct Waiter(Target);

#[derive(Clone, Debug)]
enum Target {
    Thread(std::thread::Thread),
    #[cfg(feature = "simulate")]
    Core(usize),
}

impl Waiter {
    /// The calling thread or core.
    pub fn current() -> Waiter {
        #[cfg(feature = "simulate")]
        if let Some(core) = crate::simulated::core() {
            return Waiter(Target::Core(core));
        }
        Waiter(Target::Thread(std::thread::current()))
    }

    /// Ends its [`wait`], or the next one if it does not wait now. A simulated core can be woken only by cores
    /// of its machine.
    pub fn wake(&self) {
        match &self.0 {
            Target::Thread(thread) => thread.unpark(),
            #[cfg(feature = "simulate")]
            Target::Core(core) => crate::simulated::wake(*core),
        }
    }
}

/// Sleeps until the caller is woken through its [`Waiter`], or until this time. May return early, so the caller
/// checks its condition again.
pub fn wait(until: Option<Instant>) {
    #[cfg(feature = "simulate")]
    if crate::simulated::park(until.map(Instant::nanoseconds)) {
        return;
    }
    match until {
        None => std::thread::park(),
        Some(until) => {
            let left = until.since(Instant::now());
            if !left.is_zero() {
                std::thread::park_timeout(left);
            }
        }
    }
}

/// On a simulated core: work without steps takes this long. On a thread this does nothing.
#[inline]
pub fn work(time: Duration) {
    #[cfg(feature = "simulate")]
    if crate::simulated::work(time) {
        return;
    }
    let _ = time;
}

/// A kind of work in ordering batches. It is done between steps, and takes time on a simulated core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchWork {
    /// A row is added to the footprint of a call.
    FootprintRow,
    /// A row of a call is ordered among those of a batch of calls.
    CallRow,
    /// An access of an executed transaction is ordered among those of a batch of decisions.
    Access,
    /// A vertex or an edge of the graph of such a batch is visited.
    GraphVisit,
}

/// On a simulated core: charges this work `times` times, at the cost of the simulation. On a thread this does nothing.
#[inline]
pub fn batch_work(work: BatchWork, times: u64) {
    #[cfg(feature = "simulate")]
    crate::simulated::batch_work(work, times);
    let _ = (work, times);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_waiter_is_woken_even_if_it_waits_later() {
        let (sender, receiver) = mpsc::channel();
        let waits = crate::thread::spawn("waits", move || {
            sender.send(Waiter::current()).expect("a listener");
            wait(None);
        });
        receiver.recv().expect("a waiter").wake();
        waits.expect("a thread").join().expect("it was woken");
    }

    #[test]
    fn waiting_ends_at_the_given_time_and_work_takes_no_time_of_threads() {
        work(Duration::MAX);
        let began = Instant::now();
        let until = began.after(Duration::from_millis(20));
        while Instant::now() < until {
            wait(Some(until));
        }
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
}
