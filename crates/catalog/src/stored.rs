//! What rows store: how each kind of value is loaded from a row and stored in one.
//!
//! [`Stored`] is unsafe to implement because a row's bytes are trusted, and all its implementations are here. A
//! [`Column`](crate::Column) is one of these in other words.

use std::fmt::Debug;

use crate::layout::{length_bytes, load_length, store_length};
use crate::order::float_bits;
use crate::row::out_of_line;
use crate::{Bytes, ColumnLocation, ColumnType, KeyWriter, OutOfLineStore, OutOfMemory, Text};

/// A type that rows store as it is: an integer, a float, `[u8; N]`, [`Text`], [`Bytes`], `String`, `Vec<u8>`, or an
/// `Option` of one.
///
/// # Safety
/// `TYPE` and `NULLABLE` are true: `write` writes bytes that `read` of every other type with the same form and
/// nullability accepts. Both stay within the place and its NULL bit.
#[diagnostic::on_unimplemented(
    message = "rows do not store a `{Self}` as it is",
    note = "choose an integer, a float, `[u8; N]`, Text<N>, Bytes<N>, String, Vec<u8>, or an Option of one"
)]
pub unsafe trait Stored: Sized {
    /// Its type in the schema.
    const TYPE: ColumnType;
    /// Whether it may be NULL.
    const NULLABLE: bool = false;
    /// The result of reading it: the value, or a reference into the row.
    type Ref<'t>: Copy + Debug;
    /// The argument of setting it: the value, or a reference to one.
    type Set<'a>: Copy;
    /// The result of setting it: nothing, or, where it lies out of line, whether there was memory for it.
    type Outcome;

    /// Loads a value.
    ///
    /// # Safety
    /// `block` is the block of memory of a row to which `place` refers. It is readable and unchanged for `'t`, and a
    /// value of this type was stored there.
    unsafe fn read<'t>(block: *const u8, place: &ColumnLocation) -> Self::Ref<'t>;

    /// Stores a value.
    ///
    /// # Safety
    /// `block` is the block of memory of a row to which `place` refers, private to the caller; `place` is one
    /// of this type.
    ///
    /// # Errors
    /// Values out of line only: at the memory limit.
    unsafe fn write(
        value: Self::Set<'_>,
        block: *mut u8,
        place: &ColumnLocation,
        out_of_line_values: &mut dyn OutOfLineStore,
    ) -> Result<(), OutOfMemory>;

    /// The outcome of [`Stored::write`] as setters of this type report it.
    fn outcome(outcome: Result<(), OutOfMemory>) -> Self::Outcome;

