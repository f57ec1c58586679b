//! A crate imports only crates below it.
//!
//! [`LAYERS`] is the only place that knows the order; `ARCHITECTURE.md` explains it. Normal and build
//! dependencies must point down. Dev-dependencies must too, except those stated, with their reason, in
//! [`UPWARD_FOR_TESTS`].

use crate::files::{Tree, crate_of};
use crate::tidy::Finding;

/// Every crate of the architecture, highest first; a crate may import those after it, on its own line too.
pub(crate) const LAYERS: &[(&str, &[&str])] = &[
    ("chores", &["xtask"]),
    ("apps", &["cli"]),
    ("tests and tooling", &["suite", "compare", "fuzz", "figures", "bench", "check", "simulate", "workload"]),
    ("services", &["server", "client", "participant", "middle-tier", "wire", "postgres"]),
    ("languages", &["sql", "scram"]),
    ("engine", &["seriatim", "engine"]),
    ("protocols for tests", &["test-protocols"]),
    ("placement", &["transport", "replica", "partition"]),
    ("procedures", &["procedure-macros", "procedure"]),
    ("transactions", &["baselines", "protocol", "batch", "txn"]),
    ("storage", &["store", "redo", "catalog", "macros"]),
    ("runtime", &["history", "memory", "htm", "base"]),
];

/// Crates that may import only these, although more lies below them: their invariant is an absence.
const ONLY: &[(&str, &[&str], &str)] = &[
    ("xtask", &["base"], "it must build when the rest does not"),
    ("history", &["base"], "the checker must not share the engine's mistakes"),
    ("batch", &["base"], "it orders transactions that it knows nothing of but what they read and wrote"),
    ("partition", &["base"], "owners and coordinators are carried by whoever has threads, clocks and networks"),
    ("transport", &["partition", "base"], "it carries messages of whatever partitions hold"),
    ("workload", &["seriatim"], "workloads use the public API only"),
    (
        "middle-tier",
        &["wire", "batch", "base"],
        "it stands before another database and has nothing of this one but the order",
    ),
    ("wire", &["base"], "the protocol is the same whoever speaks it"),
    ("postgres", &["base"], "it is another database, which needs nothing of this one"),
    ("figures", &[], "figures know commands of the program and what they print, and no engine"),
];

/// Dev-dependencies that point up: (crate, what it imports, why).
const UPWARD_FOR_TESTS: &[(&str, &str, &str)] = &[
    ("engine", "seriatim", "examples of types that the public crate shows are written as its users write them"),
    ("sql", "postgres", "statements are compared with what PostgreSQL answers"),
    ("seriatim", "check", "checks of users' procedures are tested by the procedures that test the public crate"),
    ("transport", "simulate", "who carries messages is tested in virtual time, where a run can be repeated"),
];

/// Folders of `crates/` and their dependencies against [`LAYERS`].
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending("Cargo.toml") {
        let Some(folder) = crate_of(path) else { continue };
        let Some(place) = place(folder) else {
            let message = format!("crate `{folder}` has no layer: add it to LAYERS in xtask/src/layers.rs");
            findings.push(Finding::new(path, 0, message));
            continue;
        };
        for dependency in dependencies(text) {
            findings.extend(judge(path, folder, place, &dependency));
        }
    }
    findings
}

/// Features of tests: faults, listeners, and sizes so small that rare paths are common.
const FOR_TESTS: [&str; 3] = ["canary", "small", "test-support"];

/// Crates that are nothing but tests.
const ALL_TESTS: [&str; 2] = ["crates/suite/Cargo.toml", "crates/fuzz/Cargo.toml"];

/// The end of the path of a manifest that compiles the tests of the crate in the folder above.
const UNIT: &str = "/unit/Cargo.toml";

/// Shipped code has no feature of tests. Crates ask for these among their dev-dependencies, and crates that only test
/// anywhere. The default build is the program alone, which does not depend on the suite.
pub(crate) fn features(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_shipped = |path: &str| !ALL_TESTS.contains(&path) && !path.ends_with(UNIT);
    for (path, text) in tree.ending("Cargo.toml").filter(|(path, _)| is_shipped(path)) {
        let mut section = "";
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.starts_with('[') {
                section = line;
            }
            let is_shipped = section.contains("dependencies") && !section.contains("dev-dependencies");
            let by_default = section == "[features]" && line.starts_with("default");
            let named = FOR_TESTS.iter().find(|feature| line.contains(&format!("\"{feature}\"")));
            if let Some(feature) = named.filter(|_| is_shipped || by_default) {
                let message =
                    format!("`{feature}` is for tests: what is shipped must not have it; use dev-dependencies");
                findings.push(Finding::new(path, i + 1, message));
            }
            if line.starts_with("default-members") && line != "default-members = [\"crates/cli\"]" {
                let message =
                    "what is built by default is crates/cli: the suite builds features of tests into what it links";
                findings.push(Finding::new(path, i + 1, message));
            }
        }
    }
    findings
}

