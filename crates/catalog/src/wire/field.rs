//! One column on the wire: its value appended, taken off, stored.

use std::ops::RangeInclusive;

use super::varint::{read_varint, unzigzag, varint_bytes, write_varint, zigzag};
use super::{DecodeError, Malformed, RowWire};
use crate::stored::load_bytes;
use crate::types::{Form, Raw};
use crate::{ColumnDef, ColumnLocation, ColumnType, RowWriter, Run, Stored, out_of_line};

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) place: ColumnLocation,
    ty: ColumnType,
    kind: Kind,
    /// Whether some bytes of its form are no value of its type.
    is_checked: bool,
    /// Its number among the columns an update may change, if it is one.
    pub(super) updatable: Option<u16>,
    /// Whether amounts may be added to it: an integer or decimal that updates may change and that is never NULL.
    pub(super) is_sum: bool,
    /// Whether the encoding has a NULL bit for it.
    pub(super) nullable: bool,
    /// Whether rows do not have the column any more: its values are taken, and stored nowhere.
    is_left_out: bool,
    /// The rows of a run.
    rows: Option<Box<RowWire>>,
}

/// The amount that an update added to a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    pub(super) amount: i64,
    /// Bytes of the value that it came to.
    pub(super) value_bytes: usize,
}

/// How values are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    /// Also decimals and timestamps.
    I64,
    /// As many bytes as the row has, as they are.
    Fixed,
    /// Text or bytes with room for so many.
    InPlace(u16),
    OutOfLine,
    Run,
}

impl Kind {
    fn of(ty: ColumnType) -> Kind {
        match ty.form() {
            _ if ty == ColumnType::Bool => Kind::Bool,
            Form::Unsigned { bytes: 1 } => Kind::U8,
            Form::Unsigned { bytes: 2 } => Kind::U16,
            Form::Unsigned { bytes: 4 } => Kind::U32,
            Form::Unsigned { bytes: 8 } => Kind::U64,
            Form::Signed { bytes: 1 } => Kind::I8,
            Form::Signed { bytes: 2 } => Kind::I16,
            Form::Signed { bytes: 4 } => Kind::I32,
            Form::Signed { bytes: 8 } => Kind::I64,
            Form::Unsigned { .. } | Form::Signed { .. } | Form::Float { .. } | Form::Fixed { .. } => Kind::Fixed,
            Form::InPlace { max, .. } => Kind::InPlace(max),
            Form::OutOfLine { .. } => Kind::OutOfLine,
        }
    }
}

/// A value that fits its column. Signed numbers are sign-extended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken<'a> {
    Null,
    Number(u64),
    Bytes(&'a [u8]),
    Run(&'a [u8]),
}

/// Whether this many bytes are equal at both addresses. The sizes of numbers, the most frequent, are compared
/// without a call.
///
/// # Safety
/// They are initialized and readable.
#[inline]
unsafe fn are_equal(one: *const u8, other: *const u8, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            8 => one.cast::<u64>().read_unaligned() == other.cast::<u64>().read_unaligned(),
            4 => one.cast::<u32>().read_unaligned() == other.cast::<u32>().read_unaligned(),
            2 => one.cast::<u16>().read_unaligned() == other.cast::<u16>().read_unaligned(),
            1 => *one == *other,
            _ => std::slice::from_raw_parts(one, bytes) == std::slice::from_raw_parts(other, bytes),
        }
    }
}

/// Takes this many bytes off the front.
#[inline]
pub(super) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
    bytes.split_off(..count).ok_or(Malformed::CutShort)
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (array, rest) = bytes.split_first_chunk().ok_or(Malformed::CutShort)?;
    *bytes = rest;
    Ok(*array)
}

impl Field {
    pub(super) fn new(column: &ColumnDef, place: ColumnLocation, updatable: Option<u16>) -> Field {
        let (nullable, kind) = (column.nullable, Kind::of(column.ty));
        let is_sum = column.ty.is_sum() && updatable.is_some() && !nullable;
        let is_checked = column.ty.rules(|rules| rules.is_checked());
        let (is_left_out, rows) = (false, None);
        Field { place, ty: column.ty, kind, is_checked, updatable, is_sum, nullable, is_left_out, rows }
    }

    /// The column, of rows that do not have it any more.
    pub(super) fn left_out(self) -> Field {
        Field { is_left_out: true, ..self }
    }

    /// The one column of records that hold runs of such rows.
    pub(super) fn of_run(place: ColumnLocation, rows: RowWire) -> Field {
        let ty = ColumnType::U64;
        let (kind, updatable, rows) = (Kind::Run, Some(0), Some(Box::new(rows)));
        let (is_checked, is_sum, nullable, is_left_out) = (false, false, false, false);
        Field { place, ty, kind, is_checked, updatable, is_sum, nullable, is_left_out, rows }
    }

    /// How the rows of a run are encoded.
    fn rows(&self) -> &RowWire {
        self.rows.as_ref().expect("the column of a run")
    }

