//! Threads that run transactions for callers that do not block.
//!
//! A thread holds up to [`Engine::held_max`] executed transactions with queued decisions, each in a session of its own.
//! It never waits for a transaction that it holds itself. So a thread that holds transactions does not wait for a
//! worker, run [`Work::Whole`], or sleep before a retry: it decides them first.
//!
//! *No transaction that has been executed waits for the body of another.* A thread may begin a body while it holds
//! transactions, or results that are not durable yet. It then ensures that an idle thread watches. Watching threads and
//! working threads check the others each [`HELD_UP`]. If a thread has run the same body for that long, they decide its
//! executed transactions and return its results. So a result is late by some [`HELD_UP`], unless *all* threads run long
//! bodies.
//!
//! The [work queue](crate::work_queue) determines what a thread begins next. A batched call may conflict with the
//! previous one, so a thread begins none while it holds transactions. If the database has partitions, a call goes to
//! the thread that [owns](crate::owners) its partitions.
//!
//! Each call that has not begun has a [permit](crate::permits), of which there are [`Settings::executor_queue_max`]. A
//! caller waits for a permit, or gets an error from [`Executor::try_reserve`]. A body that submits work to an executor
//! gets a permit beyond the bound, as its own thread might have to free one.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::process::Process;
use seriatim_base::thread::{self, JoinHandle, Thread};
use seriatim_txn::{PartitionSet, Partitions, Prepared};

use crate::owners::{self, Owners, Seen};
use crate::permits::{self, Permit, Permits};
use crate::settings::within;
use crate::tx::TxCore;
use crate::work_queue::{Footprint, Next, OpenBatch, WorkQueue};
use crate::{
    Advance, Batch, BatchStatistics, Canceller, Committed, Decided, Detached, Engine, OpenError, Origin, Pending,
    Runner, Settings, Step, TransactError,
};

/// The session in which an executor runs its work.
pub trait ExecutorSession: Send + 'static {
    /// The runner of its transactions.
    fn runner(&mut self) -> &mut Runner;

    /// Resets it to its initial state.
    fn reset(&mut self);
}

/// Threads that run work, first come, first served; or calls in [batches](crate::Batch), if enabled.
///
/// Dropping it waits until all its work has run, unless its own work drops it.
pub struct Executor<S> {
    permits: Arc<Permits>,
    shared: Arc<Shared<S>>,
    /// The partitions, if its threads own them.
    partitions: Option<Arc<Partitions>>,
    threads: Vec<JoinHandle<()>>,
}

/// The rows or partitions that a call is expected to touch, as far as they are known before it runs.
#[derive(Clone, Debug, Default)]
pub enum PredictedAccess {
    /// Nothing is known: any thread runs the call.
    #[default]
    Unknown,
    /// Its rows, by which the call may be batched.
    Rows(Footprint),
    /// Its partitions, whose owner runs the call.
    Partitions(PartitionSet),
}

/// The body of a thread of an executor.
pub type ExecutorBody = Box<dyn FnOnce() + Send>;

/// Most threads of an executor.
const THREADS_MAX: usize = 1 << 12;

enum Work<S> {
    /// A closure with its own transactions.
    Whole(Box<dyn Whole<S>>),
    /// A transaction that runs in steps.
    Transaction(Box<dyn SteppedWork<S>>),
}

impl<S> Work<S> {
    /// Whether it was cancelled before it began.
    fn is_cancelled(&self) -> bool {
        match self {
            Work::Whole(whole) => whole.is_cancelled(),
            Work::Transaction(course) => course.is_cancelled(),
        }
    }
}

/// A closure with its own transactions. It may wait for earlier work.
trait Whole<S>: Send {
    fn is_cancelled(&self) -> bool;

    /// Runs it. Returns whether the session can be used again.
    fn run(self: Box<Self>, session: &mut S) -> bool;
}

/// How long a thread runs one body before other threads continue the transactions that it has executed.
const HELD_UP: Duration = Duration::from_millis(1);

thread_local! {
    /// The executor of this thread, by the address of its permits; null for none.
    static EXECUTOR: Cell<*const Permits> = const { Cell::new(std::ptr::null()) };
}

struct Shared<S> {
    /// By thread: its decided transactions, and its results that were not returned.
    inboxes: Box<[Mutex<Inbox<S>>]>,
    /// Whether calls with known footprints are batched.
    batches: bool,
    /// The owners of partitions, for calls whose partitions are known.
    owners: Option<Owners<Work<S>>>,
    /// The process that has the threads.
    process: Process,
    queue: Mutex<Queue<S>>,
}

struct Queue<S> {
    work: WorkQueue<Work<S>>,
    /// Threads that sleep and would take work.
    idle: Vec<Idle>,
    closed: bool,
}

/// A thread that sleeps.
struct Idle {
    /// Its number.
    at: usize,
    /// Whether it has undecided transactions.
    holds: bool,
    /// Whether it checks the other threads periodically.
    watches: bool,
    thread: Thread,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs user code whose panic no caller awaits: the hook has reported it.
fn contain(body: impl FnOnce()) {
    let dropped = catch_unwind(AssertUnwindSafe(body)).map_err(|panic| catch_unwind(AssertUnwindSafe(|| drop(panic))));
    if let Err(Err(panic)) = dropped {
        // A payload whose drop panics with another such payload is leaked.
        std::mem::forget(panic);
    }
}

impl<S> Shared<S> {
    fn push(&self, work: Work<S>, predicted: PredictedAccess) {
        if let (Some(owners), PredictedAccess::Partitions(partitions)) = (&self.owners, &predicted)
            && let Some(owner) = owners.thread_of(*partitions)
        {
            if owners.push(owner, work, *partitions) {
                self.wake_watcher(owners);
            }
            return;
        }
        let runs_alone = matches!(work, Work::Whole(_));
        let mut queue = lock(&self.queue);
        match predicted {
            PredictedAccess::Rows(footprint) => queue.work.push_call(work, footprint),
            _ => queue.work.push(work, runs_alone),
        }
        self.publish_numbers(&queue);
        queue.wake_one();
    }

