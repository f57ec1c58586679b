//! What a session keeps by name: prepared statements and cursors.
//!
//! A cursor has all rows of its query when it is declared, so it sees the tables as they were then. It ends with its
//! transaction, or with the session if it is declared WITH HOLD and the transaction commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use seriatim::catalog::ColumnDef;
use seriatim::catalog::expression::{Datum, assigned, within};
use sqlparser::ast::{
    CloseCursor, Declare, DeclareType, DiscardObject, Expr, FetchDirection, Reset, Statement, Value as Literal,
    ValueWithSpan,
};

use super::{Answer, Prepared, Session, State, is_planned};
use crate::error::{SqlError, SqlState};
use crate::expression::{Nothing, Translator};
use crate::from::Parameters;
use crate::names::{name, object};
use crate::run::{bytes_of_rows, check_kept};
use crate::select::{Column, Row};
use crate::subquery::Queries;
use crate::text::Command;
use crate::types::SqlType;

/// What a session keeps.
#[derive(Debug, Default)]
pub(super) struct Kept {
    statements: BTreeMap<String, Prepared>,
    cursors: BTreeMap<String, Cursor>,
}

/// The rows of a query, of which some have been fetched.
#[derive(Debug)]
struct Cursor {
    columns: Arc<[Column]>,
    rows: Vec<Row>,
    /// The bytes of them.
    bytes: usize,
    /// The row at which it stands, from 1: 0 before the first, and one more than there are behind the last.
    at: usize,
    is_forward_only: bool,
    /// Whether it outlives the commit of its transaction.
    holds: bool,
    /// How many savepoints there were when it was declared; none if its transaction has committed.
    savepoints: Option<usize>,
}

impl Kept {
    /// A transaction has ended.
    pub(super) fn end_transaction(&mut self, is_committed: bool) {
        self.cursors.retain(|_, cursor| cursor.savepoints.is_none() || is_committed && cursor.holds);
        self.cursors.values_mut().for_each(|cursor| cursor.savepoints = None);
    }

    /// The transaction was rolled back to the savepoint at this position.
    pub(super) fn roll_back_to(&mut self, savepoint: usize) {
        self.cursors.retain(|_, cursor| cursor.savepoints.is_none_or(|savepoints| savepoints <= savepoint));
    }

    /// The columns of the rows that a statement gives of what is kept.
    pub(super) fn columns(&self, statement: &Statement) -> Option<Arc<[Column]>> {
        match statement {
            Statement::Execute { name: Some(of), .. } => self.statements.get(&object(of).ok()?)?.columns.clone(),
            Statement::Fetch { name: of, .. } => Some(self.cursors.get(&name(of).ok()?)?.columns.clone()),
            _ => None,
        }
    }
}

impl Cursor {
    /// The rows that a FETCH gives, which moves it.
    fn fetch(&mut self, direction: &FetchDirection) -> Result<Vec<Row>, SqlError> {
        let end = self.rows.len() + 1;
        let (at, last) = (self.at as i64, end as i64);
        // Rows up to this place, or the one row there.
        let (to, is_one) = match direction {
            FetchDirection::Next => (at + 1, true),
            FetchDirection::Prior => (at - 1, true),
            FetchDirection::First => (1, true),
            FetchDirection::Last => (last - 1, true),
            FetchDirection::Absolute { limit } => match number(limit)? {
                place if place < 0 => (last + place, true),
                place => (place, true),
            },
            FetchDirection::Relative { limit } => (at.saturating_add(number(limit)?), true),
            FetchDirection::All | FetchDirection::ForwardAll => (last, false),
            FetchDirection::BackwardAll => (0, false),
            FetchDirection::Count { limit } => (at.saturating_add(number(limit)?), false),
            FetchDirection::Forward { limit } => (at.saturating_add(limit.as_ref().map_or(Ok(1), number)?), false),
            FetchDirection::Backward { limit } => (at.saturating_sub(limit.as_ref().map_or(Ok(1), number)?), false),
        };
        let to = to.clamp(0, last) as usize;
        if self.is_forward_only && (to < self.at || is_one && to == self.at) {
            let error = SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward");
            return Err(error.hint("Declare it with SCROLL option to enable backward scan."));
        }
        let row = |place: usize| self.rows.get(place.wrapping_sub(1)).cloned();
        let places: Vec<usize> = match (is_one, to.cmp(&self.at)) {
            (true, _) => vec![to],
            (false, std::cmp::Ordering::Greater) => (self.at + 1..=to).collect(),
            // It stands at the row that was fetched last, which it gives once more.
            (false, std::cmp::Ordering::Equal) => vec![to],
            (false, std::cmp::Ordering::Less) => (to..self.at).rev().collect(),
        };
        self.at = to;
        Ok(places.into_iter().filter_map(row).collect())
    }
}

