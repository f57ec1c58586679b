//! Random sets of procedures, a checker of their choppings, and runs of them.

pub(crate) mod oracle;
pub(crate) mod runs;
pub(crate) mod sets;
