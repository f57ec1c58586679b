//! Plans and choppings as text.

use std::fmt::Write;

use seriatim_plan::{Chopping, End, Fragments, Plan, Role};

/// A procedure's plan, its division by partition, and what is known of its keys before it runs.
pub fn procedure(plan: &Plan, fragments: &Fragments) -> String {
    format!("{plan}\n{fragments}\n{}", plan.footprint())
}

/// The pieces of each procedure in order, how they came to be, and the edges.
pub fn text(chopping: &Chopping) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(chopping, &mut out);
    out
}

fn write(chopping: &Chopping, out: &mut String) -> std::fmt::Result {
    writeln!(out, "chopped with {}", chopping.options)?;
    for chopped in &chopping.procedures {
        if chopped.snapshot {
            writeln!(out, "\n{}: read only, on a snapshot", chopped.procedure)?;
            continue;
        }
        let count = chopped.pieces.len();
        writeln!(out, "\n{}: {count} {}", chopped.procedure, if count == 1 { "piece" } else { "pieces" })?;
        for (place, piece) in chopped.pieces.iter().enumerate() {
            let role = match piece.role {
                Role::Buffered => "buffered",
                Role::Decisive => "decisive",
                Role::Visible => "visible",
                Role::Deferred => "deferred",
            };
            let labels: Vec<&str> = piece.operations.iter().map(|operation| &*chopped.labels[*operation]).collect();
            let conflicting = if piece.conflicting { ", conflicting" } else { "" };
            writeln!(out, "  {place} {role}{conflicting}: {}", labels.join(" | "))?;
        }
        for merge in &chopped.merges {
            writeln!(out, "  merged #{} and #{}: {}", merge.left, merge.right, merge.reason)?;
        }
    }
    let name = |end: &End| format!("{} #{}", chopping.procedures[end.procedure].procedure, end.operation);
    writeln!(out, "\nC-edges, between any two instances")?;
    for conflict in &chopping.conflicts {
        let grounds: Vec<String> = conflict.grounds.iter().map(ToString::to_string).collect();
        writeln!(out, "  {} – {}: {}", name(&conflict.left), name(&conflict.right), grounds.join("; "))?;
    }
    if !chopping.claims.is_empty() {
        writeln!(out, "\nclaims")?;
    }
    for claim in &chopping.claims {
        let against: Vec<String> = claim.against.iter().map(name).collect();
        let record = claim.record.as_ref().map(|record| format!(", recorded in {record}")).unwrap_or_default();
        let exists = if claim.exists { "; its row exists" } else { "" };
        writeln!(
            out,
            "  {} by #{} out of {}{record}: not against {}{exists}",
            name(&claim.operation),
            claim.by,
            claim.token,
            against.join(", ")
        )?;
    }
    if !chopping.deferrals.is_empty() || !chopping.refused.is_empty() {
        writeln!(out, "\npublish–subscribe")?;
    }
    for deferral in &chopping.deferrals {
        let subscribers: Vec<String> = deferral.subscribers.iter().map(name).collect();
        let grounds: Vec<String> = deferral.grounds.iter().map(ToString::to_string).collect();
        writeln!(out, "  {} to {}: {}", name(&deferral.publisher), subscribers.join(", "), grounds.join("; "))?;
    }
    for refused in &chopping.refused {
        writeln!(out, "  not {}: {}", name(&refused.publisher), refused.reason)?;
    }
    if !chopping.statics.is_empty() {
        let statics: Vec<&str> = chopping.statics.iter().map(|name| &**name).collect();
        writeln!(out, "\nstatic: {}", statics.join(", "))?;
    }
    if !chopping.obligations.is_empty() {
        writeln!(out, "\nthe engine sees to it that")?;
        for obligation in &chopping.obligations {
            writeln!(out, "  {obligation}")?;
        }
    }
    Ok(())
}
