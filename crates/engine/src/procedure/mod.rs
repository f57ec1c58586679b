//! Procedures on the untyped core: execution, and the interpreter.

pub mod divided;
pub mod execution;
pub mod fragment;
pub mod gate;
mod interpret;
pub mod reach;
pub mod repair;
pub mod undo;
pub mod watch;

pub use execution::ExecutionMode;
pub use interpret::{Aborted, InterpretedTables, Reference, Stopped, in_procedure};
