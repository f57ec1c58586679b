//! Types as SQL names them, and the columns that store them.
//!
//! A column has one of the catalogue's types. Some types of SQL say more than that: `varchar(20)`, `char(4)` and
//! `numeric(12, 2)`. The column keeps such a type as text ([`ColumnDef::declared`]).

use std::fmt;

use seriatim::Value;
use seriatim::catalog::{ColumnDef, ColumnType, Numeric, ScalarType as _};
use sqlparser::ast::DataType;

use crate::error::{SqlError, SqlState};

/// A type of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SqlType {
    /// `boolean`.
    Bool,
    /// `smallint`.
    Int2,
    /// `integer`.
    Int4,
    /// `bigint`.
    Int8,
    /// `real`.
    Float4,
    /// `double precision`.
    Float8,
    /// `numeric`, with the most digits and those of them after the point.
    Numeric(Option<(u8, u8)>),
    /// `text`.
    Text,
    /// `varchar`, with the most characters.
    Varchar(Option<u32>),
    /// `char`, padded with blanks to so many characters.
    Char(u32),
    /// `bytea`.
    Bytea,
    /// `uuid`.
    Uuid,
    /// `date`.
    Date,
    /// `time without time zone`.
    Time,
    /// `timestamp without time zone`.
    Timestamp,
    /// `timestamp with time zone`.
    TimestampTz,
    /// `interval`.
    Interval,
    /// `oid`: the number of an object of the system catalogue.
    Oid,
    /// `name`: a name in the system catalogue.
    Name,
    /// `"char"`: one byte in the system catalogue.
    InternalChar,
    /// A type of the system catalogue that is shown as text: its name and its number.
    Other(&'static str, u32),
}

/// Most digits of a `numeric`.
const DIGITS_MAX: u8 = 38;

/// Most digits of a `numeric` that is stored as an `i64`.
const DIGITS_FAST: u8 = 18;

/// A text of so many bytes lies in its row; longer ones are out of line.
const IN_PLACE_MAX: u32 = 64;

/// Most characters of `varchar` and `char`, as PostgreSQL has it.
const CHARACTERS_MAX: u32 = 10_485_760;

impl SqlType {
    /// The type that this is in a statement.
    ///
    /// # Errors
    /// There is none of this name, or it cannot have these modifiers.
    pub(crate) fn of(data_type: &DataType) -> Result<SqlType, SqlError> {
        SqlType::parse(&data_type.to_string())
    }

