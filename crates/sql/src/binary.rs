//! Values as bytes of the protocol: in text, and in PostgreSQL's binary formats.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::Datum;
use seriatim::{Date, DateTime, Interval, Numeric, Time, Timestamp, Uuid};

use crate::error::{SqlError, SqlState};
use crate::select::Column;
use crate::types::SqlType;

/// Days and microseconds from 1970 to 2000, from where PostgreSQL counts.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROSECONDS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As SQL writes it.
    Text,
    /// As the type's own bytes.
    Binary,
}

impl Format {
    /// The format of a value by the codes of a message: one for each value, or one for all, or none.
    ///
    /// # Errors
    /// There is no such code, or there is another number of them.
    pub fn of(codes: &[i16], at: usize, count: usize) -> Result<Format, SqlError> {
        let code = match codes {
            [] => 0,
            [one] => *one,
            codes if codes.len() == count => codes[at],
            codes => {
                let message = format!("{} formats were given for {count} values", codes.len());
                return Err(SqlError::new(SqlState("08P01"), message));
            }
        };
        match code {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            other => Err(SqlError::new(SqlState("22023"), format!("unsupported format code: {other}"))),
        }
    }

    /// The code of the format in messages.
    pub fn code(self) -> i16 {
        match self {
            Format::Text => 0,
            Format::Binary => 1,
        }
    }
}

