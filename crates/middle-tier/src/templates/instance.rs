//! Recognizes transactions that are instances of a template: token by token, with values in place of the parameters.

use std::collections::BTreeMap;
use std::sync::Arc;

use seriatim_wire::messages::extendedquery::{Bind, Describe, Execute, Parse};

use super::lex::{self, Dialect, Token};
use super::{Kind, Template, Templates};

/// A value in its canonical text, so that equal values give equal keys however they are sent. `None` is NULL.
type Value = Option<Vec<u8>>;

/// A transaction that is an instance of a template, and the keys of the rows that it will use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    /// How often it may be retried.
    pub(crate) retry: u32,
    /// Its weight.
    pub(crate) weight: u32,
    pub(crate) reads: Vec<Vec<u8>>,
    pub(crate) writes: Vec<Vec<u8>>,
}

/// A statement that a client has prepared. `None` if it cannot be read or no template has it.
pub(crate) type Prepared = Option<Arc<Vec<Token>>>;

/// The values of a `Bind`.
struct Bound<'a>(&'a Bind);

impl Bound<'_> {
    /// The value of `$number`. `None` if it is missing or cannot be read.
    fn value(&self, number: u16, kind: Kind) -> Option<Value> {
        let at = usize::from(number).checked_sub(1)?;
        let Some(bytes) = self.0.parameters.get(at)? else { return Some(None) };
        let formats = &self.0.parameter_format_codes;
        let is_binary = match formats.len() {
            0 => false,
            1 => formats[0] == 1,
            _ => *formats.get(at)? == 1,
        };
        match (is_binary, kind) {
            (false, _) => Some(Some(plain(bytes, kind))),
            (true, Kind::Text) => Some(Some(bytes.to_vec())),
            (true, Kind::Integer) => {
                let number = match **bytes {
                    [a, b] => i16::from_be_bytes([a, b]).into(),
                    [a, b, c, d] => i32::from_be_bytes([a, b, c, d]).into(),
                    ref bytes => i64::from_be_bytes(bytes.try_into().ok()?),
                };
                Some(Some(number.to_string().into_bytes()))
            }
        }
    }
}

fn plain(text: &[u8], kind: Kind) -> Vec<u8> {
    let number = || std::str::from_utf8(text).ok()?.trim().parse::<i64>().ok();
    match kind {
        Kind::Integer => number().map_or_else(|| text.to_vec(), |number| number.to_string().into_bytes()),
        Kind::Text => text.to_vec(),
    }
}

impl Template {
    /// Whether a statement matches this one with these values. Records new values.
    fn unify(&self, at: usize, statement: &[Token], bound: Option<&Bound<'_>>, values: &mut [Option<Value>]) -> bool {
        let Some(expected) = self.statements.get(at) else { return false };
        let mut given = statement.iter();
        for token in expected {
            let Token::Name(name) = token else {
                if given.next() != Some(token) {
                    return false;
                }
                continue;
            };
            let place = self.parameters.iter().position(|(known, _)| **known == **name);
            let place = place.expect("names in statements are parameters");
            let kind = self.parameters[place].1;
            let text = |text: &str| Some(Some(plain(text.as_bytes(), kind)));
            let value = match given.next() {
                Some(Token::Number(number)) => text(number),
                Some(Token::Text(said)) => text(said),
                Some(Token::Word(word)) if **word == *"null" => Some(None),
                Some(Token::Word(word)) if matches!(&**word, "true" | "false") => text(word),
                Some(Token::Parameter(number)) => bound.and_then(|bound| bound.value(*number, kind)),
                Some(Token::Sign('-')) => match given.next() {
                    Some(Token::Number(number)) => text(&format!("-{number}")),
                    _ => None,
                },
                _ => None,
            };
            let Some(value) = value else { return false };
            match &values[place] {
                Some(known) if *known != value => return false,
                _ => values[place] = Some(value),
            }
        }
        given.next().is_none()
    }

