//! Values of one type as values of another: explicitly, and as what a column takes.

use std::borrow::Cow;

use super::datum::Datum;
use super::error::{EvaluationError, EvaluationErrorKind};
use super::{numeric, temporal, types};
use crate::{ColumnDef, ColumnType, DateTime, Interval, Numeric, Time, Timestamp, Value};

type Result<T> = std::result::Result<T, EvaluationError>;

/// Whether CAST makes values of one type from those of the other.
pub(super) fn is_castable(from: ColumnType, to: ColumnType) -> bool {
    use ColumnType::{Bool, Char, Date, DateTime, I32, Interval, LongBytes, LongText, Time, Timestamp};
    let (from, to) = (types::of_column(from), types::of_column(to));
    let is_text = |ty: ColumnType| matches!(ty, LongText | Char);
    from == to
        || types::is_number(from) && types::is_number(to)
        || is_text(from)
        || is_text(to) && to == LongText
        || matches!(
            (from, to),
            (Bool, I32)
                | (I32, Bool)
                | (Date, DateTime | Timestamp)
                | (DateTime, Date | Time | Timestamp)
                | (Timestamp, Date | Time | DateTime)
                | (Time, Interval)
                | (Interval, Time)
                | (LongBytes, LongText)
        )
}

/// Whether a value of one type is stored in a column of the other without a cast: what PostgreSQL calls an assignment.
pub(super) fn is_assignable(from: ColumnType, to: ColumnType) -> bool {
    let (from, to) = (types::of_column(from), types::of_column(to));
    from == to
        || types::is_number(from) && types::is_number(to)
        || to == ColumnType::LongText
        || types::is_implicit(from, to)
        || (from, to) == (ColumnType::LongText, ColumnType::Char)
        || matches!(
            (from, to),
            (ColumnType::DateTime | ColumnType::Timestamp, ColumnType::Date | ColumnType::Time)
                | (ColumnType::Timestamp, ColumnType::DateTime)
                | (ColumnType::Time, ColumnType::Interval)
                | (ColumnType::Interval, ColumnType::Time)
        )
}

/// The value of type `from` as one of type `to`, into which it is castable. Texts and bytes are cut off if they are
/// too long.
pub(super) fn cast<'v>(value: Datum<'v>, from: ColumnType, to: ColumnType) -> Result<Datum<'v>> {
    let value = match types::of_column(to) {
        _ if value.is_null() => return Ok(Datum::Null),
        ColumnType::LongText => match value {
            Datum::Text(text) => Datum::Text(text),
            other => Datum::Text(Cow::Owned(to_text(&other, Some(from)).into_owned())),
        },
        wanted => match value {
            Datum::Text(text) => parse(&text, wanted)?,
            Datum::Char(character) if wanted != ColumnType::Char => parse(character.encode_utf8(&mut [0; 4]), wanted)?,
            other => converted(other, wanted)?,
        },
    };
    Ok(match (value, to) {
        (Datum::Text(text), ColumnType::Text { max }) if text.len() > max.into() => {
            let kept = text.floor_char_boundary(max.into());
            Datum::Text(match text {
                Cow::Borrowed(text) => Cow::Borrowed(&text[..kept]),
                Cow::Owned(text) => Cow::Owned(text[..kept].to_owned()),
            })
        }
        (Datum::Bytes(bytes), ColumnType::Bytes { max }) if bytes.len() > max.into() => {
            Datum::Bytes(Cow::Owned(bytes[..max.into()].to_vec()))
        }
        (Datum::Bytes(bytes), ColumnType::ByteArray { bytes: wanted }) if bytes.len() != usize::from(wanted) => {
            let problem = format!("the value has {} bytes, and the type {}", bytes.len(), types::Shown(to));
            return Err(EvaluationError::new(EvaluationErrorKind::TooLong, problem));
        }
        (Datum::Numeric(number), ColumnType::Decimal { scale }) => {
            let rounded = numeric::round(number, scale.into(), false)?;
            match i64::try_from(rounded.coefficient()) {
                Ok(_) if rounded.scale() == scale => Datum::Numeric(rounded),
                _ => return Err(EvaluationError::out_of_range(to)),
            }
        }
        (value, _) => value,
    })
}

