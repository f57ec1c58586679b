//! The operations that repairs run again, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::analysis::Follow;
use crate::plan::Plan;

/// For each operation: what is run again with a stale run of it under a protocol that repairs, and why. For a
/// procedure that follows no schedule: that it is run again as a whole. `followers` is the result of
/// [`Steps::followers`](crate::analysis::Steps::followers).
pub fn repairs(plan: &Plan, followers: &[Vec<(usize, Follow)>], follows_schedule: bool) -> String {
    if !follows_schedule {
        return "repairs: none, it is run again as a whole, as an update gives a reference to a variable of it\n"
            .to_owned();
    }
    let mut text = "repairs: what is made again with a stale run of an operation\n".to_owned();
    for (first, followers) in followers.iter().enumerate() {
        let operation = &plan.operations[first];
        let mut by: BTreeMap<(Follow, &str), Vec<String>> = BTreeMap::new();
        for &(then, follow) in followers.iter().filter(|(then, _)| *then != first) {
            let is_all = |(other, follow): &(usize, Follow)| *other == then && *follow == Follow::All;
            if follow != Follow::All && followers.iter().any(is_all) {
                continue;
            }
            let by_result = plan.operations[then].from().contains(&first);
            let why = match follow {
                Follow::Touching => "",
                _ if by_result => ", by its result",
                _ => ", in the same table",
            };
            let others = by.entry((follow, why)).or_default();
            let name = format!("#{then}");
            if !others.contains(&name) {
                others.push(name);
            }
        }
        let itself = followers.iter().filter(|(then, _)| *then == first).map(|(_, follow)| *follow).max();
        let own = match (itself, operation.loops.is_empty()) {
            (_, true) if by.is_empty() => " alone",
            (_, true) => "",
            (Some(Follow::All), _) => ", all iterations",
            (Some(Follow::Touching), _) => ", this iteration and those at the same row",
            (_, false) => ", this iteration",
        };
        let _ = write!(text, "  #{first}{own}");
        for ((follow, why), others) in by {
            let others = others.join(" ");
            let _ = match follow {
                Follow::Touching => write!(text, "; {others} where they touched the same row"),
                Follow::Iteration => write!(text, "; {others} of the same iteration{why}"),
                Follow::All => write!(text, "; all of {others}{why}"),
            };
        }
        text.push('\n');
    }
    text
}
