//! Modelled regions on simulated cores: what ends a region, and what follows.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim::htm::{Access, Body, BodyError, Budget, Htm, HtmMode, NoLocks, Outside, RegionStatistics, SpinLock};
use seriatim_base::thread::Touch;
use seriatim_base::{CACHE_LINE, WorkerId};
use seriatim_simulate::{Costs, Machine, Role, run};

use common::{Line, guard, step};

/// At these costs no transfer overlaps with other work.
const COSTS: Costs = Costs { machine: Machine { overlapped: 60.0, ..common::COSTS.machine }, ..common::COSTS };

fn lines<const N: usize>() -> [Line; N] {
    std::array::from_fn(|_| Line(AtomicU64::new(0)))
}

/// Loads one word, looks at others for a microsecond, loads it again, and stores the sum behind it.
struct Reads<'a>([&'a AtomicU64; 2], &'a [Line]);

// SAFETY: the words outlive the run.
unsafe impl Body for Reads<'_> {
    type Output = [u64; 2];

    fn run<A: Access>(&mut self, access: &mut A) -> Result<[u64; 2], BodyError> {
        let Reads([read, written], others) = self;
        let first = access.load(read);
        access.store(written, first + 1);
        for Line(other) in &others[..100] {
            access.load(other);
        }
        Ok([first, access.load(read)])
    }
}

/// Runs the body on one core, and `interrupts` on another, 500 ns after the beginning.
fn beside(interrupts: impl Fn(&[Line]) + Copy) -> ([u64; 2], u64, RegionStatistics) {
    let (words, others) = (lines::<4>(), lines::<100>());
    let htm = Htm::new(HtmMode::Modelled).expect("always there");
    let region = || {
        let (mut agent, mut outside) = (htm.agent(WorkerId(0), Budget::default()), Outside::claim());
        let read = agent.run(&mut outside, &NoLocks, &mut Reads([&words[0].0, &words[1].0], &others));
        (read.expect("it does not refuse"), agent.statistics())
    };
    let interrupt = || {
        // Five lines of its own: 500 ns.
        (0..5).for_each(|_| step(Touch::Begin, &words[3].0));
        interrupts(&words);
        ([0; 2], RegionStatistics::default())
    };
    let ended =
        run(&COSTS, guard(), vec![Role::new("region", region), Role::new("other", interrupt)]).expect("it ends");
    let mut results = ended.results.into_iter().map(|result| result.expect("no core panics"));
    let (read, statistics) = results.next().expect("a core");
    assert_eq!(results.count(), 1, "what the other asserted holds");
    (read, words[1].0.load(Ordering::Relaxed), statistics)
}

#[test]
fn a_plain_store_to_a_line_that_a_region_read_ends_the_region_and_it_runs_again() {
    let (read, written, statistics) = beside(|_| {});
    assert_eq!((read, written, statistics.started, statistics.committed), ([0, 0], 1, 1, 1));
    let (read, written, statistics) = beside(|words| {
        step(Touch::Store, &words[0].0);
        words[0].0.store(7, Ordering::Release);
    });
    assert_eq!((read, written), ([7, 7], 8));
    assert_eq!((statistics.started, statistics.committed, statistics.aborted.conflict), (2, 1, 1));
    // The word has its value, but the line belonged to another core.
    let (read, written, statistics) = beside(|words| {
        step(Touch::Store, &words[0].0);
        words[0].0.store(0, Ordering::Release);
    });
    assert_eq!((read, written), ([0, 0], 1));
    assert_eq!((statistics.started, statistics.committed, statistics.aborted.conflict), (2, 1, 1));
}

#[test]
fn a_plain_load_of_a_line_that_a_region_wrote_ends_the_region_and_does_not_see_its_store() {
    let (_, written, statistics) = beside(|words| {
        step(Touch::Header, &words[1].0);
        assert_eq!(words[1].0.load(Ordering::Acquire), 0, "a region's stores are seen when it has committed");
    });
    assert_eq!((written, statistics.committed, statistics.aborted.conflict), (1, 1, 1));
}

