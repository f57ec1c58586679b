//! The cost, capacity and maximum duration of regions, and a check that no update is lost between regions and
//! fallbacks.

use std::error::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::clock::Instant;
use seriatim_base::{CACHE_LINE, Rng, WorkerId, talk, thread};
use seriatim_htm::{Access, Body, BodyError, Budget, FallbackLocks, Htm, HtmMode, Outside, RegionStatistics, SpinLock};

use super::{FATES, Setting, fates, percent, table};
use crate::measure::Length;
use crate::regions::{Measured, Work, repeat, run_for};

type Section = Result<String, Box<dyn Error>>;

/// Does nothing.
struct Empty;

// SAFETY: rule 3: it uses no words.
unsafe impl Body for Empty {
    type Output = ();

    fn run<A: Access>(&mut self, _access: &mut A) -> Result<(), BodyError> {
        Ok(())
    }
}

/// Adds one to a word.
struct Increment<'a>(&'a AtomicU64);

// SAFETY: rule 3: the word is borrowed while the body runs.
unsafe impl Body for Increment<'_> {
    type Output = ();

    fn run<A: Access>(&mut self, access: &mut A) -> Result<(), BodyError> {
        let value = access.load(self.0);
        access.store(self.0, value + 1);
        Ok(())
    }
}

/// Runs the body `count` times on one thread. Returns nanoseconds for each, and the outcomes of regions.
fn timed<B: Body>(htm: &Htm, count: u32, body: &mut B) -> (f64, RegionStatistics) {
    let mut agent = htm.agent(WorkerId(0), Budget::default());
    // The first run warms up code and data.
    repeat(&mut agent, Length::Operations(1), body, |_, _| {});
    let before = agent.statistics();
    let (turns, seconds) = repeat(&mut agent, Length::Operations(count.into()), body, |_, done| drop(black_box(done)));
    (seconds * 1e9 / turns as f64, agent.statistics().since(&before))
}

