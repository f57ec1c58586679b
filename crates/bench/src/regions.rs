//! The capacity and duration of regions. Each thread runs one region after another on its own memory. So regions abort
//! because of their size or duration, and not because of other threads (DBX §2.2).
//!
//! A region that aborts is not retried. Its body then runs without a lock, since no other thread uses its
//! words. So the share of aborted regions is the share of attempts that do not fit.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::clock::Instant;
use seriatim_base::{CACHE_LINE, Rng, WorkerId, interrupt};
use seriatim_htm::{
    Access, Agent, Body, BodyError, Budget, Htm, HtmMode, NoLocks, Outside, RegionStatistics, Unavailable,
};

use crate::measure::Length;

/// Words of a cache line.
pub const WORDS: usize = CACHE_LINE / size_of::<AtomicU64>();
/// Turns between two checks of the clock.
const TURNS: u64 = 8;

/// The work of a region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Touches consecutive cache lines.
    Touch {
        /// The number of lines that are read.
        read: usize,
        /// The number of other lines that are written.
        written: usize,
        /// Whether all writes come before all reads.
        writes_first: bool,
    },
    /// Touches random cache lines in [`SCATTERED`], each of which has the number of the next.
    Scatter {
        /// The number of lines.
        lines: usize,
        /// Whether it also writes the lines.
        writes: bool,
    },
    /// Loads one word repeatedly for so many microseconds.
    Linger(f64),
}

/// The lines from which [`Work::Scatter`] takes some: 4 MiB.
pub const SCATTERED: usize = (4 << 20) / CACHE_LINE;

/// The results of threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Committed regions, and bodies that ran without a region.
    pub turns: u64,
    /// The longest time of a thread.
    pub seconds: f64,
    /// The outcomes of the regions.
    pub regions: RegionStatistics,
    /// Words without the value that was stored last. Must be zero.
    pub wrong: u64,
}

impl Measured {
    /// The sum for several threads.
    pub fn sum(parts: impl IntoIterator<Item = Measured>) -> Measured {
        parts.into_iter().fold(Measured::default(), |sum, part| Measured {
            turns: sum.turns + part.turns,
            seconds: sum.seconds.max(part.seconds),
            regions: sum.regions + part.regions,
            wrong: sum.wrong + part.wrong,
        })
    }
}

/// Loads or stores the first word of consecutive lines.
struct Sweep<'a> {
    read: &'a [AtomicU64],
    written: &'a [AtomicU64],
    writes_first: bool,
    /// The value that is stored.
    value: u64,
}

impl Sweep<'_> {
    fn store<A: Access>(&self, access: &mut A) {
        self.written.iter().step_by(WORDS).for_each(|word| access.store(word, self.value));
    }
}

// SAFETY: rule 3: the words are borrowed while the body runs.
unsafe impl Body for Sweep<'_> {
    type Output = u64;

    fn run<A: Access>(&mut self, access: &mut A) -> Result<u64, BodyError> {
        if self.writes_first {
            self.store(access);
        }
        let sum = self.read.iter().step_by(WORDS).fold(0u64, |sum, word| sum.wrapping_add(access.load(word)));
        if !self.writes_first {
            self.store(access);
        }
        Ok(sum)
    }
}

/// Touches lines on a circle: the second word of each has the number of the next. If it writes, stores to the
/// first word of each.
struct Scatter<'a> {
    words: &'a [AtomicU64],
    /// The first line.
    from: u64,
    count: usize,
    writes: bool,
    /// The value that is stored.
    value: u64,
}

// SAFETY: rule 3: the words are borrowed while the body runs.
unsafe impl Body for Scatter<'_> {
    type Output = u64;

    /// Returns the line after the last one.
    fn run<A: Access>(&mut self, access: &mut A) -> Result<u64, BodyError> {
        Ok((0..self.count).fold(self.from, |line, _| {
            let at = line as usize * WORDS;
            if self.writes {
                access.store(&self.words[at], self.value);
            }
            access.load(&self.words[at + 1])
        }))
    }
}