    /// Whether every instance of the other template is also an instance of this one.
    pub(super) fn covers(&self, other: &Template) -> bool {
        if self.statements.len() != other.statements.len() {
            return false;
        }
        // The tokens of the other template in place of each parameter of this one.
        let mut values: BTreeMap<&str, &[Token]> = BTreeMap::new();
        self.statements.iter().zip(&other.statements).all(|(expected, given)| {
            let mut rest = &given[..];
            let is_covered = expected.iter().all(|token| {
                let Token::Name(name) = token else {
                    return rest.split_off_first() == Some(token);
                };
                let length = match rest {
                    [Token::Name(_) | Token::Number(_) | Token::Text(_), ..] => 1,
                    [Token::Word(word), ..] if matches!(&**word, "null" | "true" | "false") => 1,
                    [Token::Sign('-'), Token::Number(_), ..] => 2,
                    _ => return false,
                };
                let Some(value) = rest.split_off(..length) else { return false };
                let has_kind = match value {
                    [Token::Name(given)] => self.kind(name) == other.kind(given),
                    _ => true,
                };
                has_kind && *values.entry(name).or_insert(value) == value
            });
            is_covered && rest.is_empty()
        })
    }

    fn kind(&self, name: &str) -> Option<Kind> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, kind)| *kind)
    }

    fn instance(&self, values: &[Option<Value>]) -> Instance {
        let named = |keys: &[super::KeyPattern]| keys.iter().map(|key| key.with(values)).collect();
        Instance { retry: self.retry, weight: self.weight, reads: named(&self.reads), writes: named(&self.writes) }
    }

    fn unbound(&self) -> Vec<Option<Value>> {
        vec![None; self.parameters.len()]
    }
}

impl Templates {
    /// Recognizes a transaction in one message.
    pub(crate) fn in_message(&self, text: &str, conforming: bool) -> Option<Instance> {
        let tokens = lex::tokens(text, Dialect::Client { conforming })?;
        let statements: Vec<_> = tokens.split(|token| *token == Token::Sign(';')).filter(|s| !s.is_empty()).collect();
        let [begin, statements @ .., commit] = &statements[..] else { return None };
        if !self.is_begin(begin) || !is_commit(commit) {
            return None;
        }
        self.list.iter().find_map(|template| {
            let mut values = template.unbound();
            let mut matches = |(at, statement): (usize, &&[Token])| template.unify(at, statement, None, &mut values);
            let is_instance =
                statements.len() == template.statements.len() && statements.iter().enumerate().all(&mut matches);
            is_instance.then(|| template.instance(&values))
        })
    }

    /// Reads a statement for [`Pipeline`]s.
    pub(crate) fn prepare(&self, text: &str, conforming: bool) -> Prepared {
        let mut tokens = lex::tokens(text, Dialect::Client { conforming })?;
        // Programs of libpq send the statement as the user typed it.
        while tokens.pop_if(|token| *token == Token::Sign(';')).is_some() {}
        Some(Arc::new(tokens))
    }

    /// Reads a statement that a client prepares by name, for later pipelines. `None` also if no template's
    /// transaction has it.
    pub(crate) fn prepare_named(&self, text: &str, conforming: bool) -> Prepared {
        let is_like = |statement: &[Token]| {
            let mut expected = self.list.iter().flat_map(|template| &template.statements);
            is_commit(statement) || self.is_begin(statement) || expected.any(|expected| resembles(expected, statement))
        };
        self.prepare(text, conforming).filter(|tokens| is_like(tokens))
    }

    /// Whether a statement begins a serializable transaction, and does nothing else.
    fn is_begin(&self, statement: &[Token]) -> bool {
        let Some(words) = words(statement) else { return false };
        let mut rest = match &words[..] {
            ["begin", "work" | "transaction", rest @ ..]
            | ["begin", rest @ ..]
            | ["start", "transaction", rest @ ..] => rest,
            _ => return false,
        };
        let mut is_serializable = self.plain_is_serializable;
        while !rest.is_empty() {
            rest = match rest {
                ["isolation", "level", "serializable", rest @ ..] => {
                    is_serializable = true;
                    rest
                }
                ["read", "write" | "only", rest @ ..] => rest,
                _ => return false,
            };
            if let [",", tail @ ..] = rest {
                if tail.is_empty() {
                    return false;
                }
                rest = tail;
            }
        }
        is_serializable
    }
}

/// Whether a statement matches this one of a template for some values.
fn resembles(expected: &[Token], statement: &[Token]) -> bool {
    let mut given = statement.iter();
    let is_alike = expected.iter().all(|token| match (token, given.next()) {
        (Token::Name(_), Some(Token::Sign('-'))) => matches!(given.next(), Some(Token::Number(_))),
        (Token::Name(_), Some(value)) => {
            matches!(value, Token::Parameter(_) | Token::Number(_) | Token::Text(_) | Token::Word(_))
        }
        (_, given) => given == Some(token),
    });
    is_alike && given.next().is_none()
}

