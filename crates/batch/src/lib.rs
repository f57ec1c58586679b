//! Reordering of batches: an order in which executed, undecided transactions commit, and the few that must abort; or threads for
//! those that have not run.
//!
//! Invariant: this crate permutes or drops transactions and executes none. It imports `seriatim-base` alone, for randomness.
//! **An order that it accepts is a serial order of the batch**: after all before it in the order, each transaction would still see
//! what it saw, provided that all of the batch saw the same committed state.
//!
//! The source is Ding, Kot, Gehrke, "Improving Optimistic Concurrency Control Through Transaction Batching and Operation
//! Reordering", PVLDB 12(2), 2018, §3.2 and §4. How [`Batch::reorder`] decides, in the order of the modules:
//!
//! 1. `batch`: what transactions read and wrote, as resources. A resource is whatever the caller can name: a record, but also a
//!    leaf or bucket, read by those who saw a range or an absence there and written by those who insert or delete there. A
//!    transaction that saw an older version of a resource than another one of the batch is *stale*, and aborts in any order.
//! 2. `graph`: the dependency graph. An edge runs from a reader to a writer of the same resource, because the reader, which saw the
//!    state before the batch, commits first. Writes that nobody read do not conflict.
//! 3. `algorithms`: a feedback vertex set of the graph. These abort; without them the graph has no cycle. To find a smallest set
//!    is NP-hard; [`ALGORITHMS`] lists those that there are. [`POLICIES`] lists what they prefer to abort.
//! 4. `order`: readers first, otherwise as they came.
//!
//! Transactions that have not run yet, but whose footprints are known, are placed on threads ([`Batch::place`], `placement`): those
//! that conflict on one, in that order. Nothing is dropped then.
//!
//! ```
//! use seriatim_batch::{Batch, Member, Settings};
//!
//! let mut batch = Batch::new();
//! batch.add(Member::default()).writes(["x"]); // 0 writes x,
//! batch.add(Member::default()).reads([("x", 7)]); // of which 1 saw version 7.
//! batch.add(Member::default()).reads([("x", 7), ("y", 3)]).writes(["y"]); // 2 and 3 read and write y:
//! batch.add(Member::default()).reads([("y", 3)]).writes(["y"]); // one of them commits.
//!
//! let decided = batch.reorder(&Settings::default());
//! assert_eq!(decided.order, [1, 2, 0]);
//! assert_eq!(decided.aborted, [3]);
//! ```
//!
//! # Departures from the paper
//!
//! - §3.2 commits "a node without outgoing edges" first, which is the writer: the order is the reverse of that. A vertex without
//!   incoming edges has no reader left, so it goes first.
//! - Algorithm 2 takes `k - 1` vertices in each round as it is printed, and never ends at `k = 1`. Ours takes `k`. Of these, one
//!   that is on no cycle any more when its turn comes is not aborted; the graph that is left is the same.
//! - The exact search is a branch and bound instead of an enumeration. Its work is bounded ([`Settings::search_steps_max`]), and it is
//!   never worse than the greedy algorithm that it starts from.
//! - The thread-aware policy (§4.2) places whole components of what conflicts, unless it is told to give each thread the same number, as
//!   the paper does ([`Placement`]).
//!
//! # What they cost, and how good they are
//!
//! The graph of `V` transactions with `R` reads, `W` writes and `E` edges takes O(R + W + V²) at worst, the order O(E + V log V); each
//! algorithm says its own. The table has mean sizes of feedback vertex sets of the paper's microbenchmark (§5: 5 reads and 5 writes, one
//! of them of the same object, of 100,000 objects), by Zipf's θ: 1000 batches of 14, 300 of 40 (the paper's size), 100 of 64.
//! With a hundred times the steps the exact sets are no smaller. With each batch `reorder` takes 4 µs (14, θ 0.5) to 240 µs (exact, 64,
//! θ 0.9) on a shared virtual machine; at 40 and θ 0.9 sort-greedy about 25 µs, scc-greedy 50, exact 75.
//! (Drawn with objects that may be the same; `seriatim bench reorder` draws nine that differ, as the benchmark does.)
//!
//! | prod-degree | 14, θ 0.8 | 14, θ 0.9 | 40, θ 0.7 | 40, θ 0.8 | 40, θ 0.9 | 64, θ 0.8 | 64, θ 0.9 |
//! |---|---|---|---|---|---|---|---|
//! | exact | 0.18 | 0.82 | 0.26 | 1.19 | 5.00 | 2.84 | 10.36 |
//! | hybrid, 20 | 0.18 | 0.82 | 0.26 | 1.19 | 5.02 | 2.84 | 10.79 |
//! | hybrid, 10 | 0.18 | 0.82 | 0.26 | 1.19 | 5.14 | 2.85 | 11.16 |
//! | scc-greedy | 0.18 | 0.83 | 0.26 | 1.19 | 5.28 | 2.88 | 11.30 |
//! | sort-greedy, k = 1 | 0.19 | 0.84 | 0.26 | 1.21 | 5.54 | 3.03 | 11.93 |
//! | sort-greedy, k = 2 | 0.19 | 0.85 | 0.26 | 1.22 | 5.68 | 3.08 | 12.09 |
//! | sort-greedy, k = 4 | 0.19 | 0.85 | 0.26 | 1.24 | 5.94 | 3.15 | 12.38 |
//! | random-3 | 0.19 | 0.90 | 0.26 | 1.26 | 6.25 | 3.13 | 15.18 |
//! | random | 0.19 | 0.98 | 0.26 | 1.35 | 7.19 | 3.59 | 16.69 |
//! | trim | 0.38 | 1.88 | 0.49 | 2.78 | 13.84 | 7.75 | 29.24 |
//!
//! The paper's random sets are almost twice as large as greedy ones (Figure 5); here they are at most half as large again. Why, we do not
//! know: the paper's batches come from a running system, these are drawn.

mod algorithms;
mod batch;
mod fault;
mod graph;
mod order;
mod placement;
mod policy;
mod residual;
#[cfg(test)]
mod tests;

pub use algorithms::{ALGORITHMS, Algorithm};
pub use batch::{Accesses, Batch, Decided, Member};
pub use placement::{Placed, Placement};
pub use policy::{POLICIES, Policy};

use std::num::NonZeroUsize;

/// How a batch is reordered.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Finds those that abort: one of [`ALGORITHMS`].
    pub algorithm: &'static Algorithm,
    /// Prefers some to others: one of [`POLICIES`].
    pub policy: &'static Policy,
    /// Vertices that `sort-greedy` takes in each round (the paper's k).
    pub factor: NonZeroUsize,
    /// `hybrid` searches strongly connected components of at most so many transactions exactly; at most [`EXACT_MAX`].
    pub exact_max: usize,
    /// Partial solutions that exact searches of one batch look at, all together; then each goes on with the best that it has. One
    /// takes O(V³ / 64) for a component of V transactions.
    pub search_steps_max: u32,
    /// Of the random policy.
    pub seed: u64,
}

/// Transactions of a strongly connected component that is searched exactly, at most.
pub const EXACT_MAX: usize = 64;

/// The paper's: `sort-greedy` by `prod-degree`, two at a time (§5, "Evaluation").
impl Default for Settings {
    fn default() -> Settings {
        Settings {
            algorithm: Algorithm::named("sort-greedy").expect("it is listed"),
            policy: Policy::named("prod-degree").expect("it is listed"),
            factor: NonZeroUsize::new(2).expect("not zero"),
            exact_max: 20,
            search_steps_max: 10_000,
            seed: 0,
        }
    }
}
