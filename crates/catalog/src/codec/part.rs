//! The value of one column, read from keys: which partition a key belongs to is decided by it.

use std::ops::Bound;

use super::KeyCodec;
use crate::key_writer::unescape;
use crate::types::Form;
use crate::{ColumnType, Key, KeyBuf};

/// A value of a column that decides the partition, whatever the width of its type: integers of all types are
/// comparable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionValue {
    /// A truth value, an integer, the units of a decimal, or the microseconds of a timestamp.
    Integer(i128),
    /// Text in UTF-8, bytes, or a value of another type as its key has it.
    Bytes(Vec<u8>),
}

/// Where the keys of one table or index have the value of one column, which is never NULL.
#[derive(Clone, Debug)]
pub struct KeyPlace {
    at: At,
    ty: ColumnType,
    /// Converts the bits in a key into those of an unsigned number: inverts a descending column.
    invert: bool,
}

#[derive(Clone, Debug)]
enum At {
    /// In an integer: the number of bits above it, and the number of its own.
    Word { shift: u32, bits: u32 },
    /// Behind these columns of a byte string.
    Bytes(Box<[Width]>),
}

/// The part of a byte string that a column takes.
#[derive(Clone, Copy, Debug)]
struct Width {
    nullable: bool,
    descending: bool,
    /// Without the byte for NULL; `None`: up to a terminator.
    bytes: Option<u32>,
}

impl KeyCodec {
    /// Where keys have the column at this position of the codec's, if all of them have it and it is never NULL.
    pub fn place_of(&self, part: usize) -> Option<KeyPlace> {
        let (column, descending) = self.parts[..self.always].get(part)?;
        if column.nullable {
            return None;
        }
        let width = |(column, descending): &(crate::ColumnDef, bool)| Width {
            nullable: column.nullable,
            descending: *descending,
            bytes: column.ty.key_bytes(),
        };
        let bits = |step: &super::Step| step.bits();
        let at = match self.format.class {
            crate::KeyClass::Bytes => At::Bytes(self.parts[..part].iter().map(width).collect()),
            _ => At::Word { shift: self.steps[part + 1..].iter().map(bits).sum(), bits: self.steps[part].bits() },
        };
        Some(KeyPlace { at, ty: column.ty, invert: *descending })
    }

    /// The position among the codec's columns of the column of this name.
    pub fn position_of(&self, name: &str) -> Option<usize> {
        self.parts.iter().position(|(column, _)| column.name == name)
    }
}

impl KeyPlace {
    /// The value in a key, if it is an unsigned integer in a key that is one: the most frequent case.
    #[inline(always)]
    pub fn unsigned(&self, key: Key<'_>) -> Option<u64> {
        let At::Word { shift, bits } = self.at else { return None };
        if self.invert || !matches!(self.ty, ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64) {
            return None;
        }
        match key {
            Key::Word8(word) => Some(word >> shift & (u64::MAX >> (64 - bits))),
            Key::Word16(words) => Some((words >> shift) as u64 & (u64::MAX >> (64 - bits))),
            Key::Bytes(_) => None,
        }
    }

    /// The value in a key; `None` if the key is not one of the table or index.
    pub fn value(&self, key: Key<'_>) -> Option<PartitionValue> {
        if let At::Word { shift, bits } = self.at {
            let words = match key {
                Key::Word8(word) => u128::from(word),
                Key::Word16(words) => words,
                Key::Bytes(_) => return None,
            };
            let mask = u128::MAX >> (128 - bits);
            let number = words >> shift & mask;
            let number = if self.invert { !number & mask } else { number };
            return Some(self.whole(&number.to_be_bytes()[16 - bits as usize / 8..]));
        }
        let Key::Bytes(bytes) = key else { return None };
        let bytes = &bytes[self.start(bytes)?..];
        let invert = if self.invert { 0xFF } else { 0 };
        let mut ascending = bytes.iter().map(|byte| byte ^ invert);
        match self.ty.key_bytes() {
            None => unescape(ascending).map(|(bytes, _)| PartitionValue::Bytes(bytes)),
            Some(width) => {
                let key = ascending.by_ref().take(width as usize).collect::<Vec<u8>>();
                (key.len() == width as usize).then(|| self.whole(&key))
            }
        }
    }

