//! Drives a workload through an executor: a few threads make calls, each for many terminals with one
//! transaction in progress.
//!
//! The latency of a call ends when the executor has published its result: the call's waker records the time.
//! Each terminal has one transaction at a time, so [`outstanding`] bounds the queue of the executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use seriatim::clock::Instant;
use seriatim::thread::{self, Thread};
use seriatim::{Batch, Database, Executor};
use seriatim_workload::{ExecutorClient, LoadError, Outcome, Started, Terminal, Workload};

use crate::runner::{self, MEASURE, Measured, Plan, STOP, ThreadResults};

/// The least number of calls in progress for each thread of the executor. A batch of 4 for each thread runs while the
/// next batch gathers (Ding, Kot, Gehrke, §5.5).
const OUTSTANDING_EACH: usize = 8;

/// How often a calling thread checks for the end of the run if nothing else wakes it.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The number of calling threads. Making a call costs less than running it, so one thread serves two threads of
/// the executor.
pub(crate) fn threads(plan: &Plan) -> usize {
    if plan.batch == Batch::Off { 0 } else { plan.threads.div_ceil(2) }
}

/// Calls in progress, of all threads: two batches, so that one is queued while the other runs. It is the same
/// for all sizes up to 4 for each thread, so that these can be compared.
pub(crate) fn outstanding(plan: &Plan) -> usize {
    let batches = if let Batch::Size(calls) = plan.batch { 2 * calls } else { 0 };
    batches.max(OUTSTANDING_EACH * plan.threads)
}

/// Runs the plan through the executor; as [`runner::run`].
pub(crate) fn run(
    db: &Database,
    executor: Executor,
    workload: &dyn Workload,
    plan: &Plan,
    tick: impl FnMut(u64, u64, bool),
) -> Result<Measured, LoadError> {
    let (executor, seats) = (Arc::new(executor), seats(db, workload, plan)?);
    let one =
        |seats, phase: &AtomicU8, count: &AtomicU64| serve(db, workload, Arc::clone(&executor), seats, phase, count);
    let (mut measured, base) = runner::drive(db, workload, plan, seats, one, || executor.batch_statistics(), tick);
    measured.batches = Some(executor.batch_statistics().since(base));
    Ok(measured)
}

/// The terminals of each seat of each calling thread.
pub(crate) type Seats = Vec<Vec<Box<dyn Terminal>>>;

pub(crate) fn seats(db: &Database, workload: &dyn Workload, plan: &Plan) -> Result<Vec<Seats>, LoadError> {
    let threads = threads(plan);
    let mut seats: Vec<Seats> = (0..threads).map(|_| Vec::new()).collect();
    for (at, terminals) in runner::terminals(db, workload, plan, outstanding(plan))?.into_iter().enumerate() {
        seats[at % threads].push(terminals);
    }
    Ok(seats)
}

/// Makes calls for these seats from now until the phase is STOP.
pub(crate) fn serve(
    db: &Database,
    workload: &dyn Workload,
    executor: Arc<Executor>,
    seats: Seats,
    phase: &AtomicU8,
    count: &AtomicU64,
) -> ThreadResults {
    let client = ExecutorClient::new(executor, db.session());
    let ended = Arc::new(Ended { list: Mutex::default(), owner: thread::current() });
    let seat = |(at, terminals)| Seat::new(terminals, Waker::from(Arc::new(Notice { at, ended: Arc::clone(&ended) })));
    let seats = seats.into_iter().enumerate().map(seat).collect();
    Caller { client, seats, ended, part: ThreadResults::new(workload), measures: false }.run(phase, count)
}

/// Calls that have ended: their seats and times.
struct Ended {
    list: Mutex<Vec<(usize, Instant)>>,
    owner: Thread,
}

