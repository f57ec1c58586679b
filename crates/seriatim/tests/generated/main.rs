//! Tests of the code that `#[procedure]` generates: it does what its source says, on real tables.

mod flips;
mod fragments;
mod orders;
mod passes;
mod repairs;
mod represented;
mod run;
mod transfer;
