//! Rust types of columns: how each is loaded from a row and stored in one.
//!
//! [`Column`] is unsafe to implement because a row's bytes are trusted. The `load` of every type with a [`ColumnType`]
//! reads the value that `store` wrote under it, and neither leaves the place.

use std::fmt::Debug;

use crate::layout::{length_bytes, load_length, store_length};
use crate::row::out_of_line;
use crate::{Bytes, ColumnLocation, ColumnType, Decimal, OutOfLineStore, OutOfMemory, Text, Timestamp};

/// A Rust type that a column can have.
///
/// # Safety
/// `TYPE` and `NULLABLE` are true: `store` writes bytes that `load` of every other type with the same two
/// accepts. Both stay within the place and its NULL bit.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the type of a column",
    label = "not a column type",
    note = "write bool, an integer of 8 to 64 bits, f64, Decimal<S>, Timestamp, Text<N>, Bytes<N>, String, or an \
        Option of one"
)]
pub unsafe trait Column: Sized {
    /// Its type in the schema.
    const TYPE: ColumnType;
    /// Whether it may be NULL.
    const NULLABLE: bool = false;
    /// The result of reading it: the value, or a reference into the row.
    type Ref<'t>: Copy + Debug;
    /// The argument of setting it: the value, or a reference to one.
    type Set<'a>: Copy;
    /// The result of setting it: nothing, or, for long text, whether there was memory for it.
    type Stored;

    /// Loads a value.
    ///
    /// # Safety
    /// `block` is the block of memory of a row to which `place` refers. It is readable and unchanged for `'t`, and a
    /// value of this type was stored there.
    unsafe fn load<'t>(block: *const u8, place: &ColumnLocation) -> Self::Ref<'t>;

    /// Stores a value.
    ///
    /// # Safety
    /// `block` is the block of memory of a row to which `place` refers, private to the caller; `place` is one
    /// of this type.
    ///
    /// # Errors
    /// Long text only: at the memory limit.
    unsafe fn store(
        value: Self::Set<'_>,
        block: *mut u8,
        place: &ColumnLocation,
        out_of_line_values: &mut dyn OutOfLineStore,
    ) -> Result<(), OutOfMemory>;

    /// The outcome of [`Column::store`] as setters of this type report it.
    fn stored(outcome: Result<(), OutOfMemory>) -> Self::Stored;

    /// A loaded value as an owned one.
    fn owned(value: Self::Ref<'_>) -> Self;

    /// An owned value as one to store.
    fn lend(&self) -> Self::Set<'_>;
}

/// The parts of `impl Column` that all types without long text share.
macro_rules! never_fails {
    () => {
        type Stored = ();
        #[inline(always)]
        fn stored(_: Result<(), OutOfMemory>) {}
    };
}

/// The parts of `impl Column` that all types read by value share.
macro_rules! by_value {
    ($type:ty) => {
        type Ref<'t> = $type;
        type Set<'a> = $type;
        never_fails!();
        #[inline(always)]
        fn owned(value: $type) -> $type {
            value
        }
        #[inline(always)]
        fn lend(&self) -> $type {
            *self
        }
    };
}

macro_rules! number {
    ($($type:ty => $column:expr;)+) => {$(
        // SAFETY: reads and writes the place's `row_bytes`, which are the type's; every bit pattern is a number.
        unsafe impl Column for $type {
            const TYPE: ColumnType = $column;
            by_value!($type);

            #[inline(always)]
            unsafe fn load<'t>(block: *const u8, place: &ColumnLocation) -> Self::Ref<'t> {
                // SAFETY: the caller's promise; unaligned by the layout.
                unsafe { block.add(place.offset as usize).cast::<$type>().read_unaligned() }
            }

            #[inline(always)]
            unsafe fn store(
                value: $type,
                block: *mut u8,
                place: &ColumnLocation,
                _: &mut dyn OutOfLineStore,
            ) -> Result<(), OutOfMemory> {
                // SAFETY: the caller's promise; unaligned by the layout.
                unsafe { block.add(place.offset as usize).cast::<$type>().write_unaligned(value) };
                Ok(())
            }
        }
    )+};
}

number! {
    u8 => ColumnType::U8;
    u16 => ColumnType::U16;
    u32 => ColumnType::U32;
    u64 => ColumnType::U64;
    i8 => ColumnType::I8;
    i16 => ColumnType::I16;
    i32 => ColumnType::I32;
    i64 => ColumnType::I64;
    f64 => ColumnType::F64;
}

/// Types that are stored as a number.
macro_rules! wrapped {
    ($(
        [$($generics:tt)*] $type:ty => $column:expr, $inner:ty, |$to:ident| $wrap:expr, |$from:ident| $unwrap:expr;
    )+) => {$(
        // SAFETY: stored as a number of the same width; every number makes a value.
        unsafe impl $($generics)* Column for $type {
            const TYPE: ColumnType = $column;
            by_value!($type);

            #[inline(always)]
            unsafe fn load<'t>(block: *const u8, place: &ColumnLocation) -> Self::Ref<'t> {
                // SAFETY: the caller's promise.
                let $to = unsafe { <$inner as Column>::load(block, place) };
                $wrap
            }

            #[inline(always)]
            unsafe fn store(
                $from: $type,
                block: *mut u8,
                place: &ColumnLocation,
                out_of_line_values: &mut dyn OutOfLineStore,
            ) -> Result<(), OutOfMemory> {
                // SAFETY: the caller's promise.
                unsafe { <$inner as Column>::store($unwrap, block, place, out_of_line_values) }
            }
        }
    )+};
}

wrapped! {
    [] bool => ColumnType::Bool, u8, |v| v != 0, |v| u8::from(v);
    [] Timestamp => ColumnType::Timestamp, i64, |v| Timestamp::from_microseconds(v), |v| v.microseconds();
    [<const S: u32>] Decimal<S> => ColumnType::Decimal { scale: Decimal::<S>::SCALE }, i64,
        |v| Decimal::from_units(v), |v| v.units();
}

/// The bytes of a value with a length before it and room for `max`.
///
/// # Safety
/// As [`Column::load`], of a text or byte column.
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
/// As [`Column::store`].
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

// SAFETY: length and room are the place's `row_bytes`. This and `RowWriter::set_bytes` store whole texts
// under this type, so what is loaded is UTF-8.
unsafe impl<const N: usize> Column for Text<N> {
    const TYPE: ColumnType = ColumnType::Text { max: Bytes::<N>::MAX as u16 };
    type Ref<'t> = &'t str;
    type Set<'a> = &'a Text<N>;
    never_fails!();

