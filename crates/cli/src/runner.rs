//! Drives any workload: terminals on threads, a warm-up that is not measured, progress each second, histograms
//! per kind of transaction.
//!
//! Each thread owns its histograms and counters; the progress line reads relaxed copies. The clock is read once per
//! transaction: the end of one is the beginning of the next. If results wait for durability, a thread has a queue of
//! outstanding results, and a transaction counts when its result is released. A thread serves its terminals in turn.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use seriatim::clock::{Instant, thread_processor_time};
use seriatim::{
    Batch, BatchPlacement, BatchStatistics, Database, Durability, Session, Statistics, TransactError, thread,
};
use seriatim_base::{interrupt, talk};
use seriatim_bench::stationary;
use seriatim_workload::{Ending, LoadError, Outcome, Submitted, Terminal, Workload};

use crate::machine::Machine;
use crate::working_sets::WorkingSets;
use crate::{callers, simulated};

pub(crate) const WARM_UP: u8 = 0;
pub(crate) const MEASURE: u8 = 1;
pub(crate) const STOP: u8 = 2;

/// How often a run that is over is checked for its first measured transaction.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// How often a run checks for a signal.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Seconds of a measurement from which on its halves are compared.
const HALVES_MIN: f64 = 1.0;

/// The largest latency of histograms, in nanoseconds.
const LATENCY_MAX: u64 = 60_000_000_000;

pub(crate) struct Plan {
    pub(crate) threads: usize,
    pub(crate) seconds: f64,
    pub(crate) warmup: f64,
    pub(crate) seed: u64,
    pub(crate) durability: Durability,
    /// The most results of a thread that wait for durability.
    pub(crate) outstanding: usize,
    /// Whether an executor runs the transactions, and how it batches them.
    pub(crate) batch: Batch,
    pub(crate) batch_placement: BatchPlacement,
    /// Whether memory is touched at the end of the warm-up: the amount that the measurement needs if it grows
    /// as the warm-up did.
    pub(crate) touches: bool,
    /// Whether the warm-up continues until throughput is stationary.
    pub(crate) settles: bool,
}

impl Plan {
    /// Whether results wait for durability.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.durability, Durability::Group | Durability::Sync)
    }
}

/// The results of one kind of transaction.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) committed: u64,
    pub(crate) user_aborted: u64,
    /// Nanoseconds until transactions were decided: commits, and rollbacks that the workload requests.
    pub(crate) latency: Histogram<u64>,
    /// On simulated cores, the lines that regions of commits touched.
    pub(crate) working_sets: WorkingSets,
}

/// How many epochs the durable epoch was behind, sampled once a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lag {
    samples: u64,
    sum: u64,
    pub(crate) most: u64,
}

impl Lag {
    fn sample(&mut self, db: &Database) {
        let log = db.statistics().log.unwrap_or_default();
        let lag = log.epoch.saturating_sub(log.durable_epoch);
        *self = Lag { samples: self.samples + 1, sum: self.sum + lag, most: self.most.max(lag) };
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum as f64 / self.samples.max(1) as f64
    }
}

/// The results of a run, without the warm-up.
pub(crate) struct Measured {
    /// The length of the measurement. Transactions count if they begin within it. One that waits for long may
    /// end later, and does not make the others seem slower.
    pub(crate) seconds: f64,
    pub(crate) kinds: Vec<Kind>,
    /// Transactions that failed unexpectedly, with an example.
    pub(crate) failed: u64,
    pub(crate) failure: Option<TransactError>,
    /// Seconds of the warm-up, and whether throughput was then stationary, if that was requested.
    pub(crate) warmup: (f64, Option<bool>),
    /// Transactions in each half of the measurement; `None` if it was too short.
    pub(crate) halves: Option<[u64; 2]>,
    /// Whether the run ended early at the memory limit.
    pub(crate) is_full: bool,
    /// Nanoseconds from the beginning of transactions until their results were released; `None` if results do not wait.
    pub(crate) durable: Option<Histogram<u64>>,
    pub(crate) lag: Lag,
    /// Counts of batching; `None` without an executor.
    pub(crate) batches: Option<BatchStatistics>,
    /// Configuration and counts of simulated cores.
    pub(crate) simulated: Option<serde_json::Value>,
    /// Processor time of the threads; `None` if the system does not report it.
    pub(crate) processor_seconds: Option<f64>,
    /// Counts of the database; memory at the end.
    pub(crate) statistics: Statistics,
}

