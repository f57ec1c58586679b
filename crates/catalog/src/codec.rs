//! Keys where only the schema is known: from rows, for index maintenance; from values; and back into words, for messages.
//!
//! The bytes are those of [`TableKey`](crate::TableKey): a derived key and a codec of the same columns agree.

use std::fmt::Write;
use std::ops::Bound;

use crate::column::KeyColumn;
use crate::range::KeyRange;
use crate::{
    Bytes, ColumnDef, ColumnId, ColumnSet, ColumnType, IndexDef, Key, KeyBuf, KeyClass, KeyParts, KeyPart, KeyShape,
    KeyWriter, Layout, Place, RowRef, TableDef, Value, ValueError, decimal,
};

/// Encodes and describes the keys of one table or index.
#[derive(Clone, Debug)]
pub struct KeyCodec {
    parts: Vec<CodecPart>,
    shape: KeyShape,
    columns: ColumnSet,
}

#[derive(Clone, Debug)]
struct CodecPart {
    column: ColumnDef,
    id: ColumnId,
    place: Place,
    descending: bool,
}

impl KeyCodec {
    /// Of a table's primary key.
    pub fn for_table(table: &TableDef) -> KeyCodec {
        KeyCodec::new(table, table.key.iter().copied())
    }

    /// Of an index: its columns, then the primary key's unless it is unique or hashed (a hash index that is not unique has
    /// one entry a key, which lists the rows).
    pub fn for_index(index: &IndexDef, table: &TableDef) -> KeyCodec {
        let apart = !index.unique && index.organization == crate::Organization::Ordered;
        let primary = if apart { &table.key[..] } else { &[] };
        KeyCodec::new(table, index.parts.iter().chain(primary).copied())
    }

    fn new(table: &TableDef, parts: impl Iterator<Item = KeyPart>) -> KeyCodec {
        let layout = Layout::new(&table.columns);
        let part = |part: KeyPart| CodecPart {
            column: table.columns[part.column.index()].clone(),
            id: part.column,
            place: layout.places[part.column.index()],
            descending: part.descending,
        };
        let parts: Vec<CodecPart> = parts.map(part).collect();
        let (mut bytes, mut varies) = (0, false);
        for part in &parts {
            match part.column.ty.key_bytes() {
                Some(width) => bytes += width + u32::from(part.column.nullable),
                None => varies = true,
            }
        }
        let columns = parts.iter().map(|part| part.id).collect();
        KeyCodec { parts, shape: KeyShape::new(bytes, varies), columns }
    }

    /// How its keys are represented.
    pub fn class(&self) -> KeyClass {
        self.shape.class
    }

    /// How many columns a key has.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The columns a key is made of.
    pub fn columns(&self) -> ColumnSet {
        self.columns
    }