/// The words of `lines` lines, each with the number of the next on a circle in random order.
fn circle(lines: usize, rng: &mut Rng) -> Vec<AtomicU64> {
    let mut order: Vec<usize> = (0..lines).collect();
    rng.shuffle(&mut order);
    let words: Vec<AtomicU64> = (0..lines * WORDS).map(|_| AtomicU64::new(0)).collect();
    for (at, &line) in order.iter().enumerate() {
        words[line * WORDS + 1].store(order[(at + 1) % lines] as u64, Ordering::Relaxed);
    }
    words
}

/// Loads one word this many times.
struct Linger<'a>(&'a AtomicU64, u64);

// SAFETY: rule 3: the word is borrowed while the body runs.
unsafe impl Body for Linger<'_> {
    type Output = u64;

    fn run<A: Access>(&mut self, access: &mut A) -> Result<u64, BodyError> {
        Ok((0..self.1).fold(0, |sum, _| black_box(sum ^ access.load(self.0))))
    }
}

/// The number of loads of [`Linger`] in a microsecond outside of regions, measured with `loads` loads.
fn loads_of_microsecond(loads: u64) -> f64 {
    let (word, began) = (AtomicU64::new(0), Instant::now());
    black_box((0..loads).fold(0, |sum, _| black_box(sum ^ word.load(Ordering::Acquire))));
    loads as f64 / (began.elapsed().as_secs_f64() * 1e6).max(1e-3)
}

/// Runs a body on one thread for a length. Returns turns and seconds.
pub(crate) fn repeat<B: Body>(
    agent: &mut Agent,
    length: Length,
    body: &mut B,
    mut ran: impl FnMut(&mut B, Option<B::Output>),
) -> (u64, f64) {
    let (mut outside, began, mut turns) = (Outside::claim(), Instant::now(), 0);
    loop {
        let next = match length {
            Length::Operations(count) => count,
            Length::Seconds(_) => TURNS,
        };
        for _ in 0..next {
            let output = agent.run(&mut outside, &NoLocks, body).ok();
            ran(body, output);
        }
        turns += next;
        let elapsed = began.elapsed().as_secs_f64();
        if length.seconds().is_none_or(|seconds| elapsed >= seconds) || interrupt::is_requested() {
            return (turns, elapsed);
        }
    }
}

/// The number of lines whose first word lacks this value.
fn lost(words: &[AtomicU64], value: u64) -> u64 {
    words.iter().step_by(WORDS).filter(|word| word.load(Ordering::Acquire) != value).count() as u64
}

/// The results of one thread on its own memory.
///
/// # Errors
/// The back end is unavailable.
pub fn run(work: Work, worker: u16, mode: HtmMode, seconds: f64) -> Result<Measured, Unavailable> {
    run_for(work, worker, mode, Length::Seconds(seconds))
}

