//! Threads that run transactions for callers with better things to do than to wait.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use seriatim_base::thread::{self, JoinHandle};

use crate::{Database, OpenError, Session};

/// Threads with a session each, which run what they are given, first come, first served: closures and procedures alike, whole with
/// their retries. One caller can have many of them under way, and where decisions are queued
/// ([`Builder::queue_decisions`](crate::Builder::queue_decisions)) they come together in batches.
///
/// Dropping it waits until all that it was given has been run.
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
///         executor.run(move |session| session.transact(|tx| tx.insert(&counters, &Counter { id, n: 0 })))
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

type Work = Box<dyn FnOnce(&mut Session) + Send>;

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    closed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The next to be run; `None` when there will be none.
    fn next(&self) -> Option<Work> {
        let mut queue = lock(&self.queue);
        loop {
            match queue.work.pop_front() {
                Some(work) => return Some(work),
                None if queue.closed => return None,
                None => queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Executor {
    pub(crate) fn new(database: &Database, threads: usize) -> Result<Executor, OpenError> {
        if threads == 0 {
            return Err(OpenError::Invalid("an executor has at least 1 thread".to_owned()));
        }
        let mut executor = Executor { shared: Arc::default(), threads: Vec::with_capacity(threads) };
        for _ in 0..threads {
            let (shared, mut session) = (Arc::clone(&executor.shared), database.session());
            let run = move || {
                while let Some(work) = shared.next() {
                    work(&mut session);
                }
            };
            executor.threads.push(thread::spawn("seriatim-executor", run).map_err(OpenError::Thread)?);
        }
        Ok(executor)
    }

    /// Has one of the threads run `work` with its session.
    pub fn run<R: Send + 'static>(&self, work: impl FnOnce(&mut Session) -> R + Send + 'static) -> Running<R> {
        let place = Arc::new(Place::default());
        let running = Running { place: Arc::clone(&place) };
        let work = move |session: &mut Session| {
            let result = catch_unwind(AssertUnwindSafe(|| work(session)));
            place.put(result);
        };
        lock(&self.shared.queue).work.push_back(Box::new(work));
        self.shared.arrived.notify_one();
        running
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.arrived.notify_all();
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

struct Answer<R> {
    result: Option<thread::Result<R>>,
    waker: Option<Waker>,
}

impl<R> Default for Place<R> {
    fn default() -> Place<R> {
        Place { answer: Mutex::new(Answer { result: None, waker: None }), done: Condvar::new() }
    }
}

impl<R> Place<R> {
    fn put(&self, result: thread::Result<R>) {
        let mut answer = lock(&self.answer);
        answer.result = Some(result);
        let waker = answer.waker.take();
        drop(answer);
        self.done.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<R> Running<R> {
    /// Waits until the work has been done: what it gave.
    ///
    /// # Panics
    /// If the work did.
    pub fn wait(self) -> R {
        let mut answer = lock(&self.place.answer);
        let result = loop {
            match answer.result.take() {
                Some(result) => break result,
                None => answer = self.place.done.wait(answer).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(answer);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Whether [`Running::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        lock(&self.place.answer).result.is_some()
    }
}

/// What the work gave, when it has been done.
///
/// # Panics
/// If the work did.
impl<R> Future for Running<R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let mut answer = lock(&self.place.answer);
        match answer.result.take() {
            Some(result) => {
                drop(answer);
                Poll::Ready(result.unwrap_or_else(|panic| resume_unwind(panic)))
            }
            None => {
                answer.waker = Some(context.waker().clone());
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
