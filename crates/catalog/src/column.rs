//! Rust types of columns: how each is loaded from a row, stored in one, and ordered in a key.
//!
//! Key order: unsigned integers big-endian in their own width; signed ones with the sign bit flipped; floats by the total
//! order of IEEE 754; texts and bytes byte by byte with 0x00 written as 0x00 0xFF and 0x00 0x00 as the end, which keeps order
//! and makes no key the beginning of another; an optional column has a byte before it, 0 for a value and 1 for NULL, so NULLs
//! come last. A descending column has every byte inverted.

use std::cmp::Reverse;

use crate::layout::length_of;
use crate::row::tail;
use crate::schema::length_bytes;
use crate::{Bytes, ColumnType, Decimal, KeyWriter, OutOfMemory, Place, TailStore, Text, Timestamp};

/// A Rust type that a column can have.
pub trait Column: Sized {
    /// Its type in the schema.
    const TYPE: ColumnType;
    /// Whether it may be NULL.
    const NULLABLE: bool = false;
    /// What reading it gives.
    type Ref<'t>: Copy;
    /// What setting it takes.
    type Set<'a>: Copy;

    /// Loads a value.
    ///
    /// # Safety
    /// `block` is the block of memory of a row that `place` speaks of, readable for `'t`, where a value of this type lies.
    unsafe fn load<'t>(block: *const u8, place: &Place) -> Self::Ref<'t>;

    /// Stores a value.
    ///
    /// # Safety
    /// `block` is the block of memory of a row that `place` speaks of, private to the caller.
    ///
    /// # Errors
    /// Long text only: at the memory limit.
    unsafe fn store(
        value: Self::Set<'_>,
        block: *mut u8,
        place: &Place,
        tails: &mut dyn TailStore,
    ) -> Result<(), OutOfMemory>;

