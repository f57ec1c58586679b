//! Keys where only the schema is known: from rows, for index maintenance; from values; and back into words,
//! for messages.
//!
//! The bytes are those of [`TableKey`](crate::TableKey): a derived key and a codec of the same columns agree.
//! A codec is computed once for a table or index; encoding a row then walks a list of offsets, widths and
//! masks.

mod describe;
mod part;
mod step;
#[cfg(test)]
mod tests;

use std::ops::Bound;

pub use self::part::{KeyPlace, PartitionValue};
pub use self::step::RowWord;
use self::step::Step;
use crate::{
    ColumnDef, ColumnSet, IndexDef, Key, KeyBuf, KeyClass, KeyFormat, KeyPart, KeyParts, KeyRange, KeyWriter, Layout,
    RowRef, TableDef, TableKey, Value, ValueError,
};

/// Encodes and describes the keys of one table or index.
#[derive(Clone, Debug)]
pub struct KeyCodec {
    /// The steps of encoding a row, one for each column, most significant first.
    steps: Box<[Step]>,
    /// The columns, for values and messages, and whether each is descending.
    parts: Box<[(ColumnDef, bool)]>,
    /// The first columns, which are always in a key. The others follow where one of these is NULL only.
    always: usize,
    /// Bytes of a key of the first columns alone, where it is an integer.
    always_bytes: u32,
    format: KeyFormat,
    columns: ColumnSet,
}

impl KeyCodec {
    /// The codec of a table's primary key.
    pub fn for_table(table: &TableDef) -> KeyCodec {
        KeyCodec::new(table, &table.key)
    }

    /// The codec of an index's entries: the index's columns, then further ones if it is not unique. These are the
    /// columns of the primary key that are not among the index's. A unique index that can be deferred has them too. One
    /// of distinct NULLs has them in entries with a NULL only.
    pub fn for_index(index: &IndexDef, table: &TableDef) -> KeyCodec {
        let mut parts = index.parts.clone();
        if table.has_shared_keys(index) {
            let is_new = |part: &&KeyPart| index.parts.iter().all(|mine| mine.column != part.column);
            parts.extend(table.key.iter().filter(is_new));
        }
        let follows_nulls = table.has_distinct_nulls(index) && !index.is_deferrable();
        let always = if follows_nulls { index.parts.len() } else { parts.len() };
        KeyCodec::of_parts(table, &parts, always)
    }

    fn new(table: &TableDef, parts: &[KeyPart]) -> KeyCodec {
        KeyCodec::of_parts(table, parts, parts.len())
    }

    fn of_parts(table: &TableDef, parts: &[KeyPart], always: usize) -> KeyCodec {
        let layout = Layout::of(table);
        let column = |part: &KeyPart| &table.columns[part.column.index()];
        let step = |part: &KeyPart| Step::new(column(part).ty, part.descending, layout.places[part.column.index()]);
        let (mut bytes, mut varies) = (0, false);
        for column in parts[..always].iter().map(column) {
            match column.ty.key_bytes() {
                Some(width) => bytes += width + u32::from(column.nullable),
                None => varies = true,
            }
        }
        KeyCodec {
            steps: parts.iter().map(step).collect(),
            parts: parts.iter().map(|part| (column(part).clone(), part.descending)).collect(),
            always,
            always_bytes: KeyFormat::new(bytes, varies).bytes,
            // Where columns may follow, keys differ in length.
            format: KeyFormat::new(bytes, varies || always < parts.len()),
            columns: parts.iter().map(|part| part.column).collect(),
        }
    }

    /// How its keys are represented.
    #[inline]
    pub fn class(&self) -> KeyClass {
        self.format.class
    }

    /// How its keys are represented, and how many bytes of an integer are used.
    #[inline]
    pub fn format(&self) -> KeyFormat {
        self.format
    }

