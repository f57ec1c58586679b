//! Rules about Rust sources: how a file opens, which crates may use the clock and files or print, and what must not be
//! shipped.

use std::collections::BTreeSet;

use crate::files::{Tree, crate_of};
use crate::rust::{self, Token};
use crate::tidy::Finding;

/// The widest line of a Rust source, in characters.
const COLUMNS_MAX: usize = 120;

/// Crates that talk on standard error or print data: the apps, the tests and the tooling. Libraries return values.
const SPEAKERS: &[&str] = &["suite", "figures", "xtask"];

/// It prints the seeds of random tests, in the way that their harness captures.
const SEEDS: &str = "crates/base/src/rng.rs";

/// Programs: nothing they print may panic because its reader went away or a disk is full.
const PROGRAMS: &[&str] = &["cli", "bench"];

/// It converts times of the system, and reads no clock.
const TIMES: &str = "crates/catalog/src/types/timestamp.rs";

/// Names that read a clock or draw randomness wherever they come from.
const INTERFACES: &[&str] = &["RandomState", "SystemTime", "clock_gettime", "getrandom", "_rdtsc", "_rdrand64_step"];

/// Crates that read and write reports and settings of their own; none of them keeps data for a database.
const FILE_USERS: &[&str] = &["cli", "suite", "figures", "bench", "workload", "postgres", "xtask"];

/// Calls of libc that touch files.
const FILE_CALLS: &[&str] = &[
    "open",
    "openat",
    "creat",
    "read",
    "pread",
    "write",
    "pwrite",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "ftruncate",
    "rename",
    "renameat",
    "unlink",
    "flock",
];

/// Files that exchange the types of atomics when a crate is model-checked.
const EXCHANGES: &[&str] = &["sync.rs", "word.rs"];

/// Crates that models of whole transactions run.
const MODELLED: &[&str] = &["htm", "store", "txn", "protocol", "baselines"];

/// `doctest = false` is in the manifests of the libraries without an example in their documentation, and in no other.
/// Rustdoc takes a second for a library even if there is nothing to run.
pub(crate) fn examples(tree: &Tree) -> Vec<Finding> {
    let judge = |(path, manifest): (&str, &str)| {
        let source = format!("{}src/", path.strip_suffix("Cargo.toml")?);
        let is_left_out = manifest.lines().any(|line| line == "doctest = false");
        let mut files = tree.ending(".rs").filter(|(file, _)| file.starts_with(&source));
        let message = match files.find_map(|(file, text)| Some((file, example(text)?))) {
            _ if !tree.has(&format!("{source}lib.rs")) => return None,
            Some((file, line)) if is_left_out => {
                format!("`doctest = false` leaves out the example of {file}:{line}: remove it")
            }
            None if !is_left_out => "no documentation has an example: say `doctest = false` in `[lib]`".to_owned(),
            _ => return None,
        };
        Some(Finding::new(path, 0, message))
    };
    tree.ending("/Cargo.toml").filter_map(judge).collect()
}

/// The line of the first example that rustdoc would compile.
fn example(text: &str) -> Option<usize> {
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(line) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_open = false;
            if line.starts_with("#[doc = include_str!") || line.starts_with("#![doc = include_str!") {
                return Some(at + 1);
            }
            continue;
        };
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let mut words = language.split(',').map(str::trim);
        if !is_open && words.all(|word| matches!(word, "" | "rust" | "no_run" | "should_panic" | "compile_fail")) {
            return Some(at + 1);
        }
        is_open = !is_open;
    }
    None
}

/// A loom model runs the code that ships: what differs under `cfg(loom)` are the types of atomics, in files
/// that do nothing else. Tests may differ.
pub(crate) fn models(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        if EXCHANGES.iter().any(|name| path.ends_with(&format!("/{name}"))) || has_folder(path, "xtask") {
            continue;
        }
        let tokens = rust::tokens(text);
        for (at, token) in tokens.iter().enumerate().filter(|(_, token)| matches!(token.text, "cfg" | "cfg_attr")) {
            let rest = tokens[at + 1..].iter().skip_while(|token| token.text == "!");
            let mut depth = 0;
            let within = rest.take_while(|token| {
                depth += i32::from(token.text == "(") - i32::from(token.text == ")");
                depth > 0
            });
            let names: Vec<_> = within.map(|token| token.text).collect();
            if names.contains(&"loom") && !names.contains(&"test") {
                let message = format!(
                    "`cfg(loom)` chooses code that does not ship: exchange types in {}",
                    EXCHANGES.join(" or ")
                );
                findings.push(Finding::new(path, token.line, message));
            }
        }
    }
    for_each_shipped(tree, |path, tokens| {
        if !crate_of(path).is_some_and(|folder| MODELLED.contains(&folder)) || path.ends_with("/sync.rs") {
            return;
        }
        for (names, line) in rust::paths(tokens, &["std"]) {
            if matches!(names[..], ["std", "sync", "atomic", "AtomicU64" | "fence"]) {
                let message = format!("`{}`: no model would know it; use seriatim_base::word", names.join("::"));
                findings.push(Finding::new(path, line, message));
            }
        }
    });
    findings
}

