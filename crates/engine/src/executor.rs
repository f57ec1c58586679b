//! Threads that run transactions for callers with better things to do than to wait.
//!
//! A thread holds up to [`Engine::held_max`] executed transactions, each with a session of its own, whose decisions are queued. It never
//! waits for what itself has: with transactions held it waits neither for a worker nor in work that runs by itself, nor sleeps before another
//! attempt of one that was refused, but decides first.
//! Where batches wait for more, and a thread that holds some runs a body meanwhile, one that has nothing to do keeps the time for it: it
//! decides the batch when its wait is over, and goes on with what was decided.
//!
//! What it begins next, the [work queue](crate::work_queue) says; where calls are batched, that can be one which conflicts with the one
//! before, so it begins none with transactions held. Where there are partitions, a call goes to the thread that [owns](crate::owners) its.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use seriatim_base::process::{FORKED, Process};
use seriatim_base::thread::{self, JoinHandle, Thread};
use seriatim_txn::{PartitionSet, Partitions, Prepared};

use crate::owners::{self, Owners, Seen};
use crate::work_queue::{Footprint, Forming, Next, WorkQueue};
use crate::{
    Advance, Batch, BatchStatistics, Committed, Decided, Detached, Engine, OpenError, Origin, Pending, Runner,
    Settings, Step, TransactError,
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
    /// If its threads own some.
    partitions: Option<Arc<Partitions>>,
    threads: Vec<JoinHandle<()>>,
}

/// What is known of a call before it runs.
#[derive(Clone, Debug, Default)]
pub enum Foreseen {
    /// Nothing: any thread runs it.
    #[default]
    Nothing,
    /// Its rows, by which it may be batched.
    Rows(Footprint),
    /// Its partitions, whose thread runs it.
    Partitions(PartitionSet),
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
    /// What was decided of what each thread has executed.
    inboxes: Box<[Mutex<Inbox<S>>]>,
    /// Whether calls are batched whose footprints are known.
    batches: bool,
    /// Where calls go whose partitions are known.
    owners: Option<Owners<Work<S>>>,
    /// The one that has the threads.
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
    /// Whether it looks after the batch that waits.
    watches: bool,
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
    fn push(&self, work: Work<S>, foreseen: Foreseen) {
        if let (Some(owners), Foreseen::Partitions(partitions)) = (&self.owners, &foreseen)
            && let Some(owner) = owners.thread_of(*partitions)
        {
            if owners.push(owner, work, *partitions) {
                self.wake_watcher(owners);
            }
            return;
        }
        let runs_alone = matches!(work, Work::Whole(_));
        let mut queue = lock(&self.queue);
        match foreseen {
            Foreseen::Rows(footprint) => queue.work.push_call(work, footprint),
            _ => queue.work.push(work, runs_alone),
        }
        self.tell(&queue);
        queue.wake_one();
    }

    /// Tells owners what is in the shared queue.
    fn tell(&self, queue: &Queue<S>) {
        if let Some(owners) = &self.owners {
            let (first, last) = queue.work.numbers();
            owners.shared(first, last);
        }
    }

    /// Wakes a thread that sleeps, to watch those that do not.
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

    /// What the thread does next; it has counted calls and their retries.
    fn next(&self, at: usize, holds: bool, tally: &mut Tally, seen: &mut Option<Seen>) -> Next<Work<S>> {
        if let (Some(owners), Some(seen)) = (&self.owners, seen) {
            let next = self.next_of(owners, at, holds, seen);
            if !matches!(next, Next::Nothing) && owners.resign(at) {
                self.wake_watcher(owners);
            }
            return next;
        }
        let mut queue = lock(&self.queue);
        let Tally { calls, retries } = std::mem::take(tally);
        if calls > 0 {
            queue.work.ended(calls, retries);
        }
        queue.work.next(at, holds)
    }

