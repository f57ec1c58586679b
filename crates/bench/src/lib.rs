//! Measurements below the workloads: commands of `seriatim bench` by the workloads' side.
//!
//! Those of [`commands`] have their arguments here and print what they find. The others are libraries that print
//! nothing: an index without transactions, what regions hold, how batches are reordered, the middle tier before a
//! PostgreSQL, and partitions with one owner each. Every run checks what it left.

mod busy;
mod churn;
pub mod commands;
mod disk;
mod dispatch;
mod durability;
mod embedded;
mod footprint;
pub mod index;
mod instructions;
mod measure;
pub mod middle_tier;
pub mod partitions;
mod prefetch;
mod procedures;
mod raw_index;
mod reader;
pub mod regions;
pub mod reorder;
mod report;
mod row;
mod rtm;
mod setting;
pub mod stationary;
