//! Examples in the documentation match the program's output: blocks that begin with `$ seriatim …`, drawings,
//! and the example of a workload's procedure. `UPDATE_EXPECT=1` writes the current output into the files.

use std::path::PathBuf;
use std::process::Command;

const CHAPTER: &str = "docs/procedures.md";
const DRAWINGS: [(&str, &str); 2] = [
    ("docs/chopping-tpcc-default.svg", "graph tpcc --default --format svg"),
    ("docs/chopping-tpcc-optimized.svg", "graph tpcc --optimized --format svg"),
];

fn path(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn printed(arguments: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_seriatim")).args(arguments.split(' ')).output();
    let output = output.expect("the binary starts");
    assert!(output.status.success(), "seriatim {arguments}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Compares the contents of a file with `should`, or writes it.
fn compare(file: &str, should: &str) {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path(file), should).unwrap_or_else(|error| panic!("{file}: {error}"));
    } else if let Some(lines) = difference(&read(file), should) {
        panic!("{file} is out of date; UPDATE_EXPECT=1 cargo test -p seriatim-cli updates it:\n{lines}");
    }
}

/// The first lines that differ, except in a place in a source file.
fn difference(is: &str, should: &str) -> Option<String> {
    let lines = |text: &str| text.lines().map(without_place).collect::<Vec<_>>();
    let (is, should) = (lines(is), lines(should));
    let at = (0..is.len().max(should.len())).find(|at| is.get(*at) != should.get(*at))?;
    let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_default();
    Some(format!("line {}:\n- {}\n+ {}", at + 1, line(&is), line(&should)))
}

/// A line without the line and column at its end, if it ends in a place in a source file. These change without
/// changing the meaning.
fn without_place(line: &str) -> String {
    match line.split_once(".rs:") {
        Some((before, place)) if place.ends_with(')') => format!("{before}.rs)"),
        _ => line.to_owned(),
    }
}

/// A document with the current output in its blocks of commands.
fn with_outputs(document: &str) -> String {
    let mut out = String::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        out += line;
        out.push('\n');
        if line != "```console" {
            continue;
        }
        let command = lines.next().unwrap_or_default();
        let arguments =
            command.strip_prefix("$ seriatim ").unwrap_or_else(|| panic!("not a command of seriatim: {command}"));
        out += &format!("{command}\n{}```\n", printed(arguments));
        lines.by_ref().find(|line| *line == "```").expect("the block ends");
    }
    out
}

#[test]
fn the_chapter_on_procedures_shows_what_is_printed() {
    let chapter = read(CHAPTER);
    assert!(chapter.matches("\n$ seriatim ").count() >= 2, "the chapter shows a plan and a graph");
    compare(CHAPTER, &with_outputs(&chapter));
}

#[test]
fn the_readme_lists_the_protocols() {
    let readme = read("README.md");
    let (_, section) = readme.split_once("\n## Protocols\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let listed = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert!(listed.eq(seriatim::protocols().iter().map(|protocol| protocol.name)), "{section}");
}

/// Both list the same codes with the same meanings.
#[test]
fn exit_codes_are_those_of_the_help() {
    let (help, page) = (printed("--help"), read("docs/command-line.md"));
    let (_, codes) = help.split_once("\nExit codes:\n").expect("the help lists them");
    let codes: Vec<(&str, &str)> = codes
        .lines()
        .map_while(|line| line.trim().split_once("  "))
        .map(|(code, meaning)| (code, meaning.trim()))
        .collect();
    assert_eq!(codes.iter().map(|(code, _)| *code).collect::<Vec<_>>(), ["0", "1", "2", "130"]);
    for (code, meaning) in codes {
        assert!(page.contains(&format!("| {code} | {meaning} |\n")), "{code}: {meaning}");
    }
}

#[test]
fn the_drawings_of_tpcc_are_those_that_are_printed() {
    for (file, arguments) in DRAWINGS {
        compare(file, &printed(arguments));
    }
}

#[test]
fn the_worked_example_is_a_procedure_of_articles() {
    let source = read("crates/workload/src/articles/transactions.rs");
    let start = source.find("/// Adds a comment").expect("add_comment is documented");
    let end = source[start..].find("\n}\n").expect("it ends");
    assert!(read(CHAPTER).contains(&source[start..start + end]), "{CHAPTER} has another add_comment");
}

#[test]
fn canary_a_document_that_is_out_of_date_is_noticed() {
    assert_eq!(difference("a (x.rs:1:2)\nb\n", "a (x.rs:30:4)\nb\n"), None, "places move");
    assert_eq!(difference("a\nb\n", "a\nc\n").as_deref(), Some("line 2:\n- b\n+ c"));
    assert!(difference("a\n", "a\nb\n").is_some() && difference("a (x.rs:1:2)\n", "a (y.rs:1:2)\n").is_some());
}
