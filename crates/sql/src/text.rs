//! From a text to statements.
//!
//! The grammar is that of the crate `sqlparser`. Before it, the few forms that clients send and it refuses are put into
//! other words. It also takes much that PostgreSQL refuses: whoever binds a statement refuses each part that it does
//! not use ([`crate::form`]).
//!
//! Invariant: the depth of a statement has a bound, so no code that follows it recursively exhausts a stack of
//! [`crate::STACK_BYTES`].

use std::borrow::Cow;
use std::ops::Range;

use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Word};

use crate::error::{SqlError, SqlState};
use crate::roles::{self, Problem};
use crate::sequence::{self, AlterIdentity, AlterSequence, Own, SetConstraints};

/// Parentheses and the like can be nested this deep.
const NESTING_MAX: usize = 48;

/// So many operators can stand between two commas, those in parentheses there included. Each may make the tree one
/// deeper.
const OPERATORS_MAX: usize = 300;

/// A statement in a text that may not be complete yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it stands, in bytes.
    pub range: Range<usize>,
    /// Whether a semicolon ends it.
    pub is_ended: bool,
}

/// The statements of a text, without what is only blank or comment. A quote or comment without an end belongs to the
/// last.
///
/// ```
/// let text = "select ';'; -- a comment\nselect 'more";
/// let parts = seriatim_sql::split(text);
/// assert_eq!((&text[parts[0].range.clone()], parts[0].is_ended), ("select ';';", true));
/// assert_eq!((&text[parts[1].range.clone()], parts[1].is_ended), ("select 'more", false));
/// ```
pub fn split(text: &str) -> Vec<Part> {
    let (mut places, mut tokens) = (Places::of(text), Vec::new());
    let tokenized = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location_into_buf(&mut tokens);
    let (mut parts, mut start) = (Vec::new(), None);
    for token in &tokens {
        match token.token {
            Token::Whitespace(_) | Token::EOF => {}
            Token::SemiColon => {
                let end = places.byte(token.span.end);
                parts.extend(start.take().map(|start| Part { range: start..end, is_ended: true }));
            }
            _ => drop(start.get_or_insert(places.byte(token.span.start))),
        }
    }
    if let Err(error) = tokenized {
        start.get_or_insert(places.byte(error.location));
    }
    let last = start.map(|start| Part { range: start..text.trim_end().len().max(start), is_ended: false });
    parts.extend(last);
    parts
}

/// A text for those who may not see passwords: without what follows the word.
///
/// ```
/// assert_eq!(seriatim_sql::without_password("alter role ann PASSWORD 'x'"), "alter role ann PASSWORD (not shown)");
/// assert_eq!(seriatim_sql::without_password("select 1"), "select 1");
/// ```
pub fn without_password(text: &str) -> Cow<'_, str> {
    const WORD: &str = "password";
    let is_word = |at: &usize| {
        text.as_bytes()[*at..].get(..WORD.len()).is_some_and(|word| word.eq_ignore_ascii_case(WORD.as_bytes()))
    };
    match (0..text.len()).find(is_word) {
        None => Cow::Borrowed(text),
        Some(at) => Cow::Owned(format!("{} (not shown)", &text[..at + WORD.len()])),
    }
}

/// The most parameters that a statement can have.
pub(crate) const PARAMETERS_MAX: usize = 65_535;

/// The greatest number of a parameter in a text that [`parse`] takes; 0 without any.
pub(crate) fn parameters(text: &str) -> usize {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize().unwrap_or_default();
    let number = |token: &Token| match token {
        Token::Placeholder(parameter) => parameter.strip_prefix('$')?.parse::<usize>().ok(),
        _ => None,
    };
    tokens.iter().filter_map(number).max().unwrap_or(0).min(PARAMETERS_MAX)
}

/// A statement as it was written.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Statement(Box<Statement>),
    /// VACUUM or ANALYZE, which there is no need for.
    Maintenance(&'static str),
    /// One about roles.
    Roles(Box<roles::Statement>),
    AlterSequence(Box<AlterSequence>),
    AlterIdentity(Box<AlterIdentity>),
    Constraints(Box<SetConstraints>),
}

