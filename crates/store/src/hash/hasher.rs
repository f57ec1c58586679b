//! Hash values of keys, and the uses of their bits.
//!
//! ```text
//! 63           32 31        15 14         0
//! |    spread    |   rest     |    tag    |
//!                |   levels: 25 bits   |7|
//! ```
//! *spread* selects one of the table's first buckets. One *level* bit is used up each time the table doubles.
//! The *tag* is in a slot beside the record's address so that a lookup follows (almost) no wrong record.
//! Levels and tag share 8 bits: the first 8 doublings can split buckets without touching a record, and each
//! costs the tag one bit.
//!
//! The functions fold a 128-bit product onto itself (wyhash, Wang Yi, public domain; the constants are its
//! secrets). Twice for words: after one fold, composite keys on a grid overflow up to 2.4 times as many
//! buckets as random ones would. They are fixed: hash tables are not for keys that an adversary chooses.

use crate::record::{Bytes, BytesProbe, Kind, Word8, Word16};

const SECRET: [u64; 4] = [0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB, 0x8EBC_6AF0_9C88_C6E3, 0x5899_65CC_7537_4CC3];

#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// A key kind that can be hashed.
pub(crate) trait Hashed: Kind {
    /// The hash value of a key; equal keys have equal ones.
    fn hash(probe: Self::Probe<'_>) -> HashValue;
}

impl Hashed for Word8 {
    #[inline(always)]
    fn hash(probe: u64) -> HashValue {
        HashValue(fold(fold(probe, SECRET[1]), SECRET[3]))
    }
}

impl Hashed for Word16 {
    #[inline(always)]
    fn hash(probe: u128) -> HashValue {
        let low = fold(probe as u64 ^ SECRET[0], SECRET[1]);
        HashValue(fold(low ^ (probe >> 64) as u64 ^ SECRET[2], SECRET[3]))
    }
}

impl Hashed for Bytes {
    #[inline]
    fn hash(probe: BytesProbe<'_>) -> HashValue {
        let words = probe.bytes.chunks_exact(8);
        let (last, length) = (words.remainder(), probe.bytes.len() as u64);
        let seed = length ^ SECRET[2];
        let state = words.fold(seed, |state, word| match word.first_chunk::<8>() {
            Some(word) => fold(state ^ u64::from_le_bytes(*word), SECRET[1]),
            None => state,
        });
        let last = last.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        HashValue(fold(fold(state ^ last, SECRET[0]) ^ SECRET[2], SECRET[3]))
    }
}

/// The hash value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashValue(pub(crate) u64);

impl HashValue {
    /// Bits of a tag.
    const TAG_BITS: u32 = 15;
    const LEVELS_SHIFT: u32 = 7;
    /// Level bits that are tag bits too.
    pub(super) const TAG_LEVELS: u32 = Self::TAG_BITS - Self::LEVELS_SHIFT;
    /// The number of level bits. A table doubles at most as often.
    pub(super) const LEVELS: u32 = 32 - Self::LEVELS_SHIFT;
    /// One key in this many is counted.
    pub(super) const SAMPLING: u64 = 16;

    /// One of `base` (below 2^32) first buckets (Lemire, "Fast random integer generation in an interval", 2019, §4).
    #[inline(always)]
    pub(super) fn spread(self, base: u64) -> u64 {
        ((self.0 >> 32) * base) >> 32
    }

    /// The tag.
    #[inline(always)]
    pub(super) fn tag(self) -> u64 {
        self.0 & ((1 << Self::TAG_BITS) - 1)
    }

    /// The level bits, and others above them. The first doubling uses bit 0.
    #[inline(always)]
    pub(super) fn levels(self) -> u64 {
        self.0 >> Self::LEVELS_SHIFT
    }

    /// Whether this key belongs to the sample that is counted. It depends on the key alone, so that linking and
    /// unlinking agree.
    #[inline(always)]
    pub(super) fn is_counted(self) -> bool {
        self.0 >> 28 & (Self::SAMPLING - 1) == 0
    }
}
