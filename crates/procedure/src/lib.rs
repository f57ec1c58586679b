//! Procedures as data, and what can be derived from them.
//!
//! Invariant: pure. The same intermediate representation and schema give the same plan. Procedures that cannot be
//! proved are refused, and the refusal says why and where. Nothing here opens a database: the interpreter runs against
//! a trait.

pub mod analysis;
mod arithmetic;
pub mod checked;
mod column;
mod compare;
mod data;
mod encoded;
pub mod evaluate;
pub mod footprint;
pub mod interpret;
pub mod ir;
pub mod methods;
mod names;
pub mod pack;
pub mod plan;
mod pure;
mod scalar;
pub mod show;
mod types;
pub mod visit;

pub use column::check_column;
pub use data::{Data, EvaluationError, field};
pub use pack::Pack;
pub use pure::Pure;
pub use scalar::Scalar;
pub use seriatim_catalog::{IntegerType, Value};
pub use types::DataType;
