//! Rules about text: whitespace, length, links, decision records, the change log, and paths of the machine it was
//! written on.

use std::collections::BTreeMap;
use std::path::Path;

use crate::files::{Tree, crate_of};
use crate::tidy::Finding;

/// Markdown has no tabs and no trailing whitespace.
pub(crate) fn whitespace(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (i, line) in text.split('\n').enumerate() {
            if line.contains('\t') {
                findings.push(Finding::new(path, i + 1, "tab: use spaces"));
            } else if line.trim_end() != line {
                findings.push(Finding::new(path, i + 1, "trailing whitespace"));
            }
        }
    }
    findings
}

/// Pages that a program writes: they have lines and sentences of its making.
const GENERATED: &[&str] = &["docs/figures/", "docs/nightly.md", "docs/rtm.md"];

/// Documents that people write.
fn written(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.ending(".md").filter(|(path, _)| !GENERATED.iter().any(|generated| path.starts_with(generated)))
}

const COLUMNS_MAX: usize = 120;

/// Lines of prose in Markdown end at the last space before column 120. Code and tables do not break.
pub(crate) fn columns(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in written(tree) {
        for (number, line) in prose(text) {
            let columns = line.chars().count();
            if columns <= COLUMNS_MAX || line.trim_start().starts_with(['|', '#', '!']) {
                continue;
            }
            // A line of one word, or of one piece of code, cannot break. The mark of a list item is no word.
            let item = line.trim().trim_start_matches("- ");
            let spaces = item.split('`').step_by(2).map(|piece| piece.matches(' ').count()).sum::<usize>();
            if spaces > 0 {
                let says = format!("{columns} columns: break the line before column {COLUMNS_MAX}");
                findings.push(Finding::new(path, number, says));
            }
        }
    }
    findings
}

/// The most words of a sentence. Numbers do not count; a piece of code is one word, and so is a link.
const SENTENCE_WORDS_MAX: usize = 25;

/// How many longer sentences documents and crates still have. The counts only fall.
const LONG: &str = "xtask/sentences.txt";

/// A document or crate has no more long sentences than its row in [`LONG`] says; without a row it has none.
pub(crate) fn sentences(tree: &Tree) -> Vec<Finding> {
    let allowed = match allowed(tree.text(LONG).unwrap_or_default()) {
        Ok(allowed) => allowed,
        Err(line) => return vec![Finding::new(LONG, line, "a row is a document or a crate, and a number above 0")],
    };
    let mut findings = Vec::new();
    for (place, long) in long(tree) {
        let most = allowed.get(&place).copied().unwrap_or(0);
        if long.len() > most {
            let more = if most == 0 { String::new() } else { format!("; {place} may have {most} such sentences") };
            findings.extend(long.into_iter().map(|(path, line, words)| {
                Finding::new(path, line, format!("{words} words, more than {SENTENCE_WORDS_MAX}: divide it{more}"))
            }));
        }
    }
    findings
}

/// # Errors
/// The line that is none of the table.
fn allowed(table: &str) -> Result<BTreeMap<String, usize>, usize> {
    let rows = (1_usize..).zip(table.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    rows.map(|(number, line)| {
        let (place, count) = line.split_once(' ').ok_or(number)?;
        Ok((place.to_owned(), count.trim().parse().ok().filter(|count| *count > 0).ok_or(number)?))
    })
    .collect()
}

/// `cargo xtask sentences`: prints every long sentence, and lowers the counts to what there is.
///
/// # Errors
/// When the table cannot be read or written.
pub(crate) fn update(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let text = tree.text(LONG).unwrap_or_default();
    let mut rows = allowed(text).map_err(|line| format!("{LONG}:{line}: not a row"))?;
    let found = long(&tree);
    found.values().flatten().for_each(|(path, line, words)| println!("{path}:{line}: {words} words"));
    rows.retain(|place, most| {
        *most = found.get(place).map_or(0, Vec::len).min(*most);
        *most > 0
    });
    let heads = text.lines().take_while(|line| line.starts_with('#')).map(str::to_owned);
    let lines = heads.chain(rows.iter().map(|(place, most)| format!("{place} {most}")));
    let text: String = lines.map(|line| line + "\n").collect();
    std::fs::write(root.join(LONG), text).map_err(|error| format!("{LONG}: {error}"))
}

/// A sentence: its file, the line that it begins in, and how many words it has.
type Sentence<'a> = (&'a str, usize, usize);

