//! Drives any workload: terminals on threads, a warm-up that does not count, a line a second, histograms per kind.
//!
//! Each thread owns its histograms and counters; what the progress line reads is a relaxed copy. One clock reading a
//! transaction: the end of one is the beginning of the next.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use seriatim::clock::Instant;
use seriatim::{Database, Statistics, TransactError, thread};
use seriatim_workload::{Ending, LoadError, Workload};

const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// Nanoseconds; latencies above are counted as this.
const LATENCY_MAX: u64 = 60_000_000_000;

/// What to run.
pub(crate) struct Plan {
    pub(crate) threads: usize,
    pub(crate) seconds: f64,
    pub(crate) warmup: f64,
    pub(crate) seed: u64,
}

/// What became of one kind of transaction.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) committed: u64,
    pub(crate) user_aborted: u64,
    /// Nanoseconds of committed transactions and of rollbacks that the workload asks for.
    pub(crate) latency: Histogram<u64>,
}

/// What a run came to, the warm-up left out.
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) kinds: Vec<Kind>,
    /// Transactions that failed although they should not, with an example.
    pub(crate) failed: u64,
    pub(crate) failure: Option<TransactError>,
    /// What the database counted meanwhile; memory as of the end.
    pub(crate) statistics: Statistics,
}

impl Measured {
    pub(crate) fn committed(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.committed).sum()
    }

    pub(crate) fn user_aborted(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.user_aborted).sum()
    }

    /// Latencies of all kinds together.
    pub(crate) fn latency(&self) -> Histogram<u64> {
        let mut all = histogram();
        for kind in &self.kinds {
            all.add(&kind.latency).expect("histograms of one shape");
        }
        all
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX, 3).expect("three digits up to a minute")
}

/// One thread's results.
struct Part {
    seconds: f64,
    kinds: Vec<Kind>,
    failed: u64,
    failure: Option<TransactError>,
}

/// Runs the plan. `tick` gets the second, the transactions of that second, and whether it is warm-up.
pub(crate) fn run(
    db: &Database,
    workload: &dyn Workload,
    plan: &Plan,
    mut tick: impl FnMut(u64, u64, bool),
) -> Result<Measured, LoadError> {
    let phase = AtomicU8::new(if plan.warmup > 0.0 { WARM_UP } else { MEASURE });
    let counts: Vec<_> = (0..plan.threads).map(|_| Count(AtomicU64::new(0))).collect();
    let terminals = (0..plan.threads)
        .map(|at| workload.terminal(db, at as u16, plan.seed.wrapping_add(at as u64 + 1)))
        .collect::<Result<Vec<_>, _>>()?;
    let (parts, base) = thread::scope(|scope| {
        let running: Vec<_> = terminals
            .into_iter()
            .zip(&counts)
            .map(|(mut terminal, count)| {
                let phase = &phase;
                scope.spawn(move || {
                    let mut session = db.session();
                    let kinds = workload.kinds().iter();
                    let mut part = Part {
                        seconds: 0.0,
                        kinds: kinds
                            .map(|name| Kind { name, committed: 0, user_aborted: 0, latency: histogram() })
                            .collect(),
                        failed: 0,
                        failure: None,
                    };
                    let mut total = 0;
                    while phase.load(Ordering::Relaxed) == WARM_UP {
                        terminal.run_one(&mut session);
                        total += 1;
                        count.0.store(total, Ordering::Relaxed);
                    }
                    let begin = Instant::now();
                    let mut last = begin;
                    while phase.load(Ordering::Relaxed) == MEASURE {
                        let outcome = terminal.run_one(&mut session);
                        let now = Instant::now();
                        let kind = &mut part.kinds[outcome.kind];
                        match outcome.ending {
                            Ending::Committed => kind.committed += 1,
                            Ending::UserAborted => kind.user_aborted += 1,
                            Ending::Failed(error) => {
                                part.failed += 1;
                                part.failure = Some(error);
                            }
                        }
                        kind.latency.saturating_record(now.since(last).as_nanos() as u64);
                        last = now;
                        total += 1;
                        count.0.store(total, Ordering::Relaxed);
                    }
                    part.seconds = last.since(begin).as_secs_f64();
                    part
                })
            })
            .collect();
        let sum = || counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum::<u64>();
        let begin = Instant::now();
        let (warm, end) = (plan.warmup, plan.warmup + plan.seconds);
        let (mut second, mut before) = (0u64, 0u64);
        let mut base = db.statistics();
        loop {
            let now = begin.elapsed().as_secs_f64();
            if now >= warm && phase.load(Ordering::Relaxed) == WARM_UP {
                base = db.statistics();
                phase.store(MEASURE, Ordering::Relaxed);
            }
            if now >= end {
                break;
            }
            let mut next = ((second + 1) as f64).min(end);
            if now < warm {
                next = next.min(warm);
            }
            thread::sleep(Duration::from_secs_f64((next - now).max(0.0)));
            if begin.elapsed().as_secs_f64() >= (second + 1) as f64 {
                second += 1;
                let after = sum();
                tick(second, after - before, (second as f64) <= warm);
                before = after;
            }
        }
        phase.store(STOP, Ordering::Relaxed);
        let join = |thread: thread::ScopedJoinHandle<'_, Part>| thread.join().expect("a terminal does not panic");
        (running.into_iter().map(join).collect::<Vec<_>>(), base)
    });
    Ok(merge(workload, parts, db.statistics().since(&base)))
}

/// A counter alone on its cache lines.
#[repr(align(128))]
struct Count(AtomicU64);

fn merge(workload: &dyn Workload, parts: Vec<Part>, statistics: Statistics) -> Measured {
    let kinds = workload.kinds().iter();
    let mut measured = Measured {
        seconds: 0.0,
        kinds: kinds.map(|name| Kind { name, committed: 0, user_aborted: 0, latency: histogram() }).collect(),
        failed: 0,
        failure: None,
        statistics,
    };
    for part in parts {
        measured.seconds = measured.seconds.max(part.seconds);
        measured.failed += part.failed;
        measured.failure = measured.failure.or(part.failure);
        for (sum, kind) in measured.kinds.iter_mut().zip(part.kinds) {
            sum.committed += kind.committed;
            sum.user_aborted += kind.user_aborted;
            sum.latency.add(kind.latency).expect("histograms of one shape");
        }
    }
    measured
}
