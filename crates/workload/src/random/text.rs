//! Random strings of TPC-C clause 4.3.2.2: a-strings of letters and digits, n-strings of digits.

use seriatim::Rng;
use seriatim::Text;

/// 64 characters, so that six random bits choose one; two letters come twice.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789ae";

fn fill(rng: &mut Rng, bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(10) {
        let mut bits = rng.next_u64();
        for byte in chunk {
            *byte = ALPHABET[(bits & 63) as usize];
            bits >>= 6;
        }
    }
}

fn to_text<const N: usize>(bytes: &[u8]) -> Text<N> {
    let text = std::str::from_utf8(bytes).expect("these generators write ASCII");
    Text::new(text).expect("the caller asked for a length that fits its column")
}

/// A random a-string of `low..=high` characters.
///
/// # Panics
/// If `high` exceeds the column's N.
pub fn a_text<const N: usize>(rng: &mut Rng, low: usize, high: usize) -> Text<N> {
    let mut bytes = [0u8; N];
    let length = rng.range(low as u64, high as u64) as usize;
    fill(rng, &mut bytes[..length]);
    to_text(&bytes[..length])
}

/// A random a-string of `low..=high` characters on the heap, for columns of long text.
pub fn a_string(rng: &mut Rng, low: usize, high: usize) -> String {
    let mut bytes = vec![0u8; rng.range(low as u64, high as u64) as usize];
    fill(rng, &mut bytes);
    String::from_utf8(bytes).expect("the alphabet is ASCII")
}

/// A random n-string of exactly N digits.
pub fn n_text<const N: usize>(rng: &mut Rng) -> Text<N> {
    let bytes: [u8; N] = std::array::from_fn(|_| b'0' + rng.below(10) as u8);
    to_text(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_the_requested_lengths_and_characters() {
        let mut rng = Rng::from_seed(3);
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let text: Text<24> = a_text(&mut rng, 14, 24);
            assert!(text.bytes().all(|b| b.is_ascii_alphanumeric()));
            lengths.insert(text.len());
        }
        assert_eq!(lengths, (14..=24).collect());
        assert!((300..=500).contains(&a_string(&mut rng, 300, 500).len()));
        let digits: Text<16> = n_text(&mut rng);
        assert!(digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_digit()));
    }
}
