//! Rust types of key columns: the bytes whose order is the order of the values.
//!
//! ```text
//! unsigned, bool      big-endian in their own width
//! signed, decimal,    likewise, with the sign bit flipped
//!   timestamp
//! f64                 likewise by value, as PostgreSQL orders them: -0 equals 0, and every NaN is one value above inf
//! text, bytes         0x00 as 0x01 0x01, 0x01 as 0x01 0x02, any other byte as itself; then 0x00 as the end
//! Option              0x00 and the value, or 0x01 and, where the width is fixed, zeros: NULL comes last
//! Reverse             every byte inverted, so NULL comes first
//! ```
//! Text keeps its order because the end is below every byte that can follow, and the escapes keep 0x00 below
//! 0x01 below 0x02. No key is a prefix of another, since 0x00 occurs at the end only, so columns can follow
//! one another. Text without control characters takes one byte more than its length; padding to the maximum
//! would take less only for full columns.

use std::cmp::Reverse;

use crate::{Bytes, Decimal, KeyWriter, Text, Timestamp};

/// A Rust type that a column of a key can have. Descending columns have the type [`Reverse`]. So a key's order in Rust
/// is its order in the index, with two exceptions. NULL comes last where Rust's `None` comes first, and floats are
/// totally ordered. -0.0 equals 0.0, and all NaNs equal each other and are greater than all numbers. The row keeps the
/// float as it was written.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the type of a key column",
    label = "not a key column's type",
    note = "write a column type, such as u64, i32, Decimal<2>, Timestamp, Text<16> or an Option of one; Reverse of \
        one for descending order"
)]
pub trait KeyColumn {
    /// Bytes in a key, at most 9; `None` if they vary.
    const WIDTH: Option<u32>;
    /// The value's key bytes as a number, right-aligned; zero if the width varies.
    fn bits(&self) -> u128;
    /// Appends the value's key bytes.
    fn write(&self, key: &mut KeyWriter);
}

/// The bits of a float, ordered as unsigned integers are. Floats that are equal keys have the same bits.
#[inline(always)]
pub(crate) const fn float_bits(bits: u64) -> u64 {
    const INFINITY: u64 = f64::INFINITY.to_bits();
    const NAN: u64 = 0x7FF8 << 48;
    let bits = match bits & !(1 << 63) {
        0 => 0,
        magnitude if magnitude > INFINITY => NAN,
        _ => bits,
    };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// A float with the ordered bits that [`float_bits`] gives.
pub(crate) const fn float_of_bits(ordered: u64) -> u64 {
    if ordered >> 63 == 1 { ordered ^ 1 << 63 } else { !ordered }
}

macro_rules! fixed {
    ($([$($generics:tt)*] $type:ty, |$value:ident| $ordered:expr;)+) => {$(
        impl $($generics)* KeyColumn for $type {
            const WIDTH: Option<u32> = Some(size_of::<$type>() as u32);

            #[inline(always)]
            fn bits(&self) -> u128 {
                let $value = *self;
                $ordered as u128
            }

            #[inline(always)]
            fn write(&self, key: &mut KeyWriter) {
                key.number(self.bits() as u64, size_of::<$type>() as u32);
            }
        }
    )+};
}

fixed! {
    [] bool, |v| v as u8;
    [] u8, |v| v;
    [] u16, |v| v;
    [] u32, |v| v;
    [] u64, |v| v;
    [] i8, |v| v as u8 ^ 1 << 7;
    [] i16, |v| v as u16 ^ 1 << 15;
    [] i32, |v| v as u32 ^ 1 << 31;
    [] i64, |v| v as u64 ^ 1 << 63;
    [] f64, |v| float_bits(v.to_bits());
    [] Timestamp, |v| v.microseconds() as u64 ^ 1 << 63;
    [<const S: u32>] Decimal<S>, |v| v.units() as u64 ^ 1 << 63;
}

macro_rules! varying {
    ($([$($generics:tt)*] $type:ty, $bytes:ident;)+) => {$(
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
    )+};
}

varying! {
    [<const N: usize>] Text<N>, as_bytes;
    [<const N: usize>] Bytes<N>, as_slice;
    [] String, as_bytes;
}

impl<C: KeyColumn> KeyColumn for Option<C> {
    const WIDTH: Option<u32> = match C::WIDTH {
        Some(width) => Some(width + 1),
        None => None,
    };

    #[inline]
    fn bits(&self) -> u128 {
        match self {
            Some(value) => value.bits(),
            None => 1 << (8 * C::WIDTH.unwrap_or(0)),
        }
    }

    #[inline]
    fn write(&self, key: &mut KeyWriter) {
        match self {
            Some(value) => {
                key.number(0, 1);
                value.write(key);
            }
            None => {
                key.number(1, 1);
                key.number(0, C::WIDTH.unwrap_or(0));
            }
        }
    }
}

impl<C: KeyColumn> KeyColumn for Reverse<C> {
    const WIDTH: Option<u32> = C::WIDTH;

    #[inline(always)]
    fn bits(&self) -> u128 {
        let width = C::WIDTH.unwrap_or(0);
        !self.0.bits() & ((1 << (8 * width)) - 1)
    }

    #[inline]
    fn write(&self, key: &mut KeyWriter) {
        let from = key.len();
        self.0.write(key);
        key.invert(from);
    }
}
