//! Maps keys to records: a B+-tree and a hash table whose membership can be witnessed (DBX §4).
//!
//! Invariant: every change of membership of a leaf or bucket changes its witness word, which can be validated ([`Witness`])
//! or locked (the gap word beside it); nothing here matches on a protocol.
//!
//! Rules that the `unsafe` of this crate relies on:
//! 1. A record's key words (and the tail they name) do not change from before it is linked until its memory is reused.
//! 2. Whoever unlinks a record or node retires it through `memory`; a thread that reads the structure is online
//!    ([`Pinned`](seriatim_memory::Pinned)), so everything it reached stays allocated.
//! 3. A node's words are only ever accessed as atomics; a node is private to its creator until a latched node points to it.
//! 4. A reader acts on what it read from a node only after the node's word proved unchanged; a writer holds the latch.
//! 5. Whoever uses an index exclusively (loading, dropping, walking) has promised that no other thread uses it.

/// A size that shrinks in tests, so that rare paths are common there: in the crate's own, and in those of crates above, which ask for
/// it by the feature `small` among their dev-dependencies.
const fn small(normal: usize, in_tests: usize) -> Size {
    Size::new(normal, if cfg!(any(test, feature = "small")) { in_tests } else { normal })
}

mod cursor;
mod hash;
mod index;
#[cfg(all(test, not(loom)))]
mod interrupted;
mod observer;
mod rare;
mod record;
mod statistics;
mod sync;
mod tree;
mod walk;
mod witness;

use seriatim_base::size::Size;

pub use cursor::{Cursor, Direction};
pub use index::{HashHint, Index, Inserted, StoreCx, Unordered};
pub use observer::{GAP_CLOSED, Observer, Tidy, Unobserved};
pub use rare::RarePath;
#[cfg(any(test, feature = "small"))]
pub use rare::{all_taken, taken};
pub use record::{RecordPtr, has_key, key_bytes, read_key, tail_of, write_key};
pub use seriatim_memory::OutOfMemory;
pub use statistics::IndexStatistics;
pub use tree::Finger;
pub use walk::Walk;
pub use witness::Witness;

/// Before each load of a reader: where tests let another thread take its turn.
#[inline(always)]
fn step() {
    #[cfg(any(test, feature = "steps"))]
    seriatim_base::thread::step();
}
