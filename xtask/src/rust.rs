//! Just enough Rust to look for names: tokens without comments and literals, and without what only tests compile.

/// A name, a number, or a punctuation mark (`::` is one); literals in quotes are `""`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

/// The tokens of a source file.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let bytes = source.as_bytes();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let start = at;
        let first = bytes[at];
        at = if first.is_ascii_whitespace() {
            at + 1
        } else if bytes[at..].starts_with(b"//") {
            bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |end| at + end)
        } else if bytes[at..].starts_with(b"/*") {
            block_comment(bytes, at)
        } else if let Some(end) = string(bytes, at).or_else(|| character(bytes, at)) {
            tokens.push(Token { text: "\"\"", line });
            end
        } else {
            let end = match first {
                b'\'' => word(bytes, at + 1),
                b':' if bytes.get(at + 1) == Some(&b':') => at + 2,
                _ if is_word(first) => word(bytes, at),
                _ => at + 1,
            };
            tokens.push(Token { text: &source[at..end], line });
            end
        };
        line += bytes[start..at].iter().filter(|&&b| b == b'\n').count();
    }
    tokens
}

/// Letters, digits, the underscore, and every byte of a name outside ASCII.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn word(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| !is_word(b)).map_or(bytes.len(), |end| at + end)
}

fn block_comment(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The end of a string literal that begins here: `"…"`, `r#"…"#`, with a `b` or `c` before.
fn string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut next = at;
    if matches!(bytes[next], b'b' | b'c') {
        next += 1;
    }
    let raw = bytes.get(next) == Some(&b'r');
    next += usize::from(raw);
    let hashes = if raw { bytes[next..].iter().take_while(|&&b| b == b'#').count() } else { 0 };
    next += hashes;
    if bytes.get(next) != Some(&b'"') {
        return None;
    }
    next += 1;
    while next < bytes.len() {
        match bytes[next] {
            b'\\' if !raw => next += 2,
            b'"' if bytes[next + 1..].iter().take(hashes).filter(|&&b| b == b'#').count() == hashes => {
                return Some(next + 1 + hashes);
            }
            _ => next += 1,
        }
    }
    Some(bytes.len())
}

/// The end of a character literal that begins here; a lifetime is none.
fn character(bytes: &[u8], at: usize) -> Option<usize> {
    let quote = at + usize::from(bytes[at] == b'b');
    if bytes.get(quote) != Some(&b'\'') {
        return None;
    }
    match bytes.get(quote + 1)? {
        b'\\' => bytes.get(quote + 3..)?.iter().position(|&b| b == b'\'').map(|end| quote + 3 + end + 1),
        first => {
            let width = match first {
                0..0x80 => 1,
                0x80..0xE0 => 2,
                0xE0..0xF0 => 3,
                0xF0.. => 4,
            };
            (bytes.get(quote + 1 + width) == Some(&b'\'')).then_some(quote + 2 + width)
        }
    }
}

/// A source file without what only tests compile, and the modules it declares for tests only.
#[derive(Debug, Default)]
pub(crate) struct Shipped<'a> {
    pub(crate) tokens: Vec<Token<'a>>,
    pub(crate) test_modules: Vec<&'a str>,
}

/// Drops every item under `#[test]`, or under a `#[cfg]` that cannot hold without `test` or `loom`.
pub(crate) fn shipped<'a>(tokens: &[Token<'a>]) -> Shipped<'a> {
    let mut shipped = Shipped::default();
    let mut at = 0;
    while at < tokens.len() {
        let inner = usize::from(tokens.get(at + 1).is_some_and(|token| token.text == "!"));
        if tokens[at].text != "#" || tokens.get(at + 1 + inner).is_none_or(|token| token.text != "[") {
            shipped.tokens.push(tokens[at]);
            at += 1;
            continue;
        }
        let end = closing(tokens, at + 1 + inner);
        let for_tests = only_tests(&tokens[at + 2 + inner..end.saturating_sub(1).max(at + 2 + inner)]);
        if for_tests && inner == 1 {
            return Shipped::default();
        }
        if for_tests {
            let (name, after) = item(tokens, end);
            shipped.test_modules.extend(name);
            at = after;
        } else {
            shipped.tokens.extend_from_slice(&tokens[at..end]);
            at = end;
        }
    }
    shipped
}