    /// The value that all keys between two bounds have, if the bounds determine one.
    pub fn value_between(&self, low: Bound<Key<'_>>, high: Bound<Key<'_>>) -> Option<PartitionValue> {
        let (Bound::Included(first) | Bound::Excluded(first)) = low else { return None };
        match self.at {
            At::Word { shift, .. } => {
                let number = |key: Key<'_>| match key {
                    Key::Word8(word) => Some(u128::from(word)),
                    Key::Word16(words) => Some(words),
                    Key::Bytes(_) => None,
                };
                let last = match high {
                    Bound::Included(key) => number(key)?,
                    Bound::Excluded(key) => number(key)?.checked_sub(1)?,
                    Bound::Unbounded => return None,
                };
                let first =
                    if matches!(low, Bound::Excluded(_)) { number(first)?.checked_add(1)? } else { number(first)? };
                // The column and those before it.
                (first >> shift == last >> shift).then(|| self.value(Key::Word16(first))).flatten()
            }
            At::Bytes(_) => {
                let Key::Bytes(bytes) = first else { return None };
                let shared = &bytes[..self.end(bytes)?];
                let is_shared = match high {
                    Bound::Included(Key::Bytes(high)) => high.starts_with(shared),
                    Bound::Excluded(high) => {
                        let beyond = KeyBuf::after_all(shared);
                        matches!(high, Key::Bytes(bytes) if bytes.starts_with(shared))
                            || beyond.is_some_and(|beyond| high <= beyond.as_key())
                    }
                    _ => false,
                };
                is_shared.then(|| self.value(first)).flatten()
            }
        }
    }

    /// The value of which these are all ascending key bytes.
    fn whole(&self, key: &[u8]) -> PartitionValue {
        let is_integer = matches!(self.ty.form(), Form::Unsigned { .. } | Form::Signed { .. });
        let value = if is_integer { self.ty.of_key(key).and_then(|value| value.partition_value()) } else { None };
        value.unwrap_or_else(|| PartitionValue::Bytes(key.to_vec()))
    }

    /// Where the column begins in a byte string.
    fn start(&self, bytes: &[u8]) -> Option<usize> {
        let At::Bytes(before) = &self.at else { return None };
        before.iter().try_fold(0, |at, width| width.end(bytes, at))
    }

    /// Where the column ends in a byte string.
    fn end(&self, bytes: &[u8]) -> Option<usize> {
        let own = Width { nullable: false, descending: self.invert, bytes: self.ty.key_bytes() };
        own.end(bytes, self.start(bytes)?)
    }
}

impl Width {
    /// Where a column that begins at `from` ends.
    fn end(self, bytes: &[u8], mut from: usize) -> Option<usize> {
        let invert = if self.descending { 0xFF } else { 0 };
        let mut is_null = false;
        if self.nullable {
            is_null = bytes.get(from)? ^ invert == 1;
            from += 1;
        }
        let end = match self.bytes {
            Some(bytes) => from + bytes as usize,
            None if is_null => from,
            // Zero is written nowhere but at the end.
            None => from + bytes.get(from..)?.iter().position(|byte| byte ^ invert == 0)? + 1,
        };
        (end <= bytes.len()).then_some(end)
    }
}

