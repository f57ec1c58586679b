//! Procedures on the untyped core: how they are run, and the interpreter.

pub mod gate;
mod interpret;
mod mutate;
pub mod shape;
pub mod watch;

pub use interpret::{Aborted, in_procedure};
pub use shape::Shape;
