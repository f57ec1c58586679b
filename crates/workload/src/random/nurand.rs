//! NURand: non-uniform numbers of TPC-C (clause 2.1.6) and, with the constant zero, of TATP.

use seriatim::Rng;

/// NURand(A, x, y) = (((random(0, A) | random(x, y)) + C) mod (y - x + 1)) + x. A + 1 is a power of two.
#[inline]
pub(crate) fn nurand(rng: &mut Rng, a: u32, c: u32, x: u32, y: u32) -> u32 {
    // One draw serves both: A + 1 is a power of two, so the low bits are uniform, and the high half scales to x..=y.
    let bits = rng.next_u64();
    let mask = bits as u32 & a;
    let uniform = x + (((bits >> 32) * u64::from(y - x + 1)) >> 32) as u32;
    (((mask | uniform) + c) % (y - x + 1)) + x
}