fn number(of: &ValueWithSpan) -> Result<i64, SqlError> {
    match &of.value {
        Literal::Number(text, _) => text.parse().map_err(|_| {
            SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{text} is out of range for rows to fetch"))
        }),
        other => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{other} is no number of rows"))),
    }
}

fn no_statement(own: &str) -> SqlError {
    let message = format!("prepared statement \"{own}\" does not exist");
    SqlError::new(SqlState::INVALID_SQL_STATEMENT_NAME, message)
}

fn no_cursor(own: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{own}\" does not exist"))
}

impl Session {
    /// Runs a statement about what the session keeps. Returns whether it is one.
    pub(super) fn kept_statement(
        &mut self,
        statement: &Statement,
        answers: &mut Vec<Answer>,
    ) -> Result<bool, SqlError> {
        let done = |tag: &str| Answer::Done(tag.to_owned());
        match statement {
            Statement::Prepare { name: ident, data_types, statement } => {
                let own = name(ident)?;
                if self.kept.statements.contains_key(&own) {
                    let message = format!("prepared statement \"{own}\" already exists");
                    return Err(SqlError::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message));
                }
                if !is_planned(statement) {
                    let instead = "Queries, INSERT, UPDATE and DELETE can be prepared.";
                    return Err(SqlError::unsupported("PREPARE of this statement", instead));
                }
                let given = data_types.iter().map(|ty| SqlType::of(ty).map(Some)).collect::<Result<Vec<_>, _>>()?;
                let most = crate::text::parameters(&statement.to_string());
                let prepared = self.prepared_of(Some(Command::Statement(statement.clone())), &given, most)?;
                self.kept.statements.insert(own, prepared);
                answers.push(done("PREPARE"));
            }
            Statement::Execute {
                name: Some(of), parameters, immediate: false, into, using, output, default, ..
            } if into.is_empty() && using.is_empty() && !output && !default => {
                let own = object(of)?;
                let mut prepared = self.kept.statements.remove(&own).ok_or_else(|| no_statement(&own))?;
                let ran = self.execute_kept(&own, &mut prepared, parameters, answers);
                self.kept.statements.insert(own, prepared);
                ran?;
            }
            Statement::Deallocate { name: ident, .. } => {
                let is_all = ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("all");
                if is_all {
                    self.kept.statements.clear();
                    answers.push(done("DEALLOCATE ALL"));
                } else {
                    let own = name(ident)?;
                    self.kept.statements.remove(&own).ok_or_else(|| no_statement(&own))?;
                    answers.push(done("DEALLOCATE"));
                }
            }
            Statement::Declare { stmts, .. } => {
                let [declare] = &**stmts else { return Ok(false) };
                self.declare(declare, &mut Vec::new(), &[])?;
                answers.push(done("DECLARE CURSOR"));
            }
            Statement::Fetch { name: ident, direction, into: None, .. } => {
                let own = name(ident)?;
                let cursor = self.kept.cursors.get_mut(&own).ok_or_else(|| no_cursor(&own))?;
                let rows = cursor.fetch(direction)?;
                let (columns, tag) = (cursor.columns.clone(), super::tag("FETCH ", rows.len()));
                answers.push(Answer::Rows { columns, rows, tag });
            }
            Statement::Close { cursor: CloseCursor::All } => {
                self.kept.cursors.clear();
                answers.push(done("CLOSE CURSOR ALL"));
            }
            Statement::Close { cursor: CloseCursor::Specific { name: ident } } => {
                let own = name(ident)?;
                self.kept.cursors.remove(&own).ok_or_else(|| no_cursor(&own))?;
                answers.push(done("CLOSE CURSOR"));
            }
            // Nobody can listen.
            Statement::UNLISTEN { .. } => answers.push(done("UNLISTEN")),
            Statement::Reset(reset) => {
                match &reset.reset {
                    Reset::SessionAuthorization => {}
                    Reset::ALL => {
                        let all: Vec<String> = self.settings.keys().cloned().collect();
                        for own in all.into_iter().filter(|own| !own.starts_with('\0')) {
                            self.reset(own, answers)?;
                        }
                    }
                    Reset::ConfigurationParameter(of) => self.reset(of.to_string().to_lowercase(), answers)?,
                }
                answers.push(done("RESET"));
            }
            Statement::Discard { object_type } => {
                self.discard(*object_type)?;
                answers.push(Answer::Done(format!("DISCARD {object_type}")));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn reset(&mut self, own: String, answers: &mut Vec<Answer>) -> Result<(), SqlError> {
        match own.contains('.') {
            // Nobody knows what it usually is.
            true => self.change_settings(&|settings| drop(settings.remove(&own)), false, answers),
            false => self.set_in_transaction(own, "default".to_owned(), false, answers)?,
        }
        Ok(())
    }

    fn discard(&mut self, what: DiscardObject) -> Result<(), SqlError> {
        match what {
            DiscardObject::ALL if matches!(&self.state, State::Open(_)) => {
                let message = "DISCARD ALL cannot run inside a transaction block";
                return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
            }
            DiscardObject::ALL => {
                self.settings.clear();
                self.kept = Kept::default();
                self.around.forget();
            }
            DiscardObject::SEQUENCES => self.around.forget(),
            DiscardObject::PLANS | DiscardObject::TEMP => {}
        }
        Ok(())
    }

    /// Runs a kept statement with the values of these expressions.
    fn execute_kept(
        &mut self,
        own: &str,
        prepared: &mut Prepared,
        given: &[Expr],
        answers: &mut Vec<Answer>,
    ) -> Result<(), SqlError> {
        let types: Vec<_> = prepared.parameters().collect();
        if types.len() != given.len() {
            let message = format!("wrong number of parameters for prepared statement \"{own}\"");
            let detail = format!("Expected {} parameters but got {}.", types.len(), given.len());
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).detail(detail));
        }
        let context = self.context(Queries::default());
        let mut values = Vec::new();
        for (of, ty) in given.iter().zip(types) {
            let expression = Translator::scalar(&context, "EXECUTE parameters").translate(of)?;
            let bound = context.assigning(&expression, &Nothing, &mut Vec::new(), ty)?;
            let column = ColumnDef::new(String::new(), ty).nullable();
            let value = within(&*self.around, || bound.evaluate(&[][..], &[]).map(Datum::into_owned))?;
            let value = assigned(value, bound.column_type(), &column)?;
            values.push(Datum::of_value(&value, ty).map_or(Datum::Null, Datum::into_owned));
        }
        self.run_prepared(prepared, &values, true, answers)
    }