/// Sentences with too many words, by document and by crate. What names a year cites a paper.
fn long(tree: &Tree) -> BTreeMap<String, Vec<Sentence<'_>>> {
    let documents = written(tree).map(|(path, text)| (path, path, text.to_owned()));
    let sources = tree.ending(".rs").map(|(path, text)| (crate_of(path).unwrap_or(path), path, documentation(text)));
    let mut found: BTreeMap<String, Vec<Sentence<'_>>> = BTreeMap::new();
    for (place, path, text) in documents.chain(sources) {
        for (first, paragraph) in paragraphs(&text) {
            let lines = (first..).zip(paragraph.lines());
            let words: Vec<_> =
                lines.flat_map(|(at, line)| line.split_whitespace().map(move |word| (at, word))).collect();
            for sentence in words.split_inclusive(|(_, word)| ends(word)) {
                let count = sentence.iter().filter(|(_, word)| word.contains(char::is_alphabetic)).count();
                if count > SENTENCE_WORDS_MAX && !sentence.iter().any(|(_, word)| is_year(word)) {
                    found.entry(place.to_owned()).or_default().push((path, sentence[0].0, count));
                }
            }
        }
    }
    found
}

/// Whether a word is the last of its sentence.
fn ends(word: &str) -> bool {
    word.trim_end_matches([')', '*', '_', '"', ']']).ends_with(['.', '?', '!'])
}

/// Whether a word is a year in which a paper appeared.
fn is_year(word: &str) -> bool {
    let digits = word.trim_matches(|c: char| c.is_ascii_punctuation());
    digits.len() == 4 && digits.parse().is_ok_and(|year| (1950..2100).contains(&year))
}

/// The documentation in a Rust source, with each line where it is there.
fn documentation(source: &str) -> String {
    let text = |line: &str| {
        let line = line.trim_start();
        let inner = line.strip_prefix("//!");
        inner.or_else(|| line.strip_prefix("///").filter(|rest| !rest.starts_with('/'))).unwrap_or_default().to_owned()
    };
    source.lines().map(text).collect::<Vec<_>>().join("\n")
}

/// Paragraphs and list items outside tables and headings, with the line they begin in. A piece of code is one word, and
/// so is a link.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut open, mut last) = (false, 0);
    for (number, line) in prose(text) {
        let trimmed = line.trim_start();
        let digits = trimmed.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_item = trimmed.starts_with("- ") || (digits.len() < trimmed.len() && digits.starts_with(". "));
        let is_prose = !trimmed.is_empty() && !trimmed.starts_with(['|', '#', '!', '<']);
        // Fenced code lies between two lines that do not follow each other.
        if !open || is_item || !is_prose || number != last + 1 {
            found.push((number, String::new()));
        }
        (open, last) = (is_prose, number);
        if let Some((_, paragraph)) = found.last_mut().filter(|_| is_prose) {
            paragraph.push_str(trimmed);
            paragraph.push('\n');
        }
    }
    for (_, paragraph) in &mut found {
        // Every second piece between backticks is code.
        let pieces = paragraph.split('`').enumerate();
        let plain = pieces.map(|(i, piece)| if i % 2 == 1 { word("code", piece) } else { piece.to_owned() });
        *paragraph = with_links_as_words(&plain.collect::<String>());
    }
    found
}

/// A word in the place of a text. The lines after it keep their numbers.
fn word(word: &str, of: &str) -> String {
    word.to_owned() + &"\n".repeat(of.matches('\n').count())
}

/// `[text](target)`, `[text][name]` and `[name]` are a word each.
fn with_links_as_words(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, inner)) = rest.split_once('[') {
        plain.push_str(before);
        rest = inner;
        let Some(end) = inner.find(['[', ']']).filter(|end| inner[*end..].starts_with(']')) else { continue };
        let after = &inner[end + 1..];
        let close = match after.chars().next() {
            Some('(') => after.find(')'),
            Some('[') => after.find(']'),
            _ => None,
        };
        let end = end + 1 + close.map_or(0, |close| close + 1);
        plain.push_str(&word("link", &inner[..end]));
        rest = &inner[end..];
    }
    plain + rest
}

const ARCHITECTURE_BYTES_MAX: usize = 12 * 1024;

