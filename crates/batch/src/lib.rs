//! Reordering of batches. It finds an order in which executed, undecided transactions commit, and the few that
//! must abort. It also places transactions that have not run yet on threads.
//!
//! Invariant: this crate permutes or drops transactions and executes none. It imports `seriatim-base` alone,
//! for randomness. **An order that it accepts is a serial order of the batch**, provided that all of the batch saw the
//! same committed state. After all transactions before it in the order, each one would still see what it saw.
//!
//! The source is Ding, Kot, Gehrke, "Improving Optimistic Concurrency Control Through Transaction Batching
//! and Operation Reordering", PVLDB 12(2), 2018, §3.2 and §4. How [`Batch::reorder`] decides, in the order of
//! the modules:
//!
//! 1. `batch`: reads and writes of transactions, as resources. A resource is anything that the caller can
//!    name: a record, but also a leaf or bucket. A transaction reads the leaf if it saw a range or an absence
//!    there, and writes it if it inserts or deletes there. A transaction that saw an older version of a
//!    resource than another one of the batch is *stale*, and aborts in any order.
//! 2. `graph`: the dependency graph. An edge leads from a reader to a writer of the same resource: the reader
//!    saw the state before the batch, so it commits first. Writes of a resource that no transaction read do
//!    not conflict.
//! 3. `algorithms`: a feedback vertex set of the graph. Its transactions abort; without them the graph has no
//!    cycle. To find a smallest set is NP-hard. [`ALGORITHMS`] lists the algorithms, [`POLICIES`] which
//!    transactions they prefer to abort.
//! 4. `order`: readers first, otherwise by arrival.
//!
//! Transactions that have not run yet, but whose footprints are known, are placed on threads
//! ([`Batch::place`], `placement`). Those that conflict run on one thread, in that order, and none is dropped.
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
//! - §3.2 commits "a node without outgoing edges" first, which is the writer: the order is the reverse of
//!   that. A vertex without incoming edges has no reader left, so it goes first.
//! - Algorithm 2 takes `k - 1` vertices in each round as it is printed, and never ends at `k = 1`. Ours takes
//!   `k`. If one of these is no longer on a cycle at its turn, it is not aborted; the graph that is left is
//!   the same.
//! - The exact search is a branch and bound instead of an enumeration. Its work is bounded
//!   ([`Settings::search_steps_max`]), and it is never worse than the greedy algorithm that it starts from.
//! - The thread-aware policy (§4.2) places whole components of conflicting transactions. With
//!   [`Placement::Shares`] it gives each thread the same number, as the paper does.
//!
//! # Cost and quality
//!
//! The graph of `V` transactions with `R` reads, `W` writes and `E` edges takes O(R + W + V²) at worst. The order takes
//! O(E + V log V), and each algorithm states its own cost. The table has mean sizes of feedback vertex sets of the
//! paper's microbenchmark, by Zipf's θ. In it (§5) a transaction has 5 reads and 5 writes, one read and one write of
//! the same object, of 100,000 objects. The means are of 1000 batches of 14, 300 of 40 (the paper's size), and 100 of
//! 64. With a hundred times the steps the exact sets are no smaller. For one batch `reorder` takes 4 µs (14, θ 0.5) to
//! 240 µs (exact, 64, θ 0.9) on a shared virtual machine; at 40 and θ 0.9 sort-greedy takes about 25 µs, scc-greedy 50,
//! exact 75. (Objects were drawn with repetition; `seriatim bench reorder` draws nine distinct ones, as the benchmark
//! does.)
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
//! The paper's random sets are almost twice as large as greedy ones (Figure 5); here they are at most half as
//! large again. We do not know why: the paper's batches come from a running system, these are drawn.

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
    /// The algorithm that finds the transactions that abort: one of [`ALGORITHMS`].
    pub algorithm: &'static Algorithm,
    /// The policy that prefers some transactions to others: one of [`POLICIES`].
    pub policy: &'static Policy,
    /// Vertices that `sort-greedy` takes in each round (the paper's k).
    pub factor: NonZeroUsize,
    /// `hybrid` searches strongly connected components of at most this many transactions exactly; at most
    /// [`EXACT_MAX`].
    pub exact_max: usize,
    /// The number of partial solutions that all exact searches of one batch may visit. When they are used up,
    /// each search returns its best solution so far. A partial solution takes O(V³ / 64) for a component of V
    /// transactions.
    pub search_steps_max: u32,
    /// The seed of the random policy.
    pub seed: u64,
}

/// The size of the largest strongly connected component that is searched exactly.
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
