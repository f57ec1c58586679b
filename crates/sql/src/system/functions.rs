//! Functions of the catalogue, of arrays and of patterns: what needs more than its arguments, or has any number of
//! them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::{Datum, ExpressionError, ScopeFunction};

use crate::error::{SqlError, SqlState};
use crate::rows::Owned;
use crate::run::Env;

/// Numbers of these functions begin here; those of queries are below.
pub(crate) const FUNCTIONS_FROM: usize = 1 << 32;

/// Computes a result.
type Apply = for<'a> fn(&Called<'a>) -> Result<Owned, SqlError>;

/// A function that is called.
struct Called<'a> {
    env: Env<'a>,
    arguments: &'a [Datum<'a>],
}

/// A function: its names, the least number of its arguments, and the types of all that it can have. The last one is
/// that of all further ones if there may be any number.
struct Function {
    names: &'static [&'static str],
    least: usize,
    arguments: &'static [Option<ColumnType>],
    is_variadic: bool,
    result: ColumnType,
    /// Whether it is NULL where an argument is.
    is_strict: bool,
    apply: Apply,
}

#[allow(dead_code)]
const OID: Option<ColumnType> = Some(ColumnType::U32);
const INT: Option<ColumnType> = Some(ColumnType::I32);
const TEXT: Option<ColumnType> = Some(ColumnType::LongText);
#[allow(dead_code)]
const BOOL: Option<ColumnType> = Some(ColumnType::Bool);
const ANY: Option<ColumnType> = None;

const fn strict(
    names: &'static [&'static str],
    least: usize,
    arguments: &'static [Option<ColumnType>],
    result: ColumnType,
    apply: Apply,
) -> Function {
    Function { names, least, arguments, is_variadic: false, result, is_strict: true, apply }
}

/// All functions.
const FUNCTIONS: &[Function] = &[
    strict(&["\0matches"], 2, &[TEXT, TEXT], ColumnType::Bool, |called| called.matches(false)),
    strict(&["\0matches any case"], 2, &[TEXT, TEXT], ColumnType::Bool, |called| called.matches(true)),
    Function {
        names: &["\0array"],
        least: 0,
        arguments: &[TEXT],
        is_variadic: true,
        result: ColumnType::LongText,
        is_strict: false,
        apply: |called| {
            let element = |value: &Datum<'_>| (!value.is_null()).then(|| value.to_text(None).into_owned());
            Ok(text(crate::array::to_text(called.arguments.iter().map(element))))
        },
    },
    strict(&["\0element"], 2, &[TEXT, INT], ColumnType::LongText, |called| {
        let array = called.text(0);
        let first = if array.trim_start().starts_with('{') { 1 } else { 0 };
        let elements = crate::array::elements(&array).ok_or_else(|| malformed(&array))?;
        let at = usize::try_from(called.integer(1) - first).unwrap_or(usize::MAX);
        Ok(elements.into_iter().nth(at).flatten().map_or(Datum::Null, text))
    }),
    comparison(&["\0any ="], |called| called.quantified(false, |order| order.is_eq())),
    comparison(&["\0any <>"], |called| called.quantified(false, |order| order.is_ne())),
    comparison(&["\0any <"], |called| called.quantified(false, |order| order.is_lt())),
    comparison(&["\0any <="], |called| called.quantified(false, |order| order.is_le())),
    comparison(&["\0any >"], |called| called.quantified(false, |order| order.is_gt())),
    comparison(&["\0any >="], |called| called.quantified(false, |order| order.is_ge())),
    comparison(&["\0all ="], |called| called.quantified(true, |order| order.is_eq())),
    comparison(&["\0all <>"], |called| called.quantified(true, |order| order.is_ne())),
    comparison(&["\0all <"], |called| called.quantified(true, |order| order.is_lt())),
    comparison(&["\0all <="], |called| called.quantified(true, |order| order.is_le())),
    comparison(&["\0all >"], |called| called.quantified(true, |order| order.is_gt())),
    comparison(&["\0all >="], |called| called.quantified(true, |order| order.is_ge())),
    strict(&["array_to_string"], 2, &[TEXT, TEXT, TEXT], ColumnType::LongText, |called| {
        let array = called.text(0);
        let elements = crate::array::elements(&array).ok_or_else(|| malformed(&array))?;
        let null = called.arguments.get(2).map(|_| called.text(2));
        let shown: Vec<String> =
            elements.into_iter().filter_map(|one| one.map(|one| one.into_owned()).or_else(|| null.clone())).collect();
        Ok(text(shown.join(&called.text(1))))
    }),
    strict(
        &["array_length", "array_upper", "array_lower", "cardinality"],
        1,
        &[TEXT, INT],
        ColumnType::I32,
        |called| {
            let array = called.text(0);
            let length = crate::array::elements(&array).ok_or_else(|| malformed(&array))?.len();
            Ok(if length == 0 { Datum::Null } else { Datum::Integer(length as i128) })
        },
    ),
];

