//! Templates describe the transactions that are batched, and the rows that these will use.
//!
//! A template has a name, statements with parameters, and keys: names of the rows that it reads and writes,
//! made of the parameters' values. A transaction is an instance if it is serializable and has exactly these
//! statements between `BEGIN` and `COMMIT` (`instance`). The first template of the file that matches is used.

mod instance;
mod lex;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use lex::{Dialect, Token};

pub(crate) use instance::{Instance, Pipeline, Prepared};

/// A file of templates that uses every setting.
pub const EXAMPLE: &str = r#"# Whether BEGIN alone begins a serializable transaction, because the role or the database
# has default_transaction_isolation = serializable. Otherwise: BEGIN ISOLATION LEVEL SERIALIZABLE.
plain_begin_is_serializable = false

[[template]]
name = "transfer"
parameters = { from = "integer", to = "integer", amount = "integer" }
# The statements between BEGIN and COMMIT.
statements = [
    "UPDATE accounts SET balance = balance - :amount WHERE id = :from",
    "UPDATE accounts SET balance = balance + :amount WHERE id = :to",
]
# The rows that are read and written: any text, with values of parameters. Equal texts name the same row.
reads = []
writes = ["accounts/:from", "accounts/:to"]
# How often it is retried after 40001 or 40P01, before the client gets the error. 0: never.
retry = 3
# Of transactions that conflict in any order, those of more weight run first. The default is 1.
weight = 1
"#;

/// Words with which a template's statement may begin: statements that a transaction can contain and that can be
/// retried.
const STATEMENTS: [&str; 9] = ["select", "insert", "update", "delete", "merge", "with", "values", "lock", "set"];
const RETRY_MAX: u32 = 1000;

/// All templates of a middle tier.
#[derive(Clone, Debug, Default)]
pub struct Templates {
    list: Vec<Template>,
    plain_is_serializable: bool,
}

#[derive(Clone, Debug)]
struct Template {
    name: String,
    parameters: Vec<(String, Kind)>,
    statements: Vec<Vec<Token>>,
    reads: Vec<KeyPattern>,
    writes: Vec<KeyPattern>,
    retry: u32,
    weight: u32,
}

/// How a parameter's values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// As numbers: `smallint`, `integer`, `bigint`.
    Integer,
    /// As text, byte for byte.
    Text,
}

/// A key of a template: text and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern(Vec<KeyPiece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyPiece {
    Text(String),
    Value(usize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    plain_begin_is_serializable: bool,
    #[serde(default)]
    template: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    #[serde(default)]
    parameters: BTreeMap<String, Kind>,
    statements: Vec<Spanned<String>>,
    #[serde(default)]
    reads: Vec<Spanned<String>>,
    #[serde(default)]
    writes: Vec<Spanned<String>>,
    #[serde(default)]
    retry: u32,
    #[serde(default = "one")]
    weight: u32,
}

fn one() -> u32 {
    1
}

impl Templates {
    /// Reads a file of templates (TOML, as [`EXAMPLE`]).
    ///
    /// # Errors
    /// When the file is invalid. The text has the line and the valid form.
    pub fn parse(text: &str) -> Result<Templates, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(String::new(), |span| format!("line {}: ", line_of(text, span.start)));
            format!("{line}{}", error.message())
        })?;
        if file.template.is_empty() {
            return Err("there is no [[template]] in it".into());
        }
        let mut list: Vec<Template> = Vec::new();
        for entry in file.template {
            let at = entry.name.span().start;
            let template =
                Template::new(entry).map_err(|(at, message)| format!("line {}: {message}", line_of(text, at)))?;
            let (line, name) = (line_of(text, at), &template.name);
            if list.iter().any(|known| known.name == *name) {
                return Err(format!("line {line}: there is another template `{name}`: give it its own name"));
            }
            if let Some(known) = list.iter().find(|known| known.covers(&template)) {
                return Err(format!(
                    "line {line}: template `{name}` would never be used: all its transactions are instances of `{}`, \
                     which comes before it. Move `{name}` before `{}`, or leave it out",
                    known.name, known.name
                ));
            }
            list.push(template);
        }
        Ok(Templates { list, plain_is_serializable: file.plain_begin_is_serializable })
    }

    /// Whether there are no templates.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Their names, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|template| template.name.as_str())
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