    /// The type of this name.
    ///
    /// # Errors
    /// There is none, or it cannot have these modifiers.
    pub(crate) fn parse(text: &str) -> Result<SqlType, SqlError> {
        let text = text.to_ascii_lowercase();
        let (name, modifiers) = match (text.find('('), text.find(')')) {
            (Some(open), Some(close)) if open < close => {
                let modifiers = text[open + 1..close].split(',').map(|modifier| modifier.trim().parse::<i64>());
                let modifiers = modifiers.collect::<Result<Vec<i64>, _>>();
                let modifiers =
                    modifiers.map_err(|_| invalid(format!("\"{text}\" has a modifier that is no number")))?;
                (format!("{}{}", text[..open].trim_end(), &text[close + 1..]), modifiers)
            }
            _ => (text.clone(), Vec::new()),
        };
        let name = name.replace('"', "");
        let name = name.trim_start_matches("pg_catalog.");
        let (ty, takes) = match name {
            "bool" | "boolean" => (SqlType::Bool, 0),
            "int2" | "smallint" => (SqlType::Int2, 0),
            "int" | "int4" | "integer" => (SqlType::Int4, 0),
            "int8" | "bigint" => (SqlType::Int8, 0),
            "float4" | "real" => (SqlType::Float4, 0),
            "float8" | "double precision" => (SqlType::Float8, 0),
            "float" => match modifiers.first() {
                None | Some(25..=53) => (SqlType::Float8, 1),
                Some(1..=24) => (SqlType::Float4, 1),
                Some(_) => return Err(invalid("the precision of a float is from 1 to 53 bits")),
            },
            "numeric" | "decimal" | "dec" => (SqlType::Numeric(digits(&modifiers)?), 2),
            "text" | "name" => (SqlType::Text, 0),
            "varchar" | "character varying" | "char varying" => (SqlType::Varchar(characters(&modifiers)?), 1),
            "char" | "character" | "bpchar" => (SqlType::Char(characters(&modifiers)?.unwrap_or(1)), 1),
            "bytea" => (SqlType::Bytea, 0),
            "uuid" => (SqlType::Uuid, 0),
            "date" => (SqlType::Date, 0),
            "time" | "time without time zone" => (SqlType::Time, 0),
            "timestamp" | "timestamp without time zone" => (SqlType::Timestamp, 0),
            "timestamptz" | "timestamp with time zone" => (SqlType::TimestampTz, 0),
            "interval" => (SqlType::Interval, 0),
            "json"
            | "jsonb"
            | "xml"
            | "money"
            | "inet"
            | "cidr"
            | "bit"
            | "varbit"
            | "timetz"
            | "time with time zone" => {
                return Err(SqlError::unsupported(
                    format!("type {name}"),
                    "Text can be stored in a column of type text.",
                ));
            }
            _ => {
                let message = format!("type \"{name}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message).hint(TYPES));
            }
        };
        if modifiers.len() > takes {
            let message = format!("type {name} with the modifier {}", modifiers[takes]);
            return Err(SqlError::unsupported(message, "Times have six digits after the second."));
        }
        Ok(ty)
    }

    /// The type of this name, also one of the catalogue only.
    pub(crate) fn of_catalogue(name: &str) -> Option<SqlType> {
        match name.eq_ignore_ascii_case("oid") {
            true => Some(SqlType::Oid),
            false => SqlType::parse(name).ok(),
        }
    }

    /// The type of a column's values.
    pub(crate) fn of_column(column: &ColumnDef) -> SqlType {
        let declared = column.declared.as_deref().and_then(|declared| SqlType::parse(declared).ok());
        declared.unwrap_or_else(|| SqlType::of_stored(column.ty))
    }

    /// The type of SQL that has all values of a type of the catalogue.
    pub fn of_stored(ty: ColumnType) -> SqlType {
        match ty {
            ColumnType::Bool => SqlType::Bool,
            ColumnType::I8 | ColumnType::U8 | ColumnType::I16 => SqlType::Int2,
            ColumnType::U16 | ColumnType::I32 => SqlType::Int4,
            ColumnType::U32 | ColumnType::I64 => SqlType::Int8,
            ColumnType::U64 | ColumnType::I128 | ColumnType::U128 | ColumnType::Numeric => SqlType::Numeric(None),
            ColumnType::F32 => SqlType::Float4,
            ColumnType::F64 => SqlType::Float8,
            ColumnType::Decimal { scale } => SqlType::Numeric(Some((DIGITS_FAST, scale))),
            ColumnType::Char | ColumnType::Text { .. } | ColumnType::LongText | ColumnType::Enum { .. } => {
                SqlType::Text
            }
            ColumnType::Bytes { .. } | ColumnType::LongBytes | ColumnType::ByteArray { .. } => SqlType::Bytea,
            ColumnType::Uuid => SqlType::Uuid,
            ColumnType::Date => SqlType::Date,
            ColumnType::Time => SqlType::Time,
            ColumnType::DateTime => SqlType::Timestamp,
            ColumnType::Timestamp => SqlType::TimestampTz,
            ColumnType::Interval => SqlType::Interval,
        }
    }

    /// The type as which its values are stored.
    pub fn stored(self) -> ColumnType {
        of_expressions(self.column(String::new()).ty)
    }

    /// A column of this type.
    pub(crate) fn column(self, name: String) -> ColumnDef {
        let ty = match self {
            SqlType::Bool => ColumnType::Bool,
            SqlType::Int2 => ColumnType::I16,
            SqlType::Int4 => ColumnType::I32,
            SqlType::Int8 => ColumnType::I64,
            SqlType::Float4 => ColumnType::F32,
            SqlType::Float8 => ColumnType::F64,
            SqlType::Numeric(Some((digits, scale))) if digits <= DIGITS_FAST => ColumnType::Decimal { scale },
            SqlType::Numeric(_) => ColumnType::Numeric,
            SqlType::Varchar(Some(most)) | SqlType::Char(most) if most <= IN_PLACE_MAX / 4 => {
                // A character has at most 4 bytes.
                ColumnType::Text { max: 4 * most as u16 }
            }
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => ColumnType::LongText,
            SqlType::Bytea => ColumnType::LongBytes,
            SqlType::Uuid => ColumnType::Uuid,
            SqlType::Date => ColumnType::Date,
            SqlType::Time => ColumnType::Time,
            SqlType::Timestamp => ColumnType::DateTime,
            SqlType::TimestampTz => ColumnType::Timestamp,
            SqlType::Interval => ColumnType::Interval,
            SqlType::Oid => ColumnType::U32,
            SqlType::Name | SqlType::InternalChar | SqlType::Other(..) => ColumnType::LongText,
        };
        let mut column = ColumnDef::new(name, ty);
        if SqlType::of_stored(ty) != self {
            column.declared = Some(self.to_string().into());
        }
        column
    }

    /// The name without modifiers, which outputs get that are casts.
    pub(crate) fn short_name(self) -> String {
        match self {
            SqlType::Bool => "bool",
            SqlType::Int2 => "int2",
            SqlType::Int4 => "int4",
            SqlType::Int8 => "int8",
            SqlType::Float4 => "float4",
            SqlType::Float8 => "float8",
            SqlType::Numeric(_) => "numeric",
            SqlType::Varchar(_) => "varchar",
            SqlType::Char(_) => "bpchar",
            SqlType::Time => "time",
            SqlType::Timestamp => "timestamp",
            SqlType::TimestampTz => "timestamptz",
            SqlType::InternalChar => "char",
            other => return other.to_string(),
        }
        .to_owned()
    }

    /// The number by which the protocol of PostgreSQL knows the type.
    pub fn oid(self) -> u32 {
        match self {
            SqlType::Bool => 16,
            SqlType::Bytea => 17,
            SqlType::Int8 => 20,
            SqlType::Int2 => 21,
            SqlType::Int4 => 23,
            SqlType::Text => 25,
            SqlType::Float4 => 700,
            SqlType::Float8 => 701,
            SqlType::Char(_) => 1042,
            SqlType::Varchar(_) => 1043,
            SqlType::Date => 1082,
            SqlType::Time => 1083,
            SqlType::Timestamp => 1114,
            SqlType::TimestampTz => 1184,
            SqlType::Interval => 1186,
            SqlType::Numeric(_) => 1700,
            SqlType::Uuid => 2950,
            SqlType::Oid => 26,
            SqlType::Name => 19,
            SqlType::InternalChar => 18,
            SqlType::Other(_, oid) => oid,
        }
    }

    /// The type with this number, without modifiers; none if there is none.
    pub fn of_oid(oid: u32) -> Option<SqlType> {
        Some(match oid {
            16 => SqlType::Bool,
            17 => SqlType::Bytea,
            20 => SqlType::Int8,
            21 => SqlType::Int2,
            23 => SqlType::Int4,
            18 | 19 | 25 => SqlType::Text,
            26 => SqlType::Oid,
            700 => SqlType::Float4,
            701 => SqlType::Float8,
            1042 | 1043 => SqlType::Varchar(None),
            1082 => SqlType::Date,
            1083 => SqlType::Time,
            1114 => SqlType::Timestamp,
            1184 => SqlType::TimestampTz,
            1186 => SqlType::Interval,
            1700 => SqlType::Numeric(None),
            2950 => SqlType::Uuid,
            // Arrays are texts.
            other => {
                let (oid, name, _) = ARRAYS.iter().find(|(oid, ..)| *oid == other)?;
                SqlType::Other(name, *oid)
            }
        })
    }

    /// The bytes of a value in the binary format, and -1 where they differ.
    pub fn width(self) -> i16 {
        match self {
            SqlType::Bool => 1,
            SqlType::Int2 => 2,
            SqlType::Int4 | SqlType::Float4 | SqlType::Date | SqlType::Oid => 4,
            SqlType::Int8 | SqlType::Float8 | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz => 8,
            SqlType::Uuid | SqlType::Interval => 16,
            SqlType::Name => 64,
            SqlType::InternalChar => 1,
            SqlType::Numeric(_) | SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Bytea => -1,
            SqlType::Other(..) => -1,
        }
    }

    /// Its modifiers as one number, as PostgreSQL encodes them; -1 for none.
    pub fn modifier(self) -> i32 {
        match self {
            SqlType::Varchar(Some(most)) | SqlType::Char(most) => most as i32 + 4,
            SqlType::Numeric(Some((digits, scale))) => (i32::from(digits) << 16 | i32::from(scale)) + 4,
            _ => -1,
        }
    }

    /// The type of its elements, if it is an array or a vector.
    pub fn element(self) -> Option<SqlType> {
        let SqlType::Other(_, own) = self else { return None };
        match own {
            22 => Some(SqlType::Int2),
            30 => Some(SqlType::Oid),
            _ => SqlType::of_oid(ARRAYS.iter().find(|(oid, ..)| *oid == own)?.2),
        }
    }

    /// The type of arrays of such elements, if there is one.
    pub fn array_of(self) -> Option<SqlType> {
        SqlType::of_oid(ARRAYS.iter().find(|(.., element)| *element == self.oid())?.0)
    }

    /// Whether it is an array or a vector of integers.
    pub(crate) fn is_array_of_numbers(self) -> bool {
        matches!(self, SqlType::Other(_, 22 | 30 | 1005 | 1007 | 1016 | 1028))
    }

    /// Whether its values are aligned to the right where they are shown in columns.
    pub fn is_number(self) -> bool {
        matches!(
            self,
            SqlType::Int2
                | SqlType::Int4
                | SqlType::Int8
                | SqlType::Float4
                | SqlType::Float8
                | SqlType::Numeric(_)
                | SqlType::Oid
        )
    }
}

/// Types of arrays: their numbers, their names, and the numbers of their elements' types.
const ARRAYS: &[(u32, &str, u32)] = &[
    (1000, "boolean[]", 16),
    (1001, "bytea[]", 17),
    (1002, "\"char\"[]", 18),
    (1003, "name[]", 19),
    (1005, "smallint[]", 21),
    (1007, "integer[]", 23),
    (1009, "text[]", 25),
    (1014, "character[]", 1042),
    (1015, "character varying[]", 1043),
    (1016, "bigint[]", 20),
    (1021, "real[]", 700),
    (1022, "double precision[]", 701),
    (1028, "oid[]", 26),
    (1115, "timestamp without time zone[]", 1114),
    (1182, "date[]", 1082),
    (1183, "time without time zone[]", 1083),
    (1185, "timestamp with time zone[]", 1184),
    (1187, "interval[]", 1186),
    (1231, "numeric[]", 1700),
    (2951, "uuid[]", 2950),
];

/// The type that values of a column have in expressions.
pub(crate) fn of_expressions(stored: ColumnType) -> ColumnType {
    match stored {
        ColumnType::Text { .. } => ColumnType::LongText,
        ColumnType::Bytes { .. } | ColumnType::ByteArray { .. } => ColumnType::LongBytes,
        ColumnType::Decimal { .. } => ColumnType::Numeric,
        other => other,
    }
}

/// The value of a column as its declared type has it: without trailing blanks in `char`, and within its length or
/// digits.
///
/// # Errors
/// It is too long, or has too many digits.
pub(crate) fn fit(value: Value, column: &ColumnDef) -> Result<Value, SqlError> {
    if column.declared.is_none() {
        return Ok(value);
    }
    let ty = SqlType::of_column(column);
    let within = |error: SqlError| Err(error.column(column.name.to_string()));
    match (value, ty) {
        (Value::Option(Some(value)), _) => Ok(fit(*value, column)?.some()),
        (Value::Text(text), SqlType::Char(most)) => match cut_blanks(text.trim_end_matches(' ').to_owned(), most) {
            Some(text) => Ok(Value::Text(text)),
            None => within(too_long(ty)),
        },
        (Value::Text(text), SqlType::Varchar(Some(most))) => match cut_blanks(text, most) {
            Some(text) => Ok(Value::Text(text)),
            None => within(too_long(ty)),
        },
        (Value::Decimal { units, scale }, SqlType::Numeric(Some((digits, _)))) => {
            match 10_i128.checked_pow(digits.into()).is_none_or(|limit| i128::from(units).abs() < limit) {
                true => Ok(Value::Decimal { units, scale }),
                false => within(overflow(digits, scale)),
            }
        }
        (Value::Scalar(scalar), SqlType::Numeric(Some((digits, scale)))) => {
            let rounded = Numeric::of_scalar(&scalar).and_then(|value| value.round(scale).ok());
            match rounded.filter(|value| {
                let limit = 10_u128.checked_pow(digits.into());
                limit.is_none_or(|limit| value.coefficient().unsigned_abs() < limit)
            }) {
                Some(value) => Ok(Value::from(value)),
                None => within(overflow(digits, scale)),
            }
        }
        (value, _) => Ok(value),
    }
}

/// The text, without blanks beyond the most characters; none if there are others.
fn cut_blanks(mut text: String, most: u32) -> Option<String> {
    if let Some((end, _)) = text.char_indices().nth(most as usize) {
        if !text[end..].chars().all(|character| character == ' ') {
            return None;
        }
        text.truncate(end);
    }
    Some(text)
}

fn too_long(ty: SqlType) -> SqlError {
    SqlError::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, format!("value too long for type {ty}"))
}