/// Of types other than text.
fn converted(value: Datum<'_>, to: ColumnType) -> Result<Datum<'_>> {
    let out_of_range = || EvaluationError::out_of_range(to);
    let integer = |number: i128| match types::range(to) {
        Some((low, high)) if low <= number && number <= high => Ok(Datum::Integer(number)),
        _ => Err(out_of_range()),
    };
    let of_float = |number: f64| {
        let rounded = number.round_ties_even();
        // Beyond 2^127 no `i128` is; a type's own range follows.
        if rounded.is_nan() || rounded.abs() >= 1.7e38 { Err(out_of_range()) } else { integer(rounded as i128) }
    };
    Ok(match (value, to) {
        (Datum::Wide(number), ColumnType::U128) => Datum::Wide(number),
        (Datum::Integer(number), ColumnType::Bool) => Datum::Bool(number != 0),
        (Datum::Integer(number), ColumnType::Numeric) => Datum::Numeric(numeric::of_integer(number)?),
        (Datum::Integer(number), ColumnType::F64) => Datum::Float(number as f64),
        (Datum::Integer(number), ColumnType::F32) => Datum::Single(number as f32),
        (Datum::Wide(number), ColumnType::F64) => Datum::Float(number as f64),
        (Datum::Wide(number), ColumnType::F32) => Datum::Single(number as f32),
        (Datum::Integer(number), _) => integer(number)?,
        (Datum::Wide(_), _) => return Err(out_of_range()),
        (Datum::Bool(value), ty) if types::is_integer(ty) => Datum::Integer(value.into()),
        (Datum::Numeric(number), ColumnType::F64) => Datum::Float(numeric::to_float(number)),
        (Datum::Numeric(number), ColumnType::F32) => {
            Datum::Single(number.to_string().parse().map_err(|_| out_of_range())?)
        }
        (Datum::Numeric(number), ty) if types::is_integer(ty) => integer(numeric::to_integer(number))?,
        (Datum::Float(number), ColumnType::F32) => {
            let single = number as f32;
            if single.is_infinite() && !number.is_infinite() || single == 0.0 && number != 0.0 {
                return Err(out_of_range());
            }
            Datum::Single(single)
        }
        (Datum::Single(number), ColumnType::F64) => Datum::Float(number.into()),
        // As many digits as each number of the type has for certain.
        (Datum::Float(number), ColumnType::Numeric) => Datum::Numeric(of_digits(&format!("{number:.14e}"))?),
        (Datum::Single(number), ColumnType::Numeric) => Datum::Numeric(of_digits(&format!("{number:.5e}"))?),
        (Datum::Float(number), ty) if types::is_integer(ty) => of_float(number)?,
        (Datum::Single(number), ty) if types::is_integer(ty) => of_float(number.into())?,
        (Datum::Date(date), ColumnType::DateTime) => Datum::DateTime(date.at(Time::MIDNIGHT)),
        (Datum::Date(date), ColumnType::Timestamp) => Datum::Timestamp(date.at(Time::MIDNIGHT).in_utc()),
        (Datum::DateTime(moment), ColumnType::Date) => Datum::Date(moment.date()),
        (Datum::DateTime(moment), ColumnType::Time) => Datum::Time(moment.time()),
        (Datum::DateTime(moment), ColumnType::Timestamp) => Datum::Timestamp(moment.in_utc()),
        (Datum::Timestamp(timestamp), ColumnType::Date | ColumnType::Time | ColumnType::DateTime) => {
            let moment = DateTime::from_microseconds(timestamp.microseconds());
            let moment = moment.ok_or_else(|| temporal::out_of_range(to))?;
            match to {
                ColumnType::Date => Datum::Date(moment.date()),
                ColumnType::Time => Datum::Time(moment.time()),
                _ => Datum::DateTime(moment),
            }
        }
        (Datum::Time(time), ColumnType::Interval) => {
            Datum::Interval(Interval { microseconds: time.microseconds(), ..Interval::ZERO })
        }
        (Datum::Interval(interval), ColumnType::Time) => Datum::Time(temporal::time_plus(Time::MIDNIGHT, interval)),
        (value, _) => value,
    })
}

/// A number whose last zeros are none of its digits.
fn of_digits(text: &str) -> Result<Numeric> {
    let number = match numeric::parse(text) {
        Some(number) => number?,
        None => {
            let problem = "cannot convert NaN or infinity to numeric";
            return Err(EvaluationError::new(EvaluationErrorKind::NumberOutOfRange, problem));
        }
    };
    let (mut digits, mut scale) = (number.coefficient(), number.scale());
    while scale > 0 && digits % 10 == 0 {
        (digits, scale) = (digits / 10, scale - 1);
    }
    Ok(Numeric::new(digits, scale).unwrap_or(number))
}

/// The value of this type of expressions that a text is.
pub(super) fn parse(text: &str, ty: ColumnType) -> Result<Datum<'static>> {
    let invalid = |kind: EvaluationErrorKind| {
        let problem = format!("invalid input syntax for type {}: \"{text}\"", types::Shown(ty));
        EvaluationError::new(kind, problem)
    };
    let no_value = || invalid(EvaluationErrorKind::InvalidText);
    // Numbers with the marks between them are a date or a time that there is not.
    let is_out_of_range = text.bytes().all(|byte| byte.is_ascii_digit() || b"-:+.TZ ".contains(&byte));
    let no_time = || match is_out_of_range {
        true => invalid(EvaluationErrorKind::TimeOutOfRange),
        false => invalid(EvaluationErrorKind::InvalidTime),
    };
    let out_of_range = || {
        let problem = format!("value \"{text}\" is out of range for type {}", types::Shown(ty));
        EvaluationError::new(EvaluationErrorKind::NumberOutOfRange, problem)
    };
    let trimmed = text.trim_ascii();
    Ok(match ty {
        ColumnType::LongText => Datum::Text(Cow::Owned(text.to_owned())),
        ColumnType::LongBytes => Datum::Bytes(Cow::Owned(bytes(text).ok_or_else(no_value)?)),
        ColumnType::Numeric => Datum::Numeric(numeric::parse(trimmed).ok_or_else(no_value)??),
        ColumnType::F64 | ColumnType::F32 => {
            let single = ty == ColumnType::F32;
            let number: f64 = trimmed.parse().map_err(|_| no_value())?;
            let digits = trimmed.split(['e', 'E']).next().unwrap_or_default();
            let has_digits = digits.contains(|c: char| matches!(c, '1'..='9'));
            let narrow = trimmed.parse::<f32>().unwrap_or(f32::NAN);
            let (is_infinite, is_zero) =
                if single { (narrow.is_infinite(), narrow == 0.0) } else { (number.is_infinite(), number == 0.0) };
            if has_digits && (is_infinite || is_zero) {
                return Err(out_of_range());
            }
            if single { Datum::Single(narrow) } else { Datum::Float(number) }
        }
        ColumnType::U128 => match trimmed.parse::<u128>() {
            Ok(number) => i128::try_from(number).map_or(Datum::Wide(number), Datum::Integer),
            Err(_) if is_integer(trimmed) => return Err(out_of_range()),
            Err(_) => return Err(no_value()),
        },
        ty if types::is_integer(ty) => {
            let (low, high) = types::range(ty).unwrap_or_default();
            match trimmed.parse::<i128>() {
                Ok(number) if low <= number && number <= high => Datum::Integer(number),
                Err(_) if !is_integer(trimmed) => return Err(no_value()),
                _ => return Err(out_of_range()),
            }
        }
        ColumnType::Bool => Datum::Bool(boolean(trimmed).ok_or_else(no_value)?),
        ColumnType::Timestamp => {
            let in_utc = |text: &str| temporal::parse_moment(text).map(DateTime::in_utc);
            let without = || in_utc(trimmed).or_else(|| in_utc(&trimmed.replacen("+00 BC", " BC", 1)));
            Datum::Timestamp(trimmed.parse::<Timestamp>().ok().or_else(without).ok_or_else(no_time)?)
        }
        ColumnType::DateTime => Datum::DateTime(temporal::parse_moment(trimmed).ok_or_else(no_time)?),
        ColumnType::Date => Datum::Date(temporal::parse_date(trimmed).ok_or_else(no_time)?),
        ColumnType::Time => Datum::Time(temporal::parse_time(trimmed).ok_or_else(no_time)?),
        ColumnType::Interval => Datum::Interval(temporal::parse_interval(trimmed).ok_or_else(no_time)?),
        ColumnType::Uuid => Datum::Uuid(trimmed.parse().map_err(|_| no_value())?),
        ColumnType::Char => Datum::Char(text.parse().map_err(|_| no_value())?),
        ColumnType::Enum { variants } => Datum::Enum(variants.discriminant(text).ok_or_else(no_value)?),
        _ => return Err(no_value()),
    })
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A beginning of a word that no other word has.
fn boolean(text: &str) -> Option<bool> {
    let lower = text.to_ascii_lowercase();
    let is = |word: &str, least: usize| lower.len() >= least && word.starts_with(&lower);
    if is("true", 1) || is("yes", 1) || is("on", 2) || is("1", 1) {
        Some(true)
    } else if is("false", 1) || is("no", 1) || is("off", 2) || is("0", 1) {
        Some(false)
    } else {
        None
    }
}

/// Hexadecimal digits behind `\x`, or characters with escapes.
fn bytes(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits = digits.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let pair = |pair: &[u8]| Some((digit(pair[0])? * 16 + digit(*pair.get(1)?)?) as u8);
        return digits.chunks(2).map(pair).collect();
    }
    let (mut all, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        rest = match (first, behind) {
            (b'\\', [b'\\', behind @ ..]) => {
                all.push(b'\\');
                behind
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                all.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                behind
            }
            (b'\\', _) => return None,
            (byte, behind) => {
                all.push(byte);
                behind
            }
        };
    }
    Some(all)
}

