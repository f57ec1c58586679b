//! Measurements below the workloads that `seriatim bench` offers by its side: an index without transactions, and what regions hold.
//!
//! The others are commands of the program `seriatim-bench`. Nothing here prints, and every run checks what it left.

pub mod index;
pub mod regions;
