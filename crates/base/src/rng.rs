//! The platform interface to randomness: one small seeded generator, and one source of entropy for seeds.

/// xoshiro256++ (Blackman and Vigna, public domain reference), seeded through SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// The generator for `seed`.
    pub fn from_seed(seed: u64) -> Rng {
        let mut state = seed;
        Rng { s: std::array::from_fn(|_| split_mix(&mut state)) }
    }

    /// The next 64 uniform bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..bound` (multiply-shift; the bias is below 2^-32 for bounds below 2^32).
    ///
    /// # Panics
    /// If `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a range needs at least one value");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `low..=high`.
    #[inline]
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// True with probability `percent` / 100.
    #[inline]
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Uniform in `[0, 1)`, 53 bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Splits off a generator that is independent of later draws from this one.
    pub fn fork(&mut self) -> Rng {
        Rng::from_seed(self.next_u64())
    }

    /// Shuffles in place (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// An unpredictable seed, for runs without a given one. Print it before using it.
pub fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The seed in `SERIATIM_SEED`, which repeats a run of random tests.
pub fn given_seed() -> Option<u64> {
    std::env::var("SERIATIM_SEED").ok().and_then(|text| text.parse().ok())
}

/// The seed of a random test: the given one, or an unpredictable one. Prints it with the name of the test
/// before returning it.
pub fn seed(test: &str) -> u64 {
    let seed = given_seed().unwrap_or_else(entropy);
    eprintln!("{test}: SERIATIM_SEED={seed}");
    seed
}

/// Whether tests run in all their settings, as often as fits into a night: `SERIATIM_TIER=nightly`, which
/// `cargo xtask nightly` sets. Otherwise they run in fewer settings and take minutes.
pub fn is_nightly() -> bool {
    std::env::var("SERIATIM_TIER").is_ok_and(|tier| tier == "nightly")
}

/// The number of tries of a random test: for each change, or in a nightly run ([`is_nightly`]).
pub fn tries(with_each_change: u64, nightly: u64) -> u64 {
    if is_nightly() { nightly } else { with_each_change }
}

/// The cases of a test: with each change every `nth`, which ones depends on `turn`; in a nightly run ([`is_nightly`])
/// all.
pub fn sample<T>(cases: impl IntoIterator<Item = T>, nth: usize, turn: u64) -> impl Iterator<Item = T> {
    let (nth, first) = if is_nightly() { (1, 0) } else { (nth, (turn % nth as u64) as usize) };
    cases.into_iter().skip(first).step_by(nth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_all_turns_are_all_cases() {
        let mut sampled: Vec<u64> = (0..3).flat_map(|turn| sample(0..10, 3, turn)).collect();
        sampled.sort_unstable();
        sampled.dedup();
        assert_eq!(sampled, (0..10).collect::<Vec<_>>());
        assert_eq!(sample(0..10, 3, 4).count(), if is_nightly() { 10 } else { 3 });
    }

    #[test]
    fn same_seed_same_draws() {
        let (mut a, mut b) = (Rng::from_seed(7), Rng::from_seed(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
        assert_ne!(Rng::from_seed(7).next_u64(), Rng::from_seed(8).next_u64());
    }

    #[test]
    fn below_reaches_every_value() {
        let mut rng = Rng::from_seed(1);
        let mut seen = [false; 10];
        (0..1000).for_each(|_| seen[rng.below(10) as usize] = true);
        assert!(seen.iter().all(|&s| s));
        assert!((0..1000).all(|_| (3..=5).contains(&rng.range(3, 5))));
    }
}
