//! The interpreter: what procedures mean, shown on procedures built by hand; what no front end makes, which must not panic.

mod arithmetic;
mod build;
mod meaning;
mod programs;
mod robust;
mod toy;
