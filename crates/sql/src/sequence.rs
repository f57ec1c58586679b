//! The syntax of sequences and identity columns, as far as the grammar lacks it, and what its options mean.

use seriatim::catalog::{ColumnType, IdentityKind, SequenceChange, SequenceDef, SequenceOptions};
use sqlparser::ast::{DataType, Expr, Ident, ObjectName, SequenceOptions as Syntax, UnaryOperator, Value as Literal};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::error::{SqlError, SqlState};
use crate::types::SqlType;

/// An option.
#[derive(Clone, Debug)]
pub(crate) enum Clause {
    As(DataType),
    Increment(i64),
    Minimum(Option<i64>),
    Maximum(Option<i64>),
    Start(i64),
    /// ALTER only.
    Restart(Option<i64>),
    Cache(i64),
    Cycle(bool),
    /// By a column, or by none.
    Owned(bool),
}

/// ALTER SEQUENCE.
#[derive(Clone, Debug)]
pub(crate) struct AlterSequence {
    pub(crate) if_exists: bool,
    pub(crate) name: ObjectName,
    pub(crate) to: Altered,
}

/// What becomes of a sequence.
#[derive(Clone, Debug)]
pub(crate) enum Altered {
    Options(Vec<Clause>),
    Name(Ident),
}

/// ALTER TABLE … ALTER COLUMN … of an identity column.
#[derive(Clone, Debug)]
pub(crate) struct AlterIdentity {
    pub(crate) if_exists: bool,
    pub(crate) table: ObjectName,
    pub(crate) column: Ident,
    pub(crate) to: Identity,
}

/// What becomes of an identity column.
#[derive(Clone, Debug)]
pub(crate) enum Identity {
    Set { kind: Option<IdentityKind>, options: Vec<Clause> },
    Drop { if_exists: bool },
}

/// A statement that the grammar lacks; none if the tokens are another.
pub(crate) enum Own {
    Sequence(AlterSequence),
    Identity(AlterIdentity),
    Constraints(SetConstraints),
}

/// SET CONSTRAINTS.
#[derive(Clone, Debug)]
pub(crate) struct SetConstraints {
    /// None: all.
    pub(crate) names: Option<Vec<ObjectName>>,
    pub(crate) is_deferred: bool,
}

/// The statement of these tokens, if it is one that the grammar lacks.
///
/// # Errors
/// It begins as one, and is none. The error has the token at which that is seen.
pub(crate) fn parse(tokens: &[TokenWithSpan]) -> Option<Result<Own, (ParserError, TokenWithSpan)>> {
    let words = |at: usize| match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let sets_constraints = || {
        let is_word = |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if is_constraints(word));
        words(0) == Keyword::SET && tokens.get(1).is_some_and(is_word)
    };
    if words(0) != Keyword::ALTER && !sets_constraints() {
        return None;
    }
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens.to_vec());
    let parsed = match words(1) {
        _ if words(0) == Keyword::SET => constraints(&mut parser).map(Own::Constraints),
        Keyword::SEQUENCE => sequence(&mut parser).map(Own::Sequence),
        Keyword::TABLE => match identity(&mut parser) {
            Ok(Some(found)) => Ok(Own::Identity(found)),
            Ok(None) => return None,
            Err(error) => Err(error),
        },
        _ => return None,
    };
    Some(parsed.and_then(|own| parser.expect_token(&Token::EOF).map(|_| own)).map_err(|error| {
        let next = parser.peek_token();
        (error, next)
    }))
}

fn is_constraints(word: &Word) -> bool {
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case("constraints")
}

fn constraints(parser: &mut Parser<'_>) -> Result<SetConstraints, ParserError> {
    parser.expect_keyword(Keyword::SET)?;
    parser.next_token();
    let names = match parser.parse_keyword(Keyword::ALL) {
        true => None,
        false => Some(parser.parse_comma_separated(|parser| parser.parse_object_name(false))?),
    };
    let is_deferred = parser.expect_one_of_keywords(&[Keyword::DEFERRED, Keyword::IMMEDIATE])? == Keyword::DEFERRED;
    Ok(SetConstraints { names, is_deferred })
}

fn sequence(parser: &mut Parser<'_>) -> Result<AlterSequence, ParserError> {
    parser.expect_keywords(&[Keyword::ALTER, Keyword::SEQUENCE])?;
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    let to = match parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        true => Altered::Name(parser.parse_identifier()?),
        false => {
            let mut options = Vec::new();
            while let Some(option) = option(parser)? {
                options.push(option);
            }
            if options.is_empty() {
                return parser.expected("an option of a sequence", parser.peek_token());
            }
            Altered::Options(options)
        }
    };
    Ok(AlterSequence { if_exists, name, to })
}

