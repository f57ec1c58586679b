//! The examples of `CONTRIBUTING.md` are patches of this tree: they apply, and what they add is there and runs.
//!
//! A patch is a block fenced as `diff`, in unified format but for line numbers, which would not stay true. A hunk
//! begins with `@@`, and the lines that it removes and keeps stand in its file exactly once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::ci::{cargo, finish};
use crate::files::Tree;
use crate::tidy::Finding;

const DOCUMENT: &str = "CONTRIBUTING.md";
/// The additions of the examples: a protocol, a workload and a type of columns, by name.
const ADDED: [&str; 3] = ["silo-again", "clicks", "ipv4"];

/// Each example applies to the tree, and there is one for each thing to add.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(DOCUMENT) else { return vec![Finding::new(DOCUMENT, 0, "missing")] };
    match patched(text, |path| tree.text(path).map(str::to_owned)) {
        Ok(_) => Vec::new(),
        Err((line, message)) => vec![Finding::new(DOCUMENT, line, message)],
    }
}

/// Where cargo builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The repository with the examples, below `target`.
struct Copy {
    tree: PathBuf,
    /// Where it is built: not where the repository is, since cargo would take one for the other.
    build: PathBuf,
}

impl Copy {
    /// # Errors
    /// An example that does not apply, or a disk that does not obey.
    fn make(root: &Path) -> Result<Copy, String> {
        let tree = Tree::read(root)?;
        let text = tree.text(DOCUMENT).ok_or_else(|| format!("no {DOCUMENT}"))?;
        let patched = patched(text, |path| tree.text(path).map(str::to_owned))
            .map_err(|(line, message)| format!("{DOCUMENT}:{line}: {message}"))?;
        let (copy, build) = (target(root).join("contributing/tree"), target(root).join("contributing/target"));
        let failed = |error: io::Error| format!("cannot copy the repository to {}: {error}", copy.display());
        match fs::remove_dir_all(&copy) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        for path in tree.paths().filter(|path| !patched.contains_key(*path)) {
            let place = copy.join(path);
            place.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
            // It keeps its time, so that nothing is compiled again for having been copied.
            fs::copy(root.join(path), &place).map_err(failed)?;
            let time = fs::metadata(root.join(path)).and_then(|data| data.modified()).map_err(failed)?;
            fs::File::options().append(true).open(&place).and_then(|file| file.set_modified(time)).map_err(failed)?;
        }
        for (path, text) in &patched {
            let place = copy.join(path);
            place.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
            fs::write(place, text).map_err(failed)?;
        }
        Ok(Copy { tree: copy, build })
    }

    fn cargo(&self) -> Command {
        let mut command = cargo(&self.tree);
        command.env("CARGO_TARGET_DIR", &self.build).env_remove("CARGO_MANIFEST_DIR");
        command
    }
}

/// Whether the examples compile, in a copy of the repository below `target`.
///
/// # Errors
/// An example that does not apply or does not compile.
pub(crate) fn compile(root: &Path) -> Result<(), String> {
    let mut command = Copy::make(root)?.cargo();
    // The crates that they change, without the program. A wrapper that does nothing sets crates of the
    // workspace apart from the repository's own, as clippy's does. So their dependencies are checked once for both.
    command.args(["check", "--quiet", "--package", "seriatim-engine", "--package", "seriatim-workload"]);
    command.env("CARGO_TARGET_DIR", target(root)).env("RUSTC_WORKSPACE_WRAPPER", "env");
    finish(command).map_err(|message| format!("with the examples of {DOCUMENT}: {message}"))
}

/// Applies the examples to a copy of the repository below `target`, and there runs the workload under the protocol, and
/// the example of the type.
///
/// # Errors
/// An example that does not apply, does not compile, or is not found by its name.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let copy = Copy::make(root)?;
    let cargo = |arguments: &[&str]| {
        let mut command = copy.cargo();
        command.args(arguments);
        let output = command.output().map_err(|error| format!("cannot run cargo: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let talk = String::from_utf8_lossy(&output.stderr);
                Err(format!("with the examples of {DOCUMENT} `cargo {}` fails:\n{talk}", arguments.join(" ")))
            }
        }
    };
    let seriatim =
        |arguments: &[&str]| cargo(&[&["run", "--quiet", "--package", "seriatim-cli", "--"], arguments].concat());
    let [protocol, workload, ty] = ADDED;
    if !seriatim(&["protocols"])?.contains(protocol) {
        return Err(format!("the example's protocol, {protocol}, is not listed"));
    }
    let report = seriatim(&["bench", workload, "--protocol", protocol, "--threads", "2", "--seconds", "1"])?;
    eprintln!("{}", report.trim_end());
    let tests = cargo(&["test", "--package", "seriatim-catalog", "--doc", &format!("types::{ty}")])?;
    match tests.contains("1 passed") {
        true => Ok(()),
        false => Err(format!("the example of the type, {ty}, does not run:\n{tests}")),
    }
}