    /// Publishes the numbers of the work in the shared queue to the owners.
    fn publish_numbers(&self, queue: &Queue<S>) {
        if let Some(owners) = &self.owners {
            let (first, last) = queue.work.numbers();
            owners.shared(first, last);
        }
    }

    /// Wakes an idle thread to watch the working ones.
    #[cold]
    fn wake_watcher(&self, owners: &Owners<Work<S>>) {
        let mut queue = lock(&self.queue);
        if let Some(idle) = queue.idle.last()
            && owners.appoint(idle.at)
            && let Some(idle) = queue.idle.pop()
        {
            idle.thread.unpark();
        }
    }

    /// The next action of the thread, which passes in its counts of calls and retries. If it begins work while it has
    /// unreturned results, another thread watches.
    fn next(
        &self,
        at: usize,
        [holds, undelivered]: [bool; 2],
        tally: &mut Tally,
        seen: &mut Option<Seen>,
    ) -> Next<Work<S>> {
        if let (Some(owners), Some(seen)) = (&self.owners, seen) {
            let next = self.next_of(owners, at, holds, seen);
            if !matches!(next, Next::Nothing) {
                self.stop_watching(at, undelivered);
            }
            return next;
        }
        let mut queue = lock(&self.queue);
        let Tally { calls, retries } = std::mem::take(tally);
        if calls > 0 {
            queue.work.ended(calls, retries);
        }
        let next = queue.work.next(at, holds);
        if undelivered && matches!(next, Next::Work(_)) {
            queue.have_watched();
        }
        next
    }

    /// The next action of a thread that owns partitions.
    fn next_of(&self, owners: &Owners<Work<S>>, at: usize, holds: bool, seen: &mut Seen) -> Next<Work<S>> {
        let taken_over = if owners.looks(seen) { owners.take_over(at, seen) } else { None };
        if let Some(work) = taken_over {
            return Next::Work(work);
        }
        loop {
            match owners.next(at) {
                owners::Next::Call(work) => {
                    if owners.neglects_shared() {
                        lock(&self.queue).wake_one();
                    }
                    return Next::Work(work);
                }
                owners::Next::Shared(number) => {
                    let mut queue = lock(&self.queue);
                    // Another thread may have taken it, and the next one may be newer than the calls of this thread.
                    if queue.work.numbers().0 == Some(number) {
                        let next = queue.work.next(at, holds);
                        self.publish_numbers(&queue);
                        owners.began(at, PartitionSet::NONE);
                        return next;
                    }
                }
                owners::Next::Nothing => return owners.take_over(at, seen).map_or(Next::Nothing, Next::Work),
            }
        }
    }

    /// Places a batch that this thread has taken, and wakes the threads that received calls.
    fn place(&self, at: usize, mut open_batch: OpenBatch<Work<S>>) {
        open_batch.decide();
        let mut queue = lock(&self.queue);
        for owner in queue.work.place(at, open_batch) {
            if owner != at {
                queue.wake(owner);
            }
        }
        // Other threads may have waited for the placement.
        queue.wake_one();
    }

    /// Whether the thread could begin something if it did not hold undecided transactions.
    fn waits_for_decisions(&self, at: usize) -> bool {
        let queue = lock(&self.queue);
        queue.work.has_next(at, false) && !queue.work.has_next(at, true)
    }

    /// Takes over a decided transaction of a thread that is held up.
    fn adopt(&self, of: usize) -> Option<(Job<S>, Decided)> {
        let mut inbox = lock(&self.inboxes[of]);
        let decided = inbox.decided.pop_front();
        inbox.adopted += usize::from(decided.is_some());
        decided
    }

    /// The thread begins a body. If it watched owners of partitions, or has unreturned results, another thread watches
    /// now.
    fn stop_watching(&self, at: usize, undelivered: bool) {
        if let Some(owners) = self.owners.as_ref().filter(|owners| owners.resign(at)) {
            self.wake_watcher(owners);
        }
        if undelivered {
            lock(&self.queue).have_watched();
        }
    }

    /// Returns the first results of a thread that are durable by now. Returns whether there were any.
    fn deliver_ready(&self, of: usize) -> bool {
        let mut has_delivered = false;
        loop {
            // `is_ready` is not called under the lock, as it may run a step of the log.
            let Some(course) = lock(&self.inboxes[of]).withheld.pop_front() else { return has_delivered };
            if !course.is_ready() {
                lock(&self.inboxes[of]).withheld.push_front(course);
                return has_delivered;
            }
            course.deliver();
            has_delivered = true;
        }
    }

    /// After which time an idle thread must check the others again, if one of them has unreturned results. `decides` is
    /// that time for the queue of decisions.
    fn look_again(&self, at: usize, decides: Option<Duration>) -> Option<Duration> {
        let others = self.inboxes.iter().enumerate().filter(|(other, _)| *other != at);
        let is_undelivered = others.into_iter().any(|(_, inbox)| lock(inbox).has_undelivered());
        [decides, is_undelivered.then_some(HELD_UP)].into_iter().flatten().min()
    }

