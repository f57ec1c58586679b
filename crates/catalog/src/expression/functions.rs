//! Functions and operators: a line of the table for each list of types of arguments.
//!
//! All are strict: they are not called for NULL. Of several lines that would do the first counts, unless another has
//! exactly the types of the arguments. The result of most depends on the arguments alone.

use std::borrow::Cow;
use std::mem::take;

use seriatim_base::rng::entropy;

use super::datum::Datum::{self, Bytes, Float, Integer, Numeric as Decimal, Single, Text};
use super::error::{EvaluationError, EvaluationErrorKind};
use super::surroundings::{self, SequenceCall};
use super::{numeric, temporal, types};
use crate::{ColumnType, Numeric, Timestamp};

type Result<T> = std::result::Result<T, EvaluationError>;

/// Computes a result of arguments that are not NULL. It may take them.
pub(super) type Apply = for<'r> fn(&mut [Datum<'r>], ColumnType) -> Result<Datum<'r>>;

/// A function for some types of arguments.
pub(super) struct Function {
    names: &'static [&'static str],
    arguments: &'static [Argument],
    result: Outcome,
    pub(super) apply: Apply,
    /// Whether its result depends on its arguments alone.
    pub(super) is_pure: bool,
}

/// What an argument may be.
#[derive(Clone, Copy, PartialEq)]
enum Argument {
    /// Of this type.
    Is(ColumnType),
    /// Of any integer type.
    Whole,
}

/// Of which type the result is.
#[derive(Clone, Copy)]
enum Outcome {
    Is(ColumnType),
    /// That of its integers.
    Whole,
    /// That of the negative of its integer.
    Negative,
}

macro_rules! functions {
    ($list:ident, $is_pure:literal, $(
        $($name:literal)|+ ($($argument:ident),*) -> $result:ident, |$values:pat_param, $ty:pat_param| $body:expr;
    )+) => {
        const $list: &[Function] = &[$(Function {
            names: &[$($name),+],
            arguments: &[$(functions!(@argument $argument)),*],
            result: functions!(@result $result),
            is_pure: $is_pure,
            apply: |values, ty| match (values, ty) {
                ($values, $ty) => $body,
                // A `u128` beyond the integers with which one computes.
                (_, ty) => Err(EvaluationError::out_of_range(ty)),
            },
        },)+];
    };
    (@argument Whole) => { Argument::Whole };
    (@argument $type:ident) => { Argument::Is(ColumnType::$type) };
    (@result Whole) => { Outcome::Whole };
    (@result Negative) => { Outcome::Negative };
    (@result $type:ident) => { Outcome::Is(ColumnType::$type) };
}

