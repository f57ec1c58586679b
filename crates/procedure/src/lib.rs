//! Procedures as data, and what can be derived from them.
//!
//! Invariant: pure. The same intermediate representation and schema give the same plan; what cannot be proved is refused, and
//! the refusal says why and where. Nothing here opens a database: the interpreter runs against a trait.

pub mod analysis;
mod datum;
pub mod ir;

pub mod show;

pub use datum::{Data, Datum, EvaluationError, IntegerType};
