//! Random sets of procedures, and a judge of their choppings.

pub(crate) mod judge;
pub(crate) mod sets;
