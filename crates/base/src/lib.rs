//! The platform interface and the basic types of all other crates.
//!
//! Invariant: only this crate reads a clock, starts a thread, yields, sleeps, draws randomness or asks about
//! the machine. Below the tests and tooling only this crate accesses files. So a test that replaces these
//! interfaces controls every source of non-determinism. `cargo xtask tidy` enforces this. The crate also has
//! the types that all layers share: TIDs, epochs, ids, cache alignment and prefetching, bounded backoff.

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
mod try_lock;
mod turns;
mod unwind;
mod waiter;
mod waiting_list;
pub mod word;

pub use align::{CACHE_LINE, CacheAligned};
pub use backoff::Backoff;
pub use durable_point::{DurablePoint, Hold};
pub use fair_lock::FairLock;
pub use ids::{ColumnId, IndexId, LayoutId, TableId, WorkerId};
pub use process::Process;
pub use rng::Rng;
pub use sleepers::Sleepers;
pub use tid::{Epoch, Tid};
pub use try_lock::TryLock;
pub use unwind::{abort_on_unwind, panic_text};
pub use waiting_list::WaitingList;
