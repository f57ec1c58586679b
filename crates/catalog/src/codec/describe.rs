//! Keys in words, for messages: the bytes taken apart again.

use std::fmt::Write;

use super::KeyCodec;
use crate::key_writer::unescape;
use crate::order::float_of_bits;
use crate::{ColumnDef, ColumnType, IntegerType, Key, Value};

impl KeyCodec {
    /// The values of a key's columns; `None` if it is not a key of this codec.
    pub fn decode(&self, key: Key<'_>) -> Option<Vec<Value>> {
        let bytes = self.bytes(key)?;
        let (values, rest) = self.take_apart(&bytes);
        let is_whole = values.len() == self.parts.len() || values.len() == self.always;
        (is_whole && rest.is_empty()).then_some(values)
    }

    /// The key as its columns read, such as `w_id 1, name "BAR"`. A key of another codec is described as far
    /// as it goes.
    pub fn describe(&self, key: Key<'_>) -> String {
        let Some(bytes) = self.bytes(key) else { return format!("{key:?}") };
        let (values, rest) = self.take_apart(&bytes);
        let mut text = String::new();
        for ((column, _), value) in self.parts.iter().zip(&values) {
            let comma = if text.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}{} {}", column.name, value.in_column());
        }
        if !rest.is_empty() {
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{comma}b\"{}\"", rest.escape_ascii());
        }
        text
    }

    /// The bytes that a key's columns take; `None` if it is of another class.
    fn bytes(&self, key: Key<'_>) -> Option<Vec<u8>> {
        if key.class() != self.format.class {
            return None;
        }
        let all = key.to_bytes();
        let unused = if matches!(key, Key::Bytes(_)) { 0 } else { all.len() - self.format.bytes as usize };
        Some(all[unused..].to_vec())
    }

    /// The values at the start of key bytes, and the bytes that belong to no value.
    fn take_apart<'k>(&self, mut bytes: &'k [u8]) -> (Vec<Value>, &'k [u8]) {
        let mut values = Vec::new();
        for (column, descending) in &self.parts {
            let invert = if *descending { 0xFF } else { 0 };
            let Some((value, taken)) = take(column, bytes.iter().map(|byte| byte ^ invert)) else { break };
            values.push(value);
            bytes = &bytes[taken..];
        }
        (values, bytes)
    }
}

/// The value at the start of ascending key bytes, and how many it takes. `None` if they are cut short or not a value's.
fn take(column: &ColumnDef, mut key: impl Iterator<Item = u8>) -> Option<(Value, usize)> {
    let nulls = usize::from(column.nullable);
    let is_null = column.nullable && key.next()? == 1;
    let optional = |value: Value| if column.nullable { value.some() } else { value };
    let Some(width) = column.ty.key_bytes() else {
        if is_null {
            return Some((Value::NONE, nulls));
        }
        let (bytes, taken) = unescape(key)?;
        let value = match column.ty {
            ColumnType::Bytes { .. } => Value::Bytes(bytes),
            _ => Value::Text(String::from_utf8(bytes).ok()?),
        };
        return Some((optional(value), nulls + taken));
    };
    let mut bits = 0u64;
    for _ in 0..width {
        bits = bits << 8 | u64::from(key.next()?);
    }
    // Sign-extends a value whose sign bit was flipped.
    let signed = || (((bits ^ 1 << (8 * width - 1)) << (64 - 8 * width)) as i64) >> (64 - 8 * width);
    if is_null {
        return Some((Value::NONE, nulls + width as usize));
    }
    let value = match (column.ty, IntegerType::of_column(column.ty)) {
        (ColumnType::F64, _) => Value::Float(f64::from_bits(float_of_bits(bits))),
        (ColumnType::Decimal { scale }, _) => Value::Decimal { units: signed(), scale },
        (ColumnType::Timestamp, _) => Value::Timestamp(signed()),
        (_, Some(ty)) if ty.range().0 < 0 => Value::Integer(signed().into(), Some(ty)),
        (_, Some(ty)) => Value::Integer(bits.into(), Some(ty)),
        _ => Value::Bool(bits != 0),
    };
    Some((optional(value), nulls + width as usize))
}