impl Ended {
    fn add(&self, at: usize) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push((at, Instant::now()));
        if list.len() == 1 {
            self.owner.unpark();
        }
    }

    fn take(&self, into: &mut Vec<(usize, Instant)>) {
        into.append(&mut self.list.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A waker that records the end of a seat's call.
struct Notice {
    at: usize,
    ended: Arc<Ended>,
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ended.add(self.at);
    }
}

/// Terminals that take turns. One of them has a transaction in progress.
struct Seat {
    terminals: Vec<Box<dyn Terminal>>,
    next: usize,
    started: Option<Started>,
    began: Instant,
    waker: Waker,
}

impl Seat {
    fn new(terminals: Vec<Box<dyn Terminal>>, waker: Waker) -> Seat {
        Seat { terminals, next: 0, started: None, began: Instant::now(), waker }
    }

    /// Starts the next transaction. Returns its outcome if it is available at once.
    fn start(&mut self, client: &mut ExecutorClient) -> Option<Outcome> {
        let terminals = self.terminals.len();
        let terminal = &mut self.terminals[self.next];
        self.next = if self.next + 1 == terminals { 0 } else { self.next + 1 };
        self.began = Instant::now();
        self.started = Some(terminal.start_one(client));
        self.outcome()
    }

    /// Returns the outcome if it is available. Otherwise the waker will be called.
    fn outcome(&mut self) -> Option<Outcome> {
        let started = self.started.as_mut()?;
        match Pin::new(started).poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(outcome) => {
                self.started = None;
                Some(outcome)
            }
            Poll::Pending => None,
        }
    }
}

struct Caller {
    client: ExecutorClient,
    seats: Vec<Seat>,
    ended: Arc<Ended>,
    part: ThreadResults,
    /// Whether transactions that end are counted.
    measures: bool,
}

impl Caller {
    fn run(mut self, phase: &AtomicU8, count: &AtomicU64) -> ThreadResults {
        let (mut total, mut begin) = (0, Instant::now());
        let mut last = begin;
        let mut ended = Vec::with_capacity(self.seats.len());
        // Outcomes that were available before a waker was registered.
        let mut early: Vec<Option<Outcome>> = self.seats.iter().map(|_| None).collect();
        (0..self.seats.len()).for_each(|at| early[at] = self.start(at));
        loop {
            match phase.load(Ordering::Relaxed) {
                STOP => break,
                _ if self.part.is_full => {
                    phase.store(STOP, Ordering::Relaxed);
                    break;
                }
                MEASURE if !self.measures => {
                    self.measures = true;
                    begin = Instant::now();
                    last = begin;
                }
                _ => {}
            }
            self.ended.take(&mut ended);
            if ended.is_empty() {
                thread::park_timeout(LOOK_INTERVAL);
                continue;
            }
            for (at, when) in ended.drain(..) {
                let seat = &mut self.seats[at];
                let Some(outcome) = early[at].take().or_else(|| seat.outcome()) else { continue };
                if self.measures {
                    self.part.count(outcome, when.since(seat.began));
                } else {
                    self.part.look(&outcome);
                }
                total += 1;
                early[at] = self.start(at);
            }
            last = Instant::now();
            count.store(total, Ordering::Relaxed);
        }
        if self.measures {
            self.part.seconds = last.since(begin).as_secs_f64();
        }
        early.into_iter().flatten().for_each(|outcome| self.part.look_after(outcome));
        self.end();
        self.part
    }

    /// Starts a transaction of a seat. If it has ended, records that and returns its outcome.
    fn start(&mut self, at: usize) -> Option<Outcome> {
        let outcome = self.seats[at].start(&mut self.client)?;
        self.ended.add(at);
        Some(outcome)
    }

    fn end(&mut self) {
        for seat in &mut self.seats {
            while seat.started.is_some() {
                match seat.outcome() {
                    Some(outcome) => self.part.look_after(outcome),
                    None => thread::park_timeout(LOOK_INTERVAL),
                }
            }
        }
    }
}
