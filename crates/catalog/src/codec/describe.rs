//! Keys in words, for messages: the bytes taken apart again.

use std::fmt::Write;

use super::KeyCodec;
use crate::key_writer::unescape;
use crate::{ColumnDef, Key, Value};

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
    let (bytes, taken) = match column.ty.key_bytes() {
        Some(width) => (key.by_ref().take(width as usize).collect::<Vec<u8>>(), width as usize),
        None if is_null => (Vec::new(), 0),
        None => unescape(&mut key)?,
    };
    if column.ty.key_bytes().is_some_and(|width| bytes.len() < width as usize) {
        return None;
    }
    let value = if is_null { Value::NONE } else { optional(column.ty.of_key(&bytes)?) };
    Some((value, nulls + taken))
}
