//! Properties of regions under every back end; the traps of hardware transactions, each with its canary.

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod instructions;
mod misbehaviour;
mod modes;
mod traps;
mod whole;

use crate::{
    Access, Agent, Body, BodyError, Budget, Emulation, FallbackLocks, Htm, HtmMode, Outside, Refused, RegionStatistics,
};
use seriatim_base::clock::Instant;
use seriatim_base::{WorkerId, thread};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// [`Access`] for bodies written as closures.
trait Words {
    fn region(&self) -> bool;
    fn load(&mut self, word: &AtomicU64) -> u64;
    fn store(&mut self, word: &AtomicU64, value: u64);
    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool;
}

impl<A: Access> Words for A {
    fn region(&self) -> bool {
        A::REGION
    }

    fn load(&mut self, word: &AtomicU64) -> u64 {
        Access::load(self, word)
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        Access::store(self, word, value);
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        Access::lock(self, word, unlocked, locked)
    }
}

struct Closure<F>(F);

// SAFETY: rule 3: the tests' words are declared before the call to `run` and outlive it.
unsafe impl<R, F: FnMut(&mut dyn Words) -> Result<R, BodyError>> Body for Closure<F> {
    type Output = R;

    fn run<A: Access>(&mut self, access: &mut A) -> Result<R, BodyError> {
        (self.0)(access)
    }
}

/// A worker of a test: its agent and its witness.
struct Worker {
    agent: Agent,
    outside: Outside,
}

impl Worker {
    fn new(htm: &Htm, worker: u16, budget: Budget) -> Worker {
        Worker { agent: htm.agent(WorkerId(worker), budget), outside: Outside::claim() }
    }

    fn run<R, L: FallbackLocks + ?Sized>(
        &mut self,
        locks: &L,
        body: impl FnMut(&mut dyn Words) -> Result<R, BodyError>,
    ) -> Result<R, Refused> {
        self.agent.run(&mut self.outside, locks, &mut Closure(body))
    }

    fn statistics(&self) -> RegionStatistics {
        let statistics = self.agent.statistics();
        assert_eq!(statistics.started, statistics.committed + statistics.aborted.total());
        statistics
    }
}

fn emulated(seed: u64, abort_one_in: u32) -> Htm {
    Htm::new(HtmMode::Emulated(Emulation { seed, abort_one_in, yields: true })).expect("emulation is always there")
}

/// Every back end this machine has, the emulated one well-behaved, hostile and hopeless.
fn all() -> Vec<Htm> {
    let mut all = vec![Htm::new(HtmMode::Absent).expect("absent is always there")];
    all.extend([0, 3, 1].map(|abort_one_in| emulated(11, abort_one_in)));
    all.extend(Htm::new(HtmMode::Rtm));
    all
}

/// Says on standard error, past the harness's capture, that the rest of the test that runs is left out on
/// this machine, and why.
fn skip(why: impl std::fmt::Display) {
    use std::io::Write;
    let current = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {why}", current.name().unwrap_or("a test"));
}

/// Whether to try regions of the processor again, after a pause, if none has succeeded since `began`. On a busy host
/// they all abort for a while.
fn try_again(began: Instant) -> bool {
    thread::sleep(Duration::from_millis(1));
    began.elapsed() < Duration::from_secs(60)
}

fn increment(access: &mut dyn Words, word: &AtomicU64) -> Result<(), BodyError> {
    let value = access.load(word);
    access.store(word, value + 1);
    Ok(())
}
