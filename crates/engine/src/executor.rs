//! Threads that run transactions for callers with better things to do than to wait.
//!
//! A thread holds up to [`Engine::held_max`] executed transactions, each with a session of its own, whose decisions are queued. It never
//! waits for what itself has: with transactions held it waits neither for a worker nor in work that runs by itself, but decides first.
//! What it begins next, the [work queue](crate::work_queue) says; where calls are batched, that can be one which conflicts with the one
//! before, so it begins none with transactions held.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use seriatim_base::thread::{self, JoinHandle, Thread};
use seriatim_txn::Prepared;

use crate::work_queue::{Footprint, Forming, Next, WorkQueue};
use crate::{
    Advance, Batch, BatchStatistics, Committed, Decided, Detached, Engine, OpenError, Origin, Pending, Runner, Step,
    TransactError,
};

/// What an executor runs its work in.
pub trait ExecutorSession: Send + 'static {
    /// Where its transactions are run.
    fn runner(&mut self) -> &mut Runner;

    /// It becomes as it was at first.
    fn reset(&mut self);
}

/// Threads that run what they are given, first come, first served; but calls in [batches](crate::Batch), if so set.
///
/// Dropping it waits until all that it was given has been run; but not if its own work drops it.
pub struct Executor<S> {
    shared: Arc<Shared<S>>,
    threads: Vec<JoinHandle<()>>,
}

/// What a thread of an executor runs.
pub type ExecutorBody = Box<dyn FnOnce() + Send>;

enum Work<S> {
    /// Runs by itself; whether the session can be used again.
    Whole(Box<dyn FnOnce(&mut S) -> bool + Send>),
    /// Runs in steps.
    Transaction(Box<dyn Course<S>>),
}

struct Shared<S> {
    /// Whether calls are batched whose footprints are known.
    batches: bool,
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
    thread: Thread,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs code of the user's whose panic is nobody's to hear of: the hook has reported it.
fn contain(body: impl FnOnce()) {
    let dropped = catch_unwind(AssertUnwindSafe(body)).map_err(|panic| catch_unwind(AssertUnwindSafe(|| drop(panic))));
    if let Err(Err(panic)) = dropped {
        // What panics when it is dropped, and panics with such a thing.
        std::mem::forget(panic);
    }
}

impl<S> Shared<S> {
    fn push(&self, work: Work<S>, footprint: Option<Footprint>) {
        let runs_alone = matches!(work, Work::Whole(_));
        let mut queue = lock(&self.queue);
        match footprint {
            Some(footprint) => queue.work.push_call(work, footprint),
            None => queue.work.push(work, runs_alone),
        }
        queue.wake_one();
    }

    /// What the thread does next; it has counted calls and their retries.
    fn next(&self, at: usize, holds: bool, tally: &mut Tally) -> Next<Work<S>> {
        let mut queue = lock(&self.queue);
        let Tally { calls, retries } = std::mem::take(tally);
        if calls > 0 {
            queue.work.ended(calls, retries);
        }
        queue.work.next(at, holds)
    }

    /// Places a batch that this thread has taken, and wakes those that got something.
    fn place(&self, at: usize, mut forming: Forming<Work<S>>) {
        forming.decide();
        let mut queue = lock(&self.queue);
        for owner in queue.work.place(at, forming) {
            if owner != at {
                queue.wake(owner);
            }
        }
        // Others may have waited until it was placed.
        queue.wake_one();
    }

    /// Whether the thread could begin something if it did not hold undecided transactions.
    fn waits_for_decisions(&self, at: usize) -> bool {
        let queue = lock(&self.queue);
        queue.work.has_next(at, false) && !queue.work.has_next(at, true)
    }

