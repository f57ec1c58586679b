//! Regions of simulated cores: a machine of virtual time decides which of them commit.
//!
//! Invariants:
//! (a) A region's stores are buffered. Its commit makes all of them with no step between, so they are seen at
//!     one moment of virtual time.
//! (b) The machine is notified of every access, and lets the region know at the next one that it is lost. So a
//!     lost region has read nothing from after the loss.
//! (c) Every change of a word that regions read is a step, of which the machine is notified. A word that
//!     changed without one, as the epoch does, is found at the commit, which compares all loads with memory.
//! (d) Outside of a machine every region aborts, and bodies run under the fallback locks: as right on any thread.
//!
//! As in emulated regions, an abort leaves the body by unwinding. A panic of the body is repeated in direct
//! mode, as that of hardware is.

use crate::access::{Access, Body, Direct};
use crate::agent::{Abort, Regions};
use crate::locks::FallbackLocks;
use seriatim_base::simulated::{self, Lost, Region};
use seriatim_base::word::{AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The regions of one worker, and the loads and buffered stores of the one that runs.
#[derive(Debug, Default)]
pub(crate) struct Modelled {
    /// Each load from memory, with its value.
    reads: Vec<(*const AtomicU64, u64)>,
    /// All stores in program order.
    writes: Vec<(*const AtomicU64, u64)>,
}

// SAFETY: the lists are used while a region runs only, by the thread that runs it.
unsafe impl Send for Modelled {}
// SAFETY: as above; nothing changes through a shared reference.
unsafe impl Sync for Modelled {}

/// The payload of an unwinding that aborts a region.
struct Thrown(Abort);

fn report(act: Region, word: *const AtomicU64) -> Result<bool, Abort> {
    simulated::region(act, word.cast()).map_err(|lost| match lost {
        Lost::Conflict => Abort::Conflict,
        Lost::Capacity => Abort::Capacity,
    })
}

impl Modelled {
    /// Notifies the machine of the access; a lost region ends here.
    fn access(&self, act: Region, word: &AtomicU64) {
        if let Err(abort) = report(act, word) {
            resume_unwind(Box::new(Thrown(abort)));
        }
    }

    /// Makes all stores, if the region is not lost.
    fn commit(&self, decides: bool) -> Result<(), Abort> {
        report(Region::Commit { decides }, std::ptr::null())?;
        for &(word, value) in &self.writes {
            // SAFETY: rule 3 of the crate: the body's words stay allocated until `run` returns.
            unsafe { &*word }.store(value, Ordering::Release);
        }
        Ok(())
    }

    /// Whether all that was read is as it was.
    fn holds(&self) -> bool {
        // SAFETY: rule 3 of the crate.
        self.reads.iter().all(|&(word, value)| unsafe { &*word }.load(Ordering::Acquire) == value)
    }
}

impl Regions for Modelled {
    type Direct<'a> = Direct;

    fn attempt<L: FallbackLocks + ?Sized, B: Body>(&mut self, locks: &L, body: &mut B) -> Result<B::Output, Abort> {
        if !report(Region::Begin, std::ptr::null())? {
            return Err(Abort::System);
        }
        self.reads.clear();
        self.writes.clear();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            if locks.held(self) {
                return Err(Abort::Held);
            }
            Ok(body.run(self)?)
        }));
        let ended = match ran {
            Ok(Ok(_)) if !self.holds() => Err(Abort::Conflict),
            Ok(Ok(output)) => self.commit(B::DECIDES).map(|()| output),
            Ok(Err(abort)) => Err(abort),
            Err(payload) => Err(payload.downcast::<Thrown>().map_or(Abort::Panicked, |thrown| thrown.0)),
        };
        if ended.is_err() {
            // It is lost already, if at all.
            let _ = report(Region::Abort, std::ptr::null());
        }
        ended
    }

    fn direct(&mut self) -> Direct {
        Direct
    }
}

impl Access for Modelled {
    const REGION: bool = true;

    fn load(&mut self, word: &AtomicU64) -> u64 {
        self.access(Region::Load, word);
        let address = std::ptr::from_ref(word);
        if let Some(&(_, value)) = self.writes.iter().rev().find(|write| write.0 == address) {
            return value;
        }
        let value = word.load(Ordering::Acquire);
        self.reads.push((address, value));
        value
    }

    fn store(&mut self, word: &AtomicU64, value: u64) {
        self.access(Region::Store, word);
        self.writes.push((std::ptr::from_ref(word), value));
    }

    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        let free = self.load(word) == unlocked;
        if free {
            self.store(word, locked);
        }
        free
    }
}
