//! Scalar expressions over the columns of a row: as data, as text of SQL, and evaluated. This is the one home of
//! evaluation: conditions of tables use it, and everything else that computes with values of columns.
//!
//! An [`Expression`] is what somebody wrote, with columns by name. [`Bound`] is the same with types, for the columns
//! that a [`Scope`] has. It is made once and evaluated many times, without an allocation where values allow it. Types
//! are checked when it is bound, and constants are computed then.
//!
//! ```
//! use seriatim_catalog::expression::{Bound, Datum, Expression};
//! use seriatim_catalog::{ColumnDef, ColumnType, TableDef};
//! let table = TableDef::builder("account")
//!     .column(ColumnDef::new("id", ColumnType::U32))
//!     .column(ColumnDef::new("balance", ColumnType::I64))
//!     .key(["id"])
//!     .finish()?;
//! let expression: Expression = "balance - 10 >= 0 OR id IN (1, 2)".parse()?;
//! assert_eq!(expression.to_string(), "balance - 10 >= 0 OR id IN (1, 2)");
//! let bound = Bound::new(&expression, &table, &mut [])?;
//! assert_eq!(bound.column_type(), Some(ColumnType::Bool));
//! // Values in the order of the table's columns; a row of the table is another source of them.
//! let row = [Datum::Integer(7), Datum::Integer(9)];
//! assert_eq!(bound.evaluate(&row[..], &[])?, Datum::Bool(false));
//! let error = Bound::new(&"balance || id > 3".parse()?, &table, &mut []).unwrap_err();
//! assert_eq!(error.to_string(), "in `balance || id`: the operator || does not exist for bigint and u32");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Meaning
//! That of PostgreSQL 15: three-valued logic, types of results, rounding, and errors by their SQLSTATE
//! ([`EvaluationError`]). An untyped text, parameter or NULL takes the type that its place wants. What differs:
//!
//! - Texts are compared by their bytes, as with the collation `C`. `upper` and `lower` map characters one to one.
//! - There is one time zone, UTC. Dates and times are read as ISO 8601 has them.
//! - `numeric` has 38 digits. A result with more digits after the point is rounded to those that fit. It has neither
//!   NaN nor infinity.
//! - A column `decimal(n)` is a `numeric` with `n` digits after the point, and a text or bytes of any declared length
//!   is `text` or `bytea`.
//!
//! Integers beside PostgreSQL's follow the same pattern. The result of two integers has the type of the wider one, if
//! both have a sign or neither has. Otherwise it has the narrowest signed type that has all values of both. `u8` and
//! `i16` make `i16`, `u32` and `i32` make `i64`, and `u64` and any signed integer make `i128`. So `u32 - u32` below
//! zero is out of range, and `u32 - 1` is an `i64`, as literals are `i32` where they fit. Results with `u128` are
//! `i128`. The negative of an unsigned integer has the narrowest signed type for all of them.
//!
//! # Functions of more than their arguments
//! `now()`, `current_user()`, `nextval`, `currval`, `lastval`, `setval` and `pg_get_serial_sequence` ask those who
//! evaluate the expression ([`within`]). These, `clock_timestamp()`, `random()` and `gen_random_uuid()` can have
//! another value each time. So conditions of tables have none of them.

mod bind;
mod cast;
mod datum;
mod error;
mod evaluate;
mod functions;
mod numeric;
mod pattern;
mod show;
mod surroundings;
mod syntax;
mod temporal;
mod types;

use std::borrow::Cow;

pub use self::bind::{Bound, NoColumns, Scope, ScopeFunction};
pub use self::cast::assigned;
pub use self::datum::{Columns, Datum, RowColumns};
pub use self::error::{EvaluationError, EvaluationErrorKind, ExpressionError, ExpressionErrorKind};
pub use self::surroundings::{SequenceCall, Surroundings, within};
pub use self::syntax::{Parser, Token};
use crate::{ColumnType, Value};

/// A name of a column, a table or a function.
pub type Name = Cow<'static, str>;

/// An expression, as it is written. `Display` and `FromStr` are its text in SQL. With the feature `serde` it
/// serializes as that text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expression {
    /// A constant.
    Literal(Literal),
    /// A column.
    Column {
        /// Its table, if the text says so.
        table: Option<Name>,
        /// Its name.
        column: Name,
    },
    /// `$1` and so on.
    Parameter(u16),
    /// An operation on one operand.
    Unary(Unary, Box<Expression>),
    /// An operation on two operands.
    Binary(Binary, Box<Expression>, Box<Expression>),
    /// All of them, with AND between them.
    All(Vec<Expression>),
    /// One of them, with OR between them.
    Any(Vec<Expression>),
    /// `of IN (list)`.
    In {
        /// What is looked for.
        of: Box<Expression>,
        /// Where.
        list: Vec<Expression>,
    },
    /// `of LIKE pattern`.
    Like {
        /// The text.
        of: Box<Expression>,
        /// The pattern.
        pattern: Box<Expression>,
        /// The character before which `%` and `_` mean themselves; a backslash if it is left out.
        escape: Option<Box<Expression>>,
    },
    /// CASE with conditions.
    Case {
        /// Each condition and its result.
        branches: Vec<(Expression, Expression)>,
        /// The result if no condition is true; NULL if it is left out.
        otherwise: Option<Box<Expression>>,
    },
    /// A value as one of another type.
    Cast {
        /// The value.
        of: Box<Expression>,
        /// The type.
        to: ColumnType,
    },
    /// A function.
    Call {
        /// Its name.
        function: Name,
        /// Its arguments.
        arguments: Vec<Expression>,
    },
}