    /// Sleeps until woken, or for `most`. New work wakes the thread if it `takes` work. Returns `false` if the executor
    /// is closed and has no work.
    fn sleep(&self, at: usize, takes: bool, holds: bool, most: impl FnOnce() -> Option<Duration>) -> bool {
        match self.prepare_to_park(at, takes, holds, most) {
            Rest::Over => false,
            Rest::Awake => true,
            Rest::Asleep(most) => {
                match most {
                    Some(most) => thread::park_timeout(most),
                    None => thread::park(),
                }
                self.unparked(at, takes);
                true
            }
        }
    }

    /// Lists the thread as idle, if it `takes` work and there is none.
    fn prepare_to_park(&self, at: usize, takes: bool, holds: bool, most: impl FnOnce() -> Option<Duration>) -> Rest {
        let owners = self.owners.as_ref().filter(|_| takes);
        let mut queue = lock(&self.queue);
        if takes && queue.work.has_next(at, holds) {
            return Rest::Awake;
        }
        // Called with the lock, so that a thread that submits a decision and then begins a body finds this thread
        // listed.
        let most = most();
        if queue.closed && !holds && most.is_none() && owners.is_none_or(|owners| !owners.has(at)) {
            return Rest::Over;
        }
        // Counted with the lock: each listed thread is counted. A thread that is woken for work that this one could
        // begin finds it listed.
        let Some(watch) = owners.map_or(Some(None), |owners| owners.prepare_to_park(at)) else { return Rest::Awake };
        // This thread may have been woken for work that only another can begin.
        queue.wake_one();
        if takes {
            let watches = !holds && most.is_some();
            queue.idle.push(Idle { at, holds, watches, thread: thread::current() });
        }
        Rest::Asleep([most, watch].into_iter().flatten().min())
    }

    /// Called after the sleep. Unlists the thread, which was listed if it `takes` work.
    fn unparked(&self, at: usize, takes: bool) {
        if let Some(owners) = self.owners.as_ref().filter(|_| takes) {
            owners.unparked(at);
        }
        lock(&self.queue).idle.retain(|idle| idle.at != at);
    }
}

/// The next action of a thread without work.
enum Rest {
    /// It ends: the executor is closed and has no work.
    Over,
    /// It looks again: work has arrived.
    Awake,
    /// It sleeps until woken, or for this time.
    Asleep(Option<Duration>),
}

impl<S> Queue<S> {
    /// A thread begins a body while it has unreturned results. Wakes an idle thread that holds none to watch, unless
    /// one watches already.
    fn have_watched(&mut self) {
        if !self.idle.iter().any(|idle| idle.watches)
            && let Some(found) = self.idle.iter().position(|idle| !idle.holds)
        {
            self.idle.remove(found).thread.unpark();
        }
    }

    /// Wakes a thread that has something to begin.
    fn wake_one(&mut self) {
        let work = &self.work;
        // A watching thread is woken only if no other thread can begin the work.
        let can = |idle: &Idle| work.has_next(idle.at, idle.holds);
        let found = self.idle.iter().rposition(|idle| !idle.watches && can(idle));
        if let Some(found) = found.or_else(|| self.idle.iter().rposition(can)) {
            self.idle.remove(found).thread.unpark();
        }
    }

    /// Wakes this thread if it sleeps. Otherwise another may take over the calls that it received.
    fn wake(&mut self, at: usize) {
        match self.idle.iter().position(|idle| idle.at == at) {
            Some(found) => self.idle.remove(found).thread.unpark(),
            None => self.wake_one(),
        }
    }
}

impl<S: ExecutorSession> permits::Queue for Shared<S> {
    fn remove_cancelled(&self) -> usize {
        let mut removed = self.owners.as_ref().map_or_else(Vec::new, |owners| owners.remove(Work::is_cancelled));
        let mut queue = lock(&self.queue);
        removed.extend(queue.work.remove(Work::is_cancelled));
        self.publish_numbers(&queue);
        // The removed work may have blocked other work.
        queue.wake_one();
        drop(queue);
        let count = removed.len();
        removed.into_iter().for_each(|work| contain(|| drop(work)));
        count
    }
}

/// A transaction that runs in steps, until its result is returned.
trait SteppedWork<S>: Send {
    fn is_cancelled(&self) -> bool;

    /// Called before the first step in this session; gives the call's permit back. Returns `false` if the transaction
    /// has ended and must not run.
    fn begin(&mut self, session: &mut S) -> bool;

    fn step(&mut self, session: &mut S, decided: Option<Decided>, wait: bool) -> Progress;

    /// Whether the result of an ended transaction can be returned without waiting.
    fn is_ready(&self) -> bool;

    /// Returns the result to the caller. Waits until it is durable, if required.
    fn deliver(self: Box<Self>);
}

/// Counts of ended calls with footprints, and of their retries.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    calls: u64,
    retries: u64,
}

/// The outcome of a step.
enum Progress {
    Decide(Prepared),
    Stalled,
    /// A session whose step panicked must not be used again.
    Ended {
        tally: Tally,
        panicked: bool,
    },
}

type StepFn<S, R> = dyn FnMut(&mut Detached<R>, &mut S, Option<Decided>, bool) -> Step<R> + Send;

/// The closure given to [`Executor::run`].
struct ClosureCall<F, R> {
    work: F,
    slot: Arc<AnswerSlot<Result<R, TransactError>>>,
}

impl<S: ExecutorSession, R: Send + 'static, F: FnOnce(&mut S) -> R + Send> Whole<S> for ClosureCall<F, R> {
    fn is_cancelled(&self) -> bool {
        self.slot.is_cancelled()
    }

    fn run(self: Box<Self>, session: &mut S) -> bool {
        let ClosureCall { work, slot } = *self;
        if !slot.begin(&session.runner().tx) {
            contain(|| drop(work));
            return true;
        }
        let is_closed = session.runner().is_closed();
        let result = catch_unwind(AssertUnwindSafe(|| match is_closed {
            true => Err(TransactError::Closed),
            false => Ok(work(session)),
        }));
        slot.leave(&session.runner().tx);
        let is_whole = result.is_ok();
        slot.put(result);
        is_whole
    }
}

