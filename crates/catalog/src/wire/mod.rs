//! Rows, changes and keys as bytes that outlive the process: in the log, in checkpoints.
//!
//! ```text
//! row      NULL bits of the nullable columns | values of the columns that are not NULL, in order of declaration
//! patch    bits of the updatable columns: set if changed | NULL bits of the changed nullable ones | values, as above
//! delta    varint column | varint zigzag amount: the increase over the value in the previous row, which is not here
//! run      varint 2 x rows, and 1 more if runs may follow | rows: the one column of a record of a clustered table
//! key      Word8, Word16: the bytes in use (`KeyFormat::bytes`), big-endian     Bytes: varint length | bytes
//!
//! value    1- and 2-byte numbers, f64: their bytes, little-endian
//!          wider integers, decimals, timestamps: varint, zigzag if signed     text, bytes: varint length | bytes
//! ```
//! Bits are packed eight a byte, the first in the lowest bit; those left over in the last byte are zero. A
//! column is updatable if [`TableDef::is_updatable`] says so. The bytes depend on the declaration alone, not
//! on the machine.
//!
//! Invariants: decoded bytes encode to the same bytes, so nothing is lost or read two ways. Bytes from
//! anywhere can be decoded: they are checked before they are written to a row, and written rows keep the rules
//! of [`RowRef`].

mod error;
mod field;
mod merge;
mod varint;

pub use error::{DecodeError, Malformed};
pub use varint::{VARINT_BYTES_MAX, read_varint, unzigzag, write_varint, zigzag};

use seriatim_base::ColumnId;

use self::field::{Added, Field, Taken, take};
use self::varint::varint_bytes;
use crate::conversion::{column_after, copies};
use crate::evolution::Source;
use crate::{
    ColumnDef, ColumnLocation, ColumnSet, Key, KeyClass, KeyCodec, KeyFormat, Layout, RowPart, RowRef, RowWriter, Run,
    TableDef, Value, ValueError,
};

/// Encodes and decodes the rows, changes and keys of one table.
#[derive(Clone, Debug)]
pub struct RowWire {
    /// In order of declaration.
    fields: Box<[Field]>,
    /// Those in the row version, by offset.
    row_fields: Box<[u16]>,
    /// Those that an update may change.
    updatable: Box<[u16]>,
    /// Bytes of a row version.
    row_bytes: usize,
    /// Where its NULL bits are; they begin where its columns do, after the address of the fixed part.
    nulls: std::ops::Range<usize>,
    /// Those of the extension.
    extension_nulls: std::ops::Range<usize>,
    format: KeyFormat,
    /// What decoded rows have in columns that the encoding does not know.
    filled: Box<[(ColumnDef, ColumnLocation, Value)]>,
}

/// The result of encoding a row and the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Updated {
    /// Nothing: the rows are equal.
    Nothing,
    /// A patch.
    Patch,
    /// A delta.
    Delta,
    /// Nothing: they differ in a column that no update changes, the key's or an immutable one.
    NotByUpdate,
}

impl RowWire {
    /// For the rows of a table.
    ///
    /// # Panics
    /// If the layout is not the table's.
    pub fn new(table: &TableDef, layout: &Layout) -> RowWire {
        assert!(*layout == Layout::stored(table), "the layout of the table's own records");
        let rows = RowWire::of_rows(table, &Layout::of(table));
        if !table.is_clustered() {
            return rows;
        }
        RowWire {
            row_fields: [0].into(),
            updatable: [0].into(),
            row_bytes: layout.row_bytes as usize,
            nulls: 0..0,
            extension_nulls: 0..0,
            format: rows.format,
            filled: [].into(),
            fields: [Field::of_run(layout.places[0], rows)].into(),
        }
    }

