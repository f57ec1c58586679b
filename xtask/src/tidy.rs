//! Runs every rule and reports what breaks one.

use std::path::Path;

use crate::files::Tree;
use crate::{contributing, documents, layers, lines, mutants, protocols, quarantine, sources, tiers};

/// Where a rule is broken, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    /// A finding about a line; line 0 is the file as a whole.
    pub(crate) fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// A rule: everything in the tree that breaks it.
type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[Rule] = &[
    layers::check,
    layers::features,
    lines::check,
    protocols::check,
    sources::opening,
    sources::columns,
    sources::platform_interfaces,
    sources::files,
    sources::examples,
    sources::models,
    sources::unfinished,
    sources::silence,
    documents::whitespace,
    documents::columns,
    documents::sentences,
    documents::architecture,
    documents::links,
    documents::decisions,
    documents::changelog,
    documents::machine_paths,
    documents::codes,
    contributing::check,
    mutants::list::check,
    quarantine::check,
    tiers::check,
    tiers::settings,
];

/// Checks the repository at `root`.
///
/// # Errors
/// When a rule is broken, after every finding went to standard error.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => Err("tidy: 1 finding".to_owned()),
        n => Err(format!("tidy: {n} findings")),
    }
}

/// For the tests of rules: exactly one finding, and it says what it should.
#[cfg(test)]
pub(crate) fn assert_one(findings: &[Finding], words: &[&str]) {
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let text = findings[0].to_string();
    for word in words {
        assert!(text.contains(word), "`{text}` does not say `{word}`");
    }
}
