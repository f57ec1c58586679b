//! The ground every other crate stands on.
//!
//! Invariant: this is the only crate that reads a clock, starts a thread, yields, sleeps, draws randomness or
//! asks what the machine has, and the only one below the tests and tooling that touches files, so that a test
//! which replaces these interfaces owns every source of non-determinism. `cargo xtask tidy` enforces it. It
//! also holds the vocabulary that all layers share: TIDs, epochs, ids, cache alignment and prefetching, bounded
//! backoff.

mod align;
pub mod allocation;
mod backoff;
pub mod clock;
pub mod disk;
mod durable_point;
mod fair_lock;
mod ids;
pub mod interrupt;
pub mod machine;
pub mod output;
pub mod prefetch;
pub mod process;
pub mod rng;
#[cfg(feature = "simulate")]
pub mod simulated;
pub mod size;
mod sleepers;
mod sync;
pub mod thread;
mod tid;
mod turns;
mod unwind;
mod waiter;

pub use align::{CACHE_LINE, CacheAligned};
pub use backoff::Backoff;
pub use durable_point::{DurablePoint, Hold};
pub use fair_lock::FairLock;
pub use ids::{ColumnId, IndexId, LayoutId, TableId, WorkerId};
pub use process::Process;
pub use rng::Rng;
pub use sleepers::Sleepers;
pub use tid::{Epoch, Tid};
pub use unwind::{abort_on_unwind, panic_text};