/// As PostgreSQL writes it; `ty` says the names of an enum.
pub(super) fn to_text<'d>(value: &'d Datum<'_>, ty: Option<ColumnType>) -> Cow<'d, str> {
    Cow::Owned(match value {
        Datum::Null => String::new(),
        Datum::Text(text) => return Cow::Borrowed(text),
        Datum::Bool(value) => value.to_string(),
        Datum::Integer(number) => number.to_string(),
        Datum::Wide(number) => number.to_string(),
        Datum::Numeric(number) => number.to_string(),
        Datum::Single(number) => float(f64::from(*number), &format!("{number:e}"), 6),
        Datum::Float(number) => float(*number, &format!("{number:e}"), 15),
        Datum::Bytes(bytes) => "\\x".chars().chain(bytes.iter().flat_map(|byte| hex(*byte))).collect(),
        Datum::Char(character) => character.to_string(),
        Datum::Uuid(uuid) => uuid.to_string(),
        Datum::Date(date) => temporal::date_text(*date),
        Datum::Time(time) => temporal::time_text(*time),
        Datum::DateTime(moment) => temporal::moment_text(*moment, ""),
        Datum::Timestamp(timestamp) => temporal::timestamp_text(*timestamp),
        Datum::Interval(interval) => temporal::interval_text(*interval),
        Datum::Enum(discriminant) => match ty {
            Some(ColumnType::Enum { variants }) => variants.name(*discriminant).unwrap_or_default().to_owned(),
            _ => discriminant.to_string(),
        },
    })
}

