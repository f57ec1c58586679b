//! The lists of mutants: `xtask/mutants/*.txt`, one file to a crate.
//!
//! ```text
//! mutant hash-miss-unchecked
//! class  recheck
//! file   crates/store/src/hash/mod.rs
//! breaks A key that moves while it is looked for is taken for absent.
//! test   store hash::tests::no_key_is_lost_while_the_table_grows
//! test   suite/histories a_stress_is_serializable
//! - if self.confirms(hash, vacancy) {
//! + if MUTANT || self.confirms(hash, vacancy) {
//! ```
//! An entry ends with an empty line; `#` begins a comment line. The lines after `-` stand in the file exactly once.
//! Where `after TEXT` is given, they are the first such lines behind that text, which occurs once. Runs of white space
//! are equal, so lists survive a new indentation. The lines after `+` replace it; `MUTANT` in them is true when the
//! mutant is switched on, so that one build serves all. `build` marks a rewrite that needs a build of its own:
//! constants, types. `quick` marks what CI runs: those of memory, whose tests are built and run in a minute.
//! `equivalent REASON` says why no test can catch it. An entry that begins with `group NAME` instead has tests alone;
//! `tests NAME` stands for all of them in the entries behind it. Tests are named `CRATE path` (of its library),
//! `CRATE/TARGET path` (of an integration test), `loom:CRATE path`; a path that ends with `*` names all that begin so.
//! They run in their order.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::files::Tree;
use crate::tidy::Finding;

/// Where the lists are.
const LISTS: &str = "xtask/mutants";
const TESTS: &str = "a test is `CRATE path`, `CRATE/TARGET path` or `loom:CRATE path`";
/// The placeholder of the switch in a replacement.
const SWITCH: &str = "MUTANT";

/// A rewrite of one place in the sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) file: String,
    pub(crate) after: String,
    pub(crate) breaks: String,
    pub(crate) tests: Vec<Test>,
    pub(crate) equivalent: Option<String>,
    pub(crate) quick: bool,
    pub(crate) build: bool,
    pub(crate) original: String,
    pub(crate) replacement: String,
    pub(crate) list: String,
    pub(crate) line: usize,
}

/// A test of a crate's library, or of one of its integration tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Test {
    pub(crate) loom: bool,
    /// The crate's folder.
    pub(crate) krate: String,
    /// The integration test; none: the library.
    pub(crate) target: Option<String>,
    /// The test's path, or with a final `*` the beginning of some.
    pub(crate) path: String,
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (loom, target) = (if self.loom { "loom:" } else { "" }, self.target.as_deref());
        write!(f, "{loom}{}{}{} {}", self.krate, target.map_or("", |_| "/"), target.unwrap_or_default(), self.path)
    }
}

impl Test {
    fn parse(text: &str) -> Option<Test> {
        let (place, path) = text.split_once(' ')?;
        let (loom, place) = place.strip_prefix("loom:").map_or((false, place), |place| (true, place));
        let (krate, target) = place.split_once('/').map_or((place, None), |(krate, target)| (krate, Some(target)));
        let path = path.trim();
        let whole = !krate.is_empty() && !path.is_empty() && !path.contains(' ');
        whole.then(|| Test { loom, krate: krate.into(), target: target.map(Into::into), path: path.into() })
    }

    /// Whether the sources have such a test.
    fn is_in(&self, tree: &Tree) -> bool {
        let mut segments: Vec<&str> = self.path.split("::").collect();
        let name = segments.pop().unwrap_or_default();
        let declaration = match name.strip_suffix('*') {
            Some(beginning) => format!("fn {beginning}"),
            None => format!("fn {name}("),
        };
        let folder = match &self.target {
            Some(target) => {
                let folder = format!("crates/{}/tests/", self.krate);
                if !tree.has(&format!("{folder}{target}.rs")) && !tree.has(&format!("{folder}{target}/main.rs")) {
                    return false;
                }
                folder
            }
            None => format!("crates/{}/src/", self.krate),
        };
        // A module is a file, a folder, or in the file.
        let is_module = |path: &str, text: &str, module: &&str| {
            path.split(['/', '.']).any(|part| part == *module) || text.contains(&format!("mod {module} {{"))
        };
        tree.ending(".rs").any(|(path, text)| {
            let in_modules = || segments.iter().all(|module| is_module(path, text, module));
            path.starts_with(&folder) && text.contains(&declaration) && in_modules()
        })
    }
}

impl Mutant {
    /// Everything that decides what a run of it finds, but for the sources.
    pub(crate) fn text(&self) -> String {
        let tests: Vec<String> = self.tests.iter().map(Test::to_string).collect();
        format!("{}\n{}\n{}\n{}\n{}", self.file, self.after, self.original, self.replacement, tests.join("\n"))
    }