    #[inline(always)]
    unsafe fn load<'t>(block: *const u8, place: &ColumnLocation) -> &'t str {
        // SAFETY: the caller's promise; only whole texts are stored.
        unsafe { std::str::from_utf8_unchecked(load_bytes(block, place, N)) }
    }

    #[inline]
    unsafe fn store(
        value: &Text<N>,
        block: *mut u8,
        place: &ColumnLocation,
        _: &mut dyn OutOfLineStore,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe { store_bytes(value.bytes(), block, place) };
        Ok(())
    }

    fn owned(value: &str) -> Text<N> {
        // A value that was in the row has room.
        Text::new(value).unwrap_or_default()
    }

    #[inline]
    fn lend(&self) -> &Text<N> {
        self
    }
}

// SAFETY: length and room are the place's `row_bytes`.
unsafe impl<const N: usize> Column for Bytes<N> {
    const TYPE: ColumnType = ColumnType::Bytes { max: Bytes::<N>::MAX as u16 };
    type Ref<'t> = &'t [u8];
    type Set<'a> = &'a Bytes<N>;
    never_fails!();

    #[inline(always)]
    unsafe fn load<'t>(block: *const u8, place: &ColumnLocation) -> &'t [u8] {
        // SAFETY: the caller's promise.
        unsafe { load_bytes(block, place, N) }
    }

    #[inline]
    unsafe fn store(
        value: &Bytes<N>,
        block: *mut u8,
        place: &ColumnLocation,
        _: &mut dyn OutOfLineStore,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe { store_bytes(value, block, place) };
        Ok(())
    }

    fn owned(value: &[u8]) -> Bytes<N> {
        // A value that was in the row has room.
        Bytes::new(value).unwrap_or_default()
    }

    #[inline]
    fn lend(&self) -> &Bytes<N> {
        self
    }
}

// SAFETY: stores the address of an out-of-line block that holds a whole text, which is what it loads.
unsafe impl Column for String {
    const TYPE: ColumnType = ColumnType::LongText;
    type Ref<'t> = &'t str;
    type Set<'a> = &'a str;
    type Stored = Result<(), OutOfMemory>;

    #[inline]
    unsafe fn load<'t>(block: *const u8, place: &ColumnLocation) -> &'t str {
        // SAFETY: the caller's promise: 0 or the address of an out-of-line block that holds a whole text.
        unsafe { std::str::from_utf8_unchecked(out_of_line(u64::load(block, place))) }
    }

    #[inline]
    unsafe fn store(
        value: &str,
        block: *mut u8,
        place: &ColumnLocation,
        out_of_line_values: &mut dyn OutOfLineStore,
    ) -> Result<(), OutOfMemory> {
        let address = out_of_line_values.store(value.as_bytes())?;
        // SAFETY: the caller's promise.
        unsafe { u64::store(address, block, place, out_of_line_values) }
    }

    fn stored(outcome: Result<(), OutOfMemory>) -> Result<(), OutOfMemory> {
        outcome
    }

    fn owned(value: &str) -> String {
        value.to_owned()
    }

    fn lend(&self) -> &str {
        self
    }
}

/// Only of a type that is not optional itself: SQL has one NULL.
// SAFETY: a value is that of `C`; NULL is the bit of the place, and its value is zeros, which every `C` accepts.
unsafe impl<C: Column> Column for Option<C> {
    const TYPE: ColumnType = {
        assert!(!C::NULLABLE, "an optional column is Option<T> of a type that is not an Option itself");
        C::TYPE
    };
    const NULLABLE: bool = true;
    type Ref<'t> = Option<C::Ref<'t>>;
    type Set<'a> = Option<C::Set<'a>>;
    type Stored = C::Stored;

    #[inline(always)]
    unsafe fn load<'t>(block: *const u8, place: &ColumnLocation) -> Option<C::Ref<'t>> {
        // SAFETY: the caller's promise.
        unsafe { if place.is_null(block) { None } else { Some(C::load(block, place)) } }
    }

    #[inline]
    unsafe fn store(
        value: Option<C::Set<'_>>,
        block: *mut u8,
        place: &ColumnLocation,
        out_of_line_values: &mut dyn OutOfLineStore,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe {
            match value {
                Some(value) => {
                    C::store(value, block, place, out_of_line_values)?;
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
    fn stored(outcome: Result<(), OutOfMemory>) -> C::Stored {
        C::stored(outcome)
    }

    fn owned(value: Option<C::Ref<'_>>) -> Option<C> {
        value.map(C::owned)
    }

    #[inline]
    fn lend(&self) -> Option<C::Set<'_>> {
        self.as_ref().map(C::lend)
    }
}
