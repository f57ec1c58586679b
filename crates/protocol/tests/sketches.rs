//! Engines that are not built yet, sketched against the contract: proof that it can hold them (decision record 1). Never
//! registered; none is fast, durable or complete.
//!
//! Each file implements the contract with the state its engine would keep, shows where each step of its paper happens, and
//! drives the control flow that the contract must allow. What a sketch needed beyond the contract is a trait in its file, named
//! there as an addition.

#[allow(dead_code, reason = "no test uses all of it")]
mod common;

#[macro_use]
#[path = "sketches/stand_in.rs"]
mod stand_in;

#[path = "sketches/batching.rs"]
mod batching;
#[path = "sketches/htcc.rs"]
mod htcc;
#[path = "sketches/speculation.rs"]
mod speculation;