fn place(folder: &str) -> Option<usize> {
    LAYERS.iter().flat_map(|(_, crates)| *crates).position(|known| *known == folder)
}

fn judge(path: &str, folder: &str, place_of_crate: usize, dependency: &Dependency<'_>) -> Option<Finding> {
    let target = dependency.folder;
    let finding = |message: String| Some(Finding::new(path, dependency.line, message));
    let Some(place_of_target) = place(target) else {
        return finding(format!("`{folder}` imports `{target}`, which is not in LAYERS in xtask/src/layers.rs"));
    };
    // A crate may have other manifests in its folder, such as that of its unit tests.
    if target == folder {
        return None;
    }
    if dependency.for_tests && UPWARD_FOR_TESTS.iter().any(|(from, to, _)| *from == folder && *to == target) {
        return None;
    }
    if let Some((_, allowed, why)) = ONLY.iter().find(|(from, ..)| *from == folder)
        && !allowed.contains(&target)
        && !dependency.for_tests
    {
        let allowed =
            if allowed.is_empty() { "no crate of ours".to_owned() } else { format!("only {}", allowed.join(", ")) };
        return finding(format!("`{folder}` may import {allowed}: {why}"));
    }
    if place_of_target <= place_of_crate {
        return finding(match dependency.for_tests {
            false => {
                format!("`{folder}` imports `{target}`, which is not below it: move the code, or the crate in LAYERS")
            }
            true => format!(
                "the tests of `{folder}` import `{target}`, which is not below it: move the test up, or state the \
                 reason in \
                 UPWARD_FOR_TESTS in xtask/src/layers.rs"
            ),
        });
    }
    None
}

/// A dependency on a crate of this workspace.
#[derive(Debug, PartialEq, Eq)]
struct Dependency<'a> {
    folder: &'a str,
    for_tests: bool,
    line: usize,
}

/// The workspace crates a manifest names, in the forms this repository uses: `name.workspace = true`, `name =
/// { … }` and `[dependencies.name]`, under any target; `package = "…"` renames.
fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut section: Option<bool> = None;
    for (i, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let mut name = None;
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            section = None;
            for (kind, for_tests) in
                [("dev-dependencies", true), ("build-dependencies", false), ("dependencies", false)]
            {
                let Some(at) = header.find(kind) else { continue };
                if at == 0 || header.as_bytes()[at - 1] == b'.' {
                    section = Some(for_tests);
                    name = header[at + kind.len()..].strip_prefix('.');
                    break;
                }
            }
        } else if section.is_some() {
            let key = line.split(['=', '.']).next().unwrap_or_default().trim();
            let renamed = line.split_once("package").and_then(|(_, after)| after.split('"').nth(1));
            name = Some(renamed.unwrap_or(key));
        }
        if let (Some(for_tests), Some(folder)) = (section, name.and_then(folder_of_package)) {
            found.push(Dependency { folder, for_tests, line: i + 1 });
        }
    }
    found
}

