//! Tests of the contract below the engine, which drive the protocols themselves.

mod columns;
#[path = "../../../protocol/src/common.rs"]
#[allow(dead_code, reason = "unit tests of protocols use the rest")]
mod common;
mod contract;
mod peek;
mod restore;
mod turns;
