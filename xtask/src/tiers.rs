//! Which tests run when: `xtask/tests.txt` lists every test of the repository with its tier.
//!
//! Invariant: the table and the sources agree, and no row of the table is ever lost. A test that is deleted
//! keeps its row, with the tier `gone` and what covers it now. One that is renamed says what it was. Earlier commits
//! tell which rows there were. So a change of tier, or a test that is no longer run, is a line of a commit that is
//! reviewed.
//!
//! The tier of a test follows from the sources:
//!
//! - `fast`: `cargo test --workspace` runs it, and so does `.ci/run`.
//! - `nightly`: `cargo xtask nightly` runs it. Its `#[ignore]` says so, it is [quarantined](crate::quarantine), or its
//!   whole test program is left out of `cargo test` by `test = false` in the manifest.
//! - `loom`: a model that loom checks, in `cargo xtask nightly`.
//! - `child`: another test runs it, in a process of its own.
//! - `manual`: a measurement, run by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use crate::files::Tree;
use crate::tidy::Finding;

/// The table.
const TABLE: &str = "xtask/tests.txt";

/// Before the names that a test had, behind its tier.
const WAS: &str = " was: ";

/// Where a test is, and its name. Tests of one name in one file are numbered: `name`, `name#2`.
pub(crate) type Test = (String, String);

/// Test programs and libraries that `cargo test` leaves out, as prefixes of paths. A manifest may leave out what
/// another one has by its path.
fn left_out(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let mut by_path = Vec::new();
    for (path, manifest) in tree.ending("/Cargo.toml") {
        let folder = path.trim_end_matches("Cargo.toml");
        let paths = manifest.lines().filter_map(|line| line.strip_prefix("path = \"../")?.strip_suffix('"'));
        let above = folder.trim_end_matches('/').rsplit_once('/').map_or("", |(above, _)| above);
        by_path.extend(paths.map(|path| format!("{above}/{path}")));
        for section in manifest.split("\n[").filter(|section| section.lines().any(|line| line.trim() == "test = false"))
        {
            let section = section.trim_start_matches('[');
            if section.starts_with("lib]") {
                found.push(format!("{folder}src/"));
            } else if section.starts_with("test]]") {
                let name = section.lines().find_map(|line| line.trim().strip_prefix("name = ")).unwrap_or_default();
                let name = name.trim_matches('"');
                found.extend([format!("{folder}tests/{name}.rs"), format!("{folder}tests/{name}/")]);
            }
        }
    }
    let is_elsewhere = |prefix: &String| {
        let stem = prefix.trim_end_matches('/').trim_end_matches(".rs");
        by_path.iter().any(|path| path.strip_suffix(".rs") == Some(stem) || *path == format!("{prefix}lib.rs"))
    };
    found.retain(|prefix| !is_elsewhere(prefix));
    found
}

/// A test of the sources.
pub(crate) struct Found {
    tier: &'static str,
    line: usize,
    is_ignored: bool,
    pub(crate) is_quarantined: bool,
}

/// Every test of the sources.
pub(crate) fn found(tree: &Tree) -> BTreeMap<Test, Found> {
    let left_out = left_out(tree);
    let mut tests = BTreeMap::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| !path.starts_with("fuzz/")) {
        let is_model = path.contains("loom") || text.lines().any(|line| line == "#![cfg(all(test, loom))]");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let mut module_of_models = false;
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, line) in lines.iter().enumerate() {
            // A model's module is the last of its file, or the file.
            module_of_models |= line.starts_with("mod loom") && line.ends_with('{');
            if *line != "#[test]" {
                continue;
            }
            let attributes = lines[at + 1..].iter().take_while(|line| !line.contains("fn ")).copied();
            let ignored = attributes.filter_map(|line| line.strip_prefix("#[ignore")).next();
            let Some(signature) = lines[at + 1..].iter().find(|line| line.contains("fn ")) else { continue };
            let name = signature.split("fn ").nth(1).unwrap_or_default();
            let name = &name[..name.find(|c: char| c != '_' && c != '$' && !c.is_alphanumeric()).unwrap_or(name.len())];
            let tier = match ignored {
                _ if is_model || module_of_models => "loom",
                None if left_out.iter().any(|prefix| path.starts_with(prefix.as_str())) => "nightly",
                None => "fast",
                Some(reason) if [" = \"nightly", " = \"quarantined"].iter().any(|mark| reason.starts_with(mark)) => {
                    "nightly"
                }
                Some(reason) if reason.contains("process of its own") => "child",
                Some(_) => "manual",
            };
            let is_ignored = ignored.is_some();
            let is_quarantined = ignored.is_some_and(|reason| reason.starts_with(" = \"quarantined"));
            let number = numbers.entry(name).or_default();
            *number += 1;
            let name = if *number == 1 { name.to_owned() } else { format!("{name}#{number}") };
            tests.insert((path.to_owned(), name), Found { tier, line: at + 1, is_ignored, is_quarantined });
        }
    }
    tests
}

