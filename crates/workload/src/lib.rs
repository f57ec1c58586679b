//! Workloads against the public API, and TPC-C over plain arrays as the speed of light.
//!
//! Invariant: a workload sees a database only through the crate `seriatim`, and a runner sees a workload only through
//! [`Workload`]. So every workload runs under every protocol, and one runner drives them all. Inputs are plain data,
//! generated apart from the procedures that run on them. Nothing allocates per transaction.

pub mod articles;
pub mod contract;
pub mod five_five;
mod ledger;
mod missing;
mod mix;
pub mod multi_key;
pub mod parallel;
pub mod random;
pub mod registry;
pub mod report;
pub mod roofline;
pub mod smallbank;
pub mod tatp;
#[cfg(test)]
mod test_support;
pub mod tpcc;
pub mod twelve_key;
mod wrapping;
pub mod ycsb;

pub use contract::{
    Awaited, Carried, Ending, ExecutorClient, LoadError, Loading, Outcome, Started, Submitted, Terminal, Workload,
};
pub use missing::Missing;
pub use registry::{Entry, Knob, Misuse, Sizes, Values, WORKLOADS};
pub use report::{Report, Rule, Violation};
