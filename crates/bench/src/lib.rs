//! Measurements below the workloads, as commands of `seriatim bench`.
//!
//! Those of [`commands`] have their own arguments and print their results. The others are libraries that print nothing.
//! They measure an index without transactions, the limits of regions, reordering of batches, the middle tier with
//! PostgreSQL, and partitions with one owner each. Every run checks its final state.

mod busy;
mod churn;
pub mod commands;
mod connection;
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
mod server;
mod setting;
pub mod stationary;