/// `ARCHITECTURE.md` is read in one sitting.
pub(crate) fn architecture(tree: &Tree) -> Vec<Finding> {
    const PATH: &str = "ARCHITECTURE.md";
    let Some(text) = tree.text(PATH) else {
        return vec![Finding::new(PATH, 0, "missing")];
    };
    match text.len() {
        0..=ARCHITECTURE_BYTES_MAX => Vec::new(),
        bytes => {
            let says =
                format!("{bytes} bytes, more than {ARCHITECTURE_BYTES_MAX}: move details to the README of a crate");
            vec![Finding::new(PATH, 0, says)]
        }
    }
}

/// Links in Markdown to files of the repository, and to headings in them, resolve.
pub(crate) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (target, line) in targets(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) =
                target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
            let resolved = if file.is_empty() { Some(path.to_owned()) } else { resolve(path, file) };
            let Some(resolved) = resolved.filter(|resolved| tree.has(resolved)) else {
                findings.push(Finding::new(path, line, format!("link to `{target}`: there is no such file")));
                continue;
            };
            let document = tree.text(&resolved).filter(|_| resolved.ends_with(".md"));
            if let (Some(heading), Some(document)) = (heading, document)
                && !headings(document).any(|known| known == heading)
            {
                findings.push(Finding::new(path, line, format!("link to `{target}`: there is no such heading")));
            }
        }
    }
    findings
}

/// A link's path seen from the root; `None` when it leaves the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Lines outside fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((i + 1, line))
    })
}

/// Targets of `[text](target)` and `[name]: target`, outside code.
fn targets(text: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        if let Some((name, target)) = line.split_once("]: ")
            && name.starts_with('[')
            && !name.starts_with("[^")
        {
            found.push((target.trim(), number));
        }
        // Every second piece between backticks is code.
        let mut at = 0;
        for (i, piece) in line.split('`').enumerate() {
            let piece_at = at;
            at += piece.len() + 1;
            if i % 2 == 1 {
                continue;
            }
            // A link's text may hold code, so `](` may open a piece whose `[` lies in an earlier one.
            for (offset, _) in piece.match_indices("](") {
                let rest = &line[piece_at + offset + 2..];
                if let Some(end) = rest.find(')') {
                    found.push((rest[..end].split(' ').next().unwrap_or_default(), number));
                }
            }
        }
    }
    found
}

/// The anchors that a document's headings get: lower case, spaces to hyphens, other punctuation dropped.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let kept = line.trim_start_matches('#').trim().chars().flat_map(char::to_lowercase);
        kept.filter_map(|c| match c {
            ' ' => Some('-'),
            _ if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
    })
}

const DECISIONS: &str = "docs/decisions";
const SECTIONS: &[&str] = &["## Context", "## Decision", "## Alternatives", "## Consequences"];

/// Decision records are numbered from 1 without gaps, carry their number, and have all their sections.
pub(crate) fn decisions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut records: BTreeMap<usize, &str> = BTreeMap::new();
    for path in tree.under(DECISIONS) {
        let name = path.rsplit('/').next().unwrap_or_default();
        let digits = name.split('-').next().unwrap_or_default();
        let Some(number) = digits.parse().ok().filter(|_| digits.len() == 4 && name.ends_with(".md")) else {
            findings.push(Finding::new(path, 0, "a decision record is named NNNN-what-was-decided.md"));
            continue;
        };
        if let Some(other) = records.insert(number, path) {
            findings.push(Finding::new(path, 0, format!("number {number} is taken by {other}")));
        }
        let text = tree.text(path).unwrap_or_default();
        if !text.starts_with(&format!("# {number}. ")) {
            findings.push(Finding::new(path, 1, format!("the first line is `# {number}. ` and a title")));
        }
        for section in SECTIONS.iter().filter(|section| !text.lines().any(|line| line == **section)) {
            findings.push(Finding::new(path, 0, format!("no section `{section}`")));
        }
    }
    for (expected, (number, path)) in (1..).zip(&records) {
        if *number != expected {
            findings.push(Finding::new(path, 0, format!("decision records have a gap: number {expected} is missing")));
            break;
        }
    }
    findings
}

const RELEASE_LINES_MAX: usize = 60;

