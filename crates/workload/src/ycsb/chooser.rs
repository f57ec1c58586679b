//! Which key comes next.

use crate::random::{Scrambled, Zipfian};
use seriatim::Rng;

/// Which keys are hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// A few, spread over the key space (YCSB's ScrambledZipfianGenerator).
    Scrambled,
    /// The first ones.
    Zipfian,
    /// None.
    Uniform,
    /// The newest (YCSB's SkewedLatestGenerator).
    Latest,
}

/// Draws keys.
#[derive(Clone, Debug)]
pub enum Chooser {
    /// [`Distribution::Scrambled`].
    Scrambled(Scrambled),
    /// [`Distribution::Zipfian`].
    Zipfian(Zipfian),
    /// [`Distribution::Uniform`].
    Uniform,
    /// [`Distribution::Latest`]: how far back from the newest key.
    Latest(Zipfian),
}

impl Chooser {
    /// A chooser over `records` keys at the start.
    ///
    /// # Panics
    /// If there is no record or theta is outside `[0, 1)`.
    pub fn new(distribution: Distribution, records: u64, theta: f64) -> Chooser {
        match distribution {
            Distribution::Scrambled => Chooser::Scrambled(Scrambled::new(theta)),
            Distribution::Zipfian => Chooser::Zipfian(Zipfian::new(records, theta)),
            Distribution::Uniform => Chooser::Uniform,
            Distribution::Latest => Chooser::Latest(Zipfian::new(records, theta)),
        }
    }

    /// A key: one of the `records` loaded, or for [`Distribution::Latest`] one of `0..end`, where inserts have come.
    #[inline]
    pub fn draw(&mut self, rng: &mut Rng, records: u64, end: u64) -> u64 {
        match self {
            Chooser::Scrambled(scrambled) => scrambled.draw(rng, records),
            Chooser::Zipfian(zipfian) => zipfian.draw(rng),
            Chooser::Uniform => rng.below(records),
            Chooser::Latest(zipfian) => {
                zipfian.grow(end);
                end - 1 - zipfian.draw(rng).min(end - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distribution_is_hot_where_it_says() {
        let mut rng = Rng::from_seed(1);
        let mut shares = |distribution| {
            let mut chooser = Chooser::new(distribution, 1000, 0.99);
            let mut seen = vec![0u32; 1100];
            (0..100_000).for_each(|_| seen[chooser.draw(&mut rng, 1000, 1100) as usize] += 1);
            seen
        };
        let zipfian = shares(Distribution::Zipfian);
        assert!(
            zipfian[0] > 11_000 && zipfian[0] > zipfian[1] && zipfian[1] > zipfian[10] && zipfian[1000..] == [0; 100]
        );
        let latest = shares(Distribution::Latest);
        assert!(latest[1099] > 11_000 && latest[1099] > latest[1098] && latest[1098] > latest[1000]);
        let uniform = shares(Distribution::Uniform);
        assert!(uniform[..1000].iter().all(|&n| (40..200).contains(&n)) && uniform[1000..] == [0; 100]);
        let scrambled = shares(Distribution::Scrambled);
        assert!(scrambled.iter().max() > Some(&3000) && scrambled[1000..] == [0; 100]);
    }
}