    /// Sleeps until woken, or for `most`; wakes for new work if it `takes` any. `false`: there is none, and there will be none.
    fn sleep(&self, at: usize, takes: bool, holds: bool, most: Option<Duration>) -> bool {
        let mut queue = lock(&self.queue);
        if takes && queue.work.has_next(at, holds) {
            return true;
        }
        if queue.closed && !holds {
            return false;
        }
        // It may be this thread that was woken for what another can begin.
        queue.wake_one();
        if takes {
            queue.idle.push(Idle { at, holds, thread: thread::current() });
        }
        drop(queue);
        match most {
            Some(most) => thread::park_timeout(most),
            None => thread::park(),
        }
        lock(&self.queue).idle.retain(|idle| idle.at != at);
        true
    }
}

impl<S> Queue<S> {
    /// Wakes a thread that has something to begin.
    fn wake_one(&mut self) {
        let work = &self.work;
        if let Some(found) = self.idle.iter().rposition(|idle| work.has_next(idle.at, idle.holds)) {
            self.idle.remove(found).thread.unpark();
        }
    }

    /// Wakes this thread if it sleeps; else another may take over what it got.
    fn wake(&mut self, at: usize) {
        match self.idle.iter().position(|idle| idle.at == at) {
            Some(found) => self.idle.remove(found).thread.unpark(),
            None => self.wake_one(),
        }
    }
}

/// A transaction that runs in steps, until its result is told.
trait Course<S>: Send {
    fn step(&mut self, session: &mut S, decided: Option<Decided>, wait: bool) -> Progress;

    /// Whether the result may leave at once. It has ended.
    fn is_ready(&self) -> bool;

    /// Tells the result, when it may leave.
    fn tell(self: Box<Self>);
}

/// Calls with footprints that have ended, and how often they were retried.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    calls: u64,
    retries: u64,
}

/// How far a step has come.
enum Progress {
    Decide(Prepared),
    Stalled,
    Ended(Tally),
    /// It ended too, and its session is not to be used again.
    Panicked,
}

type StepFn<S, R> = dyn FnMut(&mut Detached<R>, &mut S, Option<Decided>, bool) -> Step<R> + Send;

struct Transaction<S, R> {
    detached: Detached<R>,
    step: Box<StepFn<S, R>>,
    ended: Option<Ended<R>>,
    place: Arc<Place<Result<Committed<R>, TransactError>>>,
    /// Whether it has a footprint that it is batched by.
    is_batched: bool,
}

enum Ended<R> {
    Withheld(Pending<R>),
    Panicked(Box<dyn Any + Send>),
}

impl<S: ExecutorSession, R: Send + 'static> Course<S> for Transaction<S, R> {
    fn step(&mut self, session: &mut S, decided: Option<Decided>, wait: bool) -> Progress {
        let Transaction { detached, step, ended, is_batched, .. } = self;
        match catch_unwind(AssertUnwindSafe(|| step(detached, session, decided, wait))) {
            Ok(Step::Decide(prepared)) => Progress::Decide(prepared),
            Ok(Step::Stalled) => Progress::Stalled,
            Ok(Step::Done(result)) => {
                // One that did not commit has retries that nobody counted, or none.
                let retries = result.as_ref().map_or(0, |committed| u64::from(committed.attempts.saturating_sub(1)));
                *ended = Some(Ended::Withheld(session.runner().pending(result)));
                Progress::Ended(if *is_batched { Tally { calls: 1, retries } } else { Tally::default() })
            }
            Err(panic) => {
                *ended = Some(Ended::Panicked(panic));
                Progress::Panicked
            }
        }
    }

    fn is_ready(&self) -> bool {
        !matches!(&self.ended, Some(Ended::Withheld(pending)) if !pending.is_ready())
    }

    fn tell(self: Box<Self>) {
        let Transaction { detached, step, ended, place, .. } = *self;
        let result = catch_unwind(AssertUnwindSafe(|| drop((detached, step))));
        let result = match (result, ended) {
            (Ok(()), Some(Ended::Withheld(pending))) => Ok(pending.wait()),
            (Ok(()), Some(Ended::Panicked(panic))) => Err(panic),
            (Ok(()), None) => unreachable!("it is told when it has ended"),
            (Err(panic), ended) => {
                contain(|| drop(ended));
                Err(panic)
            }
        };
        place.put(result);
    }
}

