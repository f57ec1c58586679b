//! Regions in software, slow and hostile, for tests.
//!
//! Invariants: (a) Regions run one at a time, under the mutex of their [`World`]. Read-modify-writes outside take it
//! too ([`Htm::outside`]). (b) A region's stores are buffered. An abort drops them. A commit replays them all in
//! program order, including intermediate values, and lets other threads run before each. So readers outside see the
//! states that a fallback lock holder would show them. (c) The values that a region has read existed together at one
//! instant. Every load compares all earlier ones with memory. It aborts the region with a conflict if a plain store
//! outside has changed one (as NOrec does, Dalessandro et al., PPoPP 2010). (d) A seed and the worker's id decide which
//! regions abort in addition, at which access, and with which cause.
//!
//! An abort leaves the body by unwinding, without the panic hook. A panic of the body itself goes through and surfaces.
//!
//! [`Htm::outside`]: crate::Htm::outside

use crate::access::{Access, Body, Direct};
use crate::agent::{Abort, Regions};
use crate::htm::Emulation;
use crate::locks::FallbackLocks;
use crate::outside::{Inside, inside};
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{CACHE_LINE, Rng, WorkerId, thread};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lines a region may write: 512 scattered ones commit in 1 % of attempts (measured on Emerald Rapids).
const LINES_WRITTEN_MAX: usize = 512;
/// Words a region may read: 4096 lines, 256 KiB, commit in 41 % of attempts (measured on Emerald Rapids).
const WORDS_READ_MAX: usize = 4096;
/// In direct mode other threads get to run after one load in this many.
const LOADS_PER_YIELD: u32 = 8;

/// Accesses expected of a worker's first region.
const LENGTH_FIRST: u64 = 16;

/// The state that all emulated regions of one [`Htm`](crate::Htm) share.
#[derive(Debug)]
pub(crate) struct World {
    emulation: Emulation,
    mutex: Mutex<()>,
}

impl World {
    pub(crate) fn new(emulation: Emulation) -> Arc<World> {
        Arc::new(World { emulation, mutex: Mutex::new(()) })
    }

    /// Excludes all regions until dropped. The mutex guards no data, so one poisoned by a panic is as good as before.
    pub(crate) fn exclude(&self) -> MutexGuard<'_, ()> {
        assert!(!inside(), "a read-modify-write through `Htm::outside` inside a region: use `Access::lock`");
        self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn let_others_run(&self) {
        if self.emulation.yields {
            thread::yield_now();
        }
    }
}

/// The regions of one worker.
#[derive(Debug)]
pub(crate) struct Emulated {
    world: Arc<World>,
    rng: Rng,
    /// Accesses of a recent region, so that planned aborts fall everywhere in the next.
    length: u64,
}

impl Emulated {
    pub(crate) fn new(world: Arc<World>, worker: WorkerId) -> Emulated {
        let seed = world.emulation.seed ^ (u64::from(worker.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Emulated { world, rng: Rng::from_seed(seed), length: LENGTH_FIRST }
    }

    /// At which access the next region aborts, if it does, and why.
    fn plan(&mut self) -> Option<(u64, Abort)> {
        let one_in = u64::from(self.world.emulation.abort_one_in);
        if one_in == 0 || self.rng.below(one_in) != 0 {
            return None;
        }
        let cause = [Abort::Conflict, Abort::Capacity, Abort::System][self.rng.below(3) as usize];
        Some((self.rng.range(0, self.length), cause))
    }
}

impl Regions for Emulated {
    type Direct<'a> = SteppedDirect<'a>;

    fn attempt<L: FallbackLocks + ?Sized, B: Body>(&mut self, locks: &L, body: &mut B) -> Result<B::Output, Abort> {
        let mut region = Region::new(self.plan());
        let inside = Inside::enter();
        let guard = self.world.lock();
        let result = catch_unwind(AssertUnwindSafe(|| {
            if locks.held(&mut region) {
                return Err(Abort::Held);
            }
            let output = body.run(&mut region)?;
            // The body has ended: a planned abort it did not reach strikes now.
            region.strike(u64::MAX);
            region.check();
            Ok(output)
        }));
        drop(inside);
        let result = match result {
            Ok(result) => result,
            Err(payload) => match payload.downcast::<Thrown>() {
                Ok(thrown) => Err(thrown.0),
                Err(panic) => {
                    drop(guard);
                    resume_unwind(panic)
                }
            },
        };
        if result.is_ok() {
            self.length = region.accesses;
            region.write_back(&self.world);
        }
        drop(guard);
        result
    }

    fn direct(&mut self) -> SteppedDirect<'_> {
        SteppedDirect { world: &self.world, loads: 0 }
    }
}

/// The payload of an unwinding that aborts a region.
struct Thrown(Abort);

/// One region: its loads and its buffered stores.
struct Region {
    plan: Option<(u64, Abort)>,
    accesses: u64,
    /// Each word read from memory, with its value.
    reads: Vec<(*const AtomicU64, u64)>,
    /// All stores in program order.
    writes: Vec<(*const AtomicU64, u64)>,
    /// Distinct lines in `writes`.
    lines_written: Vec<usize>,
}

impl Region {
    fn new(plan: Option<(u64, Abort)>) -> Region {
        Region { plan, accesses: 0, reads: Vec::new(), writes: Vec::new(), lines_written: Vec::new() }
    }