functions! {
    FUNCTIONS, true,

    "+"(Whole, Whole) -> Whole, |[Integer(a), Integer(b)], ty| whole(a.checked_add(*b), ty);
    "+"(Numeric, Numeric) -> Numeric, |[Decimal(a), Decimal(b)], _| numeric::add(*a, *b).map(Decimal);
    "+"(F32, F32) -> F32, |[Single(a), Single(b)], ty| single(*a + *b, [*a, *b], false, ty);
    "+"(F64, F64) -> F64, |[Float(a), Float(b)], ty| float(*a + *b, [*a, *b], false, ty);
    "+"(Date, I32) -> Date, |[Datum::Date(a), Integer(b)], _| temporal::date_plus(*a, *b).map(Datum::Date);
    "+"(I32, Date) -> Date, |[Integer(a), Datum::Date(b)], _| temporal::date_plus(*b, *a).map(Datum::Date);
    "+"(Date, Time) -> DateTime, |[Datum::Date(a), Datum::Time(b)], _| Ok(Datum::DateTime(a.at(*b)));
    "+"(Time, Date) -> DateTime, |[Datum::Time(a), Datum::Date(b)], _| Ok(Datum::DateTime(b.at(*a)));
    "+"(DateTime, Interval) -> DateTime,
        |[Datum::DateTime(a), Datum::Interval(b)], _| temporal::moment_plus(*a, *b).map(Datum::DateTime);
    "+"(Interval, DateTime) -> DateTime,
        |[Datum::Interval(a), Datum::DateTime(b)], _| temporal::moment_plus(*b, *a).map(Datum::DateTime);
    "+"(Timestamp, Interval) -> Timestamp,
        |[Datum::Timestamp(a), Datum::Interval(b)], _| temporal::timestamp_plus(*a, *b).map(Datum::Timestamp);
    "+"(Interval, Timestamp) -> Timestamp,
        |[Datum::Interval(a), Datum::Timestamp(b)], _| temporal::timestamp_plus(*b, *a).map(Datum::Timestamp);
    "+"(Time, Interval) -> Time,
        |[Datum::Time(a), Datum::Interval(b)], _| Ok(Datum::Time(temporal::time_plus(*a, *b)));
    "+"(Interval, Time) -> Time,
        |[Datum::Interval(a), Datum::Time(b)], _| Ok(Datum::Time(temporal::time_plus(*b, *a)));
    "+"(Interval, Interval) -> Interval,
        |[Datum::Interval(a), Datum::Interval(b)], _| temporal::sum(*a, *b).map(Datum::Interval);

    "-"(Whole, Whole) -> Whole, |[Integer(a), Integer(b)], ty| whole(a.checked_sub(*b), ty);
    "-"(Numeric, Numeric) -> Numeric, |[Decimal(a), Decimal(b)], _| numeric::subtract(*a, *b).map(Decimal);
    "-"(F32, F32) -> F32, |[Single(a), Single(b)], ty| single(*a - *b, [*a, *b], false, ty);
    "-"(F64, F64) -> F64, |[Float(a), Float(b)], ty| float(*a - *b, [*a, *b], false, ty);
    "-"(Date, Date) -> I32, |[Datum::Date(a), Datum::Date(b)], _| Ok(Integer(a.days_since(*b).into()));
    "-"(Date, I32) -> Date, |[Datum::Date(a), Integer(b)], ty| match b.checked_neg() {
        Some(days) => temporal::date_plus(*a, days).map(Datum::Date),
        None => Err(temporal::out_of_range(ty)),
    };
    "-"(DateTime, DateTime) -> Interval,
        |[Datum::DateTime(a), Datum::DateTime(b)], _| Ok(Datum::Interval(*a - *b));
    "-"(Timestamp, Timestamp) -> Interval,
        |[Datum::Timestamp(a), Datum::Timestamp(b)], _| Ok(Datum::Interval(*a - *b));
    "-"(Time, Time) -> Interval, |[Datum::Time(a), Datum::Time(b)], _| Ok(Datum::Interval(*a - *b));
    "-"(DateTime, Interval) -> DateTime, |[Datum::DateTime(a), Datum::Interval(b)], _| {
        temporal::moment_plus(*a, temporal::negative(*b)?).map(Datum::DateTime)
    };
    "-"(Timestamp, Interval) -> Timestamp, |[Datum::Timestamp(a), Datum::Interval(b)], _| {
        temporal::timestamp_plus(*a, temporal::negative(*b)?).map(Datum::Timestamp)
    };
    "-"(Time, Interval) -> Time, |[Datum::Time(a), Datum::Interval(b)], _| {
        temporal::negative(*b).map(|back| Datum::Time(temporal::time_plus(*a, back)))
    };
    "-"(Interval, Interval) -> Interval, |[Datum::Interval(a), Datum::Interval(b)], _| {
        temporal::sum(*a, temporal::negative(*b)?).map(Datum::Interval)
    };
    "-"(Whole) -> Negative, |[Integer(a)], ty| whole(a.checked_neg(), ty);
    "-"(Numeric) -> Numeric, |[Decimal(a)], _| Ok(Decimal(-*a));
    "-"(F32) -> F32, |[Single(a)], _| Ok(Single(-*a));
    "-"(F64) -> F64, |[Float(a)], _| Ok(Float(-*a));
    "-"(Interval) -> Interval, |[Datum::Interval(a)], _| temporal::negative(*a).map(Datum::Interval);

    "*"(Whole, Whole) -> Whole, |[Integer(a), Integer(b)], ty| whole(a.checked_mul(*b), ty);
    "*"(Numeric, Numeric) -> Numeric, |[Decimal(a), Decimal(b)], _| numeric::multiply(*a, *b).map(Decimal);
    "*"(F32, F32) -> F32, |[Single(a), Single(b)], ty| single(*a * *b, [*a, *b], *a != 0.0 && *b != 0.0, ty);
    "*"(F64, F64) -> F64, |[Float(a), Float(b)], ty| float(*a * *b, [*a, *b], *a != 0.0 && *b != 0.0, ty);
    "*"(Interval, F64) -> Interval, |[Datum::Interval(a), Float(b)], _| temporal::times(*a, *b).map(Datum::Interval);
    "*"(F64, Interval) -> Interval, |[Float(a), Datum::Interval(b)], _| temporal::times(*b, *a).map(Datum::Interval);

    "/"(Whole, Whole) -> Whole, |[Integer(a), Integer(b)], ty| whole(a.checked_div(nonzero(*b)?), ty);
    "/"(Numeric, Numeric) -> Numeric, |[Decimal(a), Decimal(b)], _| numeric::divide(*a, *b).map(Decimal);
    "/"(F32, F32) -> F32, |[Single(a), Single(b)], ty| match *b == 0.0 && !a.is_nan() {
        true => Err(EvaluationError::division_by_zero()),
        false => single(*a / *b, [*a, f32::NAN], *a != 0.0 && b.is_finite(), ty),
    };
    "/"(F64, F64) -> F64, |[Float(a), Float(b)], ty| match *b == 0.0 && !a.is_nan() {
        true => Err(EvaluationError::division_by_zero()),
        false => float(*a / *b, [*a, f64::NAN], *a != 0.0 && b.is_finite(), ty),
    };
    "/"(Interval, F64) -> Interval, |[Datum::Interval(a), Float(b)], _| temporal::divided(*a, *b).map(Datum::Interval);

    // The rest of the least integer by -1 is none, although the quotient is out of range.
    "%" | "mod"(Whole, Whole) -> Whole,
        |[Integer(a), Integer(b)], ty| whole(Some(a.checked_rem(nonzero(*b)?).unwrap_or(0)), ty);
    "%" | "mod"(Numeric, Numeric) -> Numeric, |[Decimal(a), Decimal(b)], _| numeric::modulo(*a, *b).map(Decimal);

    "||"(LongText, LongText) -> LongText, |[Text(a), Text(b)], _| {
        let mut both = take(a).into_owned();
        fits(both.len().saturating_add(b.len()))?;
        both.push_str(b);
        Ok(text(both))
    };
    "||"(LongBytes, LongBytes) -> LongBytes, |[Bytes(a), Bytes(b)], _| {
        let mut both = take(a).into_owned();
        fits(both.len().saturating_add(b.len()))?;
        both.extend_from_slice(b);
        Ok(Bytes(both.into()))
    };

    "abs"(Whole) -> Whole, |[Integer(a)], ty| whole(a.checked_abs(), ty);
    "abs"(F32) -> F32, |[Single(a)], _| Ok(Single(a.abs()));
    "abs"(F64) -> F64, |[Float(a)], _| Ok(Float(a.abs()));
    "abs"(Numeric) -> Numeric, |[Decimal(a)], _| Ok(Decimal(if *a < Numeric::ZERO { -*a } else { *a }));
    // Of integers it is the floating-point number, as in PostgreSQL.
    "sign"(F64) -> F64, |[Float(a)], _| Ok(Float(if *a == 0.0 { 0.0 } else { a.signum() }));
    "sign"(Numeric) -> Numeric, |[Decimal(a)], _| numeric::of_integer(a.coefficient().signum()).map(Decimal);
    "round"(F64) -> F64, |[Float(a)], _| Ok(Float(a.round_ties_even()));
    "round"(Numeric) -> Numeric, |[Decimal(a)], _| numeric::round(*a, 0, false).map(Decimal);
    "round"(Numeric, I32) -> Numeric, |[Decimal(a), Integer(b)], _| numeric::round(*a, narrow(*b), false).map(Decimal);
    // A number of at most so many digits, of which so many are after the point: what a cast to such a type does.
    "numeric"(Numeric, I32, I32) -> Numeric, |[Decimal(a), Integer(digits), Integer(scale)], _| {
        let rounded = numeric::round(*a, narrow(*scale), false)?;
        let limit = u32::try_from(*digits).ok().and_then(|digits| 10_u128.checked_pow(digits));
        match limit.is_none_or(|limit| rounded.coefficient().unsigned_abs() < limit) {
            true => Ok(Decimal(rounded)),
            false => Err(EvaluationError::new(EvaluationErrorKind::NumberOutOfRange, "numeric field overflow")),
        }
    };
    "trunc"(F64) -> F64, |[Float(a)], _| Ok(Float(a.trunc()));
    "trunc"(Numeric) -> Numeric, |[Decimal(a)], _| numeric::round(*a, 0, true).map(Decimal);
    "trunc"(Numeric, I32) -> Numeric, |[Decimal(a), Integer(b)], _| numeric::round(*a, narrow(*b), true).map(Decimal);
    "floor"(F64) -> F64, |[Float(a)], _| Ok(Float(a.floor()));
    "floor"(Numeric) -> Numeric, |[Decimal(a)], _| numeric::whole(*a, false).map(Decimal);
    "ceil" | "ceiling"(F64) -> F64, |[Float(a)], _| Ok(Float(a.ceil()));
    "ceil" | "ceiling"(Numeric) -> Numeric, |[Decimal(a)], _| numeric::whole(*a, true).map(Decimal);

    "length" | "char_length" | "character_length"(LongText) -> I32,
        |[Text(a)], ty| whole(Some(a.chars().count() as i128), ty);
    "length"(LongBytes) -> I32, |[Bytes(a)], ty| whole(Some(a.len() as i128), ty);
    "octet_length"(LongText) -> I32, |[Text(a)], ty| whole(Some(a.len() as i128), ty);
    "octet_length"(LongBytes) -> I32, |[Bytes(a)], ty| whole(Some(a.len() as i128), ty);
    "lower"(LongText) -> LongText, |[Text(a)], _| Ok(text(mapped(a, char::to_lowercase)));
    "upper"(LongText) -> LongText, |[Text(a)], _| Ok(text(mapped(a, char::to_uppercase)));
    "substring" | "substr"(LongText, I32) -> LongText,
        |[Text(a), Integer(from)], _| substring(take(a), *from, i128::from(i32::MAX) * 2);
    "substring" | "substr"(LongText, I32, I32) -> LongText, |[Text(a), Integer(from), Integer(length)], _| {
        if *length < 0 {
            let problem = "negative substring length not allowed";
            return Err(EvaluationError::new(EvaluationErrorKind::InvalidSubstring, problem));
        }
        substring(take(a), *from, *from + *length)
    };
    "left"(LongText, I32) -> LongText, |[Text(a), Integer(length)], _| {
        let kept = if *length < 0 { a.chars().count() as i128 + *length } else { *length };
        substring(take(a), 1, 1 + kept)
    };
    "right"(LongText, I32) -> LongText, |[Text(a), Integer(length)], _| {
        let all = a.chars().count() as i128;
        let dropped = if *length < 0 { -*length } else { all - *length };
        substring(take(a), 1 + dropped.max(0), 1 + all)
    };
    "btrim"(LongText) -> LongText, |[Text(a)], _| trimmed(take(a), " ", true, true);
    "btrim"(LongText, LongText) -> LongText, |[Text(a), Text(b)], _| trimmed(take(a), b, true, true);
    "ltrim"(LongText) -> LongText, |[Text(a)], _| trimmed(take(a), " ", true, false);
    "ltrim"(LongText, LongText) -> LongText, |[Text(a), Text(b)], _| trimmed(take(a), b, true, false);
    "rtrim"(LongText) -> LongText, |[Text(a)], _| trimmed(take(a), " ", false, true);
    "rtrim"(LongText, LongText) -> LongText, |[Text(a), Text(b)], _| trimmed(take(a), b, false, true);
    "strpos"(LongText, LongText) -> I32, |[Text(a), Text(b)], ty| {
        whole(Some(a.find(&**b).map_or(0, |at| 1 + a[..at].chars().count() as i128)), ty)
    };
    "replace"(LongText, LongText, LongText) -> LongText,
        |[Text(a), Text(b), Text(c)], _| {
            if b.is_empty() {
                return Ok(Text(take(a)));
            }
            fits(a.matches(&**b).count().saturating_mul(c.len()))?;
            Ok(text(a.replace(&**b, c)))
        };
    "reverse"(LongText) -> LongText, |[Text(a)], _| Ok(text(a.chars().rev().collect()));
    "starts_with"(LongText, LongText) -> Bool, |[Text(a), Text(b)], _| Ok(Datum::Bool(a.starts_with(&**b)));
}