struct Transaction<S, R> {
    detached: Detached<R>,
    step: Box<StepFn<S, R>>,
    ended: Option<Ended<R>>,
    slot: Arc<AnswerSlot<Result<Committed<R>, TransactError>>>,
    /// Whether the call is batched by its footprint.
    is_batched: bool,
    /// Retries in all steps so far.
    retries: u64,
}

enum Ended<R> {
    /// It was cancelled before it began, and the caller has its answer.
    Answered,
    Refused(TransactError),
    Withheld(Pending<R>),
    Panicked(Box<dyn Any + Send>),
}

impl<S: ExecutorSession, R: Send + 'static> SteppedWork<S> for Transaction<S, R> {
    fn is_cancelled(&self) -> bool {
        self.slot.is_cancelled()
    }

    fn begin(&mut self, session: &mut S) -> bool {
        let runner = session.runner();
        if !self.slot.begin(&runner.tx) {
            self.ended = Some(Ended::Answered);
        } else if runner.is_closed() {
            self.ended = Some(Ended::Refused(TransactError::Closed));
        }
        self.ended.is_none()
    }

    fn step(&mut self, session: &mut S, decided: Option<Decided>, wait: bool) -> Progress {
        let Transaction { detached, step, ended, slot, is_batched, retries } = self;
        let before = session.runner().retries;
        let stepped = catch_unwind(AssertUnwindSafe(|| step(detached, session, decided, wait)));
        *retries += session.runner().retries - before;
        let panicked = stepped.is_err();
        match stepped {
            Ok(Step::Decide(prepared)) => return Progress::Decide(prepared),
            Ok(Step::Stalled) => {
                slot.leave(&session.runner().tx);
                return Progress::Stalled;
            }
            Ok(Step::Done(result)) => {
                // Later pieces of a committed chain repeat without another attempt of the transaction.
                *retries =
                    result.as_ref().map_or(*retries, |committed| u64::from(committed.attempts.saturating_sub(1)));
                *ended = Some(Ended::Withheld(session.runner().pending(result)));
            }
            Err(panic) => *ended = Some(Ended::Panicked(panic)),
        }
        slot.leave(&session.runner().tx);
        let tally = if *is_batched { Tally { calls: 1, retries: *retries } } else { Tally::default() };
        Progress::Ended { tally, panicked }
    }

    fn is_ready(&self) -> bool {
        !matches!(&self.ended, Some(Ended::Withheld(pending)) if !pending.is_ready())
    }

    fn deliver(self: Box<Self>) {
        let Transaction { detached, step, ended, slot, .. } = *self;
        if matches!(ended, Some(Ended::Answered)) {
            return contain(|| drop((detached, step)));
        }
        let result = catch_unwind(AssertUnwindSafe(|| drop((detached, step))));
        let result = match (result, ended) {
            (Ok(()), Some(Ended::Withheld(pending))) => Ok(pending.wait()),
            (Ok(()), Some(Ended::Refused(error))) => Ok(Err(error)),
            (Ok(()), Some(Ended::Panicked(panic))) => Err(panic),
            (Ok(()), None | Some(Ended::Answered)) => unreachable!("a result is returned once, after the end"),
            (Err(panic), ended) => {
                contain(|| drop(ended));
                Err(panic)
            }
        };
        slot.put(result);
    }
}

/// A transaction and its session. The queue of decisions owns both until the decision.
struct Job<S> {
    session: Box<S>,
    course: Box<dyn SteppedWork<S>>,
}

impl<S: ExecutorSession> AsMut<Runner> for Job<S> {
    fn as_mut(&mut self) -> &mut Runner {
        self.session.runner()
    }
}

/// Executed transactions whose results a thread has not returned. Other threads continue them if that thread is held
/// up.
struct Inbox<S> {
    /// Decided transactions.
    decided: VecDeque<(Job<S>, Decided)>,
    /// Decided transactions that other threads took over, and that the thread has not subtracted yet.
    adopted: usize,
    /// Ended transactions that were not durable at their end.
    withheld: VecDeque<Box<dyn SteppedWork<S>>>,
    /// How often the thread has looked for work. While this does not change, the thread runs a body or sleeps.
    turns: u64,
    is_asleep: bool,
}

impl<S> Default for Inbox<S> {
    fn default() -> Inbox<S> {
        let (decided, withheld) = (VecDeque::new(), VecDeque::new());
        Inbox { decided, adopted: 0, withheld, turns: 0, is_asleep: false }
    }
}

impl<S> Inbox<S> {
    fn has_undelivered(&self) -> bool {
        !(self.decided.is_empty() && self.withheld.is_empty())
    }
}

/// A thread takes no work while it withholds this many results.
const WITHHELD_MAX: usize = 1024;

/// The state of a thread of an executor.
struct ExecutorThread<S> {
    /// The thread's number.
    at: usize,
    shared: Arc<Shared<S>>,
    engine: Engine,
    open: Arc<dyn Fn() -> S + Send + Sync>,
    /// Whether the executor has no other thread.
    alone: bool,
    held_max: usize,
    /// Sessions without a transaction.
    sessions: Vec<Box<S>>,
    /// Executed transactions that are not known to be decided.
    held: usize,
    /// Work that continues when nothing is held.
    stalled: VecDeque<Work<S>>,
    /// An upper bound of the withheld results: other threads may have returned some.
    withheld: usize,
    /// Counts that were not passed to the queue yet.
    tally: Tally,
    /// What it saw of the other partition owners, if there are any.
    seen: Option<Seen>,
    /// The time of its last check of the other threads.
    looked: Instant,
    /// By thread: its `turns` at that check, and the time since which they have not changed.
    others: Vec<(u64, Instant)>,
    /// Whether it watched during its last sleep. If it begins work now, another thread must watch.
    watched: bool,
}