    fn finding(&self, message: String) -> Finding {
        Finding::new(&self.list, self.line, format!("mutant `{}`: {message}", self.name))
    }

    /// Where in the file's text the rewrite applies.
    fn place(&self, text: &str) -> Result<Range<usize>, String> {
        let squeezed = Squeezed::new(text);
        let begin = match self.after.as_str() {
            "" => 0,
            after => match &squeezed.find(after)[..] {
                [one] => one.end,
                found => return Err(format!("`after {after}` occurs {} times in {}", found.len(), self.file)),
            },
        };
        let mut found = squeezed.find(&self.original);
        found.retain(|range| range.start >= begin);
        match &found[..] {
            [one] => Ok(one.clone()),
            [first, ..] if !self.after.is_empty() => Ok(first.clone()),
            _ => Err(format!("what it replaces occurs {} times in {}", found.len(), self.file)),
        }
    }
}

/// A text whose runs of white space are single blanks, and where each byte of it came from.
struct Squeezed {
    text: String,
    from: Vec<usize>,
}

impl Squeezed {
    fn new(text: &str) -> Squeezed {
        let mut squeezed =
            Squeezed { text: String::with_capacity(text.len()), from: Vec::with_capacity(text.len() + 1) };
        for (at, c) in text.char_indices() {
            if !c.is_whitespace() {
                squeezed.text.push(c);
                squeezed.from.extend(at..at + c.len_utf8());
            } else if !squeezed.text.ends_with(' ') {
                squeezed.text.push(' ');
                squeezed.from.push(at);
            }
        }
        squeezed.from.push(text.len());
        squeezed
    }

    /// Where `wanted` occurs, in the text as it was.
    fn find(&self, wanted: &str) -> Vec<Range<usize>> {
        let wanted = Squeezed::new(wanted.trim()).text;
        let ends = |at: usize| self.from[at]..self.from[at + wanted.len() - 1] + 1;
        self.text.match_indices(&wanted).filter(|_| !wanted.is_empty()).map(|(at, _)| ends(at)).collect()
    }
}

/// All mutants of the lists in `tree`, in order.
///
/// # Errors
/// The fault of a list.
pub(crate) fn read(tree: &Tree) -> Result<Vec<Mutant>, Vec<Finding>> {
    let mut mutants: Vec<Mutant> = Vec::new();
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".txt").filter(|(path, _)| path.starts_with(&format!("{LISTS}/"))) {
        parse(path, text, &mut mutants, &mut findings);
    }
    for (i, mutant) in mutants.iter().enumerate() {
        if mutants[..i].iter().any(|other| other.name == mutant.name) {
            findings.push(mutant.finding("another one has this name".into()));
        }
    }
    if findings.is_empty() { Ok(mutants) } else { Err(findings) }
}

fn parse(list: &str, text: &str, mutants: &mut Vec<Mutant>, findings: &mut Vec<Finding>) {
    let mut open: Option<Mutant> = None;
    let mut groups: BTreeMap<String, Vec<Test>> = BTreeMap::new();
    let mut group: Option<String> = None;
    for (i, line) in text.lines().chain(std::iter::once("")).enumerate() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let value = rest.trim();
        let mut wrong = |message: String| findings.push(Finding::new(list, i + 1, message));
        match (word, &mut open) {
            ("", open) if value.is_empty() => {
                group = None;
                if let Some(mutant) = open.take() {
                    match lacking(&mutant) {
                        None => mutants.push(mutant),
                        Some(what) => findings.push(mutant.finding(what.into())),
                    }
                }
            }
            (word, _) if word.starts_with('#') => {}
            ("mutant", open @ None) if !value.is_empty() => {
                *open = Some(Mutant { name: value.into(), list: list.into(), line: i + 1, ..Mutant::default() });
            }
            ("group", None) if !value.is_empty() => {
                groups.insert(value.to_owned(), Vec::new());
                group = Some(value.to_owned());
            }
            ("mutant" | "group", _) => wrong(format!("an entry begins with `{word} NAME` after an empty line")),
            ("test", None) if group.is_some() => {
                match (Test::parse(value), group.as_ref().and_then(|name| groups.get_mut(name))) {
                    (Some(test), Some(tests)) => tests.push(test),
                    _ => wrong(format!("`{line}`: {TESTS}")),
                }
            }
            (_, None) => wrong(format!("`{word}` outside an entry: it begins with `mutant NAME`")),
            ("class", Some(mutant)) => mutant.class = value.into(),
            ("file", Some(mutant)) => mutant.file = value.into(),
            ("after", Some(mutant)) => mutant.after = value.into(),
            ("breaks", Some(mutant)) => mutant.breaks = value.into(),
            ("equivalent", Some(mutant)) => mutant.equivalent = Some(value.into()),
            ("quick", Some(mutant)) => mutant.quick = true,
            ("build", Some(mutant)) => mutant.build = true,
            ("test", Some(mutant)) => match Test::parse(value) {
                Some(test) => mutant.tests.push(test),
                None => wrong(format!("`{line}`: {TESTS}")),
            },
            ("tests", Some(mutant)) => match groups.get(value) {
                Some(tests) => mutant.tests.extend(tests.iter().cloned()),
                None => wrong(format!("there is no group `{value}` before")),
            },
            ("-", Some(mutant)) => mutant.original += &format!("{rest}\n"),
            ("+", Some(mutant)) => mutant.replacement += &format!("{rest}\n"),
            (word, _) => wrong(format!(
                "`{word}`: a line begins with mutant, group, class, file, after, breaks, test, tests, equivalent, \
                 quick, build, - or +"
            )),
        }
    }
}

