//! The specification's own randomness: NURand (clause 2.1.6), its constants (2.1.6.1), last names (4.3.2.3).

use super::scale::LAST_NAMES;
use crate::random::nurand;
use seriatim::Rng;
use seriatim::Text;

/// A of NURand for last names.
const A_LAST: u32 = 255;
/// A of NURand for customer numbers.
const A_CUSTOMER: u32 = 1023;
/// A of NURand for item numbers.
const A_ITEM: u32 = 8191;

/// The constants C of NURand, one per field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    last: u32,
    customer: u32,
    item: u32,
}

impl Constants {
    /// Constants for loading.
    pub fn for_load(rng: &mut Rng) -> Constants {
        let mut constant = |a: u32| rng.range(0, u64::from(a)) as u32;
        Constants { last: constant(A_LAST), customer: constant(A_CUSTOMER), item: constant(A_ITEM) }
    }

    /// Constants for running against what was loaded with `load`: C for last names must differ by 65 to 119,
    /// and not by 96 or 112 (clause 2.1.6.1).
    pub fn for_run(rng: &mut Rng, load: &Constants) -> Constants {
        loop {
            let run = Constants::for_load(rng);
            let delta = run.last.abs_diff(load.last);
            if (65..=119).contains(&delta) && delta != 96 && delta != 112 {
                return run;
            }
        }
    }

    /// A customer number in `1..=customers`.
    #[inline]
    pub fn customer(&self, rng: &mut Rng, customers: u32) -> u32 {
        nurand(rng, A_CUSTOMER, self.customer, 1, customers)
    }

    /// An item number in `1..=items`.
    #[inline]
    pub fn item(&self, rng: &mut Rng, items: u32) -> u32 {
        nurand(rng, A_ITEM, self.item, 1, items)
    }

    /// The number of a last name, below `names`.
    #[inline]
    pub fn last_name(&self, rng: &mut Rng, names: u32) -> u32 {
        nurand(rng, A_LAST, self.last, 0, names - 1)
    }
}

const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The last name of a number below 1000: a syllable for each digit.
pub fn last_name(number: u32) -> Text<16> {
    debug_assert!(number < LAST_NAMES);
    let (mut bytes, mut length) = ([0u8; 16], 0);
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize].as_bytes();
        bytes[length..length + syllable.len()].copy_from_slice(syllable);
        length += syllable.len();
    }
    let name = std::str::from_utf8(&bytes[..length]).expect("syllables are ASCII");
    Text::new(name).expect("three syllables are at most 15 characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nurand_stays_in_range_reaches_everything_and_is_skewed_as_or_skews() {
        let constants = Constants::for_load(&mut Rng::from_seed(1));
        let mut rng = Rng::from_seed(2);
        let mut seen = vec![0u32; 3001];
        for _ in 0..600_000 {
            seen[constants.customer(&mut rng, 3000) as usize] += 1;
        }
        assert_eq!(seen[0], 0);
        assert!(seen[1..].iter().filter(|&&n| n > 0).count() > 2900);
        let mut counts = seen[1..].to_vec();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The exact law, by enumerating both draws of the definition.
        let mut law = vec![0u64; 3000];
        for a in 0..=1023u32 {
            for b in 1..=3000u32 {
                law[(((a | b) + constants.customer) % 3000) as usize] += 1;
            }
        }
        for (value, &weight) in law.iter().enumerate() {
            let expected = weight as f64 / (1024.0 * 3000.0) * 600_000.0;
            let got = f64::from(seen[value + 1]);
            assert!((got - expected).abs() < 6.0 * expected.sqrt() + 6.0, "{}: {got} against {expected}", value + 1);
        }
        let tenth: u32 = counts[..300].iter().sum();
        assert!(tenth > 600_000 / 4, "the hottest tenth is far above its even share: {tenth}");
    }

    #[test]
    fn constants_of_load_and_run_keep_the_distance_the_specification_asks_for() {
        let mut rng = Rng::from_seed(3);
        let mut deltas = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let load = Constants::for_load(&mut rng);
            let run = Constants::for_run(&mut rng, &load);
            assert!(run.last <= A_LAST && run.customer <= A_CUSTOMER && run.item <= A_ITEM);
            deltas.insert(run.last.abs_diff(load.last));
        }
        let allowed: std::collections::BTreeSet<u32> = (65..=119).filter(|d| ![96, 112].contains(d)).collect();
        assert_eq!(deltas, allowed);
    }

    #[test]
    fn last_names_are_those_of_the_specification() {
        assert_eq!(&*last_name(0), "BARBARBAR");
        assert_eq!(&*last_name(371), "PRICALLYOUGHT");
        assert_eq!(&*last_name(999), "EINGEINGEING");
        assert_eq!((0..1000).map(|n| last_name(n).to_string()).collect::<std::collections::HashSet<_>>().len(), 1000);
    }
}