/// Appends a value with its length before it.
pub fn write(value: &Datum<'_>, column: &Column, format: Format, row: &mut BytesMut) {
    let start = row.len();
    row.put_i32(-1);
    if value.is_null() {
        return;
    }
    match format {
        Format::Text => row.put_slice(column.text(value).unwrap_or_default().as_bytes()),
        Format::Binary => write_binary(value, column, row),
    }
    let length = i32::try_from(row.len() - start - 4).unwrap_or(i32::MAX);
    row[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn write_binary(value: &Datum<'_>, column: &Column, row: &mut BytesMut) {
    match (value, column.ty) {
        (Datum::Bool(truth), _) => row.put_u8(u8::from(*truth)),
        // A column has values of its type only.
        (Datum::Integer(number), SqlType::Int2) => row.put_i16(*number as i16),
        (Datum::Integer(number), SqlType::Int4) => row.put_i32(*number as i32),
        (Datum::Integer(number), SqlType::Int8) => row.put_i64(*number as i64),
        (Datum::Integer(number), SqlType::Oid) => row.put_u32(*number as u32),
        (Datum::Text(text), ty) if let Some(element) = ty.element() => write_array(text, element, row),
        (Datum::Integer(number), _) => match Numeric::new(*number, 0) {
            Ok(number) => write_numeric(number, row),
            // More digits than a numeric has here.
            Err(_) => write_digits(&number.to_string(), row),
        },
        (Datum::Wide(number), _) => write_digits(&number.to_string(), row),
        (Datum::Numeric(number), _) => write_numeric(*number, row),
        (Datum::Single(number), _) => row.put_f32(*number),
        (Datum::Float(number), _) => row.put_f64(*number),
        (Datum::Bytes(bytes), _) => row.put_slice(bytes),
        (Datum::Uuid(uuid), _) => row.put_slice(uuid.as_bytes()),
        (Datum::Date(date), _) => row.put_i32(date.days() - EPOCH_DAYS),
        (Datum::Time(time), _) => row.put_i64(time.microseconds()),
        (Datum::DateTime(moment), _) => row.put_i64(moment.microseconds().saturating_sub(EPOCH_MICROSECONDS)),
        (Datum::Timestamp(moment), _) => row.put_i64(moment.microseconds().saturating_sub(EPOCH_MICROSECONDS)),
        (Datum::Interval(interval), _) => {
            row.put_i64(interval.microseconds);
            row.put_i32(interval.days);
            row.put_i32(interval.months);
        }
        (Datum::Null | Datum::Text(_) | Datum::Char(_) | Datum::Enum(_), _) => {
            row.put_slice(column.text(value).unwrap_or_default().as_bytes());
        }
    }
}

/// An array of one dimension. Texts that are none have no elements.
fn write_array(text: &str, element: SqlType, row: &mut BytesMut) {
    let elements = crate::array::elements(text).unwrap_or_default();
    row.put_i32(i32::from(!elements.is_empty()));
    row.put_i32(i32::from(elements.iter().any(Option::is_none)));
    row.put_u32(element.oid());
    if elements.is_empty() {
        return;
    }
    row.put_i32(elements.len() as i32);
    // Vectors count from 0.
    row.put_i32(i32::from(text.trim_start().starts_with('{')));
    let stored = element.stored();
    let column = Column::computed("", element, stored);
    for value in elements {
        let value = value.and_then(|value| Datum::of_text(&value, stored).ok()).unwrap_or(Datum::Null);
        write(&value, &column, Format::Binary, row);
    }
}

/// An array of one dimension, as text; `None` if the bytes are none.
fn read_array(bytes: &[u8], element: SqlType) -> Result<Option<String>, SqlError> {
    let word = |at: usize| bytes.get(at..at + 4).map(|word| i32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    let (dimensions, Some(count)) = (word(0), word(12).or(Some(0))) else { return Ok(None) };
    match dimensions {
        Some(0) if bytes.len() == 12 => return Ok(Some("{}".to_owned())),
        Some(1) if count >= 0 => {}
        Some(2..) => return Err(SqlError::unsupported_value("arrays of several dimensions")),
        _ => return Ok(None),
    }
    let (mut elements, mut at) = (Vec::new(), 20);
    for _ in 0..count {
        let Some(length) = word(at) else { return Ok(None) };
        at += 4;
        let Ok(length) = usize::try_from(length) else {
            elements.push(None);
            continue;
        };
        let Some(value) = at.checked_add(length).and_then(|end| bytes.get(at..end)) else { return Ok(None) };
        at += length;
        elements.push(Some(read_binary(value, Some(element), element.stored())?.to_text(None).into_owned()));
    }
    Ok((at == bytes.len()).then(|| crate::array::to_text(elements.into_iter())))
}

fn write_numeric(number: Numeric, row: &mut BytesMut) {
    write_digits(&number.to_string(), row);
}

/// A decimal number as groups of four digits.
fn write_digits(text: &str, row: &mut BytesMut) {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (0x4000, digits),
        None => (0, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    // Groups are counted from the point.
    let padded = format!("{}{whole}", "0".repeat((4 - whole.len() % 4) % 4));
    let tail = format!("{fraction}{}", "0".repeat((4 - fraction.len() % 4) % 4));
    let group = |text: &str, at: usize| text[4 * at..4 * at + 4].parse::<i16>().unwrap_or(0);
    let mut groups: Vec<i16> = (0..padded.len() / 4).map(|at| group(&padded, at)).collect();
    let mut weight = groups.len() as i16 - 1;
    groups.extend((0..tail.len() / 4).map(|at| group(&tail, at)));
    let zeros = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..zeros);
    weight -= zeros as i16;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    row.put_i16(groups.len() as i16);
    row.put_i16(weight);
    row.put_u16(if groups.is_empty() { 0 } else { sign });
    row.put_i16(fraction.len() as i16);
    groups.into_iter().for_each(|group| row.put_i16(group));
}

/// A value of this type from the bytes of a message. `sent` is the type that the client said it has.
///
/// # Errors
/// The bytes are no value of the type.
pub fn read(bytes: &[u8], format: Format, sent: Option<SqlType>, ty: ColumnType) -> Result<Datum<'static>, SqlError> {
    match format {
        Format::Text => {
            let text = text(bytes)?;
            Datum::of_text(text, ty).map_err(SqlError::from)
        }
        Format::Binary => read_binary(bytes, sent, ty),
    }
}

fn text(bytes: &[u8]) -> Result<&str, SqlError> {
    let invalid = || SqlError::new(SqlState("22021"), "invalid byte sequence for encoding \"UTF8\"");
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(invalid()),
    }
}

fn read_binary(bytes: &[u8], sent: Option<SqlType>, ty: ColumnType) -> Result<Datum<'static>, SqlError> {
    let wrong = || {
        let message = format!("{} bytes are no value of type {} in binary format", bytes.len(), SqlType::of_stored(ty));
        SqlError::new(SqlState("22P03"), message)
    };
    let integer = || {
        let wanted = match sent {
            Some(ty @ (SqlType::Int2 | SqlType::Int4 | SqlType::Int8 | SqlType::Oid)) => {
                usize::try_from(ty.width()).ok()
            }
            _ => None,
        };
        if wanted.is_some_and(|wanted| wanted != bytes.len()) {
            return None;
        }
        Some(match bytes.len() {
            2 => i128::from(i16::from_be_bytes(bytes.try_into().ok()?)),
            4 if sent == Some(SqlType::Oid) => i128::from(u32::from_be_bytes(bytes.try_into().ok()?)),
            4 => i128::from(i32::from_be_bytes(bytes.try_into().ok()?)),
            8 => i128::from(i64::from_be_bytes(bytes.try_into().ok()?)),
            _ => return None,
        })
    };
    let int32 = || Some(i32::from_be_bytes(bytes.try_into().ok()?));
    let int64 = || Some(i64::from_be_bytes(bytes.try_into().ok()?));
    if let Some(element) = sent.and_then(SqlType::element) {
        return read_array(bytes, element)?.map(|text| Datum::Text(text.into())).ok_or_else(wrong);
    }
    let value = match ty {
        ColumnType::Bool => match bytes {
            [0] => Some(Datum::Bool(false)),
            [1] => Some(Datum::Bool(true)),
            _ => None,
        },
        ColumnType::F32 => int32().map(|bits| Datum::Single(f32::from_bits(bits as u32))),
        ColumnType::F64 => int64().map(|bits| Datum::Float(f64::from_bits(bits as u64))),
        ColumnType::Numeric if !matches!(sent, Some(SqlType::Int2 | SqlType::Int4 | SqlType::Int8)) => {
            return read_numeric(bytes)?.map(Datum::Numeric).ok_or_else(wrong);
        }
        ColumnType::Numeric => integer().and_then(|number| Numeric::new(number, 0).ok()).map(Datum::Numeric),
        ColumnType::LongBytes => Some(Datum::Bytes(Cow::Owned(bytes.to_vec()))),
        ColumnType::Uuid => bytes.try_into().ok().map(|bytes| Datum::Uuid(Uuid::from_bytes(bytes))),
        ColumnType::Date => int32().and_then(|days| Date::from_days(days.checked_add(EPOCH_DAYS)?)).map(Datum::Date),
        ColumnType::Time => int64().and_then(Time::from_microseconds).map(Datum::Time),
        ColumnType::DateTime => int64()
            .and_then(|time| DateTime::from_microseconds(time.checked_add(EPOCH_MICROSECONDS)?))
            .map(Datum::DateTime),
        ColumnType::Timestamp => int64()
            .and_then(|time| time.checked_add(EPOCH_MICROSECONDS))
            .map(|time| Datum::Timestamp(Timestamp::from_microseconds(time))),
        ColumnType::Interval => match bytes.split_first_chunk::<8>() {
            Some((microseconds, rest)) if rest.len() == 8 => {
                let word = |at: usize| i32::from_be_bytes(std::array::from_fn(|i| rest[at + i]));
                let microseconds = i64::from_be_bytes(*microseconds);
                Some(Datum::Interval(Interval { months: word(4), days: word(0), microseconds }))
            }
            _ => None,
        },
        ColumnType::LongText | ColumnType::Char | ColumnType::Enum { .. } => {
            return Datum::of_text(text(bytes)?, ty).map_err(SqlError::from);
        }
        // Integers of all kinds.
        _ => match (sent, integer()) {
            (Some(SqlType::Numeric(_)), _) => {
                let number = read_numeric(bytes)?.ok_or_else(wrong)?;
                return Datum::of_text(&number.to_string(), ty).map_err(SqlError::from);
            }
            (_, Some(number)) => return Datum::of_text(&number.to_string(), ty).map_err(SqlError::from),
            _ => None,
        },
    };
    value.ok_or_else(wrong)
}

