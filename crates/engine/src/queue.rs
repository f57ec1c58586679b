//! The queue of decisions: transactions that have been executed wait in it and are decided in batches, one by one, in an order that is
//! chosen for the batch.
//!
//! No thread of its own: the first caller leads, decides the batch while the others sleep, and hands the lead to one that waits by
//! then (flat combining: Hendler, Incze, Shavit, Tzafrir, SPAA 2010). A lone caller finds nobody, and pays a lock.
//!
//! Access rule, which makes the pointers of this module sound: a [`Frame`] lies on the stack of a caller that does not return before
//! its frame is done. Until then only the leader touches it, but for its state and thread; the leader's last access sets the state.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim_base::abort_on_unwind;
use seriatim_base::clock::Instant;
use seriatim_base::thread::{self, Thread};
use seriatim_txn::Prepared;

use crate::statistics::QueueStatistics;

/// How batches of decisions are made.
#[derive(Clone, Copy, Debug)]
pub struct QueueSettings {
    /// Decisions that a batch has at most; at least 1.
    pub batch_max: usize,
    /// How long a batch waits for more while it is smaller. Zero: not at all, so that batches come from load only.
    pub wait: Duration,
    /// In which order a batch is decided: the positions of its transactions. Those that it does not name are decided last, as they came.
    pub order: fn(&[Prepared]) -> Vec<usize>,
}

/// As they came.
pub fn arrival(batch: &[Prepared]) -> Vec<usize> {
    (0..batch.len()).collect()
}

impl Default for QueueSettings {
    fn default() -> QueueSettings {
        QueueSettings { batch_max: 64, wait: Duration::ZERO, order: arrival }
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    settings: QueueSettings,
    state: Mutex<State>,
    /// For a leader whose batch waits for more.
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Entry>,
    /// Somebody leads: a caller that comes now is woken.
    led: bool,
    counted: QueueStatistics,
}

/// A transaction to be decided.
#[derive(Debug)]
struct Entry {
    prepared: Prepared,
    frame: NonNull<Head>,
    decide: unsafe fn(NonNull<Head>),
}

// SAFETY: the access rule: what a frame holds is `Send`, and one thread at a time touches it.
unsafe impl Send for Entry {}

/// What a caller sleeps on.
struct Head {
    state: AtomicU8,
    caller: Thread,
}

const WAITING: u8 = 0;
/// Its caller is to lead.
const LEADS: u8 = 1;
const DONE: u8 = 2;

/// The stack frame of a caller.
#[repr(C)]
struct Frame<F, R> {
    /// First: a pointer to it is one to the frame.
    head: Head,
    decision: UnsafeCell<ManuallyDrop<F>>,
    result: UnsafeCell<Option<thread::Result<R>>>,
}

impl Head {
    /// Tells the caller, which may be gone as soon as it sees it.
    ///
    /// # Safety
    /// The caller has not been told that it is done.
    unsafe fn tell(head: NonNull<Head>, state: u8) {
        // SAFETY: the access rule.
        let caller = unsafe { head.as_ref() }.caller.clone();
        // SAFETY: as above; the last access.
        // ORDERING: pairs with the acquire in `wait`.
        unsafe { head.as_ref() }.state.store(state, Ordering::Release);
        caller.unpark();
    }

