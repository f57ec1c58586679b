//! Threads that wait for each other, and simulated cores that do: one says who it is and sleeps, another wakes it.

use std::time::Duration;

use crate::clock::Instant;

/// A thread, or a simulated core, for those who wake it.
#[derive(Clone, Debug)]
pub struct Waiter(Who);

#[derive(Clone, Debug)]
enum Who {
    Thread(std::thread::Thread),
    #[cfg(feature = "simulate")]
    Core(usize),
}

impl Waiter {
    /// The caller.
    pub fn current() -> Waiter {
        #[cfg(feature = "simulate")]
        if let Some(core) = crate::simulated::core() {
            return Waiter(Who::Core(core));
        }
        Waiter(Who::Thread(std::thread::current()))
    }

    /// Ends its [`wait`], or the next one if it does not wait now. A simulated core can be woken by others of
    /// its machine only.
    pub fn wake(&self) {
        match &self.0 {
            Who::Thread(thread) => thread.unpark(),
            #[cfg(feature = "simulate")]
            Who::Core(core) => crate::simulated::wake(*core),
        }
    }
}

/// Sleeps until the caller is woken through its [`Waiter`], or until this time; or for less, so the caller
/// looks whether it has what it waits for.
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

/// On a simulated core: work without steps takes so long. On a thread nothing: there it takes the time that it takes.
#[inline]
pub fn work(time: Duration) {
    #[cfg(feature = "simulate")]
    if crate::simulated::work(time) {
        return;
    }
    let _ = time;
}

/// Work of ordering batches: it is done between steps, and takes time on a simulated core.
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

/// On a simulated core: this work, done so many times, takes the time that the simulation says. On a thread nothing.
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
    fn who_waits_is_woken_also_if_it_waits_later() {
        let (who, told) = mpsc::channel();
        let waits = crate::thread::spawn("waits", move || {
            who.send(Waiter::current()).expect("a listener");
            wait(None);
        });
        told.recv().expect("it says who it is").wake();
        waits.expect("a thread").join().expect("it was woken");
    }

    #[test]
    fn nobody_waits_longer_than_until_a_time_and_work_takes_no_time_of_threads() {
        let began = Instant::now();
        work(Duration::from_secs(3600));
        let until = began.after(Duration::from_millis(20));
        while Instant::now() < until {
            wait(Some(until));
        }
        assert!((Duration::from_millis(20)..Duration::from_secs(60)).contains(&began.elapsed()));
    }
}