/// The missing part of a finished entry.
fn lacking(mutant: &Mutant) -> Option<&'static str> {
    let Mutant { class, file, breaks, tests, equivalent, original, replacement, build, .. } = mutant;
    [
        (class.is_empty(), "it has no `class`"),
        (!file.starts_with("crates/") || !file.contains("/src/"), "its `file` is none of crates/*/src"),
        (breaks.is_empty(), "it does not say what it `breaks`"),
        (tests.is_empty() && equivalent.is_none(), "it has neither a `test` nor a reason why it is `equivalent`"),
        (equivalent.as_ref().is_some_and(String::is_empty), "`equivalent` without a reason"),
        (original.trim().is_empty(), "it has no lines with `-`"),
        (!build && !replacement.contains(SWITCH), "its replacement has no MUTANT, and it is no `build`"),
    ]
    .into_iter()
    .find_map(|(lacks, what)| lacks.then_some(what))
}

/// A file with the rewrites of all mutants in it, each behind its switch. The mutant `built` is on for good,
/// other `build`s are left out. `switch` is the expression for a mutant's number, its place in `mutants` and
/// one more.
pub(crate) fn rewrite(
    text: &str,
    path: &str,
    mutants: &[Mutant],
    built: Option<&str>,
    switch: impl Fn(usize) -> String,
) -> Result<String, Vec<Finding>> {
    let mut places: Vec<(Range<usize>, &Mutant, String)> = Vec::new();
    let mut findings = Vec::new();
    for (i, mutant) in mutants.iter().enumerate().filter(|(_, mutant)| mutant.file == path) {
        match mutant.place(text) {
            Err(message) => findings.push(mutant.finding(message)),
            Ok(_) if mutant.build && built != Some(&mutant.name) => {}
            Ok(place) => {
                let on = if mutant.build { "true".to_owned() } else { switch(i + 1) };
                places.push((place, mutant, mutant.replacement.replace(SWITCH, &on)));
            }
        }
    }
    places.sort_by_key(|(place, ..)| place.start);
    let (mut done, mut rewritten) = (0, String::with_capacity(text.len()));
    for (place, mutant, replacement) in &places {
        if place.start < done {
            findings.push(mutant.finding("it overlaps with the one before it in the file: replace less".into()));
            continue;
        }
        rewritten += &text[done..place.start];
        rewritten += replacement.trim_end();
        done = place.end;
    }
    rewritten += &text[done..];
    if findings.is_empty() { Ok(rewritten) } else { Err(findings) }
}

