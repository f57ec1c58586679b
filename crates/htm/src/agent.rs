//! One worker's way to run bodies: in regions while the budget lasts, then under the fallback locks.
//!
//! One retry loop serves the rtm and the emulated back end, so what tests find in the one holds for the other.

use crate::access::{Access, Body, BodyError, Direct, Refused};
use crate::emulated::Emulated;
use crate::htm::{Backend, Htm};
use crate::locks::{FallbackLocks, Held};
use crate::outside::Outside;
use crate::rtm::Rtm;
use crate::statistics::RegionStatistics;
use seriatim_base::{Backoff, WorkerId};

/// After how many aborts of a cause, while running one body, it runs under the fallback locks instead (DBX
/// §6.1). 0 acts as 1. More than [`Budget::SAME_MAX`] of capacity or system act as so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Conflicts with other threads: likely to pass.
    pub conflict: u32,
    /// Whether a body of [weight](Body::weight) n has an nth of these conflicts, and at least 1.
    pub divided: bool,
    /// Capacity: the measured abort rate near the limit is 90 %, so ten in a row mean the region does not fit.
    pub capacity: u32,
    /// Interrupts and page faults: the measured rate is 50 % at worst, so two in a row mean the cause stays.
    pub system: u32,
    /// Waits for a held lock. The paper names none; as likely to pass as a conflict.
    pub explicit: u32,
}

impl Default for Budget {
    /// The paper's, but divided.
    fn default() -> Budget {
        Budget { divided: true, ..Budget::PAPER }
    }
}

impl Budget {
    /// As DBX has it (§6.1), which has the same number of conflicts for all bodies.
    pub const PAPER: Budget = Budget { conflict: 100, divided: false, capacity: 10, system: 2, explicit: 100 };

    /// So many aborts of one cause that does not pass by waiting mean that it stays. A page fault is one: the processor
    /// undoes it with the region, so the next attempt meets it again.
    pub const SAME_MAX: u32 = 1 << 10;

    /// Of a body that runs under the fallback locks after its first abort.
    pub const ONE: Budget = Budget { conflict: 1, divided: false, capacity: 1, system: 1, explicit: 1 };

    /// The budget of a body of this [`Body::weight`]. More work meets more conflicts, and loses more with each. A
    /// region that does not fit, or that events interrupt, needs as many aborts to show it, however long it is. Waiting
    /// for a lock loses nothing.
    pub(crate) fn for_weight(self, weight: u32) -> Budget {
        let conflict = self.conflict / if self.divided { weight.max(1) } else { 1 };
        let [capacity, system] = [self.capacity, self.system].map(|most| most.min(Budget::SAME_MAX));
        Budget { conflict, capacity, system, ..self }
    }
}

/// Why a region did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abort {
    /// Another thread touched a line of the region.
    Conflict,
    /// It outgrew the processor's buffers.
    Capacity,
    /// Anything not listed.
    System,
    /// A fallback lock was held when it began.
    Held,
    /// The body saw a lock bit held.
    Busy,
    /// The body refused with this code.
    Refused(u8),
    /// The body panicked inside hardware, which undid the panic. Direct mode will repeat it.
    Panicked,
}

impl From<BodyError> for Abort {
    fn from(error: BodyError) -> Abort {
        match error {
            BodyError::Busy => Abort::Busy,
            BodyError::Refused(code) => Abort::Refused(code),
        }
    }
}

/// A back end that has regions.
pub(crate) trait Regions {
    /// How bodies run when not in a region.
    type Direct<'a>: Access
    where
        Self: 'a;

    /// Runs `locks.held` and then `body` in one region, once.
    fn attempt<L: FallbackLocks + ?Sized, B: Body>(&mut self, locks: &L, body: &mut B) -> Result<B::Output, Abort>;

    /// Access for the time after the last attempt.
    fn direct(&mut self) -> Self::Direct<'_>;
}