    /// For rows that were encoded when their table was `before`, and are decoded as rows of `after`. Only keys are
    /// encoded. `None` if they cannot be converted column by column ([`Conversion`](crate::Conversion)).
    pub fn of_earlier(before: &TableDef, after: &TableDef, sources: &[Source]) -> Option<RowWire> {
        if !copies(before, after, sources) {
            return None;
        }
        let (mut rows, places) = (RowWire::of_rows(before, &Layout::of(before)), Layout::of(after).places);
        for (at, field) in rows.fields.iter_mut().enumerate() {
            match column_after(sources, at) {
                Some(column) => field.place = places[column],
                None => *field = field.clone().left_out(),
            }
        }
        let filled = sources.iter().enumerate().filter_map(|(at, source)| match source {
            Source::Value(value) => Some((after.columns[at].clone(), places[at], value.clone())),
            Source::Of(_) | Source::Number => None,
        });
        Some(RowWire { filled: filled.collect(), ..rows })
    }

    fn of_rows(table: &TableDef, layout: &Layout) -> RowWire {
        assert!(table.columns.len() <= TableDef::COLUMNS_MAX, "declarations are validated");
        let mut updatable = Vec::new();
        let mut fields = Vec::new();
        for (at, (column, place)) in table.columns.iter().zip(&layout.places).enumerate() {
            let number = table.is_updatable(ColumnId(at as u16)).then(|| {
                updatable.push(at as u16);
                updatable.len() as u16 - 1
            });
            fields.push(Field::new(column, *place, number));
        }
        let in_row = (0..fields.len()).filter(|&at| fields[at].place.part == RowPart::Row);
        let nulls_at = if layout.fixed_bytes > 0 { 8 } else { 0 };
        let first = fields.len().saturating_sub(table.extension);
        let nulls = |fields: &[Field], otherwise: usize| {
            let of_row = fields.iter().filter(|field| field.place.part == RowPart::Row);
            let bytes = of_row.filter_map(|field| field.place.null).map(|(byte, _)| byte as usize);
            bytes.fold(otherwise..otherwise, |all, byte| match all.is_empty() {
                true => byte..byte + 1,
                false => all.start..byte + 1,
            })
        };
        RowWire {
            row_fields: in_row.map(|at| at as u16).collect(),
            updatable: updatable.into(),
            row_bytes: layout.row_bytes as usize,
            nulls: nulls(&fields[..first], nulls_at),
            extension_nulls: nulls(&fields[first..], 0),
            format: KeyCodec::for_table(table).format(),
            filled: [].into(),
            fields: fields.into(),
        }
    }

    fn numbered(&self, numbers: &[u16]) -> impl Iterator<Item = &Field> + Clone {
        numbers.iter().map(|&at| &self.fields[usize::from(at)])
    }

