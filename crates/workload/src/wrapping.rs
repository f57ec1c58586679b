//! Sums that wrap: arithmetic of procedures is checked, and some workloads add numbers only so that they are looked at.

use seriatim::pure;

/// The sum modulo 2^64.
#[pure(total)]
#[inline]
pub(crate) fn wrapping_sum(a: u64, b: u64) -> u64 {
    a.wrapping_add(b)
}
