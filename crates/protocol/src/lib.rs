//! Concurrency-control protocols: a folder and a registry line each.
//!
//! Invariant: protocol folders do not import each other; shared code is in `shared/`. Each folder's
//! `README.md` gives the source, the departures, the argument for serializability and what can wait.

pub mod cicada;
pub mod dbx;
pub mod dbx_tc;
pub mod htcc;
pub mod hto;
pub mod naive;
pub mod nowait;
pub mod occ;
pub mod occ_batch;
pub mod partitioned;
mod registry;
mod shared;
pub mod silo;
pub mod tictoc;
pub mod wait_die;

pub use registry::PROTOCOLS;

use std::sync::atomic::AtomicU64;

use seriatim_base::thread::Touch;

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
#[allow(dead_code, reason = "no test uses all of it")]
mod common;
#[cfg(test)]
mod stage;

/// Called before each access to the header of a record (reading, locking, validating, installing), and before a gap is
/// locked. Tests and simulations let another thread take its turn here. The word is not used.
#[inline(always)]
fn step(touch: Touch, word: *const AtomicU64) {
    #[cfg(feature = "steps")]
    seriatim_base::thread::step(touch, word.cast());
    let _ = (touch, word);
}
