//! Plans and choppings as text.

use crate::plan::{Chopping, Fragments, Plan};

/// A procedure's plan, its division by partition, and what is known of its keys before it runs.
pub fn procedure(plan: &Plan, fragments: &Fragments) -> String {
    format!("{plan}\n{fragments}\n{}", plan.footprint())
}

/// The pieces of each procedure in order, how they came to be, and the edges.
pub fn text(chopping: &Chopping) -> String {
    chopping.to_string()
}