impl<S: ExecutorSession> ExecutorThread<S> {
    fn new(
        at: usize,
        threads: usize,
        shared: Arc<Shared<S>>,
        engine: Engine,
        open: Arc<dyn Fn() -> S + Send + Sync>,
        held_max: usize,
    ) -> ExecutorThread<S> {
        ExecutorThread {
            at,
            seen: shared.owners.as_ref().map(Owners::seen),
            shared,
            engine,
            open,
            alone: threads == 1,
            held_max,
            sessions: Vec::new(),
            held: 0,
            stalled: VecDeque::new(),
            withheld: 0,
            tally: Tally::default(),
            looked: Instant::now(),
            others: vec![(0, Instant::now()); threads],
            watched: false,
        }
    }

    fn run(&mut self) {
        loop {
            self.engine.end_queue_wait();
            let mut inbox = lock(&self.shared.inboxes[self.at]);
            inbox.turns += 1;
            inbox.is_asleep = false;
            self.held -= std::mem::take(&mut inbox.adopted);
            let decided = inbox.decided.pop_front();
            self.withheld = inbox.withheld.len();
            drop(inbox);
            if let (Some(owners), Some(seen)) = (&self.shared.owners, &mut self.seen) {
                owners.ended(seen);
            }
            if self.withheld > 0 {
                self.shared.deliver_ready(self.at);
            }
            let mut worked = decided.is_some();
            if let Some((job, decided)) = decided {
                self.held -= 1;
                self.step(job, Some(decided));
            }
            if !self.alone && self.looked.elapsed() >= HELD_UP {
                worked |= self.look_after_others();
            }
            // The work may sleep first, so results of ended transactions are returned before.
            if self.held == 0
                && !worked
                && let Some(work) = self.stalled.pop_front()
            {
                worked = true;
                self.shared.stop_watching(self.at, self.has_undelivered() || self.watched);
                self.begin(work);
            }
            let takes = self.stalled.is_empty() && self.held < self.held_max && self.withheld < WITHHELD_MAX;
            if takes {
                let [holds, undelivered] = [self.held > 0, self.has_undelivered() || self.watched];
                let next = self.shared.next(self.at, [holds, undelivered], &mut self.tally, &mut self.seen);
                worked |= !matches!(next, Next::Nothing);
                match next {
                    Next::Work(work) => self.begin(work),
                    Next::Batch(open_batch) => self.shared.place(self.at, open_batch),
                    Next::Nothing => {}
                }
            }
            if !worked && !self.rest(takes) {
                return;
            }
        }
    }

    /// Whether it has results that other threads could return.
    fn has_undelivered(&self) -> bool {
        !self.alone && (self.held > 0 || self.withheld > 0)
    }

    fn begin(&mut self, work: Work<S>) {
        match work {
            Work::Whole(_) if self.held > 0 => self.stalled.push_back(work),
            Work::Whole(whole) => {
                // The closure may wait for these results.
                while let Some(course) = self.next_withheld() {
                    course.deliver();
                }
                let mut session = self.session();
                let is_whole = whole.run(&mut session);
                self.give_back(session, is_whole);
            }
            Work::Transaction(mut course) => {
                let mut session = self.session();
                if course.begin(&mut session) {
                    self.step(Job { session, course }, None);
                } else {
                    self.give_back(session, true);
                    course.deliver();
                }
            }
        }
    }

    fn next_withheld(&self) -> Option<Box<dyn SteppedWork<S>>> {
        lock(&self.shared.inboxes[self.at]).withheld.pop_front()
    }

    fn step(&mut self, mut job: Job<S>, decided: Option<Decided>) {
        if decided.is_some() {
            // The transaction may be refused, and then its body runs again.
            self.shared.stop_watching(self.at, self.has_undelivered());
        }
        let progress = job.course.step(&mut job.session, decided, self.held == 0);
        if let Progress::Decide(prepared) = progress {
            self.held += 1;
            let (shared, at, owner) = (Arc::clone(&self.shared), self.at, thread::current());
            return Runner::queue(job, prepared, move |job, decided| {
                lock(&shared.inboxes[at]).decided.push_back((job, decided));
                owner.unpark();
            });
        }
        let Job { session, course } = job;
        self.give_back(session, !matches!(progress, Progress::Ended { panicked: true, .. }));
        match progress {
            // Goes before closures, which may wait for it.
            Progress::Stalled => self.stalled.push_front(Work::Transaction(course)),
            Progress::Ended { tally: Tally { calls, retries }, .. } => {
                self.tally.calls += calls;
                self.tally.retries += retries;
                if course.is_ready() {
                    course.deliver();
                } else {
                    self.withheld += 1;
                    lock(&self.shared.inboxes[self.at]).withheld.push_back(course);
                }
            }
            Progress::Decide(_) => unreachable!("it is queued"),
        }
    }