/// The change log says what the next release brings, and each release in one screen.
pub(crate) fn changelog(tree: &Tree) -> Vec<Finding> {
    const PATH: &str = "CHANGELOG.md";
    let Some(text) = tree.text(PATH) else {
        return vec![Finding::new(PATH, 0, "missing")];
    };
    let mut findings = Vec::new();
    if !text.lines().any(|line| line == "## Unreleased") {
        findings.push(Finding::new(PATH, 0, "no section `## Unreleased`"));
    }
    let mut releases: Vec<(usize, &str, usize)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(release) = line.strip_prefix("## ") {
            releases.push((number, release, 0));
        } else if let Some((.., lines)) = releases.last_mut() {
            *lines += 1;
        }
    }
    for (number, release, lines) in releases.into_iter().filter(|(_, release, _)| *release != "Unreleased") {
        if lines > RELEASE_LINES_MAX {
            let says = format!(
                "{lines} lines of {release}, more than {RELEASE_LINES_MAX}: what users look up belongs to docs"
            );
            findings.push(Finding::new(PATH, number, says));
        }
        let date = release.split_once(" - ").map_or("", |(_, date)| date);
        if date.len() != 10 || date.chars().any(|c| !c.is_ascii_digit() && c != '-') {
            findings.push(Finding::new(PATH, number, format!("`{release}`: a release is `## VERSION - YYYY-MM-DD`")));
        }
    }
    findings
}

/// Folders of machines that this text was written on. Split, so that this file does not name them.
const MACHINE_PATHS: &[&str] = &[
    concat!("/", "work"),
    concat!("/", "tmp/target"),
    concat!("/", "root"),
    concat!("/", "home"),
    concat!("/", "Users"),
];

/// No tracked file names an absolute path of the machine it was written on.
pub(crate) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        for (i, line) in text.lines().enumerate() {
            for machine in MACHINE_PATHS.iter().filter(|machine| names_path(line, machine)) {
                findings.push(Finding::new(
                    path,
                    i + 1,
                    format!("`{machine}` is a path of one machine: make it relative"),
                ));
            }
        }
    }
    findings
}

/// Whether `line` has `path` as the whole beginning of an absolute path.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        // A target folder may have any suffix; the others must be whole folder names.
        let whole = path.ends_with("target") || after.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '-');
        whole && before.is_none_or(|c| !c.is_alphanumeric() && !"._-~/}>)*".contains(c))
    })
}

/// No comment or document names a number of a list that is kept elsewhere, such as a row of a plan. A reader could not
/// look it up.
pub(crate) fn codes(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        let is_document = path.ends_with(".md");
        if !is_document && !path.ends_with(".rs") {
            continue;
        }
        for (i, line) in text.lines().enumerate() {
            let prose = if is_document { line } else { line.find("//").map_or("", |at| &line[at..]) };
            if let Some(code) = code(prose) {
                findings.push(Finding::new(
                    path,
                    i + 1,
                    format!("`{code}` is a number in a list that is not here: say what it stands for"),
                ));
            }
        }
    }
    findings
}

