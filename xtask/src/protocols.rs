//! A protocol is a folder with a README and a line in the registry, and does not import another protocol.

use std::collections::BTreeSet;

use crate::files::Tree;
use crate::rust;
use crate::tidy::Finding;

/// The crates of protocols.
const HOMES: [&str; 2] = ["crates/protocol/src", "crates/baselines/src"];
const REGISTRY: &str = "crates/engine/src/registry.rs";
/// The common code of protocols; not a protocol.
const SHARED: &str = "shared";
/// Where a path to a protocol may begin.
const ROOTS: [&str; 3] = ["crate", "super", "seriatim_protocol"];

/// The folders of the crates of protocols.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut folders: BTreeSet<(&str, &str)> = BTreeSet::new();
    for home in HOMES {
        let inner = tree.under(home).filter_map(|path| path.strip_prefix(home)?.strip_prefix('/')?.split_once('/'));
        folders.extend(inner.map(|(folder, _)| (home, folder)).filter(|(_, folder)| *folder != SHARED));
    }
    let registry = rust::tokens(tree.text(REGISTRY).unwrap_or_default());
    let registered: BTreeSet<&str> =
        registry.windows(2).filter(|pair| pair[1].text == "::").map(|pair| pair[0].text).collect();
    let mut findings = Vec::new();
    for &(home, folder) in &folders {
        let readme = format!("{home}/{folder}/README.md");
        if !tree.has(&readme) {
            findings.push(Finding::new(
                &readme,
                0,
                format!("missing: protocol `{folder}` needs its source, departures and argument"),
            ));
        }
        if !registered.contains(folder) {
            findings.push(Finding::new(REGISTRY, 0, format!("no line for the protocol in folder `{folder}`")));
        }
        let is_other = |name: &&str| *name != folder && folders.iter().any(|(_, other)| name == other);
        for (path, text) in tree.ending(".rs").filter(|(path, _)| path.starts_with(&format!("{home}/{folder}/"))) {
            for (import, line) in rust::paths(&rust::tokens(text), &ROOTS) {
                let target = import.iter().find(|name| !ROOTS.contains(name) && **name != "self");
                if import.len() > 1 && target.is_some_and(is_other) {
                    let message =
                        format!("`{}`: protocols do not import each other; move it to `{SHARED}/`", import.join("::"));
                    findings.push(Finding::new(path, line, message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_one;

    const LINES: &str = "//! Registry: dbx::Dbx in a comment does not count.\nall! { dbx => $crate::dbx::Dbx, silo => \
        $crate::silo::Silo, }\n";

    fn protocols<'a>(registry: &'a str, dbx: &'a str, readme: &'a str) -> Tree {
        Tree::of(&[
            (REGISTRY, registry),
            ("crates/protocol/src/dbx/mod.rs", dbx),
            (readme, "# DBX\n"),
            ("crates/protocol/src/silo/mod.rs", ""),
            ("crates/protocol/src/silo/README.md", ""),
            ("crates/protocol/src/shared/mod.rs", ""),
        ])
    }

    const README: &str = "crates/protocol/src/dbx/README.md";

    #[test]
    fn complete_protocols_pass() {
        assert_eq!(check(&protocols(LINES, "use crate::shared::a; use super::commit; use crate::dbx::b;", README)), []);
    }

    #[test]
    fn canary_a_missing_readme_is_found() {
        assert_one(&check(&protocols(LINES, "", "crates/protocol/src/dbx/NOTES.md")), &["dbx/README.md", "missing"]);
    }

    #[test]
    fn canary_a_missing_registry_line_is_found() {
        assert_one(&check(&protocols("//! dbx::Dbx\nsilo::Silo", "", README)), &["registry.rs", "`dbx`"]);
    }

    #[test]
    fn canary_an_import_of_another_protocol_is_found() {
        assert_one(
            &check(&protocols(LINES, "use crate::{shared, silo::commit};", README)),
            &["dbx/mod.rs:1", "silo::commit"],
        );
        assert_one(&check(&protocols(LINES, "use super::super::silo::commit;", README)), &["silo::commit"]);
        let baseline = |text| {
            Tree::of(&[
                (REGISTRY, "dbx::Dbx, occ::Occ"),
                ("crates/protocol/src/dbx/README.md", ""),
                ("crates/baselines/src/occ/mod.rs", text),
                ("crates/baselines/src/occ/README.md", ""),
            ])
        };
        assert_eq!(check(&baseline("use seriatim_protocol::shared::gc;")), []);
        assert_one(&check(&baseline("use seriatim_protocol::dbx::Dbx;")), &["occ/mod.rs:1", "dbx::Dbx"]);
    }
}
