//! A set of small integers that finds the next member quickly: a 64-ary tree of words. Each bit of a word says
//! whether a word of the level below is not zero.

/// A set of integers below a fixed bound.
#[derive(Debug)]
pub(crate) struct Bits {
    levels: Vec<Vec<u64>>,
}

impl Bits {
    /// The empty set of integers below `bound`.
    pub(crate) fn new(bound: usize) -> Bits {
        let mut levels = Vec::new();
        let mut words = bound.div_ceil(64).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Bits { levels };
            }
            words = words.div_ceil(64);
        }
    }

    /// Adds `i`.
    pub(crate) fn insert(&mut self, i: u32) {
        let mut i = i as usize;
        for level in &mut self.levels {
            let word = &mut level[i / 64];
            let was = *word;
            *word |= 1 << (i % 64);
            if was != 0 {
                return;
            }
            i /= 64;
        }
    }

    /// Removes `i`.
    pub(crate) fn remove(&mut self, i: u32) {
        let mut i = i as usize;
        for level in &mut self.levels {
            let word = &mut level[i / 64];
            *word &= !(1 << (i % 64));
            if *word != 0 {
                return;
            }
            i /= 64;
        }
    }

    /// The smallest member at or above `from`.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let mut i = from as usize;
        // Go up until a word has a member at or after `i`, then down along the smallest members.
        for up in 0..self.levels.len() {
            let word = *self.levels[up].get(i / 64)?;
            let rest = word & (u64::MAX << (i % 64));
            if rest != 0 {
                i = i / 64 * 64 + rest.trailing_zeros() as usize;
                for down in (0..up).rev() {
                    i = i * 64 + self.levels[down][i].trailing_zeros() as usize;
                }
                return Some(i as u32);
            }
            i = i / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim_base::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_an_ordered_set() {
        for (seed, bound) in [(1, 1), (2, 64), (3, 65), (4, 5000), (5, 300_000)] {
            let (mut rng, mut bits, mut set) = (Rng::from_seed(seed), Bits::new(bound), BTreeSet::new());
            for _ in 0..3000 {
                let i = rng.below(bound as u64) as u32;
                if rng.percent(40) {
                    bits.remove(i);
                    set.remove(&i);
                } else {
                    bits.insert(i);
                    set.insert(i);
                }
                let from = rng.below(bound as u64 + 1) as u32;
                assert_eq!(bits.next(from), set.range(from..).next().copied(), "seed {seed}, from {from}");
            }
        }
    }
}
