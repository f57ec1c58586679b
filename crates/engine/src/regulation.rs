//! Contention regulation: hill climbing finds the longest pause after a conflict.
//!
//! The database has one such number, read only after conflicts. A helper that ticks anyway changes it once a
//! period: up or down by half an octave. It continues in one direction while throughput rises, and turns when
//! throughput falls. Only these steps are tried, from no pause at all to `RetryPolicy::pause_max`.
//!
//! With few conflicts throughput says nothing about pauses. So a period lasts until there are enough conflicts.
//! If they are too rare for that, it ends with a step towards the initial pause, so that the effect of a burst
//! fades.
//!
//! Source: Lim, Kaminsky, Andersen, Cicada, SIGMOD 2017, §3.9. The paper climbs by 0.5 µs every 5 ms. Here the
//! best pauses lie between zero and a millisecond, and periods are those of the ticker, so a step is a factor.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_base::{CacheAligned, Rng};

/// The first step above zero.
const FIRST_NS: u64 = 250;

/// The initial step: 2 µs, as the first pause of `RetryPolicy`.
const BEGIN: usize = 7;

/// Conflicts that a period needs to be judged: with fewer, the throughput depends on other things.
const CONFLICTS_MIN: u64 = 64;

/// Most ticks of a period: 200 ms at the default `Builder::epoch_interval`. Two threads under `silo` with
/// YCSB's θ of 0.99 have some 8 conflicts a tick, so their periods have 8 ticks. From 1 ms back to 2 µs there
/// are 18 steps, which take less than 4 s.
const TICKS_MAX: u32 = 20;

/// The longest pause, and the search for it.
#[derive(Debug)]
pub(crate) struct Regulation {
    pause_max_ns: CacheAligned<AtomicU64>,
    /// The steps, in nanoseconds.
    ladder: Box<[u64]>,
    climber: Mutex<Climber>,
}

/// The state of the search.
#[derive(Debug)]
struct Climber {
    rung: usize,
    is_rising: bool,
    /// Commits and conflicts before this period, and when it began.
    before: Option<(u64, u64, u64)>,
    /// Ticks of this period.
    ticks: u32,
    /// Commits a second of the previous period.
    rate: f64,
}

impl Regulation {
    /// A regulation whose pauses are at most `pause_max`.
    pub(crate) fn new(pause_max: Duration) -> Regulation {
        let most = u64::try_from(pause_max.as_nanos()).unwrap_or(u64::MAX);
        // Half an octave each, to the nanosecond.
        let rungs = (0..64)
            .map(|half| (FIRST_NS << (half / 2)) + if half % 2 == 1 { (FIRST_NS << (half / 2)) * 53 / 128 } else { 0 });
        let ladder: Box<[u64]> =
            std::iter::once(0).chain(rungs.take_while(|&rung| rung < most)).chain([most]).collect();
        let rung = BEGIN.min(ladder.len() - 1);
        let pause_max_ns = CacheAligned(AtomicU64::new(ladder[rung]));
        Regulation {
            pause_max_ns,
            climber: Mutex::new(Climber { rung, is_rising: false, before: None, ticks: 0, rate: 0.0 }),
            ladder,
        }
    }

    /// The current longest pause.
    pub(crate) fn pause_max(&self) -> Duration {
        // ORDERING: an independent number.
        Duration::from_nanos(self.pause_max_ns.load(Ordering::Relaxed))
    }

    /// The pause before another attempt: random, up to the longest.
    pub(crate) fn pause(&self, rng: &mut Rng) -> Duration {
        Duration::from_nanos(rng.range(0, self.pause_max_ns.load(Ordering::Relaxed)))
    }

    /// Called at each tick, with the commits and conflicts so far.
    pub(crate) fn climb(&self, commits: u64, conflicts: u64, now_ns: u64) {
        let mut climber = self.climber.lock().unwrap_or_else(PoisonError::into_inner);
        let (commits_before, conflicts_before, since) = *climber.before.get_or_insert((commits, conflicts, now_ns));
        let (lasted, last) = (now_ns.saturating_sub(since), self.ladder.len() - 1);
        climber.ticks += 1;
        if lasted > 0 && conflicts.saturating_sub(conflicts_before) >= CONFLICTS_MIN {
            climber.step(commits.saturating_sub(commits_before) as f64 / lasted as f64 * 1e9, last);
        } else if climber.ticks >= TICKS_MAX {
            climber.rest(last);
        } else {
            return;
        }
        (climber.before, climber.ticks) = (Some((commits, conflicts, now_ns)), 0);
        self.pause_max_ns.store(self.ladder[climber.rung], Ordering::Relaxed);
    }
}

impl Climber {
    /// Continues in the current direction, or turns; at either end it always turns.
    fn step(&mut self, rate: f64, last: usize) {
        if rate < self.rate {
            self.is_rising = !self.is_rising;
        }
        self.rate = rate;
        if self.rung == 0 {
            self.is_rising = true;
        } else if self.rung == last {
            self.is_rising = false;
        }
        self.rung = if self.is_rising { (self.rung + 1).min(last) } else { self.rung.saturating_sub(1) };
    }

