//! Tests of the tree: what each file shows must hold is in its first line.
//!
//! `LEAF` and `FAN` are small in most of them, so that splits and unlinks are common.

mod beside;
mod between;
mod budget;
mod canaries;
mod fixture;
mod hammer;
mod leaf_hints;
mod model;
mod node_versions;
mod scans;
mod structure;
mod transactions;