/// The statements of a text, in order. A text without any has none.
///
/// # Errors
/// The text is not SQL.
pub(crate) fn parse(text: &str) -> Result<Vec<Command>, SqlError> {
    if text.contains('\0') {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "a statement cannot have the character NUL"));
    }
    let mut places = Places::of(text);
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().map_err(|error| {
        let position = places.position(error.location);
        SqlError::new(SqlState::SYNTAX_ERROR, lower_first(&error.message)).at(position)
    })?;
    let mut parsed = Vec::new();
    for tokens in tokens.split(|token| token.token == Token::SemiColon) {
        let said = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_) | Token::EOF);
        let tokens: Vec<TokenWithSpan> = tokens.iter().filter(said).cloned().collect();
        if tokens.is_empty() {
            continue;
        }
        check_depth(&tokens, &places)?;
        if let Some(of_roles) = roles::parse(&tokens) {
            let statement = of_roles.map_err(|problem| match problem {
                Problem::Error(error) => error,
                Problem::At(at) => match tokens.get(at) {
                    // It may be a password.
                    Some(token) if matches!(token.token, Token::SingleQuotedString(_)) => {
                        let message = "syntax error at or near a string";
                        SqlError::new(SqlState::SYNTAX_ERROR, message).at(places.position(token.span.start))
                    }
                    Some(token) => near(token, text, &mut places),
                    None => near(&TokenWithSpan::wrap(Token::EOF), text, &mut places),
                },
            });
            parsed.push(Command::Roles(Box::new(statement?)));
            continue;
        }
        if let Some(own) = sequence::parse(&tokens) {
            let own = own.map_err(|(error, next)| failed(error, &next, text, &mut places))?;
            parsed.push(match own {
                Own::Sequence(alter) => Command::AlterSequence(Box::new(alter)),
                Own::Identity(alter) => Command::AlterIdentity(Box::new(alter)),
                Own::Constraints(set) => Command::Constraints(Box::new(set)),
            });
            continue;
        }
        parsed.push(match maintenance(&tokens) {
            Some(tag) => Command::Maintenance(tag),
            None => Command::Statement(Box::new(statement(in_other_words(tokens), text, &mut places)?)),
        });
    }
    Ok(parsed)
}

fn statement(tokens: Vec<TokenWithSpan>, text: &str, places: &mut Places<'_>) -> Result<Statement, SqlError> {
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_recursion_limit(2 * NESTING_MAX).with_tokens_with_locations(tokens);
    let parsed = parser.parse_statement();
    let next = parser.peek_token();
    match parsed {
        Ok(statement) if next.token == Token::EOF => Ok(statement),
        Ok(_) => Err(near(&next, text, places)),
        Err(error) => Err(failed(error, &next, text, places)),
    }
}

/// The error of a parser that has come to this token.
fn failed(error: ParserError, next: &TokenWithSpan, text: &str, places: &mut Places<'_>) -> SqlError {
    match error {
        ParserError::RecursionLimitExceeded => too_complex(),
        ParserError::ParserError(said) | ParserError::TokenizerError(said) => {
            // The parser may have looked ahead: its words say where it found what it did not expect.
            let found = place_in(&said).and_then(|place| places.position(place));
            near(next, text, places).at_instead(found, text).detail(said)
        }
    }
}

/// The error that PostgreSQL gives for this token.
fn near(token: &TokenWithSpan, text: &str, places: &mut Places<'_>) -> SqlError {
    match token.token {
        Token::EOF => {
            let end = text.chars().count() + 1;
            SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input").at(Some(end))
        }
        _ => {
            let word = &text[places.byte(token.span.start)..places.byte(token.span.end)];
            let message = format!("syntax error at or near \"{word}\"");
            SqlError::new(SqlState::SYNTAX_ERROR, message).at(places.position(token.span.start))
        }
    }
}

impl SqlError {
    /// The same error at another character, if one is known: names the word there.
    fn at_instead(mut self, position: Option<usize>, text: &str) -> SqlError {
        let Some(position) = position else { return self };
        let word: String = text.chars().skip(position - 1).take_while(|c| !c.is_whitespace() && *c != ';').collect();
        if !word.is_empty() {
            self.message = format!("syntax error at or near \"{word}\"");
            self.position = Some(position);
        }
        self
    }
}

fn too_complex() -> SqlError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "the statement is nested too deeply").hint(format!(
        "Parentheses can be nested {NESTING_MAX} deep, and {OPERATORS_MAX} operators can follow each other. A long \
         list of alternatives can be written with IN."
    ))
}