    /// The key bytes of a value in a column of type `ty`, as a number, right-aligned; zero if their number varies or is
    /// above 16.
    fn key_bits(value: Self::Set<'_>, ty: ColumnType) -> u128;

    /// Appends the key bytes of a value in a column of type `ty`.
    fn write_key(value: Self::Set<'_>, ty: ColumnType, key: &mut KeyWriter);
}

/// The parts of `impl Stored` that all types in place share.
macro_rules! never_fails {
    () => {
        type Outcome = ();
        #[inline(always)]
        fn outcome(_: Result<(), OutOfMemory>) {}
    };
}

/// The bytes of the type at the place: every pattern of them is a value.
macro_rules! in_place {
    ($type:ty) => {
        type Ref<'t> = $type;
        type Set<'a> = $type;
        never_fails!();

        #[inline(always)]
        unsafe fn read<'t>(block: *const u8, place: &ColumnLocation) -> Self::Ref<'t> {
            // SAFETY: the caller's promise; unaligned by the layout.
            unsafe { block.add(place.offset as usize).cast::<$type>().read_unaligned() }
        }

        #[inline(always)]
        unsafe fn write(
            value: $type,
            block: *mut u8,
            place: &ColumnLocation,
            _: &mut dyn OutOfLineStore,
        ) -> Result<(), OutOfMemory> {
            // SAFETY: the caller's promise; unaligned by the layout.
            unsafe { block.add(place.offset as usize).cast::<$type>().write_unaligned(value) };
            Ok(())
        }
    };
}

macro_rules! number {
    ($($type:ty => $column:ident, |$value:ident| $ordered:expr;)+) => {$(
        // SAFETY: reads and writes the place's `row_bytes`, which are the type's; every bit pattern is a number.
        unsafe impl Stored for $type {
            const TYPE: ColumnType = ColumnType::$column;
            in_place!($type);

            #[inline(always)]
            fn key_bits($value: $type, _: ColumnType) -> u128 {
                $ordered as u128
            }

            #[inline(always)]
            fn write_key(value: $type, ty: ColumnType, key: &mut KeyWriter) {
                key.wide(Self::key_bits(value, ty), size_of::<$type>() as u32);
            }
        }
    )+};
}

number! {
    u8 => U8, |v| v;
    u16 => U16, |v| v;
    u32 => U32, |v| v;
    u64 => U64, |v| v;
    i8 => I8, |v| v as u8 ^ 1 << 7;
    i16 => I16, |v| v as u16 ^ 1 << 15;
    i32 => I32, |v| v as u32 ^ 1 << 31;
    i64 => I64, |v| v as u64 ^ 1 << 63;
    i128 => I128, |v| v as u128 ^ 1 << 127;
    u128 => U128, |v| v;
    f32 => F32, |v| float_bits(v.to_bits().into(), 4);
    f64 => F64, |v| float_bits(v.to_bits(), 8);
}

// SAFETY: reads and writes the place's `row_bytes`, which are N; every byte is one.
unsafe impl<const N: usize> Stored for [u8; N] {
    const TYPE: ColumnType = {
        assert!(N >= 1 && N <= u16::MAX as usize, "an array in a column has 1 to 65535 bytes");
        ColumnType::ByteArray { bytes: N as u16 }
    };
    in_place!([u8; N]);

    #[inline]
    fn key_bits(value: [u8; N], ty: ColumnType) -> u128 {
        let mut key = KeyWriter::new();
        ty.write_key(&value, &mut key);
        if key.len() > 16 { 0 } else { key.as_slice().iter().fold(0, |bits, &byte| bits << 8 | u128::from(byte)) }
    }

    #[inline]
    fn write_key(value: [u8; N], ty: ColumnType, key: &mut KeyWriter) {
        ty.write_key(&value, key);
    }
}

/// The bytes of a value with a length before it and room for `max`.
///
/// # Safety
/// As [`Stored::read`], of a text or byte column.
#[inline(always)]
pub(crate) unsafe fn load_bytes<'t>(block: *const u8, place: &ColumnLocation, max: usize) -> &'t [u8] {
    // SAFETY: the caller's promise: a length within `max` and that many bytes.
    unsafe {
        let at = block.add(place.offset as usize);
        std::slice::from_raw_parts(at.add(length_bytes(max)), load_length(at, max))
    }
}

/// Stores the length and the whole room, a copy of constant size. Bytes beyond the length are zero, so that
/// equal rows are equal bytes.
///
/// # Safety
/// As [`Stored::write`].
#[inline(always)]
unsafe fn store_bytes<const N: usize>(value: &Bytes<N>, block: *mut u8, place: &ColumnLocation) {
    let (len, bytes) = value.parts();
    // SAFETY: the caller's promise.
    unsafe {
        let at = block.add(place.offset as usize);
        store_length(at, N, len);
        at.add(length_bytes(N)).copy_from_nonoverlapping(bytes.as_ptr(), N);
    }
}

/// Keys of text and bytes.
macro_rules! escaped {
    (|$value:ident: $type:ty| $bytes:expr) => {
        #[inline(always)]
        fn key_bits(_: $type, _: ColumnType) -> u128 {
            0
        }

        #[inline]
        fn write_key($value: $type, _: ColumnType, key: &mut KeyWriter) {
            key.escaped($bytes);
        }
    };
}

// SAFETY: length and room are the place's `row_bytes`. This and `RowWriter::set_raw` store whole texts
// under this type, so what is loaded is UTF-8.
unsafe impl<const N: usize> Stored for Text<N> {
    const TYPE: ColumnType = ColumnType::Text { max: Bytes::<N>::MAX as u16 };
    type Ref<'t> = &'t str;
    type Set<'a> = &'a Text<N>;
    never_fails!();
    escaped!(|value: &Text<N>| value.as_bytes());

    #[inline(always)]
    unsafe fn read<'t>(block: *const u8, place: &ColumnLocation) -> &'t str {
        // SAFETY: the caller's promise; only whole texts are stored.
        unsafe { std::str::from_utf8_unchecked(load_bytes(block, place, N)) }
    }

    #[inline]
    unsafe fn write(
        value: &Text<N>,
        block: *mut u8,
        place: &ColumnLocation,
        _: &mut dyn OutOfLineStore,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe { store_bytes(value.bytes(), block, place) };
        Ok(())
    }
}

// SAFETY: length and room are the place's `row_bytes`.
unsafe impl<const N: usize> Stored for Bytes<N> {
    const TYPE: ColumnType = ColumnType::Bytes { max: Bytes::<N>::MAX as u16 };
    type Ref<'t> = &'t [u8];
    type Set<'a> = &'a Bytes<N>;
    never_fails!();
    escaped!(|value: &Bytes<N>| value.as_slice());

    #[inline(always)]
    unsafe fn read<'t>(block: *const u8, place: &ColumnLocation) -> &'t [u8] {
        // SAFETY: the caller's promise.
        unsafe { load_bytes(block, place, N) }
    }

    #[inline]
    unsafe fn write(
        value: &Bytes<N>,
        block: *mut u8,
        place: &ColumnLocation,
        _: &mut dyn OutOfLineStore,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe { store_bytes(value, block, place) };
        Ok(())
    }
}

/// Values out of line: the place has the address of a block, or 0 for no bytes.
macro_rules! long {
    ($($type:ty => $column:ident, $borrowed:ty, |$bytes:ident| $load:expr, |$value:ident| $lend:expr;)+) => {$(
        // SAFETY: stores the address of an out-of-line block that holds a whole value, which is what it loads.
        unsafe impl Stored for $type {
            const TYPE: ColumnType = ColumnType::$column;
            type Ref<'t> = &'t $borrowed;
            type Set<'a> = &'a $borrowed;
            type Outcome = Result<(), OutOfMemory>;
            escaped!(|$value: &$borrowed| $lend);

            #[inline]
            unsafe fn read<'t>(block: *const u8, place: &ColumnLocation) -> &'t $borrowed {
                // SAFETY: the caller's promise: 0 or the address of an out-of-line block that holds a whole value.
                unsafe {
                    let $bytes = out_of_line(u64::read(block, place));
                    $load
                }
            }

            #[inline]
            unsafe fn write(
                $value: &$borrowed,
                block: *mut u8,
                place: &ColumnLocation,
                out_of_line_values: &mut dyn OutOfLineStore,
            ) -> Result<(), OutOfMemory> {
                let address = out_of_line_values.store($lend)?;
                // SAFETY: the caller's promise.
                unsafe { u64::write(address, block, place, out_of_line_values) }
            }

            fn outcome(outcome: Result<(), OutOfMemory>) -> Result<(), OutOfMemory> {
                outcome
            }
        }
    )+};
}

long! {
    String => LongText, str, |bytes| std::str::from_utf8_unchecked(bytes), |value| value.as_bytes();
    Vec<u8> => LongBytes, [u8], |bytes| bytes, |value| value;
}

/// Only of a type that is not optional itself: SQL has one NULL.
// SAFETY: a value is that of `S`; NULL is the bit of the place, and its value is zeros, which every `S` accepts.
unsafe impl<S: Stored> Stored for Option<S> {
    const TYPE: ColumnType = {
        assert!(!S::NULLABLE, "an optional column is Option<T> of a type that is not an Option itself");
        S::TYPE
    };
    const NULLABLE: bool = true;
    type Ref<'t> = Option<S::Ref<'t>>;
    type Set<'a> = Option<S::Set<'a>>;
    type Outcome = S::Outcome;

    #[inline(always)]
    unsafe fn read<'t>(block: *const u8, place: &ColumnLocation) -> Option<S::Ref<'t>> {
        // SAFETY: the caller's promise.
        unsafe { if place.is_null(block) { None } else { Some(S::read(block, place)) } }
    }

    #[inline]
    unsafe fn write(
        value: Option<S::Set<'_>>,
        block: *mut u8,
        place: &ColumnLocation,
        out_of_line_values: &mut dyn OutOfLineStore,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe {
            match value {
                Some(value) => {
                    S::write(value, block, place, out_of_line_values)?;
                    place.set_null(block, false);
                }
                None => {
                    // Zeroed, so that equal rows are equal bytes and no out-of-line value is referred to.
                    block.add(place.offset as usize).write_bytes(0, place.bytes as usize);
                    place.set_null(block, true);
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn outcome(outcome: Result<(), OutOfMemory>) -> S::Outcome {
        S::outcome(outcome)
    }

    #[inline]
    fn key_bits(value: Option<S::Set<'_>>, ty: ColumnType) -> u128 {
        match value {
            Some(value) => S::key_bits(value, ty),
            None => 1u128.unbounded_shl(8 * ty.key_bytes().unwrap_or(0)),
        }
    }

    #[inline]
    fn write_key(value: Option<S::Set<'_>>, ty: ColumnType, key: &mut KeyWriter) {
        match value {
            Some(value) => {
                key.number(0, 1);
                S::write_key(value, ty, key);
            }
            None => {
                key.number(1, 1);
                key.zeros(ty.key_bytes().unwrap_or(0));
            }
        }
    }
}
