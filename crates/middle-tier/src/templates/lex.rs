//! Cuts SQL into tokens, as far as is needed to compare two texts.
//!
//! Invariant: a text that cannot be read is refused (comments, dollar-quoted and escaped strings). A transaction that
//! is refused is forwarded. Tokens are only compared: the bytes that are sent are the client's.

/// A token of SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A keyword or an identifier, in lower case.
    Word(Box<str>),
    /// A quoted identifier.
    Quoted(Box<str>),
    /// A number as written, without sign.
    Number(Box<str>),
    /// The contents of a string.
    Text(Box<str>),
    /// `$1` is 1.
    Parameter(u16),
    /// `:name`, only in templates.
    Name(Box<str>),
    /// Any other character.
    Sign(char),
}

/// The dialect of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// A template's dialect: `:name` is a parameter.
    Template,
    /// A client's dialect.
    Client {
        /// Whether a backslash in a string is a backslash (`standard_conforming_strings`).
        conforming: bool,
    },
}

/// The tokens of a text. `None` if some part cannot be read.
pub(crate) fn tokens(text: &str, dialect: Dialect) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let bytes = rest.as_bytes();
        let after = &rest[first.len_utf8()..];
        let next = after.chars().next();
        match first {
            ' ' | '\t' | '\n' | '\r' | '\x0c' => rest = after,
            '\0' => return None,
            '-' if next == Some('-') => return None,
            '/' if next == Some('*') => return None,
            '\'' | '"' => {
                let (said, tail) = quoted(after, first)?;
                if first == '"' {
                    tokens.push(Token::Quoted(said));
                } else if said.contains('\\') && dialect == (Dialect::Client { conforming: false }) {
                    return None;
                } else {
                    tokens.push(Token::Text(said));
                }
                rest = tail;
            }
            '$' => {
                let (digits, tail) = span(after, |c| c.is_ascii_digit());
                tokens.push(Token::Parameter(digits.parse().ok()?));
                rest = tail;
            }
            ':' if next == Some(':') => {
                tokens.extend([Token::Sign(':'), Token::Sign(':')]);
                rest = &after[1..];
            }
            ':' if dialect == Dialect::Template && next.is_some_and(begins_word) => {
                let (name, tail) = span(after, continues_word);
                tokens.push(Token::Name(name.into()));
                rest = tail;
            }
            _ if begins_word(first) => {
                let (word, tail) = span(rest, continues_word);
                // E'…', B'…', X'…', N'…'.
                if tail.starts_with('\'') {
                    return None;
                }
                tokens.push(Token::Word(word.to_ascii_lowercase().into()));
                rest = tail;
            }
            _ if first.is_ascii_digit() || first == '.' && next.is_some_and(|c| c.is_ascii_digit()) => {
                let mut end = 0;
                while let Some(&byte) = bytes.get(end) {
                    let is_exponent = matches!(byte, b'+' | b'-') && end > 0 && matches!(bytes[end - 1], b'e' | b'E');
                    if !byte.is_ascii_alphanumeric() && byte != b'.' && !is_exponent {
                        break;
                    }
                    end += 1;
                }
                tokens.push(Token::Number(rest[..end].into()));
                rest = &rest[end..];
            }
            _ => {
                tokens.push(Token::Sign(first));
                rest = after;
            }
        }
    }
    Some(tokens)
}

/// The text before the closing quote, and the rest behind it. A doubled quote stands for one quote.
fn quoted(text: &str, quote: char) -> Option<(Box<str>, &str)> {
    let mut said = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once(quote)?;
        said.push_str(before);
        match after.strip_prefix(quote) {
            Some(tail) => {
                said.push(quote);
                rest = tail;
            }
            None => return Some((said.into(), after)),
        }
    }
}

fn span(text: &str, within: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !within(c)).unwrap_or(text.len()))
}

fn begins_word(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

fn continues_word(c: char) -> bool {
    begins_word(c) || c.is_ascii_digit() || c == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Dialect = Dialect::Client { conforming: true };

    #[test]
    fn equal_texts_have_equal_tokens() {
        let one = tokens("UPDATE Accounts  SET balance=balance-10.5e+3 WHERE \"Id\"='o''k' AND x::int=$12", CLIENT);
        let other =
            tokens("update accounts set balance = balance - 10.5e+3\nwhere \"Id\" = 'o''k' and x :: int = $12", CLIENT);
        assert!(one.is_some());
        assert_eq!(one, other);
        let word = |text: &str| Token::Word(text.into());
        assert_eq!(
            tokens("a=:b::c", Dialect::Template),
            Some(vec![
                word("a"),
                Token::Sign('='),
                Token::Name("b".into()),
                Token::Sign(':'),
                Token::Sign(':'),
                word("c")
            ])
        );
        assert_ne!(tokens("select \"A\"", CLIENT), tokens("select \"a\"", CLIENT));
        assert_ne!(tokens("select 'A'", CLIENT), tokens("select 'a'", CLIENT));
    }

    #[test]
    fn unreadable_text_is_refused() {
        for text in ["a -- b", "a /* b */", "E'a'", "x'00'", "$$a$$", "$tag$a$tag$", "'open", "\"open", "a\0", "$99999"]
        {
            assert_eq!(tokens(text, CLIENT), None, "{text}");
        }
        assert!(tokens(r"'a\'", CLIENT).is_some());
        assert_eq!(tokens(r"'a\'", Dialect::Client { conforming: false }), None);
    }
}
