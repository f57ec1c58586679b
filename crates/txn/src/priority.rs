//! The priority of a transaction: how old it is, for protocols that favour the older one.

use seriatim_base::Epoch;

/// When a transaction began its first attempt; a smaller one is older. All attempts of a transaction have the same, so a
/// transaction that is aborted again and again becomes the oldest in the end. No two transactions of a database have the same.
///
/// ```text
/// 64 bits:   epoch 34 | counter 18 | worker 12
/// ```
/// A worker draws priorities from a counter of its own, so that transactions share no counter: those of one worker are in the order
/// in which they were drawn, those of two workers in the order of their epochs. A worker that draws more than 2^18 in an epoch runs
/// ahead of it: its transactions then pass for younger than they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u64);

impl Priority {
    /// Of a transaction that is run without a database, and before the first draw.
    pub const NONE: Priority = Priority(0);
    const WORKER_BITS: u32 = 12;
    const COUNTER_BITS: u32 = 18;
    /// Workers that can draw.
    pub const WORKERS_MAX: usize = 1 << Self::WORKER_BITS;

    /// A priority from its bits, as [`Priority::bits`] gave them.
    pub const fn from_bits(bits: u64) -> Priority {
        Priority(bits)
    }

    /// The bits: ordered as priorities are.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// What `worker`, which drew `self` last, draws in `epoch`.
    #[inline]
    #[must_use]
    pub fn next(self, epoch: Epoch, worker: usize) -> Priority {
        debug_assert!(worker < Self::WORKERS_MAX);
        let count = ((self.0 >> Self::WORKER_BITS) + 1).max(epoch.0 << Self::COUNTER_BITS);
        Priority(count << Self::WORKER_BITS | worker as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_unique_and_follow_the_epochs() {
        let mut last = [Priority::NONE; 3];
        let mut drawn = Vec::new();
        for epoch in [1, 1, 1, 2, 7, 7] {
            let oldest = drawn.len();
            for (worker, last) in last.iter_mut().enumerate() {
                let next = last.next(Epoch(epoch), worker);
                assert!(next > *last, "each is younger than those its worker drew before");
                *last = next;
                drawn.push((epoch, next));
            }
            let (before, now) = drawn.split_at(oldest);
            assert!(before.iter().all(|(at, old)| *at == epoch || now.iter().all(|(_, new)| old < new)));
        }
        let mut all: Vec<_> = drawn.iter().map(|(_, priority)| *priority).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), drawn.len());
    }

    #[test]
    fn a_worker_that_draws_more_than_an_epoch_holds_goes_on() {
        let full = Priority::from_bits(((2 << Priority::COUNTER_BITS) - 1) << Priority::WORKER_BITS);
        let next = full.next(Epoch(1), 0);
        assert!(next > full && next.next(Epoch(1), 0) > next);
    }
}
