//! Lines of a JSON dump. The first says that it is one, then there is a line for each table, for each row, and one for
//! the end.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use seriatim_engine::Reserved;

use crate::Value;
use crate::catalog::{
    Access, ColumnDef, ColumnType, Object, RoleDef, ScalarType, SequenceDef, SequenceOptions, TableDef, WrittenGrant,
};

/// The version of the lines that this program writes.
pub(super) const VERSION: u32 = 1;

/// The largest integer that each reader of JSON has exactly, and its negation too: 2^53 - 1.
const EXACT_MAX: i128 = (1 << 53) - 1;

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header<'l> {
    /// `dump`.
    #[serde(borrow)]
    pub(super) seriatim: Cow<'l, str>,
    pub(super) version: u32,
}

impl Header<'_> {
    pub(super) const DUMP: &'static str = "dump";
}

/// The line of a row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowLine<'l> {
    #[serde(borrow)]
    pub(super) table: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) row: Cells<'l>,
}

/// The last line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndLine {
    pub(super) end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    pub(super) tables: u64,
    pub(super) rows: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) sequences: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) roles: u64,
}

/// The line of roles and rights, of a database that has others than a new one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccessLine {
    pub(super) access: AccessBody,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccessBody {
    /// With their ids, by which the others name them.
    pub(super) roles: Vec<(u32, RoleDef)>,
    pub(super) rights: Vec<RightsBody>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RightsBody {
    /// None of the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) table: Option<String>,
    /// Or of this sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sequence: Option<String>,
    pub(super) owner: u32,
    pub(super) grants: Vec<WrittenGrant>,
}

impl AccessLine {
    /// The line of these roles and rights. `name` has the names of tables.
    pub(super) fn new(access: &Access, name: impl Fn(Object) -> Option<String>) -> AccessLine {
        let roles = access.roles().map(|(id, role)| (id, role.clone())).collect();
        let rights = access.objects().filter_map(|(object, rights)| {
            let (table, sequence) = match object {
                Object::Schema => (None, None),
                Object::Table(_) => (Some(name(object)?), None),
                Object::Sequence(_) => (None, Some(name(object)?)),
            };
            Some(RightsBody { table, sequence, owner: rights.owner, grants: rights.written() })
        });
        AccessLine { access: AccessBody { roles, rights: rights.collect() } }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The line of a sequence.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SequenceLine<'l> {
    #[serde(borrow)]
    pub(super) sequence: Cow<'l, str>,
    #[serde(rename = "type")]
    pub(super) ty: ColumnType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<Exact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) increment: Option<Exact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) minimum: Option<Exact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) maximum: Option<Exact>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) cycle: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cache: Option<u32>,
    /// The table whose rows it numbers.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub(super) table: Option<Cow<'l, str>>,
    /// The last number that was given, or the first if none was.
    pub(super) last: Exact,
    pub(super) given: bool,
}

impl<'l> SequenceLine<'l> {
    pub(super) fn new(sequence: SequenceDef, table: Option<&'l str>, at: Reserved) -> SequenceLine<'l> {
        let SequenceDef { name, ty, options } = sequence.unsaid();
        let SequenceOptions { start, increment, minimum, maximum, cycle, cache } = options;
        let (start, increment) = (start.map(Exact), increment.map(Exact));
        let (minimum, maximum) = (minimum.map(Exact), maximum.map(Exact));
        let (table, last, given) = (table.map(Cow::Borrowed), Exact(at.last), at.given);
        SequenceLine { sequence: name, ty, start, increment, minimum, maximum, cycle, cache, table, last, given }
    }

    /// Its declaration.
    pub(super) fn definition(&self) -> SequenceDef {
        let of = |number: &Option<Exact>| number.as_ref().map(|number| number.0);
        let options = SequenceOptions {
            start: of(&self.start),
            increment: of(&self.increment),
            minimum: of(&self.minimum),
            maximum: of(&self.maximum),
            cycle: self.cycle,
            cache: self.cache,
        };
        SequenceDef { name: self.sequence.to_string().into(), ty: self.ty, options }.said()
    }

    /// How far it has got.
    pub(super) fn state(&self) -> Reserved {
        Reserved { last: self.last.0, given: self.given }
    }
}

/// An integer that no reader of JSON rounds.
pub(super) struct Exact(i64);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match i128::from(self.0).abs() <= EXACT_MAX {
            true => serializer.serialize_i64(self.0),
            false => serializer.collect_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Exact, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Number<'l> {
            Small(i64),
            Text(#[serde(borrow)] Cow<'l, str>),
        }
        match Number::deserialize(deserializer)? {
            Number::Small(number) => Ok(Exact(number)),
            Number::Text(text) => text.parse().map(Exact).map_err(serde::de::Error::custom),
        }
    }
}

