//! The public API as a user expects it, under every protocol of the registry.
//!
//! One table type with everything in it ([`common::Person`]) is used for reading and writing, indexes, scans,
//! savepoints, failures and sessions. The last module compares random programs with a map of the standard library.

mod batching;
mod calls;
mod changes;
mod checks;
mod clusters;
mod common;
mod contention;
mod copies;
mod distinct;
mod doom;
mod dumps;
mod dynamic;
mod earlier;
mod evolution;
mod executor;
mod failures;
mod freshness;
mod indexes;
mod memory;
mod prefetch;
mod random;
mod references;
mod rows;
mod savepoints;
mod scans;
mod sequences;
mod sessions;
#[path = "../shared/settle.rs"]
mod settle;
mod transactions;