    /// Moves one step towards the initial pause. The old throughput does not count any more.
    fn rest(&mut self, last: usize) {
        let begin = BEGIN.min(last);
        self.rung = if self.rung < begin { self.rung + 1 } else { self.rung.saturating_sub(1).max(begin) };
        self.rate = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use seriatim_txn::{Cause, Phase, Reason};

    use super::*;
    use crate::Settings;

    /// Runs `periods` periods whose throughput depends on the pause. Returns the pauses of the last quarter.
    fn climbed(regulation: &Regulation, periods: u64, rate: impl Fn(f64) -> f64) -> Vec<u64> {
        let (mut commits, mut conflicts) = (0, 0);
        let mut pauses = Vec::new();
        for period in 0..periods {
            regulation.climb(commits, conflicts, period * 10_000_000);
            let pause = regulation.pause_max().as_nanos() as u64;
            pauses.push(pause);
            commits += (rate(pause as f64) / 100.0) as u64;
            conflicts += 1000;
        }
        pauses.split_off(pauses.len() * 3 / 4)
    }

    #[test]
    fn it_climbs_to_where_throughput_is_highest_and_stays_near() {
        for best in [500.0, 8_000.0, 200_000.0] {
            let regulation = Regulation::new(Duration::from_millis(1));
            let hill = |pause: f64| 1e6 / (1.0 + ((pause + 1.0) / best).ln().abs());
            let pauses = climbed(&regulation, 200, hill);
            for pause in pauses {
                assert!((pause as f64) > best / 3.0 && (pause as f64) < best * 3.0, "{pause} ns, where {best} is best");
            }
        }
    }

    #[test]
    fn it_ends_at_none_and_at_the_longest() {
        for (most, rises) in
            [(Duration::from_micros(300), true), (Duration::from_millis(1), false), (Duration::ZERO, true)]
        {
            let regulation = Regulation::new(most);
            let pauses = climbed(&regulation, 200, |pause| if rises { 1e6 + pause } else { 1e7 - pause });
            assert!(pauses.iter().all(|&pause| u128::from(pause) <= most.as_nanos()));
            let wanted = if rises { most.as_nanos() as u64 } else { 0 };
            assert!(pauses.contains(&wanted), "{pauses:?}");
        }
    }

    #[test]
    fn periods_without_conflicts_change_nothing() {
        let regulation = Regulation::new(Duration::from_millis(1));
        let before = regulation.pause_max();
        for period in 0..50 {
            regulation.climb(period * 100_000 * (1 + period % 2), period, period * 10_000_000);
            assert_eq!(regulation.pause_max(), before);
        }
    }

    /// Runs ticks with this many conflicts each. Returns how often the longest pause changed, and its last
    /// value.
    fn changes(regulation: &Regulation, ticks: u64, conflicts: u64) -> (usize, Duration) {
        let pauses: Vec<Duration> = (0..ticks)
            .map(|tick| {
                regulation.climb(tick * 1000, tick * conflicts, tick * 10_000_000);
                regulation.pause_max()
            })
            .collect();
        (pauses.windows(2).filter(|pair| pair[0] != pair[1]).count(), *pauses.last().expect("there are some"))
    }

    #[test]
    fn a_database_moves_its_longest_pause_by_its_conflicts_and_back() {
        const CHANGED: Cause = Cause { phase: Phase::Validate, reason: Reason::RecordChanged };
        let settings = Settings { regulate_pauses: Some(true), step_helpers: true, ..Settings::default() };
        let db = settings.open().expect("memory");
        let pause_max = || db.statistics().pause_max.expect("pauses are regulated");
        let (began, mut runner) = (pause_max(), db.runner());
        db.step();
        for _ in 0..8 {
            let mut attempts = 0;
            let committed = runner.transact(|tx| {
                attempts += 1;
                if attempts <= CONFLICTS_MIN / 8 { Err(tx.stop(CHANGED)) } else { Ok(()) }
            });
            assert!(committed.is_ok());
            assert_eq!(pause_max(), began);
            db.step();
        }
        assert_ne!(pause_max(), began, "there are enough");
        (0..TICKS_MAX).for_each(|_| db.step());
        assert_eq!(pause_max(), began);
    }

    #[test]
    fn few_conflicts_are_counted_until_they_are_enough() {
        let regulation = Regulation::new(Duration::from_millis(1));
        assert_eq!(changes(&regulation, 81, CONFLICTS_MIN / 8).0, 10);
    }

    #[test]
    fn a_burst_has_no_lasting_effect() {
        for most in [Duration::from_nanos(500), Duration::from_millis(1)] {
            for rises in [true, false] {
                let regulation = Regulation::new(most);
                let began = regulation.pause_max();
                let pauses = climbed(&regulation, 100, |pause| if rises { 1e6 + pause } else { 1e7 - pause });
                assert!(pauses.iter().any(|&pause| u128::from(pause) != began.as_nanos()), "{pauses:?}");
                assert_eq!(changes(&regulation, 25 * u64::from(TICKS_MAX), 1).1, began);
            }
        }
    }
}