fn overflow(digits: u8, scale: u8) -> SqlError {
    let whole = digits - scale.min(digits);
    let detail =
        format!("A field with precision {digits}, scale {scale} must round to an absolute value less than 10^{whole}.");
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").detail(detail)
}

/// As PostgreSQL's `format_type` has it.
impl fmt::Display for SqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SqlType::Bool => "boolean",
            SqlType::Int2 => "smallint",
            SqlType::Int4 => "integer",
            SqlType::Int8 => "bigint",
            SqlType::Float4 => "real",
            SqlType::Float8 => "double precision",
            SqlType::Numeric(None) => "numeric",
            SqlType::Numeric(Some((digits, scale))) => return write!(f, "numeric({digits},{scale})"),
            SqlType::Text => "text",
            SqlType::Varchar(None) => "character varying",
            SqlType::Varchar(Some(most)) => return write!(f, "character varying({most})"),
            SqlType::Char(characters) => return write!(f, "character({characters})"),
            SqlType::Bytea => "bytea",
            SqlType::Uuid => "uuid",
            SqlType::Date => "date",
            SqlType::Time => "time without time zone",
            SqlType::Timestamp => "timestamp without time zone",
            SqlType::TimestampTz => "timestamp with time zone",
            SqlType::Interval => "interval",
            SqlType::Oid => "oid",
            SqlType::Name => "name",
            SqlType::InternalChar => "\"char\"",
            SqlType::Other(name, _) => name,
        })
    }
}

