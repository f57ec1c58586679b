//! Properties that *every* protocol must have, on every back end that works here.
//!
//! Invariant: nothing here names a protocol; the registry does. A test states a property and runs for each
//! [`Setting`] of [`matrix`]. Workload and auditor are different code. Histories go to `seriatim-history`,
//! small programs to a serial reference ([`model`]), the answers of [`clients`] to a [`checker`] from another
//! project. Calls of a workload are repeated in every other way to run a procedure ([`replay`]). The state
//! after power cuts and kills is compared with oracles outside the engine ([`power`], [`kills`]). Calls with
//! events between two steps are compared with calls without ([`amid`]).

pub mod amid;
pub mod audit;
pub mod balances;
pub mod checker;
pub mod clients;
pub mod epochs;
pub mod explore;
pub mod kills;
mod linked;
pub mod model;
pub mod power;
pub mod replay;
pub mod setting;
pub mod stress;
pub mod terminals;

pub use linked::Planted;
pub use setting::{Setting, given, matrix, matrix_of_steps, patience, rounds};

/// An error, where words are all that is wanted of it.
pub(crate) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