/// The folder of a package of this workspace; others are not ours to judge.
fn folder_of_package(package: &str) -> Option<&str> {
    let package = package.trim_matches(['"', ' ']);
    match package {
        "seriatim" | "xtask" => Some(package),
        _ => package.strip_prefix("seriatim-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_one;

    fn manifest(path: &str, text: &str) -> Vec<Finding> {
        check(&Tree::of(&[(path, text)]))
    }

    #[test]
    fn every_way_to_name_a_dependency_is_seen() {
        let text = "[package]\nname = \"seriatim-x\"\n[dependencies]\nseriatim-base.workspace = true\n\
                    seriatim-htm = { path = \"../htm\" }\nalias = { package = \"seriatim-store\", path = \"\" \
                    }\nlibc.workspace = true\n\
                    [target.'cfg(unix)'.dependencies]\nseriatim = { path = \"../seriatim\" } # all\n\
                    [dev-dependencies.seriatim-catalog]\nworkspace = true\n[lints]\nseriatim-no = 1\n";
        let found: Vec<_> = dependencies(text).iter().map(|found| (found.folder, found.for_tests)).collect();
        assert_eq!(found, [("base", false), ("htm", false), ("store", false), ("seriatim", false), ("catalog", true)]);
    }

    #[test]
    fn imports_that_point_down_pass() {
        assert_eq!(manifest("crates/store/Cargo.toml", "[dependencies]\nseriatim-catalog.workspace = true\n"), []);
        assert_eq!(manifest("crates/suite/Cargo.toml", "[dependencies]\nseriatim-workload.workspace = true\n"), []);
        assert_eq!(manifest("crates/catalog/Cargo.toml", "[dev-dependencies]\nseriatim-macros.workspace = true\n"), []);
    }

    #[test]
    fn canary_imports_that_point_up_are_found() {
        let found = manifest("crates/store/Cargo.toml", "[dependencies]\nseriatim-txn.workspace = true\n");
        assert_one(&found, &["crates/store/Cargo.toml:2", "`store` imports `txn`", "not below"]);
        let found = manifest("crates/htm/Cargo.toml", "[build-dependencies]\nseriatim-memory.workspace = true\n");
        assert_one(&found, &["`htm` imports `memory`"]);
        let found = manifest("crates/store/Cargo.toml", "[dev-dependencies]\nseriatim.workspace = true\n");
        assert_one(&found, &["tests of `store`", "UPWARD_FOR_TESTS"]);
    }

    #[test]
    fn canary_a_crate_without_a_layer_is_found() {
        assert_one(&manifest("crates/misc/Cargo.toml", ""), &["`misc` has no layer"]);
        assert_one(
            &manifest("crates/suite/Cargo.toml", "[dependencies]\nseriatim-misc.workspace = true\n"),
            &["`misc`", "not in LAYERS"],
        );
    }

    #[test]
    fn canary_a_crate_that_breaks_its_own_restriction_is_found() {
        let found = manifest("crates/history/Cargo.toml", "[dependencies]\nseriatim-htm.workspace = true\n");
        assert_one(&found, &["`history` may import only base", "mistakes"]);
        let found = manifest("crates/workload/Cargo.toml", "[dependencies]\nseriatim-store.workspace = true\n");
        assert_one(&found, &["`workload` may import only seriatim", "public API"]);
    }

    #[test]
    fn canary_features_of_tests_in_what_is_shipped_are_found() {
        let manifest = |path: &str, text: &str| features(&Tree::of(&[(path, text)]));
        let small = "seriatim-store = { workspace = true, features = [\"small\"] }\n";
        let shipped = format!("[dependencies]\n{small}");
        assert_one(&manifest("crates/bench/Cargo.toml", &shipped), &["bench/Cargo.toml:2", "`small` is for tests"]);
        let unit = format!("crates/store{UNIT}");
        ALL_TESTS.iter().chain([&&*unit]).for_each(|path| assert_eq!(manifest(path, &shipped), []));
        let table = "[dependencies.seriatim]\nfeatures = [\"test-support\"]\n";
        assert_one(&manifest("crates/cli/Cargo.toml", table), &["cli/Cargo.toml:2", "`test-support`"]);
        let tests = format!("[dependencies]\nseriatim-base.workspace = true\n[dev-dependencies]\n{small}");
        assert_eq!(manifest("crates/seriatim/Cargo.toml", &tests), []);
        let forwarded = "[features]\ncanary = [\"seriatim-txn/canary\"]\nsmall = []\n";
        assert_eq!(manifest("crates/protocol/Cargo.toml", forwarded), []);
        let default = "[features]\ndefault = [\"small\"]\n";
        assert_one(&manifest("crates/store/Cargo.toml", default), &["store/Cargo.toml:2", "`small`"]);
        let members = "[workspace]\ndefault-members = [\"crates/*\"]\n";
        assert_one(&manifest("Cargo.toml", members), &["Cargo.toml:2", "crates/cli"]);
    }

    #[test]
    fn every_crate_has_one_layer() {
        let all: Vec<_> = LAYERS.iter().flat_map(|(_, crates)| *crates).collect();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(all.len(), distinct.len());
    }
}
