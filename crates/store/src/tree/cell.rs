//! Keys in nodes: one or two atomic words that compare as one integer.

use super::load::Load;
use seriatim_base::word::AtomicU64;
use seriatim_htm::Access;
use std::fmt::Debug;

/// The cell of a key in a node. A load of two words may be torn. The node's version word has then changed, and the
/// reader tries again.
pub(crate) trait Cell: Send + Sync + 'static {
    /// The integer that the cell holds.
    type Value: Copy + Ord + Debug;
    /// The smallest value.
    const MIN: Self::Value;
    /// The largest value.
    const MAX: Self::Value;

    fn load<L: Load>(&self, load: &mut L) -> Self::Value;
    fn store<A: Access>(&self, access: &mut A, value: Self::Value);
    /// Whether `a` is smaller, computed without a branch.
    fn less(a: Self::Value, b: Self::Value) -> bool;
    /// The value above `below`, and at most `above`, that ends with the most zero bits. `below` is less than `above`.
    fn roundest(below: Self::Value, above: Self::Value) -> Self::Value;
    /// The number of zero bits at the end of the value.
    fn zeros(value: Self::Value) -> u32;
    /// The next smaller value.
    fn before(value: Self::Value) -> Option<Self::Value>;
    /// The next larger value.
    fn after(value: Self::Value) -> Option<Self::Value>;
}

impl Cell for AtomicU64 {
    type Value = u64;
    const MIN: u64 = 0;
    const MAX: u64 = u64::MAX;

    #[inline(always)]
    fn load<L: Load>(&self, load: &mut L) -> u64 {
        load.load(self)
    }

    #[inline(always)]
    fn store<A: Access>(&self, access: &mut A, value: u64) {
        access.store(self, value);
    }

    #[inline(always)]
    fn less(a: u64, b: u64) -> bool {
        a < b
    }

    #[inline(always)]
    fn roundest(below: u64, above: u64) -> u64 {
        // The highest bit in which they differ is one of `above`: no value between has more zeros behind it.
        above & (u64::MAX << (below ^ above).ilog2())
    }

    #[inline(always)]
    fn zeros(value: u64) -> u32 {
        value.trailing_zeros()
    }

    #[inline(always)]
    fn before(value: u64) -> Option<u64> {
        value.checked_sub(1)
    }

    #[inline(always)]
    fn after(value: u64) -> Option<u64> {
        value.checked_add(1)
    }
}

/// Two words as one integer, the high one first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Pair([AtomicU64; 2]);

impl Cell for Pair {
    type Value = u128;
    const MIN: u128 = 0;
    const MAX: u128 = u128::MAX;

    #[inline(always)]
    fn load<L: Load>(&self, load: &mut L) -> u128 {
        u128::from(load.load(&self.0[0])) << 64 | u128::from(load.load(&self.0[1]))
    }

    #[inline(always)]
    fn store<A: Access>(&self, access: &mut A, value: u128) {
        access.store(&self.0[0], (value >> 64) as u64);
        access.store(&self.0[1], value as u64);
    }

    #[inline(always)]
    fn less(a: u128, b: u128) -> bool {
        // By halves, because a comparison of the whole is compiled to a jump even where the search requests
        // none.
        let (high, low) = ((a >> 64) as u64, a as u64);
        let (high_b, low_b) = ((b >> 64) as u64, b as u64);
        (high < high_b) | ((high == high_b) & (low < low_b))
    }

    #[inline(always)]
    fn roundest(below: u128, above: u128) -> u128 {
        // The highest bit in which they differ is one of `above`: no value between has more zeros behind it.
        above & (u128::MAX << (below ^ above).ilog2())
    }

    #[inline(always)]
    fn zeros(value: u128) -> u32 {
        value.trailing_zeros()
    }

    #[inline(always)]
    fn before(value: u128) -> Option<u128> {
        value.checked_sub(1)
    }

    #[inline(always)]
    fn after(value: u128) -> Option<u128> {
        value.checked_add(1)
    }
}

/// The place of a separator's out-of-line address in an interior node: a word, or nothing where keys are integers.
pub(crate) trait OutOfLineCell: Send + Sync + 'static {
    fn follow<L: Load>(&self, load: &mut L) -> u64;
    fn store<A: Access>(&self, access: &mut A, value: u64);
}

impl OutOfLineCell for () {
    #[inline(always)]
    fn follow<L: Load>(&self, _load: &mut L) -> u64 {
        0
    }

    #[inline(always)]
    fn store<A: Access>(&self, _access: &mut A, value: u64) {
        debug_assert_eq!(value, 0, "integer separators have no out-of-line values");
    }
}

impl OutOfLineCell for AtomicU64 {
    #[inline(always)]
    fn follow<L: Load>(&self, load: &mut L) -> u64 {
        load.follow(self)
    }

    #[inline(always)]
    fn store<A: Access>(&self, access: &mut A, value: u64) {
        access.store(self, value);
    }
}