/// A transaction in its session, which the queue of decisions has while it is to be decided.
struct Job<S> {
    session: Box<S>,
    course: Box<dyn Course<S>>,
}

impl<S: ExecutorSession> AsMut<Runner> for Job<S> {
    fn as_mut(&mut self) -> &mut Runner {
        self.session.runner()
    }
}

/// What was decided of what a thread has executed.
struct Inbox<S> {
    decided: Mutex<VecDeque<(Job<S>, Decided)>>,
    owner: Thread,
}

/// Results that a thread withholds, beyond which it takes no more work.
const WITHHELD_MAX: usize = 1024;

/// What a thread of an executor has.
struct Desk<S> {
    /// The thread's number.
    at: usize,
    shared: Arc<Shared<S>>,
    engine: Engine,
    open: Arc<dyn Fn() -> S + Send + Sync>,
    /// Whether nobody else executes what the executor is given.
    alone: bool,
    held_max: usize,
    /// Sessions without a transaction.
    sessions: Vec<Box<S>>,
    /// Transactions that have been executed and are not known to be decided.
    held: usize,
    inbox: Arc<Inbox<S>>,
    /// What goes on when nothing is held.
    stalled: VecDeque<Work<S>>,
    /// Transactions that have ended, and may not be durable yet.
    withheld: VecDeque<Box<dyn Course<S>>>,
    /// What the queue has not been told yet.
    tally: Tally,
}

impl<S: ExecutorSession> Desk<S> {
    fn run(&mut self) {
        loop {
            while let Some(course) = self.withheld.pop_front_if(|course| course.is_ready()) {
                course.tell();
            }
            if self.held > 0 {
                self.engine.end_queue_wait();
            }
            let decided = lock(&self.inbox.decided).pop_front();
            let mut worked = decided.is_some();
            if let Some((job, decided)) = decided {
                self.held -= 1;
                self.step(job, Some(decided));
            }
            if self.held == 0
                && let Some(work) = self.stalled.pop_front()
            {
                worked = true;
                self.begin(work);
            }
            let takes = self.stalled.is_empty() && self.held < self.held_max && self.withheld.len() < WITHHELD_MAX;
            if takes {
                let next = self.shared.next(self.at, self.held > 0, &mut self.tally);
                worked |= !matches!(next, Next::Nothing);
                match next {
                    Next::Work(work) => self.begin(work),
                    Next::Batch(forming) => self.shared.place(self.at, forming),
                    Next::Nothing => {}
                }
            }
            if !worked && !self.rest(takes) {
                return;
            }
        }
    }

    fn begin(&mut self, work: Work<S>) {
        match work {
            Work::Whole(_) if self.held > 0 => self.stalled.push_back(work),
            Work::Whole(run) => {
                // It may wait for them.
                self.withheld.drain(..).for_each(|course| course.tell());
                let mut session = self.session();
                let is_whole = run(&mut session);
                self.give_back(session, is_whole);
            }
            Work::Transaction(course) => {
                let session = self.session();
                self.step(Job { session, course }, None);
            }
        }
    }

    fn step(&mut self, mut job: Job<S>, decided: Option<Decided>) {
        let progress = job.course.step(&mut job.session, decided, self.held == 0);
        if let Progress::Decide(prepared) = progress {
            self.held += 1;
            let inbox = Arc::clone(&self.inbox);
            return Runner::queue(job, prepared, move |job, decided| {
                lock(&inbox.decided).push_back((job, decided));
                inbox.owner.unpark();
            });
        }
        let Job { session, course } = job;
        self.give_back(session, !matches!(progress, Progress::Panicked));
        match progress {
            // Before work that runs by itself, which may wait for it.
            Progress::Stalled => self.stalled.push_front(Work::Transaction(course)),
            Progress::Ended(Tally { calls, retries }) => {
                self.tally.calls += calls;
                self.tally.retries += retries;
                self.withheld.push_back(course);
            }
            _ => self.withheld.push_back(course),
        }
    }

