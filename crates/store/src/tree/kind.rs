//! How each kind of key appears in nodes.
//!
//! A node holds a key's *short form*, an integer ordered as the keys are, up to ties. Integers are their own
//! short form, and never tie. A byte string's is its first 16 bytes, big-endian and zero padded; on a tie the
//! whole strings decide.
//!
//! A *separator* `(short, out_of_line)` divides the keys below it from those at or above it. With out-of-line value 0
//! the short form alone decides: the separator is the least key with that short form. As a byte string that is the 16
//! bytes without trailing zeros. Otherwise the out-of-line value is the separator's full byte string, in a block that
//! the interior node owns. A split needs an out-of-line value only between two keys that tie. It cuts the value after
//! the first byte in which they differ (suffix truncation, Bayer and Unterauer 1977).

use super::cell::{Cell, OutOfLineCell, Pair};
use super::position::Limit;
use crate::record::{Bytes, BytesProbe, Kind, Word8, Word16, out_of_line};
use seriatim_base::word::AtomicU64;
use std::cmp::Ordering;

/// A kind of key as nodes see it.
pub(crate) trait NodeKind: Kind {
    /// Where nodes keep short forms.
    type Cell: Cell;
    /// Where interior nodes keep addresses of separators' out-of-line values.
    type OutOfLine: OutOfLineCell;
    /// Whether short forms never tie.
    const EXACT: bool;

    /// The short form of a key.
    fn short(probe: Self::Probe<'_>) -> Short<Self>;

    /// The bytes of a key whose short form may tie.
    fn bytes<'k>(probe: Self::Probe<'k>) -> &'k [u8];

    /// Compares the separator `(short(probe), out_of_line)` with `probe`.
    ///
    /// # Safety
    /// `out_of_line` is 0 or names a block that is allocated during the call (rule 2).
    unsafe fn compare_out_of_line(out_of_line: u64, probe: Self::Probe<'_>) -> Ordering;

    /// Keeps a separator in a cursor, as the least key at or above it.
    ///
    /// # Safety
    /// As [`NodeKind::compare_out_of_line`].
    unsafe fn save_separator(separator: Separator<Self>, limit: &mut Limit);

    /// The key kept.
    fn restore(limit: &Limit) -> Self::Probe<'_>;
}

/// The short form of keys of kind `K`.
pub(crate) type Short<K> = <<K as NodeKind>::Cell as Cell>::Value;

/// The separator of two children.
#[derive(Debug)]
pub(crate) struct Separator<K: NodeKind + ?Sized> {
    pub(crate) short: Short<K>,
    pub(crate) out_of_line: u64,
}

impl<K: NodeKind> Separator<K> {
    /// Compares with a key.
    ///
    /// # Safety
    /// The out-of-line value is 0 or names a block that is allocated during the call (rule 2).
    #[inline(always)]
    pub(crate) unsafe fn compare(self, probe: K::Probe<'_>) -> Ordering {
        let order = self.short.cmp(&K::short(probe));
        // SAFETY: the caller's promise.
        if K::EXACT { order } else { order.then_with(|| unsafe { K::compare_out_of_line(self.out_of_line, probe) }) }
    }
}

impl<K: NodeKind + ?Sized> Clone for Separator<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: NodeKind + ?Sized> Copy for Separator<K> {}

impl NodeKind for Word8 {
    type Cell = AtomicU64;
    type OutOfLine = ();
    const EXACT: bool = true;

    #[inline(always)]
    fn short(probe: u64) -> u64 {
        probe
    }

    fn bytes<'k>(_probe: Self::Probe<'k>) -> &'k [u8] {
        &[]
    }

    #[inline(always)]
    unsafe fn compare_out_of_line(_out_of_line: u64, _probe: u64) -> Ordering {
        Ordering::Equal
    }

    #[inline(always)]
    unsafe fn save_separator(separator: Separator<Self>, limit: &mut Limit) {
        limit.word = u128::from(separator.short);
    }

    #[inline(always)]
    fn restore(limit: &Limit) -> u64 {
        limit.word as u64
    }
}

impl NodeKind for Word16 {
    type Cell = Pair;
    type OutOfLine = ();
    const EXACT: bool = true;

    #[inline(always)]
    fn short(probe: u128) -> u128 {
        probe
    }

    fn bytes<'k>(_probe: Self::Probe<'k>) -> &'k [u8] {
        &[]
    }

    #[inline(always)]
    unsafe fn compare_out_of_line(_out_of_line: u64, _probe: u128) -> Ordering {
        Ordering::Equal
    }

    #[inline(always)]
    unsafe fn save_separator(separator: Separator<Self>, limit: &mut Limit) {
        limit.word = separator.short;
    }

    #[inline(always)]
    fn restore(limit: &Limit) -> u128 {
        limit.word
    }
}

impl NodeKind for Bytes {
    type Cell = Pair;
    type OutOfLine = AtomicU64;
    const EXACT: bool = false;

    #[inline]
    fn short(probe: BytesProbe<'_>) -> u128 {
        let rest = probe.bytes.get(8..).map_or(0, crate::record::prefix);
        u128::from(probe.prefix) << 64 | u128::from(rest)
    }

    fn bytes<'k>(probe: Self::Probe<'k>) -> &'k [u8] {
        probe.bytes
    }

    unsafe fn compare_out_of_line(out_of_line: u64, probe: BytesProbe<'_>) -> Ordering {
        match out_of_line {
            // The least key with this short form: `probe`, which has it too, is that key or above.
            0 => least_len(Self::short(probe)).cmp(&probe.bytes.len()),
            // SAFETY: the caller's promise.
            out_of_line => unsafe { out_of_line::read(out_of_line) }.cmp(probe.bytes),
        }
    }

    unsafe fn save_separator(separator: Separator<Self>, limit: &mut Limit) {
        limit.bytes.clear();
        match separator.out_of_line {
            0 => {
                let least = separator.short.to_be_bytes();
                limit.bytes.extend_from_slice(&least[..least_len(separator.short)]);
            }
            // SAFETY: the caller's promise.
            out_of_line => limit.bytes.extend_from_slice(unsafe { out_of_line::read(out_of_line) }),
        }
    }

    #[inline]
    fn restore(limit: &Limit) -> BytesProbe<'_> {
        BytesProbe::new(&limit.bytes)
    }
}

/// Bytes of the least byte string with this short form.
fn least_len(short: u128) -> usize {
    16 - (short.trailing_zeros() as usize / 8)
}
