//! Types of expressions: those of columns, without what only rows need. Their names in SQL, and what becomes of two.

use std::fmt;

use crate::{ColumnType, IntegerType};

/// The type of a column's value in an expression.
pub(super) const fn of_column(ty: ColumnType) -> ColumnType {
    match ty {
        ColumnType::Text { .. } => ColumnType::LongText,
        ColumnType::Bytes { .. } | ColumnType::ByteArray { .. } => ColumnType::LongBytes,
        ColumnType::Decimal { .. } => ColumnType::Numeric,
        other => other,
    }
}

/// The name of a type in SQL, which [`named`] reads.
pub(super) struct Shown(pub(super) ColumnType);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ColumnType::Decimal { scale } => write!(f, "numeric(18, {scale})"),
            ColumnType::Bytes { max } => write!(f, "bytea({max})"),
            ColumnType::ByteArray { bytes } => write!(f, "byte_array({bytes})"),
            ty => match NAMES.iter().find(|(_, of)| *of == ty) {
                Some((name, _)) => f.write_str(name),
                None => ty.fmt(f),
            },
        }
    }
}

/// Names of types without parameters; the first of each type is the one that is shown.
const NAMES: [(&str, ColumnType); 33] = [
    ("boolean", ColumnType::Bool),
    ("bool", ColumnType::Bool),
    ("i8", ColumnType::I8),
    ("smallint", ColumnType::I16),
    ("int2", ColumnType::I16),
    ("integer", ColumnType::I32),
    ("int", ColumnType::I32),
    ("int4", ColumnType::I32),
    ("bigint", ColumnType::I64),
    ("int8", ColumnType::I64),
    ("i128", ColumnType::I128),
    ("u8", ColumnType::U8),
    ("u16", ColumnType::U16),
    ("u32", ColumnType::U32),
    ("u64", ColumnType::U64),
    ("u128", ColumnType::U128),
    ("numeric", ColumnType::Numeric),
    ("decimal", ColumnType::Numeric),
    ("double precision", ColumnType::F64),
    ("float8", ColumnType::F64),
    ("float", ColumnType::F64),
    ("real", ColumnType::F32),
    ("float4", ColumnType::F32),
    ("text", ColumnType::LongText),
    ("varchar", ColumnType::LongText),
    ("bytea", ColumnType::LongBytes),
    ("uuid", ColumnType::Uuid),
    ("date", ColumnType::Date),
    ("time", ColumnType::Time),
    ("timestamp", ColumnType::DateTime),
    ("timestamp with time zone", ColumnType::Timestamp),
    ("timestamptz", ColumnType::Timestamp),
    ("interval", ColumnType::Interval),
];

/// The type of this name in SQL, with these numbers in parentheses behind it.
pub(super) fn named(name: &str, numbers: &[u16]) -> Option<ColumnType> {
    Some(match (name, numbers) {
        ("char", []) => ColumnType::Char,
        ("numeric", [18, scale]) => ColumnType::Decimal { scale: u8::try_from(*scale).ok()? },
        ("text", [max]) => ColumnType::Text { max: *max },
        ("bytea", [max]) => ColumnType::Bytes { max: *max },
        ("byte_array", [bytes]) => ColumnType::ByteArray { bytes: *bytes },
        (name, []) => NAMES.iter().find(|(known, _)| *known == name)?.1,
        _ => return None,
    })
    .filter(|ty| ty.problem().is_none())
}

/// The bits of an integer type, and whether it has a sign.
fn integer(ty: ColumnType) -> Option<(u32, bool)> {
    match ty {
        ColumnType::I128 => Some((128, true)),
        ColumnType::U128 => Some((128, false)),
        ty => IntegerType::of_column(ty).map(|_| (ty.row_bytes() * 8, !is_unsigned(ty))),
    }
}

const fn is_unsigned(ty: ColumnType) -> bool {
    matches!(ty, ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64)
}

