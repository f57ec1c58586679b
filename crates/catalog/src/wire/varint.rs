//! Integers in as few bytes as they need (LEB128). A byte has seven bits, low bits first, and the top bit is set on all
//! bytes but the last.
//!
//! One number has one encoding: a last byte of zero after others, or bits beyond the 64th, are refused.

use super::Malformed;

/// Most bytes of a number.
pub const VARINT_BYTES_MAX: usize = 10;

/// Appends a number.
#[inline]
pub fn write_varint(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    let (mut bytes, mut count, mut rest) = ([0; VARINT_BYTES_MAX], 0, value);
    while rest >= 0x80 {
        bytes[count] = rest as u8 | 0x80;
        rest >>= 7;
        count += 1;
    }
    bytes[count] = rest as u8;
    // All of them at once and then shortened: a copy of known length is a few instructions, one of unknown
    // length is a call.
    let end = out.len() + count + 1;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

/// How many bytes [`write_varint`] appends.
#[inline]
pub(super) const fn varint_bytes(value: u64) -> usize {
    ((value | 1).ilog2() / 7 + 1) as usize
}

/// Takes a number off the front.
///
/// # Errors
/// If the bytes end within it, or it is not the encoding of a number of 64 bits.
#[inline]
pub fn read_varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0u64;
    for at in 0..VARINT_BYTES_MAX {
        let Some(&byte) = bytes.get(at) else { return Err(Malformed::CutShort) };
        let bits = u64::from(byte & 0x7F);
        if at == VARINT_BYTES_MAX - 1 && bits > 1 {
            return Err(Malformed::Varint);
        }
        value |= bits << (7 * at);
        if byte & 0x80 == 0 {
            if byte == 0 && at > 0 {
                return Err(Malformed::Varint);
            }
            *bytes = &bytes[at + 1..];
            return Ok(value);
        }
    }
    Err(Malformed::Varint)
}

/// A signed number as an unsigned one that is small if it is near zero: 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_in_the_bytes_they_need() {
        for bits in 0..64 {
            for value in [(1u64 << bits) - 1, 1 << bits, u64::MAX >> bits] {
                let mut out = vec![];
                write_varint(&mut out, value);
                assert_eq!(out.len(), (64 - (value | 1).leading_zeros() as usize).div_ceil(7));
                assert_eq!(out.len(), varint_bytes(value));
                let mut bytes = &out[..];
                assert_eq!((read_varint(&mut bytes), bytes), (Ok(value), &[][..]));
                for cut in 0..out.len() {
                    assert_eq!(read_varint(&mut &out[..cut]), Err(Malformed::CutShort));
                }
                assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
            }
        }
        assert_eq!([0, -1, 1, -2, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX]);
    }

    #[test]
    fn a_number_has_one_encoding() {
        for wrong in [&[0x80, 0][..], &[0xFF, 0x80, 0], &[0xFF; 11], &[0xFF, 255, 255, 255, 255, 255, 255, 255, 255, 2]]
        {
            assert_eq!(read_varint(&mut &*wrong), Err(Malformed::Varint), "{wrong:?}");
        }
    }
}
