//! The setting in which figures are measured: sizes, and the threads and simulated cores that points run on.

use crate::judge::{ROUNDS_MIN, SECONDS_MIN};
use crate::measured::{Cores, Size};

/// The caller's choices, and the machine's properties.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// How much is run.
    pub size: Size,
    /// Processors of the machine.
    pub processors: usize,
    /// Whether regions of the processor commit.
    pub has_regions: bool,
    /// Seconds of a run on the machine's threads; by default what the size says.
    pub seconds: Option<f64>,
    /// Runs of a point on the machine's threads; by default what the size says.
    pub rounds: Option<u32>,
    /// The seed of the first run; later ones count on.
    pub seed: u64,
}

impl Setting {
    pub(crate) fn is_small(&self) -> bool {
        self.size == Size::Small
    }

    /// Counts of threads on this machine: powers of two, and all processors; of the small size at most two.
    pub(crate) fn threads(&self) -> Vec<usize> {
        let most = if self.is_small() { 2 } else { self.processors };
        let powers = (0..).map(|power| 1 << power).take_while(|threads| *threads < most);
        powers.chain([most]).collect()
    }

    /// How regions run if a figure is about them: emulated if the processor has none.
    pub(crate) fn regions(&self, cores: Cores) -> &'static str {
        if cores == Cores::Real && !self.has_regions { "emulated" } else { "auto" }
    }

    /// Seconds of a run on the machine's threads.
    pub(crate) fn run_seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.is_small() { 0.05 } else { SECONDS_MIN })
    }

    /// How often a point runs: simulated ones repeat, so once.
    pub(crate) fn rounds(&self, cores: Cores) -> u32 {
        match cores {
            Cores::Simulated => 1,
            Cores::Real => self.rounds.unwrap_or(if self.is_small() { 1 } else { ROUNDS_MIN as u32 }).max(1),
        }
    }
}

/// Virtual seconds of a transaction workload on so many simulated cores. One thread does the work of all cores, and
/// many cores count as much in less time.
pub(crate) fn virtual_seconds(cores: usize) -> f64 {
    (0.24 / cores as f64).clamp(0.01, 0.03)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{large, small};

    #[test]
    fn threads_are_those_of_the_machine_and_no_more() {
        for (processors, wanted) in [(1, &[1][..]), (2, &[1, 2]), (6, &[1, 2, 4, 6]), (8, &[1, 2, 4, 8])] {
            assert_eq!(Setting { processors, ..large() }.threads(), wanted, "{processors}");
        }
        assert_eq!(Setting { processors: 64, ..small() }.threads(), [1, 2]);
    }

    #[test]
    fn regions_are_emulated_where_there_are_none() {
        let without = Setting { has_regions: false, ..large() };
        assert_eq!((without.regions(Cores::Real), without.regions(Cores::Simulated)), ("emulated", "auto"));
        assert_eq!(large().regions(Cores::Real), "auto");
    }

    #[test]
    fn many_simulated_cores_run_for_less_time() {
        assert_eq!([1, 8, 16, 40].map(virtual_seconds), [0.03, 0.03, 0.015, 0.01]);
    }
}
