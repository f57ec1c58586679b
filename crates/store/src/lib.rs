//! Maps keys to records: a B+-tree and a hash table whose membership has versions that can be validated (DBX §4).
//!
//! Invariant: every change of membership of a leaf or bucket changes its node version. It can be validated
//! ([`NodeVersion`]) or locked (the gap word beside it). Nothing here matches on a protocol.
//!
//! Rules that the `unsafe` of this crate relies on:
//! 1. A record's key words (and the out-of-line value they name) do not change from before it is linked until its
//!    memory is reused.
//! 2. A thread that unlinks a record or node retires it through `memory`. A thread that reads the structure is online
//!    ([`Pinned`](seriatim_memory::Pinned)). So everything that it reached stays allocated.
//! 3. A node's words are only ever accessed as atomics; a node is private to its creator until a latched node
//!    points to it.
//! 4. A reader acts on what it read from a node only after the node's word proved unchanged; a writer holds the latch.
//! 5. The caller of an exclusive use (loading, dropping, walking) has promised that no other thread uses the index.

/// A size that shrinks in tests, so that rare paths are common there. It does so in the crate's own tests, and in those
/// of crates above that enable the feature `small` in their dev-dependencies.
const fn small(normal: usize, in_tests: usize) -> Size {
    Size::new(normal, if cfg!(any(test, feature = "small")) { in_tests } else { normal })
}

mod cursor;
mod hash;
mod index;
#[cfg(all(test, not(loom)))]
mod interrupted;
mod node_version;
mod observer;
mod rare;
mod record;
mod statistics;
mod tree;
mod walk;

use seriatim_base::size::Size;

pub use cursor::{Cursor, Direction};
pub use index::{HashHint, Index, Inserted, StoreCx, Unordered};
pub use node_version::NodeVersion;
pub use observer::{GAP_CLOSED, Observer, Tidy, Unobserved};
pub use rare::RarePath;
#[cfg(any(test, feature = "small"))]
pub use rare::{all_taken, taken};
pub use record::{RecordPtr, has_key, key_bytes, out_of_line_bytes, read_key, write_key};
pub use seriatim_memory::OutOfMemory;
pub use statistics::IndexStatistics;
pub use tree::LeafHint;
pub use walk::Walk;

/// Before each load of a reader: where tests and simulations let another thread take its turn.
#[inline(always)]
fn step<W>(word: &W) {
    #[cfg(any(test, feature = "steps"))]
    seriatim_base::thread::step(seriatim_base::thread::Touch::Node, std::ptr::from_ref(word).cast());
    let _ = word;
}