    /// The key of a row.
    pub fn encode_row<R>(&self, row: RowRef<'_>, with: impl FnOnce(Key<'_>) -> R) -> R {
        let mut key = KeyWriter::new();
        for part in &self.parts {
            let from = key.len();
            part.write_row(row, &mut key);
            if part.descending {
                key.invert(from);
            }
        }
        self.with_bytes(key.as_slice(), with)
    }

    /// The key of these values, one a column.
    ///
    /// # Errors
    /// A value that is not of its column's type, or too many or too few.
    pub fn encode_values(&self, values: &[Value]) -> Result<KeyBuf, ValueError> {
        if values.len() != self.parts.len() {
            return Err(ValueError::count(values.len(), self.parts.len()));
        }
        let mut key = KeyWriter::new();
        self.write_values(values, &mut key)?;
        Ok(self.with_bytes(key.as_slice(), |key| key.to_buf()))
    }

    /// The range of keys that begin with these values.
    ///
    /// # Errors
    /// As [`KeyCodec::encode_values`]; fewer values are fine.
    pub fn range_of_values(&self, values: &[Value]) -> Result<KeyRange, ValueError> {
        if values.len() > self.parts.len() {
            return Err(ValueError::count(values.len(), self.parts.len()));
        }
        let mut key = KeyWriter::new();
        self.write_values(values, &mut key)?;
        Ok(KeyRange::of_prefix(key.as_slice(), self.shape))
    }

    /// The key of which these are all columns.
    pub fn key_of(&self, parts: &impl KeyParts) -> KeyBuf {
        let mut key = KeyWriter::new();
        parts.write_parts(&mut key);
        self.with_bytes(key.as_slice(), |key| key.to_buf())
    }

    /// The range of keys that begin with this prefix.
    #[inline]
    pub fn range_of_prefix(&self, prefix: &impl KeyParts) -> KeyRange {
        let mut key = KeyWriter::new();
        prefix.write_parts(&mut key);
        KeyRange::of_prefix(key.as_slice(), self.shape)
    }

    /// The range of keys between two bounds on their first columns: an included bound takes in every key that begins with
    /// it, an excluded one none.
    pub fn range_between<P: KeyParts>(&self, low: Bound<&P>, high: Bound<&P>) -> KeyRange {
        let of = |prefix: &P| self.range_of_prefix(prefix);
        let flip = |bound: Bound<KeyBuf>| match bound {
            Bound::Included(key) => Bound::Excluded(key),
            Bound::Excluded(key) => Bound::Included(key),
            Bound::Unbounded => Bound::Unbounded,
        };
        let low = match low {
            Bound::Included(prefix) => of(prefix).low,
            Bound::Excluded(prefix) => flip(of(prefix).high),
            Bound::Unbounded => Bound::Unbounded,
        };
        let high = match high {
            Bound::Included(prefix) => of(prefix).high,
            Bound::Excluded(prefix) => flip(of(prefix).low),
            Bound::Unbounded => Bound::Unbounded,
        };
        KeyRange { low, high }
    }

    fn write_values(&self, values: &[Value], key: &mut KeyWriter) -> Result<(), ValueError> {
        for (part, value) in self.parts.iter().zip(values) {
            let from = key.len();
            value.write_key(&part.column, key)?;
            if part.descending {
                key.invert(from);
            }
        }
        Ok(())
    }

    fn with_bytes<R>(&self, bytes: &[u8], with: impl FnOnce(Key<'_>) -> R) -> R {
        let number = || bytes.iter().fold(0u128, |value, &byte| value << 8 | u128::from(byte));
        match self.shape.class {
            KeyClass::Word8 => with(Key::Word8(number() as u64)),
            KeyClass::Word16 => with(Key::Word16(number())),
            KeyClass::Bytes => with(Key::Bytes(bytes)),
        }
    }

    /// The key as its columns read, such as `w_id 1, d_id 7`.
    pub fn describe(&self, key: Key<'_>) -> String {
        let bytes = match key {
            Key::Word8(word) => word.to_be_bytes()[8 - self.shape.bytes.min(8) as usize..].to_vec(),
            Key::Word16(words) => words.to_be_bytes()[16 - self.shape.bytes.min(16) as usize..].to_vec(),
            Key::Bytes(bytes) => bytes.to_vec(),
        };
        let (mut text, mut rest) = (String::new(), &bytes[..]);
        for part in &self.parts {
            let Some((value, after)) = part.read(rest) else {
                let _ = write!(text, "{}{}", if text.is_empty() { "" } else { ", " }, rest.escape_ascii());
                break;
            };
            let _ = write!(text, "{}{} {value}", if text.is_empty() { "" } else { ", " }, part.column.name);
            rest = after;
        }
        text
    }
}

impl CodecPart {
    fn write_row(&self, row: RowRef<'_>, key: &mut KeyWriter) {
        let place = &self.place;
        macro_rules! column {
            ($type:ty) => {
                if self.column.nullable {
                    row.get::<Option<$type>>(place).write(key)
                } else {
                    KeyColumn::write(&row.get::<$type>(place), key)
                }
            };
        }
        match self.column.ty {
            ColumnType::Bool => column!(bool),
            ColumnType::I8 => column!(i8),
            ColumnType::I16 => column!(i16),
            ColumnType::I32 => column!(i32),
            ColumnType::I64 | ColumnType::Decimal { .. } | ColumnType::Timestamp => column!(i64),
            ColumnType::U8 => column!(u8),
            ColumnType::U16 => column!(u16),
            ColumnType::U32 => column!(u32),
            ColumnType::U64 => column!(u64),
            ColumnType::F64 => column!(f64),
            ColumnType::Text { .. } | ColumnType::LongText | ColumnType::Bytes { .. } => {
                if self.column.nullable {
                    key.number(u128::from(row.is_null(place)), 1);
                    if row.is_null(place) {
                        return;
                    }
                }
                match self.column.ty {
                    ColumnType::LongText => key.escaped(row.get::<String>(place).as_bytes()),
                    // A text's bytes lie as a byte string's do; its room is the place's bytes without the length.
                    _ => key.escaped(bytes_of(row, place)),
                }
            }
        }
    }