/// Refuses statements whose trees would be too deep.
fn check_depth(tokens: &[TokenWithSpan], places: &Places<'_>) -> Result<(), SqlError> {
    // For each parenthesis that is open: the operators since the last comma, and the most before one.
    let (mut outer, mut count, mut most) = (Vec::new(), 0, 0);
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => outer.push((std::mem::take(&mut count), std::mem::take(&mut most))),
            Token::RParen | Token::RBracket => {
                // What stands in parentheses is an operand of what is around it.
                if let Some((before, most_before)) = outer.pop() {
                    (count, most) = (before + most.max(count), most_before);
                }
            }
            Token::Comma => (count, most) = (0, most.max(count)),
            Token::Word(Word { keyword, .. }) => {
                let joins = matches!(
                    keyword,
                    Keyword::AND
                        | Keyword::OR
                        | Keyword::NOT
                        | Keyword::IS
                        | Keyword::NOTNULL
                        | Keyword::CASE
                        | Keyword::UNION
                        | Keyword::EXCEPT
                        | Keyword::INTERSECT
                        | Keyword::MINUS
                        | Keyword::JOIN
                        | Keyword::COLLATE
                        | Keyword::AT
                        | Keyword::IN
                        | Keyword::LIKE
                        | Keyword::ILIKE
                        | Keyword::SIMILAR
                        | Keyword::RLIKE
                        | Keyword::REGEXP
                        | Keyword::DIV
                        | Keyword::XOR
                        | Keyword::MEMBER
                        | Keyword::OVERLAPS
                        | Keyword::OPERATOR
                );
                count += usize::from(joins);
            }
            Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_) | Token::Period => {}
            _ => count += 1,
        }
        if outer.len() >= NESTING_MAX || count > OPERATORS_MAX {
            return Err(too_complex().at(places.position(token.span.start)));
        }
    }
    Ok(())
}

fn is_word(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case(word))
}

/// The tag of a statement for which there is nothing to do.
fn maintenance(tokens: &[TokenWithSpan]) -> Option<&'static str> {
    let first = tokens.first()?;
    ["VACUUM", "ANALYZE"].into_iter().find(|tag| is_word(first, tag))
}

/// Locks of rows have two strengths here: `NO KEY` and `KEY` make no difference. Options of COPY are TRUE, not ON.
fn in_other_words(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if tokens.first().is_some_and(|first| is_word(first, "COPY")) {
        for at in 1..tokens.len() {
            let is_option = ["FREEZE", "HEADER"].iter().any(|option| is_word(&tokens[at - 1], option));
            for (word, instead) in [("ON", "TRUE"), ("OFF", "FALSE")] {
                if is_option && is_word(&tokens[at], word) {
                    tokens[at].token = Token::make_keyword(instead);
                }
            }
        }
    }
    if tokens.first().is_some_and(|first| is_word(first, "FETCH")) {
        tokens = fetch(tokens);
    }
    let (mut words, mut at) = (Vec::with_capacity(tokens.len()), 0);
    while let Some(token) = tokens.get(at) {
        words.push(token.clone());
        at += 1;
        if is_word(token, "FOR") {
            at += match &tokens[at..] {
                [no, key, update, ..] if is_word(no, "NO") && is_word(key, "KEY") && is_word(update, "UPDATE") => 2,
                [key, share, ..] if is_word(key, "KEY") && is_word(share, "SHARE") => 1,
                _ => 0,
            };
        }
    }
    words
}

/// FETCH with all of its words: how many rows, FROM, and the cursor.
fn fetch(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    // A negative number is one word.
    if let Some(at) = tokens.iter().position(|token| token.token == Token::Minus)
        && let Some(TokenWithSpan { token: Token::Number(digits, is_long), .. }) = tokens.get(at + 1)
    {
        tokens[at].token = Token::Number(format!("-{digits}"), *is_long);
        tokens.remove(at + 1);
    }
    let Some(cursor) = tokens.pop().filter(|_| !tokens.is_empty()) else { return tokens };
    let word = |word: Token| TokenWithSpan { token: word, span: cursor.span };
    let has_from = tokens.last().is_some_and(|last| is_word(last, "FROM") || is_word(last, "IN"));
    let from = if has_from { tokens.pop() } else { None };
    match &tokens[..] {
        [_] => tokens.push(word(Token::make_keyword("NEXT"))),
        [_, only] if is_word(only, "FORWARD") => tokens[1].token = Token::make_keyword("NEXT"),
        [_, only] if is_word(only, "BACKWARD") => tokens[1].token = Token::make_keyword("PRIOR"),
        _ => {}
    }
    tokens.push(from.unwrap_or_else(|| word(Token::make_keyword("FROM"))));
    tokens.push(cursor);
    tokens
}