/// The names of the test programs that `cargo test` leaves out.
pub(crate) fn programs_left_out(tree: &Tree) -> Vec<String> {
    let left_out = left_out(tree);
    let programs = left_out.iter().filter_map(|path| path.rsplit('/').next()?.strip_suffix(".rs"));
    programs.map(str::to_owned).collect()
}

/// The packages of which `cargo test` leaves out the library's tests.
pub(crate) fn libraries_left_out(tree: &Tree) -> Vec<String> {
    let name = |path: &str| {
        let manifest = tree.text(&format!("{}Cargo.toml", path.strip_suffix("src/")?))?;
        manifest.lines().find_map(|line| Some(line.strip_prefix("name = \"")?.strip_suffix('"')?.to_owned()))
    };
    let found = found(tree);
    let has_tests = |path: &&String| found.keys().any(|(file, _)| file.starts_with(path.as_str()));
    left_out(tree).iter().filter(has_tests).filter_map(|path| name(path)).collect()
}

/// The names of the nightly tests that `cargo test` ignores.
pub(crate) fn ignored_by_day(tree: &Tree) -> Vec<String> {
    names(tree, |test| test.tier == "nightly" && test.is_ignored)
}

/// The names of the tests that another test or a person runs.
pub(crate) fn by_hand(tree: &Tree) -> Vec<String> {
    names(tree, |test| matches!(test.tier, "child" | "manual"))
}

fn names(tree: &Tree, is_chosen: impl Fn(&Found) -> bool) -> Vec<String> {
    let found = found(tree);
    let chosen = found.iter().filter(|(_, test)| is_chosen(test));
    let names: BTreeSet<&str> = chosen.filter_map(|((_, name), _)| name.split('#').next()).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// What the table says of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    /// Of a test that is gone `gone: ` and the reason.
    tier: String,
    /// Names that it had.
    was: Vec<String>,
}

/// The rows as they are written.
type Table = BTreeMap<Test, Row>;

/// # Errors
/// The line that is none of a table.
fn parse(text: &str) -> Result<Table, (usize, String)> {
    let mut table = Table::default();
    let mut file = None;
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let wrong = |message: &str| (at + 1, message.to_owned());
        if line.starts_with("rows ") {
            return Err(wrong("rows are not counted any more: delete this line"));
        } else if let Some(row) = line.strip_prefix("  ") {
            let path: &String = file.as_ref().ok_or_else(|| wrong("a test without a file above it"))?;
            let (name, tier) = row.split_once(' ').ok_or_else(|| wrong("a test's name and its tier"))?;
            let (tier, was) = tier.split_once(WAS).unwrap_or((tier, ""));
            let is_tier = ["fast", "nightly", "loom", "child", "manual"].contains(&tier) || tier.starts_with("gone: ");
            if !is_tier {
                return Err(wrong("a tier is fast, nightly, loom, child, manual, or `gone: ` and what covers it now"));
            }
            let was = was.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
            table.insert((path.clone(), name.to_owned()), Row { tier: tier.to_owned(), was });
        } else {
            file = Some(line.to_owned());
        }
    }
    Ok(table)
}

fn written(table: &Table) -> String {
    let mut text = "# Every test with its tier; see xtask/src/tiers.rs. `cargo xtask tests` brings it up to date. \
        Rows are never removed:\n\
                    # of a test that is deleted the tier is `gone: ` and what covers it now; of one that is renamed \
                    the row is renamed by hand,\n\
                    # with ` was: ` and the old name behind its tier.\n"
        .to_owned();
    let mut file = "";
    for ((path, name), Row { tier, was }) in table {
        if path != file {
            let _ = writeln!(text, "\n{path}");
            file = path;
        }
        let was = if was.is_empty() { String::new() } else { format!("{WAS}{}", was.join(", ")) };
        let _ = writeln!(text, "  {name} {tier}{was}");
    }
    text
}