/// Whether a statement commits, and does nothing else.
fn is_commit(statement: &[Token]) -> bool {
    matches!(words(statement).as_deref(), Some(["commit" | "end"] | ["commit" | "end", "work" | "transaction"]))
}

/// The words of a statement, if it has only words and commas.
fn words(statement: &[Token]) -> Option<Vec<&str>> {
    fn word(token: &Token) -> Option<&str> {
        match token {
            Token::Word(word) => Some(word),
            Token::Sign(',') => Some(","),
            _ => None,
        }
    }
    statement.iter().map(word).collect()
}

/// A pipeline that may become an instance. Its messages are `Parse`, `Bind`, `Describe` and `Execute` for one statement
/// after another. It uses only unnamed portals. Its statements are unnamed, or were prepared by name before.
#[derive(Debug)]
pub(crate) struct Pipeline {
    /// Templates that may match, with the values of their parameters.
    candidates: Vec<(usize, Vec<Option<Value>>)>,
    /// The number of bound statements.
    bound: usize,
    step: Step,
    is_committed: bool,
}

#[derive(Debug)]
enum Step {
    /// Between two statements.
    Between,
    Parsed(Arc<Vec<Token>>),
    Bound {
        is_control: bool,
    },
}

impl Pipeline {
    pub(crate) fn new(templates: &Templates) -> Pipeline {
        let candidates = templates.list.iter().enumerate().map(|(at, template)| (at, template.unbound()));
        Pipeline { candidates: candidates.collect(), bound: 0, step: Step::Between, is_committed: false }
    }

    /// Adds a message. Each of these methods returns whether the pipeline may still match.
    pub(crate) fn parse(&mut self, templates: &Templates, parse: &Parse, conforming: bool) -> bool {
        let is_expected = matches!(self.step, Step::Between) && parse.name.is_none() && !self.is_committed;
        let Some(tokens) = is_expected.then(|| templates.prepare(&parse.query, conforming)).flatten() else {
            return false;
        };
        // A first statement that is not BEGIN cannot match.
        if self.bound == 0 && !templates.is_begin(&tokens) {
            return false;
        }
        self.step = Step::Parsed(tokens);
        true
    }

    pub(crate) fn bind(&mut self, templates: &Templates, bind: &Bind, named: impl FnOnce(&str) -> Prepared) -> bool {
        let statement = match (&self.step, &bind.statement_name) {
            (Step::Parsed(tokens), None) => Some(Arc::clone(tokens)),
            (Step::Between, Some(name)) => named(name),
            _ => None,
        };
        let Some(statement) = statement.filter(|_| bind.portal_name.is_none() && !self.is_committed) else {
            return false;
        };
        let is_control = match self.bound {
            0 => {
                if !templates.is_begin(&statement) {
                    return false;
                }
                true
            }
            bound if is_commit(&statement) => {
                self.candidates.retain(|(at, _)| templates.list[*at].statements.len() == bound - 1);
                self.is_committed = true;
                true
            }
            bound => {
                self.candidates.retain_mut(|(at, values)| {
                    templates.list[*at].unify(bound - 1, &statement, Some(&Bound(bind)), values)
                });
                false
            }
        };
        self.bound += 1;
        self.step = Step::Bound { is_control };
        !self.candidates.is_empty()
    }

    pub(crate) fn describe(&mut self, describe: &Describe) -> bool {
        let is_expected = match self.step {
            Step::Parsed(_) => describe.target_type == b'S',
            Step::Bound { .. } => describe.target_type == b'P',
            Step::Between => false,
        };
        is_expected && describe.name.is_none()
    }

    pub(crate) fn execute(&mut self, execute: &Execute) -> bool {
        let Step::Bound { is_control } = self.step else { return false };
        self.step = Step::Between;
        // With a row limit the statement may not be executed to its end.
        execute.name.is_none() && (is_control || execute.max_rows == 0)
    }

    /// Completes the pipeline.
    pub(crate) fn sync(self, templates: &Templates) -> Option<Instance> {
        let is_complete = matches!(self.step, Step::Between) && self.is_committed;
        let (at, values) = self.candidates.into_iter().next().filter(|_| is_complete)?;
        Some(templates.list[at].instance(&values))
    }
}
