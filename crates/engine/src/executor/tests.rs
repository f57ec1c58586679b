//! Steps of an executor's threads and their callers on its queue, in a fixed order.

use super::*;

fn shared(threads: usize) -> Shared<()> {
    Shared {
        process: Process::current(),
        inboxes: (0..threads).map(|_| Mutex::default()).collect(),
        batches: false,
        owners: Some(Owners::new(threads)),
        queue: Mutex::new(Queue { work: WorkQueue::new(threads, 0), idle: Vec::new(), closed: false }),
    }
}

fn work() -> Work<()> {
    Work::Whole(Box::new(|()| true))
}

/// Two threads lie down. One is woken for its own call, and then for shared work, which it leaves to the other.
#[test]
fn shared_work_that_a_woken_thread_leaves_wakes_another_as_soon_as_that_is_listed() {
    let shared = shared(2);
    assert!(matches!(shared.lie_down(0, true, false, || None), Rest::Asleep(None)));
    assert!(matches!(shared.lie_down(1, true, false, || None), Rest::Asleep(None)));
    shared.push(work(), PredictedAccess::Partitions(PartitionSet::one(1)));
    shared.push(work(), PredictedAccess::Unknown);
    let asleep = |shared: &Shared<()>| lock(&shared.queue).idle.iter().map(|idle| idle.at).collect::<Vec<_>>();
    assert_eq!(asleep(&shared), [0], "the thread that lay down last is woken first");
    shared.get_up(1, true);
    let mut seen = shared.owners.as_ref().map(Owners::seen);
    let next = shared.next(1, [false; 2], &mut Tally::default(), &mut seen);
    assert!(matches!(next, Next::Work(_)), "its call, which came first");
    assert!(asleep(&shared).is_empty(), "the other is woken for the shared work");
    shared.get_up(0, true);
    let mut seen = shared.owners.as_ref().map(Owners::seen);
    assert!(matches!(shared.next(0, [false; 2], &mut Tally::default(), &mut seen), Next::Work(_)));
}
