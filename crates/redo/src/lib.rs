//! The redo log, checkpoints and recovery. An acknowledged commit survives a crash.
//!
//! Invariant: this crate knows bytes, keys and TIDs, and no protocol. The durable point never moves back. Files are
//! reached only through the platform interface `seriatim_base::disk`, so a test can cut the power at any operation.
//! ```text
//! DIR/LOCK                                 held while a process has the database open
//! DIR/MANIFEST                             format, incarnations, newest checkpoint; replaced as a whole
//! DIR/checkpoint-<epoch>/part-<n>          rows with their TIDs, compressed
//! DIR/log-<incarnation>-<logger>-<n>       segments of batches; perhaps in directories of their own
//! ```
//! The path of a commit: a worker encodes its writes ([`entry`]). Between `begin` and `end` of its [`writer`]
//! it appends them to its own [`stream`]. A [`logger`] collects the streams of its workers, writes one
//! [`batch`] into its [`segment`], flushes it and advances the [`durable`] point.
//!
//! Recovery reads the [`manifest`] and the [`catalogue`], loads the [`checkpoint`] and [`replay`]s the rest of the log,
//! epoch by epoch. `FORMAT.md`, beside this crate's `Cargo.toml`, specifies every byte.

pub mod backup;
pub mod batch;
pub mod catalogue;
pub mod checkpoint;
#[cfg(all(test, not(loom)))]
mod decoders;
pub mod durable;
pub mod entry;
mod error;
#[cfg(any(test, feature = "canary"))]
mod fault;
mod log;
pub mod logger;
pub mod manifest;
mod narrow;
pub mod replay;
pub mod segment;
pub mod stream;
mod sync;
#[cfg(all(test, not(loom)))]
mod synthetic;
mod tables;
pub mod writer;

/// The format that this program writes: of manifests, segments and checkpoints alike.
pub const FORMAT: u32 = 4;

pub use durable::Durable;
pub use error::LogError;
#[cfg(any(test, feature = "canary"))]
pub use fault::LogFault;
pub use log::{Log, LogOptions, LogStart, LogStatistics, LogThreads};
pub use logger::Logger;
pub use tables::Tables;
pub use writer::Writer;