functions! {
    OF_SURROUNDINGS, false,

    "now" | "transaction_timestamp"() -> Timestamp, |[], _| Ok(Datum::Timestamp(surroundings::now()));
    "clock_timestamp"() -> Timestamp, |[], _| Ok(Datum::Timestamp(Timestamp::now()));
    "current_user" | "session_user"() -> LongText, |[], _| surroundings::user().map(text);
    "gen_random_uuid"() -> Uuid, |[], _| {
        let [high, low] = [entropy(), entropy()].map(u128::from);
        Ok(Datum::Uuid(uuid::Builder::from_random_bytes((high << 64 | low).to_be_bytes()).into_uuid()))
    };
    // 53 bits, as many as a float has.
    "random"() -> F64, |[], _| Ok(Float((entropy() >> 11) as f64 / (1_u64 << 53) as f64));
    "nextval"(LongText) -> I64, |[Text(a)], _| surroundings::sequence(SequenceCall::Next(a));
    "currval"(LongText) -> I64, |[Text(a)], _| surroundings::sequence(SequenceCall::Current(a));
    "lastval"() -> I64, |[], _| surroundings::sequence(SequenceCall::Last);
    "setval"(LongText, I64) -> I64,
        |[Text(a), Integer(b)], _| surroundings::sequence(SequenceCall::Set(a, wide(*b), true));
    "setval"(LongText, I64, Bool) -> I64, |[Text(a), Integer(b), Datum::Bool(c)], _| {
        surroundings::sequence(SequenceCall::Set(a, wide(*b), *c))
    };
    "pg_get_serial_sequence"(LongText, LongText) -> LongText,
        |[Text(a), Text(b)], _| surroundings::sequence_of(a, b);
}