/// The values of a row by the names of their columns, in the order of the line.
#[derive(Default)]
pub(super) struct Cells<'l>(pub(super) Vec<(Cow<'l, str>, &'l RawValue)>);

impl<'de: 'l, 'l> Deserialize<'de> for Cells<'l> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cells<'l>, D::Error> {
        struct Each<'l>(Cells<'l>);
        impl<'de: 'l, 'l> Visitor<'de> for Each<'l> {
            type Value = Cells<'l>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of columns and their values")
            }

            fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Cells<'l>, A::Error> {
                while let Some(Name(name)) = map.next_key()? {
                    self.0.0.push((name, map.next_value()?));
                }
                Ok(self.0)
            }
        }
        deserializer.deserialize_map(Each(Cells::default()))
    }
}

/// A name, borrowed from the line if it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'l>(#[serde(borrow)] Cow<'l, str>);

/// What a line is that is none of the expected lines.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Kinds {
    pub(super) columns: Option<serde::de::IgnoredAny>,
    pub(super) row: Option<serde::de::IgnoredAny>,
    pub(super) end: Option<serde::de::IgnoredAny>,
    pub(super) sequence: Option<serde::de::IgnoredAny>,
    pub(super) access: Option<serde::de::IgnoredAny>,
}

/// Writes the line of a row. `begin` is the line up to the values ([`begin_row`]).
pub(super) fn write_row(out: &mut Vec<u8>, begin: &[u8], names: &[String], values: &[Value]) {
    out.extend_from_slice(begin);
    for (at, (name, value)) in names.iter().zip(values).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        write_value(out, value);
    }
    out.extend_from_slice(b"}}\n");
}

/// What the lines of all rows of a table begin with, and the names of its columns, as JSON.
pub(super) fn begin_row(table: &TableDef) -> (Vec<u8>, Vec<String>) {
    let mut begin = b"{\"table\":".to_vec();
    write_text(&mut begin, &table.name);
    begin.extend_from_slice(b",\"row\":{");
    let name = |column: &ColumnDef| {
        let mut name = Vec::new();
        write_text(&mut name, &column.name);
        String::from_utf8(name).expect("JSON is UTF-8")
    };
    (begin, table.columns.iter().map(name).collect())
}

