//! Lines of Rust by crate, code and tests apart, within the budgets of `xtask/lines.txt`.
//!
//! Invariant: no crate has more lines than its budget, and no budget is far above its crate. Raising a budget is a
//! line of a commit, whose message gives the reason. The code of a file ends with its last item that is no test.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::files::{Tree, crate_of};
use crate::sources::for_each_shipped;
use crate::tidy::Finding;

/// The budgets.
const TABLE: &str = "xtask/lines.txt";

/// A budget may be above its crate's lines by so many, so that not every commit changes it.
const SLACK: usize = 200;

/// Lines of a crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    tests: usize,
}

fn counted(tree: &Tree) -> BTreeMap<String, Lines> {
    let mut counted: BTreeMap<String, Lines> = BTreeMap::new();
    for (path, text) in tree.ending(".rs") {
        let Some(folder) = crate_of(path) else { continue };
        counted.entry(folder.to_owned()).or_default().tests += text.lines().count();
    }
    for_each_shipped(tree, |path, tokens| {
        let Some(lines) = crate_of(path).and_then(|folder| counted.get_mut(folder)) else { return };
        let code = tokens.last().map_or(0, |token| token.line);
        lines.code += code;
        lines.tests -= code;
    });
    counted
}

/// # Errors
/// The line that is none of a table.
fn parse(text: &str) -> Result<BTreeMap<String, Lines>, (usize, String)> {
    let mut budgets = BTreeMap::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let row = match line.split_whitespace().collect::<Vec<_>>()[..] {
            [name, code, tests] => {
                code.parse().ok().zip(tests.parse().ok()).map(|(code, tests)| (name, Lines { code, tests }))
            }
            _ => None,
        };
        let (name, lines) = row.ok_or((at + 1, "a row is a crate, its lines of code and its lines of tests".into()))?;
        budgets.insert(name.to_owned(), lines);
    }
    Ok(budgets)
}

fn written(budgets: &BTreeMap<String, Lines>) -> String {
    let mut text = "# Lines of Rust that each crate may have, code and tests. `cargo xtask lines` lowers them to what \
        there is; raising one\n# takes a reason in the commit message.\n"
        .to_owned();
    for (name, Lines { code, tests }) in budgets {
        let _ = writeln!(text, "{name:<20} {code:>6} {tests:>6}");
    }
    text
}

/// Crates that exceed their budgets, or have none; budgets far above what there is.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(TABLE) else { return vec![Finding::new(TABLE, 0, "missing")] };
    let budgets = match parse(text) {
        Ok(budgets) => budgets,
        Err((line, message)) => return vec![Finding::new(TABLE, line, message)],
    };
    let counted = counted(tree);
    let mut findings = Vec::new();
    let mut tell = |message: String| findings.push(Finding::new(TABLE, 0, message));
    for (name, lines) in &counted {
        let Some(budget) = budgets.get(name) else {
            tell(format!("{name} has no row: add `{name} {} {}`", lines.code, lines.tests));
            continue;
        };
        for (kind, lines, budget) in [("code", lines.code, budget.code), ("tests", lines.tests, budget.tests)] {
            if lines > budget {
                tell(format!(
                    "{name} has {lines} lines of {kind}, {} above its budget: make it smaller, or raise the budget \
                     and give the reason in the commit message",
                    lines - budget
                ));
            } else if budget - lines > SLACK {
                tell(format!("{name} has {lines} lines of {kind} and a budget of {budget}: run `cargo xtask lines`"));
            }
        }
    }
    for name in budgets.keys().filter(|name| !counted.contains_key(*name)) {
        tell(format!("{name} has a row and no Rust: delete the row"));
    }
    findings
}

/// `cargo xtask lines`: lowers each budget to what there is, and prints the lines of each crate.
///
/// # Errors
/// When the table cannot be read or written.
pub(crate) fn update(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let mut budgets =
        parse(tree.text(TABLE).unwrap_or_default()).map_err(|(line, message)| format!("{TABLE}:{line}: {message}"))?;
    let counted = counted(&tree);
    let mut all = Lines::default();
    for (name, lines) in &counted {
        let budget = budgets.entry(name.clone()).or_insert(*lines);
        *budget = Lines { code: budget.code.min(lines.code), tests: budget.tests.min(lines.tests) };
        all = Lines { code: all.code + lines.code, tests: all.tests + lines.tests };
    }
    std::fs::write(root.join(TABLE), written(&budgets)).map_err(|error| format!("{TABLE}: {error}"))?;
    println!("| crate | code | tests |\n|---|---|---|");
    for (name, Lines { code, tests }) in
        counted.iter().map(|(name, lines)| (name.as_str(), lines)).chain([("all", &all)])
    {
        println!("| {name} | {code} | {tests} |");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_one;

    /// Three lines of code and four of tests, with a module in a file of its own.
    const SOURCE: &str = "//! A.\n\nfn a() {}\n\n#[cfg(test)]\nmod tests;\n";

    fn checked(source: &str, table: &str) -> Vec<Finding> {
        check(&Tree::of(&[("crates/a/src/lib.rs", source), ("crates/a/src/tests.rs", "//! T.\n"), (TABLE, table)]))
    }

    #[test]
    fn tests_are_counted_apart_wherever_they_are() {
        assert_eq!(checked(SOURCE, "# Budgets.\na 3 4\n"), []);
        let inline = "fn a() {}\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn b() {}\n}\n";
        assert_eq!(checked(inline, "a 1 6\n"), []);
        let budgets = parse("a 3 4\nb 10 0\n").expect("a table");
        assert_eq!(parse(&written(&budgets)), Ok(budgets));
    }

    #[test]
    fn canary_a_crate_above_its_budget_is_found() {
        assert_one(&checked(SOURCE, "a 2 4\n"), &["a has 3 lines of code, 1 above"]);
        assert_one(&checked(SOURCE, "a 3 3\n"), &["a has 4 lines of tests, 1 above"]);
        assert_one(&checked(SOURCE, "a 300 4\n"), &["a budget of 300", "cargo xtask lines"]);
        assert_one(&checked(SOURCE, "\n"), &["a has no row"]);
        assert_one(&checked(SOURCE, "a 3 4\nb 1 1\n"), &["b has a row"]);
        assert_one(&checked(SOURCE, "a 3\n"), &["lines.txt:1", "a row is"]);
        assert_one(&check(&Tree::of(&[("crates/a/src/lib.rs", SOURCE)])), &["lines.txt", "missing"]);
    }
}