    /// The updatable columns whose bits are set.
    fn changed<'f, 'a>(&'f self, bits: &'a [u8]) -> impl Iterator<Item = &'f Field> + Clone + use<'f, 'a> {
        let numbers = bits.iter().enumerate().flat_map(|(byte, &bits)| SetBits(bits).map(move |bit| 8 * byte + bit));
        numbers.map(|number| &self.fields[usize::from(self.updatable[number])])
    }

    /// Appends a key of the table.
    ///
    /// # Panics
    /// If the key is not of the table's class.
    #[inline]
    pub fn encode_key(&self, key: Key<'_>, out: &mut Vec<u8>) {
        assert!(key.class() == self.format.class, "keys of one table have one class");
        let used = self.format.bytes as usize;
        match key {
            Key::Word8(word) => out.extend_from_slice(&word.to_be_bytes()[8 - used..]),
            Key::Word16(words) => out.extend_from_slice(&words.to_be_bytes()[16 - used..]),
            Key::Bytes(bytes) => {
                write_varint(out, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
        }
    }

    /// Takes a key off the front.
    ///
    /// # Errors
    /// If there is none. That the key is the row's is not checked.
    pub fn decode_key<'a>(&self, bytes: &mut &'a [u8]) -> Result<Key<'a>, Malformed> {
        let used = self.format.bytes as usize;
        match self.format.class {
            KeyClass::Word8 => {
                let word = take(bytes, used)?.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
                Ok(Key::Word8(word))
            }
            KeyClass::Word16 => {
                let words = take(bytes, used)?.iter().fold(0, |words, &byte| words << 8 | u128::from(byte));
                Ok(Key::Word16(words))
            }
            KeyClass::Bytes => {
                let count = usize::try_from(read_varint(bytes)?).map_err(|_| Malformed::CutShort)?;
                take(bytes, count).map(Key::Bytes)
            }
        }
    }

    /// Appends all columns of a row of the table.
    pub fn encode_row(&self, row: RowRef<'_>, out: &mut Vec<u8>) {
        // SAFETY: rules 1 to 3 of `RowRef`.
        unsafe { put_values(self.fields.iter(), row, out) };
    }

    /// Appends the changes of an update, if there can be any. Values of equal bytes are equal; a long text
    /// with the same address is not compared.
    ///
    /// A delta where one column changed, amounts can be added to it, and the patch would be longer. Where it
    /// would not, nothing is gained, and a reader of the patch sees what the column became.
    pub fn encode_update(&self, before: RowRef<'_>, after: RowRef<'_>, out: &mut Vec<u8>) -> Updated {
        let mut room = [0; TableDef::COLUMNS_MAX / 8];
        let bits = &mut room[..self.updatable.len().div_ceil(8)];
        // SAFETY: rules 1 to 3 of `RowRef`.
        match unsafe { self.mark(before, after, bits) } {
            Err(NotUpdatable) => return Updated::NotByUpdate,
            Ok(Differing::Nowhere) => return Updated::Nothing,
            Ok(Differing::In(field)) => {
                let place = &field.place;
                // SAFETY: rules 1 to 3 of `RowRef`.
                let added = unsafe { field.added(before.block(place.part), after.block(place.part)) };
                let delta_bytes = |amount| varint_bytes(place.column.into()) + varint_bytes(zigzag(amount));
                if let Some(Added { amount, value_bytes }) = added
                    && delta_bytes(amount) < bits.len() + value_bytes
                {
                    put_delta(place.column, amount, out);
                    return Updated::Delta;
                }
            }
            Ok(Differing::InSeveral) => {}
        }
        out.extend_from_slice(bits);
        // SAFETY: rules 1 to 3 of `RowRef`.
        unsafe { put_values(self.changed(bits), after, out) };
        Updated::Patch
    }

    /// The columns in which two rows of the table differ.
    ///
    /// # Safety
    /// Rules 1 to 3 of `RowRef`.
    pub unsafe fn differing(&self, before: RowRef<'_>, after: RowRef<'_>) -> ColumnSet {
        let mut columns = ColumnSet::EMPTY;
        for (at, field) in self.fields.iter().enumerate() {
            let part = field.place.part;
            // SAFETY: the caller's promise; the places are of the part.
            if unsafe { field.differs(before.block(part), after.block(part)) } {
                columns.insert(ColumnId(at as u16));
            }
        }
        columns
    }

    /// Sets the bits of the updatable columns in which the rows differ, and says how many there are.
    ///
    /// Compares words first, and columns only where a word differs. Rows of one key mostly share their fixed part.
    ///
    /// # Safety
    /// Rules 1 to 3 of `RowRef`.
    unsafe fn mark<'f>(
        &'f self,
        before: RowRef<'_>,
        after: RowRef<'_>,
        bits: &mut [u8],
    ) -> Result<Differing<'f>, NotUpdatable> {
        let (old, new) = (before.as_ptr(), after.as_ptr());
        if self.row_fields.len() < self.fields.len() {
            let (old_fixed, new_fixed) = (before.block(RowPart::Fixed), after.block(RowPart::Fixed));
            let fixed = |field: &&Field| field.place.part == RowPart::Fixed;
            // SAFETY: the caller's promise; these places are of the fixed part.
            let differs = |field: &Field| unsafe { field.differs(old_fixed, new_fixed) };
            if old_fixed != new_fixed && self.fields.iter().filter(fixed).any(differs) {
                return Err(NotUpdatable);
            }
        }
        let mut differing = Differing::Nowhere;
        let mut compare = |field: &'f Field| {
            // SAFETY: the caller's promise; the places looked at are of the row version.
            match (unsafe { field.differs(old, new) }, field.updatable) {
                (true, Some(number)) => {
                    bits[usize::from(number / 8)] |= 1 << (number % 8);
                    differing = differing.and(field);
                }
                (true, None) => return Err(NotUpdatable),
                (false, _) => {}
            }
            Ok(())
        };
        // SAFETY: the caller's promise; a row version has that many bytes, all initialized.
        let image = |row: *const u8| unsafe { std::slice::from_raw_parts(row, self.row_bytes) };
        let (old, new) = (image(old), image(new));
        let mut fields = self.numbered(&self.row_fields);
        let differ = |nulls: &std::ops::Range<usize>| !nulls.is_empty() && old[nulls.clone()] != new[nulls.clone()];
        if differ(&self.nulls) || differ(&self.extension_nulls) {
            fields.try_for_each(compare)?;
            return Ok(differing);
        }
        let mut next = fields.next();
        // The address of the fixed part lies before the columns and is skipped with their start.
        let words = old.as_chunks::<8>().0.iter().zip(new.as_chunks::<8>().0).enumerate().skip(self.nulls.start / 8);
        for (word, _) in words.filter(|(_, (old, new))| u64::from_ne_bytes(**old) != u64::from_ne_bytes(**new)) {
            let here = 8 * word..8 * word + 8;
            while let Some(field) = next {
                let begin = field.place.offset as usize;
                if begin >= here.end {
                    break;
                }
                if begin + field.place.bytes as usize > here.start {
                    compare(field)?;
                }
                next = fields.next();
            }
        }
        Ok(differing)
    }

    /// Appends an addition to a column. A larger step of an unsigned column is several.
    ///
    /// # Panics
    /// If amounts cannot be added to the column: see [`RowWire::sums`].
    pub fn encode_delta(&self, column: ColumnId, amount: i64, out: &mut Vec<u8>) {
        assert!(self.sums(column), "column {column} is not for sums");
        put_delta(column.0, amount, out);
    }

    /// Whether amounts can be added to a column: an integer or decimal that an update may change and that is
    /// never NULL.
    pub fn sums(&self, column: ColumnId) -> bool {
        self.fields.get(usize::from(column.0)).is_some_and(|field| field.is_sum)
    }

    /// Takes a row off the front: its bytes, checked, for [`RowWire::decode_row`].
    ///
    /// # Errors
    /// If there is none; then `bytes` is left as it is.
    pub fn skip_row<'a>(&self, bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
        taken(bytes, |rest| take_values(self.fields.iter(), rest, |_, _| Ok(())))
    }

    /// Takes a patch off the front: its bytes, checked, for [`RowWire::decode_patch`].
    ///
    /// # Errors
    /// If there is none; then `bytes` is left as it is.
    pub fn skip_patch<'a>(&self, bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
        taken(bytes, |rest| take_values(self.take_changed(rest)?, rest, |_, _| Ok(())))
    }

    /// Takes a delta off the front: its bytes, checked, for [`RowWire::decode_delta`].
    ///
    /// # Errors
    /// If there is none; then `bytes` is left as it is.
    pub fn skip_delta<'a>(&self, bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
        taken(bytes, |rest| self.take_delta(rest).map(drop))
    }

    /// Sets all columns of a new row to those of an encoded one.
    ///
    /// # Errors
    /// If the bytes are not exactly one row, or at the memory limit. Some columns are then set, and the caller must
    /// discard the row.
    pub fn decode_row(&self, bytes: &[u8], row: &mut RowWriter<'_>) -> Result<(), DecodeError> {
        let mut rest = bytes;
        take_values(self.fields.iter(), &mut rest, |field, value| field.set(value, row))?;
        for (column, place, value) in &self.filled {
            value.write(column, place, row).map_err(|error| match error {
                ValueError::OutOfMemory(error) => DecodeError::OutOfMemory(error),
                _ => DecodeError::Malformed(Malformed::Number { column: place.column }),
            })?;
        }
        end_of(rest)
    }

    /// Sets the columns of an updated row that an encoded patch changed.
    ///
    /// # Errors
    /// As [`RowWire::decode_row`].
    pub fn decode_patch(&self, bytes: &[u8], row: &mut RowWriter<'_>) -> Result<(), DecodeError> {
        let mut rest = bytes;
        let changed = self.take_changed(&mut rest)?;
        take_values(changed, &mut rest, |field, value| field.set(value, row))?;
        end_of(rest)
    }

    /// Adds the amount of an encoded delta to a column of an updated row.
    ///
    /// # Errors
    /// As [`RowWire::decode_row`], or if the sum does not fit the column; then the row is as it was.
    pub fn decode_delta(&self, bytes: &[u8], row: &mut RowWriter<'_>) -> Result<(), DecodeError> {
        let mut rest = bytes;
        let (field, amount) = self.take_delta(&mut rest)?;
        end_of(rest)?;
        field.add(amount, row)
    }

    /// The columns that a patch changes.
    fn take_changed<'f, 'a>(
        &'f self,
        bytes: &mut &'a [u8],
    ) -> Result<impl Iterator<Item = &'f Field> + Clone + use<'f, 'a>, Malformed> {
        let bits = take(bytes, self.updatable.len().div_ceil(8))?;
        check_padding(bits, self.updatable.len())?;
        if bits.iter().all(|&byte| byte == 0) {
            return Err(Malformed::Empty);
        }
        Ok(self.changed(bits))
    }

    fn take_delta(&self, bytes: &mut &[u8]) -> Result<(&Field, i64), Malformed> {
        let column = read_varint(bytes)?;
        let known = u16::try_from(column).ok().filter(|&column| self.sums(ColumnId(column)));
        let known = known.ok_or(Malformed::NotASum { column })?;
        Ok((&self.fields[usize::from(known)], unzigzag(read_varint(bytes)?)))
    }
}