/// Runs the regions of one worker and counts what became of them.
#[derive(Debug)]
pub struct Agent {
    elision: Elision,
    /// With [`Backend::Emulated`] only.
    emulated: Option<Box<Emulated>>,
    #[cfg(feature = "simulate")]
    modelled: crate::modelled::Modelled,
}

impl Agent {
    pub(crate) fn new(htm: Htm, worker: WorkerId, budget: Budget) -> Agent {
        let emulated = htm.world().map(|world| Box::new(Emulated::new(world.clone(), worker)));
        let statistics = RegionStatistics::default();
        let elision = Elision {
            htm,
            budget,
            statistics,
            #[cfg(test)]
            never_wait: false,
        };
        Agent {
            elision,
            emulated,
            #[cfg(feature = "simulate")]
            modelled: crate::modelled::Modelled::default(),
        }
    }

    /// Retries of the regions that begin from now on.
    pub fn set_budget(&mut self, budget: Budget) {
        self.elision.budget = budget;
    }

    /// The back end in use.
    #[inline]
    pub fn backend(&self) -> Backend {
        self.elision.htm.backend()
    }

    /// The counts of the regions so far.
    pub fn statistics(&self) -> RegionStatistics {
        self.elision.statistics
    }

    /// Counts regions of others as its own.
    pub fn count(&mut self, regions: RegionStatistics) {
        self.elision.statistics += regions;
    }

    /// Runs `body` to its end: its stores take effect together with respect to every other body run under `locks`.
    ///
    /// Absent, this is the body itself between taking and giving back `locks`.
    ///
    /// # Errors
    /// [`Refused`] with the body's own code, or [`Refused::BUSY`]; nothing of the body remains stored.
    ///
    /// # Panics
    /// As the body does, with `locks` given back. If the body refuses with a code that is not below
    /// [`BodyError::CODES`].
    #[inline]
    pub fn run<L: FallbackLocks + ?Sized, B: Body>(
        &mut self,
        outside: &mut Outside,
        locks: &L,
        body: &mut B,
    ) -> Result<B::Output, Refused> {
        // Borrowed until the body has ended, so that no body holds it.
        let _: &mut Outside = outside;
        match self.backend() {
            Backend::Absent => fall_back(&self.elision.htm, Direct, locks, body),
            Backend::Rtm => self.run_rtm(locks, body),
            Backend::Emulated => self.run_emulated(locks, body),
            #[cfg(feature = "simulate")]
            Backend::Modelled => self.elision.run(&mut self.modelled, locks, body),
        }
    }

    /// As [`Agent::run`], under the locks at once.
    pub(crate) fn fall_back<L: FallbackLocks + ?Sized, B: Body>(
        &mut self,
        locks: &L,
        body: &mut B,
    ) -> Result<B::Output, Refused> {
        fall_back(&self.elision.htm, Direct, locks, body)
    }

    /// As [`Agent::run`], with [`Backend::Rtm`] only.
    #[inline(never)]
    pub(crate) fn run_rtm<L: FallbackLocks + ?Sized, B: Body>(
        &mut self,
        locks: &L,
        body: &mut B,
    ) -> Result<B::Output, Refused> {
        self.elision.run(&mut Rtm, locks, body)
    }

    #[cold]
    #[inline(never)]
    fn run_emulated<L: FallbackLocks + ?Sized, B: Body>(
        &mut self,
        locks: &L,
        body: &mut B,
    ) -> Result<B::Output, Refused> {
        let emulated = self.emulated.as_mut().expect("an emulated back end gives each agent its emulation");
        self.elision.run(&mut **emulated, locks, body)
    }

    /// A canary: from now on regions begin without waiting for the locks.
    #[cfg(test)]
    pub(crate) fn never_wait(&mut self) {
        self.elision.never_wait = true;
    }
}

/// The state of one retry loop, whatever the back end.
#[derive(Debug)]
struct Elision {
    htm: Htm,
    budget: Budget,
    statistics: RegionStatistics,
    #[cfg(test)]
    never_wait: bool,
}

