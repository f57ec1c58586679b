//! The search inside a node.

use std::hint::select_unpredictable;

/// How many of `0..count` come first, where `first` holds for those and for none behind them. No branch depends on an
/// answer, so nothing is mispredicted but the number of steps.
#[inline(always)]
pub(crate) fn partition(count: usize, mut first: impl FnMut(usize) -> bool) -> usize {
    if count == 0 {
        return 0;
    }
    // The answer is in base..=base + size.
    let (mut base, mut size) = (0, count);
    while size > 1 {
        let half = size / 2;
        base = select_unpredictable(first(base + half), base + half, base);
        size -= half;
    }
    base + usize::from(first(base))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::partition;

    #[test]
    fn partition_counts_those_that_come_first() {
        for count in 0..40 {
            for answer in 0..=count {
                assert_eq!(partition(count, |i| i < answer), answer);
            }
        }
    }
}