/// Two threads increment one word, which a lock guards when regions fall back. Each thread takes the lock itself in one
/// of `by_hand` turns. Returns nanoseconds of a turn, the outcomes of regions, and the number of lost increments.
fn contend(htm: &Htm, count: u32, by_hand: Option<u32>, seed: u64) -> (f64, RegionStatistics, u64) {
    let (lock, word, start) = (SpinLock::new(), AtomicU64::new(0), Barrier::new(2));
    let (lock, word, start) = (&lock, &word, &start);
    let parts: Vec<(f64, RegionStatistics)> = thread::scope(|scope| {
        let running: Vec<_> = (0..2u16)
            .map(|worker| {
                scope.spawn(move || {
                    let (mut agent, mut outside) = (htm.agent(WorkerId(worker), Budget::default()), Outside::claim());
                    let mut rng = Rng::from_seed(seed + u64::from(worker));
                    start.wait();
                    let began = Instant::now();
                    for _ in 0..count {
                        if by_hand.is_some_and(|one_in| rng.below(u64::from(one_in)) == 0) {
                            lock.acquire(htm);
                            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Release);
                            lock.release(htm);
                        } else {
                            agent.run(&mut outside, lock, &mut Increment(word)).expect("increments are not refused");
                        }
                    }
                    (began.elapsed().as_secs_f64() * 1e9 / f64::from(count), agent.statistics())
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a counting thread panicked")).collect()
    });
    let lost = (2 * u64::from(count)).abs_diff(word.load(Ordering::Relaxed));
    (parts.iter().map(|part| part.0).sum::<f64>() / 2.0, parts[0].1 + parts[1].1, lost)
}

/// Fails if increments were lost.
fn kept(what: &str, lost: u64) -> Result<(), String> {
    if lost == 0 { Ok(()) } else { Err(format!("{what}: {lost} increments were lost between regions and fallbacks")) }
}

/// The cost of begin and commit.
pub(super) fn cost(setting: &Setting) -> Section {
    talk!("begin and commit");
    let htm = Htm::new(setting.htm)?;
    let without = Htm::new(HtmMode::Absent)?;
    let (empty, begun) = timed(&htm, setting.regions, &mut Empty);
    let (direct, direct_begun) = timed(&without, setting.regions, &mut Empty);
    let word = AtomicU64::new(0);
    let (one, one_begun) = timed(&htm, setting.regions, &mut Increment(&word));
    let (two, two_begun, lost) = contend(&htm, setting.regions, None, setting.seed);
    kept("two threads on one word", lost)?;
    let row = |what: &str, nanoseconds: f64, regions: &RegionStatistics| {
        let mut row = vec![what.to_owned(), format!("{nanoseconds:.1}")];
        row.extend(fates(regions));
        row
    };
    let rows = [
        row("an empty body", empty, &begun),
        row("an empty body, regions absent", direct, &direct_begun),
        row("one word incremented", one, &one_begun),
        row("two threads, one word incremented under an elided lock", two, &two_begun),
    ];
    let heads: Vec<&str> = ["what", "ns a turn"].into_iter().chain(FATES).collect();
    Ok(table("Begin and commit", &heads, &rows))
}

/// The percentage of `attempts` regions with this work that committed at the first attempt.
fn committed(setting: &Setting, work: Work, attempts: u32) -> Result<String, Box<dyn Error>> {
    let Measured { regions, wrong, .. } = run_for(work, 0, setting.htm, Length::Operations(attempts.into()))?;
    match wrong {
        0 => Ok(percent(regions.committed, regions.started)),
        _ => Err(format!("{work:?}: {wrong} words do not have what was stored last").into()),
    }
}

/// The lines that a region can hold: contiguous and random, written and read.
pub(super) fn capacity(setting: &Setting) -> Section {
    talk!("capacity");
    let mut rows = Vec::new();
    for (writes, sizes) in [
        (true, &[64, 128, 192, 256, 384, 512, 640, 768, 832, 1024][..]),
        (false, &[256, 1024, 2048, 4096, 8192, 16384]),
    ] {
        // Emulated regions take quadratic time in their size, which is not measured.
        let sizes = if setting.is_small { &sizes[..3] } else { sizes };
        for &size in sizes {
            let (read, written) = if writes { (0, size) } else { (size, 0) };
            let contiguous = Work::Touch { read, written, writes_first: false };
            // Each attempt has its own lines, since the sets of a cache fill unevenly.
            let random = Work::Scatter { lines: size, writes };
            rows.push(vec![
                if writes { "written" } else { "read" }.to_owned(),
                size.to_string(),
                format!("{} KiB", size * CACHE_LINE / 1024),
                committed(setting, contiguous, setting.attempts)?,
                committed(setting, random, setting.attempts)?,
            ]);
        }
    }
    let heads = ["lines", "number", "size", "contiguous: committed at the first attempt", "random: the same"];
    Ok(table("Capacity", &heads, &rows))
}

/// The maximum duration of a region.
pub(super) fn duration(setting: &Setting) -> Section {
    talk!("duration");
    let mut rows = Vec::new();
    for microseconds in [1.0, 10.0, 100.0, 1_000.0, 4_000.0] {
        if setting.is_small && microseconds > 10.0 {
            break;
        }
        // At most some seconds for the longest.
        let attempts = setting.attempts.min((4e6 / microseconds) as u32);
        rows.push(vec![format!("{microseconds} µs"), committed(setting, Work::Linger(microseconds), attempts)?]);
    }
    Ok(table("Duration", &["of one word loaded again and again", "committed at the first attempt"], &rows))
}

/// Regions with forced aborts, by threads that take the lock. The sum must be right.
pub(super) fn forced(setting: &Setting) -> Section {
    talk!("forced aborts");
    let htm = Htm::new(setting.htm)?;
    let mut rows = Vec::new();
    for one_in in [1_000, 100, 10, 2] {
        let (nanoseconds, regions, lost) = contend(&htm, setting.regions, Some(one_in), setting.seed);
        kept(&format!("the lock taken by hand 1 in {one_in} times"), lost)?;
        let begun_while_locked = regions.begun_while_locked;
        if begun_while_locked > 0 {
            return Err(format!("{begun_while_locked} regions began while the lock was held").into());
        }
        let mut row = vec![format!("1 in {one_in}"), format!("{nanoseconds:.1}")];
        row.extend(fates(&regions));
        rows.push(row);
    }
    let heads: Vec<&str> = ["lock taken by hand", "ns a turn"].into_iter().chain(FATES).collect();
    Ok(table("Forced aborts: two threads, one word; no increment lost", &heads, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_a_lost_increment_is_refused() {
        assert!(kept("a", 0).is_ok());
        assert!(kept("a canary", 2).is_err_and(|message| message.contains("a canary: 2 increments")));
    }
}