    /// The value at the start of key bytes, and what follows. `None` if they are cut short.
    fn read<'k>(&self, bytes: &'k [u8]) -> Option<(String, &'k [u8])> {
        let inverted: Vec<u8> = match self.descending {
            true => bytes.iter().map(|byte| !byte).collect(),
            false => bytes.to_vec(),
        };
        let nulls = usize::from(self.column.nullable);
        let is_null = nulls == 1 && *inverted.first()? == 1;
        let value = inverted.get(nulls..)?;
        let Some(width) = self.column.ty.key_bytes() else {
            if is_null {
                return Some(("NULL".to_owned(), bytes.get(nulls..)?));
            }
            let (mut text, mut at) = (Vec::new(), 0);
            loop {
                match (*value.get(at)?, value.get(at + 1)) {
                    (0, Some(0)) => break,
                    (0, Some(_)) => {
                        text.push(0);
                        at += 2;
                    }
                    (byte, _) => {
                        text.push(byte);
                        at += 1;
                    }
                }
            }
            return Some((format!("{:?}", String::from_utf8_lossy(&text)), bytes.get(nulls + at + 2..)?));
        };
        let bits = value.get(..width as usize)?.iter().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
        let rest = bytes.get(nulls + width as usize..)?;
        let signed = || {
            let shift = 64 - 8 * width;
            ((bits ^ 1 << (8 * width - 1)) << shift) as i64 >> shift
        };
        let text = match self.column.ty {
            _ if is_null => "NULL".to_owned(),
            ColumnType::Bool => (bits != 0).to_string(),
            ColumnType::F64 => {
                let raw = if bits >> 63 == 1 { bits ^ 1 << 63 } else { !bits };
                f64::from_bits(raw).to_string()
            }
            ColumnType::Decimal { scale } => Units(signed(), scale).to_string(),
            ColumnType::I8 | ColumnType::I16 | ColumnType::I32 | ColumnType::I64 | ColumnType::Timestamp => {
                signed().to_string()
            }
            _ => bits.to_string(),
        };
        Some((text, rest))
    }
}

struct Units(i64, u8);

impl std::fmt::Display for Units {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        decimal::display(self.0, u32::from(self.1), f)
    }
}

/// The bytes of a text or byte column, whatever its room.
pub(crate) fn bytes_of<'t>(row: RowRef<'t>, place: &Place) -> &'t [u8] {
    // A column with room for up to 255 bytes has one byte of length, others two: 256 is the largest place of the first kind.
    if place.bytes <= 256 {
        let at = Place { bytes: 256, ..*place };
        row.get::<Bytes<255>>(&at)
    } else {
        row.get::<Bytes<65_535>>(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TableKey, asc, desc};

    fn table() -> TableDef {
        TableDef::builder("t")
            .column(ColumnDef::new("w", ColumnType::U16))
            .column(ColumnDef::new("name", ColumnType::Text { max: 8 }))
            .column(ColumnDef::new("since", ColumnType::I32).nullable())
            .column(ColumnDef::new("sum", ColumnType::Decimal { scale: 2 }))
            .key(["w"])
            .index("by_name", [asc("name"), desc("since")])
            .index("by_sum", [desc("sum")])
            .finish()
            .expect("a sound declaration")
    }

    #[test]
    fn keys_of_values_are_those_of_types_and_describe_themselves() {
        let table = table();
        let primary = KeyCodec::for_table(&table);
        let key = primary.encode_values(&[Value::UInt(7)]).expect("of its type");
        assert_eq!(key, 7u16.to_buf());
        assert_eq!(primary.describe(key.as_key()), "w 7");

        let by_name = KeyCodec::for_index(&table.indexes[0], &table);
        let values = [Value::Text("ab".into()), Value::Int(-5), Value::UInt(3)];
        let key = by_name.encode_values(&values).expect("of their types");
        assert_eq!(by_name.describe(key.as_key()), "name \"ab\", since -5, w 3");
        let typed = (crate::Text::<8>::literal("ab"), std::cmp::Reverse(Some(-5i32)), 3u16);
        assert_eq!(key, typed.to_buf());

        let by_sum = KeyCodec::for_index(&table.indexes[1], &table);
        let key = by_sum.encode_values(&[Value::Decimal { units: -1250, scale: 2 }, Value::UInt(1)]).expect("a decimal");
        assert_eq!(by_sum.describe(key.as_key()), "sum -12.50, w 1");
    }

    #[test]
    fn prefixes_of_an_index_take_in_every_primary_key() {
        let table = table();
        let by_sum = KeyCodec::for_index(&table.indexes[1], &table);
        let range = by_sum.range_of_prefix(&std::cmp::Reverse(crate::Decimal::<2>::from_units(5)));
        let key = |units, w| by_sum.encode_values(&[Value::Decimal { units, scale: 2 }, Value::UInt(w)]).expect("typed");
        let inside = |key: KeyBuf| {
            let low = matches!(&range.low, Bound::Included(low) if *low <= key);
            low && matches!(&range.high, Bound::Included(high) if key <= *high)
        };
        assert!(inside(key(5, 0)) && inside(key(5, 65_535)) && !inside(key(4, 9)) && !inside(key(6, 9)));
    }
}
