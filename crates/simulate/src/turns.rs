//! The order of cores: when each continues, and which is first.

use std::cell::Cell;

use crate::lines::CORES_MAX;

/// When a core continues, with its number: of several at one time the lowest is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(u64);

impl Turn {
    /// The turn of a core that runs, or that only waits for others.
    pub(crate) const NEVER: Turn = Turn(u64::MAX);
    /// The latest possible time, in picoseconds: a day and a half.
    pub(crate) const CLOCK_MAX: u64 = u64::MAX / CORES_MAX as u64 - 1;

    /// The core continues at this time, in picoseconds; never, if the time is later than possible.
    pub(crate) fn new(clock: u64, core: usize) -> Turn {
        if clock > Turn::CLOCK_MAX { Turn::NEVER } else { Turn(clock * CORES_MAX as u64 + core as u64) }
    }
}

/// The turns of all cores: a tree of which each node has the earlier of the two turns below it, and the root
/// the earliest. A step changes one or two turns, and the few nodes above them.
#[derive(Debug)]
pub(crate) struct Schedule(Vec<Cell<Turn>>);

impl Schedule {
    /// All cores begin at time zero.
    pub(crate) fn new(cores: usize) -> Schedule {
        let leaves = cores.next_power_of_two();
        let turns = Schedule((0..2 * leaves).map(|_| Cell::new(Turn::NEVER)).collect());
        (0..cores).for_each(|core| turns.set(core, Turn::new(0, core)));
        turns
    }

    fn leaf(&self, core: usize) -> usize {
        self.0.len() / 2 + core
    }

    /// The turn of a core.
    pub(crate) fn of(&self, core: usize) -> Turn {
        self.0[self.leaf(core)].get()
    }

    /// Sets the turn of a core.
    pub(crate) fn set(&self, core: usize, turn: Turn) {
        let mut at = self.leaf(core);
        self.0[at].set(turn);
        while at > 1 {
            at /= 2;
            self.0[at].set(self.0[2 * at].get().min(self.0[2 * at + 1].get()));
        }
    }

    /// The first turn of all.
    pub(crate) fn first(&self) -> Turn {
        self.0[1].get()
    }

    /// The first core, and its time; `None` if no core continues.
    pub(crate) fn next(&self) -> Option<(u64, usize)> {
        let Turn(turn) = self.first();
        (turn != u64::MAX).then(|| (turn / CORES_MAX as u64, (turn % CORES_MAX as u64) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_turn_is_the_earliest_and_of_several_that_of_the_first_core() {
        for cores in [1, 2, 3, 40, CORES_MAX] {
            let turns = Schedule::new(cores);
            for core in 0..cores {
                assert_eq!(turns.next(), Some((0, core)));
                turns.set(core, Turn::new(10 + core as u64 % 7, core));
            }
            assert_eq!(turns.next(), Some((10, 0)));
            assert_eq!(
                (turns.of(cores - 1), turns.first()),
                (Turn::new(10 + (cores as u64 - 1) % 7, cores - 1), turns.of(0))
            );
            (0..cores).for_each(|core| turns.set(core, Turn::NEVER));
            assert_eq!(turns.next(), None);
        }
    }

    #[test]
    fn a_time_that_does_not_come_is_never() {
        let last = CORES_MAX - 1;
        assert!(Turn::new(Turn::CLOCK_MAX, last) < Turn::NEVER);
        assert_eq!(Turn::new(Turn::CLOCK_MAX + 1, 0), Turn::NEVER);
        assert!(Turn::new(3, last) < Turn::new(4, 0) && Turn::new(4, 0) < Turn::new(4, 1));
    }
}
