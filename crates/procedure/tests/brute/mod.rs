//! Random sets of procedures, a checker of their choppings, and runs of them.

mod deferrable;
pub(crate) mod oracle;
pub(crate) mod runs;
pub(crate) mod sets;