const fn comparison(names: &'static [&'static str], apply: Apply) -> Function {
    strict(names, 2, &[ANY, TEXT], ColumnType::Bool, apply)
}

pub(super) fn text(of: impl Into<String>) -> Owned {
    Datum::Text(of.into().into())
}

pub(super) fn malformed(array: &str) -> SqlError {
    let message = format!("malformed array literal: \"{array}\"");
    SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
}

/// The function of this name, for these arguments.
///
/// # Errors
/// None yet: a wrong number of arguments is that of another function, if there is one.
pub(crate) fn function(
    called: &str,
    arguments: &[Option<ColumnType>],
) -> Result<Option<ScopeFunction>, ExpressionError> {
    let is_one = |function: &&Function| {
        let is_many = arguments.len() <= function.arguments.len() || function.is_variadic;
        function.names.contains(&called) && function.least <= arguments.len() && is_many
    };
    let Some((number, function)) = FUNCTIONS.iter().enumerate().find(|(_, function)| is_one(function)) else {
        return Ok(None);
    };
    let last = function.arguments.last().copied().flatten();
    let wanted = (0..arguments.len()).map(|at| function.arguments.get(at).copied().unwrap_or(last));
    let wanted = wanted.collect();
    Ok(Some(ScopeFunction { number: FUNCTIONS_FROM + number, arguments: wanted, result: Some(function.result) }))
}

/// Calls the function of this number.
///
/// # Errors
/// It has no value for the arguments.
pub(crate) fn call(env: Env<'_>, number: usize, arguments: &[Datum<'_>]) -> Result<Owned, SqlError> {
    let Some(function) = FUNCTIONS.get(number) else {
        return Err(SqlError::new(SqlState::INTERNAL_ERROR, "there is no such function"));
    };
    if function.is_strict && arguments.iter().any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    (function.apply)(&Called { env, arguments })
}

impl Called<'_> {
    fn text(&self, at: usize) -> String {
        self.arguments.get(at).map_or_else(String::new, |value| value.to_text(None).into_owned())
    }

    fn integer(&self, at: usize) -> i128 {
        match self.arguments.get(at) {
            Some(Datum::Integer(value)) => *value,
            _ => 0,
        }
    }

    /// Whether a text matches a regular expression.
    fn matches(&self, ignores_case: bool) -> Result<Owned, SqlError> {
        thread_local! {
            /// The expressions of this thread that were used last.
            static KNOWN: RefCell<BTreeMap<(String, bool), regex::Regex>> = RefCell::default();
        }
        let (subject, pattern) = (self.text(0), self.text(1));
        KNOWN.with_borrow_mut(|known| {
            let key = (pattern, ignores_case);
            if !known.contains_key(&key) {
                let made = regex::RegexBuilder::new(&key.0).case_insensitive(ignores_case).size_limit(1 << 20).build();
                let made = made.map_err(|error| {
                    let message = format!("invalid regular expression: {error}");
                    SqlError::new(SqlState("2201B"), message)
                })?;
                if known.len() >= 64 {
                    known.clear();
                }
                known.insert(key.clone(), made);
            }
            Ok(known.get(&key).map_or(Datum::Null, |regex| Datum::Bool(regex.is_match(&subject))))
        })
    }

    /// A comparison with any or all elements of an array.
    fn quantified(&self, is_all: bool, holds: fn(std::cmp::Ordering) -> bool) -> Result<Owned, SqlError> {
        let array = self.text(1);
        let elements = crate::array::elements(&array).ok_or_else(|| malformed(&array))?;
        let Some(value) = self.arguments.first() else { return Ok(Datum::Null) };
        let ty = match value {
            Datum::Bool(_) => ColumnType::Bool,
            Datum::Integer(_) | Datum::Wide(_) => ColumnType::I128,
            Datum::Numeric(_) => ColumnType::Numeric,
            Datum::Single(_) => ColumnType::F32,
            Datum::Float(_) => ColumnType::F64,
            Datum::Uuid(_) => ColumnType::Uuid,
            Datum::Date(_) => ColumnType::Date,
            Datum::Time(_) => ColumnType::Time,
            Datum::DateTime(_) => ColumnType::DateTime,
            Datum::Timestamp(_) => ColumnType::Timestamp,
            Datum::Interval(_) => ColumnType::Interval,
            Datum::Bytes(_) => ColumnType::LongBytes,
            Datum::Null | Datum::Text(_) | Datum::Char(_) | Datum::Enum(_) => ColumnType::LongText,
        };
        let mut is_known = true;
        for element in elements {
            let Some(element) = element else {
                is_known = false;
                continue;
            };
            if holds(value.compare(&Datum::of_text(&element, ty)?)) != is_all {
                return Ok(Datum::Bool(!is_all));
            }
        }
        Ok(if is_known { Datum::Bool(is_all) } else { Datum::Null })
    }
}