/// What there is, for the hint of an error.
const TYPES: &str = "Types are boolean, smallint, integer, bigint, real, double precision, numeric, text, varchar, \
                     char, bytea, uuid, date, time, timestamp, timestamptz and interval.";

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The modifiers of `numeric`.
fn digits(modifiers: &[i64]) -> Result<Option<(u8, u8)>, SqlError> {
    let (digits, scale) = match *modifiers {
        [] => return Ok(None),
        [digits] => (digits, 0),
        [digits, scale, ..] => (digits, scale),
    };
    let is_one = (1..=i64::from(DIGITS_MAX)).contains(&digits) && (0..=digits).contains(&scale);
    match (u8::try_from(digits), u8::try_from(scale)) {
        (Ok(digits), Ok(scale)) if is_one => Ok(Some((digits, scale))),
        _ => Err(invalid(format!(
            "numeric({digits},{scale}) is not possible: a numeric has from 1 to {DIGITS_MAX} digits, and no more of \
             them after the point"
        ))),
    }
}

/// The modifier of `varchar` and `char`.
fn characters(modifiers: &[i64]) -> Result<Option<u32>, SqlError> {
    let Some(&most) = modifiers.first() else { return Ok(None) };
    match u32::try_from(most) {
        Ok(most @ 1..=CHARACTERS_MAX) => Ok(Some(most)),
        _ => Err(invalid(format!("the length of a text is from 1 to {CHARACTERS_MAX} characters, not {most}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types_are_those_of_postgresql() {
        for (written, formal) in [
            ("BOOL", "boolean"),
            ("int", "integer"),
            ("INTEGER", "integer"),
            ("pg_catalog.int8", "bigint"),
            ("smallint", "smallint"),
            ("float", "double precision"),
            ("float(24)", "real"),
            ("DOUBLE PRECISION", "double precision"),
            ("decimal(12, 2)", "numeric(12,2)"),
            ("numeric(5)", "numeric(5,0)"),
            ("numeric", "numeric"),
            ("varchar(20)", "character varying(20)"),
            ("character varying", "character varying"),
            ("char", "character(1)"),
            ("CHARACTER(120)", "character(120)"),
            ("timestamp", "timestamp without time zone"),
            ("timestamptz", "timestamp with time zone"),
            ("TIMESTAMP WITH TIME ZONE", "timestamp with time zone"),
            ("time", "time without time zone"),
        ] {
            let ty = SqlType::parse(written).expect("it is a type");
            assert_eq!(ty.to_string(), formal, "{written}");
            assert_eq!(SqlType::parse(formal), Ok(ty), "{formal} is read as what it is");
            assert_eq!(SqlType::of_column(&ty.column("c".to_owned())), ty, "a column keeps {formal}");
        }
    }

    #[test]
    fn what_is_no_type_is_refused_with_what_would_be() {
        let failed = |text: &str| SqlType::parse(text).expect_err("it is none");
        assert_eq!(failed("integr").state, SqlState::UNDEFINED_OBJECT);
        assert_eq!(failed("jsonb").state, SqlState::FEATURE_NOT_SUPPORTED);
        assert_eq!(failed("timestamp(3)").state, SqlState::FEATURE_NOT_SUPPORTED);
        for wrong in ["numeric(0)", "numeric(39, 2)", "numeric(4, 5)", "varchar(0)", "char(99999999)", "float(54)"] {
            assert_eq!(failed(wrong).state, SqlState::INVALID_PARAMETER_VALUE, "{wrong}");
        }
    }
}