/// Runs of rows.
impl RowWire {
    /// Appends a run.
    ///
    /// # Safety
    /// It is a run of such rows, readable and not being written.
    unsafe fn put_run(&self, run: Run, out: &mut Vec<u8>) {
        let rows = run.len();
        write_varint(out, 2 * rows as u64 + u64::from(run.is_followed()));
        for at in 0..rows {
            // SAFETY: the caller's promise.
            self.encode_row(unsafe { RowRef::from_raw(run.row(at, self.row_bytes)) }, out);
        }
    }

    /// Whether two runs are not the same: rows are functions of their values, and these have no out-of-line values.
    ///
    /// # Safety
    /// As [`RowWire::put_run`], of both.
    unsafe fn runs_differ(&self, one: Run, other: Run) -> bool {
        // SAFETY: the caller's promise.
        let rows = |run: Run| unsafe { run.rows(self.row_bytes) };
        one.is_followed() != other.is_followed() || rows(one) != rows(other)
    }

    /// Takes a run off the front: its bytes, checked.
    fn take_run<'a>(&self, bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
        taken(bytes, |rest| {
            let rows = read_varint(rest)? / 2;
            // A row has a key, and so at least one byte.
            (0..rows).try_for_each(|_| self.skip_row(rest).map(drop))
        })
    }

    /// Stores a run that was taken, with room for its rows alone.
    fn set_run(&self, place: &ColumnLocation, bytes: &[u8], row: &mut RowWriter<'_>) -> Result<(), DecodeError> {
        let mut rest = bytes;
        let header = read_varint(&mut rest)?;
        // Taken from bytes, so there are fewer of them.
        let rows = (header / 2) as usize;
        let mut words = vec![0u64; Run::bytes(rows, self.row_bytes) / 8];
        words[0] = u64::from_ne_bytes(run_header(header));
        for words in words[1..].chunks_exact_mut(self.row_bytes / 8) {
            let mut none = NoOutOfLineValues;
            // SAFETY: a zeroed place for a row of this layout, which has no fixed part, and is ours.
            let mut writer =
                unsafe { RowWriter::for_insert(words.as_mut_ptr().cast(), std::ptr::null_mut(), &mut none) };
            take_values(self.fields.iter(), &mut rest, |field, value| field.set(value, &mut writer))?;
        }
        end_of(rest)?;
        let image: &[u8] =
            // SAFETY: the bytes of whole words, all initialized.
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 8 * words.len()) };
        Ok(row.set_out_of_line(place, image)?)
    }
}