/// The table agrees with the sources, and has all the rows that it ever had.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(TABLE) else { return vec![Finding::new(TABLE, 0, "missing")] };
    let table = match parse(text) {
        Ok(table) => table,
        Err((line, message)) => return vec![Finding::new(TABLE, line, message)],
    };
    let found = found(tree);
    let mut findings = Vec::new();
    for ((path, name), Found { tier, line, .. }) in &found {
        match table.get(&(path.clone(), name.clone())) {
            None => {
                findings.push(Finding::new(path, *line, format!("`{name}` is not in {TABLE}: run `cargo xtask tests`")))
            }
            Some(listed) if listed.tier != *tier => {
                let message = format!("`{name}` is {tier} here and {} in {TABLE}: which one is meant?", listed.tier);
                findings.push(Finding::new(path, *line, message));
            }
            Some(_) => {}
        }
    }
    let lost = table.iter().filter(|(test, row)| !row.tier.starts_with("gone: ") && !found.contains_key(*test));
    for ((path, name), _) in lost {
        let message =
            format!("`{name}` of {path} is gone: run `cargo xtask tests`, or write `gone: ` and what covers it now");
        findings.push(Finding::new(TABLE, 0, message));
    }
    for name in removed(&table, tree.earlier(TABLE).iter().filter_map(|text| parse(text).ok())) {
        let message = format!("`{name}` had a row: give it back as `gone: …`, or say `was: {name}` where it is now");
        findings.push(Finding::new(TABLE, 0, message));
    }
    findings
}

/// Names that more rows had in an earlier table than have them now, or had them. A test that was moved keeps its name.
fn removed(table: &Table, earlier: impl Iterator<Item = Table>) -> BTreeSet<String> {
    let count = |table: &Table, has_old: bool| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for ((_, name), row) in table {
            let old = row.was.iter().filter(|_| has_old).map(String::as_str);
            for name in old.chain(name.split('#').next()) {
                *counts.entry(name.to_owned()).or_default() += 1;
            }
        }
        counts
    };
    let now = count(table, true);
    let is_removed = |(name, rows): &(String, usize)| now.get(name).is_none_or(|now| now < rows);
    earlier.flat_map(|table| count(&table, false)).filter(is_removed).map(|(name, _)| name).collect()
}

/// The settings of the suite, each with its tier. A test of the suite says whether they are all there, and is left out
/// where a few protocols are chosen.
const SETTINGS: &str = "crates/suite/settings.txt";

/// Each setting has one row. One that earlier commits have has it too, or a comment says why it is gone.
pub(crate) fn settings(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(SETTINGS) else { return vec![Finding::new(SETTINGS, 0, "missing")] };
    let (mut findings, mut names) = (Vec::new(), BTreeSet::new());
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#')) {
        match setting(line) {
            None => findings.push(Finding::new(SETTINGS, number, "a row is `fast` or `nightly`, and a setting")),
            Some(name) if !names.insert(name) => {
                findings.push(Finding::new(SETTINGS, number, format!("`{name}` has another row")));
            }
            Some(_) => {}
        }
    }
    names.extend(text.lines().filter_map(|line| Some(line.strip_prefix("# gone: ")?.split_once(": ")?.0)));
    let earlier = tree.earlier(SETTINGS);
    let before: BTreeSet<&str> = earlier.iter().flat_map(|text| text.lines()).filter_map(setting).collect();
    findings.extend(before.difference(&names).map(|name| {
        let message = format!("`{name}` had a row: give it back, or say `# gone: {name}: ` and why");
        Finding::new(SETTINGS, 0, message)
    }));
    findings
}

/// The setting of a row.
fn setting(row: &str) -> Option<&str> {
    let (tier, name) = row.split_once(' ')?;
    let name = name.trim();
    (matches!(tier, "fast" | "nightly") && name.contains(" on ")).then_some(name)
}

/// `cargo xtask tests`: enters new tests and new tiers, and follows tests that were moved to another file.
///
/// # Errors
/// When the table cannot be read or written; or a test is gone, and its row wants to say what covers it now.
pub(crate) fn update(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let mut table = match tree.text(TABLE) {
        Some(text) => parse(text).map_err(|(line, message)| format!("{TABLE}:{line}: {message}"))?,
        None => Table::default(),
    };
    let gone = renew(&mut table, &found(&tree));
    std::fs::write(root.join(TABLE), written(&table)).map_err(|error| format!("{TABLE}: {error}"))?;
    if gone.is_empty() {
        return Ok(());
    }
    Err(format!(
        "tests that are gone; write `gone: ` and what covers each now, or rename its row:\n{}",
        gone.join("\n")
    ))
}