/// Whether an attribute keeps its item out of what is shipped.
fn only_tests(attribute: &[Token<'_>]) -> bool {
    match attribute.first().map(|token| token.text) {
        Some("test") => attribute.len() == 1,
        Some("cfg") => when_shipped(attribute.get(2..attribute.len() - 1).unwrap_or_default()) == Some(false),
        _ => false,
    }
}

/// The value of a predicate of `cfg` in shipped code, where neither `test` nor `loom` is set; `None` if that depends on
/// others.
fn when_shipped(predicate: &[Token<'_>]) -> Option<bool> {
    let parts = || {
        let mut rest = predicate.get(2..predicate.len() - 1).unwrap_or_default();
        std::iter::from_fn(move || {
            rest.first()?;
            let end = match rest.get(1).map(|token| token.text) {
                Some("(") => closing(rest, 1),
                _ => rest.iter().position(|token| token.text == ",").unwrap_or(rest.len()),
            };
            let part = when_shipped(&rest[..end]);
            rest = rest.get(end + 1..).unwrap_or_default();
            Some(part)
        })
    };
    match predicate.first()?.text {
        "test" | "loom" => Some(false),
        "not" => parts().next()?.map(|holds| !holds),
        "all" if parts().any(|part| part == Some(false)) => Some(false),
        "any" if parts().any(|part| part == Some(true)) => Some(true),
        name @ ("all" | "any") if parts().all(|part| part.is_some()) => Some(name == "all"),
        _ => None,
    }
}

/// The position after the bracket that closes the one at `at`.
fn closing(tokens: &[Token<'_>], at: usize) -> usize {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The item, field or statement at `at`: its name if it is a module without body here, and the position after it.
fn item<'a>(tokens: &[Token<'a>], mut at: usize) -> (Option<&'a str>, usize) {
    while tokens.get(at).is_some_and(|token| token.text == "#") {
        at = closing(tokens, at + 1);
    }
    const ITEMS: &[&str] = &[
        "pub",
        "unsafe",
        "async",
        "const",
        "extern",
        "fn",
        "mod",
        "struct",
        "impl",
        "enum",
        "trait",
        "use",
        "static",
        "type",
        "macro_rules",
        "let",
        "union",
    ];
    let is_item = tokens.get(at).is_some_and(|token| ITEMS.contains(&token.text));
    let start = at;
    while at < tokens.len() {
        match tokens[at].text {
            ";" => {
                let module = tokens[start..at].iter().rev().nth(1).is_some_and(|token| token.text == "mod");
                return (module.then(|| tokens[at - 1].text), at + 1);
            }
            "," if !is_item => return (None, at + 1),
            "{" => return (None, closing(tokens, at)),
            "(" | "[" => at = closing(tokens, at),
            ")" | "]" | "}" => return (None, at),
            _ => at += 1,
        }
    }
    (None, at)
}

/// Every path that begins with one of `roots`, with braces multiplied out, and the line of its last name.
pub(crate) fn paths<'a>(tokens: &[Token<'a>], roots: &[&str]) -> Vec<(Vec<&'a str>, usize)> {
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        // A `::` before it continues a path only behind a name or `>`.
        let continues = i >= 2
            && tokens[i - 1].text == "::"
            && tokens[i - 2].text.ends_with(|c| c == '>' || c == '_' || char::is_alphanumeric(c));
        if !continues && roots.contains(&token.text) && tokens.get(i + 1).is_some_and(|next| next.text == "::") {
            expand(tokens, i, &mut Vec::new(), &mut found);
        }
    }
    found
}

/// Expands the path at `at` behind `prefix`; the position after it.
fn expand<'a>(
    tokens: &[Token<'a>],
    mut at: usize,
    prefix: &mut Vec<&'a str>,
    found: &mut Vec<(Vec<&'a str>, usize)>,
) -> usize {
    let depth = prefix.len();
    while let Some(token) = tokens.get(at) {
        if token.text == "{" {
            let end = closing(tokens, at);
            at += 1;
            while at + 1 < end {
                at = expand(tokens, at, prefix, found);
                // `as name` and the comma.
                while at + 1 < end && tokens[at].text != "," {
                    at += 1;
                }
                at += 1;
            }
            prefix.truncate(depth);
            return end;
        }
        prefix.push(token.text);
        at += 1;
        if tokens.get(at).is_none_or(|next| next.text != "::") {
            found.push((prefix.clone(), token.line));
            break;
        }
        at += 1;
    }
    prefix.truncate(depth);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).iter().map(|token| token.text).collect()
    }

    fn shipped_texts(source: &str) -> String {
        shipped(&tokens(source)).tokens.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_hide_their_contents() {
        assert_eq!(texts("a // b\n/* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(texts(r##"x("b \" c", r#"d " e"#, b"f", '\'', 'g', '"', 'é') y"##).last(), Some(&"y"));
        assert_eq!(texts("<'a> b::c"), ["<", "'a", ">", "b", "::", "c"]);
        assert_eq!(texts("r#type + br#\"x\"# - break")[..2], ["r", "#"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let found = tokens("/*\n\n*/ \"\n\" a\nb");
        assert_eq!(found.iter().map(|token| token.line).collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn code_that_only_tests_compile_is_dropped() {
        assert_eq!(
            shipped_texts("fn a() {} #[cfg(test)] mod tests { fn b() { {} } } fn c() {}"),
            "fn a ( ) { } fn c ( ) { }"
        );
        assert_eq!(shipped_texts("#[test] #[ignore] fn f<A, B>() { } x"), "x");
        assert_eq!(shipped_texts("struct S { #[cfg(test)] a: u8, b: u8 }"), "struct S { b : u8 }");
        assert_eq!(shipped_texts("#[cfg(all(test, unix))] use a::b; x"), "x");
        assert_eq!(shipped_texts("#[cfg(all(test, not(loom)))] fn f() {} x"), "x");
        assert_eq!(shipped_texts("#[cfg(any(test, all(loom, unix)))] fn f() {} x"), "x");
        assert_eq!(shipped_texts("#![cfg(loom)] fn f() {}"), "");
        assert_eq!(
            shipped(&tokens("#[cfg(test)] mod canary; #[cfg(test)] pub(crate) mod b { }")).test_modules,
            ["canary"]
        );
    }

    #[test]
    fn code_that_is_also_shipped_stays() {
        assert!(shipped_texts("#[cfg(not(test))] fn f() {}").contains('f'));
        assert!(shipped_texts("#[cfg(any(test, feature = \"small\"))] fn f() {}").contains('f'));
        assert!(shipped_texts("#[cfg(all(not(test), feature = \"small\"))] fn f() {}").contains('f'));
        assert!(shipped_texts("#[cfg_attr(test, derive(Debug))] struct f;").contains('f'));
    }

    #[test]
    fn braces_in_paths_are_multiplied_out() {
        let source = "use std::{a, b::{c as x, d}, self};\nstd::e::f(); my::std::g;";
        let tokens = tokens(source);
        let found: Vec<String> = paths(&tokens, &["std"]).iter().map(|(path, _)| path.join("::")).collect();
        assert_eq!(found, ["std::a", "std::b::c", "std::b::d", "std::self", "std::e::f"]);
    }
}
