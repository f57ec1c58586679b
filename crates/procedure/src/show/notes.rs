//! The text below the drawing of a chopping.

use std::collections::BTreeSet;

use crate::plan::{Chopping, End};

use super::graph::in_short;

/// Lines of at most `width` characters, if their words allow.
pub(super) fn notes(chopping: &Chopping, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for chopped in &chopping.procedures {
        for piece in chopped.pieces.iter().filter(|piece| piece.operations.len() > 1) {
            let inside = |id: &usize| piece.operations.contains(id);
            let merges = chopped.merges.iter().filter(|merge| inside(&merge.left) && inside(&merge.right));
            let why: BTreeSet<&str> = merges.map(|merge| in_short(&merge.reason)).collect();
            let numbers: Vec<String> = piece.operations.iter().map(|id| format!("#{id}")).collect();
            let why = why.into_iter().collect::<Vec<_>>().join(", ");
            lines.push(format!("merged in {}: {} ({why})", chopped.procedure, numbers.join(" ")));
        }
    }
    let name = |end: &End| format!("{} #{}", chopping.procedures[end.procedure].procedure, end.operation);
    let snapshots = chopping.procedures.iter().filter(|chopped| chopped.snapshot);
    let all = [
        ("on snapshots", snapshots.map(|chopped| chopped.procedure.to_string()).collect::<Vec<_>>()),
        ("published later", chopping.deferrals.iter().map(|deferral| name(&deferral.publisher)).collect()),
        (
            "published later with defer=1",
            chopping.later.deferrals.iter().map(|deferral| name(&deferral.publisher)).collect(),
        ),
        ("claimed", chopping.claims.iter().map(|claim| name(&claim.operation)).collect()),
        ("static", chopping.statics.iter().map(ToString::to_string).collect()),
        ("only added to", chopping.sums.iter().map(ToString::to_string).collect()),
    ];
    let listed = all.into_iter().filter(|(_, names)| !names.is_empty());
    lines.extend(listed.map(|(what, names)| format!("{what}: {}", names.join(", "))));
    lines.iter().flat_map(|line| wrapped(line, width)).collect()
}

/// A line broken between words; what follows is indented.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let Some(last) = lines.last_mut() else { break };
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_are_broken_between_words_and_lose_none() {
        assert_eq!(wrapped("static: a, bb, ccc", 11), ["static: a,", "  bb, ccc"]);
        assert_eq!(wrapped("word", 2), ["word"], "a long word stays whole");
    }
}
