//! Threads that run transactions for callers with better things to do than to wait.
//!
//! A thread holds up to [`Engine::held_max`](seriatim_engine::Engine::held_max) executed transactions, each with a session of its own,
//! whose decisions are queued. It never waits for what itself has: with transactions held it waits neither for a worker nor in a closure
//! of [`Executor::run`], but decides first.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use seriatim_base::thread::{self, JoinHandle, Thread};
use seriatim_engine::{Advance, Decided, Detached, Origin, Runner, Step};
use seriatim_txn::Prepared;

use crate::procedure::Declared;
use crate::{Abort, Committed, Database, OpenError, Pending, Session, TransactError, Tx};

/// Threads that run what they are given, first come, first served: one caller can have many transactions under way.
///
/// Where decisions are queued ([`Builder::queue_decisions`](crate::Builder::queue_decisions)), a thread does not wait for the decisions
/// of what it was given by [`Executor::transact`] and [`Executor::call`]: it executes further transactions meanwhile, up to as many as
/// a batch has and its share of the [`workers`](crate::Builder::workers) allows, and their decisions come together in one batch; but one
/// at a time where procedures run in pieces. What it was given by [`Executor::run`] it runs by itself, when its other transactions have
/// ended.
///
/// What is given to [`Executor::run`] may wait for work that was given before it. Any other work that waits for work of the same executor
/// can wait for ever: for what is behind it while all threads wait; and within a transaction, for one that its own thread is to decide.
///
/// Dropping it waits until all that it was given has been run; but not if its own work drops it.
///
/// ```
/// # use seriatim::{Database, Table};
/// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = Database::in_memory()?;
/// # let counters = db.create::<Counter>()?;
/// let executor = db.executor(2)?;
/// let running: Vec<_> = (0..8)
///     .map(|id| {
///         let counters = counters.clone();
///         executor.transact(move |tx| tx.insert(&counters, &Counter { id, n: 0 }))
///     })
///     .collect();
/// for insertion in running {
///     insertion.wait()?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Executor {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

enum Work {
    /// Runs by itself; whether the session can be used again.
    Whole(Box<dyn FnOnce(&mut Session) -> bool + Send>),
    /// Runs in steps.
    Transaction(Box<dyn Course>),
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// Threads that sleep and would take work.
    idle: Vec<Thread>,
    closed: bool,
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

impl Shared {
    fn push(&self, work: Work) {
        let mut queue = lock(&self.queue);
        queue.work.push_back(work);
        queue.wake_one();
    }

    fn pop(&self) -> Option<Work> {
        lock(&self.queue).work.pop_front()
    }

    /// Sleeps until woken, or for `most`; wakes for new work if it `takes` any. `false`: there is none, and there will be none.
    fn sleep(&self, takes: bool, held: bool, most: Option<Duration>) -> bool {
        let current = thread::current();
        let mut queue = lock(&self.queue);
        if takes && !queue.work.is_empty() {
            return true;
        }
        if queue.closed && !held {
            return false;
        }
        if takes {
            queue.idle.push(current.clone());
        } else if !queue.work.is_empty() {
            // It may be this thread that was woken for it.
            queue.wake_one();
        }
        drop(queue);
        match most {
            Some(most) => thread::park_timeout(most),
            None => thread::park(),
        }
        lock(&self.queue).idle.retain(|thread| thread.id() != current.id());
        true
    }
}

impl Queue {
    fn wake_one(&mut self) {
        if let Some(thread) = self.idle.pop() {
            thread.unpark();
        }
    }
}

/// A transaction that runs in steps, until its result is told.
trait Course: Send {
    fn step(&mut self, session: &mut Session, decided: Option<Decided>, wait: bool) -> Progress;

    /// Whether the result may leave at once. It has ended.
    fn is_ready(&self) -> bool;