impl Measured {
    /// Empty results, with the counts of the database.
    pub(crate) fn new(workload: &dyn Workload, statistics: Statistics) -> Measured {
        Measured {
            seconds: 0.0,
            kinds: kinds(workload),
            failed: 0,
            failure: None,
            warmup: (0.0, None),
            halves: None,
            is_full: false,
            durable: None,
            lag: Lag::default(),
            batches: None,
            simulated: None,
            processor_seconds: None,
            statistics,
        }
    }

    pub(crate) fn committed(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.committed).sum()
    }

    pub(crate) fn user_aborted(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.user_aborted).sum()
    }

    pub(crate) fn latency(&self) -> Histogram<u64> {
        let mut all = histogram();
        for kind in &self.kinds {
            all.add(&kind.latency).expect("histograms of one layout");
        }
        all
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX, 3).expect("three digits up to a minute")
}

pub(crate) struct ThreadResults {
    /// From its first measured transaction to the end of its last.
    pub(crate) seconds: f64,
    /// As in [`Measured`].
    processor_seconds: Option<f64>,
    kinds: Vec<Kind>,
    durable: Histogram<u64>,
    failed: u64,
    failure: Option<TransactError>,
    /// Whether memory was refused.
    pub(crate) is_full: bool,
}

impl ThreadResults {
    pub(crate) fn new(workload: &dyn Workload) -> ThreadResults {
        ThreadResults {
            seconds: 0.0,
            processor_seconds: None,
            kinds: kinds(workload),
            durable: histogram(),
            failed: 0,
            failure: None,
            is_full: false,
        }
    }

    /// Examines a transaction that does not count.
    pub(crate) fn look(&mut self, outcome: &Outcome) {
        self.is_full |= matches!(outcome.ending, Ending::Failed(TransactError::OutOfMemory { .. }));
    }

    /// Examines a transaction that ended after the run. It does not count, but must not have failed.
    pub(crate) fn look_after(&mut self, outcome: Outcome) {
        self.look(&outcome);
        if let Ending::Failed(error) = outcome.ending
            && !matches!(error, TransactError::OutOfMemory { .. })
        {
            self.failed += 1;
            self.failure = Some(error);
        }
    }

    /// Counts a transaction that was decided after this time.
    pub(crate) fn count(&mut self, outcome: Outcome, decided: Duration) {
        if let Ending::Failed(TransactError::OutOfMemory { .. }) = outcome.ending {
            self.is_full = true;
            return;
        }
        let kind = &mut self.kinds[outcome.kind];
        match outcome.ending {
            Ending::Committed => kind.committed += 1,
            Ending::UserAborted => kind.user_aborted += 1,
            Ending::Failed(error) => {
                self.failed += 1;
                self.failure = Some(error);
            }
        }
        kind.latency.saturating_record(decided.as_nanos() as u64);
    }
}

fn kinds(workload: &dyn Workload) -> Vec<Kind> {
    let names = workload.kinds().iter();
    let kind = |name: &&'static str| {
        let (latency, working_sets) = (histogram(), WorkingSets::default());
        Kind { name, committed: 0, user_aborted: 0, latency, working_sets }
    };
    names.map(kind).collect()
}

struct Client<'r> {
    session: Session,
    terminals: Vec<Box<dyn Terminal>>,
    phase: &'r AtomicU8,
    /// Transactions so far, including the warm-up.
    count: &'r AtomicU64,
    part: ThreadResults,
    /// Whether transactions count.
    measures: bool,
    /// When the last transaction ended.
    last: Instant,
}

/// A transaction whose result may be waiting for durability.
struct Waiting {
    submitted: Submitted,
    began: Instant,
    decided: Duration,
}

