//! A program with nothing to refuse.
fn main() {}