    /// Decides executed transactions of threads that a body holds up, and returns their results. Returns whether there
    /// were any.
    fn look_after_others(&mut self) -> bool {
        self.looked = Instant::now();
        let (now, own, shared) = (self.looked, self.at, Arc::clone(&self.shared));
        let mut held_up = Vec::new();
        for (other, inbox) in shared.inboxes.iter().enumerate().filter(|(other, _)| *other != own) {
            let inbox = lock(inbox);
            let (turns, since) = &mut self.others[other];
            // A sleeping thread may have results that another thread took and put back, as they were not durable.
            if inbox.is_asleep && !inbox.has_undelivered() || *turns != inbox.turns {
                (*turns, *since) = (inbox.turns, now);
            } else if now.since(*since) >= HELD_UP {
                held_up.push(other);
            }
        }
        let mut worked = false;
        // A queue that waits for more transactions needs no help: each thread that comes for work ends its wait.
        if !held_up.is_empty() && !self.engine.queue_has_wait() {
            let _ = self.engine.advance_queue(false);
        }
        for other in held_up {
            worked |= shared.deliver_ready(other);
            // One at a time: the body of a refused transaction may hold this thread up.
            while let Some((job, decided)) = shared.adopt(other) {
                worked = true;
                self.step(job, Some(decided));
            }
        }
        worked
    }

    /// Decides, returns results or sleeps, as no work can begin now. Returns `false` if the thread ends.
    fn rest(&mut self, takes: bool) -> bool {
        if self.held > 0 {
            let is_full = self.alone && self.held == self.held_max;
            let gather = self.stalled.is_empty() && !is_full && !lock(&self.shared.queue).closed;
            let gather = gather && !self.shared.waits_for_decisions(self.at);
            return match self.engine.advance_queue(gather) {
                Advance::Decided => true,
                Advance::Gathers(left) => self.sleep(takes, true, Some(left)),
                Advance::Led => self.sleep(takes, true, None),
            };
        }
        if self.look_after_others() {
            return true;
        }
        match self.next_withheld() {
            Some(course) => {
                course.deliver();
                true
            }
            None => self.sleep(takes, false, None),
        }
    }

    /// As [`Shared::sleep`], for `most`. A thread that holds nothing wakes to check the others.
    fn sleep(&mut self, takes: bool, holds: bool, most: Option<Duration>) -> bool {
        lock(&self.shared.inboxes[self.at]).is_asleep = true;
        let mut watches = false;
        let goes_on = self.shared.sleep(self.at, takes, holds, || match holds {
            true => most,
            false => {
                let most = self.shared.look_again(self.at, self.engine.look_at_queue_again(HELD_UP));
                watches = most.is_some();
                most
            }
        });
        self.watched = watches;
        goes_on
    }

    fn session(&mut self) -> Box<S> {
        let mut session = self.sessions.pop().unwrap_or_else(|| Box::new((self.open)()));
        // Any of the sessions runs a client's calls, and another may have returned the client's last result.
        session.runner().change_hands();
        session
    }

    fn give_back(&mut self, mut session: Box<S>, is_whole: bool) {
        // It may be a session of another thread.
        if is_whole && self.sessions.len() < self.held_max {
            session.reset();
            self.sessions.push(session);
        } else {
            contain(|| drop(session));
        }
    }
}

