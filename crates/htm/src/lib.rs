//! Hardware transactional regions with fallback locks: rtm, emulated and absent back ends.
//!
//! A *region* is a stretch of code whose loads and stores of shared words take effect together or not at all. Hardware
//! does not promise that one ever commits. So a region is always an *elision* of something that works without it. That
//! is the fallback locks that it declares at entry, or the lock bits of the words that it touches. (Wang et al., "Using
//! Restricted Transactional Memory to Build a Scalable In-Memory Database", EuroSys 2014, §2.1 and §6.1; called DBX
//! below.)
//!
//! | back end | a body runs | for |
//! |---|---|---|
//! | [`Rtm`](Backend::Rtm) | in a hardware region, or under the fallback locks | processors whose regions commit |
//! | [`Emulated`](Backend::Emulated) | in a software region with random aborts, or under the fallback locks | tests |
//! | [`Absent`](Backend::Absent) | under the fallback locks, at once | everything else |
//!
//! With the feature `simulate` there are also modelled regions, of simulated cores (`modelled.rs`).
//!
//! # How a body is run
//!
//! [`Agent::run`] checks the fallback locks and waits while one is held, so that one fallback does not drag
//! all others after it. It begins the region, and checks the locks again as the region's first access, so that
//! taking one aborts the region. Then it runs the body and commits. An abort is counted against the [`Budget`]
//! of its cause. A body of more than the usual work has a smaller budget for conflicts ([`Body::weight`]).
//! Once one is spent the body runs in direct mode under the locks, which are released even if it panics.
//!
//! # Rules of a body
//!
//! 1. **It touches shared memory through [`Access`] only, and only words that were touched before**: the
//!    first touch of a page aborts a region every time.
//! 2. **It runs any number of times**: it resets what it keeps in itself first. Hardware undoes those
//!    changes, emulation does not.
//! 3. **The words it names stay allocated until `run` returns.** This is what [`Body`] being unsafe to
//!    implement promises.
//! 4. **Its stores can be seen one at a time, in program order**, by code outside: in direct mode, and so in emulated
//!    regions too. Some bodies change several words that readers validate with one word. They [lock](Access::lock) that
//!    word first and unlock it last, in regions as well, where it costs a plain store.
//! 5. **It calls no allocator, lock or platform call, and writes to no log.** They take `&mut Outside`, which
//!    `run` borrows, or call [`assert_outside`]. Memory is allocated before and released after.
//! 6. **It is short**: under about 100 cache lines, a few microseconds; loads before stores (DBX §2.2).
//! 7. **A panic surfaces**, but only from direct mode or an emulated region: hardware swallows it. A body
//!    that panicked in hardware runs next in direct mode.
//!
//! [`Whole`] runs code that keeps none of these rules, for a protocol that shows the consequences.
//!
//! Code outside changes a word that regions read through [`Htm::outside`] in two cases. The change is an atomic
//! read-modify-write (such as taking a lock bit), or no lock covers the word (an epoch, a snapshot number). The plain
//! stores of a lock's holder need not, its release included: regions find the lock held, or one of the words they read
//! changed.
//!
//! # What we do not know
//!
//! A region's first run may touch code pages that are not yet mapped; each such abort counts as a system event
//! and falls back. We expect a handful for the life of a process, as Linux maps 16 pages around a fault. To
//! settle: count system aborts of a cold process.

mod access;
mod agent;
mod emulated;
mod htm;
mod locks;
#[cfg(feature = "simulate")]
mod modelled;
mod outside;
mod rtm;
mod statistics;
mod whole;
pub mod word;

pub use access::{Access, Body, BodyError, Refused};
pub use agent::{Agent, Budget};
pub use htm::{Backend, Detection, Emulation, Htm, HtmMode, RtmKind, Unavailable, UnknownMode};
pub use locks::{FallbackLocks, Held, NoLocks, SpinLock};
pub use outside::{Outside, assert_outside};
pub use rtm::{detect, probe};
pub use statistics::{Aborted, RegionStatistics};
pub use whole::Whole;

#[cfg(test)]
mod tests;
