//! Procedures, plans and choppings for people: text, Graphviz, and a drawing of our own.
//!
//! Invariant: the same chopping gives the same bytes. Nothing here decides anything.

mod dot;
mod graph;
mod notes;
mod repairs;
mod representation;
mod svg;
mod text;

pub use dot::dot;
pub use repairs::repairs;
pub use svg::svg;
pub use text::{procedure, text};
