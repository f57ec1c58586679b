//! Steps of an executor's threads and their callers on its queue, in a fixed order.

use std::sync::mpsc;

use seriatim_base::process::in_fork;
use seriatim_txn::Mode;

use super::*;

fn shared<S>(threads: usize) -> Shared<S> {
    Shared {
        process: Process::current(),
        inboxes: (0..threads).map(|_| Mutex::default()).collect(),
        batches: false,
        owners: Some(Owners::new(threads)),
        queue: Mutex::new(Queue { work: WorkQueue::new(threads, 0), idle: Vec::new(), closed: false }),
    }
}

/// Work that is never cancelled.
struct Now<F>(F);

impl<S, F: FnOnce(&mut S) + Send> Whole<S> for Now<F> {
    fn is_cancelled(&self) -> bool {
        false
    }

    fn run(self: Box<Self>, session: &mut S) -> bool {
        (self.0)(session);
        true
    }
}

fn work() -> Work<()> {
    Work::Whole(Box::new(Now(|(): &mut ()| {})))
}

impl ExecutorSession for Runner {
    fn runner(&mut self) -> &mut Runner {
        self
    }

    fn reset(&mut self) {}
}

#[test]
fn a_watcher_that_resumes_stalled_work_appoints_another_watcher() {
    let engine = Settings::default().open().expect("in memory");
    let (shared, sessions) = (Arc::new(shared::<Runner>(2)), engine.clone());
    let owners = shared.owners.as_ref().expect("threads own partitions");
    assert!(matches!(shared.prepare_to_park(1, true, false, || None), Rest::Asleep(None)));
    assert!(owners.appoint(0), "the thread that is awake");
    let (look, looked) = (Arc::clone(&shared), Arc::new(Mutex::new(None)));
    let told = Arc::clone(&looked);
    let stalled = move |_: &mut Runner| *lock(&told) = Some(lock(&look.queue).idle.len());
    lock(&shared.queue).closed = true;
    let mut desk = ExecutorThread::new(0, 2, Arc::clone(&shared), engine, Arc::new(move || sessions.runner()), 1);
    desk.stalled.push_back(Work::Whole(Box::new(Now(stalled))));
    desk.run();
    assert_eq!(*lock(&looked), Some(0), "the thread that slept was woken before the work began");
}

/// A call that does not run in steps: a procedure that only reads, say, or a closure in one partition.
#[test]
fn a_call_that_is_cancelled_before_its_transaction_begins_is_ended() {
    let engine = Settings::default().open().expect("in memory");
    let sessions = engine.clone();
    let (executor, bodies) = Executor::apart(&engine, 1, move || sessions.runner()).expect("valid");
    let executor = executor.spawn(bodies).expect("a thread");
    for mode in [Mode::ReadWrite, Mode::ReadOnly] {
        let (begins, begun) = mpsc::channel();
        let (tells, told) = mpsc::channel::<()>();
        let run = move |_: &mut Detached<()>, runner: &mut Runner, _, _| {
            begins.send(()).expect("somebody listens");
            told.recv().expect("it is told");
            Step::Done(runner.run(mode, Origin::Procedure, |_| Ok(())))
        };
        let running = executor.start(executor.reserve(), Origin::Procedure, PredictedAccess::Unknown, run);
        begun.recv().expect("it begins");
        assert!(!running.cancel(), "it has begun");
        tells.send(()).expect("it waits for that");
        assert!(matches!(running.wait(), Err(TransactError::Cancelled)));
        let next = move |_: &mut Detached<()>, runner: &mut Runner, _, _| {
            Step::Done(runner.run(mode, Origin::Procedure, |_| Ok(())))
        };
        let next = executor.start(executor.reserve(), Origin::Procedure, PredictedAccess::Unknown, next);
        next.wait().expect("another call");
    }
}

#[test]
fn a_fork_waits_for_no_lock_of_an_executor() {
    let engine = Settings::default().open().expect("in memory");
    let sessions = engine.clone();
    let (executor, _bodies) = Executor::apart(&engine, 1, move || sessions.runner()).expect("valid");
    let start = |executor: &Executor<Runner>| {
        let run = |_: &mut Detached<()>, runner: &mut Runner, _, _| {
            Step::Done(runner.run(Mode::ReadWrite, Origin::Procedure, |_| Ok(())))
        };
        executor.start(executor.reserve(), Origin::Procedure, PredictedAccess::Unknown, run)
    };
    let calls = [start(&executor), start(&executor)];
    let slots = calls.each_ref().map(|running| Arc::clone(&running.slot));
    let held = slots.each_ref().map(|slot| (lock(&slot.answer), lock(&slot.stage)));
    let shared = Arc::clone(&executor.shared);
    let (queue, inbox) = (lock(&shared.queue), lock(&shared.inboxes[0]));
    // Here all of it stays as it is: it is taken in the fork.
    let mut all = Some((executor, calls));
    in_fork(|| {
        let (executor, [first, second]) = all.take().expect("it is there");
        assert!(!first.cancel() && first.is_done() && executor.queued() == 2);
        assert!(matches!(first.wait(), Err(TransactError::Forked)), "no thread gives the answer");
        drop(second);
        assert!(matches!(start(&executor).wait(), Err(TransactError::Forked)));
        assert!(executor.try_reserve().is_ok());
        assert_eq!(executor.batch_statistics(), BatchStatistics::default());
        drop(executor);
    });
    drop((held, queue, inbox));
    drop(all);
}

/// Two threads park. One is woken for its own call, and then for shared work, which it leaves to the other.
#[test]
fn shared_work_that_a_woken_thread_leaves_wakes_another_as_soon_as_that_is_listed() {
    let shared = shared(2);
    assert!(matches!(shared.prepare_to_park(0, true, false, || None), Rest::Asleep(None)));
    assert!(matches!(shared.prepare_to_park(1, true, false, || None), Rest::Asleep(None)));
    shared.push(work(), PredictedAccess::Partitions(PartitionSet::one(1)));
    shared.push(work(), PredictedAccess::Unknown);
    let asleep = |shared: &Shared<()>| lock(&shared.queue).idle.iter().map(|idle| idle.at).collect::<Vec<_>>();
    assert_eq!(asleep(&shared), [0], "the thread that lay down last is woken first");
    shared.unparked(1, true);
    let mut seen = shared.owners.as_ref().map(Owners::seen);
    let next = shared.next(1, [false; 2], &mut Tally::default(), &mut seen);
    assert!(matches!(next, Next::Work(_)), "its call, which came first");
    assert!(asleep(&shared).is_empty(), "the other is woken for the shared work");
    shared.unparked(0, true);
    let mut seen = shared.owners.as_ref().map(Owners::seen);
    assert!(matches!(shared.next(0, [false; 2], &mut Tally::default(), &mut seen), Next::Work(_)));
}
