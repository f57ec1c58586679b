//! Procedures: registered, called, interpreted and run in every shape, under every protocol of the registry.
//!
//! [`bank`] is a procedure written by hand as the attribute macro would write it, with code for every shape.

mod bank;
mod calls;
mod common;
mod pieces;
mod shapes;
mod shop;
mod soundness;
mod total;
