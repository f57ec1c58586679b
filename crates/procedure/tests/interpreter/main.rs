//! The interpreter: what procedures mean, shown on procedures built by hand; what no front end makes, which must not panic.

#[path = "../support/mod.rs"]
mod support;

mod arithmetic;
mod build;
mod meaning;
mod programs;
mod robust;
