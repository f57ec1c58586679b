//! What must hold of *every* protocol, on every back end that works here.
//!
//! Invariant: nothing here names a protocol; the registry does. A test says what must hold and runs for each [`Setting`] of
//! [`matrix`]. Workload and auditor are different code: histories go to `seriatim-history`, small programs to a serial
//! reference ([`model`]), and what [`clients`] see to a [`judge`] that others wrote.

pub mod audit;
pub mod clients;
pub mod epochs;
pub mod explore;
pub mod judge;
pub mod model;
pub mod setting;
pub mod stress;

pub use setting::{Setting, matrix, seed};