impl Template {
    fn new(entry: Entry) -> Result<Template, (usize, String)> {
        let Entry { name, parameters, statements, reads, writes, retry, weight } = entry;
        let (start, name) = (name.span().start, name.into_inner());
        if name.trim().is_empty() {
            return Err((start, "a template's name is empty: give it one".into()));
        }
        let whole = |message: String| Err((start, format!("template `{name}` {message}")));
        let parameters: Vec<_> = parameters.into_iter().collect();
        let mut is_used = vec![false; parameters.len()];
        let place = |name: &str| parameters.iter().position(|(known, _)| known == name);
        if let Some((odd, _)) = parameters.iter().find(|(name, _)| !is_name(name)) {
            return whole(format!(
                "has a parameter `{odd}`: a name has letters, digits and `_` and begins with a letter"
            ));
        }
        let mut lists = Vec::new();
        for text in &statements {
            let at = text.span().start;
            let fail = |message: String| Err((at, message));
            let Some(tokens) = lex::tokens(text.get_ref(), Dialect::Template) else {
                return fail("a statement with comments, escaped or dollar-quoted strings cannot be compared".into());
            };
            if tokens.contains(&Token::Sign(';')) {
                return fail("one text is one statement, without `;`: give each its own".into());
            }
            if let Some(Token::Parameter(number)) = tokens.iter().find(|token| matches!(token, Token::Parameter(_))) {
                return fail(format!("${number} is a client's parameter: a template's has a name, as :amount"));
            }
            match tokens.first() {
                Some(Token::Word(word)) if STATEMENTS.contains(&&**word) => {}
                Some(Token::Word(word)) if matches!(&**word, "begin" | "start" | "commit" | "end") => {
                    return fail("BEGIN and COMMIT surround the statements of every template: omit them".into());
                }
                _ => return fail(format!("a statement begins with one of {}", STATEMENTS.join(", "))),
            }
            if changes_isolation(&tokens) {
                return fail(
                    "a statement would change the isolation level: leave it out, or write SET TRANSACTION ISOLATION \
                     LEVEL SERIALIZABLE"
                        .into(),
                );
            }
            for token in &tokens {
                if let Token::Name(name) = token {
                    let Some(place) = place(name) else {
                        return fail(format!(
                            "`:{name}` is not a parameter: add {name} = \"integer\" or \"text\" to parameters"
                        ));
                    };
                    is_used[place] = true;
                }
            }
            lists.push(tokens);
        }
        let keys = |keys: &[Spanned<String>]| {
            let key = |key: &Spanned<String>| {
                KeyPattern::new(key.get_ref(), &place).map_err(|message| (key.span().start, message))
            };
            let patterns = keys.iter().map(key).collect::<Result<Vec<_>, _>>()?;
            match (1..patterns.len()).find(|&at| patterns[..at].contains(&patterns[at])) {
                Some(at) => {
                    Err((keys[at].span().start, format!("the key `{}` occurs twice: omit one", keys[at].get_ref())))
                }
                None => Ok(patterns),
            }
        };
        let (reads, writes) = (keys(&reads)?, keys(&writes)?);
        if lists.is_empty() {
            return whole("has no statements".into());
        }
        if let Some(unused) = is_used.iter().position(|used| !used) {
            return whole(format!("has a parameter `{}` that no statement has", parameters[unused].0));
        }
        if reads.is_empty() && writes.is_empty() {
            return whole("has no keys: list the rows that it uses in reads and writes, as \"accounts/:from\"".into());
        }
        if retry > RETRY_MAX {
            return whole(format!("is retried at most {RETRY_MAX} times, and not {retry}"));
        }
        Ok(Template { name, parameters, statements: lists, reads, writes, retry, weight })
    }
}

/// Settings that determine the isolation level of this transaction, or of those that begin with `BEGIN` alone.
const ISOLATION_SETTINGS: [&str; 2] = ["transaction_isolation", "default_transaction_isolation"];

/// Whether a statement changes the isolation level, other than by `SET TRANSACTION ISOLATION LEVEL SERIALIZABLE`.
fn changes_isolation(statement: &[Token]) -> bool {
    let is_word = |token: Option<&Token>, word: &str| matches!(token, Some(Token::Word(known)) if **known == *word);
    let names = |names: &[&str]| {
        statement.iter().any(|token| match token {
            Token::Word(text) | Token::Quoted(text) | Token::Text(text) => {
                names.iter().any(|name| name.eq_ignore_ascii_case(text))
            }
            _ => false,
        })
    };
    let sets_level = |at: usize| {
        is_word(statement.get(at), "isolation")
            && is_word(statement.get(at + 1), "level")
            && !is_word(statement.get(at + 2), "serializable")
    };
    // `UPDATE pg_settings SET setting = …` changes a setting, too.
    is_word(statement.first(), "set") && (0..statement.len()).any(sets_level)
        || names(&ISOLATION_SETTINGS) && names(&["set", "set_config"])
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic()) && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl KeyPattern {
    fn new(text: &str, place: &impl Fn(&str) -> Option<usize>) -> Result<KeyPattern, String> {
        if text.trim().is_empty() {
            return Err("a key is empty: it must name a row or a table, as \"accounts/:from\"".into());
        }
        let mut parts = text.split(':');
        let mut list = vec![KeyPiece::Text(parts.next().unwrap_or_default().to_owned())];
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            let place = place(name);
            list.push(KeyPiece::Value(
                place.ok_or_else(|| format!("`:{name}` of the key `{text}` is not a parameter"))?,
            ));
            list.push(KeyPiece::Text(rest.to_owned()));
        }
        Ok(KeyPattern(list))
    }

    fn with(&self, values: &[Option<Option<Vec<u8>>>]) -> Vec<u8> {
        let mut key = Vec::new();
        for part in &self.0 {
            match part {
                KeyPiece::Text(text) => key.extend_from_slice(text.as_bytes()),
                KeyPiece::Value(place) => match &values[*place] {
                    Some(Some(value)) => key.extend_from_slice(value),
                    _ => key.extend_from_slice(b"NULL"),
                },
            }
        }
        key
    }
}
