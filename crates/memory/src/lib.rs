//! Per-worker arenas and quiescent-state reclamation.
//!
//! Invariant: memory is reused only after every *online* worker passed a quiescent state that began after the memory
//! was retired. Where versions are kept, a version that a commit replaced is reused only after that commit is durable
//! ([`Memory::keep_versions`]). In addition, no open snapshot of the past may need it ([`Memory::keep_snapshots`]).
//!
//! A [`Memory`] is shared by the workers of a database; each has a [`Local`]. A worker is *online* between
//! [`Local::enter`] and [`Local::leave`], that is, inside a transaction, and may follow shared references only
//! then. It retires the blocks that it unlinks. A retired block is freed once no worker that was online then
//! can still hold it (`quiescence`, after DBX §5.5). An idle worker is offline and stalls nothing.
//!
//! Allocation and release of small blocks are a few instructions on lists that the worker owns (`arena`). Lists are
//! refilled from batches that other workers freed, then from mapped, touched memory (`heap`). Nothing here may run
//! inside a region: it could map memory or wait for a lock, which is why allocation wants
//! [`Outside`](seriatim_htm::Outside).
//!
//! | module | one idea |
//! |---|---|
//! | `local` | the interface of a worker, and the rules for what it may touch |
//! | `memory` | what workers share, and the slots they take |
//! | `quiescence` | counts, seals, grace periods; the correctness argument; the loom model |
//! | `garbage` | bags that wait for a grace period |
//! | `horizon` | before which epoch replaced versions may be overwritten where they are |
//! | `snapshots` | up to which epoch snapshots of the past need nothing that was replaced |
//! | `arena` | free lists of a worker |
//! | `heap` | spans, batches between workers, large maps, the limit |
//! | `reclaim` | memory given back to the system |
//! | `class` | sizes of blocks |
//! | `counted` | lists that grow with a transaction |
//! | `system` | mmap, madvise |
//! | `poison` | overwriting freed blocks in debug builds |

mod arena;
mod class;
mod counted;
mod error;
mod garbage;
mod heap;
mod horizon;
mod local;
mod memory;
mod poison;
mod quiescence;
mod reclaim;
mod snapshots;
mod sync;
mod system;

pub use counted::{Charge, CountedVec};
pub use error::{Error, OutOfMemory};
pub use local::{Local, Pinned, allocated_bytes};
pub use memory::{Memory, Options, PastReads};

use seriatim_base::size::Size;

/// An action after a grace period: three words whose meaning is the caller's.
pub type Deferred = [u64; 3];

/// A size that shrinks in tests, so that rare paths become common there.
const fn small(normal: usize, in_tests: usize) -> Size {
    Size::new(normal, if cfg!(any(test, feature = "small")) { in_tests } else { normal })
}

#[cfg(all(test, not(loom)))]
mod tests;
