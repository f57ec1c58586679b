//! Measurements below the workloads that `seriatim bench` offers by its side: an index without transactions, what regions hold, how batches
//! are reordered, and the middle tier before a PostgreSQL.
//!
//! The others are commands of the program `seriatim-bench`. Nothing here prints, and every run checks what it left.

pub mod index;
pub mod middle_tier;
pub mod regions;
pub mod reorder;
