//! The protocols that Seriatim is for, a folder each, and the code that all protocols share.
//!
//! Invariant: protocol folders do not import each other; shared code is in `shared/`. Each folder's
//! `README.md` gives the source, the departures, the argument for serializability and what can wait. The protocols that
//! these are compared with are in `seriatim-baselines`; the registry of all is `registry.rs` of the engine.

pub mod dbx;
pub mod dbx_tc;
pub mod htcc;
pub mod occ_batch;
pub mod partitioned;
/// For protocols, here and in `seriatim-baselines`.
#[doc(hidden)]
pub mod shared;
pub mod silo;

use seriatim_base::thread::Touch;
use seriatim_base::word::AtomicU64;

#[cfg(test)]
#[allow(dead_code, reason = "no test uses all of it")]
mod common;

/// Called before each access to the header of a record (reading, locking, validating, installing), and before a gap is
/// locked. Tests and simulations let another thread take its turn here. The word is not used.
#[doc(hidden)]
#[inline(always)]
pub fn step(touch: Touch, word: *const AtomicU64) {
    #[cfg(feature = "steps")]
    seriatim_base::thread::step(touch, word.cast());
    let _ = (touch, word);
}