    fn abort(&self, abort: Abort) -> ! {
        resume_unwind(Box::new(Thrown(abort)))
    }

    /// Aborts as planned, if the plan's access is `access` or before.
    fn strike(&self, access: u64) {
        if let Some((at, cause)) = self.plan
            && at <= access
        {
            self.abort(cause);
        }
    }

    fn count(&mut self) {
        self.strike(self.accesses);
        self.accesses += 1;
    }

    /// Aborts if a word read has changed since.
    fn check(&self) {
        for &(word, value) in &self.reads {
            // SAFETY: rule 3 of the crate: the body's words stay allocated until `run` returns.
            if unsafe { &*word }.load(Ordering::Acquire) != value {
                self.abort(Abort::Conflict);
            }
        }
    }

    fn write_back(&self, world: &World) {
        for &(word, value) in &self.writes {
            world.let_others_run();
            // SAFETY: rule 3 of the crate: the body's words stay allocated until `run` returns.
            // ORDERING: pairs with the acquire loads of readers outside, as a direct store does.
            unsafe { &*word }.store(value, Ordering::Release);
        }
    }
}

impl Access for Region {
    const REGION: bool = true;

    fn load(&mut self, word: &AtomicU64) -> u64 {
        self.count();
        let address = std::ptr::from_ref(word);
        if let Some(&(_, value)) = self.writes.iter().rev().find(|write| write.0 == address) {
            return value;
        }
        if let Some(&(_, value)) = self.reads.iter().rev().find(|read| read.0 == address) {
            return value;
        }
        if self.reads.len() == WORDS_READ_MAX {
            self.abort(Abort::Capacity);
        }
        // ORDERING: pairs with the release stores of direct bodies.
        let value = word.load(Ordering::Acquire);
        self.check();
        self.reads.push((address, value));
        value
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        self.count();
        let address = std::ptr::from_ref(word);
        let line = address as usize / CACHE_LINE;
        if !self.lines_written.contains(&line) {
            if self.lines_written.len() == LINES_WRITTEN_MAX {
                self.abort(Abort::Capacity);
            }
            self.lines_written.push(line);
        }
        self.writes.push((address, value));
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        let free = self.load(word) == unlocked;
        if free {
            self.store(word, locked);
        }
        free
    }
}

/// Direct mode beside emulated regions: read-modify-writes exclude them, and other threads run between stores.
pub(crate) struct SteppedDirect<'a> {
    world: &'a World,
    loads: u32,
}

impl Access for SteppedDirect<'_> {
    const REGION: bool = false;

    fn load(&mut self, word: &AtomicU64) -> u64 {
        let value = Direct.load(word);
        self.loads += 1;
        if self.loads.is_multiple_of(LOADS_PER_YIELD) {
            self.world.let_others_run();
        }
        value
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        Direct.store(word, value);
        self.world.let_others_run();
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        let turned = {
            let _excluded = self.world.exclude();
            Direct.lock(word, unlocked, locked)
        };
        self.world.let_others_run();
        turned
    }
}