impl<S: ExecutorSession> Executor<S> {
    /// Starts a thread for each of these bodies.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn spawn(mut self, bodies: Vec<ExecutorBody>) -> Result<Executor<S>, OpenError> {
        for body in bodies {
            self.threads.push(thread::spawn("seriatim-executor", body).map_err(OpenError::Thread)?);
        }
        Ok(self)
    }

    /// An executor for this many threads, and the bodies that they must run. A body ends when the executor is dropped
    /// and all its work has run. `open` opens a session.
    ///
    /// # Errors
    /// There are no threads, or more than 4096.
    pub fn apart(
        engine: &Engine,
        threads: usize,
        open: impl Fn() -> S + Send + Sync + 'static,
    ) -> Result<(Executor<S>, Vec<ExecutorBody>), OpenError> {
        within("executor threads", threads, 1..=THREADS_MAX)?;
        let Settings { batch, batch_placement, .. } = *engine.settings();
        let work = WorkQueue::new(threads, batch.size(threads)).placing(batch_placement);
        let work = if batch == Batch::Auto { work.switched() } else { work };
        let batches = work.batches();
        let queue = Mutex::new(Queue { work, idle: Vec::new(), closed: false });
        let inboxes = (0..threads).map(|_| Mutex::default()).collect();
        let partitions = engine.partitions().filter(|_| !batches);
        let owners = partitions.as_ref().map(|_| Owners::new(threads));
        let shared = Arc::new(Shared { inboxes, batches, owners, process: Process::current(), queue });
        let permits = Permits::new(engine.settings().executor_queue_max);
        let queue: Weak<dyn permits::Queue> = Arc::<Shared<S>>::downgrade(&shared);
        permits.of_queue(queue);
        let (open, held_max) = (Arc::new(open), engine.held_max(threads));
        let body = |at| {
            let (shared, engine, open) = (Arc::clone(&shared), engine.clone(), Arc::clone(&open));
            let executor = Arc::clone(&permits);
            let run = move || {
                EXECUTOR.set(Arc::as_ptr(&executor));
                ExecutorThread::new(at, threads, shared, engine, open, held_max).run();
                EXECUTOR.set(std::ptr::null());
            };
            Box::new(run) as ExecutorBody
        };
        let bodies = (0..threads).map(body).collect();
        Ok((Executor { permits, shared, partitions, threads: Vec::with_capacity(threads) }, bodies))
    }

    /// Waits for a permit to submit work. A body of an executor gets one beyond the bound without waiting, as the
    /// thread that would make room may be its own.
    pub fn reserve(&self) -> Permit {
        // Bodies of two executors that wait for room in each other's queues would wait for ever. In a fork no thread
        // makes room, and the call is refused.
        let has_no_bound = !EXECUTOR.get().is_null() || !self.shared.process.is_current();
        match has_no_bound {
            true => self.permits.take_beyond(),
            false => self.permits.take(),
        }
    }

    /// A permit to submit work, if there is room in the queue.
    ///
    /// # Errors
    /// The queue is full.
    pub fn try_reserve(&self) -> Result<Permit, QueueFull> {
        if !self.is_of_this_process() {
            // The call is refused.
            return Ok(self.permits.take_beyond());
        }
        self.permits.try_take().ok_or(QueueFull { most: self.permits.most() })
    }

    /// Calls that wait to begin, and permits that callers have reserved.
    pub fn queued(&self) -> usize {
        self.permits.taken()
    }

    /// Has one of the threads run this closure. The answer is an error if the closure is not run. It may be cancelled
    /// before it begins, or the database may be closed. A fork has none of the threads.
    pub fn run<R: Send + 'static>(
        &self,
        permit: Permit,
        work: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Running<Result<R, TransactError>> {
        let (running, slot) = Running::new(permit);
        if !self.shared.process.is_current() {
            slot.put(Ok(Err(TransactError::Forked)));
            return running;
        }
        self.shared.push(Work::Whole(Box::new(ClosureCall { work, slot })), PredictedAccess::Unknown);
        running
    }

    /// Whether calls with known footprints are batched.
    pub fn batches(&self) -> bool {
        self.shared.batches
    }

    /// The partitions of the database, if the threads own them.
    pub fn partitions(&self) -> Option<&Partitions> {
        self.partitions.as_deref()
    }

    /// Counts of batching since the executor was created; in a fork zeros.
    pub fn batch_statistics(&self) -> BatchStatistics {
        match self.is_of_this_process() {
            true => lock(&self.shared.queue).work.statistics(),
            false => BatchStatistics::default(),
        }
    }

    /// Whether its threads are in this process. In a fork nothing runs.
    pub fn is_of_this_process(&self) -> bool {
        self.shared.process.is_current()
    }

    /// Has one of the threads run a transaction in steps, each of which is a [`Detached::step`] or the whole. A call
    /// with a usable footprint is batched, if the executor batches. A call in known partitions runs on their thread, if
    /// threads own partitions.
    pub fn start<R: Send + 'static>(
        &self,
        permit: Permit,
        origin: Origin,
        predicted: PredictedAccess,
        step: impl FnMut(&mut Detached<R>, &mut S, Option<Decided>, bool) -> Step<R> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        let (running, slot) = Running::new(permit);
        if !self.shared.process.is_current() {
            slot.put(Ok(Err(TransactError::Forked)));
            return running;
        }
        let predicted = match predicted {
            PredictedAccess::Rows(footprint) if !self.shared.batches || !footprint.is_usable() => {
                PredictedAccess::Unknown
            }
            predicted => predicted,
        };
        let is_batched = if let PredictedAccess::Rows(footprint) = &predicted {
            footprint.pass_time();
            true
        } else {
            false
        };
        let detached = Detached::new(origin);
        let transaction = Transaction { detached, step: Box::new(step), ended: None, slot, is_batched, retries: 0 };
        self.shared.push(Work::Transaction(Box::new(transaction)), predicted);
        running
    }
}

impl<S> Drop for Executor<S> {
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.idle.drain(..).for_each(|idle| idle.thread.unpark());
        drop(queue);
        let current = thread::current().id();
        // If work of the executor drops it, that thread cannot be joined.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != current) {
            let _ = thread.join();
        }
    }
}

impl<S> std::fmt::Debug for Executor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

/// The queue of an executor is full: [`Executor::try_reserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueFull {
    /// The bound of calls that wait to begin.
    pub most: usize,
}

impl std::fmt::Display for QueueFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the queue of the executor is full: {} calls wait to begin; wait for answers, or set a larger \
             `executor_queue_max`",
            self.most
        )
    }
}

impl std::error::Error for QueueFull {}

/// Work that an executor was given. Dropping it discards the answer and does not stop the work.
///
/// As a future it is ready when the work has ended.
#[must_use = "the answer of what was run says whether it committed"]
pub struct Running<R> {
    slot: Arc<AnswerSlot<R>>,
    /// The process whose threads run it.
    process: Process,
    /// The answer that is this error.
    refused: fn(TransactError) -> R,
}

/// The answer of a call, and the call's stage.
struct AnswerSlot<R> {
    answer: Mutex<Answer<R>>,
    stage: Mutex<Stage>,
}

/// The stage of a call.
enum Stage {
    Queued(Permit),
    /// It has begun.
    Begun {
        /// The canceller of the session that runs it, if one does.
        session: Option<Canceller>,
        /// Whether it was cancelled after it began.
        is_cancelled: bool,
    },
    /// It was cancelled before it began. Its permit was one of these.
    Cancelled(Arc<Permits>),
}

/// The waiter for an answer.
enum Awaiting {
    Nobody,
    /// Sleeps.
    Thread(Thread),
    Task(Waker),
}

enum Answer<R> {
    Awaited(Awaiting),
    There(thread::Result<R>),
    Taken,
}

impl<R> AnswerSlot<R> {
    fn new(permit: Permit) -> AnswerSlot<R> {
        let (answer, stage) = (Mutex::new(Answer::Awaited(Awaiting::Nobody)), Mutex::new(Stage::Queued(permit)));
        AnswerSlot { answer, stage }
    }

    /// The call leaves its session, which then runs other calls.
    fn leave(&self, tx: &TxCore) {
        if let Stage::Begun { session, .. } = &mut *lock(&self.stage) {
            *session = None;
        }
        tx.end_call();
    }