/// A constant. One of any other type is a [`Expression::Cast`] of a text ([`Expression::value`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Literal {
    /// NULL.
    Null,
    /// TRUE or FALSE.
    Bool(bool),
    /// Digits, perhaps with a sign, a point and an exponent.
    Number(Name),
    /// A text, whose type its place decides.
    Text(Name),
}

/// Operations on one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `-a`.
    Negate,
    /// `NOT a`.
    Not,
    /// `a IS NULL`.
    IsNull,
    /// `a IS TRUE`.
    IsTrue,
    /// `a IS FALSE`.
    IsFalse,
}

/// Operations on two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Concatenate,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `a IS DISTINCT FROM b`: as `<>`, with NULL as a value.
    Distinct,
}

/// Short forms.
impl Expression {
    /// Most levels of an expression. The levels of AND, OR and lists are one each, however long they are.
    pub const DEPTH_MAX: usize = 128;

    /// So many parts of an expression can be copies: of what BETWEEN and CASE compare several times, and NULLIF.
    pub const COPIED_MAX: usize = 1 << 16;

    /// A column of the table at hand.
    pub fn column(name: impl Into<Name>) -> Expression {
        Expression::Column { table: None, column: name.into() }
    }

    /// A constant of a type; `None` for a value that no column of it has.
    pub fn value(value: &Value, ty: ColumnType) -> Option<Expression> {
        let text = match value {
            Value::Option(None) => return Some(Expression::Literal(Literal::Null)),
            Value::Option(Some(value)) => return Expression::value(value, ty),
            value => Datum::of_value(value, ty)?.to_text(Some(ty)).into_owned(),
        };
        Some(Expression::Literal(Literal::Text(text.into())).cast(ty))
    }

    /// The value as one of this type.
    #[must_use]
    pub fn cast(self, to: ColumnType) -> Expression {
        Expression::Cast { of: self.into(), to }
    }

    /// An operation on two operands.
    #[must_use]
    pub fn with(self, operator: Binary, other: Expression) -> Expression {
        Expression::Binary(operator, self.into(), other.into())
    }

    /// An operation on one operand.
    #[must_use]
    pub fn apply(self, operator: Unary) -> Expression {
        Expression::Unary(operator, self.into())
    }

    /// A function of these arguments.
    pub fn call(function: impl Into<Name>, arguments: Vec<Expression>) -> Expression {
        Expression::Call { function: function.into(), arguments }
    }

    /// How many parts it has on all levels, and itself.
    pub fn size(&self) -> usize {
        1 + self.parts().into_iter().map(Expression::size).sum::<usize>()
    }

    /// What it consists of, one level down.
    pub fn parts(&self) -> Vec<&Expression> {
        match self {
            Expression::Literal(_) | Expression::Column { .. } | Expression::Parameter(_) => Vec::new(),
            Expression::Unary(_, of) | Expression::Cast { of, .. } => vec![of],
            Expression::Binary(_, a, b) => vec![a, b],
            Expression::All(all) | Expression::Any(all) | Expression::Call { arguments: all, .. } => {
                all.iter().collect()
            }
            Expression::In { of, list } => [&**of].into_iter().chain(list).collect(),
            Expression::Like { of, pattern, escape } => {
                [&**of, &**pattern].into_iter().chain(escape.as_deref()).collect()
            }
            Expression::Case { branches, otherwise } => {
                branches.iter().flat_map(|(when, then)| [when, then]).chain(otherwise.as_deref()).collect()
            }
        }
    }

    /// The same, to change them.
    pub fn parts_mut(&mut self) -> Vec<&mut Expression> {
        match self {
            Expression::Literal(_) | Expression::Column { .. } | Expression::Parameter(_) => Vec::new(),
            Expression::Unary(_, of) | Expression::Cast { of, .. } => vec![of],
            Expression::Binary(_, a, b) => vec![a, b],
            Expression::All(all) | Expression::Any(all) | Expression::Call { arguments: all, .. } => {
                all.iter_mut().collect()
            }
            Expression::In { of, list } => [&mut **of].into_iter().chain(list).collect(),
            Expression::Like { of, pattern, escape } => {
                [&mut **of, &mut **pattern].into_iter().chain(escape.as_deref_mut()).collect()
            }
            Expression::Case { branches, otherwise } => {
                branches.iter_mut().flat_map(|(when, then)| [when, then]).chain(otherwise.as_deref_mut()).collect()
            }
        }
    }

    /// The names of the columns that it uses, each once, in their order in the text.
    pub fn columns(&self) -> Vec<&str> {
        fn collect<'e>(of: &'e Expression, columns: &mut Vec<&'e str>) {
            match of {
                Expression::Column { column, .. } if !columns.contains(&&**column) => columns.push(column),
                other => other.parts().into_iter().for_each(|part| collect(part, columns)),
            }
        }
        let mut columns = Vec::new();
        collect(self, &mut columns);
        columns
    }

    /// Calls columns by other names: those for which there is one.
    pub fn rename_columns(&mut self, to: &dyn Fn(&str) -> Option<String>) {
        match self {
            Expression::Column { column, .. } => {
                if let Some(name) = to(column) {
                    *column = Cow::Owned(name);
                }
            }
            other => other.parts_mut().into_iter().for_each(|part| part.rename_columns(to)),
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Expression {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Expression {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Expression, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