#[test]
fn plain_loads_of_lines_that_a_region_read_and_stores_to_other_lines_do_not_end_it() {
    let (_, _, statistics) = beside(|words| {
        step(Touch::Header, &words[0].0);
        step(Touch::Store, &words[2].0);
    });
    assert_eq!((statistics.started, statistics.committed), (1, 1));
}

#[test]
fn a_change_without_a_step_is_found_when_the_region_commits() {
    let (read, written, statistics) = beside(|words| words[0].0.store(7, Ordering::Release));
    assert_eq!((read, written, statistics.aborted.conflict), ([7, 7], 8, 1));
}

/// Stores to this many lines, at this distance.
struct Writes<'a>(&'a [AtomicU64], usize);

// SAFETY: the words outlive the run.
unsafe impl Body for Writes<'_> {
    type Output = ();

    fn run<A: Access>(&mut self, access: &mut A) -> Result<(), BodyError> {
        for word in self.0.iter().step_by(self.1) {
            access.store(word, 1);
        }
        Ok(())
    }
}

#[test]
fn a_region_that_writes_too_much_runs_under_its_locks_once_the_retries_are_spent() {
    const WORDS: usize = CACHE_LINE / size_of::<AtomicU64>();
    let words: Vec<AtomicU64> = (0..64 * WORDS * 14).map(|_| AtomicU64::new(0)).collect();
    // Lines of one set: 12 fit, 14 do not.
    let ran = |count: usize| {
        let htm = Htm::new(HtmMode::Modelled).expect("always there");
        let lock = SpinLock::new();
        let body = || {
            let (mut agent, mut outside) = (htm.agent(WorkerId(0), Budget::default()), Outside::claim());
            let mut body = Writes(&words[..64 * WORDS * count], 64 * WORDS);
            agent.run(&mut outside, &lock, &mut body).expect("it does not refuse");
            agent.statistics()
        };
        let ended = run(&COSTS, guard(), vec![Role::new("region", body)]).expect("it ends");
        ended.results.into_iter().next().expect("a core").expect("it does not panic")
    };
    let (fits, not) = (ran(12), ran(14));
    assert_eq!((fits.committed, fits.aborted.capacity, fits.fallback), (1, 0, 0));
    assert_eq!((not.committed, not.aborted.capacity, not.fallback), (0, 10, 1));
    assert!(words.iter().step_by(64 * WORDS).all(|word| word.load(Ordering::Relaxed) == 1));
}

#[test]
fn without_cores_bodies_run_under_their_locks() {
    let words = [AtomicU64::new(0)];
    let htm = Htm::new(HtmMode::Modelled).expect("always there");
    let (mut agent, mut outside) = (htm.agent(WorkerId(0), Budget::default()), Outside::claim());
    agent.run(&mut outside, &NoLocks, &mut Writes(&words, 1)).expect("it does not refuse");
    let statistics = agent.statistics();
    assert_eq!((words[0].load(Ordering::Relaxed), statistics.committed, statistics.fallback), (1, 0, 1));
}

#[test]
fn a_panic_of_a_body_is_one_under_its_locks() {
    struct Panics;
    // SAFETY: there are no words.
    unsafe impl Body for Panics {
        type Output = ();

        fn run<A: Access>(&mut self, _: &mut A) -> Result<(), BodyError> {
            assert!(A::REGION, "outside of a region");
            panic!("in a region");
        }
    }
    let htm = Htm::new(HtmMode::Modelled).expect("always there");
    let body = || {
        let (mut agent, mut outside) = (htm.agent(WorkerId(0), Budget::default()), Outside::claim());
        let _ = agent.run(&mut outside, &NoLocks, &mut Panics);
    };
    let ended = run(&COSTS, guard(), vec![Role::new("region", body)]).expect("it ends");
    let panic = ended.results.into_iter().next().expect("a core").expect_err("it panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"outside of a region"));
}
