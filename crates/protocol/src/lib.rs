//! Concurrency-control protocols: a folder and a registry line each.
//!
//! Invariant: protocol folders do not import each other; what several need is in `shared/`. Each folder's `README.md` gives
//! the source, the departures, the argument for serializability and what can wait.

pub mod dbx;
pub mod nowait;
mod registry;
mod shared;
pub mod silo;

pub use registry::PROTOCOLS;
