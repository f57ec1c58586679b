//! Plans and choppings as text.

use crate::plan::{Chopping, Fragments, Plan};

/// A procedure's plan, its division by partition, and its keys as far as they are known before it runs.
pub fn procedure(plan: &Plan, fragments: &Fragments) -> String {
    format!("{plan}\n{fragments}\n{}", plan.footprint())
}

/// The pieces of each procedure in order, the merges that made them, and the edges.
pub fn text(chopping: &Chopping) -> String {
    chopping.to_string()
}