/// Brings the table up to date; the tests that are gone without a reason, whose rows stay.
fn renew(table: &mut Table, found: &BTreeMap<Test, Found>) -> Vec<String> {
    let missing: Vec<Test> = table.keys().filter(|test| !found.contains_key(*test)).cloned().collect();
    let missing: Vec<Test> = missing.into_iter().filter(|test| !table[test].tier.starts_with("gone: ")).collect();
    let mut new: BTreeSet<&Test> = found.keys().filter(|test| !table.contains_key(*test)).collect();
    let mut gone = Vec::new();
    for test in missing {
        let moved: Vec<&Test> = new.iter().filter(|(_, name)| *name == test.1).copied().collect();
        match moved[..] {
            [to] => {
                let row = table.remove(&test).unwrap_or_default();
                new.remove(to);
                table.insert(to.clone(), row);
            }
            _ => gone.push(format!("{}  {}", test.0, test.1)),
        }
    }
    for (test, Found { tier, .. }) in found {
        table.entry(test.clone()).or_default().tier = (*tier).to_owned();
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::{git, tests::Repository};
    use crate::tidy::assert_one;

    const SOURCE: &str = "//! A.\n#[test]\nfn one() {}\n#[test]\n#[ignore = \"nightly: an hour\"]\nfn two() {}\n";
    const LISTED: &str = "crates/a/src/lib.rs\n  one fast\n  two nightly\n";

    fn checked(source: &str, table: &str) -> Vec<Finding> {
        check(&Tree::of(&[("crates/a/src/lib.rs", source), (TABLE, table)]))
    }

    #[test]
    fn a_table_that_agrees_with_the_sources_is_in_order() {
        assert_eq!(checked(SOURCE, LISTED), []);
        let table = parse(LISTED).expect("a table");
        assert_eq!(parse(&written(&table)), Ok(table));
    }

    #[test]
    fn canary_a_test_that_changes_its_tier_is_new_or_gone_is_seen() {
        assert_one(
            &checked(&SOURCE.replace("#[ignore = \"nightly: an hour\"]\n", ""), LISTED),
            &["`two`", "fast here"],
        );
        assert_one(&checked(&format!("{SOURCE}#[test]\nfn three() {{}}\n"), LISTED), &["`three` is not in"]);
        let one = "//! A.\n#[test]\nfn one() {}\n";
        assert_one(&checked(one, LISTED), &["`two`", "is gone"]);
        assert_eq!(checked(one, &LISTED.replace("two nightly", "two gone: one has it")), []);
        assert_one(&checked(one, "  two fast\n"), &["without a file"]);
        assert_one(&checked(one, "rows 7\n"), &["tests.txt:1", "delete this line"]);
        assert_one(&check(&Tree::of(&[("crates/a/src/lib.rs", one)])), &["tests.txt", "missing"]);
        assert_one(&checked(SOURCE, &LISTED.replace("one fast", "one often")), &["a tier is"]);
    }

    #[test]
    fn canary_a_row_that_earlier_commits_have_is_missed() {
        let Some(repository) = Repository::new() else { return };
        let (path, one) = ("crates/a/src/lib.rs", "//! A.\n#[test]\nfn one() {}\n");
        let checked = |source: &str, rows: &str| {
            repository.write(path, source);
            repository.write(TABLE, &format!("{path}\n{rows}"));
            check(&Tree::read(&repository.0).expect("a tree"))
        };
        let new = one.to_owned() + "#[test]\nfn new() {}\n";
        assert_eq!(checked(SOURCE, "  one fast\n  two nightly\n"), [], "no commit is there to compare with");
        repository.commit();
        let finding = &["tests.txt", "`two` had a row", "was: two"];
        assert_one(&checked(one, "  one fast\n"), finding);
        assert_one(&checked(&new, "  new fast\n  one fast\n"), finding);
        repository.commit();
        assert_one(&checked(&new, "  new fast\n  one fast\n"), finding);
        repository.write("other.txt", "");
        repository.commit();
        let url = format!("file://{}", repository.0.display());
        git(&repository.0, &["clone", "--quiet", "--depth=1", &url, "clone"]).expect("a clone");
        let clone = Tree::read(&repository.0.join("clone")).expect("a tree");
        assert_eq!((clone.earlier(TABLE), check(&clone)), (vec![], vec![]), "it has one commit");
        std::fs::remove_dir_all(repository.0.join("clone")).expect("a folder");
        assert_one(&checked(&new, "  new fast\n  one fast\n"), finding);
        assert_eq!(checked(&new, "  new fast\n  one fast\n  two gone: one has it\n"), []);
        assert_eq!(checked(&new, "  new fast was: two\n  one fast\n"), []);
        repository.write("crates/a/src/b.rs", "//! B.\n#[test]\nfn two() {}\n");
        assert_eq!(checked(&new, "  new fast\n  one fast\n\ncrates/a/src/b.rs\n  two fast\n"), [], "it was moved");
    }

    #[test]
    fn canary_a_setting_that_is_lost_or_there_twice_is_found() {
        let Some(repository) = Repository::new() else { return };
        let checked = |text: &str| {
            repository.write(SETTINGS, text);
            settings(&Tree::read(&repository.0).expect("a tree"))
        };
        assert_eq!(checked("# Rows.\nfast    occ on absent\nnightly occ that locks on absent\n"), []);
        repository.commit();
        assert_one(&checked("fast occ on absent\nfast hto on absent\n"), &["`occ that locks on absent` had a row"]);
        let gone = "fast occ on absent\n# gone: occ that locks on absent: no lock is left\n";
        assert_eq!(checked(gone), []);
        assert_one(&checked(&format!("{gone}nightly occ on absent\n")), &["settings.txt:3", "has another row"]);
        for wrong in ["often occ on absent", "fast occ", "fast", ""] {
            assert_one(&checked(&format!("{gone}{wrong}\n")), &["settings.txt:3", "a row is"]);
        }
        assert_one(&settings(&Tree::default()), &["settings.txt", "missing"]);
    }

    #[test]
    fn a_program_that_a_manifest_leaves_out_of_cargo_test_is_nightly() {
        let manifest = "[package]\nname = \"a\"\n\n[lib]\ntest = false\n\n[[test]]\nname = \"long\"\ntest = false\n";
        let files = [
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/tests/long/b.rs", SOURCE),
            ("crates/a/tests/short.rs", SOURCE),
        ];
        let elsewhere = ("crates/b/Cargo.toml", "[[test]]\nname = \"a_long\"\npath = \"../a/tests/long.rs\"\n");
        let unit = ("crates/a/unit/Cargo.toml", "[lib]\npath = \"../src/lib.rs\"\n");
        assert_eq!(left_out(&Tree::of(&[files[0], elsewhere, unit])), [""; 0]);
        let tiers = |file: &str| {
            let found = found(&Tree::of(&files));
            let of = found.into_iter().filter(|((path, _), _)| path == file);
            of.map(|(_, test)| test.tier).collect::<Vec<_>>()
        };
        assert_eq!(tiers("crates/a/tests/long/b.rs"), ["nightly", "nightly"]);
        assert_eq!(tiers("crates/a/tests/short.rs"), ["fast", "nightly"]);
        assert_eq!(left_out(&Tree::of(&files))[0], "crates/a/src/");
    }

    #[test]
    fn models_children_and_measurements_are_tiers_of_their_own() {
        let source = "//! A.\n#[test]\n#[ignore = \"run by another test, in a process of its own\"]\nfn a() \
            {}\n#[test]\n\
                      #[ignore = \"a measurement\"]\nfn b() {}\nmod loom_models {\n#[test]\nfn a() {}\n}\n";
        let found = found(&Tree::of(&[("crates/a/src/lib.rs", source)]));
        let tiers: Vec<_> = found.iter().map(|((_, name), test)| (name.as_str(), test.tier)).collect();
        assert_eq!(tiers, [("a", "child"), ("a#2", "loom"), ("b", "manual")]);
    }

    #[test]
    fn renewing_follows_what_was_moved_and_tells_what_is_gone() {
        let mut table = parse(&LISTED.replace("one fast", "one fast was: none, zero")).expect("a table");
        let moved = found(&Tree::of(&[("crates/a/src/b.rs", "//! A.\n#[test]\nfn one() {}\n")]));
        let gone = renew(&mut table, &moved);
        assert_eq!(gone, ["crates/a/src/lib.rs  two"]);
        let rows = written(&table).split_off(written(&Table::default()).len());
        let wanted = "\ncrates/a/src/b.rs\n  one fast was: none, zero\n\ncrates/a/src/lib.rs\n  two nightly\n";
        assert_eq!(rows, wanted);
    }
}