    /// Nothing can be run now. `false`: nothing will.
    fn rest(&mut self, takes: bool) -> bool {
        if self.held > 0 {
            let is_full = self.alone && self.held == self.held_max;
            let gather = self.stalled.is_empty() && !is_full && !lock(&self.shared.queue).closed;
            let gather = gather && !self.shared.waits_for_decisions(self.at);
            return match self.engine.advance_queue(gather) {
                Advance::Decided => true,
                Advance::Gathers(left) => self.shared.sleep(self.at, takes, true, Some(left)),
                Advance::Led => self.shared.sleep(self.at, takes, true, None),
            };
        }
        match self.withheld.pop_front() {
            Some(course) => {
                course.tell();
                true
            }
            None => self.shared.sleep(self.at, takes, false, None),
        }
    }

    fn session(&mut self) -> Box<S> {
        self.sessions.pop().unwrap_or_else(|| {
            let mut session = Box::new((self.open)());
            // A client's calls are run by any of the sessions, and it may have been answered by another.
            session.runner().tx.snapshots_of_the_present();
            session
        })
    }

    fn give_back(&mut self, mut session: Box<S>, is_whole: bool) {
        if is_whole {
            session.reset();
            self.sessions.push(session);
        } else {
            contain(|| drop(session));
        }
    }
}

impl<S: ExecutorSession> Executor<S> {
    /// Starts threads that run these, its bodies.
    ///
    /// # Errors
    /// The operating system refuses one.
    pub fn spawn(mut self, bodies: Vec<ExecutorBody>) -> Result<Executor<S>, OpenError> {
        for body in bodies {
            self.threads.push(thread::spawn("seriatim-executor", body).map_err(OpenError::Thread)?);
        }
        Ok(self)
    }

    /// One of so many threads, and what they are to run, each one of these, to their ends: that is when the executor has been dropped
    /// and all that it was given has been run. `open` gives a session.
    ///
    /// # Errors
    /// No threads are asked for.
    pub fn apart(
        engine: &Engine,
        threads: usize,
        open: impl Fn() -> S + Send + Sync + 'static,
    ) -> Result<(Executor<S>, Vec<ExecutorBody>), OpenError> {
        if threads == 0 {
            return Err(OpenError::Invalid("an executor has at least 1 thread".to_owned()));
        }
        let batch = engine.settings().batch;
        let work = WorkQueue::new(threads, batch.size(threads));
        let work = if batch == Batch::Auto { work.switched() } else { work };
        let batches = work.batches();
        let queue = Mutex::new(Queue { work, idle: Vec::new(), closed: false });
        let shared = Arc::new(Shared { batches, queue });
        let (open, held_max) = (Arc::new(open), engine.held_max(threads));
        let body = |at| {
            let (shared, engine, open) = (Arc::clone(&shared), engine.clone(), Arc::clone(&open));
            let run = move || {
                let inbox = Inbox { decided: Mutex::default(), owner: thread::current() };
                let mut desk = Desk {
                    at,
                    shared,
                    engine,
                    open,
                    alone: threads == 1,
                    held_max,
                    sessions: Vec::new(),
                    held: 0,
                    inbox: Arc::new(inbox),
                    stalled: VecDeque::new(),
                    withheld: VecDeque::new(),
                    tally: Tally::default(),
                };
                desk.run();
            };
            Box::new(run) as ExecutorBody
        };
        let bodies = (0..threads).map(body).collect();
        Ok((Executor { shared, threads: Vec::with_capacity(threads) }, bodies))
    }