/// None if it is another ALTER TABLE.
fn identity(parser: &mut Parser<'_>) -> Result<Option<AlterIdentity>, ParserError> {
    parser.expect_keywords(&[Keyword::ALTER, Keyword::TABLE])?;
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let _ = parser.parse_keyword(Keyword::ONLY);
    let Ok(table) = parser.parse_object_name(false) else { return Ok(None) };
    if !parser.parse_keyword(Keyword::ALTER) {
        return Ok(None);
    }
    let _ = parser.parse_keyword(Keyword::COLUMN);
    let Ok(column) = parser.parse_identifier() else { return Ok(None) };
    if parser.parse_keywords(&[Keyword::DROP, Keyword::IDENTITY]) {
        let to = Identity::Drop { if_exists: parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]) };
        return Ok(Some(AlterIdentity { if_exists, table, column, to }));
    }
    let (mut kind, mut options) = (None, Vec::new());
    loop {
        let has_set = parser.parse_keyword(Keyword::SET);
        if has_set && parser.parse_keyword(Keyword::GENERATED) {
            kind = Some(match parser.parse_keyword(Keyword::ALWAYS) {
                true => IdentityKind::Always,
                false => {
                    parser.expect_keywords(&[Keyword::BY, Keyword::DEFAULT])?;
                    IdentityKind::ByDefault
                }
            });
            continue;
        }
        match option(parser)? {
            Some(option) => options.push(option),
            // SET NOT NULL and the like.
            None if kind.is_none() && options.is_empty() => return Ok(None),
            None if has_set => return parser.expected("an option of a sequence", parser.peek_token()),
            None => break,
        }
    }
    Ok(Some(AlterIdentity { if_exists, table, column, to: Identity::Set { kind, options } }))
}

fn option(parser: &mut Parser<'_>) -> Result<Option<Clause>, ParserError> {
    let number = |parser: &mut Parser<'_>| {
        let given = parser.parse_number()?;
        integer(&given).map_err(|_| ParserError::ParserError(format!("{given} is no bigint")))
    };
    Ok(Some(if parser.parse_keyword(Keyword::AS) {
        Clause::As(parser.parse_data_type()?)
    } else if parser.parse_keyword(Keyword::INCREMENT) {
        let _ = parser.parse_keyword(Keyword::BY);
        Clause::Increment(number(parser)?)
    } else if parser.parse_keyword(Keyword::MINVALUE) {
        Clause::Minimum(Some(number(parser)?))
    } else if parser.parse_keyword(Keyword::MAXVALUE) {
        Clause::Maximum(Some(number(parser)?))
    } else if parser.parse_keywords(&[Keyword::NO, Keyword::MINVALUE]) {
        Clause::Minimum(None)
    } else if parser.parse_keywords(&[Keyword::NO, Keyword::MAXVALUE]) {
        Clause::Maximum(None)
    } else if parser.parse_keywords(&[Keyword::NO, Keyword::CYCLE]) {
        Clause::Cycle(false)
    } else if parser.parse_keyword(Keyword::CYCLE) {
        Clause::Cycle(true)
    } else if parser.parse_keyword(Keyword::START) {
        let _ = parser.parse_keyword(Keyword::WITH);
        Clause::Start(number(parser)?)
    } else if parser.parse_keyword(Keyword::RESTART) {
        let with = parser.parse_keyword(Keyword::WITH);
        let is_number = matches!(parser.peek_token().token, Token::Number(..) | Token::Minus);
        Clause::Restart(if with || is_number { Some(number(parser)?) } else { None })
    } else if parser.parse_keyword(Keyword::CACHE) {
        Clause::Cache(number(parser)?)
    } else if parser.parse_keywords(&[Keyword::OWNED, Keyword::BY]) {
        let is_none = parser.parse_keyword(Keyword::NONE);
        if !is_none {
            parser.parse_object_name(false)?;
        }
        Clause::Owned(!is_none)
    } else {
        return Ok(None);
    }))
}