impl From<f64> for PartitionValue {
    fn from(value: f64) -> PartitionValue {
        PartitionValue::Bytes(crate::order::float_bits(value.to_bits(), 8).to_be_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnDef, ColumnType, TableDef, Value, Variant, Variants, asc, desc};

    /// A key of these columns, of which the second is in question; the first is text, so that keys are byte
    /// strings, or a number.
    fn codec(first: ColumnType, ty: ColumnType, descending: bool) -> KeyCodec {
        let table = TableDef::builder("t")
            .column(ColumnDef::new("a", first))
            .column(ColumnDef::new("b", ty))
            .column(ColumnDef::new("c", ColumnType::U8));
        let table = table.key([desc("a"), if descending { desc("b") } else { asc("b") }, asc("c")]);
        KeyCodec::for_table(&table.finish().expect("a valid table"))
    }

    fn of(first: ColumnType) -> Value {
        if first == ColumnType::U16 { Value::from(7u16) } else { Value::Text("a\u{0}b".into()) }
    }

    #[test]
    fn a_value_is_read_from_keys_of_every_class_as_it_was_written() {
        let values = [
            (ColumnType::U64, Value::from(u64::MAX - 1), PartitionValue::Integer(i128::from(u64::MAX - 1))),
            (ColumnType::U16, Value::from(513u16), PartitionValue::Integer(513)),
            (ColumnType::I8, Value::from(-3i8), PartitionValue::Integer(-3)),
            (ColumnType::I32, Value::from(-70_000i32), PartitionValue::Integer(-70_000)),
            (ColumnType::I64, Value::from(i64::MIN), PartitionValue::Integer(i64::MIN.into())),
            (ColumnType::Bool, Value::Bool(true), PartitionValue::Integer(1)),
            (ColumnType::Timestamp, Value::Timestamp(-1), PartitionValue::Integer(-1)),
            (ColumnType::Decimal { scale: 2 }, Value::Decimal { units: -150, scale: 2 }, PartitionValue::Integer(-150)),
            (ColumnType::F64, Value::Float(-1.5), PartitionValue::from(-1.5)),
            (
                ColumnType::Text { max: 9 },
                Value::Text("x\u{1}\u{0}y".into()),
                PartitionValue::Bytes(b"x\x01\0y".to_vec()),
            ),
            (ColumnType::Bytes { max: 9 }, Value::Bytes(vec![0, 255]), PartitionValue::Bytes(vec![0, 255])),
            (ColumnType::LongBytes, Value::List(vec![7u8.into()]), PartitionValue::Bytes(vec![7])),
            (ColumnType::ByteArray { bytes: 2 }, Value::List([0u8, 9].map(Value::from).into()), {
                PartitionValue::Bytes(vec![0, 9])
            }),
        ];
        const VARIANTS: Variants = Variants::declared(&[Variant::new(1, "One"), Variant::new(300, "Many")]);
        let others = [
            (ColumnType::Enum { variants: VARIANTS }, "Many"),
            (ColumnType::I128, "-1"),
            (ColumnType::U128, "1"),
            (ColumnType::F32, "-1.5"),
            (ColumnType::Numeric, "-1.50"),
            (ColumnType::Char, "é"),
            (ColumnType::Uuid, "67e55044-10b1-426f-9247-bb680e5fe0c8"),
            (ColumnType::Date, "1969-12-31"),
            (ColumnType::Time, "23:59"),
            (ColumnType::DateTime, "2026-11-30T14:00"),
            (ColumnType::Interval, "P-1M"),
        ];
        let others = others.map(|(ty, text)| {
            let value = ty.parse(text).expect("its own text");
            let expected = value.partition_value().expect("it is one value");
            (ty, value, expected)
        });
        for (ty, value, expected) in values.into_iter().chain(others) {
            for at in 0..4 {
                let (first, descending) = ([ColumnType::U16, ColumnType::Text { max: 4 }][at / 2], at % 2 == 1);
                let codec = codec(first, ty, descending);
                let place = codec.place_of(1).expect("all keys have it");
                let key = codec.encode_values(&[of(first), value.clone(), 9u8.into()]).expect("of these types");
                assert_eq!(place.value(key.as_key()).as_ref(), Some(&expected), "{ty} behind {first}");
                assert_eq!(value.partition_value().as_ref(), Some(&expected), "{ty}");
                if let Some(number) = place.unsigned(key.as_key()) {
                    assert_eq!(PartitionValue::Integer(number.into()), expected, "{ty} behind {first}");
                }
                // All keys that begin so have the value, and those of a shorter prefix do not.
                let range = |values: &[Value]| {
                    let range = codec.range_of_values(values).expect("of these types");
                    place.value_between(range.low.as_ref().map(KeyBuf::as_key), range.high.as_ref().map(KeyBuf::as_key))
                };
                assert_eq!(range(&[of(first), value.clone()]).as_ref(), Some(&expected), "{ty} behind {first}");
                let whole = range(&[of(first), value.clone(), 255u8.into()]);
                assert_eq!(whole.as_ref(), Some(&expected), "{ty} behind {first}");
                assert_eq!(range(&[of(first)]), None, "{ty} behind {first}");
                assert_eq!(range(&[]), None, "{ty} behind {first}");
            }
        }
    }

    #[test]
    fn a_range_over_two_values_has_none() {
        let table = TableDef::builder("t")
            .column(ColumnDef::new("a", ColumnType::U8))
            .column(ColumnDef::new("b", ColumnType::U8));
        let codec = KeyCodec::for_table(&table.key(["a", "b"]).finish().expect("a valid table"));
        let place = codec.place_of(0).expect("all keys have it");
        let between = |low, high| place.value_between(low, high);
        let (at, key) = (Key::Word8, |a: u64, b: u64| Bound::Excluded(Key::Word8(a << 8 | b)));
        assert_eq!(between(key(3, 255), key(5, 0)), Some(PartitionValue::Integer(4)));
        assert_eq!(between(key(3, 254), key(5, 0)), None);
        assert_eq!(between(key(3, 255), key(5, 1)), None);
        assert_eq!(between(Bound::Included(at(0x300)), Bound::Included(at(0x3ff))), Some(PartitionValue::Integer(3)));
        assert_eq!(between(Bound::Included(at(0x300)), Bound::Included(at(0x400))), None);
        assert_eq!(between(Bound::Unbounded, Bound::Included(at(0))), None);
        assert_eq!(between(Bound::Included(at(0x300)), Bound::Unbounded), None);
        assert!(codec.place_of(2).is_none());
    }

    #[test]
    fn a_column_that_may_be_null_or_missing_has_no_place() {
        let table = TableDef::builder("t")
            .column(ColumnDef::new("id", ColumnType::U8))
            .column(ColumnDef::new("n", ColumnType::U8).nullable());
        let table =
            table.key(["id"]).index("by_n", [asc("n")]).unique_index("one_n", ["n"], crate::Organization::Ordered);
        let table = table.finish().expect("a valid table");
        let codec = |at: usize| KeyCodec::for_index(&table.indexes[at], &table);
        let place = |codec: &KeyCodec, name: &str| codec.position_of(name).and_then(|at| codec.place_of(at)).is_some();
        assert_eq!((place(&codec(0), "n"), place(&codec(0), "id")), (false, true));
        // The key follows where the column is NULL only.
        assert_eq!((place(&codec(1), "n"), place(&codec(1), "id")), (false, false));
        let key = codec(0).encode_values(&[Value::NONE, 5u8.into()]).expect("of these types");
        let place = codec(0).place_of(1).expect("all keys have it");
        assert_eq!(place.value(key.as_key()), Some(PartitionValue::Integer(5)));
    }
}