/// The first word of a run's out-of-line value: rows, and whether runs follow.
fn run_header(header: u64) -> [u8; 8] {
    let mut word = [0; 8];
    word[..4].copy_from_slice(&((header / 2) as u32).to_ne_bytes());
    word[4..].copy_from_slice(&((header % 2) as u32).to_ne_bytes());
    word
}

/// Rows of runs have none.
struct NoOutOfLineValues;

impl crate::OutOfLineStore for NoOutOfLineValues {
    fn store(&mut self, _: &[u8]) -> Result<u64, crate::OutOfMemory> {
        unreachable!("declarations are validated")
    }
}

/// The bits of a byte that are set, by number.
#[derive(Clone, Copy)]
struct SetBits(u8);

impl Iterator for SetBits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let SetBits(bits) = *self;
        let lowest = bits.trailing_zeros() as usize;
        self.0 = bits & bits.wrapping_sub(1);
        (bits != 0).then_some(lowest)
    }
}

/// Rows differ in a column that no update changes.
struct NotUpdatable;

/// The updatable columns in which two rows differ.
#[derive(Clone, Copy)]
enum Differing<'f> {
    Nowhere,
    In(&'f Field),
    InSeveral,
}

impl<'f> Differing<'f> {
    /// And in this one.
    fn and(self, field: &'f Field) -> Differing<'f> {
        match self {
            Differing::Nowhere => Differing::In(field),
            Differing::In(_) | Differing::InSeveral => Differing::InSeveral,
        }
    }
}

fn put_delta(column: u16, amount: i64, out: &mut Vec<u8>) {
    write_varint(out, column.into());
    write_varint(out, zigzag(amount));
}

/// Appends the NULL bits and values of these columns.
///
/// # Safety
/// Rules 1 to 3 of `RowRef`; the fields are of the row's table.
unsafe fn put_values<'f>(fields: impl Iterator<Item = &'f Field> + Clone, row: RowRef<'_>, out: &mut Vec<u8>) {
    let mut byte = out.len();
    for (number, field) in fields.clone().filter(|field| field.nullable).enumerate() {
        if number.is_multiple_of(8) {
            byte = out.len();
            out.push(0);
        }
        out[byte] |= u8::from(row.is_null(&field.place)) << (number % 8);
    }
    for field in fields {
        if !row.is_null(&field.place) {
            // SAFETY: the caller's promise.
            unsafe { field.put(row.block(field.place.part), out) };
        }
    }
}