/// The rule of tidy: every list can be read, each rewrite applies in one place, each test is there.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mutants = match read(tree) {
        Ok(mutants) => mutants,
        Err(findings) => return findings,
    };
    let mut findings = Vec::new();
    let mut files: Vec<&str> = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    for file in files {
        match tree.text(file) {
            Some(text) => {
                findings.extend(rewrite(text, file, &mutants, None, |_| String::new()).err().unwrap_or_default())
            }
            None => {
                let lost = mutants.iter().filter(|mutant| mutant.file == file);
                findings.extend(lost.map(|mutant| mutant.finding(format!("there is no file {file}"))));
            }
        }
    }
    for mutant in &mutants {
        let lost = mutant.tests.iter().filter(|test| !test.is_in(tree));
        findings.extend(lost.map(|test| mutant.finding(format!("there is no test `{test}`"))));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_one;

    const SOURCE: &str = "fn f() {\n    if a  &&\n        b {\n        g();\n    }\n    g();\n}\n";
    const ENTRY: &str = "# A comment.\nmutant one\nclass recheck\nfile crates/store/src/a.rs\nbreaks All.\n\
                         test store tests::it_holds\nquick\n- if a && b {\n+ if a && (MUTANT || b) {\n";

    fn tree<'a>(list: &'a str, source: &'a str) -> Tree {
        let test = ("crates/store/src/tests.rs", "#[test]\nfn it_holds() {}");
        Tree::of(&[("xtask/mutants/store.txt", list), ("crates/store/src/a.rs", source), test])
    }

    #[test]
    fn a_rewrite_has_both_behind_its_switch() {
        let tree = tree(ENTRY, SOURCE);
        assert_eq!(check(&tree), []);
        let mutants = read(&tree).expect("a sound list");
        assert!(mutants[0].quick && !mutants[0].build && mutants[0].breaks == "All.");
        assert_eq!(mutants[0].tests[0].to_string(), "store tests::it_holds");
        let rewritten = rewrite(SOURCE, "crates/store/src/a.rs", &mutants, None, |n| format!("on({n})"));
        assert_eq!(
            rewritten.as_deref(),
            Ok("fn f() {\n    if a && (on(1) || b) {\n        g();\n    }\n    g();\n}\n")
        );
    }

    #[test]
    fn an_anchor_chooses_among_several() {
        let entry =
            ENTRY.replace("- if a && b {\n+ if a && (MUTANT || b) {", "after a && b {\n- g();\n+ if !MUTANT { g() }");
        let mutants = read(&tree(&entry, SOURCE)).expect("a sound list");
        let rewritten = rewrite(SOURCE, "crates/store/src/a.rs", &mutants, None, |_| "on".into()).expect("it applies");
        assert!(rewritten.ends_with("{\n        if !on { g() }\n    }\n    g();\n}\n"), "{rewritten}");
    }

    #[test]
    fn a_group_stands_for_its_tests() {
        let group = "group all\ntest store tests::it_holds\ntest store tests::*\n\n";
        let list = group.to_owned() + &ENTRY.replace("test store tests::it_holds", "tests all");
        assert_eq!(read(&tree(&list, SOURCE)).map(|mutants| mutants[0].tests.len()), Ok(2));
        assert_eq!(check(&tree(&list, SOURCE)), []);
        assert_one(
            &check(&tree(&list.replace("tests all", "test store tests::it_holds\ntests some"), SOURCE)),
            &["group `some`"],
        );
    }

    #[test]
    fn a_build_is_left_out_until_it_is_built() {
        let entry = ENTRY.replace("quick", "build").replace("MUTANT", "true");
        let mutants = read(&tree(&entry, SOURCE)).expect("a sound list");
        let with = |built| {
            rewrite(SOURCE, "crates/store/src/a.rs", &mutants, built, |_| panic!("no switch")).expect("it applies")
        };
        assert_eq!(with(None), SOURCE);
        assert!(with(Some("one")).contains("(true || b)"));
    }

    #[test]
    fn canary_a_list_that_rots_is_found() {
        assert_one(&check(&tree(ENTRY, "fn f() {}")), &["store.txt:2", "`one`", "0 times", "a.rs"]);
        assert_one(&check(&tree(ENTRY, &format!("{SOURCE}{SOURCE}"))), &["2 times"]);
        assert_one(&check(&tree(&ENTRY.replace("/a.rs", "/b.rs"), SOURCE)), &["no file", "b.rs"]);
        assert_one(&check(&tree(&ENTRY.replace("it_holds", "it_held"), SOURCE)), &["no test", "it_held"]);
        assert_one(&check(&tree(&ENTRY.replace("store tests", "store/tests tests"), SOURCE)), &["no test"]);
        assert_one(
            &check(&tree(&ENTRY.replace("store tests", "store other"), SOURCE)),
            &["no test", "other::it_holds"],
        );
        let two = format!("{ENTRY}\n{}", ENTRY.replace("mutant one", "mutant two"));
        assert_one(&check(&tree(&two, SOURCE)), &["`two`", "overlaps"]);
        assert_one(&check(&tree(&format!("{ENTRY}\n{ENTRY}"), SOURCE)), &["this name"]);
    }

    #[test]
    fn canary_a_list_that_cannot_be_read_is_found() {
        for (from, to, words) in [
            ("class recheck\n", "", "class"),
            ("breaks All.\n", "", "breaks"),
            ("test store tests::it_holds\n", "", "equivalent"),
            ("test store tests::it_holds\n", "equivalent\n", "without a reason"),
            ("MUTANT || ", "", "MUTANT"),
            ("- if a && b {\n", "", "`-`"),
            ("quick\n", "swift\n", "`swift`"),
            ("mutant one\n", "mutant one\nmutant two\n", "empty line"),
            ("crates/store/src/a.rs", "xtask/src/a.rs", "crates/*/src"),
            ("store tests::it_holds", "store", "CRATE path"),
        ] {
            let findings = check(&tree(&ENTRY.replace(from, to), SOURCE));
            assert!(findings.iter().any(|finding| finding.to_string().contains(words)), "{words}: {findings:?}");
        }
        assert_one(&check(&tree("class recheck\n", SOURCE)), &["outside an entry"]);
    }
}