impl Client<'_> {
    /// Runs until the end of the run. `one` runs a transaction of the terminal at an index.
    fn run(mut self, mut one: impl FnMut(&mut Self, usize), end: impl FnOnce(&mut Self)) -> ThreadResults {
        let (mut next, mut total, mut begin) = (0, 0, self.last);
        let mut processor = thread_processor_time();
        loop {
            match self.phase.load(Ordering::Relaxed) {
                STOP => break,
                _ if self.part.is_full => {
                    self.phase.store(STOP, Ordering::Relaxed);
                    break;
                }
                MEASURE if !self.measures => {
                    self.measures = true;
                    self.last = Instant::now();
                    begin = self.last;
                    processor = thread_processor_time();
                }
                _ => {}
            }
            one(&mut self, next);
            next = if next + 1 == self.terminals.len() { 0 } else { next + 1 };
            total += 1;
            self.count.store(total, Ordering::Relaxed);
        }
        if self.measures {
            self.part.seconds = self.last.since(begin).as_secs_f64();
        }
        let used = thread_processor_time().zip(processor).map(|(now, before)| now.saturating_sub(before));
        self.part.processor_seconds = used.map(|used| used.as_secs_f64());
        end(&mut self);
        self.part
    }

    fn run_one(&mut self, terminal: usize) {
        let outcome = self.terminals[terminal].run_one(&mut self.session);
        let (now, before) = (Instant::now(), self.last);
        self.last = now;
        // Also after a transaction that does not count: later calls return only newer regions.
        let regions = simulated::working_sets();
        if self.measures {
            if matches!(outcome.ending, Ending::Committed) {
                self.part.kinds[outcome.kind].working_sets.count(&regions);
            }
            self.part.count(outcome, now.since(before));
        } else {
            self.part.look(&outcome);
        }
    }

    /// Submits a transaction and takes available results. Waits for one if `most` are outstanding.
    fn submit_one(&mut self, terminal: usize, queue: &mut VecDeque<Waiting>, most: usize) {
        let submitted = self.terminals[terminal].submit_one(&mut self.session);
        let (now, began) = (Instant::now(), self.last);
        self.last = now;
        queue.push_back(Waiting { submitted, began, decided: now.since(began) });
        while queue.front().is_some_and(|first| queue.len() >= most || first.submitted.is_ready()) {
            let Some(first) = queue.pop_front() else { break };
            self.take(first);
        }
    }

    /// Takes a result when it is released.
    fn take(&mut self, Waiting { submitted, began, decided }: Waiting) {
        let is_ready = submitted.is_ready();
        let outcome = submitted.wait();
        if !is_ready {
            self.last = Instant::now();
        }
        if !self.measures {
            self.part.look(&outcome);
        } else {
            self.part.count(outcome, decided);
            self.part.durable.saturating_record(self.last.since(began).as_nanos() as u64);
        }
    }
}

/// Runs the plan, each terminal on its own thread. `tick` gets the second, the transactions of that second, and
/// whether it is warm-up.
pub(crate) fn run(
    db: &Database,
    workload: &dyn Workload,
    plan: &Plan,
    tick: impl FnMut(u64, u64, bool),
) -> Result<Measured, LoadError> {
    let terminals = terminals(db, workload, plan, plan.threads)?;
    let one = |terminals, phase: &AtomicU8, count: &AtomicU64| serve(db, workload, plan, terminals, phase, count);
    Ok(drive(db, workload, plan, terminals, one, || {}, tick).0)
}

/// Serves these terminals in turn, from now until the phase is STOP.
pub(crate) fn serve(
    db: &Database,
    workload: &dyn Workload,
    plan: &Plan,
    terminals: Vec<Box<dyn Terminal>>,
    phase: &AtomicU8,
    count: &AtomicU64,
) -> ThreadResults {
    let (session, part, last) = (db.session(), ThreadResults::new(workload), Instant::now());
    let client = Client { session, terminals, phase, count, part, measures: false, last };
    if !plan.waits() {
        return client.run(Client::run_one, |_| {});
    }
    // Borrowed by one of the two closures at a time.
    let queue = RefCell::new(VecDeque::with_capacity(plan.outstanding));
    client.run(
        |client, terminal| client.submit_one(terminal, &mut queue.borrow_mut(), plan.outstanding),
        |client| {
            for waiting in queue.borrow_mut().drain(..) {
                client.part.look_after(waiting.submitted.wait());
            }
        },
    )
}

/// The terminals, distributed over `servers` threads.
pub(crate) fn terminals(
    db: &Database,
    workload: &dyn Workload,
    plan: &Plan,
    servers: usize,
) -> Result<Vec<Vec<Box<dyn Terminal>>>, LoadError> {
    let terminal = |at: usize| workload.terminal(db, at as u16, plan.seed.wrapping_add(at as u64 + 1));
    let served = |server| (server..usize::from(workload.terminals()).max(servers)).step_by(servers).map(terminal);
    (0..servers).map(|server| served(server).collect()).collect()
}