    /// What the thread does next, which owns partitions.
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
                    // Another thread may have taken it. The next one may have come after calls of this thread.
                    if queue.work.numbers().0 == Some(number) {
                        let next = queue.work.next(at, holds);
                        self.tell(&queue);
                        owners.began(at, PartitionSet::NONE);
                        return next;
                    }
                }
                owners::Next::Nothing => return owners.take_over(at, seen).map_or(Next::Nothing, Next::Work),
            }
        }
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

    /// A thread runs a body while it holds transactions: one that sleeps without any is to look after them.
    fn have_watched(&self) {
        let mut queue = lock(&self.queue);
        if !queue.idle.iter().any(|idle| idle.watches)
            && let Some(found) = queue.idle.iter().position(|idle| !idle.holds)
        {
            queue.idle.remove(found).thread.unpark();
        }
    }

    /// A transaction of another thread that was decided, and that it has not gone on with.
    fn adopt(&self, at: usize) -> Option<(Job<S>, Decided)> {
        let mut others = self.inboxes.iter().enumerate().filter(|(other, _)| *other != at);
        others.find_map(|(_, inbox)| {
            let mut inbox = lock(inbox);
            let decided = inbox.decided.pop_front();
            inbox.adopted += usize::from(decided.is_some());
            decided
        })
    }

    /// Sleeps until woken, or for `most`; wakes for new work if it `takes` any. `false`: there is none, and there will be none.
    fn sleep(&self, at: usize, takes: bool, holds: bool, most: impl FnOnce() -> Option<Duration>) -> bool {
        let owners = self.owners.as_ref().filter(|_| takes);
        let mut queue = lock(&self.queue);
        if takes && queue.work.has_next(at, holds) || owners.is_some_and(|owners| owners.has(at)) {
            return true;
        }
        if queue.closed && !holds {
            return false;
        }
        // It may be this thread that was woken for what another can begin.
        queue.wake_one();
        // With the lock: who submits a decision afterwards finds this thread asleep.
        let most = most();
        if takes {
            let watches = !holds && most.is_some();
            queue.idle.push(Idle { at, holds, watches, thread: thread::current() });
        }
        drop(queue);
        let lies = owners.map(|owners| owners.lie_down(at));
        // With calls that have come meanwhile it does not sleep.
        if lies != Some(None) {
            let watch = lies.flatten().flatten();
            match [most, watch].into_iter().flatten().min() {
                Some(most) => thread::park_timeout(most),
                None => thread::park(),
            }
            if let Some(owners) = owners {
                owners.get_up(at);
            }
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
    /// If it panicked, its session is not to be used again.
    Ended {
        tally: Tally,
        panicked: bool,
    },
}

type StepFn<S, R> = dyn FnMut(&mut Detached<R>, &mut S, Option<Decided>, bool) -> Step<R> + Send;

struct Transaction<S, R> {
    detached: Detached<R>,
    step: Box<StepFn<S, R>>,
    ended: Option<Ended<R>>,
    place: Arc<Place<Result<Committed<R>, TransactError>>>,
    /// Whether it has a footprint that it is batched by.
    is_batched: bool,
    /// Of the steps until now.
    retries: u64,
}

enum Ended<R> {
    Withheld(Pending<R>),
    Panicked(Box<dyn Any + Send>),
}

impl<S: ExecutorSession, R: Send + 'static> Course<S> for Transaction<S, R> {
    fn step(&mut self, session: &mut S, decided: Option<Decided>, wait: bool) -> Progress {
        let Transaction { detached, step, ended, is_batched, retries, .. } = self;
        let before = session.runner().retries;
        let stepped = catch_unwind(AssertUnwindSafe(|| step(detached, session, decided, wait)));
        *retries += session.runner().retries - before;
        let panicked = stepped.is_err();
        match stepped {
            Ok(Step::Decide(prepared)) => return Progress::Decide(prepared),
            Ok(Step::Stalled) => return Progress::Stalled,
            Ok(Step::Done(result)) => {
                // Pieces of one that committed are repeated by themselves.
                *retries =
                    result.as_ref().map_or(*retries, |committed| u64::from(committed.attempts.saturating_sub(1)));
                *ended = Some(Ended::Withheld(session.runner().pending(result)));
            }
            Err(panic) => *ended = Some(Ended::Panicked(panic)),
        }
        let tally = if *is_batched { Tally { calls: 1, retries: *retries } } else { Tally::default() };
        Progress::Ended { tally, panicked }
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
    decided: VecDeque<(Job<S>, Decided)>,
    /// Others went on with so many, which the owner does not know yet.
    adopted: usize,
}

impl<S> Default for Inbox<S> {
    fn default() -> Inbox<S> {
        Inbox { decided: VecDeque::new(), adopted: 0 }
    }
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
    /// What goes on when nothing is held.
    stalled: VecDeque<Work<S>>,
    /// Transactions that have ended, and may not be durable yet.
    withheld: VecDeque<Box<dyn Course<S>>>,
    /// What the queue has not been told yet.
    tally: Tally,
    /// Of other owners of partitions, if there are such.
    seen: Option<Seen>,
}

impl<S: ExecutorSession> Desk<S> {
    fn run(&mut self) {
        loop {
            while let Some(course) = self.withheld.pop_front_if(|course| course.is_ready()) {
                course.tell();
            }
            self.engine.end_queue_wait();
            let mut inbox = lock(&self.shared.inboxes[self.at]);
            self.held -= std::mem::take(&mut inbox.adopted);
            let decided = inbox.decided.pop_front();
            drop(inbox);
            let mut worked = decided.is_some();
            if let Some((job, decided)) = decided {
                self.held -= 1;
                self.step(job, Some(decided));
            }
            // It may sleep first: what has ended is told before.
            if self.held == 0
                && !worked
                && let Some(work) = self.stalled.pop_front()
            {
                worked = true;
                self.begin(work);
            }
            let takes = self.stalled.is_empty() && self.held < self.held_max && self.withheld.len() < WITHHELD_MAX;
            if takes {
                let next = self.shared.next(self.at, self.held > 0, &mut self.tally, &mut self.seen);
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
        if self.held > 0 && !self.alone && self.engine.queue_has_wait() {
            self.shared.have_watched();
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
            // Before work that runs by itself, which may wait for it.
            Progress::Stalled => self.stalled.push_front(Work::Transaction(course)),
            Progress::Ended { tally: Tally { calls, retries }, .. } => {
                self.tally.calls += calls;
                self.tally.retries += retries;
                self.withheld.push_back(course);
            }
            Progress::Decide(_) => unreachable!("it is queued"),
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
                Advance::Gathers(left) => self.shared.sleep(self.at, takes, true, || Some(left)),
                Advance::Led => self.shared.sleep(self.at, takes, true, || None),
            };
        }
        if self.engine.queue_has_wait()
            && let Some((job, decided)) = self.shared.adopt(self.at)
        {
            self.step(job, Some(decided));
            return true;
        }
        match self.withheld.pop_front() {
            Some(course) => {
                course.tell();
                true
            }
            None => self.shared.sleep(self.at, takes, false, || self.engine.look_at_queue_again()),
        }
    }

    fn session(&mut self) -> Box<S> {
        let mut session = self.sessions.pop().unwrap_or_else(|| Box::new((self.open)()));
        // A client's calls are run by any of the sessions, and it may have been answered by another.
        session.runner().change_hands();
        session
    }

    fn give_back(&mut self, mut session: Box<S>, is_whole: bool) {
        // It may have come with a transaction of another thread.
        if is_whole && self.sessions.len() < self.held_max {
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
        let Settings { batch, batch_placement, .. } = *engine.settings();
        let work = WorkQueue::new(threads, batch.size(threads)).placing(batch_placement);
        let work = if batch == Batch::Auto { work.switched() } else { work };
        let batches = work.batches();
        let queue = Mutex::new(Queue { work, idle: Vec::new(), closed: false });
        let inboxes = (0..threads).map(|_| Mutex::default()).collect();
        let partitions = engine.partitions().filter(|_| !batches);
        let owners = partitions.as_ref().map(|_| Owners::new(threads));
        let shared = Arc::new(Shared { inboxes, batches, owners, process: Process::current(), queue });
        let (open, held_max) = (Arc::new(open), engine.held_max(threads));
        let body = |at| {
            let (shared, engine, open) = (Arc::clone(&shared), engine.clone(), Arc::clone(&open));
            let run = move || {
                let seen = shared.owners.as_ref().map(Owners::seen);
                let mut desk = Desk {
                    at,
                    shared,
                    engine,
                    open,
                    alone: threads == 1,
                    held_max,
                    sessions: Vec::new(),
                    held: 0,
                    stalled: VecDeque::new(),
                    withheld: VecDeque::new(),
                    tally: Tally::default(),
                    seen,
                };
                desk.run();
            };
            Box::new(run) as ExecutorBody
        };
        let bodies = (0..threads).map(body).collect();
        Ok((Executor { shared, partitions, threads: Vec::with_capacity(threads) }, bodies))
    }

    /// Has one of the threads run `work` by itself. In a fork, which has none of them, that panics when it is waited
    /// for.
    pub fn run<R: Send + 'static>(&self, work: impl FnOnce(&mut S) -> R + Send + 'static) -> Running<R> {
        let (running, place) = Running::new();
        if !self.shared.process.is_current() {
            place.put(Err(Box::new(FORKED)));
            return running;
        }
        let work = move |session: &mut S| {
            let result = catch_unwind(AssertUnwindSafe(|| work(session)));
            let is_whole = result.is_ok();
            place.put(result);
            is_whole
        };
        self.shared.push(Work::Whole(Box::new(work)), Foreseen::Nothing);
        running
    }

    /// Whether calls are batched whose footprints are known.
    pub fn batches(&self) -> bool {
        self.shared.batches
    }

    /// The partitions of the database, if its threads own them: calls go by theirs.
    pub fn partitions(&self) -> Option<&Partitions> {
        self.partitions.as_deref()
    }

    /// What batching has done since the executor was made.
    pub fn batch_statistics(&self) -> BatchStatistics {
        lock(&self.shared.queue).work.statistics()
    }

    /// Has one of the threads run a transaction in steps, each of which is one of [`Detached::step`], or the whole. Where calls are
    /// batched, one with a usable footprint is; where threads own partitions, one in known partitions is run by their thread.
    pub fn start<R: Send + 'static>(
        &self,
        origin: Origin,
        foreseen: Foreseen,
        step: impl FnMut(&mut Detached<R>, &mut S, Option<Decided>, bool) -> Step<R> + Send + 'static,
    ) -> Running<Result<Committed<R>, TransactError>> {
        let (running, place) = Running::new();
        if !self.shared.process.is_current() {
            place.put(Ok(Err(TransactError::Forked)));
            return running;
        }
        let foreseen = match foreseen {
            Foreseen::Rows(footprint) if !self.shared.batches || !footprint.is_usable() => Foreseen::Nothing,
            foreseen => foreseen,
        };
        let is_batched = if let Foreseen::Rows(footprint) = &foreseen {
            footprint.pass_time();
            true
        } else {
            false
        };
        let detached = Detached::new(origin);
        let transaction = Transaction { detached, step: Box::new(step), ended: None, place, is_batched, retries: 0 };
        self.shared.push(Work::Transaction(Box::new(transaction)), foreseen);
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
}

/// Who is to be told of an answer.
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

impl<R> Default for Place<R> {
    fn default() -> Place<R> {
        Place { answer: Mutex::new(Answer::Awaited(Awaiting::Nobody)) }
    }
}

impl<R> Place<R> {
    /// Leaves the answer and tells of it. Whatever the user's waker and answer do, the caller goes on.
    fn put(self: Arc<Place<R>>, result: thread::Result<R>) {
        let before = std::mem::replace(&mut *lock(&self.answer), Answer::There(result));
        match before {
            Answer::Awaited(Awaiting::Thread(thread)) => thread.unpark(),
            Answer::Awaited(Awaiting::Task(waker)) => contain(|| waker.wake()),
            _ => {}
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
        let result = loop {
            let mut answer = lock(&self.place.answer);
            if let Some(result) = answer.take() {
                break result;
            }
            *answer = Answer::Awaited(Awaiting::Thread(thread::current()));
            drop(answer);
            thread::park();
        };
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