fn hex(byte: u8) -> [char; 2] {
    [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'))
}

/// The digits of `d.ddde±x`, with an exponent only outside 10^-4 to 10^`least`.
fn float(number: f64, scientific: &str, least: i32) -> String {
    if !number.is_finite() {
        let text = if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        };
        return text.to_owned();
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |digits| ("-", digits));
    if !(-4..least).contains(&exponent) {
        return format!("{sign}{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    let digits: String = mantissa.chars().filter(|digit| *digit != '.').collect();
    let before = exponent + 1;
    let text = if before <= 0 {
        format!("0.{}{digits}", "0".repeat(before.unsigned_abs() as usize))
    } else if digits.len() <= before as usize {
        format!("{digits}{}", "0".repeat(before as usize - digits.len()))
    } else {
        format!("{}.{}", &digits[..before as usize], &digits[before as usize..])
    };
    format!("{sign}{text}")
}

/// The value, of type `from` (none of an untyped NULL), as one of a column: what an assignment stores.
///
/// # Errors
/// It is no value of the column: out of range, too long, or NULL where there may be none.
pub fn assigned(value: Datum<'_>, from: Option<ColumnType>, column: &ColumnDef) -> Result<Value> {
    let problem = |kind, what: &str| EvaluationError::new(kind, format!("column `{}`: {what}", column.name));
    if value.is_null() {
        let refused = || problem(EvaluationErrorKind::NotNull, "NULL where there must be a value");
        return column.nullable.then_some(Value::NONE).ok_or_else(refused);
    }
    let wanted = types::of_column(column.ty);
    let value = cast(value, from.unwrap_or(wanted), wanted)?;
    // Only spaces may be cut off.
    let value = match (value, column.ty) {
        (Datum::Text(text), ColumnType::Text { max }) if text.len() > max.into() => {
            let kept = text.trim_end_matches(' ');
            if kept.len() > max.into() {
                let what = format!("the value has {} bytes, and there is room for {max}", text.len());
                return Err(problem(EvaluationErrorKind::TooLong, &what));
            }
            let kept = text.floor_char_boundary(max.into());
            Datum::Text(Cow::Owned(text[..kept].to_owned()))
        }
        (Datum::Bytes(bytes), ColumnType::Bytes { max }) if bytes.len() > max.into() => {
            let what = format!("the value has {} bytes, and there is room for {max}", bytes.len());
            return Err(problem(EvaluationErrorKind::TooLong, &what));
        }
        (value, ty) => cast(value, wanted, ty)?,
    };
    let stored = value.to_value(column.ty).ok_or_else(|| EvaluationError::out_of_range(column.ty))?;
    Ok(if column.nullable { stored.some() } else { stored })
}