/// Runs `one` on a thread for each of `inputs`, with the phase and a counter of its transactions. Also returns
/// what `counted` returned when the measurement began. The measurement continues until each thread has ended
/// one of its transactions, however busy the machine is.
pub(crate) fn drive<I: Send, C>(
    db: &Database,
    workload: &dyn Workload,
    plan: &Plan,
    inputs: Vec<I>,
    one: impl Fn(I, &AtomicU8, &AtomicU64) -> ThreadResults + Sync,
    counted: impl Fn() -> C,
    mut tick: impl FnMut(u64, u64, bool),
) -> (Measured, C) {
    let phase = AtomicU8::new(if plan.warmup > 0.0 { WARM_UP } else { MEASURE });
    let counts: Vec<_> = inputs.iter().map(|_| Count(AtomicU64::new(0))).collect();
    let mut lag = Lag::default();
    // Taken before any thread begins: without a warm-up the first attempts count.
    let mut base = (db.statistics(), counted());
    let (parts, base, (seconds, warmup, halves)) = thread::scope(|scope| {
        let (phase, one) = (&phase, &one);
        let running: Vec<_> = inputs
            .into_iter()
            .zip(&counts)
            .map(|(input, count)| scope.spawn(move || one(input, phase, &count.0)))
            .collect();
        let each = || counts.iter().map(|count| count.0.load(Ordering::Relaxed));
        let sum = || each().sum::<u64>();
        // Transactions of a thread that may have begun before the measurement and end in it.
        let under_way = if plan.batch == Batch::Off { 1 } else { callers::outstanding(plan) as u64 };
        let mut unmeasured = vec![0; counts.len()];
        let begin = Instant::now();
        let (mut warm, mut end) = (plan.warmup, plan.warmup + plan.seconds);
        let (mut second, mut before) = (0u64, 0u64);
        let (mut windows, mut windowed, mut settled) = (Vec::new(), 0, None);
        let (mut middle, mut first_half) = (f64::INFINITY, None);
        let (mut half, mut warmed) = (Memory { seconds: 0.0, bytes: base.0.memory_bytes }, 0.0);
        let mut from = begin;
        loop {
            let now = begin.elapsed().as_secs_f64();
            if plan.settles && now >= (windows.len() + 1) as f64 * stationary::WINDOW {
                let count = sum();
                windows.push(count - windowed);
                windowed = count;
            }
            if now >= warm && plan.settles && settled.is_none() {
                let is_settled = stationary::is_settled(&windows);
                match is_settled || now >= stationary::SECONDS_MAX.max(plan.warmup) {
                    true => settled = Some(is_settled),
                    false => (warm, end) = (now + stationary::WINDOW, f64::INFINITY),
                }
            }
            if first_half.is_none() && now >= middle {
                first_half = Some(sum());
            }
            if plan.touches && half.seconds == 0.0 && (plan.warmup / 2.0..warm).contains(&now) {
                half = Memory { seconds: now, bytes: db.statistics().memory_bytes };
            }
            if now >= warm && phase.load(Ordering::Relaxed) == WARM_UP {
                warmed = now;
                if plan.touches {
                    touch(db, half, now, plan.seconds);
                }
                warm = begin.elapsed().as_secs_f64();
                end = warm + plan.seconds;
                base = (db.statistics(), counted());
                from = Instant::now();
                // Has no effect if a terminal has stopped the run.
                let _ = phase.compare_exchange(WARM_UP, MEASURE, Ordering::Relaxed, Ordering::Relaxed);
                unmeasured = each().collect();
            }
            if middle.is_infinite() && phase.load(Ordering::Relaxed) == MEASURE && plan.seconds >= HALVES_MIN {
                middle = warm + plan.seconds / 2.0;
            }
            let mut threads = running.iter().zip(each().zip(&unmeasured));
            let has_measured =
                threads.all(|(thread, (count, unmeasured))| thread.is_finished() || count > unmeasured + under_way);
            let is_stopped = phase.load(Ordering::Relaxed) == STOP || interrupt::is_requested();
            if now >= end && has_measured || is_stopped {
                lag.sample(db);
                break;
            }
            let mut next = ((second + 1) as f64).min(end);
            for at in [plan.warmup / 2.0, warm].into_iter().filter(|at| now < *at) {
                next = next.min(at);
            }
            let pause = if now < end { Duration::from_secs_f64((next - now).max(0.0)) } else { LOOK_INTERVAL };
            thread::sleep(pause.min(SIGNAL_INTERVAL));
            if begin.elapsed().as_secs_f64() >= (second + 1) as f64 {
                second += 1;
                lag.sample(db);
                let after = sum();
                tick(second, after - before, (second as f64) <= warm);
                before = after;
            }
        }
        let is_measured = phase.load(Ordering::Relaxed) != WARM_UP;
        let seconds = if is_measured { from.elapsed().as_secs_f64() } else { 0.0 };
        phase.store(STOP, Ordering::Relaxed);
        let join =
            |thread: thread::ScopedJoinHandle<'_, ThreadResults>| thread.join().expect("a terminal does not panic");
        let unmeasured = unmeasured.iter().sum::<u64>();
        let halves = first_half.map(|count| [count - unmeasured, sum() - count]);
        let warmup = (if is_measured { warmed } else { 0.0 }, settled);
        (running.into_iter().map(join).collect::<Vec<_>>(), base, (seconds, warmup, halves))
    });
    let (statistics, counted) = base;
    let durable = plan.waits().then(histogram);
    let measured =
        Measured { durable, lag, warmup, halves, ..Measured::new(workload, db.statistics().since(&statistics)) };
    (merge(measured, parts, seconds), counted)
}