/// An argument that is a `bigint`.
fn wide(number: i128) -> i64 {
    number.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// A result within the range of its type.
fn whole<'r>(number: Option<i128>, ty: ColumnType) -> Result<Datum<'r>> {
    match (number, types::range(ty)) {
        (Some(number), Some((low, high))) if low <= number && number <= high => Ok(Integer(number)),
        _ => Err(EvaluationError::out_of_range(ty)),
    }
}

/// Most bytes of a text that is computed: those of the longest text of a row.
const BYTES_MAX: usize = if cfg!(test) { 1 << 16 } else { 1 << 30 };

/// Whether there may be a text of so many bytes. Each function in another can make it some times as long.
fn fits(bytes: usize) -> Result<()> {
    match bytes <= BYTES_MAX {
        true => Ok(()),
        false => Err(EvaluationError::new(
            EvaluationErrorKind::TooLarge,
            format!("a text would have more than {BYTES_MAX} bytes"),
        )),
    }
}

fn nonzero(divisor: i128) -> Result<i128> {
    if divisor == 0 { Err(EvaluationError::division_by_zero()) } else { Ok(divisor) }
}

/// A number of digits, of which there are few.
fn narrow(digits: i128) -> i32 {
    digits.clamp(-1000, 1000) as i32
}

/// A result that is infinite only if an operand is, and zero only if it may be.
fn float<'r>(result: f64, operands: [f64; 2], is_nonzero: bool, ty: ColumnType) -> Result<Datum<'r>> {
    let overflows = result.is_infinite() && !operands.iter().any(|operand| operand.is_infinite());
    if overflows || is_nonzero && result == 0.0 { Err(EvaluationError::out_of_range(ty)) } else { Ok(Float(result)) }
}

fn single<'r>(result: f32, operands: [f32; 2], is_nonzero: bool, ty: ColumnType) -> Result<Datum<'r>> {
    float(result.into(), operands.map(f64::from), is_nonzero, ty).map(|_| Single(result))
}

fn text<'r>(text: String) -> Datum<'r> {
    Text(Cow::Owned(text))
}

/// Each character as one other; those that would become several stay.
fn mapped<I: Iterator<Item = char>>(text: &str, map: impl Fn(char) -> I) -> String {
    let one = |character: char| {
        let mut mapped = map(character);
        match (mapped.next(), mapped.next()) {
            (Some(one), None) => one,
            _ => character,
        }
    };
    text.chars().map(one).collect()
}

/// The characters from one position (the first is 1) up to and without another.
fn substring<'r>(text: Cow<'r, str>, from: i128, to: i128) -> Result<Datum<'r>> {
    let byte = |position: i128| {
        let before = usize::try_from((position - 1).max(0)).unwrap_or(usize::MAX);
        text.char_indices().nth(before).map_or(text.len(), |(at, _)| at)
    };
    let (start, end) = (byte(from), byte(to.max(from)));
    Ok(part(text, start, end))
}