    /// Has one of the threads run `work` by itself.
    pub fn run<R: Send + 'static>(&self, work: impl FnOnce(&mut S) -> R + Send + 'static) -> Running<R> {
        let (running, place) = Running::new();
        let work = move |session: &mut S| {
            let result = catch_unwind(AssertUnwindSafe(|| work(session)));
            let is_whole = result.is_ok();
            place.put(result);
            is_whole
        };
        self.shared.push(Work::Whole(Box::new(work)), None);
        running
    }

    /// Whether calls are batched whose footprints are known.
    pub fn batches(&self) -> bool {
        self.shared.batches
    }

    /// What batching has done since the executor was made.
    pub fn batch_statistics(&self) -> BatchStatistics {
        lock(&self.shared.queue).work.statistics()
    }

    /// Has one of the threads run a transaction in steps, each of which is one of [`Detached::step`], or the whole. Where calls are
    /// batched, one with a usable footprint is.
    pub fn start<R: Send + 'static>(
        &self,
        origin: Origin,
        footprint: Option<Footprint>,
        step: impl FnMut(&mut Detached<R>, &mut S, Option<Decided>, bool) -> Step<R> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        let (running, place) = Running::new();
        let footprint = footprint.filter(|footprint| self.shared.batches && footprint.is_usable());
        footprint.iter().for_each(Footprint::pass_time);
        let (detached, is_batched) = (Detached::new(origin), footprint.is_some());
        let transaction = Transaction { detached, step: Box::new(step), ended: None, place, is_batched };
        self.shared.push(Work::Transaction(Box::new(transaction)), footprint);
        running
    }
}

impl<S> Drop for Executor<S> {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.idle.drain(..).for_each(|idle| idle.thread.unpark());
        drop(queue);
        let current = thread::current().id();
        // Dropped by its own work, the thread that does it cannot be waited for.
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

/// What an executor was given to run. Dropping it gives up the answer, not the work.
///
/// As a future it is ready when the work has been done.
#[must_use = "the answer of what was run says whether it committed"]
pub struct Running<R> {
    place: Arc<Place<R>>,
}

/// Where an answer is left.
struct Place<R> {
    answer: Mutex<Answer<R>>,
    done: Condvar,
}

enum Answer<R> {
    Awaited(Option<Waker>),
    There(thread::Result<R>),
    Taken,
}

impl<R> Default for Place<R> {
    fn default() -> Place<R> {
        Place { answer: Mutex::new(Answer::Awaited(None)), done: Condvar::new() }
    }
}

impl<R> Place<R> {
    /// Leaves the answer and tells of it. Whatever the user's waker and answer do, the caller goes on.
    fn put(self: Arc<Place<R>>, result: thread::Result<R>) {
        let before = std::mem::replace(&mut *lock(&self.answer), Answer::There(result));
        self.done.notify_all();
        if let Answer::Awaited(Some(waker)) = before {
            contain(|| waker.wake());
        }
        // Perhaps the answer is dropped here, as nobody wants it.
        contain(|| drop(self));
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

impl<R> Running<R> {
    fn new() -> (Running<R>, Arc<Place<R>>) {
        let place = Arc::new(Place::default());
        (Running { place: Arc::clone(&place) }, place)
    }

    /// Waits until the work has been done: what it gave.
    ///
    /// # Panics
    /// If the work did; if it was polled as a future until it was ready.
    pub fn wait(self) -> R {
        let mut answer = lock(&self.place.answer);
        let result = loop {
            match answer.take() {
                Some(result) => break result,
                None => answer = self.place.done.wait(answer).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(answer);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Whether the work has been done.
    pub fn is_done(&self) -> bool {
        !matches!(*lock(&self.place.answer), Answer::Awaited(_))
    }
}

/// What the work gave, when it has been done.
///
/// # Panics
/// If the work did; if it is polled again after it was ready.
impl<R> Future for Running<R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let mut answer = lock(&self.place.answer);
        match answer.take() {
            Some(result) => {
                drop(answer);
                Poll::Ready(result.unwrap_or_else(|panic| resume_unwind(panic)))
            }
            None => {
                *answer = Answer::Awaited(Some(context.waker().clone()));
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