/// An integer as it is written.
fn integer(of: &Expr) -> Result<i64, SqlError> {
    let (text, is_negative) = match of {
        Expr::Value(value) => match &value.value {
            Literal::Number(text, _) => (text.clone(), false),
            other => (other.to_string(), false),
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => (expr.to_string(), true),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => (expr.to_string(), false),
        other => (other.to_string(), false),
    };
    let text = if is_negative { format!("-{text}") } else { text };
    text.parse().map_err(|_| {
        let message = format!("value \"{text}\" is out of range for type bigint");
        SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
    })
}

/// The options that the grammar has read.
pub(crate) fn options(given: &[Syntax]) -> Result<Vec<Clause>, SqlError> {
    let option = |option: &Syntax| {
        Ok(match option {
            Syntax::DataType(ty) => Clause::As(ty.clone()),
            Syntax::IncrementBy(by, _) => Clause::Increment(integer(by)?),
            Syntax::MinValue(least) => Clause::Minimum(least.as_ref().map(integer).transpose()?),
            Syntax::MaxValue(most) => Clause::Maximum(most.as_ref().map(integer).transpose()?),
            Syntax::StartWith(start, _) => Clause::Start(integer(start)?),
            Syntax::Cache(cache) => Clause::Cache(integer(cache)?),
            // The grammar gives what the words before CYCLE do not say.
            Syntax::Cycle(no) => Clause::Cycle(!no),
            Syntax::OwnedBy(by) => Clause::Owned(by.is_some()),
        })
    };
    given.iter().map(option).collect()
}

/// How many numbers are reserved at a time. The usual 1 says nothing here, as a session keeps none for itself.
fn cache(numbers: i64) -> Result<Option<u32>, SqlError> {
    match numbers {
        1 => Ok(None),
        2.. => Ok(Some(u32::try_from(numbers).unwrap_or(u32::MAX).min(SequenceDef::CACHE_MAX))),
        _ => Err(invalid(format!("CACHE ({numbers}) must be greater than zero"))),
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn owned() -> SqlError {
    SqlError::unsupported("OWNED BY a column", "A serial column has a sequence that is dropped with it.")
}

/// The type of a sequence.
fn type_of(given: &DataType) -> Result<ColumnType, SqlError> {
    match SqlType::of(given)? {
        SqlType::Int2 => Ok(ColumnType::I16),
        SqlType::Int4 => Ok(ColumnType::I32),
        SqlType::Int8 => Ok(ColumnType::I64),
        _ => Err(invalid("sequence type must be smallint, integer, or bigint")),
    }
}

/// The sequence with these options; `ty` if they do not say it.
///
/// # Errors
/// They contradict each other.
pub(crate) fn declared(name: String, ty: ColumnType, options: &[Clause]) -> Result<SequenceDef, SqlError> {
    let mut sequence = SequenceDef::new(name).ty(ty);
    for option in options {
        let own: &mut SequenceOptions = &mut sequence.options;
        match option {
            Clause::As(ty) => sequence.ty = type_of(ty)?,
            Clause::Increment(by) => own.increment = Some(*by),
            Clause::Minimum(least) => own.minimum = *least,
            Clause::Maximum(most) => own.maximum = *most,
            Clause::Start(start) => own.start = Some(*start),
            Clause::Cache(numbers) => own.cache = cache(*numbers)?,
            Clause::Cycle(cycles) => own.cycle = *cycles,
            Clause::Owned(false) => {}
            Clause::Owned(true) => return Err(owned()),
            Clause::Restart(_) => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "RESTART is for sequences that exist"));
            }
        }
    }
    check(&sequence)?;
    Ok(sequence)
}

/// Refuses a sequence that makes no sense, as PostgreSQL does.
fn check(sequence: &SequenceDef) -> Result<(), SqlError> {
    let ((low, high), first) = (sequence.range(), sequence.first());
    if sequence.options.increment == Some(0) {
        return Err(invalid("INCREMENT must not be zero"));
    }
    if low >= high {
        return Err(invalid(format!("MINVALUE ({low}) must be less than MAXVALUE ({high})")));
    }
    if first < low {
        return Err(invalid(format!("START value ({first}) cannot be less than MINVALUE ({low})")));
    }
    if first > high {
        return Err(invalid(format!("START value ({first}) cannot be greater than MAXVALUE ({high})")));
    }
    sequence.validate().map_err(|error| invalid(error.to_string()))
}

/// The changes of a sequence that these options ask for.
///
/// # Errors
/// They contradict each other.
pub(crate) fn changes(sequence: &SequenceDef, options: &[Clause]) -> Result<Vec<SequenceChange>, SqlError> {
    let change = |option: &Clause| {
        Ok(Some(match option {
            Clause::As(ty) if type_of(ty)? == sequence.ty => return Ok(None),
            Clause::As(_) => {
                let instead = "A sequence keeps its type; MAXVALUE says how far it goes.";
                return Err(SqlError::unsupported("another type of a sequence", instead));
            }
            Clause::Increment(by) => SequenceChange::Increment(*by),
            Clause::Minimum(least) => SequenceChange::Minimum(*least),
            Clause::Maximum(most) => SequenceChange::Maximum(*most),
            Clause::Start(start) => SequenceChange::Start(Some(*start)),
            Clause::Restart(with) => SequenceChange::Restart(*with),
            Clause::Cache(numbers) => SequenceChange::Cache(cache(*numbers)?),
            Clause::Cycle(cycles) => SequenceChange::Cycle(*cycles),
            Clause::Owned(false) => return Ok(None),
            Clause::Owned(true) => return Err(owned()),
        }))
    };
    let mut changes = Vec::new();
    for option in options {
        changes.extend(change(option)?);
    }
    // A sequence begins again with what it starts with afterwards.
    changes.sort_by_key(|change| matches!(change, SequenceChange::Restart(_)));
    let (mut after, mut restart) = (sequence.clone(), None);
    changes.iter().for_each(|change| restart = after.apply(change).or(restart));
    check(&after)?;
    let (low, high) = after.range();
    match restart {
        Some(number) if number < low => {
            Err(invalid(format!("RESTART value ({number}) cannot be less than MINVALUE ({low})")))
        }
        Some(number) if number > high => {
            Err(invalid(format!("RESTART value ({number}) cannot be greater than MAXVALUE ({high})")))
        }
        _ => Ok(changes),
    }
}
