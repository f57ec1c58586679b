//! Regions in hardware: Intel's restricted transactional memory.
//!
//! The abort status, in `eax` after `xbegin` (Intel SDM volume 1, chapter 16):
//!
//! ```text
//! 31..24 code of xabort | 5 nested | 4 debug | 3 capacity | 2 conflict | 1 may retry | 0 explicit
//! ```
//! All ones: the region has begun. All zeros: a fault, an interrupt or an instruction that regions cannot hold.
//! The codes below [`BodyError::CODES`] are the body's; 0xFF: a fallback lock was held at subscription; 0xFE: the body
//! was busy; 0xFD: the body panicked.
//!
//! An abort restores all registers and all memory of the thread and continues behind `xbegin`. So for the compiler the
//! instruction ran once and returned a status.

use crate::access::{Access, Body, BodyError, Direct};
use crate::agent::{Abort, Regions};
use crate::htm::{Cpuid, Detection};
use crate::locks::FallbackLocks;
use seriatim_base::CacheAligned;
use seriatim_base::word::{AtomicU64, Ordering};
use std::time::Duration;

const STARTED: u32 = !0;
const EXPLICIT: u32 = 1 << 0;
const CONFLICT: u32 = 1 << 2;
const CAPACITY: u32 = 1 << 3;

const HELD: u8 = 0xFF;
const BUSY: u8 = 0xFE;
const PANICKED: u8 = 0xFD;

/// Attempts of the probe, with a pause after each round of them. A region of one word commits nearly always
/// where any does; an interrupt may hit a few. In a virtual machine with a busy host a thousand in a row were
/// seen to abort.
const PROBE_ROUNDS: u32 = 20;
const PROBE_ATTEMPTS: u32 = 500;

/// The cause in an abort status that is not [`STARTED`]. A region that hit both its limits and another thread
/// will hit its limits again: capacity comes first.
fn cause(status: u32) -> Abort {
    if status & EXPLICIT != 0 {
        match (status >> 24) as u8 {
            HELD => Abort::Held,
            BUSY => Abort::Busy,
            PANICKED => Abort::Panicked,
            code if code < BodyError::CODES => Abort::Refused(code),
            _ => Abort::System,
        }
    } else if status & CAPACITY != 0 {
        Abort::Capacity
    } else if status & CONFLICT != 0 {
        Abort::Conflict
    } else {
        Abort::System
    }
}

/// The regions of the processor. Exists only after [`detect`] saw one commit.
#[derive(Debug)]
pub(crate) struct Rtm;

impl Regions for Rtm {
    type Direct<'a> = Direct;

    #[inline(always)]
    fn attempt<L: FallbackLocks + ?Sized, B: Body>(&mut self, locks: &L, body: &mut B) -> Result<B::Output, Abort> {
        // SAFETY: `detect` found the instructions before this back end was chosen.
        let status = unsafe { instructions::begin() };
        if status != STARTED {
            return Err(cause(status));
        }
        let unwinding = AbortOnUnwind;
        if locks.held(&mut Region) {
            instructions::abort::<HELD>();
        }
        let output = match body.run(&mut Region) {
            Ok(output) => output,
            Err(BodyError::Refused(code)) => instructions::abort_with(code),
            Err(BodyError::Busy) => instructions::abort::<BUSY>(),
        };
        std::mem::forget(unwinding);
        // SAFETY: the region begun above is still open: an abort would have continued behind `begin`.
        unsafe { instructions::end() };
        Ok(output)
    }

    fn direct(&mut self) -> Direct {
        Direct
    }
}

/// Ends the region when a panic leaves it, before the unwinding code is taken for a part of it.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        instructions::abort::<PANICKED>();
    }
}

/// Access inside the region of this thread. The processor orders regions; acquire and release cost nothing on
/// x86-64 and keep the compiler from moving the body's other memory accesses across.
struct Region;

impl Access for Region {
    const REGION: bool = true;