/// As [`run`], also for a number of turns.
pub(crate) fn run_for(work: Work, worker: u16, mode: HtmMode, length: Length) -> Result<Measured, Unavailable> {
    let htm = Htm::new(mode)?;
    let mut agent = htm.agent(WorkerId(worker), Budget::ONE);
    let mut wrong = 0;
    let (turns, seconds) = match work {
        Work::Touch { read, written, writes_first } => {
            // Each line for reading contains ones.
            let lines = |count: usize| (0..count * WORDS).map(|_| AtomicU64::new(1)).collect::<Vec<_>>();
            let (source, target) = (lines(read), lines(written));
            let mut sweep = Sweep { read: &source, written: &target, writes_first, value: 0 };
            let (turns, elapsed) = repeat(&mut agent, length, &mut sweep, |sweep, sum| {
                wrong += u64::from(sum != Some(read as u64));
                sweep.value += 1;
            });
            wrong += lost(&target, turns - 1);
            (turns, elapsed)
        }
        Work::Scatter { lines: count, writes } => {
            let words = circle(SCATTERED, &mut Rng::from_seed(u64::from(worker)));
            let mut scatter = Scatter { words: &words, from: 0, count, writes, value: 1 };
            let mut last = 0;
            let (turns, elapsed) = repeat(&mut agent, length, &mut scatter, |scatter, next| {
                last = scatter.from;
                wrong += u64::from(next.is_none());
                scatter.from = next.unwrap_or(last);
                scatter.value += 1;
            });
            // The last turn wrote this, and nothing was written later.
            let mut line = last;
            for _ in 0..count {
                let at = line as usize * WORDS;
                wrong += u64::from(words[at].load(Ordering::Acquire) != if writes { turns } else { 0 });
                line = words[at + 1].load(Ordering::Acquire);
            }
            wrong += u64::from(line != scatter.from);
            (turns, elapsed)
        }
        Work::Linger(microseconds) => {
            let word = AtomicU64::new(0);
            let loads = (microseconds * loads_of_microsecond(2_000_000)).ceil() as u64;
            repeat(&mut agent, length, &mut Linger(&word, loads), |_, sum| wrong += u64::from(sum != Some(0)))
        }
    };
    Ok(Measured { turns, seconds, regions: agent.statistics(), wrong })
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim_htm::{Emulation, detect};

    const MODES: [HtmMode; 2] =
        [HtmMode::Absent, HtmMode::Emulated(Emulation { seed: 3, abort_one_in: 4, yields: false })];

    #[test]
    fn every_kind_of_work_runs_on_every_back_end_and_is_right() {
        let rtm = detect().probe_commits.then_some(HtmMode::Rtm);
        for mode in MODES.into_iter().chain(rtm) {
            for work in [
                Work::Touch { read: 9, written: 0, writes_first: false },
                Work::Touch { read: 0, written: 9, writes_first: false },
                Work::Touch { read: 9, written: 3, writes_first: false },
                Work::Touch { read: 9, written: 3, writes_first: true },
                Work::Scatter { lines: 9, writes: true },
                Work::Scatter { lines: 9, writes: false },
                Work::Linger(0.1),
            ] {
                let measured = run(work, 0, mode, 0.001).expect("the back end is here");
                let Measured { turns, seconds, regions, wrong } = measured;
                assert!(wrong == 0 && turns > 0 && seconds > 0.0, "{mode}, {work:?}: {measured:?}");
                assert_eq!(regions.started, regions.committed + regions.aborted.total(), "{mode}, {work:?}");
                assert_eq!(regions.started, if mode == HtmMode::Absent { 0 } else { turns }, "{mode}, {work:?}");
                assert_eq!(regions.committed + regions.fallback, regions.started, "{mode}, {work:?}");
                let counted = run_for(work, 0, mode, Length::Operations(3)).expect("the back end is here");
                assert_eq!((counted.turns, counted.wrong), (3, 0), "{mode}, {work:?}");
            }
        }
    }

    /// A region cannot write a hundred times the size of the first-level cache.
    #[test]
    fn too_much_aborts_where_there_are_regions() {
        if detect().probe_commits {
            let share = |written| {
                let work = Work::Touch { read: 0, written, writes_first: false };
                let Measured { regions, .. } = run(work, 0, HtmMode::Rtm, 0.01).expect("it is here");
                regions.committed as f64 / regions.started as f64
            };
            assert!(share(8) > 0.5 && share(100_000) < 0.01, "{}, {}", share(8), share(100_000));
        }
    }

    #[test]
    fn lines_at_random_are_on_one_circle() {
        let words = circle(100, &mut Rng::from_seed(7));
        let next = |line: u64| words[line as usize * WORDS + 1].load(Ordering::Relaxed);
        let mut met: Vec<u64> = std::iter::successors(Some(0), |line| Some(next(*line))).take(100).collect();
        assert_eq!(next(met[99]), 0);
        assert!(met.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count() < 10, "hardly any follow each other");
        met.sort_unstable();
        assert_eq!(met, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn canary_a_store_that_was_lost_is_counted() {
        let words: Vec<AtomicU64> = (0..3 * WORDS).map(|_| AtomicU64::new(7)).collect();
        assert_eq!(lost(&words, 7), 0);
        words[WORDS].store(6, Ordering::Relaxed);
        assert_eq!(lost(&words, 7), 1);
        let parts = [Measured { wrong: 1, ..Measured::default() }, Measured { wrong: 2, ..Measured::default() }];
        assert_eq!(Measured::sum(parts).wrong, 3);
    }
}