/// The files that the examples change or add, as they are afterwards; `text` gives them as they are.
///
/// # Errors
/// The line of the first that does not apply, and why.
fn patched(document: &str, text: impl Fn(&str) -> Option<String>) -> Result<BTreeMap<String, String>, (usize, String)> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let (mut blocks, mut is_diff, mut is_new, mut file) = (0, false, false, None::<String>);
    // Where the hunk began, what it expects and what comes in its place.
    let mut hunk: Option<(usize, String, String)> = None;
    for (i, line) in document.lines().enumerate() {
        let is_fence = line.starts_with("```");
        let ends = is_fence || line.starts_with("--- ") || line.starts_with("@@");
        if let Some((at, old, new)) = hunk.take_if(|_| is_diff && ends) {
            let path = file.as_ref().ok_or((at, "a hunk of no file".to_owned()))?;
            apply(&mut files, path, (&old, &new)).map_err(|message| (at, message))?;
        }
        match line {
            _ if is_fence => {
                is_diff = line == "```diff";
                (blocks, file) = (blocks + usize::from(is_diff), None);
            }
            _ if !is_diff => {}
            _ if line.starts_with("--- ") => is_new = line == "--- /dev/null",
            _ if line.starts_with("+++ ") => {
                let path = line.strip_prefix("+++ b/").ok_or((i + 1, "write `+++ b/` and a path".to_owned()))?;
                let before = files.get(path).cloned().or_else(|| text(path));
                match (before, is_new) {
                    (None, true) => drop(files.insert(path.to_owned(), String::new())),
                    (Some(before), false) => drop(files.insert(path.to_owned(), before)),
                    (None, false) => return Err((i + 1, format!("there is no file {path}"))),
                    (Some(_), true) => return Err((i + 1, format!("there is a file {path} already"))),
                }
                file = Some(path.to_owned());
            }
            "@@" => hunk = Some((i + 1, String::new(), String::new())),
            _ => {
                let (_, old, new) = hunk.as_mut().ok_or((i + 1, "a hunk begins with a line `@@`".to_owned()))?;
                let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
                match sign {
                    " " => [old, new].map(|side| *side += &format!("{rest}\n")),
                    "-" => [old, &mut String::new()].map(|side| *side += &format!("{rest}\n")),
                    "+" => [new, &mut String::new()].map(|side| *side += &format!("{rest}\n")),
                    _ => return Err((i + 1, "a line of a hunk begins with ` `, `+` or `-`".to_owned())),
                };
            }
        }
    }
    match blocks {
        n if n == ADDED.len() => Ok(files),
        n => Err((0, format!("{n} examples in blocks fenced as diff, where {} are expected", ADDED.len()))),
    }
}

/// Replaces what stands once in a file; the whole of a new one.
fn apply(files: &mut BTreeMap<String, String>, path: &str, (old, new): (&str, &str)) -> Result<(), String> {
    let text = files.get_mut(path).ok_or("a hunk of no file")?;
    let begins = |at: usize| at == 0 || text.as_bytes()[at - 1] == b'\n';
    let found: Vec<usize> = text.match_indices(old).map(|(at, _)| at).filter(|&at| begins(at)).collect();
    match found[..] {
        [at] => {
            text.replace_range(at..at + old.len(), new);
            Ok(())
        }
        [] => Err(format!("the hunk does not apply to {path}: what it expects is not there")),
        _ => Err(format!("the hunk does not apply to {path}: what it expects is there {} times", found.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_one;

    const MODULES: &str = "pub mod a;\npub mod c;\n";

    fn checked(first: &str) -> Vec<Finding> {
        let second = "```diff\n--- /dev/null\n+++ b/src/d.rs\n@@\n+//! D.\n+\n```\n";
        let third = second.replace("d.rs", "e.rs");
        let document = format!("# A\n```text\n@@\n```\n```diff\n{first}```\n{second}{third}");
        check(&Tree::of(&[(DOCUMENT, &document), ("src/lib.rs", MODULES)]))
    }

    #[test]
    fn hunks_change_and_add_files() {
        let hunks = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@\n pub mod a;\n+pub mod b;\n@@\n-pub mod c;\n--- /dev/null\n\
                     +++ b/src/b.rs\n@@\n+//! B.\n";
        assert_eq!(checked(hunks), []);
        let document = format!("```diff\n{hunks}```\n```diff\n```\n```diff\n```\n");
        let files = patched(&document, |path| (path == "src/lib.rs").then(|| MODULES.to_owned())).expect("it applies");
        let expected = [("src/b.rs", "//! B.\n"), ("src/lib.rs", "pub mod a;\npub mod b;\n")];
        assert_eq!(files, expected.map(|(path, text)| (path.to_owned(), text.to_owned())).into());
    }

    #[test]
    fn canary_examples_that_do_not_apply_are_found() {
        let of = |path: &str, hunk: &str| checked(&format!("--- a/{path}\n+++ b/{path}\n@@\n{hunk}\n"));
        assert_one(&of("src/lib.rs", " pub mod b;"), &["CONTRIBUTING.md:8", "src/lib.rs", "not there"]);
        assert_one(&of("src/lib.rs", "+pub mod b;"), &["3 times"]);
        assert_one(&of("src/no.rs", "+//! No."), &["CONTRIBUTING.md:7", "no file src/no.rs"]);
        assert_one(&of("src/lib.rs", "pub mod a;"), &["begins with"]);
        assert_one(&checked("--- /dev/null\n+++ b/src/lib.rs\n@@\n+//! A.\n"), &["a file src/lib.rs already"]);
        assert_one(&check(&Tree::of(&[(DOCUMENT, "# Nothing\n")])), &["0 examples", "3 are expected"]);
        assert_one(&check(&Tree::default()), &[DOCUMENT, "missing"]);
    }
}