/// Writes a value so that each reader of JSON has it exactly. Texts are integers of more than 53 bits, decimals, and
/// floats that are no number.
fn write_value(out: &mut Vec<u8>, value: &Value) {
    let as_is = match value {
        Value::Option(None) => return out.extend_from_slice(b"null"),
        Value::Option(Some(value)) => return write_value(out, value),
        Value::Bool(_) => true,
        Value::Integer(number, _) => -EXACT_MAX <= *number && *number <= EXACT_MAX,
        Value::Float(number) => number.is_finite(),
        Value::Scalar(scalar) => f32::of_scalar(scalar).is_some_and(f32::is_finite),
        Value::Text(text) => return write_text(out, text),
        _ => false,
    };
    let text = value.to_text().unwrap_or_default();
    match as_is {
        true => out.extend_from_slice(text.as_bytes()),
        false => write_text(out, &text),
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a text, and memory");
}

/// The value of a column that this JSON is, as [`write_row`] writes it. Where the column has numbers, each may be a
/// number or a text.
///
/// # Errors
/// What it is, and what would be right.
pub(super) fn value(column: &ColumnDef, raw: &RawValue) -> Result<Value, String> {
    let (ty, json) = (column.ty, raw.get());
    let value = match json.as_bytes().first() {
        Some(b'n') if column.nullable => return Ok(Value::NONE),
        Some(b'n') => return Err(format!("null is no {ty}, and the column is not nullable")),
        Some(b'"') => match plain(json) {
            Some(text) => ty.parse(text),
            None => ty.parse(&serde_json::from_str::<String>(json).map_err(|error| error.to_string())?),
        },
        Some(b't' | b'f') if ty == ColumnType::Bool => ty.parse(json),
        Some(b'-' | b'0'..=b'9') if is_number(ty) => ty.parse(json),
        _ => {
            let shown = &json[..json.floor_char_boundary(SHOWN_MAX)];
            let wanted = match ty {
                ColumnType::Bool => "true or false",
                _ if is_number(ty) => "a number, or a text with one",
                _ => "a text",
            };
            return Err(format!("{shown} is no {ty}: write {wanted}"));
        }
    };
    let value = value.map_err(|error| error.to_string())?;
    Ok(if column.nullable { value.some() } else { value })
}

/// Most bytes of a value that a message shows.
const SHOWN_MAX: usize = 80;

/// The text of a JSON string without escapes.
fn plain(json: &str) -> Option<&str> {
    let text = json.strip_prefix('"')?.strip_suffix('"')?;
    (!text.as_bytes().contains(&b'\\')).then_some(text)
}

fn is_number(ty: ColumnType) -> bool {
    use ColumnType::{Decimal, F32, F64, I8, I16, I32, I64, I128, Numeric, U8, U16, U32, U64, U128};
    matches!(ty, I8 | I16 | I32 | I64 | I128 | U8 | U16 | U32 | U64 | U128 | F32 | F64 | Decimal { .. } | Numeric)
}

#[cfg(test)]
mod tests {
    use crate::catalog::{Date, DateTime, Interval, Numeric, Time, Uuid};

    use super::super::csv;
    use super::*;

    #[test]
    fn values_are_written_so_that_they_can_be_read_again() {
        let values = [
            (Value::NONE, "", "null"),
            (Value::Text(String::new()), "\"\"", "\"\""),
            (Value::from("a \"b\"\n").some(), "\"a \"\"b\"\"\n\"", r#""a \"b\"\n""#),
            (Value::from("\\."), "\"\\.\"", r#""\\.""#),
            (Value::from(u64::MAX), "18446744073709551615", r#""18446744073709551615""#),
            (Value::from(1i64 << 53), "9007199254740992", r#""9007199254740992""#),
            (Value::from((1i64 << 53) - 1), "9007199254740991", "9007199254740991"),
            (Value::from(-7i64), "-7", "-7"),
            (
                Value::Integer(i128::MAX, None),
                "170141183460469231731687303715884105727",
                r#""170141183460469231731687303715884105727""#,
            ),
            (Value::Float(0.5), "0.5", "0.5"),
            (Value::Float(-0.0), "-0.0", "-0.0"),
            (Value::Float(1e300), "1e300", "1e300"),
            (Value::Float(f64::NAN), "NaN", r#""NaN""#),
            (Value::Decimal { units: -105, scale: 2 }, "-1.05", r#""-1.05""#),
            (Value::Bytes(vec![0, 255]), "00ff", r#""00ff""#),
            (Value::from(0.1f32), "0.1", "0.1"),
            (Value::from(f32::INFINITY), "inf", r#""inf""#),
            (
                Value::from(u128::MAX),
                "340282366920938463463374607431768211455",
                r#""340282366920938463463374607431768211455""#,
            ),
            (Value::from('"'), r#""""""#, r#""\"""#),
            (
                Value::from(Uuid::nil()),
                "00000000-0000-0000-0000-000000000000",
                r#""00000000-0000-0000-0000-000000000000""#,
            ),
            (Value::from(Numeric::new(-1050, 2).expect("a number")), "-10.50", r#""-10.50""#),
            (Value::from(Date::default()), "1970-01-01", r#""1970-01-01""#),
            (Value::from(Time::MIDNIGHT), "00:00:00.000000", r#""00:00:00.000000""#),
            (Value::from(DateTime::default()), "1970-01-01T00:00:00.000000", r#""1970-01-01T00:00:00.000000""#),
            (Value::from(Interval { months: 1, days: -1, microseconds: 0 }), "P1M-1D", r#""P1M-1D""#),
            (Value::record("Paid", []), "Paid", r#""Paid""#),
            (Value::Bool(true), "true", "true"),
        ];
        for (value, as_csv, as_json) in values {
            let (mut line, mut json) = (Vec::new(), Vec::new());
            csv::write(&mut line, csv::fields(std::slice::from_ref(&value))).expect("memory");
            write_value(&mut json, &value);
            assert_eq!(String::from_utf8(line).as_deref(), Ok(&*format!("{as_csv}\n")));
            assert_eq!(String::from_utf8(json).as_deref(), Ok(as_json));
        }
    }
}