/// The place that a message of the parser ends with.
fn place_in(said: &str) -> Option<Location> {
    let (_, place) = said.rsplit_once("Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some(Location { line: line.parse().ok()?, column: column.trim().parse().ok()? })
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Places in a text: the tokenizer's lines and columns, as bytes and as characters.
struct Places<'t> {
    text: &'t str,
    /// The byte and the character at which each line begins.
    lines: Vec<(usize, usize)>,
    /// The last place that was looked for, and its byte: the next one is mostly behind it.
    last: (Location, usize),
}

impl<'t> Places<'t> {
    fn of(text: &'t str) -> Places<'t> {
        let mut lines = vec![(0, 0)];
        for (characters, (bytes, character)) in text.char_indices().enumerate() {
            if character == '\n' {
                lines.push((bytes + 1, characters + 1));
            }
        }
        Places { text, lines, last: (Location { line: 1, column: 1 }, 0) }
    }

    /// The number of a character, from 1. None at the end of the text.
    fn position(&self, place: Location) -> Option<usize> {
        let (_, characters) = self.lines.get(usize::try_from(place.line).ok()?.checked_sub(1)?)?;
        Some(characters + usize::try_from(place.column).ok()?)
    }

    fn byte(&mut self, place: Location) -> usize {
        let line = usize::try_from(place.line).unwrap_or(usize::MAX).saturating_sub(1);
        let Some(&(mut start, _)) = self.lines.get(line) else { return self.text.len() };
        let mut columns = place.column.saturating_sub(1);
        let (last, byte) = self.last;
        if last.line == place.line && last.column <= place.column {
            (start, columns) = (byte, place.column - last.column);
        }
        let columns = usize::try_from(columns).unwrap_or(usize::MAX);
        let byte = self.text[start..].char_indices().nth(columns).map_or(self.text.len(), |(bytes, _)| start + bytes);
        self.last = (place, byte);
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> SqlError {
        parse(text).map(|parsed| panic!("{text} is {parsed:?}")).unwrap_err()
    }

    #[test]
    fn a_text_is_split_where_semicolons_separate_statements() {
        let count = |text: &str| parse(text).expect("it is SQL").len();
        assert_eq!(count("select 1"), 1);
        assert_eq!(count(" select ';' ; -- ;\n /* ; */ begin;; select $$;$$;"), 3);
        assert_eq!(count("select 'ä';\nselect 'é'"), 2);
        for empty in ["", ";", " ;; ", "-- ping", "/* */"] {
            assert_eq!(count(empty), 0, "{empty}");
        }
    }

    #[test]
    fn errors_say_where() {
        let error = refused("select * frm t");
        assert_eq!((error.state, error.position), (SqlState::SYNTAX_ERROR, Some(14)));
        assert_eq!(refused("selec 1").message, "syntax error at or near \"selec\"");
        assert_eq!(refused("selec 1").position, Some(1));
        assert_eq!(refused("select 'é';\nselec 1").position, Some(13));
        assert_eq!(refused("insert into t").message, "syntax error at end of input");
        assert_eq!(refused("select 'unfinished").state, SqlState::SYNTAX_ERROR);
        assert_eq!(refused("select \0").state, SqlState::SYNTAX_ERROR);
    }

    #[test]
    fn statements_that_are_nested_too_deeply_are_refused() {
        let nested = |depth: usize| format!("select {}1{}", "(".repeat(depth), ")".repeat(depth));
        assert!(parse(&nested(20)).is_ok());
        let sum = |terms: usize| format!("select {}1", "1 + ".repeat(terms));
        assert!(parse(&sum(OPERATORS_MAX)).is_ok());
        let rows = format!("insert into t values {}(1)", "(1 + 1, -2), ".repeat(3_000));
        assert!(parse(&rows).is_ok());
        for deep in [nested(NESTING_MAX), nested(1_000_000), sum(OPERATORS_MAX + 1), "select not ".repeat(5_000)] {
            assert_eq!(refused(&deep).state, SqlState::STATEMENT_TOO_COMPLEX);
        }
    }

    #[test]
    fn forms_that_the_grammar_lacks_are_put_into_other_words() {
        let said = |text: &str| match &parse(text).expect("it is SQL")[0] {
            Command::Statement(statement) => statement.to_string(),
            Command::Maintenance(tag) => (*tag).to_owned(),
            other => format!("{other:?}"),
        };
        assert_eq!(said("vacuum analyze t"), "VACUUM");
        assert_eq!(said("analyze t"), "ANALYZE");
        assert_eq!(said("select 1 from t for no key update"), "SELECT 1 FROM t FOR UPDATE");
        assert_eq!(said("select 1 from t for key share"), "SELECT 1 FROM t FOR SHARE");
    }
}