    /// A loaded value as an owned one.
    fn owned(value: Self::Ref<'_>) -> Self;

    /// An owned value as one to store.
    fn lend(&self) -> Self::Set<'_>;
}

/// A Rust type that a column of a key can have.
pub trait KeyColumn {
    /// Bytes in a key; `None` if they vary.
    const WIDTH: Option<u32>;
    /// The value's key bytes as a number, right-aligned; zero if the width varies.
    fn bits(&self) -> u128;
    /// Appends the value's key bytes.
    fn write(&self, key: &mut KeyWriter);
}

macro_rules! number {
    ($type:ty, $column:expr, $bits:ident: $unsigned:ty => $ordered:expr) => {
        impl Column for $type {
            const TYPE: ColumnType = $column;
            type Ref<'t> = $type;
            type Set<'a> = $type;

            #[inline(always)]
            unsafe fn load<'t>(block: *const u8, place: &Place) -> Self::Ref<'t> {
                // SAFETY: the caller's promise; unaligned by the layout.
                unsafe { block.add(place.offset as usize).cast::<$type>().read_unaligned() }
            }

            #[inline(always)]
            unsafe fn store(
                value: Self::Set<'_>,
                block: *mut u8,
                place: &Place,
                _: &mut dyn TailStore,
            ) -> Result<(), OutOfMemory> {
                // SAFETY: the caller's promise; unaligned by the layout.
                unsafe { block.add(place.offset as usize).cast::<$type>().write_unaligned(value) };
                Ok(())
            }

            #[inline(always)]
            fn owned(value: $type) -> $type {
                value
            }

            #[inline(always)]
            fn lend(&self) -> $type {
                *self
            }
        }

        impl KeyColumn for $type {
            const WIDTH: Option<u32> = Some(size_of::<$type>() as u32);

            #[inline(always)]
            fn bits(&self) -> u128 {
                let $bits = *self;
                let ordered: $unsigned = $ordered;
                ordered as u128
            }

            #[inline]
            fn write(&self, key: &mut KeyWriter) {
                key.number(self.bits(), size_of::<$type>() as u32);
            }
        }
    };
}

number!(u8, ColumnType::U8, v: u8 => v);
number!(u16, ColumnType::U16, v: u16 => v);
number!(u32, ColumnType::U32, v: u32 => v);
number!(u64, ColumnType::U64, v: u64 => v);
number!(i8, ColumnType::I8, v: u8 => v as u8 ^ 1 << 7);
number!(i16, ColumnType::I16, v: u16 => v as u16 ^ 1 << 15);
number!(i32, ColumnType::I32, v: u32 => v as u32 ^ 1 << 31);
number!(i64, ColumnType::I64, v: u64 => v as u64 ^ 1 << 63);
number!(f64, ColumnType::F64, v: u64 => {
    let bits = v.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
});

/// Types that are stored as another.
macro_rules! wrapped {
    ([$($generics:tt)*] $type:ty, $column:expr, $inner:ty, |$to:ident| $wrap:expr, |$from:ident| $unwrap:expr) => {
        impl $($generics)* Column for $type {
            const TYPE: ColumnType = $column;
            type Ref<'t> = $type;
            type Set<'a> = $type;

            #[inline(always)]
            unsafe fn load<'t>(block: *const u8, place: &Place) -> Self::Ref<'t> {
                // SAFETY: the caller's promise.
                let $to = unsafe { <$inner as Column>::load(block, place) };
                $wrap
            }

            #[inline(always)]
            unsafe fn store(
                $from: Self::Set<'_>,
                block: *mut u8,
                place: &Place,
                tails: &mut dyn TailStore,
            ) -> Result<(), OutOfMemory> {
                // SAFETY: the caller's promise.
                unsafe { <$inner as Column>::store($unwrap, block, place, tails) }
            }

            #[inline(always)]
            fn owned(value: $type) -> $type {
                value
            }

            #[inline(always)]
            fn lend(&self) -> $type {
                *self
            }
        }

        impl $($generics)* KeyColumn for $type {
            const WIDTH: Option<u32> = <$inner as KeyColumn>::WIDTH;

            #[inline(always)]
            fn bits(&self) -> u128 {
                let $from = *self;
                KeyColumn::bits(&$unwrap)
            }

            #[inline]
            fn write(&self, key: &mut KeyWriter) {
                let $from = *self;
                KeyColumn::write(&$unwrap, key);
            }
        }
    };
}

wrapped!([] bool, ColumnType::Bool, u8, |v| v != 0, |v| u8::from(v));
wrapped!([] Timestamp, ColumnType::Timestamp, i64, |v| Timestamp::from_microseconds(v), |v| v.microseconds());
wrapped!([<const S: u32>] Decimal<S>, ColumnType::Decimal { scale: S as u8 }, i64,
    |v| Decimal::from_units(v), |v| v.units());

/// The bytes of a value with a length before it.
///
/// # Safety
/// As [`Column::load`].
#[inline(always)]
unsafe fn load_bytes<'t>(block: *const u8, place: &Place, max: usize) -> &'t [u8] {
    // SAFETY: the caller's promise: a length within `max` and that many bytes.
    unsafe {
        let at = block.add(place.offset as usize);
        std::slice::from_raw_parts(at.add(length_bytes(max)), length_of(at, max).min(max))
    }
}

/// # Safety
/// As [`Column::store`]; `bytes` is at most `max` long.
#[inline(always)]
unsafe fn store_bytes(bytes: &[u8], block: *mut u8, place: &Place, max: usize) {
    debug_assert!(bytes.len() <= max);
    // SAFETY: the caller's promise.
    unsafe {
        let at = block.add(place.offset as usize);
        let width = length_bytes(max);
        at.copy_from_nonoverlapping((bytes.len() as u16).to_le_bytes().as_ptr(), width);
        at.add(width).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
}

impl<const N: usize> Column for Text<N> {
    const TYPE: ColumnType = ColumnType::Text { max: N as u16 };
    type Ref<'t> = &'t str;
    type Set<'a> = &'a Text<N>;

    #[inline]
    unsafe fn load<'t>(block: *const u8, place: &Place) -> Self::Ref<'t> {
        // SAFETY: the caller's promise; only whole texts are ever stored.
        unsafe { std::str::from_utf8_unchecked(load_bytes(block, place, N)) }
    }

    #[inline]
    unsafe fn store(
        value: Self::Set<'_>,
        block: *mut u8,
        place: &Place,
        _: &mut dyn TailStore,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: the caller's promise; a text is at most N bytes.
        unsafe { store_bytes(value.as_bytes(), block, place, N) };
        Ok(())
    }

    fn owned(value: &str) -> Text<N> {
        Text::new(value).unwrap_or_default()
    }

    #[inline]
    fn lend(&self) -> &Text<N> {
        self
    }
}

impl<const N: usize> Column for Bytes<N> {
    const TYPE: ColumnType = ColumnType::Bytes { max: N as u16 };
    type Ref<'t> = &'t [u8];
    type Set<'a> = &'a Bytes<N>;

    #[inline]
    unsafe fn load<'t>(block: *const u8, place: &Place) -> Self::Ref<'t> {
        // SAFETY: the caller's promise.
        unsafe { load_bytes(block, place, N) }
    }

    #[inline]
    unsafe fn store(
        value: Self::Set<'_>,
        block: *mut u8,
        place: &Place,
        _: &mut dyn TailStore,
    ) -> Result<(), OutOfMemory> {
        // SAFETY: the caller's promise; at most N bytes.
        unsafe { store_bytes(value.as_slice(), block, place, N) };
        Ok(())
    }

    fn owned(value: &[u8]) -> Bytes<N> {
        Bytes::new(value).unwrap_or_default()
    }

    #[inline]
    fn lend(&self) -> &Bytes<N> {
        self
    }
}

impl Column for String {
    const TYPE: ColumnType = ColumnType::LongText;
    type Ref<'t> = &'t str;
    type Set<'a> = &'a str;

    #[inline]
    unsafe fn load<'t>(block: *const u8, place: &Place) -> Self::Ref<'t> {
        // SAFETY: the caller's promise: the address of a tail block that holds a whole text.
        unsafe { std::str::from_utf8_unchecked(tail(u64::load(block, place))) }
    }

    #[inline]
    unsafe fn store(
        value: Self::Set<'_>,
        block: *mut u8,
        place: &Place,
        tails: &mut dyn TailStore,
    ) -> Result<(), OutOfMemory> {
        let address = tails.store(value.as_bytes())?;
        // SAFETY: the caller's promise.
        unsafe { u64::store(address, block, place, tails) }
    }

    fn owned(value: &str) -> String {
        value.to_owned()
    }

    fn lend(&self) -> &str {
        self
    }
}

impl<C: Column> Column for Option<C> {
    const TYPE: ColumnType = C::TYPE;
    const NULLABLE: bool = true;
    type Ref<'t> = Option<C::Ref<'t>>;
    type Set<'a> = Option<C::Set<'a>>;

    #[inline]
    unsafe fn load<'t>(block: *const u8, place: &Place) -> Self::Ref<'t> {
        let (byte, mask) = place.null?;
        // SAFETY: the caller's promise.
        unsafe { (block.add(byte as usize).read() & mask == 0).then(|| C::load(block, place)) }
    }

    #[inline]
    unsafe fn store(
        value: Self::Set<'_>,
        block: *mut u8,
        place: &Place,
        tails: &mut dyn TailStore,
    ) -> Result<(), OutOfMemory> {
        let Some((byte, mask)) = place.null else { return Ok(()) };
        // SAFETY: the caller's promise.
        unsafe {
            let nulls = block.add(byte as usize);
            match value {
                Some(value) => {
                    C::store(value, block, place, tails)?;
                    nulls.write(nulls.read() & !mask);
                }
                None => {
                    // The value's bytes say nothing: zeroed, so that equal rows are equal bytes and no tail is referred to.
                    block.add(place.offset as usize).write_bytes(0, place.bytes as usize);
                    nulls.write(nulls.read() | mask);
                }
            }
        }
        Ok(())
    }

    fn owned(value: Option<C::Ref<'_>>) -> Option<C> {
        value.map(C::owned)
    }

    fn lend(&self) -> Option<C::Set<'_>> {
        self.as_ref().map(C::lend)
    }
}

macro_rules! varying {
    ([$($generics:tt)*] $type:ty, $bytes:ident) => {
        impl $($generics)* KeyColumn for $type {
            const WIDTH: Option<u32> = None;

            fn bits(&self) -> u128 {
                0
            }

            #[inline]
            fn write(&self, key: &mut KeyWriter) {
                key.escaped(self.$bytes());
            }
        }
    };
}

varying!([<const N: usize>] Text<N>, as_bytes);
varying!([<const N: usize>] Bytes<N>, as_slice);
varying!([] String, as_bytes);

impl<C: KeyColumn> KeyColumn for Option<C> {
    const WIDTH: Option<u32> = match C::WIDTH {
        Some(width) => Some(width + 1),
        None => None,
    };

    fn bits(&self) -> u128 {
        let width = C::WIDTH.unwrap_or(0);
        match self {
            Some(value) => value.bits(),
            None => 1 << (8 * width),
        }
    }

    fn write(&self, key: &mut KeyWriter) {
        match (self, C::WIDTH) {
            (_, Some(width)) => key.number(self.bits(), width + 1),
            (Some(value), None) => {
                key.number(0, 1);
                value.write(key);
            }
            (None, None) => key.number(1, 1),
        }
    }
}

impl<C: KeyColumn> KeyColumn for Reverse<C> {
    const WIDTH: Option<u32> = C::WIDTH;

    fn bits(&self) -> u128 {
        let width = C::WIDTH.unwrap_or(0);
        !self.0.bits() & ((1 << (8 * width)) - 1)
    }

    fn write(&self, key: &mut KeyWriter) {
        let from = key.len();
        self.0.write(key);
        key.invert(from);
    }
}