    /// Tells the result, when it may leave.
    fn tell(self: Box<Self>);
}

/// How far a step has come.
enum Progress {
    Decide(Prepared),
    Stalled,
    Ended,
    /// It ended too, and its session is not to be used again.
    Panicked,
}

type StepFn<R> = dyn FnMut(&mut Detached<R>, &mut Session, Option<Decided>, bool) -> Step<R> + Send;

struct Transaction<R> {
    detached: Detached<R>,
    step: Box<StepFn<R>>,
    ended: Option<Ended<R>>,
    place: Arc<Place<Result<Committed<R>, TransactError>>>,
}

enum Ended<R> {
    Withheld(Pending<R>),
    Panicked(Box<dyn Any + Send>),
}

impl<R: Send + 'static> Course for Transaction<R> {
    fn step(&mut self, session: &mut Session, decided: Option<Decided>, wait: bool) -> Progress {
        let Transaction { detached, step, ended, .. } = self;
        match catch_unwind(AssertUnwindSafe(|| step(detached, session, decided, wait))) {
            Ok(Step::Decide(prepared)) => Progress::Decide(prepared),
            Ok(Step::Stalled) => Progress::Stalled,
            Ok(Step::Done(result)) => {
                *ended = Some(Ended::Withheld(session.runner.pending(result)));
                Progress::Ended
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
        let Transaction { detached, step, ended, place } = *self;
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
struct Job {
    session: Box<Session>,
    course: Box<dyn Course>,
}

impl AsMut<Runner> for Job {
    fn as_mut(&mut self) -> &mut Runner {
        &mut self.session.runner
    }
}

/// What was decided of what a thread has executed.
struct Inbox {
    decided: Mutex<VecDeque<(Job, Decided)>>,
    owner: Thread,
}

/// Results that a thread withholds, beyond which it takes no more work.
const WITHHELD_MAX: usize = 1024;

/// What a thread of an executor has.
struct Desk {
    shared: Arc<Shared>,
    database: Database,
    /// Whether nobody else executes what the executor is given.
    alone: bool,
    held_max: usize,
    /// Sessions without a transaction.
    sessions: Vec<Box<Session>>,
    /// Transactions that have been executed and are not known to be decided.
    held: usize,
    inbox: Arc<Inbox>,
    /// What goes on when nothing is held.
    stalled: VecDeque<Work>,
    /// Transactions that have ended, and may not be durable yet.
    withheld: VecDeque<Box<dyn Course>>,
}

impl Desk {
    fn run(&mut self) {
        loop {
            while let Some(course) = self.withheld.pop_front_if(|course| course.is_ready()) {
                course.tell();
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
            if takes && let Some(work) = self.shared.pop() {
                worked = true;
                self.begin(work);
            }
            if !worked && !self.rest(takes) {
                return;
            }
        }
    }

    fn begin(&mut self, work: Work) {
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

    fn step(&mut self, mut job: Job, decided: Option<Decided>) {
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
            _ => self.withheld.push_back(course),
        }
    }

    /// Nothing can be run now. `false`: nothing will.
    fn rest(&mut self, takes: bool) -> bool {
        if self.held > 0 {
            let is_full = self.alone && self.held == self.held_max;
            let gather = self.stalled.is_empty() && !is_full && !lock(&self.shared.queue).closed;
            return match self.database.engine().advance_queue(gather) {
                Advance::Decided => true,
                Advance::Gathers(left) => self.shared.sleep(takes, true, Some(left)),
                Advance::Led => self.shared.sleep(takes, true, None),
            };
        }
        match self.withheld.pop_front() {
            Some(course) => {
                course.tell();
                true
            }
            None => self.shared.sleep(takes, false, None),
        }
    }

    fn session(&mut self) -> Box<Session> {
        self.sessions.pop().unwrap_or_else(|| Box::new(self.database.session()))
    }

    fn give_back(&mut self, mut session: Box<Session>, is_whole: bool) {
        if is_whole {
            session.reset();
            self.sessions.push(session);
        } else {
            contain(|| drop(session));
        }
    }
}

impl Executor {
    pub(crate) fn new(database: &Database, threads: usize) -> Result<Executor, OpenError> {
        if threads == 0 {
            return Err(OpenError::Invalid("an executor has at least 1 thread".to_owned()));
        }
        let mut executor = Executor { shared: Arc::default(), threads: Vec::with_capacity(threads) };
        let held_max = database.engine().held_max(threads);
        for _ in 0..threads {
            let (shared, database) = (Arc::clone(&executor.shared), database.clone());
            let run = move || {
                let inbox = Inbox { decided: Mutex::default(), owner: thread::current() };
                let mut desk = Desk {
                    shared,
                    database,
                    alone: threads == 1,
                    held_max,
                    sessions: Vec::new(),
                    held: 0,
                    inbox: Arc::new(inbox),
                    stalled: VecDeque::new(),
                    withheld: VecDeque::new(),
                };
                desk.run();
            };
            executor.threads.push(thread::spawn("seriatim-executor", run).map_err(OpenError::Thread)?);
        }
        Ok(executor)
    }

    /// Has one of the threads run `work` by itself, with a session as [`Database::session`] gives it.
    pub fn run<R: Send + 'static>(&self, work: impl FnOnce(&mut Session) -> R + Send + 'static) -> Running<R> {
        let (running, place) = Running::new();
        let work = move |session: &mut Session| {
            let result = catch_unwind(AssertUnwindSafe(|| work(session)));
            let is_whole = result.is_ok();
            place.put(result);
            is_whole
        };
        self.shared.push(Work::Whole(Box::new(work)));
        running
    }

    /// Has one of the threads run `body` as [`Session::transact`] does.
    pub fn transact<R: Send + 'static>(
        &self,
        mut body: impl FnMut(&Tx) -> Result<R, Abort> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        self.start(Origin::Closure, move |detached, session, decided, wait| {
            detached.step(&mut session.runner, decided, wait, |core| body(Tx::of(core)))
        })
    }

    /// Has one of the threads run a registered procedure as [`Session::call`] does. Only one that changes something and is run from top
    /// to bottom leaves its thread to others until it is decided: neither one under a protocol that repairs, nor one whose accesses are
    /// checked.
    pub fn call<P: Declared>(
        &self,
        procedure: P,
        arguments: P::Arguments,
    ) -> Running<Result<Committed<P::Output>, TransactError>> {
        self.start(Origin::Procedure, move |detached, session, decided, wait| {
            session.step_declared(procedure, &arguments, detached, decided, wait)
        })
    }

    fn start<R: Send + 'static>(
        &self,
        origin: Origin,
        step: impl FnMut(&mut Detached<R>, &mut Session, Option<Decided>, bool) -> Step<R> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        let (running, place) = Running::new();
        let transaction = Transaction { detached: Detached::new(origin), step: Box::new(step), ended: None, place };
        self.shared.push(Work::Transaction(Box::new(transaction)));
        running
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.idle.drain(..).for_each(|thread| thread.unpark());
        drop(queue);
        let current = thread::current().id();
        // Dropped by its own work, the thread that does it cannot be waited for.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != current) {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

/// What an [`Executor`] was given to run. Dropping it gives up the answer, not the work.
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