    /// Appends a value that is not NULL.
    ///
    /// # Safety
    /// `block` is the place's block of a row of the table, by the rules of `RowRef`.
    #[inline]
    pub(super) unsafe fn put(&self, block: *const u8, out: &mut Vec<u8>) {
        let place = &self.place;
        // SAFETY: the caller's promise; each kind loads the column's own type.
        unsafe {
            match self.kind {
                Kind::Bool | Kind::U8 | Kind::I8 => out.push(u8::read(block, place)),
                Kind::U16 | Kind::I16 => out.extend_from_slice(&u16::read(block, place).to_le_bytes()),
                Kind::U32 => write_varint(out, u32::read(block, place).into()),
                Kind::I32 => write_varint(out, zigzag(i32::read(block, place).into())),
                Kind::U64 => write_varint(out, u64::read(block, place)),
                Kind::I64 => write_varint(out, zigzag(i64::read(block, place))),
                Kind::Fixed => {
                    let stored = block.add(place.offset as usize);
                    out.extend_from_slice(std::slice::from_raw_parts(stored, place.bytes as usize));
                }
                Kind::InPlace(max) => put_bytes(load_bytes(block, place, max.into()), out),
                Kind::OutOfLine => put_bytes(out_of_line(u64::read(block, place)), out),
                Kind::Run => self.rows().put_run(Run::at(u64::read(block, place)), out),
            }
        }
    }

    /// Whether two values are the same byte for byte; of values out of line, the addresses.
    ///
    /// # Safety
    /// As [`Field::put`], of both blocks.
    pub(super) unsafe fn is_shared(&self, one: *const u8, other: *const u8) -> bool {
        let (place, offset) = (&self.place, self.place.offset as usize);
        // SAFETY: the caller's promise; a place lies in its block.
        unsafe {
            are_equal(one.add(offset), other.add(offset), place.bytes as usize)
                && place.is_null(one) == place.is_null(other)
        }
    }

    /// Whether two values differ. The same out-of-line address is the same value.
    ///
    /// # Safety
    /// As [`Field::put`], of both blocks.
    pub(super) unsafe fn differs(&self, before: *const u8, after: *const u8) -> bool {
        let place = &self.place;
        // SAFETY: the caller's promise; a place lies in its block.
        unsafe {
            let value = |block: *const u8| block.add(place.offset as usize);
            if are_equal(value(before), value(after), place.bytes as usize) {
                place.is_null(before) != place.is_null(after)
            } else {
                if self.kind == Kind::Run {
                    let run = |block: *const u8| Run::at(u64::read(block, place));
                    return self.rows().runs_differ(run(before), run(after));
                }
                // A NULL's bytes are zero, so one of the two has a value here.
                self.kind != Kind::OutOfLine
                    || place.is_null(before) != place.is_null(after)
                    || out_of_line(u64::read(before, place)) != out_of_line(u64::read(after, place))
            }
        }
    }

    /// The amount by which the new value exceeds the old one. `None` if amounts cannot be added to the column,
    /// or this one has more than 64 bits.
    ///
    /// # Safety
    /// As [`Field::put`], of both blocks.
    #[inline]
    pub(super) unsafe fn added(&self, before: *const u8, after: *const u8) -> Option<Added> {
        if !self.is_sum {
            return None;
        }
        // SAFETY: the caller's promise.
        let (before, after) = unsafe { (self.number(before)?, self.number(after)?) };
        let value_bytes = match self.kind {
            Kind::U8 | Kind::I8 => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::U64 => varint_bytes(after as u64),
            _ => varint_bytes(zigzag(after as i64)),
        };
        Some(Added { amount: i64::try_from(after - before).ok()?, value_bytes })
    }

    /// The amount by which the new value exceeds the old one and the value to which it is to be added. Also the range
    /// of the column. `None` if amounts cannot be added to the column.
    ///
    /// # Safety
    /// As [`Field::put`], of all blocks.
    pub(super) unsafe fn sum(
        &self,
        before: *const u8,
        after: *const u8,
        newer: *const u8,
    ) -> Option<(i128, i128, RangeInclusive<i128>)> {
        let range = match self.kind {
            Kind::U8 => 0..=u8::MAX.into(),
            Kind::I8 => i8::MIN.into()..=i8::MAX.into(),
            Kind::U16 => 0..=u16::MAX.into(),
            Kind::I16 => i16::MIN.into()..=i16::MAX.into(),
            Kind::U32 => 0..=u32::MAX.into(),
            Kind::I32 => i32::MIN.into()..=i32::MAX.into(),
            Kind::U64 => 0..=u64::MAX.into(),
            Kind::I64 => i64::MIN.into()..=i64::MAX.into(),
            _ => return None,
        };
        // SAFETY: the caller's promise.
        let [before, after, newer] = unsafe { [self.number(before)?, self.number(after)?, self.number(newer)?] };
        Some((after - before, newer, range)).filter(|_| self.is_sum)
    }

