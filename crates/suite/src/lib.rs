//! What must hold of *every* protocol, on every back end that works here.
//!
//! Invariant: nothing here names a protocol; the registry does. A test says what must hold and runs for each [`Setting`] of
//! [`matrix`]. Workload and auditor are different code: histories go to `seriatim-history`, small programs to a serial
//! reference ([`model`]), what [`clients`] see to a [`checker`] that others wrote, and what a workload calls is made
//! again in every other way to run a procedure ([`replay`]). What survives power cuts and kills is compared with
//! oracles outside the engine ([`power`], [`kills`]); what befalls a call between two steps, with one that nothing befalls ([`amid`]).

pub mod amid;
pub mod audit;
pub mod books;
pub mod checker;
pub mod clients;
pub mod epochs;
pub mod explore;
pub mod kills;
pub mod model;
pub mod power;
pub mod replay;
pub mod setting;
pub mod stress;
pub mod terminals;

pub use setting::{Setting, given, matrix, matrix_of_steps, matrix_of_threads, patience, rounds};

/// An error, where words are all that is wanted of it.
pub(crate) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