/// Memory grows by at most this factor of the estimate from the warm-up.
const MARGIN: f64 = 1.25;

/// Memory in use at a time of the warm-up.
#[derive(Clone, Copy)]
struct Memory {
    seconds: f64,
    bytes: usize,
}

/// Touches the memory that a measurement needs, so that transactions do not wait for fresh pages. `half` is from the
/// middle of the warm-up, and `now` is its end.
fn touch(db: &Database, half: Memory, now: f64, seconds: f64) {
    let end = Memory { seconds: now, bytes: db.statistics().memory_bytes };
    let mib = growth(half, end, seconds, Machine::here().memory_bytes) >> 20;
    if mib > 0 {
        talk!("touching {mib} MiB");
        if let Err(error) = db.prefault(mib << 20) {
            talk!("not touched, so transactions wait for fresh pages: {error}");
        }
    }
}

/// Bytes that a run of `seconds` needs if memory grows as in the second half of the warm-up. The first half has the
/// pools and versions that every run has once. At most half of the machine's memory.
fn growth(half: Memory, end: Memory, seconds: f64, memory: Option<u64>) -> usize {
    let (grown, period) = (end.bytes.saturating_sub(half.bytes) as f64, (end.seconds - half.seconds).max(1e-3));
    (grown / period * seconds * MARGIN).min(memory.unwrap_or(4 << 30) as f64 / 2.0) as usize
}

/// A counter on its own cache lines.
#[repr(align(128))]
struct Count(AtomicU64);

/// Adds up the results of the threads. A thread without memory ended the measurement early.
pub(crate) fn merge(mut measured: Measured, parts: Vec<ThreadResults>, seconds: f64) -> Measured {
    let longest = parts.iter().map(|part| part.seconds).fold(0.0, f64::max);
    measured.seconds = if parts.iter().any(|part| part.is_full) { longest } else { seconds };
    for part in parts {
        if let Some(seconds) = part.processor_seconds {
            *measured.processor_seconds.get_or_insert(0.0) += seconds;
        }
        measured.failed += part.failed;
        measured.is_full |= part.is_full;
        measured.failure = measured.failure.or(part.failure);
        if let Some(durable) = &mut measured.durable {
            durable.add(part.durable).expect("histograms of one layout");
        }
        for (sum, kind) in measured.kinds.iter_mut().zip(part.kinds) {
            sum.committed += kind.committed;
            sum.user_aborted += kind.user_aborted;
            sum.latency.add(kind.latency).expect("histograms of one layout");
            sum.working_sets.add(&kind.working_sets);
        }
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_expected_to_grow_as_in_the_second_half_of_the_warm_up() {
        let at = |seconds, mib: usize| Memory { seconds, bytes: mib << 20 };
        let grows = |half, end| growth(half, end, 10.0, Some(8 << 30)) >> 20;
        assert_eq!(grows(at(1.0, 100), at(2.0, 128)), 350);
        assert_eq!(grows(at(1.0, 100), at(2.0, 100)), 0, "whatever the first half took");
        assert_eq!(grows(at(1.0, 100), at(2.0, 90)), 0);
        assert_eq!(grows(at(0.0, 0), at(2.0, 4096)), 4096);
    }
}