    /// The value of an integer or decimal.
    ///
    /// # Safety
    /// As [`Field::put`].
    #[inline]
    unsafe fn number(&self, block: *const u8) -> Option<i128> {
        let place = &self.place;
        // SAFETY: the caller's promise; each kind loads the column's own type.
        Some(unsafe {
            match self.kind {
                Kind::U8 => u8::read(block, place).into(),
                Kind::I8 => i8::read(block, place).into(),
                Kind::U16 => u16::read(block, place).into(),
                Kind::I16 => i16::read(block, place).into(),
                Kind::U32 => u32::read(block, place).into(),
                Kind::I32 => i32::read(block, place).into(),
                Kind::U64 => u64::read(block, place).into(),
                Kind::I64 => i64::read(block, place).into(),
                _ => return None,
            }
        })
    }

    /// Takes a value that is not NULL off the front and checks that it fits.
    #[inline]
    pub(super) fn take<'a>(&self, bytes: &mut &'a [u8]) -> Result<Taken<'a>, Malformed> {
        let column = self.place.column;
        let unfit = Malformed::Number { column };
        let number = match self.kind {
            Kind::Bool => match take_array::<1>(bytes)?[0] {
                bit @ 0..=1 => bit.into(),
                _ => return Err(unfit),
            },
            Kind::U8 => take_array::<1>(bytes)?[0].into(),
            Kind::I8 => i64::from(i8::from_le_bytes(take_array(bytes)?)) as u64,
            Kind::U16 => u16::from_le_bytes(take_array(bytes)?).into(),
            Kind::I16 => i64::from(i16::from_le_bytes(take_array(bytes)?)) as u64,
            Kind::U32 => u32::try_from(read_varint(bytes)?).map_err(|_| unfit)?.into(),
            Kind::I32 => i64::from(i32::try_from(unzigzag(read_varint(bytes)?)).map_err(|_| unfit)?) as u64,
            Kind::U64 => read_varint(bytes)?,
            Kind::I64 => unzigzag(read_varint(bytes)?) as u64,
            Kind::Fixed => return self.valid(take(bytes, self.place.bytes as usize)?),
            Kind::InPlace(max) => return self.valid(take_bytes(bytes, column, Some(max))?),
            Kind::OutOfLine => return self.valid(take_bytes(bytes, column, None)?),
            Kind::Run => return self.rows().take_run(bytes).map(Taken::Run),
        };
        if self.is_checked {
            self.valid(&Raw::number(number.into(), self.place.bytes as usize))?;
        }
        Ok(Taken::Number(number))
    }

    /// Bytes that are a value of the type.
    fn valid<'a>(&self, bytes: &'a [u8]) -> Result<Taken<'a>, Malformed> {
        let column = self.place.column;
        match self.ty.form() {
            Form::InPlace { is_utf8: true, .. } | Form::OutOfLine { is_utf8: true } => {
                std::str::from_utf8(bytes).map_err(|_| Malformed::NotUtf8 { column })?;
            }
            _ if self.is_checked && !self.ty.rules(|rules| rules.is_valid(bytes)) => {
                return Err(Malformed::Number { column });
            }
            _ => {}
        }
        Ok(Taken::Bytes(bytes))
    }

    /// Stores what [`Field::take`] took of this field.
    pub(super) fn set(&self, value: Taken<'_>, row: &mut RowWriter<'_>) -> Result<(), DecodeError> {
        match value {
            _ if self.is_left_out => {}
            Taken::Null => row.set_null(&self.place),
            Taken::Number(number) => row.set_number(&self.place, number),
            Taken::Bytes(bytes) => row.set_raw(&self.place, self.ty.form(), bytes)?,
            Taken::Run(run) => self.rows().set_run(&self.place, run, row)?,
        }
        Ok(())
    }

    /// Adds to the number that the row has now.
    pub(super) fn add(&self, amount: i64, row: &mut RowWriter<'_>) -> Result<(), DecodeError> {
        if self.is_left_out {
            return Ok(());
        }
        let place = &self.place;
        let overflow = DecodeError::Overflow { column: place.column };
        macro_rules! add {
            ($type:ty) => {{
                let sum = i128::from(row.get::<$type>(place)) + i128::from(amount);
                row.set::<$type>(place, <$type>::try_from(sum).map_err(|_| overflow)?)?;
            }};
        }
        match self.kind {
            Kind::U8 => add!(u8),
            Kind::I8 => add!(i8),
            Kind::U16 => add!(u16),
            Kind::I16 => add!(i16),
            Kind::U32 => add!(u32),
            Kind::I32 => add!(i32),
            Kind::U64 => add!(u64),
            Kind::I64 => add!(i64),
            _ => {
                return Err(Malformed::NotASum { column: place.column.into() }.into());
            }
        }
        Ok(())
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(bytes: &mut &'a [u8], column: u16, max: Option<u16>) -> Result<&'a [u8], Malformed> {
    let count = read_varint(bytes)?;
    if let Some(max) = max
        && count > max.into()
    {
        return Err(Malformed::TooLong { column, bytes: count, max });
    }
    take(bytes, usize::try_from(count).map_err(|_| Malformed::CutShort)?)
}