fn part(text: Cow<'_, str>, start: usize, end: usize) -> Datum<'_> {
    Text(match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[start..end]),
        Cow::Owned(text) => Cow::Owned(text[start..end].to_owned()),
    })
}

/// Without characters of the set at its start, and at its end.
fn trimmed<'r>(text: Cow<'r, str>, set: &str, start: bool, end: bool) -> Result<Datum<'r>> {
    let is_in = |character: char| set.contains(character);
    let behind = if end { text.trim_end_matches(is_in).len() } else { text.len() };
    let first = if start { behind - text[..behind].trim_start_matches(is_in).len() } else { 0 };
    Ok(part(text, first, behind))
}

/// A function for arguments of some types.
pub(super) struct Resolved {
    pub(super) function: &'static Function,
    /// The types that its arguments must be made of.
    pub(super) arguments: Vec<ColumnType>,
    pub(super) result: ColumnType,
}

/// Why there is no function for some arguments.
pub(super) enum Unresolved {
    /// There is none of this name.
    Name,
    /// There is none for these types.
    Types,
    /// There are several.
    Ambiguous,
}

/// The function of this name for arguments of these types; the type of an untyped constant or parameter is `None`.
pub(super) fn resolve(
    name: &str,
    is_operator: bool,
    given: &[Option<ColumnType>],
) -> std::result::Result<Resolved, Unresolved> {
    let all = || FUNCTIONS.iter().chain(OF_SURROUNDINGS);
    let named = || all().filter(|function| function.names.contains(&name));
    if named().next().is_none() {
        return Err(Unresolved::Name);
    }
    let candidates = || named().filter(|function| function.arguments.len() == given.len());
    let is_exact = |(argument, given): (&Argument, &Option<ColumnType>)| match (argument, given) {
        (_, None) => true,
        (Argument::Is(ty), Some(given)) => ty == given,
        (Argument::Whole, Some(given)) => types::is_integer(*given),
    };
    let is_implicit = |(argument, given): (&Argument, &Option<ColumnType>)| match (argument, given) {
        // An operation on `real` is for two of them.
        (Argument::Is(ColumnType::F32), _) => false,
        (Argument::Is(ty), Some(given)) => types::is_implicit(*given, *ty),
        pair => is_exact(pair),
    };
    // An untyped operand is what the other one is.
    let assumed = match *given {
        [Some(known), None] | [None, Some(known)] if is_operator => vec![Some(known); 2],
        _ => given.to_vec(),
    };
    let untyped = given.iter().all(Option::is_none);
    let found = if untyped && candidates().count() > 1 {
        let of = |ty: ColumnType| candidates().find(|function| function.arguments.contains(&Argument::Is(ty)));
        let preferred = of(ColumnType::LongText).or_else(|| of(ColumnType::F64).filter(|_| !is_operator));
        Some(preferred.ok_or(Unresolved::Ambiguous)?)
    } else {
        let exact = |given: &[Option<ColumnType>]| {
            candidates().find(|function| function.arguments.iter().zip(given).all(is_exact))
        };
        exact(&assumed)
            .or_else(|| exact(given))
            .or_else(|| candidates().find(|function| function.arguments.iter().zip(given).all(is_implicit)))
    };
    let function = found.ok_or(Unresolved::Types)?;
    let integers = given.iter().copied().flatten().filter(|ty| types::is_integer(*ty));
    let whole = integers.reduce(|a, b| types::of_integers(a, b).unwrap_or(a)).unwrap_or(ColumnType::I32);
    let argument = |(argument, given): (&Argument, &Option<ColumnType>)| match argument {
        Argument::Is(ty) => *ty,
        Argument::Whole => given.unwrap_or(whole),
    };
    Ok(Resolved {
        function,
        arguments: function.arguments.iter().zip(given).map(argument).collect(),
        result: match function.result {
            Outcome::Is(ty) => ty,
            Outcome::Whole => whole,
            Outcome::Negative => types::of_negative(whole).unwrap_or(whole),
        },
    })
}