    /// Sleeps until told.
    fn wait(&self) -> u8 {
        loop {
            match self.state.load(Ordering::Acquire) {
                WAITING => thread::park(),
                told => return told,
            }
        }
    }
}

/// Makes the decision of a frame.
///
/// # Safety
/// `head` is that of a `Frame<F, R>` that is not done.
unsafe fn decide<F: FnOnce() -> R, R>(head: NonNull<Head>) {
    // SAFETY: the caller's promise, and the access rule.
    let frame = unsafe { head.cast::<Frame<F, R>>().as_ref() };
    // SAFETY: it is taken once, as a frame is decided once.
    let decision = unsafe { ManuallyDrop::take(&mut *frame.decision.get()) };
    let result = catch_unwind(AssertUnwindSafe(decision));
    // SAFETY: the access rule.
    unsafe { *frame.result.get() = Some(result) };
    // SAFETY: it was not told before; the frame is not used any more.
    unsafe { Head::tell(head, DONE) };
}

impl Queue {
    pub(crate) fn new(settings: QueueSettings) -> Queue {
        Queue { settings, state: Mutex::default(), arrived: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn statistics(&self) -> QueueStatistics {
        self.state().counted
    }

    /// Has the decision made, by this thread or by another, when its place in the order has come: what it answers.
    pub(crate) fn decide<F: FnOnce() -> R + Send, R: Send>(&self, prepared: Prepared, decision: F) -> R {
        let head = Head { state: AtomicU8::new(WAITING), caller: thread::current() };
        let decision = UnsafeCell::new(ManuallyDrop::new(decision));
        let frame = Frame { head, decision, result: UnsafeCell::new(None) };
        // Nothing here unwinds: the frame would be gone while others use it.
        abort_on_unwind("a queue of decisions", || {
            let entry = Entry { prepared, frame: NonNull::from(&frame).cast(), decide: decide::<F, R> };
            let mut state = self.state();
            state.waiting.push(entry);
            let leads = !std::mem::replace(&mut state.led, true);
            drop(state);
            if !leads {
                self.arrived.notify_one();
            }
            if leads || frame.head.wait() == LEADS {
                self.lead();
            }
        });
        // It is done: by others, or in the batch that it led, which begins with it.
        match frame.result.into_inner().expect("a decision that is done has a result") {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Decides one batch, which this caller's transaction begins, and hands the lead on.
    fn lead(&self) {
        let QueueSettings { batch_max, wait, order } = self.settings;
        let mut state = self.state();
        if state.waiting.len() < batch_max && !wait.is_zero() {
            state = self.gather(state);
        }
        let size = state.waiting.len().min(batch_max);
        let batch: Vec<Entry> = state.waiting.drain(..size).collect();
        state.counted.decisions += size as u64;
        state.counted.batches += 1;
        drop(state);
        let (prepared, mut frames): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|entry| (entry.prepared, Some((entry.frame, entry.decide)))).unzip();
        for at in order(&prepared).into_iter().chain(0..size) {
            if let Some((frame, decide)) = frames[at].take() {
                // SAFETY: the caller of the frame waits, or is this one; it is decided once.
                unsafe { decide(frame) };
            }
        }
        let mut state = self.state();
        match state.waiting.first() {
            None => state.led = false,
            // SAFETY: its caller waits, and is not done.
            Some(next) => unsafe { Head::tell(next.frame, LEADS) },
        }
    }

    /// Waits until the batch is full or has waited long enough.
    #[cold]
    fn gather<'q>(&self, mut state: MutexGuard<'q, State>) -> MutexGuard<'q, State> {
        let QueueSettings { batch_max, wait, .. } = self.settings;
        let began = Instant::now();
        while state.waiting.len() < batch_max
            && let Some(left) = wait.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
        {
            state = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use seriatim_catalog::{ColumnDef, ColumnSet, ColumnType, Key, RowWriter, TableDef};
    use seriatim_store::Direction;
    use seriatim_txn::OnExists;

    use super::*;
    use crate::{RawScan, RetryPolicy, Settings, Target, TxCore, protocols};

    fn settings(batch_max: usize, wait: Duration) -> QueueSettings {
        QueueSettings { batch_max, wait, ..QueueSettings::default() }
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_lone_caller_decides_at_once_and_by_itself() {
        let queue = Queue::new(QueueSettings::default());
        let own = thread::current().id();
        for n in 1..=3 {
            assert_eq!(queue.decide(Prepared::default(), || (n, thread::current().id() == own)), (n, true));
            assert_eq!(queue.statistics(), QueueStatistics { decisions: n, batches: n });
        }
    }

    #[test]
    fn a_full_batch_is_decided_in_the_order_that_was_chosen() {
        let order = |batch: &[Prepared]| {
            let mut order = arrival(batch);
            order.sort_by_key(|&at| std::cmp::Reverse(batch[at].writes[0]));
            order
        };
        let queue = Queue::new(QueueSettings { order, ..settings(4, LONG) });
        let decided = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for n in 0..4 {
                let (queue, decided) = (&queue, &decided);
                scope.spawn(move || {
                    let prepared = Prepared { writes: vec![n], ..Prepared::default() };
                    let decision = || {
                        decided.lock().expect("nobody panics").push(n);
                        n * 10
                    };
                    assert_eq!(queue.decide(prepared, decision), n * 10);
                });
            }
        });
        assert_eq!(decided.into_inner().expect("nobody panics"), [3, 2, 1, 0]);
        assert_eq!(queue.statistics(), QueueStatistics { decisions: 4, batches: 1 });
    }

    #[test]
    fn an_order_that_leaves_some_out_or_names_them_twice_decides_each_once() {
        let queue = Queue::new(QueueSettings { order: |_| vec![1, 1], ..settings(3, LONG) });
        let decided = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| queue.decide(Prepared::default(), || decided.fetch_add(1, Relaxed)));
            }
        });
        assert_eq!(decided.into_inner(), 3);
    }

    #[test]
    fn decisions_of_many_threads_are_made_once_each_and_never_two_at_a_time() {
        const THREADS: u64 = 8;
        const ROUNDS: u64 = 2000;
        let queue = Queue::new(settings(3, Duration::ZERO));
        // Not atomic: the queue keeps them apart.
        struct Shared(UnsafeCell<u64>);
        // SAFETY: what is in it is used in decisions only, of which there is one at a time.
        unsafe impl Sync for Shared {}
        let sum = Shared(UnsafeCell::new(0));
        let add = |n: u64| {
            let sum = &sum;
            queue.decide(Prepared::default(), move || {
                let sum = &sum.0;
                // SAFETY: one decision at a time.
                unsafe { *sum.get() += n };
                n
            })
        };
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..ROUNDS).for_each(|n| assert_eq!(add(n), n)));
            }
        });
        assert_eq!(sum.0.into_inner(), THREADS * ROUNDS * (ROUNDS - 1) / 2);
        assert_eq!(queue.statistics().decisions, THREADS * ROUNDS);
        assert!(!queue.state().led && queue.state().waiting.is_empty());
    }

    #[test]
    fn a_panic_is_that_of_its_caller_and_nobody_elses() {
        let queue = Queue::new(settings(2, LONG));
        let outcomes = thread::scope(|scope| {
            let run = |n: u32| {
                let queue = &queue;
                scope.spawn(move || {
                    queue.decide(Prepared::default(), || if n == 0 { panic!("deliberately") } else { n })
                })
            };
            [0, 1].map(run).map(|caller| caller.join().ok())
        });
        assert_eq!(outcomes, [None, Some(1)]);
    }

    #[test]
    fn a_batch_that_does_not_fill_is_decided_all_the_same() {
        let queue = Queue::new(settings(100, Duration::from_millis(1)));
        assert_eq!(queue.decide(Prepared::default(), || 7), 7);
    }

    /// Of one batch: a transaction that counts rows and changes one, and another that inserts a row among them.
    #[test]
    fn who_looked_is_decided_before_who_inserts_and_both_commit() {
        fn who_looked_first(batch: &[Prepared]) -> Vec<usize> {
            let sees = |reader: &Prepared, of: &Prepared| reader.nodes.iter().any(|node| of.inserts.contains(node));
            match batch {
                [first, second] if sees(second, first) => vec![1, 0],
                _ => vec![0, 1],
            }
        }
        let held = protocols().iter().filter(|protocol| protocol.capabilities.detach);
        for protocol in held {
            let queue = QueueSettings { batch_max: 2, wait: LONG, order: who_looked_first };
            let retry = RetryPolicy { attempts_max: 1, ..RetryPolicy::default() };
            let protocol = protocol.name.to_owned();
            let settings = Settings { protocol, queue: Some(queue), retry, ..Settings::default() };
            let db = settings.open().expect("it holds transactions");
            let column = |name: &'static str| ColumnDef::new(name, ColumnType::U64);
            let table = TableDef::builder("cell").column(column("id")).column(column("value")).key(["id"]);
            let cells = db.create(table.finish().expect("a table")).expect("memory");
            let places = &cells.primary.layout.places;
            let insert = |tx: &TxCore, id: u64| {
                let encode = |writer: &mut RowWriter<'_>| {
                    writer.set::<u64>(&places[0], id)?;
                    writer.set::<u64>(&places[1], 0)
                };
                tx.insert_at(&cells, Key::Word8(id), encode, OnExists::Refuse).map(|new| assert!(new))
            };
            let count = |tx: &TxCore| {
                RawScan::new(tx, &cells, Target::Rows, Bound::Unbounded, Bound::Unbounded, Direction::Forward).count()
            };
            // Two, so that neither waits for company.
            thread::scope(|scope| {
                for id in [1, 1000] {
                    let (db, insert) = (&db, &insert);
                    scope.spawn(move || db.runner().transact(|tx| insert(tx, id)).expect("other keys"));
                }
            });
            thread::scope(|scope| {
                let inserter = scope.spawn(|| db.runner().transact(|tx| insert(tx, 500)).expect("decided last"));
                let counted = db.runner().transact(|tx| {
                    let counted = count(tx)?;
                    tx.change_at(&cells, Key::Word8(1), ColumnSet::ALL, |mut writer| {
                        writer.set::<u64>(&places[1], counted as u64).expect("a number");
                        writer.dirty()
                    })?;
                    Ok(counted)
                });
                assert_eq!(counted.expect("decided first").value, 2);
                assert_eq!(inserter.join().expect("no panic").attempts, 1);
            });
            assert_eq!(db.runner().snapshot(&count).expect("alone").value, 3);
        }
    }
}