/// Every file opens with a module comment.
pub(crate) fn opening(tree: &Tree) -> Vec<Finding> {
    let bare = tree.ending(".rs").filter(|(_, text)| !text.starts_with("//!"));
    bare.map(|(path, _)| {
        Finding::new(path, 1, "open with a `//!` sentence of purpose, then the invariant, then the source")
    })
    .collect()
}

/// Lines of Rust have at most [`COLUMNS_MAX`] characters.
pub(crate) fn columns(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        for (at, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                let message = format!("{columns} columns: break the line after at most {COLUMNS_MAX}");
                findings.push(Finding::new(path, at + 1, message));
            }
        }
    }
    findings
}

/// Only `base` uses time, threads and randomness; `Duration` is a mere number. Tests and examples are free.
pub(crate) fn platform_interfaces(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for_each_shipped(tree, |path, tokens| {
        if path.starts_with("crates/base/") || path == TIMES || has_folder(path, "examples") {
            return;
        }
        let mut find = |line, what: &str| {
            let message = format!(
                "`{what}`: only the crate base is the platform interface; use seriatim_base::{{clock, thread, rng}}"
            );
            findings.push(Finding::new(path, line, message));
        };
        for (names, line) in rust::paths(tokens, &["std", "core"]) {
            let allowed = names.len() == 3 && names[1..] == ["time", "Duration"];
            if matches!(names[1], "time" | "thread") && !allowed {
                find(line, &names.join("::"));
            }
        }
        tokens.iter().filter(|token| INTERFACES.contains(&token.text)).for_each(|token| find(token.line, token.text));
    });
    findings
}

/// Only `base` touches files below the tests and tooling, so that every test of what survives a power cut sees all
/// there is to see. Tests, examples and build scripts are free.
pub(crate) fn files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for_each_shipped(tree, |path, tokens| {
        let Some(folder) = crate_of(path) else { return };
        if folder == "base" || FILE_USERS.contains(&folder) || is_apart(path) {
            return;
        }
        for (names, line) in rust::paths(tokens, &["std", "libc"]) {
            let is_file = match names[0] {
                "std" => names[1] == "fs" || (names[1] == "os" && names.contains(&"fs")),
                _ => FILE_CALLS.contains(&names[1].trim_end_matches("64")),
            };
            if is_file {
                let name = names.join("::");
                let message =
                    format!("`{name}`: only the crate base is the platform interface; use seriatim_base::disk");
                findings.push(Finding::new(path, line, message));
            }
        }
    });
    findings
}

/// Nothing unfinished, and no debugging left behind, not even in tests.
pub(crate) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        for (name, line) in macros(&rust::tokens(text), &["todo", "dbg", "unimplemented"]) {
            findings.push(Finding::new(path, line, format!("`{name}!` must not be committed")));
        }
    }
    findings
}

/// Library crates do not print, except in tests and for them, in examples and in build scripts.
pub(crate) fn silence(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for_each_shipped(tree, |path, tokens| {
        let Some(folder) = crate_of(path) else { return };
        if SPEAKERS.contains(&folder) || is_apart(path) || path == SEEDS {
            return;
        }
        for (name, line) in macros(tokens, &["print", "println", "eprint", "eprintln"]) {
            let message = match PROGRAMS.contains(&folder) {
                true => format!("`{name}!` panics where nobody reads it: use seriatim_base::{{say, talk}}"),
                false => format!("`{name}!` in a library crate: return it, or print in cli"),
            };
            findings.push(Finding::new(path, line, message));
        }
    });
    findings
}

fn macros<'a>(tokens: &[Token<'a>], names: &[&str]) -> Vec<(&'a str, usize)> {
    let calls = tokens.windows(2).filter(|pair| pair[1].text == "!" && names.contains(&pair[0].text));
    calls.map(|pair| (pair[0].text, pair[0].line)).collect()
}

/// Whether a file is built beside its crate: an example or a build script.
fn is_apart(path: &str) -> bool {
    has_folder(path, "examples") || path.ends_with("/build.rs")
}

fn has_folder(path: &str, folder: &str) -> bool {
    path.split('/').any(|part| part == folder)
}

