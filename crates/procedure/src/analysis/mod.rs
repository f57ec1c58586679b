//! From a procedure to its plan, and from a set of plans to pieces.
//!
//! Invariant: pure, and conservative where it must guess. A plan may say that an operation reads a column
//! that it does not, never the other way round.
//!
//! ```text
//! resolve   names against the schema; refusals
//! rows      columns read, written, added to
//! flow      which results reach which operation: keys, values, control; where it can fail
//! symbols   keys as far as they are known before execution
//! references  what foreign keys add
//! plan      the five as one
//! chop      a set of plans: conflicts, deferral, pieces
//! commuting  sums to which a set only adds
//! deferrable sums with other uses, to which additions may be published later
//! steps      the pass of the steps between operations
//! repair     which runs of operations run again when others are stale
//! late       whether pieces could fail after the first: an independent check
//! fragments  a plan by partition
//! valid      whether a representation that is made at run time is one
//! availability  what a fragment can run without the results of others
//! ```

mod availability;
mod chop;
mod commuting;
mod deferrable;
mod flow;
mod fragments;
mod late;
mod plan;
mod references;
mod refusal;
mod repair;
mod resolve;
mod rows;
mod schema;
mod steps;
mod symbols;
mod valid;

pub use availability::{Availability, Exit, Needs};
pub use chop::{ChopError, chop};
pub use commuting::{Agreement, adds_once, agreements};
pub use deferrable::deferrable;
pub use flow::Flow;
pub use fragments::fragments;
pub use late::{LateFailure, late_failures};
pub use plan::{analyse, plan};
pub use refusal::{Refusal, Refusals};
pub use repair::Follow;
pub use schema::Schema;
pub use steps::Steps;
pub use valid::validate;