    /// The key of an entry from the key of the index's columns, of whatever class that is by itself. They
    /// differ in a unique index of distinct NULLs only: there a key with a NULL is no entry's.
    #[inline]
    pub fn entry_key<R>(&self, key: Key<'_>, with: impl FnOnce(Key<'_>) -> R) -> R {
        if key.class() == self.format.class {
            return with(key);
        }
        let bytes = key.to_bytes();
        with(Key::Bytes(&bytes[bytes.len() - self.always_bytes as usize..]))
    }

    /// Whether different stored values of a column of a key are the same key, as the two zeros of a float are.
    pub fn has_synonyms(&self) -> bool {
        self.parts.iter().any(|(column, _)| column.ty.has_synonyms())
    }

    /// The columns a key is made of: an update that touches none of them leaves the key as it is.
    #[inline]
    pub fn columns(&self) -> ColumnSet {
        self.columns
    }

    /// The key of a row of the codec's table.
    #[inline]
    pub fn encode_row<R>(&self, row: RowRef<'_>, with: impl FnOnce(Key<'_>) -> R) -> R {
        let mut bytes;
        with(match self.format.class {
            KeyClass::Word8 => {
                let append = |bits: u64, step: &Step| bits.unbounded_shl(step.bits()) | step.load(row) as u64;
                Key::Word8(self.steps.iter().fold(0, append))
            }
            KeyClass::Word16 => {
                let append = |bits: u128, step: &Step| bits.unbounded_shl(step.bits()) | step.load(row);
                Key::Word16(self.steps.iter().fold(0, append))
            }
            KeyClass::Bytes => {
                bytes = KeyWriter::new();
                let (always, others) = self.steps.split_at(self.always);
                always.iter().for_each(|step| step.write(row, &mut bytes));
                if !others.is_empty() && always.iter().any(|step| step.is_null(row)) {
                    others.iter().for_each(|step| step.write(row, &mut bytes));
                }
                Key::Bytes(bytes.as_slice())
            }
        })
    }

    /// The bits of a row's key behind those of its first `count` columns; for keys of fixed width.
    #[inline(always)]
    pub fn encode_rest(&self, row: RowRef<'_>, columns: usize) -> u128 {
        let append = |bits: u128, step: &Step| bits.unbounded_shl(step.bits()) | step.load(row);
        match &self.steps[columns..] {
            [only] => only.load(row),
            steps => steps.iter().fold(0, append),
        }
    }

    /// Where a row has the bits of [`KeyCodec::encode_rest`], if they are those of one number in the row
    /// version that is never NULL.
    pub fn rest_word(&self, columns: usize) -> Option<RowWord> {
        match &self.steps[columns..] {
            [only] => only.word(),
            _ => None,
        }
    }

    /// The key of these values, one a column; those that are not in every key can be left out.
    ///
    /// # Errors
    /// A value that is not of its column's type, or too many or too few.
    pub fn encode_values(&self, values: &[Value]) -> Result<KeyBuf, ValueError> {
        if values.len() != self.parts.len() && values.len() != self.always {
            return Err(ValueError::count(values.len(), self.always));
        }
        let mut key = KeyWriter::new();
        self.write_values(values, &mut key)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0u128, |bits, &byte| bits << 8 | u128::from(byte));
        Ok(match self.format.class {
            KeyClass::Word8 => Key::Word8(number(key.as_slice()) as u64).to_buf(),
            KeyClass::Word16 => Key::Word16(number(key.as_slice())).to_buf(),
            KeyClass::Bytes => Key::Bytes(key.as_slice()).to_buf(),
        })
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
        Ok(KeyRange::of_prefix(key.as_slice(), self.format))
    }

    /// The range of keys between two bounds on their first columns, in the order of keys: of a descending column,
    /// larger values come first. An included bound takes in every key that begins with it, an excluded one takes in
    /// none.
    ///
    /// # Errors
    /// As [`KeyCodec::range_of_values`].
    pub fn range_of_bounds(&self, low: Bound<&[Value]>, high: Bound<&[Value]>) -> Result<KeyRange, ValueError> {
        let of = |bound: Bound<&[Value]>| {
            Ok::<_, ValueError>(match bound {
                Bound::Included(values) => Bound::Included(self.range_of_values(values)?),
                Bound::Excluded(values) => Bound::Excluded(self.range_of_values(values)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        Ok(KeyRange::joined(of(low)?, of(high)?))
    }

    fn write_values(&self, values: &[Value], key: &mut KeyWriter) -> Result<(), ValueError> {
        for ((column, descending), value) in self.parts.iter().zip(values) {
            let from = key.len();
            value.write_key(column, key)?;
            if *descending {
                key.invert(from);
            }
        }
        Ok(())
    }

    /// The key of which these are all columns.
    #[inline]
    pub fn key_of<P: KeyParts>(&self, parts: &P) -> KeyBuf {
        debug_assert!(P::COUNT == self.parts.len() && KeyFormat::new(P::WIDTH.0, P::WIDTH.1) == self.format);
        parts.to_buf()
    }

    /// The range of keys that begin with this prefix, of the types of the codec's first columns.
    #[inline]
    pub fn range_of_prefix<P: KeyParts>(&self, prefix: &P) -> KeyRange {
        KeyRange::of_parts(prefix, self.format)
    }

    /// The range of keys between two bounds on their first columns. An included bound takes in every key that begins
    /// with it, an excluded one takes in none. With one bound, of a value, there is no NULL in the range: see
    /// [`KeyCodec::leave_out_nulls`].
    #[inline]
    pub fn range_between<P: KeyParts>(&self, low: Bound<&P>, high: Bound<&P>) -> KeyRange {
        let range = KeyRange::between(low, high, self.format);
        match (low, high) {
            (Bound::Included(bound) | Bound::Excluded(bound), Bound::Unbounded)
            | (Bound::Unbounded, Bound::Included(bound) | Bound::Excluded(bound)) => {
                self.leave_out_nulls(range, &KeyRange::of_parts(bound, self.format).low)
            }
            _ => range,
        }
    }

    /// A range with one bound, without the keys whose first column is NULL: NULL is neither above nor below a value. A
    /// bound that is NULL there itself leaves the range as it is. `bound`: the least key that begins with it.
    pub fn leave_out_nulls(&self, range: KeyRange, bound: &Bound<KeyBuf>) -> KeyRange {
        let Some((_, descending)) = self.parts.first().filter(|(column, _)| column.nullable) else { return range };
        // The first byte of a value that is not NULL.
        let values = KeyRange::of_prefix(&[if *descending { 0xFF } else { 0 }], self.format);
        match bound {
            Bound::Included(bound) if values.contains(bound.as_key()) => {}
            _ => return range,
        }
        match range {
            KeyRange { low: Bound::Unbounded, high } => KeyRange { low: values.low, high },
            KeyRange { low, high: Bound::Unbounded } => KeyRange { low, high: values.high },
            // Nothing lies beyond an excluded bound.
            empty => empty,
        }
    }
}