/// Calls with each file that is not a test, and its tokens without what only tests compile.
pub(crate) fn for_each_shipped<'a>(tree: &'a Tree, mut call: impl FnMut(&'a str, &[Token<'a>])) {
    let files: Vec<_> = tree.ending(".rs").map(|(path, text)| (path, rust::shipped(&rust::tokens(text)))).collect();
    let declared = files.iter().flat_map(|(path, file)| file.test_modules.iter().map(|name| module(path, name)));
    let tests: BTreeSet<String> = declared.collect();
    for (path, file) in &files {
        let module = path.trim_end_matches(".rs");
        let within = |tests: &String| module == *tests || module.starts_with(&format!("{tests}/"));
        if !has_folder(path, "tests") && !path.ends_with("/tests.rs") && !tests.iter().any(within) {
            call(path, &file.tokens);
        }
    }
}

/// The path, without extension, of module `name` declared in the file at `path`.
fn module(path: &str, name: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    match file {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{folder}/{name}"),
        _ => format!("{}/{name}", path.trim_end_matches(".rs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_one;

    fn source(path: &str, text: &str) -> Tree {
        Tree::of(&[(path, text)])
    }

    const LIBRARY: &str = "crates/store/src/lib.rs";

    #[test]
    fn canary_a_file_without_opening_is_found() {
        assert_one(&opening(&source(LIBRARY, "// A comment.\n")), &["lib.rs:1", "//!"]);
        assert_eq!(opening(&source(LIBRARY, "//! Purpose.\n")), []);
    }

    #[test]
    fn canary_wide_lines_are_found() {
        let text = format!("//{}\n//{}\n", "é".repeat(COLUMNS_MAX - 2), "é".repeat(COLUMNS_MAX - 1));
        for path in [LIBRARY, "xtask/src/main.rs", "fuzz/fuzz_targets/a.rs"] {
            assert_one(&columns(&source(path, &text)), &[&format!("{path}:2"), "121 columns"]);
        }
    }

    #[test]
    fn canary_every_platform_interface_is_found() {
        for (text, name) in [
            ("use std::time::Instant;", "std::time::Instant"),
            ("use std::{sync::Arc, time::{Duration, Instant}};", "std::time::Instant"),
            ("use std::time;", "std::time"),
            ("fn f() { ::std::thread::yield_now() }", "std::thread::yield_now"),
            ("use std::thread::{self};", "std::thread::self"),
            ("use std::hash::RandomState;", "RandomState"),
            ("fn f() { unsafe { core::arch::x86_64::_rdtsc() } }", "_rdtsc"),
        ] {
            assert_one(&platform_interfaces(&source(LIBRARY, text)), &["lib.rs:1", name, "base"]);
        }
    }

    #[test]
    fn platform_interfaces_are_free_where_they_may_be() {
        let text = "use std::time::Instant; fn f() { std::thread::yield_now() }";
        for path in [
            "crates/base/src/clock.rs",
            "crates/store/tests/a.rs",
            "crates/seriatim/examples/bank.rs",
            "crates/store/src/tests.rs",
        ] {
            assert_eq!(platform_interfaces(&source(path, text)), []);
        }
        assert_eq!(
            platform_interfaces(&source(
                LIBRARY,
                "use std::time::Duration;\n// std::thread\n#[cfg(test)] mod a { use std::thread; }"
            )),
            []
        );
    }

    #[test]
    fn canary_files_beside_the_platform_interface_are_found() {
        for (text, name) in [
            ("use std::fs::File;", "std::fs::File"),
            ("use std::{fs, io};", "std::fs"),
            ("fn f() { std::fs::read(\"a\").map(drop) }", "std::fs::read"),
            ("use std::os::unix::fs::FileExt;", "std::os::unix::fs::FileExt"),
            ("fn f() { unsafe { libc::fdatasync(3) }; }", "libc::fdatasync"),
            ("use libc::{c_int, pwrite64};", "libc::pwrite64"),
        ] {
            for folder in ["catalog", "store", "redo", "txn", "protocol", "baselines", "engine", "seriatim", "memory"] {
                let path = format!("crates/{folder}/src/lib.rs");
                assert_one(&files(&source(&path, text)), &["lib.rs:1", name, "seriatim_base::disk"]);
            }
        }
    }

    #[test]
    fn files_are_free_where_they_may_be() {
        for path in [
            "crates/base/src/disk/real.rs",
            "crates/cli/src/machine.rs",
            "crates/suite/src/lib.rs",
            "crates/workload/src/lib.rs",
            "crates/store/tests/a.rs",
            "crates/seriatim/examples/bank.rs",
            "xtask/src/files.rs",
        ] {
            assert_eq!(files(&source(path, "use std::fs::File;")), [], "{path}");
        }
        assert_eq!(files(&source(LIBRARY, "use std::{io, path::Path}; fn f() { unsafe { libc::mmap() } }")), []);
        assert_eq!(files(&source(LIBRARY, "#[cfg(test)] mod a { use std::fs; }")), []);
    }

    #[test]
    fn modules_declared_for_tests_are_tests() {
        let files = [
            ("crates/store/src/lib.rs", "#[cfg(test)]\nmod model;\nmod tree;"),
            ("crates/store/src/model.rs", "use std::thread;"),
            ("crates/store/src/model/deep.rs", "use std::thread;"),
            ("crates/store/src/tree.rs", "#[cfg(test)] mod hammer;"),
            ("crates/store/src/tree/hammer.rs", "fn f() { println!() }"),
        ];
        assert_eq!(platform_interfaces(&Tree::of(&files)), []);
        assert_eq!(silence(&Tree::of(&files)), []);
        assert_one(
            &platform_interfaces(&Tree::of(&[files[1], ("crates/store/src/lib.rs", "mod model;")])),
            &["model.rs"],
        );
    }

    #[test]
    fn canary_a_branch_that_only_the_model_takes_is_found() {
        for text in [
            "#[cfg(not(loom))] fn f() {}",
            "fn f() { #[cfg(all(target_arch = \"x86_64\", not(any(loom, miri))))] { g() } }",
            "const A: bool = cfg!(loom);",
            "#[cfg_attr(loom, inline)] fn f() {}",
        ] {
            assert_one(&models(&source(LIBRARY, text)), &["lib.rs:1", "cfg(loom)"]);
        }
        let unknown = source("crates/txn/src/lib.rs", "use std::sync::atomic::{Ordering, fence};");
        assert_one(&models(&unknown), &["lib.rs:1", "seriatim_base::word"]);
        for (path, text) in [
            (LIBRARY, "#[cfg(all(test, loom))] mod loom_model;\n#[cfg(all(test, not(loom)))] mod tests;"),
            (LIBRARY, "#[cfg(test)] mod a { const LOOM: &str = \"loom\"; } // cfg(loom)"),
            ("crates/store/src/sync.rs", "#[cfg(loom)] pub(crate) use loom::sync::atomic::fence;"),
        ] {
            assert_eq!(models(&source(path, text)), [], "{text}");
        }
    }

    #[test]
    fn canary_unfinished_code_is_found() {
        for name in ["todo", "dbg", "unimplemented"] {
            let text = format!("#[test]\nfn f() {{ {name}!() }}");
            assert_one(&unfinished(&source(LIBRARY, &text)), &["lib.rs:2", name]);
        }
        assert_eq!(unfinished(&source(LIBRARY, "// todo!()\nfn f() { \"dbg!\"; todo() }")), []);
    }

    #[test]
    fn canary_a_library_that_prints_is_found() {
        assert_one(&silence(&source(LIBRARY, "fn f() { println!(\"x\") }")), &["println", "library"]);
        for program in ["crates/cli/src/main.rs", "crates/bench/src/rtm/mod.rs"] {
            assert_one(&silence(&source(program, "fn f() { eprintln!(\"x\") }")), &["eprintln", "say, talk"]);
        }
        for path in
            ["crates/suite/src/bin/soak.rs", "xtask/src/main.rs", "crates/store/tests/a.rs", "crates/store/build.rs"]
        {
            assert_eq!(silence(&source(path, "fn f() { println!() }")), []);
        }
        assert_eq!(silence(&source(LIBRARY, "#[test] fn f() { eprintln!(\"seed 1\") }")), []);
    }

    #[test]
    fn canary_examples_that_nothing_runs_are_found() {
        let found = |manifest: &str, text: &str| {
            examples(&Tree::of(&[("crates/a/Cargo.toml", manifest), ("crates/a/src/lib.rs", text)]))
        };
        let (with, without) = ("[lib]\ndoctest = false\n", "[lib]\n");
        let text = "//! ```text\n//! a\n//! ```\n\n/// b\n";
        for example in ["    /// ```\n", "//! ```rust,no_run\n", "#[doc = include_str!(\"a.md\")]\n"] {
            let text = format!("{text}{example}");
            assert_one(&found(with, &text), &["crates/a/Cargo.toml", "crates/a/src/lib.rs:6", "remove it"]);
            assert_eq!(found(without, &text), []);
        }
        assert_one(&found(without, text), &["crates/a/Cargo.toml", "doctest = false"]);
        assert_eq!(found(with, text), []);
        assert_eq!(examples(&Tree::of(&[("crates/a/Cargo.toml", ""), ("crates/a/src/main.rs", "//! ```\n")])), []);
    }
}
