//! The priority of a transaction: how old it is, for protocols that favour the older one.

/// When a transaction began its first attempt; a smaller one is older. All attempts of a transaction have the
/// same, so a transaction that is aborted again and again becomes the oldest in the end. No two transactions
/// of a database have the same.
///
/// ```text
/// 64 bits:   period 34 | counter's upper 8 | worker's lower 6 | counter's lower 10 | worker's upper 6
/// ```
/// The order of the bits makes the upper 48 ([`Priority::rounded`]) differ between up to 64 workers. Each worker draws
/// priorities from its own counter, so that transactions share no counter. Priorities of one worker are in the order in
/// which they were drawn, those of two workers in the order of their periods. The caller counts periods, which last
/// some milliseconds. Epochs are no periods: each awaited flush ends one, and 2^34 may pass in days. A worker that
/// draws more than 2^18 in a period runs ahead of it: its transactions then pass for younger than they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u64);

impl Priority {
    /// The priority of a transaction that runs without a database, and before the first draw.
    pub const NONE: Priority = Priority(0);
    const COUNTER_BITS: u32 = 18;
    /// Workers that can draw.
    pub const WORKERS_MAX: usize = 1 << 12;

    /// A priority from its bits, as [`Priority::bits`] gave them.
    pub const fn from_bits(bits: u64) -> Priority {
        Priority(bits)
    }

    /// The bits: ordered as priorities are.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The upper 48 bits, for protocols that keep it in a word with other values. A smaller rounded priority is that of
    /// an older transaction; transactions of different age may have the same.
    #[inline]
    pub const fn rounded(self) -> u64 {
        self.0 >> 16
    }

    /// The period of a clock's nanoseconds. 2^34 periods of 17 ms last nine years.
    #[inline]
    #[must_use]
    pub const fn period(nanoseconds: u64) -> u64 {
        nanoseconds >> 24
    }

    /// The next priority of `worker`, which drew `self` last, in `period`.
    #[inline]
    #[must_use]
    pub fn next(self, period: u64, worker: usize) -> Priority {
        debug_assert!(worker < Self::WORKERS_MAX);
        let last = (self.0 >> 22) << 10 | self.0 >> 6 & 0x3ff;
        let (count, worker) = ((last + 1).max(period << Self::COUNTER_BITS), worker as u64);
        Priority((count >> 10) << 22 | (worker & 0x3f) << 16 | (count & 0x3ff) << 6 | worker >> 6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_unique_and_follow_the_periods() {
        let mut last = [Priority::NONE; 3];
        let mut drawn = Vec::new();
        for period in [1, 1, 1, 2, 7, 7] {
            let oldest = drawn.len();
            for (worker, last) in last.iter_mut().enumerate() {
                let next = last.next(period, worker);
                assert!(next > *last, "each is younger than those its worker drew before");
                *last = next;
                drawn.push((period, next));
            }
            let (before, now) = drawn.split_at(oldest);
            assert!(before.iter().all(|(at, old)| *at == period || now.iter().all(|(_, new)| old < new)));
        }
        let mut all: Vec<_> = drawn.iter().map(|(_, priority)| *priority).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), drawn.len());
    }

    #[test]
    fn a_worker_that_draws_more_timestamps_than_a_period_has_continues() {
        let mut last = Priority::NONE;
        for _ in 0..(1 << Priority::COUNTER_BITS) + 3000 {
            let next = last.next(1, 4095);
            assert!(next > last);
            last = next;
        }
        assert!(last > Priority::NONE.next(2, 0), "it has run ahead");
    }

    #[test]
    fn workers_draw_priorities_that_differ_also_when_rounded() {
        let drawn = (0..64).map(|worker| Priority::NONE.next(5, worker).rounded());
        let distinct: std::collections::BTreeSet<u64> = drawn.collect();
        assert_eq!(distinct.len(), 64);
    }
}
