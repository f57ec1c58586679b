//! Procedures: registered, called, interpreted and run in every mode, under every protocol of the registry.
//!
//! [`bank`] is a procedure written by hand as the attribute macro would write it, with code for every mode.

mod asked;
mod bank;
mod calls;
mod checks;
mod common;
mod execution_modes;
mod loops;
mod owners;
mod partitions;
mod pieces;
mod represented;
mod runs;
mod shop;
mod soundness;
mod total;
mod types;
mod worlds;
