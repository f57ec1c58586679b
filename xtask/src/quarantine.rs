//! Tests that failed without a cause found: `xtask/quarantine.txt` names each with the date.
//!
//! Invariant: at most [`ROWS_MAX`] tests are quarantined, each for at most [`DAYS_MAX`] days, and none that judges
//! serializability or durability. A quarantined test runs in the nightly run only.

use std::collections::BTreeSet;

use seriatim_base::clock;

use crate::files::Tree;
use crate::runs::date;
use crate::tidy::Finding;
use crate::tiers::{self, Test};

/// The list.
const TABLE: &str = "xtask/quarantine.txt";

/// The attribute of a quarantined test.
const MARK: &str = "#[ignore = \"quarantined\"]";

const ROWS_MAX: usize = 5;
const DAYS_MAX: i64 = 14;

/// Places of tests that judge serializability or durability.
const NEVER: &[&str] = &[
    "crates/base/",
    "crates/baselines/",
    "crates/batch/",
    "crates/check/",
    "crates/cli/",
    "crates/engine/",
    "crates/history/",
    "crates/htm/",
    "crates/memory/",
    "crates/middle-tier/",
    "crates/participant/",
    "crates/partition/",
    "crates/procedure/tests/",
    "crates/protocol/",
    "crates/redo/",
    "crates/seriatim/tests/",
    "crates/store/",
    "crates/suite/",
    "crates/test-protocols/",
    "crates/transport/",
    "crates/txn/",
    "crates/workload/",
];

/// The list agrees with the sources and keeps to its bounds today.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    at(tree, clock::unix_microseconds())
}

fn at(tree: &Tree, now: i64) -> Vec<Finding> {
    let lately: BTreeSet<String> = (0..=DAYS_MAX).map(|days| date(now - days * 86_400_000_000)).collect();
    let marked = tiers::found(tree).into_iter().filter(|(_, test)| test.is_quarantined);
    let mut marked: BTreeSet<Test> = marked.map(|(test, _)| test).collect();
    let (mut findings, mut rows) = (Vec::new(), 0);
    let text = tree.text(TABLE).unwrap_or_default();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        rows += 1;
        let mut tell = |message: String| findings.push(Finding::new(TABLE, at + 1, message));
        let [day, path, test, _seen] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else {
            tell("a row is the date, the file, the test and what was seen".to_owned());
            continue;
        };
        if !lately.contains(day) {
            tell(format!("`{test}`: {day} is not within {DAYS_MAX} days: find the cause, or delete the test"));
        }
        if NEVER.iter().any(|place| path.starts_with(place)) {
            tell(format!("`{test}` judges serializability or durability and is never quarantined"));
        }
        if !marked.remove(&(path.to_owned(), test.to_owned())) {
            tell(format!("{path} has no test `{test}` with {MARK}"));
        }
    }
    if rows > ROWS_MAX {
        findings.push(Finding::new(TABLE, 0, format!("{rows} tests are quarantined, more than {ROWS_MAX}")));
    }
    let without_row =
        marked.iter().map(|(path, test)| Finding::new(path, 0, format!("`{test}` has no row in {TABLE}")));
    findings.extend(without_row);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_one;

    /// 2026-11-28.
    const NOW: i64 = 1_795_824_000_000_000;

    fn checked(place: &str, rows: &str) -> Vec<Finding> {
        let source = format!("//! A.\n#[test]\n{MARK}\nfn one() {{}}\n");
        at(&Tree::of(&[(place, &source), (TABLE, rows)]), NOW)
    }

    #[test]
    fn a_quarantined_test_has_a_row_for_two_weeks() {
        let place = "crates/figures/src/a.rs";
        assert_eq!(checked(place, "2026-11-28 crates/figures/src/a.rs one It waited for ever.\n"), []);
        assert_eq!(checked(place, "# Rows.\n2026-11-14 crates/figures/src/a.rs one It waited for ever.\n"), []);
        assert_one(&checked(place, "2026-11-13 crates/figures/src/a.rs one It waited.\n"), &["`one`", "14 days"]);
        assert_one(&checked(place, "2026-11-29 crates/figures/src/a.rs one It waited.\n"), &["`one`", "14 days"]);
        assert_one(&checked(place, ""), &["`one` has no row"]);
        assert_one(
            &checked(place, "2026-11-28 crates/figures/src/a.rs one It.\n2026-11-28 crates/figures/src/a.rs two It.\n"),
            &["quarantine.txt:2", "no test `two`"],
        );
    }

    #[test]
    fn canary_tests_of_durability_and_a_sixth_test_are_refused() {
        for folder in ["redo/src", "transport/src", "base/src/disk", "cli/tests", "middle-tier/tests"] {
            let place = format!("crates/{folder}/a.rs");
            assert_one(&checked(&place, &format!("2026-11-28 {place} one It.\n")), &["never quarantined"]);
        }
        let rows = "2026-11-28 crates/figures/src/a.rs one It waited.\n".repeat(6);
        let findings = checked("crates/figures/src/a.rs", &rows);
        assert!(findings.iter().any(|finding| finding.to_string().contains("6 tests")), "{findings:?}");
    }
}
