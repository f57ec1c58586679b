//! Zipf's law: rank r of n is drawn with probability 1/(r+1)^theta / zeta(n, theta).
//!
//! Drawing: J. Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, section 3, exact for
//! the two hottest ranks and a close approximation below. zeta is summed over the first ranks and continued by the
//! Euler–Maclaurin formula, so that n may be 10^10 and may grow. Scrambled: YCSB's ScrambledZipfianGenerator.

use seriatim::Rng;

/// Ranks whose terms of zeta are summed one by one. The tail's error is below 1e-12 of the sum.
const SUMMED: u64 = 1000;

/// Draws ranks `0..n`, the hottest first.
#[derive(Clone, Debug)]
pub struct Zipfian {
    n: u64,
    theta: f64,
    /// Sum of the first min(n, SUMMED) terms, kept so that growing is cheap.
    head: f64,
    zeta: f64,
    /// The share of ranks 0 and 1 together in `zeta`.
    two: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// The distribution over `0..n`. theta 0 is uniform; YCSB's default is 0.99.
    ///
    /// # Panics
    /// If n is zero or theta outside `[0, 1)`.
    pub fn new(n: u64, theta: f64) -> Zipfian {
        assert!(n > 0, "a distribution needs at least one value");
        assert!((0.0..1.0).contains(&theta), "theta must be at least 0 and below 1");
        let mut zipfian = Zipfian {
            n: 0,
            theta,
            head: 0.0,
            zeta: 0.0,
            two: 1.0 + 0.5f64.powf(theta),
            alpha: 1.0 / (1.0 - theta),
            eta: 0.0,
        };
        zipfian.grow(n);
        zipfian
    }

    /// Values drawn from.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Never: a distribution has at least one value.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Draws from `0..n` from now on. Costs two powers for any `n`. A smaller `n` is ignored.
    pub fn grow(&mut self, n: u64) {
        if n <= self.n {
            return;
        }
        let term = |i: u64| (i as f64).powf(-self.theta);
        self.head += (self.n + 1..=n.min(SUMMED)).map(term).sum::<f64>();
        self.zeta = self.head + if n > SUMMED { tail(SUMMED as f64, n as f64, self.theta) } else { 0.0 };
        self.eta = (1.0 - (2.0 / n as f64).powf(1.0 - self.theta)) / (1.0 - self.two / self.zeta);
        self.n = n;
    }

    /// The probability of a rank, from the law itself.
    pub fn probability(&self, rank: u64) -> f64 {
        ((rank + 1) as f64).powf(-self.theta) / self.zeta
    }

    /// A rank below n.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.two {
            return 1.min(self.n - 1);
        }
        let rank = self.n as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.n - 1)
    }

    /// Distinct ranks, in the order drawn; a rank that was drawn before is drawn again.
    ///
    /// # Panics
    /// If there are fewer than `N`.
    pub fn draw_distinct<const N: usize>(&self, rng: &mut Rng) -> [u64; N] {
        assert!(N as u64 <= self.n, "{N} ranks that differ, of {}", self.n);
        let mut ranks = [0; N];
        for at in 0..N {
            ranks[at] = loop {
                let rank = self.draw(rng);
                if !ranks[..at].contains(&rank) {
                    break rank;
                }
            };
        }
        ranks
    }
}