pub(super) fn is_integer(ty: ColumnType) -> bool {
    integer(ty).is_some()
}

/// Whether there is an operator that compares values of these types as they are.
pub(super) fn are_compared_uncast(a: ColumnType, b: ColumnType) -> bool {
    let is_float = |ty| matches!(ty, ColumnType::F32 | ColumnType::F64);
    let is_time = |ty| matches!(ty, ColumnType::Date | ColumnType::DateTime | ColumnType::Timestamp);
    is_integer(a) && is_integer(b) || is_float(a) && is_float(b) || is_time(a) && is_time(b)
}

pub(super) fn is_number(ty: ColumnType) -> bool {
    is_integer(ty) || matches!(ty, ColumnType::Numeric | ColumnType::F32 | ColumnType::F64)
}

/// The narrowest signed type with more than so many bits.
fn signed_above(bits: u32) -> ColumnType {
    match bits {
        0..16 => ColumnType::I16,
        16..32 => ColumnType::I32,
        32..64 => ColumnType::I64,
        _ => ColumnType::I128,
    }
}

/// The type of what is computed of two integers.
pub(super) fn of_integers(a: ColumnType, b: ColumnType) -> Option<ColumnType> {
    let ((bits, signed), (other, sign)) = (integer(a)?, integer(b)?);
    let wider = if bits >= other { a } else { b };
    Some(match (signed, sign) {
        _ if wider == ColumnType::U128 => ColumnType::I128,
        (true, true) | (false, false) => wider,
        (true, false) if bits > other => a,
        (false, true) if other > bits => b,
        (true, false) => signed_above(other),
        (false, true) => signed_above(bits),
    })
}

/// The type of the negative of an integer.
pub(super) fn of_negative(ty: ColumnType) -> Option<ColumnType> {
    let (bits, signed) = integer(ty)?;
    Some(if signed { ty } else { signed_above(bits) })
}

/// The least and the greatest value of an integer type; those of `u128` that are also an `i128`.
pub(super) fn range(ty: ColumnType) -> Option<(i128, i128)> {
    match ty {
        ColumnType::I128 => Some((i128::MIN, i128::MAX)),
        ColumnType::U128 => Some((0, i128::MAX)),
        ty => IntegerType::of_column(ty).map(IntegerType::range),
    }
}

/// Whether a value of one type stands for one of the other without being asked.
pub(super) fn is_implicit(from: ColumnType, to: ColumnType) -> bool {
    use ColumnType::{Char, Date, DateTime, F32, F64, I32, LongText, Numeric, Timestamp};
    match (from, to) {
        (from, to) if from == to => true,
        // Positions and lengths are integers of any type; their range is checked.
        (from, I32) => is_integer(from),
        (from, Numeric) => is_integer(from),
        (from, F64 | F32) => is_integer(from) || from == Numeric || (from, to) == (F32, F64),
        (Char, LongText) | (Date, DateTime | Timestamp) | (DateTime, Timestamp) => true,
        (from, to) => is_integer(from) && is_integer(to) && of_integers(from, to) == Some(to),
    }
}

/// The type as which values of both are compared, or are results of one expression.
pub(super) fn common(a: ColumnType, b: ColumnType) -> Option<ColumnType> {
    if a == b {
        return Some(a);
    }
    if let Some(integer) = of_integers(a, b) {
        return Some(integer);
    }
    // An integer is converted to a fraction, and not the other way round.
    [(a, b), (b, a)].into_iter().find(|&(from, to)| is_implicit(from, to) && !is_integer(to)).map(|(_, to)| to)
}

/// As [`common`], for operands: a `real` beside another number counts as `double precision`.
pub(super) fn compared(a: ColumnType, b: ColumnType) -> Option<ColumnType> {
    match (a, b) {
        (ColumnType::F32, other) | (other, ColumnType::F32) if other != ColumnType::F32 && is_number(other) => {
            Some(ColumnType::F64)
        }
        _ => common(a, b),
    }
}
