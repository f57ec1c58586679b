//! Whole transactions: any code, in one region or under one lock.
//!
//! A [`Body`] names each word that it touches, and keeps the rules of the crate. The code that runs here does
//! neither. In a region of the processor it need not. All stores of the thread take effect together or not at
//! all, whichever code makes them. An abort undoes all of it, with registers and stack, to the beginning of
//! the region. Operations that a region cannot contain, such as a system call, a pause, or the first touch of
//! a page, abort it. Then the code runs again from its start under the lock, without knowing of the first
//! time. An emulated region could not undo stores outside of [`Access`]; there the code runs under the lock at
//! once, as where regions are absent.
//!
//! Regions that the code runs by agents of its own are part of the whole one. An inner region that aborts, or
//! refuses, aborts the whole. Then the code runs under the lock, where the inner region ends as it would anywhere.

use std::sync::Arc;

use seriatim_base::WorkerId;

use crate::access::{Access, Body, BodyError};
use crate::agent::{Agent, Budget};
use crate::htm::{Backend, Htm};
use crate::locks::SpinLock;
use crate::outside::assert_outside;
use crate::statistics::RegionStatistics;

/// Runs whole transactions of one thread at a time.
#[derive(Debug)]
pub struct Whole {
    agent: Agent,
    lock: Arc<SpinLock>,
    /// Runs under the lock that the agent did not request.
    fallback: u64,
}

impl Whole {
    /// Whole transactions that exclude all others under `lock`.
    pub fn new(htm: &Htm, budget: Budget, lock: &Arc<SpinLock>) -> Whole {
        Whole { agent: htm.agent(WorkerId(0), budget), lock: Arc::clone(lock), fallback: 0 }
    }

    /// Runs `code` to its end: with respect to all other code that is run so under the lock, at once. Waits
    /// for the lock as long as others hold it, each of them for one run of its code.
    ///
    /// Under the lock the code may do whatever it likes. Before that it may have been run in part, any number
    /// of times, of which nothing is left.
    ///
    /// # Panics
    /// As the code does, with the lock given back.
    pub fn run(&mut self, code: &mut dyn FnMut()) {
        assert_outside();
        let (backend, mut body) = (self.agent.backend(), Code(code));
        let ran = backend == Backend::Rtm && self.agent.run_rtm(&*self.lock, &mut body).is_ok();
        if !ran {
            self.fallback += u64::from(backend != Backend::Absent);
            let ran = self.agent.fall_back(&*self.lock, &mut body);
            debug_assert!(ran.is_ok(), "code does not refuse");
        }
    }

    /// The counts of the runs so far.
    pub fn statistics(&self) -> RegionStatistics {
        let statistics = self.agent.statistics();
        RegionStatistics { fallback: statistics.fallback + self.fallback, ..statistics }
    }
}

struct Code<'c>(&'c mut dyn FnMut());

// SAFETY: it gives no word to `access`.
unsafe impl Body for Code<'_> {
    type Output = ();

    #[inline]
    fn run<A: Access>(&mut self, _: &mut A) -> Result<(), BodyError> {
        (self.0)();
        Ok(())
    }
}
