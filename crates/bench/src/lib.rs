//! Measurements below the workloads that `seriatim bench` offers by its side: an index without transactions, what regions hold, how batches
//! are reordered, the middle tier before a PostgreSQL, and partitions with one owner each.
//!
//! The others are commands of the program `seriatim-bench`. Nothing here prints, and every run checks what it left.

pub mod index;
pub mod middle_tier;
pub mod partitions;
pub mod regions;
pub mod reorder;