    /// A thread begins the call, or continues it in another session. Returns `false` if it was cancelled before it
    /// began.
    fn begin(&self, tx: &TxCore) -> bool {
        let mut stage = lock(&self.stage);
        let is_cancelled = match &*stage {
            Stage::Queued(_) => false,
            Stage::Begun { is_cancelled, .. } => *is_cancelled,
            Stage::Cancelled(permits) => {
                permits.left();
                return false;
            }
        };
        // With the lock, so that a cancellation either comes before this or cancels the session.
        let canceller = tx.begin_call();
        if is_cancelled {
            canceller.cancel();
        }
        let before = std::mem::replace(&mut *stage, Stage::Begun { session: Some(canceller), is_cancelled });
        drop(stage);
        // Drops the permit, which may wake another caller.
        drop(before);
        true
    }

    /// Whether the call was cancelled before it began.
    fn is_cancelled(&self) -> bool {
        matches!(*lock(&self.stage), Stage::Cancelled(_))
    }

    /// Stores the answer and wakes its waiter. A panic of the user's waker or answer is contained.
    fn put(self: Arc<AnswerSlot<R>>, result: thread::Result<R>) {
        let before = std::mem::replace(&mut *lock(&self.answer), Answer::There(result));
        match before {
            Answer::Awaited(Awaiting::Thread(thread)) => thread.unpark(),
            Answer::Awaited(Awaiting::Task(waker)) => contain(|| waker.wake()),
            _ => {}
        }
        // The answer is dropped here if the caller has discarded it.
        contain(|| drop(self));
    }
}

impl<R> Running<Result<R, TransactError>> {
    /// Cancels the call. Returns whether it had not begun. A call that has not begun does not run: its answer is
    /// [`TransactError::Cancelled`], and its place in the queue is free at once. Its closure is dropped later, when
    /// such closures are more than 16 and more than half of the queue. If the call runs, its transaction ends as by
    /// [`Canceller::cancel`], and so does every later transaction of the call. A closure that runs transactions of its
    /// own goes on. In a fork nothing is cancelled.
    pub fn cancel(&self) -> bool {
        if !self.process.is_current() {
            return false;
        }
        let mut stage = lock(&self.slot.stage);
        let permits = match &mut *stage {
            Stage::Begun { session, is_cancelled } => {
                *is_cancelled = true;
                session.iter().for_each(Canceller::cancel);
                return false;
            }
            Stage::Cancelled(_) => return true,
            Stage::Queued(permit) => permit.cancel(),
        };
        let before = std::mem::replace(&mut *stage, Stage::Cancelled(Arc::clone(&permits)));
        drop(stage);
        drop(before);
        Arc::clone(&self.slot).put(Ok(Err(TransactError::Cancelled)));
        permits.remove_cancelled();
        true
    }
}

impl<R> Answer<R> {
    /// The answer, if it is there.
    ///
    /// # Panics
    /// If it was taken before.
    fn take(&mut self) -> Option<thread::Result<R>> {
        match std::mem::replace(self, Answer::Taken) {
            Answer::There(result) => Some(result),
            Answer::Taken => panic!("`Running` polled or waited for after completion"),
            awaited @ Answer::Awaited(_) => {
                *self = awaited;
                None
            }
        }
    }
}

impl<R> Running<Result<R, TransactError>> {
    fn new(permit: Permit) -> (Self, Arc<AnswerSlot<Result<R, TransactError>>>) {
        let slot = Arc::new(AnswerSlot::new(permit));
        (Running { slot: Arc::clone(&slot), process: Process::current(), refused: Err }, slot)
    }
}

impl<R> Running<R> {
    /// Waits until the work has ended, and returns its result. In a fork the result is [`TransactError::Forked`],
    /// unless the answer was there before.
    ///
    /// # Panics
    /// If the work panicked; if it was polled as a future until it was ready.
    pub fn wait(self) -> R {
        let result = loop {
            let Some(mut answer) = self.answer() else { return (self.refused)(TransactError::Forked) };
            if let Some(result) = answer.take() {
                break result;
            }
            if !self.process.is_current() {
                return (self.refused)(TransactError::Forked);
            }
            *answer = Answer::Awaited(Awaiting::Thread(thread::current()));
            drop(answer);
            thread::park();
        };
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Whether the work has ended. In a fork it has: nothing goes on there.
    pub fn is_done(&self) -> bool {
        !self.process.is_current() || !matches!(*lock(&self.slot.answer), Answer::Awaited(_))
    }

    /// The answer; `None` in a fork, if another thread held its lock.
    fn answer(&self) -> Option<MutexGuard<'_, Answer<R>>> {
        match self.process.is_current() {
            true => Some(lock(&self.slot.answer)),
            false => self.slot.answer.try_lock().ok(),
        }
    }
}

/// The result of the work, when it has ended. In a fork it is [`TransactError::Forked`], unless the answer was there
/// before.
///
/// # Panics
/// If the work panicked; if it is polled again after it was ready.
impl<R> Future for Running<R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let Some(mut answer) = self.answer() else { return Poll::Ready((self.refused)(TransactError::Forked)) };
        match answer.take() {
            Some(result) => {
                drop(answer);
                Poll::Ready(result.unwrap_or_else(|panic| resume_unwind(panic)))
            }
            None if !self.process.is_current() => Poll::Ready((self.refused)(TransactError::Forked)),
            None => {
                *answer = Answer::Awaited(Awaiting::Task(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<R> std::fmt::Debug for Running<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("done", &self.is_done()).finish()
    }
}

#[cfg(test)]
mod tests;
