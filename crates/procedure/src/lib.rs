//! Procedures as data, and what can be derived from them.
//!
//! Invariant: pure. The same intermediate representation and schema give the same plan. What cannot be proved
//! is refused, and the refusal says why and where. Nothing here opens a database: the interpreter runs against
//! a trait.

pub mod analysis;
mod arithmetic;
pub mod checked;
mod compare;
mod data;
mod datum;
mod encoded;
pub mod evaluate;
pub mod interpret;
pub mod ir;
pub mod methods;
mod names;
pub mod pack;
pub mod plan;
mod pure;
pub mod show;
mod value;
pub mod visit;

pub use datum::{Data, Datum, EvaluationError, IntegerType};
pub use pack::Pack;
pub use pure::Pure;
