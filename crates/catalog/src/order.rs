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

use crate::KeyWriter;

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
    /// Bytes in a key; `None` if they vary.
    const WIDTH: Option<u32>;
    /// The value's key bytes as a number, right-aligned; zero if the width varies or is above 16.
    fn bits(&self) -> u128;
    /// Appends the value's key bytes.
    fn write(&self, key: &mut KeyWriter);
}

/// The bits of a float of 4 or 8 bytes, ordered as unsigned integers are. Floats that are equal keys have the same
/// bits.
#[inline(always)]
pub(crate) const fn float_bits(bits: u64, bytes: u32) -> u64 {
    let (sign, infinity, nan) = match bytes {
        4 => (1 << 31, f32::INFINITY.to_bits() as u64, 0x7FC0 << 16),
        _ => (1 << 63, f64::INFINITY.to_bits(), 0x7FF8 << 48),
    };
    let bits = match bits & (sign - 1) {
        0 => 0,
        magnitude if magnitude > infinity => nan,
        _ => bits,
    };
    if bits & sign == 0 { bits | sign } else { !bits & (sign | (sign - 1)) }
}

/// A float with the ordered bits that [`float_bits`] gives.
pub(crate) const fn float_of_bits(ordered: u64, bytes: u32) -> u64 {
    let sign = 1 << (8 * bytes - 1);
    if ordered & sign != 0 { ordered ^ sign } else { !ordered & (sign | (sign - 1)) }
}