/// A decimal number of groups of four digits; `None` if the bytes are none.
fn read_numeric(bytes: &[u8]) -> Result<Option<Numeric>, SqlError> {
    let word = |at: usize| bytes.get(2 * at..2 * at + 2).map(|word| i16::from_be_bytes([word[0], word[1]]));
    let (Some(count), Some(weight), Some(sign), Some(scale)) = (word(0), word(1), word(2), word(3)) else {
        return Ok(None);
    };
    if count < 0 || bytes.len() != 8 + 2 * count as usize || !(0..=0x3fff).contains(&scale) {
        return Ok(None);
    }
    let too_large = || SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric has at most 38 digits here");
    let sign = match sign as u16 {
        0 => 1,
        0x4000 => -1,
        _ => return Err(SqlError::unsupported_value("NaN and infinity as numeric")),
    };
    let mut coefficient: i128 = 0;
    let mut exponent = 4 * (i32::from(weight) + 1);
    for at in 0..count as usize {
        let Some(group @ 0..=9_999) = word(4 + at) else { return Ok(None) };
        coefficient =
            coefficient.checked_mul(10_000).and_then(|c| c.checked_add(group.into())).ok_or_else(too_large)?;
        exponent -= 4;
    }
    // The number is the coefficient times ten to this exponent, with so many digits shown after the point.
    let mut scale = i32::from(scale);
    while exponent > -scale {
        coefficient = coefficient.checked_mul(10).ok_or_else(too_large)?;
        exponent -= 1;
    }
    while exponent < -scale {
        if coefficient % 10 != 0 {
            scale = -exponent;
            break;
        }
        coefficient /= 10;
        exponent += 1;
    }
    let scale = u8::try_from(scale).map_err(|_| too_large())?;
    Numeric::new(sign * coefficient, scale).map(Some).map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(ty: SqlType, stored: ColumnType) -> Column {
        Column::computed("c", ty, stored)
    }

    #[test]
    fn values_are_read_as_they_were_written_in_both_formats() {
        let numeric = |text: &str| Datum::Numeric(text.parse().expect("a number"));
        let values = [
            (Datum::Bool(true), SqlType::Bool, ColumnType::Bool),
            (Datum::Integer(-7), SqlType::Int2, ColumnType::I16),
            (Datum::Integer(i128::from(i32::MIN)), SqlType::Int4, ColumnType::I32),
            (Datum::Integer(i128::from(i64::MAX)), SqlType::Int8, ColumnType::I64),
            (numeric("0"), SqlType::Numeric(None), ColumnType::Numeric),
            (numeric("0.00"), SqlType::Numeric(None), ColumnType::Numeric),
            (numeric("-0.0001"), SqlType::Numeric(None), ColumnType::Numeric),
            (numeric("10000"), SqlType::Numeric(None), ColumnType::Numeric),
            (numeric("12345.678900"), SqlType::Numeric(None), ColumnType::Numeric),
            (numeric("-99999999999999999999.5"), SqlType::Numeric(None), ColumnType::Numeric),
            (numeric("0.00000000000000000000000000000000000001"), SqlType::Numeric(None), ColumnType::Numeric),
            (Datum::Single(1.5), SqlType::Float4, ColumnType::F32),
            (Datum::Float(-0.1), SqlType::Float8, ColumnType::F64),
            (Datum::Text("äb".into()), SqlType::Text, ColumnType::LongText),
            (Datum::Bytes(vec![0, 255].into()), SqlType::Bytea, ColumnType::LongBytes),
            (Datum::Uuid(Uuid::from_u128(7)), SqlType::Uuid, ColumnType::Uuid),
            (Datum::Date("2026-11-30".parse().expect("a date")), SqlType::Date, ColumnType::Date),
            (Datum::Time("12:34:56.5".parse().expect("a time")), SqlType::Time, ColumnType::Time),
            (Datum::DateTime("1999-12-31T23:59:59".parse().expect("a time")), SqlType::Timestamp, ColumnType::DateTime),
            (Datum::Integer(i128::from(u32::MAX)), SqlType::Oid, ColumnType::U32),
            (Datum::Text("{1,NULL,-3}".into()), SqlType::Other("bigint[]", 1016), ColumnType::LongText),
            (Datum::Text("{a,\"b c\",NULL}".into()), SqlType::Other("text[]", 1009), ColumnType::LongText),
            (Datum::Text("{}".into()), SqlType::Other("integer[]", 1007), ColumnType::LongText),
            (Datum::Timestamp(Timestamp::from_microseconds(1)), SqlType::TimestampTz, ColumnType::Timestamp),
            (
                Datum::Interval(Interval { months: 1, days: -2, microseconds: 3_000_000 }),
                SqlType::Interval,
                ColumnType::Interval,
            ),
        ];
        for (value, ty, stored) in values {
            for format in [Format::Text, Format::Binary] {
                let mut row = BytesMut::new();
                write(&value, &column(ty, stored), format, &mut row);
                let length = i32::from_be_bytes(row[..4].try_into().expect("a length"));
                assert_eq!(usize::try_from(length).expect("not NULL"), row.len() - 4);
                let again = read(&row[4..], format, Some(ty), stored);
                assert_eq!(again, Ok(value.clone()), "{value:?} in {format:?}: {row:?}");
                // What is cut off is refused, or another value; nothing panics.
                for end in 0..row.len() - 4 {
                    let _ = read(&row[4..4 + end], format, Some(ty), stored);
                }
            }
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        let failed = |bytes: &[u8], format, ty| read(bytes, format, None, ty).expect_err("no value").state;
        assert_eq!(failed(b"x", Format::Text, ColumnType::I32), SqlState("22P02"));
        assert_eq!(failed(b"\xff", Format::Text, ColumnType::LongText), SqlState("22021"));
        assert_eq!(failed(b"abc", Format::Binary, ColumnType::I32), SqlState("22P03"));
        assert_eq!(failed(&[2], Format::Binary, ColumnType::Bool), SqlState("22P03"));
        // A client that says what it sends sends that.
        for (sent, bytes) in [(SqlType::Int4, &[0; 8][..]), (SqlType::Int8, &[0; 4]), (SqlType::Int2, &[0; 4])] {
            let read = read(bytes, Format::Binary, Some(sent), ColumnType::I64);
            assert_eq!(read.expect_err("another width").state, SqlState("22P03"));
        }
        assert_eq!(failed(&[0, 1, 0, 0, 0, 0], Format::Binary, ColumnType::Numeric), SqlState("22P03"));
        let count = [0x7f, 0xff, 0, 0, 0, 0, 0, 0];
        assert_eq!(failed(&count, Format::Binary, ColumnType::Numeric), SqlState("22P03"));
        assert_eq!(Format::of(&[0, 1], 0, 3).expect_err("three values").state, SqlState("08P01"));
        assert_eq!(Format::of(&[7], 0, 1).expect_err("no format").state, SqlState("22023"));
    }
}