/// Takes the NULL bits and values of these columns off the front and hands each on.
fn take_values<'f, 'a, E: From<Malformed>>(
    fields: impl Iterator<Item = &'f Field> + Clone,
    bytes: &mut &'a [u8],
    mut each: impl FnMut(&'f Field, Taken<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let nullable = fields.clone().filter(|field| field.nullable).count();
    let nulls = take(bytes, nullable.div_ceil(8))?;
    check_padding(nulls, nullable)?;
    let mut number = 0;
    for field in fields {
        let is_null = field.nullable && {
            number += 1;
            nulls[(number - 1) / 8] & (1 << ((number - 1) % 8)) != 0
        };
        let value = if is_null { Taken::Null } else { field.take(bytes)? };
        each(field, value)?;
    }
    Ok(())
}

/// The bytes that `take` takes off the front.
fn taken<'a>(
    bytes: &mut &'a [u8],
    take: impl FnOnce(&mut &'a [u8]) -> Result<(), Malformed>,
) -> Result<&'a [u8], Malformed> {
    let whole = *bytes;
    let mut rest = whole;
    take(&mut rest)?;
    *bytes = rest;
    Ok(&whole[..whole.len() - rest.len()])
}

/// Only the first `used` bits are set.
fn check_padding(bits: &[u8], used: usize) -> Result<(), Malformed> {
    match bits.last() {
        Some(last) if (last.leading_zeros() as usize) < 8 * bits.len() - used => Err(Malformed::Padding),
        _ => Ok(()),
    }
}

fn end_of(rest: &[u8]) -> Result<(), DecodeError> {
    if rest.is_empty() { Ok(()) } else { Err(Malformed::Trailing.into()) }
}
