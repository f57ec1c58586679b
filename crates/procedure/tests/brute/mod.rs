//! Random sets of procedures, a judge of their choppings, and runs of them.

pub(crate) mod judge;
pub(crate) mod runs;
pub(crate) mod sets;