    #[inline(always)]
    fn load(&mut self, word: &AtomicU64) -> u64 {
        // ORDERING: pairs with the release stores of direct bodies.
        word.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn store(&mut self, word: &AtomicU64, value: u64) {
        // ORDERING: pairs with the acquire loads of readers outside, once the region commits.
        word.store(value, Ordering::Release);
    }

    #[inline(always)]
    fn lock(&mut self, word: &AtomicU64, unlocked: u64, locked: u64) -> bool {
        let free = self.load(word) == unlocked;
        if free {
            self.store(word, locked);
        }
        free
    }
}

/// Looks for hardware transactional memory: the processor's word, then, if that is good, a probe that really
/// commits. An instruction that the processor does not offer is never executed: it may fault.
pub fn detect() -> Detection {
    // SAFETY: rule of `Detection::new`: it probes only where the processor says that it has the instructions.
    Detection::new(instructions::advertised(), || unsafe { probe() })
}

/// Executes regions that write a word, whatever the processor says of itself: whether one committed and the
/// word then holds what it wrote.
///
/// For tools that want to know what a processor does, and run this in a process of its own: see
/// [`RtmKind`](crate::RtmKind). [`detect`] is for everything else.
///
/// # Safety
/// The processor has the instructions, or SIGILL may end this process (or is handled).
pub unsafe fn probe() -> bool {
    if !instructions::BUILT {
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe { instructions::touch() };
    let word = CacheAligned(AtomicU64::new(0));
    (0..PROBE_ROUNDS * PROBE_ATTEMPTS).any(|attempt| {
        if attempt > 0 && attempt % PROBE_ATTEMPTS == 0 {
            seriatim_base::thread::sleep(Duration::from_millis(1));
        }
        // The page is mapped and writable, whatever the host did to it.
        word.store(0, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        if unsafe { instructions::begin() } != STARTED {
            return false;
        }
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // SAFETY: the region begun above is still open.
        unsafe { instructions::end() };
        word.load(Ordering::Relaxed) == 1
    })
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod instructions {
    //! The instructions. The functions of the standard library are not stable.

    use super::{Cpuid, STARTED};
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;

    pub(super) const BUILT: bool = true;

    /// The features that the processor advertises.
    pub(super) fn advertised() -> Option<Cpuid> {
        if __cpuid_count(0, 0).eax < 7 {
            return Some(Cpuid { rtm: false, always_abort: false });
        }
        let leaf = __cpuid_count(7, 0);
        Some(Cpuid { rtm: leaf.ebx & 1 << 11 != 0, always_abort: leaf.edx & 1 << 11 != 0 })
    }

    /// Begins a region. Answers [`STARTED`], and answers once more, with a status, should the region abort.
    ///
    /// # Safety
    /// The processor has RTM.
    #[inline(always)]
    pub(super) unsafe fn begin() -> u32 {
        let mut status = STARTED;
        // SAFETY: the caller's promise. Memory is not declared untouched, so no access moves across.
        unsafe { asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
        status
    }

    /// Commits the region of this thread, or aborts it.
    ///
    /// # Safety
    /// The thread is inside a region.
    #[inline(always)]
    pub(super) unsafe fn end() {
        // SAFETY: the caller's promise. Memory is not declared untouched, so no access moves across.
        unsafe { asm!("xend", options(nostack)) };
    }

    /// `xabort`: ends the region of this thread, continuing behind its `begin`; does nothing outside.
    ///
    /// # Safety
    /// The processor has RTM.
    unsafe fn xabort<const CODE: u8>() {
        // SAFETY: the caller's promise.
        unsafe { asm!("xabort {code}", code = const CODE, options(nostack)) };
    }

    /// Aborts the region of this thread with `CODE`.
    #[inline(always)]
    pub(super) fn abort<const CODE: u8>() -> ! {
        // SAFETY: called inside a region only, so the processor has RTM.
        unsafe { xabort::<CODE>() };
        unreachable!("a region is aborted inside it")
    }

    /// Aborts the region of this thread with a body's `code`. A code out of range panics, and so aborts as a panic.
    #[cold]
    pub(super) fn abort_with(code: u8) -> ! {
        // SAFETY: called inside a region only, so the processor has RTM.
        unsafe { ABORTS[usize::from(code >> 4)][usize::from(code & 15)]() };
        unreachable!("a region is aborted inside it")
    }

    /// Brings in the pages of [`ABORTS`] and of its targets, which a region could not.
    ///
    /// # Safety
    /// The processor has RTM; the thread is not inside a region.
    pub(super) unsafe fn touch() {
        for abort in ABORTS.iter().flatten() {
            // SAFETY: the caller's promise.
            unsafe { abort() };
        }
    }

    macro_rules! row {
        ($high:literal) => {
            row!($high: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
        };
        ($high:literal: $($low:literal)*) => {
            [$(xabort::<{ $high * 16 + $low }>),*]
        };
    }

    /// The instruction holds its code as a constant: one function for each code below `BodyError::CODES`.
    static ABORTS: [[unsafe fn(); 16]; 15] = [
        row!(0),
        row!(1),
        row!(2),
        row!(3),
        row!(4),
        row!(5),
        row!(6),
        row!(7),
        row!(8),
        row!(9),
        row!(10),
        row!(11),
        row!(12),
        row!(13),
        row!(14),
    ];
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod instructions {
    //! Stands in where there are no such instructions: nothing is advertised, so no region ever begins.

    use super::Cpuid;

    pub(super) const BUILT: bool = false;

    pub(super) fn advertised() -> Option<Cpuid> {
        None
    }

    /// # Safety
    /// None needed: it panics.
    pub(super) unsafe fn begin() -> u32 {
        unreachable!("a back end that does not exist was chosen")
    }

    /// # Safety
    /// None needed: it panics.
    pub(super) unsafe fn end() {
        unreachable!("a back end that does not exist was chosen")
    }

    /// # Safety
    /// None needed.
    pub(super) unsafe fn touch() {}

    pub(super) fn abort<const CODE: u8>() -> ! {
        unreachable!("a back end that does not exist was chosen")
    }

    pub(super) fn abort_with(_code: u8) -> ! {
        unreachable!("a back end that does not exist was chosen")
    }
}