    /// The columns of a cursor that DECLARE has made; none if there is no such cursor.
    pub fn cursor_columns(&self, name: &str) -> Option<Arc<[Column]>> {
        self.kept.cursors.get(name).map(|cursor| cursor.columns.clone())
    }

    /// Ends a cursor that DECLARE has made, if there is one of this name.
    pub fn close_cursor(&mut self, name: &str) {
        self.kept.cursors.remove(name);
    }

    /// Makes a cursor of a query with these values of its parameters.
    pub(super) fn declare(
        &mut self,
        declare: &Declare,
        parameters: &mut Parameters,
        values: &[Datum<'_>],
    ) -> Result<(), SqlError> {
        let Declare { names, declare_type: Some(DeclareType::Cursor), for_query: Some(query), .. } = declare else {
            return Err(SqlError::unsupported(declare, "DECLARE name CURSOR FOR query is there."));
        };
        let [ident] = &**names else { return Err(SqlError::unsupported(declare, "Name one cursor.")) };
        if declare.binary == Some(true) {
            return Err(SqlError::unsupported("a BINARY cursor", "Portals of the protocol have binary formats."));
        }
        let (own, holds) = (name(ident)?, declare.hold == Some(true));
        if self.kept.cursors.contains_key(&own) {
            let message = format!("cursor \"{own}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_CURSOR, message));
        }
        if !holds {
            self.open_block("DECLARE CURSOR")?;
        }
        let planned = self.plan(&Statement::Query(query.clone()), parameters)?;
        self.check_permitted(&planned)?;
        let Answer::Rows { columns, rows, .. } = self.run_plan(&planned, values)? else { return Ok(()) };
        let bytes = bytes_of_rows(&rows);
        let others: usize = self.kept.cursors.values().map(|cursor| cursor.bytes).sum();
        check_kept(others + bytes, "a session with cursors")?;
        let savepoints = match &self.state {
            State::Open(open) => Some(open.savepoints.len()),
            _ => None,
        };
        let is_forward_only = declare.scroll == Some(false);
        self.kept.cursors.insert(own, Cursor { columns, rows, bytes, at: 0, is_forward_only, holds, savepoints });
        Ok(())
    }
}