/// A letter with a number, or a trap with one.
fn code(prose: &str) -> Option<String> {
    let is_word = |c: char| c.is_alphanumeric() || "_-=:\"`".contains(c);
    let words: Vec<&str> = prose.split(|c| !is_word(c)).filter(|word| !word.is_empty()).collect();
    let is_number = |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let named = |words: &[&str]| {
        let (first, second) = (words[0], words.get(1).map(|word| word.trim_end_matches(':')));
        let trap = matches!(first.to_ascii_lowercase().as_str(), "trap" | "traps") && second.is_some_and(is_number);
        let first = first.trim_end_matches(':');
        let coded = first.starts_with(|c| "BCDHNRX".contains(c)) && is_number(&first[1..]);
        match (trap, coded) {
            (true, _) => Some(words[..2].join(" ")),
            (_, true) => Some(first.to_owned()),
            _ => None,
        }
    };
    (0..words.len()).find_map(|at| named(&words[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_one;

    #[test]
    fn canary_codes_of_other_lists_are_found() {
        let (trap, row) = (concat!("tr", "ap 7"), concat!("D", "11"));
        assert_one(&codes(&document("src/a.rs", &format!("let x = 1; // {trap}: keys\n"))), &["src/a.rs:1", trap]);
        assert_one(&codes(&document("b.md", &format!("Reads ({row}).\n"))), &["b.md:1", row]);
        let fine = "let d7 = D7; // at most 7 traps of 2 KB in L2, U64, T1, (G0), `--D1=49152`\n";
        assert_eq!(codes(&document("src/a.rs", fine)), []);
    }

    fn document(path: &str, text: &str) -> Tree {
        Tree::of(&[(path, text), ("docs/a.md", "# A heading, `code`\n\n## Two\n"), ("src/lib.rs", "")])
    }

    #[test]
    fn canary_whitespace_is_found() {
        assert_one(&whitespace(&document("b.md", "x\ny \n")), &["b.md:2", "trailing"]);
        assert_one(&whitespace(&document("b.md", "\tx\n")), &["b.md:1", "tab"]);
        assert_one(&whitespace(&document("b.md", "x\r\n")), &["trailing"]);
        assert_eq!(whitespace(&document("b.md", "x\n\ny\n")), []);
    }

    #[test]
    fn canary_long_lines_are_found() {
        let long = format!("{} end\n", "word ".repeat(24));
        assert_one(&columns(&document("b.md", &format!("x\n{long}"))), &["b.md:2", "124 columns"]);
        let code = format!("- `{}`\n", "seriatim bench ".repeat(10));
        let row = format!("| {} |\n", "cell ".repeat(30));
        let fine = format!("{}\n{code}{row}# {}\n```\n{long}```\n", "x".repeat(120), "heading ".repeat(20));
        assert_eq!(columns(&document("b.md", &fine)), []);
        assert_eq!(columns(&document("docs/figures/b.md", &long)), [], "a program writes these");
        assert_one(&columns(&document("b.md", &format!("{code}{}", code.replace("- ", "- and ")))), &["b.md:2"]);
    }

    #[test]
    fn canary_long_sentences_are_found() {
        let words = |n: usize| "word\n".repeat(n - 1) + "end.";
        assert_eq!(sentences(&document("b.md", &format!("{} {}\n", words(25), words(25)))), []);
        assert_one(&sentences(&document("b.md", &format!("# Title\n\n{}\n", words(26)))), &["b.md:3", "26 words"]);
        assert_one(&sentences(&document("b.md", &format!("{}\n{}\n", words(9), words(26)))), &["b.md:10"]);
        let apart =
            format!("{}\n- {}\n1. x\n\n```text\n{}\n```\n{}\n", "w ".repeat(25), words(25), words(99), words(25));
        assert_eq!(sentences(&document("b.md", &apart)), [], "items, code and paragraphs are apart");
        let numbers = format!("{} 1 2.5 3 % `a b\nc` [d e](f/g) [`h` i] [j k][l]\nend.\n", "word ".repeat(20));
        assert_eq!(sentences(&document("b.md", &numbers)), [], "numbers are no words, code and links are one");
        assert_one(&sentences(&document("b.md", &numbers.replace("end", "the end"))), &["b.md:1"]);
        let half = format!("{}{{}} {}", words(13).replace('.', ""), words(13));
        for (mark, count) in [(":", 1), (";", 1), (",", 1), (".", 0), ("?)", 0)] {
            let text = half.replace("{}", mark);
            assert_eq!(sentences(&document("b.md", &text)).len(), count, "{mark}");
        }
        assert_eq!(sentences(&document("b.md", &half.replace("{}", " (VLDB 2018)"))), [], "a citation");
    }

    #[test]
    fn canary_long_sentences_of_comments_are_found_and_only_fall() {
        let words = "word ".repeat(26);
        let source = format!("//! {words}.\n// {words}\n//// {words}\n    /// Short.\n    /// {}\n", &words[..60]);
        let found = |source: &str, table| {
            let tree = Tree::of(&[("crates/a/src/lib.rs", source), ("crates/a/README.md", "Short.\n"), (LONG, table)]);
            sentences(&tree)
        };
        assert_one(&found(&source, ""), &["crates/a/src/lib.rs:1", "26 words"]);
        assert_eq!(found(&source, "# Rows.\na 1\n"), []);
        let twice = found(&source.replace("Short", &words), "a 1\n");
        assert!(twice.len() == 2 && twice[1].to_string().contains("lib.rs:4: 26 words"), "{twice:?}");
        assert!(twice[1].to_string().contains("a may have 1"), "{twice:?}");
        for wrong in ["a\n", "a 0\n", "a b\n"] {
            assert_one(&found(&source, wrong), &["sentences.txt:1", "a row is"]);
        }
    }

    #[test]
    fn canary_an_architecture_that_grows_is_found() {
        let of = |bytes| architecture(&Tree::of(&[("ARCHITECTURE.md", &"x".repeat(bytes))]));
        assert_eq!(of(12 * 1024), []);
        assert_one(&of(12 * 1024 + 1), &["ARCHITECTURE.md", "12289 bytes"]);
        assert_one(&architecture(&Tree::of(&[])), &["missing"]);
    }

    #[test]
    fn canary_a_long_or_undated_release_is_found() {
        let of = |text: String| changelog(&Tree::of(&[("CHANGELOG.md", &format!("## Unreleased\n{text}"))]));
        assert_eq!(of(format!("{}## 0.1.0 - 2026-11-26\n{}", "x\n".repeat(99), "x\n".repeat(60))), []);
        assert_one(&of(format!("## 0.1.0 - 2026-11-26\n{}", "x\n".repeat(61))), &["CHANGELOG.md:2", "61 lines"]);
        assert_one(&of("## 0.1.0\n".to_owned()), &["CHANGELOG.md:2", "YYYY-MM-DD"]);
    }

    #[test]
    fn links_that_resolve_pass() {
        let text = "[a](a.md) [b](../src/lib.rs) [c](a.md#two) [d](#here) [`e`](./) [f](https://x.y/z) \
            [g](a.md#a-heading-code)\n\
                    # Here\n```\n[not](a/link)\n```\n`[nor](this)`\n[h]: a.md\n";
        assert_eq!(links(&document("docs/b.md", text)), []);
    }

    #[test]
    fn canary_broken_links_are_found() {
        for (text, target) in [
            ("x\n[a](gone.md)", "gone.md"),
            ("x\n[`a`](gone.md)", "gone.md"),
            ("x\n[a]: gone.md", "gone.md"),
            ("x\n[a](../../out.md)", "out.md"),
            ("x\n[a](a.md#three)", "a.md#three"),
            ("x\n[a](#nowhere)", "#nowhere"),
        ] {
            assert_one(&links(&document("docs/b.md", text)), &["docs/b.md:2", target, "there is no such"]);
        }
    }

    const RECORD: &str = "\n## Context\n\n## Decision\n\n## Alternatives\n\n## Consequences\n";

    #[test]
    fn decision_records_in_sequence_pass() {
        let (one, two) = (format!("# 1. One\n{RECORD}"), format!("# 2. Two\n{RECORD}"));
        assert_eq!(
            decisions(&Tree::of(&[("docs/decisions/0001-one.md", &one), ("docs/decisions/0002-two.md", &two)])),
            []
        );
    }

    #[test]
    fn canary_broken_decision_records_are_found() {
        let (one, three) = (format!("# 1. One\n{RECORD}"), format!("# 3. Three\n{RECORD}"));
        let first = ("docs/decisions/0001-one.md", one.as_str());
        let with = |path, text| decisions(&Tree::of(&[first, (path, text)]));
        assert_one(&with("docs/decisions/0003-three.md", &three), &["gap", "number 2 is missing"]);
        assert_one(&with("docs/decisions/0001-other.md", &one), &["number 1 is taken"]);
        assert_one(&with("docs/decisions/notes.md", ""), &["NNNN"]);
        assert_one(&with("docs/decisions/0002-two.md", &one), &["# 2. "]);
        let short = format!("# 2. Two\n{}", RECORD.replace("## Alternatives\n", ""));
        assert_one(&with("docs/decisions/0002-two.md", &short), &["## Alternatives"]);
    }

    #[test]
    fn canary_a_change_log_without_its_next_section_is_found() {
        assert_one(&changelog(&Tree::of(&[("CHANGELOG.md", "# Changes\n")])), &["Unreleased"]);
        assert_one(&changelog(&Tree::of(&[])), &["CHANGELOG.md", "missing"]);
        assert_eq!(changelog(&Tree::of(&[("CHANGELOG.md", "## Unreleased\n")])), []);
    }

    #[test]
    fn canary_machine_paths_are_found() {
        for machine in MACHINE_PATHS {
            let found = machine_paths(&document("b.toml", &format!("x = 1\ny = \"{machine}/x\"")));
            assert_one(&found, &["b.toml:2", machine, "relative"]);
        }
        let fine = "crates/work/a load/work ./root/b https://x.y/home/z /workload /rooted a/tmp/target ../work";
        assert_eq!(machine_paths(&document("b.md", fine)), []);
    }
}
