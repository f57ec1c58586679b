//! Procedures: transactions declared beforehand, as a set, from which plans are derived.
//!
//! A procedure is written once, as a function. The attribute macro lowers it to data ([`ir::Procedure`]) and to the code of each
//! way to run it ([`Declared`]); [`Database::register`](crate::Database::register) resolves and analyses the set;
//! [`Session::call`](crate::Session::call) runs one. What is analysed and what is run come from the same tokens.

pub(crate) mod call;
mod check;
mod declared;
pub(crate) mod gate;
mod interpret;
mod mutate;
pub(crate) mod registry;
mod schedule;
pub(crate) mod shape;
#[doc(hidden)]
pub mod support;
mod touch;
mod values;
pub(crate) mod watch;

pub use seriatim_plan as plan;
pub use seriatim_procedure::analysis::{ChopError, Refusal, Refusals};
pub use seriatim_procedure::{Data, Datum, EvaluationError, IntegerType, Pure, checked, ir, methods, show};

pub use seriatim_procedure_macros::{procedure, pure};

pub use declared::{Declared, Procedures};
pub use interpret::Aborted;
pub use registry::{RegisterError, Registration, Repieced};
pub use schedule::{Next, Schedule};
pub use shape::Shape;
pub use touch::{Access, Keys, Touch};
