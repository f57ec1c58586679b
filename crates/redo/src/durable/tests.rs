//! Waiting for the durable point: no waiter misses a move, and none waits for an epoch that cannot become durable.

use super::*;
use seriatim_base::process::in_fork;
use seriatim_base::thread;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(reached: &mut Reached, woken: &Arc<Woken>) -> Poll<Result<(), LogError>> {
    let waker = Waker::from(Arc::clone(woken));
    Pin::new(reached).poll(&mut Context::from_waker(&waker))
}

#[test]
fn the_point_never_moves_back() {
    let durable = Durable::new(Epoch(5));
    for epoch in [7, 6, 7, 3] {
        durable.publish(Epoch(epoch));
        assert_eq!(durable.epoch(), Epoch(7));
    }
    assert!(durable.poll(Epoch(7)).is_some_and(|answer| answer.is_ok()) && durable.poll(Epoch(8)).is_none());
    assert!(!durable.wait_timeout(Epoch(8), Duration::ZERO).expect("it goes on"), "the point is still below");
    assert!(durable.wait_timeout(Epoch(7), Duration::ZERO).expect("it goes on"));
}

#[test]
fn futures_are_woken_when_their_epoch_is_durable_and_not_before() {
    let durable = Arc::new(Durable::new(Epoch(5)));
    let woken = [(); 3].map(|()| Arc::new(Woken::default()));
    let counts = || [0, 1, 2].map(|i: usize| woken[i].0.load(Ordering::SeqCst));
    let mut reached = [6, 6, 8].map(|epoch| durable.reached(Epoch(epoch)));
    for (reached, woken) in reached.iter_mut().zip(&woken) {
        // A future that is polled twice registers one waker.
        assert!(poll(reached, woken).is_pending() && poll(reached, woken).is_pending());
    }
    durable.publish(Epoch(6));
    assert_eq!(counts(), [1, 1, 0]);
    let [first, second, third] = &mut reached;
    assert!(matches!(poll(first, &woken[0]), Poll::Ready(Ok(()))));
    assert!(matches!(poll(second, &woken[1]), Poll::Ready(Ok(()))));
    assert!(poll(third, &woken[2]).is_pending());
    durable.stop("the disk is gone");
    assert_eq!(counts(), [1, 1, 1]);
    assert!(
        matches!(poll(third, &woken[2]), Poll::Ready(Err(LogError::Stopped(reason))) if reason == "the disk is gone")
    );
}

#[test]
fn a_dropped_future_leaves_nothing_behind() {
    let durable = Arc::new(Durable::new(Epoch(5)));
    let woken = Arc::new(Woken::default());
    let mut reached = durable.reached(Epoch(6));
    assert!(poll(&mut reached, &woken).is_pending());
    drop(reached);
    assert_eq!((durable.waiters().expect("no fork").wakers.len(), Arc::strong_count(&woken)), (0, 1));
}

#[test]
fn waiting_threads_wake_when_the_point_moves_and_when_the_log_stops() {
    let durable = Durable::new(Epoch(0));
    thread::scope(|scope| {
        let durable = &durable;
        let waiting: Vec<_> = (1..=20).map(|epoch| scope.spawn(move || durable.wait(Epoch(epoch)).is_ok())).collect();
        for epoch in 1..=10 {
            durable.publish(Epoch(epoch));
            thread::yield_now();
        }
        durable.stop("first");
        durable.stop("second");
        let answers: Vec<_> = waiting.into_iter().map(|thread| thread.join().expect("a waiter")).collect();
        assert_eq!(answers, (1..=20).map(|epoch| epoch <= 10).collect::<Vec<_>>());
    });
    assert_eq!(durable.stop_reason().as_deref(), Some("first"));
    durable.wait(Epoch(10)).expect("what was durable stays so");
}

#[test]
fn a_fork_waits_for_no_lock_that_was_held_when_it_was_made() {
    let durable = Arc::new(Durable::new(Epoch(5)));
    let woken = Arc::new(Woken::default());
    let [mut polled, mut later, mut there] = [8, 9, 5].map(|epoch| durable.reached(Epoch(epoch)));
    assert!(poll(&mut polled, &woken).is_pending());
    let mut polled = Some(polled);
    let held = durable.waiters().expect("this is the process that made it");
    in_fork(|| {
        drop(polled.take());
        assert!(matches!(poll(&mut later, &woken), Poll::Ready(Err(LogError::Forked))));
        assert!(matches!(poll(&mut there, &woken), Poll::Ready(Ok(()))));
        assert!(matches!(durable.wait(Epoch(8)), Err(LogError::Forked)));
        assert!(matches!(durable.wait_timeout(Epoch(8), Duration::MAX), Err(LogError::Forked)));
        assert!(durable.wait(Epoch(5)).is_ok());
        durable.publish(Epoch(9));
        durable.stop("a fork stops nothing");
        assert_eq!(durable.epoch(), Epoch(5));
        assert!(durable.stop_reason().is_some_and(|reason| reason.contains("forked")));
    });
    drop(held);
}
