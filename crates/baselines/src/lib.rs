//! The protocols that those of `seriatim-protocol` are compared with: a folder each.
//!
//! Invariant: protocol folders do not import each other; shared code is in `shared/` of `seriatim-protocol`. Each
//! folder's `README.md` gives the source, the departures, the argument for serializability and what can wait. They are
//! a crate of their own so that two processors compile protocols side by side.

pub mod cicada;
pub mod hto;
pub mod naive;
pub mod nowait;
pub mod occ;
pub mod tictoc;
pub mod wait_die;

use seriatim_protocol::{shared, step};

#[cfg(test)]
#[path = "../../protocol/src/common.rs"]
#[allow(dead_code, reason = "no test uses all of it")]
mod common;
#[cfg(all(test, loom))]
mod loom_model;
#[cfg(all(test, not(loom)))]
mod stage;
