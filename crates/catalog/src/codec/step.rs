//! One column of a key, prepared for encoding rows: the table-driven twin of [`KeyColumn`](crate::KeyColumn).

use crate::order::float_bits;
use crate::types::Form;
use crate::{ColumnLocation, ColumnType, KeyWriter, RowPart, RowRef};

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    place: ColumnLocation,
    ty: ColumnType,
    form: Form,
    kind: Kind,
    descending: bool,
    /// Bytes of the value in a key if fixed, without the NULL byte.
    width: u32,
    /// The mask that converts a stored number into its ascending key bits: the sign bit, or nothing.
    flip: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// An integer of at most 8 bytes.
    Number,
    Float,
    /// Text or bytes.
    Escaped,
    /// Anything else, of which the type says what the key bytes are.
    Other,
}

/// Where a row has the key bits of a number that is never NULL.
#[derive(Clone, Copy, Debug)]
pub struct RowWord {
    /// Bytes from the begin of the row version.
    offset: u32,
    /// Bytes of the number.
    width: u32,
    /// The mask that converts the stored number into its key bits.
    flip: u64,
}

impl RowWord {
    /// The key bits, right-aligned.
    ///
    /// # Safety
    /// `row` is a row version of the table, readable and not being written.
    #[inline(always)]
    pub unsafe fn load(&self, row: *const u8) -> u64 {
        // SAFETY: the caller's promise; a number of `width` bytes lies there.
        self.flip ^ unsafe { load_number(row.add(self.offset as usize), self.width) }
    }
}

/// A stored number, as it lies.
///
/// # Safety
/// So many bytes of a row begin at `place`, readable and not being written: 1, 2, 4 or 8.
#[inline(always)]
unsafe fn load_number(place: *const u8, width: u32) -> u64 {
    // SAFETY: the caller's promise; unaligned by the layout.
    unsafe {
        match width {
            1 => place.read().into(),
            2 => place.cast::<u16>().read_unaligned().into(),
            4 => place.cast::<u32>().read_unaligned().into(),
            _ => place.cast::<u64>().read_unaligned(),
        }
    }
}

impl Step {
    pub(super) fn new(ty: ColumnType, descending: bool, place: ColumnLocation) -> Step {
        let width = ty.key_bytes().unwrap_or(0);
        let (kind, flip) = match ty.form() {
            Form::Unsigned { bytes: ..=8 } => (Kind::Number, 0),
            Form::Signed { bytes: ..=8 } => (Kind::Number, 1 << (8 * width - 1)),
            Form::Float { .. } => (Kind::Float, 0),
            Form::InPlace { .. } | Form::OutOfLine { .. } => (Kind::Escaped, 0),
            Form::Unsigned { .. } | Form::Signed { .. } | Form::Fixed { .. } => (Kind::Other, 0),
        };
        Step { place, ty, form: ty.form(), kind, descending, width, flip }
    }

    /// Bits in a key of fixed width.
    #[inline(always)]
    pub(super) fn bits(&self) -> u32 {
        8 * (self.width + u32::from(self.place.null.is_some()))
    }

    /// Where a row has its key bits, if they are a number's that is never NULL and can change.
    pub(super) fn word(&self) -> Option<RowWord> {
        let ColumnLocation { part, offset, null, .. } = self.place;
        let is_word = matches!(self.kind, Kind::Number) && null.is_none() && part == RowPart::Row;
        let inverted = if self.descending { u64::MAX >> (64 - self.bits()) } else { 0 };
        is_word.then_some(RowWord { offset, width: self.width, flip: self.flip ^ inverted })
    }

    /// The key bits of a row's value, right-aligned. Columns of fixed width only.
    #[inline(always)]
    pub(super) fn load(&self, row: RowRef<'_>) -> u128 {
        let ascending = match self.place.null {
            Some(_) if row.is_null(&self.place) => 1u128 << (8 * self.width),
            _ => match self.kind {
                Kind::Number => self.stored(row).into(),
                Kind::Float => float_bits(self.stored(row), self.width).into(),
                Kind::Escaped | Kind::Other => self.other(row),
            },
        };
        if self.descending { !ascending & u128::MAX.unbounded_shr(128 - self.bits()) } else { ascending }
    }

    /// The ascending key bits of a value that is no number of at most 8 bytes.
    #[cold]
    fn other(&self, row: RowRef<'_>) -> u128 {
        let mut key = KeyWriter::new();
        self.ty.write_key(row.raw(&self.place, self.form), &mut key);
        key.as_slice().iter().fold(0, |bits, &byte| bits << 8 | u128::from(byte))
    }

    /// The number that lies at the place, in ascending order if it is an integer.
    #[inline(always)]
    fn stored(&self, row: RowRef<'_>) -> u64 {
        let block = row.block(self.place.part);
        // SAFETY: rules 1 to 3 of `RowRef`; a number of `width` bytes lies at the place.
        self.flip ^ unsafe { load_number(block.add(self.place.offset as usize), self.width) }
    }

    /// Whether a row's value is NULL.
    pub(super) fn is_null(&self, row: RowRef<'_>) -> bool {
        row.is_null(&self.place)
    }

    /// Appends the key bytes of a row's value.
    #[inline]
    pub(super) fn write(&self, row: RowRef<'_>, key: &mut KeyWriter) {
        let from = key.len();
        let is_null = row.is_null(&self.place);
        if self.place.null.is_some() {
            key.number(u64::from(is_null), 1);
        }
        match self.kind {
            _ if is_null => key.zeros(self.width),
            Kind::Number => key.number(self.stored(row), self.width),
            Kind::Float => key.number(float_bits(self.stored(row), self.width), self.width),
            Kind::Escaped => key.escaped(row.raw(&self.place, self.form)),
            Kind::Other => self.ty.write_key(row.raw(&self.place, self.form), key),
        }
        if self.descending {
            key.invert(from);
        }
    }
}