/// Sum of i^-theta for i in a+1..=b: integral, half the ends, and the first correction.
fn tail(a: f64, b: f64, theta: f64) -> f64 {
    let integral = (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (b.powf(-theta) - a.powf(-theta)) / 2.0;
    integral + ends + theta * (a.powf(-theta - 1.0) - b.powf(-theta - 1.0)) / 12.0
}

/// Zipf's law with the hot values spread over the whole key space: ranks of 10^10 items, hashed onto `0..n`.
#[derive(Clone, Debug)]
pub struct Scrambled {
    ranks: Zipfian,
}

impl Scrambled {
    /// Items that ranks are drawn from, as in YCSB, so that the hot set does not depend on n.
    const ITEMS: u64 = 10_000_000_000;

    /// The distribution with this theta.
    ///
    /// # Panics
    /// If theta is outside `[0, 1)`.
    pub fn new(theta: f64) -> Scrambled {
        Scrambled { ranks: Zipfian::new(Self::ITEMS, theta) }
    }

    /// A value below n.
    #[inline]
    pub fn draw(&self, rng: &mut Rng, n: u64) -> u64 {
        fnv(self.ranks.draw(rng)) % n
    }
}

/// FNV-1a over the eight bytes of a number, the low byte first.
#[inline]
fn fnv(value: u64) -> u64 {
    value
        .to_le_bytes()
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_agrees_with_the_sum_and_with_ycsb() {
        for theta in [0.0, 0.5, 0.8, 0.99] {
            for n in [1, 2, 999, 1000, 1001, 100_000] {
                let sum: f64 = (1..=n).map(|i| (i as f64).powf(-theta)).sum();
                let zeta = Zipfian::new(n, theta).zeta;
                assert!((zeta - sum).abs() < sum * 1e-9, "theta {theta} n {n}: {zeta} against {sum}");
            }
        }
        let ycsb = 26.469_028_201_783_02;
        assert!((Scrambled::new(0.99).ranks.zeta - ycsb).abs() < 1e-6, "ZETAN of YCSB's ScrambledZipfianGenerator");
    }

    #[test]
    fn growing_gives_the_same_as_starting_there() {
        let mut grown = Zipfian::new(10, 0.9);
        for n in [11, 500, 2000, 2001, 1_000_000] {
            grown.grow(n);
            let fresh = Zipfian::new(n, 0.9);
            assert!((grown.zeta - fresh.zeta).abs() < 1e-9 && (grown.eta - fresh.eta).abs() < 1e-9);
        }
    }

    #[test]
    fn frequencies_follow_the_law() {
        const DRAWS: u64 = 400_000;
        for theta in [0.5, 0.8, 0.99] {
            let (zipfian, mut rng) = (Zipfian::new(1000, theta), Rng::from_seed(4));
            let mut seen = vec![0u64; 1000];
            (0..DRAWS).for_each(|_| seen[zipfian.draw(&mut rng) as usize] += 1);
            for rank in [0, 1] {
                let expected = zipfian.probability(rank) * DRAWS as f64;
                let got = seen[rank as usize] as f64;
                assert!((got / expected - 1.0).abs() < 0.1, "theta {theta} rank {rank}: {got} against {expected}");
            }
            let share = |ranks: std::ops::Range<usize>| seen[ranks].iter().sum::<u64>() as f64 / DRAWS as f64;
            let law = |ranks: std::ops::Range<u64>| ranks.map(|rank| zipfian.probability(rank)).sum::<f64>();
            assert!((share(0..10) - law(0..10)).abs() < 0.03 && (share(0..100) - law(0..100)).abs() < 0.03);
        }
        let (uniform, mut rng) = (Zipfian::new(100, 0.0), Rng::from_seed(5));
        let mut seen = [0u32; 100];
        (0..100_000).for_each(|_| seen[uniform.draw(&mut rng) as usize] += 1);
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }

    #[test]
    fn distinct_ranks_differ_and_reach_every_rank() {
        for theta in [0.0, 0.99] {
            let (zipfian, mut rng) = (Zipfian::new(10, theta), Rng::from_seed(8));
            let mut first = [0u32; 10];
            for _ in 0..2000 {
                let mut ranks = zipfian.draw_distinct::<10>(&mut rng);
                first[ranks[0] as usize] += 1;
                ranks.sort_unstable();
                assert_eq!(ranks, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
            }
            assert_eq!(first[0] > 400, theta > 0.0, "the skew is that of single draws: {first:?}");
        }
    }

    #[test]
    fn a_single_value_is_always_drawn() {
        let (one, mut rng) = (Zipfian::new(1, 0.99), Rng::from_seed(6));
        assert!((0..1000).all(|_| one.draw(&mut rng) == 0));
    }

    #[test]
    fn scrambling_keeps_the_skew_and_moves_the_hot_keys_apart() {
        let (scrambled, mut rng) = (Scrambled::new(0.99), Rng::from_seed(7));
        let mut seen = vec![0u32; 1000];
        (0..200_000).for_each(|_| seen[scrambled.draw(&mut rng, 1000) as usize] += 1);
        let mut keys: Vec<usize> = (0..1000).collect();
        keys.sort_by_key(|&key| std::cmp::Reverse(seen[key]));
        let hottest = f64::from(seen[keys[0]]) / 200_000.0;
        assert!((0.03..0.06).contains(&hottest), "rank 0 takes 1/26.5 and what else falls there: {hottest}");
        assert!(keys[0].abs_diff(keys[1]) > 1);
    }
}