impl Elision {
    /// Tries regions until one commits, the body refuses, or a budget is spent; then falls back.
    #[inline(always)]
    fn run<R: Regions, L: FallbackLocks + ?Sized, B: Body>(
        &mut self,
        regions: &mut R,
        locks: &L,
        body: &mut B,
    ) -> Result<B::Output, Refused> {
        // Shared out at the first abort: most bodies have none.
        let mut shared = None;
        let mut busy = Backoff::new();
        loop {
            let seen_free = self.look(locks);
            if !seen_free && !self.never_waits() {
                let left = shared.get_or_insert_with(|| self.budget.for_weight(body.weight()));
                if spend(&mut left.explicit) {
                    continue;
                }
                break;
            }
            self.statistics.begun_while_locked += u64::from(!seen_free);
            self.statistics.started += 1;
            let abort = match regions.attempt(locks, body) {
                Ok(output) => {
                    self.statistics.committed += 1;
                    return Ok(output);
                }
                Err(abort) => abort,
            };
            let left = shared.get_or_insert_with(|| self.budget.for_weight(body.weight()));
            let aborted = &mut self.statistics.aborted;
            let again = match abort {
                Abort::Conflict => {
                    aborted.conflict += 1;
                    spend(&mut left.conflict)
                }
                Abort::Capacity => {
                    aborted.capacity += 1;
                    spend(&mut left.capacity)
                }
                Abort::System => {
                    aborted.system += 1;
                    spend(&mut left.system)
                }
                Abort::Held => {
                    aborted.explicit += 1;
                    spend(&mut left.explicit)
                }
                Abort::Busy => {
                    aborted.explicit += 1;
                    spend(&mut left.explicit) && busy.wait()
                }
                Abort::Refused(code) => {
                    aborted.explicit += 1;
                    return Err(refused(code));
                }
                Abort::Panicked => {
                    aborted.explicit += 1;
                    false
                }
            };
            if !again {
                break;
            }
        }
        self.statistics.fallback += 1;
        fall_back(&self.htm, regions.direct(), locks, body)
    }

    /// Whether the locks are free, after waiting for them within bounds.
    #[inline(always)]
    fn look<L: FallbackLocks + ?Sized>(&self, locks: &L) -> bool {
        if self.never_waits() { !locks.held(&mut Direct) } else { locks.wait_until_free() }
    }

    #[cfg(test)]
    fn never_waits(&self) -> bool {
        self.never_wait
    }

    #[cfg(not(test))]
    #[inline(always)]
    fn never_waits(&self) -> bool {
        false
    }
}

/// Counts one abort; whether there may be another.
fn spend(left: &mut u32) -> bool {
    *left = left.saturating_sub(1);
    *left > 0
}

/// Runs `body` in direct mode under `locks`, which it gives back also when the body panics.
#[inline(always)]
fn fall_back<A: Access, L: FallbackLocks + ?Sized, B: Body>(
    htm: &Htm,
    mut access: A,
    locks: &L,
    body: &mut B,
) -> Result<B::Output, Refused> {
    let _held = Held::take(locks, htm);
    match body.run(&mut access) {
        Ok(output) => Ok(output),
        Err(BodyError::Refused(code)) => Err(refused(code)),
        Err(BodyError::Busy) => wait_and_run(access, body),
    }
}

/// Runs `body` again and again while it is busy, within the bound of [`Backoff`].
#[cold]
#[inline(never)]
fn wait_and_run<A: Access, B: Body>(mut access: A, body: &mut B) -> Result<B::Output, Refused> {
    let mut backoff = Backoff::new();
    while backoff.wait() {
        match body.run(&mut access) {
            Ok(output) => return Ok(output),
            Err(BodyError::Refused(code)) => return Err(refused(code)),
            Err(BodyError::Busy) => {}
        }
    }
    Err(Refused::BUSY)
}

fn refused(code: u8) -> Refused {
    assert!(code < BodyError::CODES, "a body refused with {code:#x}, a code reserved for regions");
    Refused { code }
}
