//! Each decision is made once, in the chosen order, by one leader at a time. No caller waits for a leader that
//! does not exist.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Barrier, mpsc};

use super::*;

/// A decision that cannot be refused.
impl<F: FnOnce() -> R + Send, R> Turn for F {
    type Result = R;

    fn decide(self, _: Option<Cause>) -> R {
        self()
    }
}

/// The positions of a batch's transactions in the order in which they are to be decided.
type Order = fn(&[Prepared]) -> Vec<usize>;

const AS_THEY_CAME: Order = |batch| (0..batch.len()).collect();

/// Batches of at most this many decisions, in this order.
#[derive(Debug)]
struct InOrder {
    batch_max: usize,
    wait: Duration,
    order: Order,
}

impl Validator for InOrder {
    fn batching(&self) -> Batching {
        let InOrder { batch_max, wait, .. } = *self;
        Batching { batch_max, wait, workers: 1, parallel: false, patience: 7 }
    }

    fn order(&self, batch: &[Prepared]) -> Ordered {
        Ordered { order: (self.order)(batch), ..Ordered::default() }
    }
}

/// A queue whose batches this validator orders. The number of open transactions is not known.
fn queue_of(validator: impl Validator + 'static) -> Queue {
    Queue::new(Box::new(validator), None)
}

/// A queue whose batches are decided in order of arrival.
fn queue(batch_max: usize, wait: Duration) -> Queue {
    queue_of(InOrder { batch_max, wait, order: AS_THEY_CAME })
}

/// The counts, without times.
fn untimed(queue: &Queue) -> QueueStatistics {
    QueueStatistics { stages: Default::default(), order_time: Duration::ZERO, ..queue.statistics() }
}

fn counted(decisions: u64, batches: u64, orders_failed: u64) -> QueueStatistics {
    let largest = decisions.min(4);
    QueueStatistics { decisions, batches, orders_failed, largest, ..QueueStatistics::default() }
}

const LONG: Duration = Duration::from_secs(600);

/// The cause of a transaction that can no longer commit.
const STALE: Cause = Cause { phase: Phase::Validate, reason: Reason::RecordChanged };

#[test]
fn a_lone_caller_decides_at_once_and_by_itself() {
    let queue = queue(64, Duration::ZERO);
    let own = thread::current().id();
    for n in 1..=3 {
        assert_eq!(queue.decide(Prepared::default(), || (n, thread::current().id() == own)), (n, true));
        assert_eq!(
            untimed(&queue),
            QueueStatistics { decisions: n, batches: n, largest: 1, ..QueueStatistics::default() }
        );
    }
}

#[test]
fn a_full_batch_is_decided_in_the_order_that_was_chosen() {
    let order: Order = |batch| {
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(batch[at].writes[0]));
        order
    };
    let queue = queue_of(InOrder { batch_max: 4, wait: LONG, order });
    let decided = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for n in 0..4 {
            let (queue, decided) = (&queue, &decided);
            scope.spawn(move || {
                let prepared = Prepared { writes: vec![n], ..Prepared::default() };
                let decision = || {
                    decided.lock().expect("no panic").push(n);
                    n * 10
                };
                assert_eq!(queue.decide(prepared, decision), n * 10);
            });
        }
    });
    assert_eq!(decided.into_inner().expect("no panic"), [3, 2, 1, 0]);
    assert_eq!(untimed(&queue), counted(4, 1, 0));
}

/// Makes three decisions of a batch in this order. Returns how often they were made, and the counts.
fn decide_three(order: Order) -> (usize, QueueStatistics) {
    let queue = queue_of(InOrder { batch_max: 3, wait: LONG, order });
    let decided = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| queue.decide(Prepared::default(), || decided.fetch_add(1, Relaxed)));
        }
    });
    (decided.into_inner(), untimed(&queue))
}

#[test]
fn an_order_that_leaves_some_out_names_them_twice_or_names_none_of_the_batch_decides_each_once() {
    let once = (3, counted(3, 1, 0));
    assert_eq!(decide_three(|_| vec![1, 1]), once);
    assert_eq!(decide_three(|_| vec![3, 2, usize::MAX]), once);
}

#[test]
fn an_order_that_panics_is_that_of_arrival_and_counted() {
    struct PanicsAgain;
    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            panic!("deliberately");
        }
    }
    let once = (3, counted(3, 1, 1));
    assert_eq!(decide_three(|_| panic!("deliberately")), once);
    assert_eq!(decide_three(|_| std::panic::panic_any(PanicsAgain)), once);
}

/// Submits decisions that report these numbers.
fn submit(queue: &Queue, numbers: std::ops::Range<u64>, notify: &mpsc::Sender<u64>) {
    for n in numbers {
        let notify = notify.clone();
        let prepared = Prepared { writes: vec![n as usize], ..Prepared::default() };
        queue.submit(prepared, move || notify.send(n).expect("it is listened to"));
    }
}

#[test]
fn one_thread_submits_a_batch_and_decides_it_when_it_is_full_or_has_nothing_else_to_do() {
    let reversed: Order = |batch| (0..batch.len()).rev().collect();
    for (order, is_reversed) in [(AS_THEY_CAME, false), (reversed, true)] {
        let queue = queue_of(InOrder { batch_max: 4, wait: LONG, order });
        let (notify, notified) = mpsc::channel();
        assert_eq!(queue.advance(true), Advance::Decided, "nothing is queued");
        submit(&queue, 0..3, &notify);
        assert_eq!(notified.try_iter().count(), 0);
        assert!(matches!(queue.advance(true), Advance::Gathers(left) if left <= LONG));
        submit(&queue, 3..7, &notify);
        let in_order = |mut numbers: Vec<u64>| {
            if is_reversed {
                numbers.reverse();
            }
            numbers
        };
        assert_eq!(notified.try_iter().collect::<Vec<_>>(), in_order((0..4).collect()));
        assert_eq!(queue.advance(false), Advance::Decided);
        assert_eq!(notified.try_iter().collect::<Vec<_>>(), in_order((4..7).collect()));
        assert_eq!(untimed(&queue), counted(7, 2, 0));
        assert!(!queue.state().led && queue.state().waiting.is_empty());
    }
}

/// Orders batches as they came, once as many leaders order as there are `workers`.
#[derive(Debug)]
struct Meets(Barrier);

impl Validator for Meets {
    fn batching(&self) -> Batching {
        Batching { batch_max: 2, wait: Duration::ZERO, workers: 2, parallel: true, patience: 7 }
    }

    fn order(&self, batch: &[Prepared]) -> Ordered {
        self.0.wait();
        Ordered { order: (0..batch.len()).collect(), ..Ordered::default() }
    }
}

/// Two batches are ordered at the same time, so each has its own leader.
#[test]
fn full_batches_are_ordered_at_the_same_time_and_decided_one_at_a_time() {
    const ROUNDS: usize = 50;
    let queue = queue_of(Meets(Barrier::new(2)));
    let (inside, decided) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for _ in 0..ROUNDS {
        // No thread leads before all are queued.
        queue.state().led = true;
        let (inside, decided, queue) = (&inside, &decided, &queue);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    queue.decide(Prepared::default(), || {
                        assert_eq!(inside.fetch_add(1, Relaxed), 0, "two batches are decided at the same time");
                        thread::yield_now();
                        inside.fetch_sub(1, Relaxed);
                        decided.fetch_add(1, Relaxed)
                    })
                });
            }
            while queue.state().waiting.len() < 4 {
                thread::yield_now();
            }
            queue.state().led = false;
            queue.hand_on(queue.state());
        });
    }
    assert_eq!(decided.into_inner(), 4 * ROUNDS);
    assert_eq!((queue.statistics().batches, queue.statistics().largest), (2 * ROUNDS as u64, 2));
}

/// Counts the batches that it has begun to order, and fails if two are ordered at the same time.
#[derive(Debug)]
struct OrdersOne {
    begun: Arc<AtomicUsize>,
    inside: AtomicUsize,
}

impl Validator for OrdersOne {
    fn batching(&self) -> Batching {
        Batching { batch_max: 2, wait: Duration::ZERO, workers: 1, parallel: true, patience: 7 }
    }

    fn order(&self, batch: &[Prepared]) -> Ordered {
        assert_eq!(self.inside.fetch_add(1, Relaxed), 0, "two batches are ordered at the same time");
        self.begun.fetch_add(1, Relaxed);
        thread::yield_now();
        self.inside.fetch_sub(1, Relaxed);
        Ordered { order: (0..batch.len()).collect(), ..Ordered::default() }
    }
}

/// The decisions of the first batch wait until a second one is ordered.
#[test]
fn a_full_batch_is_ordered_while_the_one_before_is_decided() {
    let begun = Arc::new(AtomicUsize::new(0));
    let queue = queue_of(OrdersOne { begun: Arc::clone(&begun), inside: AtomicUsize::new(0) });
    // No thread leads before all are queued.
    queue.state().led = true;
    thread::scope(|scope| {
        let (queue, begun) = (&queue, &begun);
        let callers = [(); 6].map(|()| {
            scope.spawn(move || {
                queue.decide(Prepared::default(), || {
                    while begun.load(Relaxed) < 2 {
                        thread::yield_now();
                    }
                    begun.load(Relaxed) >= 2
                })
            })
        });
        while queue.state().waiting.len() < 6 {
            thread::yield_now();
        }
        queue.state().led = false;
        queue.hand_on(queue.state());
        assert!(callers.map(|caller| caller.join().expect("no panic")).iter().all(|&met| met));
    });
    let counted = queue.statistics();
    assert_eq!((counted.decisions, counted.batches, counted.orders_failed), (6, 3, 0));
}

/// Refuses the first transaction of each batch.
#[derive(Debug)]
struct Refuses;

impl Validator for Refuses {
    fn batching(&self) -> Batching {
        Batching { batch_max: 4, wait: LONG, workers: 1, parallel: true, patience: 7 }
    }

    fn order(&self, batch: &[Prepared]) -> Ordered {
        Ordered { order: (1..batch.len()).rev().collect(), left_out: vec![0], ..Ordered::default() }
    }
}

const TO_COME: u64 = 100;

/// Reports each call with its number; for `refuse`, with [`TO_COME`] added.
struct Tells(u64, mpsc::Sender<(u64, Option<Cause>)>);

impl Turn for Tells {
    type Result = ();

    fn recheck(&mut self) -> Result<Option<Prepared>, Cause> {
        if self.0 == 3 { Err(STALE) } else { Ok(None) }
    }

    fn refuse(&mut self) {
        self.1.send((self.0 + TO_COME, None)).expect("it is listened to");
    }

    fn decide(self, refused: Option<Cause>) {
        self.1.send((self.0, refused)).expect("it is listened to");
    }
}

/// The first of three, which leads, ends its recheck only after the others have ended theirs.
struct Rechecks<'t> {
    at: usize,
    done: &'t AtomicUsize,
    decided: &'t Mutex<Vec<usize>>,
}

impl Turn for Rechecks<'_> {
    type Result = Option<Cause>;

    fn recheck(&mut self) -> Result<Option<Prepared>, Cause> {
        self.done.fetch_add(1, SeqCst);
        while self.at == 0 && self.done.load(SeqCst) < 3 {
            thread::yield_now();
        }
        match self.at {
            0 => Ok(None),
            1 => Err(STALE),
            _ => Ok(Some(number(0))),
        }
    }

    fn decide(self, refused: Option<Cause>) -> Option<Cause> {
        self.decided.lock().expect("no panic").push(self.at);
        refused
    }
}

/// One transaction is stale, and another is ordered by its new input.
#[test]
fn the_result_of_a_callers_own_recheck_counts() {
    // The first in the order is decided before the second.
    let (queue, done, decided) = (knowing(3, vec![(0, 1)]), AtomicUsize::new(0), Mutex::default());
    let refused = thread::scope(|scope| {
        let callers = [0, 1, 2].map(|at| {
            while queue.state().waiting.len() < at {
                thread::yield_now();
            }
            let (queue, turn) = (&queue, Rechecks { at, done: &done, decided: &decided });
            scope.spawn(move || queue.decide(number(at + 1), turn))
        });
        callers.map(|caller| caller.join().expect("no panic"))
    });
    assert_eq!(refused, [None, Some(STALE), None]);
    assert_eq!(decided.into_inner().expect("no panic"), [2, 0, 1]);
    assert_eq!(queue.statistics().stale, 1);
}

#[test]
fn refused_callers_get_their_answers_last() {
    let queue = queue_of(Refuses);
    let (notify, notified) = mpsc::channel();
    (0..4).for_each(|n| queue.submit(Prepared::default(), Tells(n, notify.clone())));
    let notified: Vec<_> = notified.try_iter().collect();
    let to_come = [3, 0].map(|n| (n + TO_COME, None));
    assert_eq!(notified[..2], to_come, "who waits for them need not wait for the others of the batch");
    assert_eq!(notified[2..], [(2, None), (1, None), (3, Some(STALE)), (0, Some(LEFT_OUT))]);
    let QueueStatistics { decisions, left_out, stale, .. } = queue.statistics();
    assert_eq!((decisions, left_out, stale), (4, 1, 1));
}

/// Threads with other work have submitted more than a batch: a waiting caller leads until its own decision is made.
#[test]
fn a_caller_behind_more_than_a_batch_of_submitted_decisions_is_decided() {
    let queue = queue(4, Duration::ZERO);
    let (notify, notified) = mpsc::channel();
    queue.state().led = true;
    submit(&queue, 0..10, &notify);
    assert_eq!(queue.advance(false), Advance::Led);
    queue.state().led = false;
    assert_eq!(queue.decide(Prepared::default(), || 7), 7);
    assert_eq!(notified.try_iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert_eq!(untimed(&queue), counted(11, 3, 0));
}

#[test]
fn callers_and_submitters_decide_each_others_transactions() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 500;
    let queue = queue(4, Duration::ZERO);
    let (notify, notified) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..ROUNDS).for_each(|n| assert_eq!(queue.decide(Prepared::default(), || n), n)));
            let (queue, notify) = (&queue, notify.clone());
            scope.spawn(move || {
                let (own, done) = mpsc::channel();
                for n in 0..ROUNDS {
                    submit(queue, n..n + 1, &own);
                    submit(queue, n..n + 1, &notify);
                    if n % 5 == 0 {
                        while queue.advance(false) == Advance::Led {
                            thread::yield_now();
                        }
                    }
                }
                while queue.advance(false) == Advance::Led {
                    thread::yield_now();
                }
                assert_eq!(done.iter().take(ROUNDS as usize).sum::<u64>(), (0..ROUNDS).sum::<u64>());
            });
        }
    });
    assert_eq!(notified.try_iter().count() as u64, THREADS * ROUNDS);
    assert_eq!(queue.statistics().decisions, 3 * THREADS * ROUNDS);
}

#[test]
fn decisions_of_many_threads_are_made_once_each_and_never_two_at_a_time() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 2000;
    let queue = queue(3, Duration::ZERO);
    // Not atomic: the queue makes one decision at a time.
    struct Shared(UnsafeCell<u64>);
    // SAFETY: the value is used only in decisions, of which there is one at a time.
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

/// Orders batches by number, with these edges.
#[derive(Debug)]
struct Knows {
    batch_max: usize,
    edges: Vec<(usize, usize)>,
}

impl Validator for Knows {
    fn batching(&self) -> Batching {
        Batching { batch_max: self.batch_max, wait: LONG, workers: 1, parallel: true, patience: 7 }
    }

    fn order(&self, batch: &[Prepared]) -> Ordered {
        // By what they write, which is their number.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by_key(|&at| batch[at].writes[0]);
        let edges = self.edges.iter().map(|&(first, second)| {
            let at = |number: usize| order.get(number).copied().unwrap_or(usize::MAX);
            (at(first), at(second))
        });
        Ordered { edges: Some(edges.collect()), order, ..Ordered::default() }
    }
}

/// A queue with batches of this size, and these edges between their numbers.
fn knowing(batch_max: usize, edges: Vec<(usize, usize)>) -> Queue {
    queue_of(Knows { batch_max, edges })
}

/// The input of the queue for the decision of this number.
fn number(at: usize) -> Prepared {
    Prepared { writes: vec![at], ..Prepared::default() }
}

#[test]
fn decisions_without_an_edge_between_them_are_made_at_the_same_time() {
    const CALLERS: usize = 3;
    let (queue, inside) = (knowing(CALLERS, Vec::new()), AtomicUsize::new(0));
    thread::scope(|scope| {
        let callers: [_; CALLERS] = std::array::from_fn(|at| {
            let (queue, inside) = (&queue, &inside);
            scope.spawn(move || {
                queue.decide(number(at), || {
                    inside.fetch_add(1, Relaxed);
                    while inside.load(Relaxed) < CALLERS {
                        thread::yield_now();
                    }
                    inside.load(Relaxed)
                })
            })
        });
        assert_eq!(callers.map(|caller| caller.join().expect("no panic")), [CALLERS; CALLERS]);
    });
    assert_eq!((queue.statistics().decisions, queue.statistics().batches), (CALLERS as u64, 1));
}

/// Batches with random edges, decided by callers and by threads that submit. Edges that point backward, or to
/// no decision, are ignored.
#[test]
fn a_decision_is_made_when_those_before_it_have_been_made() {
    const SEED: u64 = 15;
    println!("seed {SEED}");
    let mut rng = seriatim_base::Rng::from_seed(SEED);
    for round in 0..300 {
        let size = 2 + rng.below(7) as usize;
        let submitted = if round % 3 == 0 { rng.below(size as u64) as usize } else { 0 };
        let mut draw = || rng.below(size as u64 + 1) as usize;
        let edges: Vec<(usize, usize)> = (0..2 * size).map(|_| (draw(), draw())).collect();
        let queue = knowing(size, edges.clone());
        let (clock, times) = (AtomicUsize::new(1), (0..size).map(|_| Mutex::new(None)).collect::<Vec<_>>());
        let (clock, times) = (Arc::new(clock), Arc::new(times));
        let decision = |at: usize| {
            let (clock, times) = (Arc::clone(&clock), Arc::clone(&times));
            move || {
                let begun = clock.fetch_add(1, SeqCst);
                (0..at % 4).for_each(|_| thread::yield_now());
                let made = (begun, clock.fetch_add(1, SeqCst));
                assert_eq!(times[at].lock().expect("no panic").replace(made), None);
            }
        };
        (0..submitted).for_each(|at| queue.submit(number(at), decision(at)));
        thread::scope(|scope| {
            for at in submitted..size {
                let (queue, decision) = (&queue, decision(at));
                scope.spawn(move || queue.decide(number(at), decision));
            }
        });
        let times: Vec<(usize, usize)> =
            times.iter().map(|times| times.lock().expect("no panic").expect("each is made")).collect();
        for &(first, second) in edges.iter().filter(|(first, second)| first < second && *second < size) {
            assert!(times[first].1 < times[second].0, "round {round}: {second} before {first}: {times:?}");
        }
        assert_eq!(queue.statistics().decisions, size as u64);
    }
}

/// A caller must not join a round of which it was not notified: the notifying thread would use a frame that is gone.
#[test]
fn a_round_is_joined_after_the_notification_and_not_before() {
    let head = Head::new();
    let round = Arc::new(Round::new([Some(head.caller.clone())].into_iter(), []));
    *head.joins.lock().expect("no panic") = Some(Joins { round, at: 0, what: DECIDES });
    assert!(head.joins(RECHECKS).is_none());
    assert!(head.joins(DECIDES).is_some() && head.joins(DECIDES).is_none());
}

/// The same with callers, whichever thread runs while one is about to be notified.
#[test]
fn no_caller_is_gone_while_it_is_being_notified() {
    for seed in 0..1000 {
        let queue = knowing(2, Vec::new());
        let call = |at: usize| -> Box<dyn FnOnce() -> usize + Send + '_> {
            let queue = &queue;
            Box::new(move || queue.decide(number(at), move || at))
        };
        let ended = thread::take_turns(seed, 6, vec![call(0), call(1)]);
        assert!(ended.into_iter().map(|end| end.expect("no panic")).eq(0..2), "seed {seed}");
    }
    let met = notify::MET.load(SeqCst);
    assert!(met > 10, "{met} callers looked while they were being notified");
}

#[test]
fn a_panic_among_decisions_that_are_made_at_the_same_time_is_that_of_its_caller() {
    let queue = knowing(4, vec![(0, 1), (1, 2)]);
    let outcomes = thread::scope(|scope| {
        let run = |n: usize| {
            let queue = &queue;
            scope.spawn(move || queue.decide(number(n), || if n == 1 { panic!("deliberately") } else { n }))
        };
        [0, 1, 2, 3].map(run).map(|caller| caller.join().ok())
    });
    assert_eq!(outcomes, [Some(0), None, Some(2), Some(3)]);
}

#[test]
fn a_panic_reaches_only_its_own_caller() {
    let queue = queue(2, LONG);
    let outcomes = thread::scope(|scope| {
        let run = |n: u32| {
            let queue = &queue;
            scope.spawn(move || queue.decide(Prepared::default(), || if n == 0 { panic!("deliberately") } else { n }))
        };
        [0, 1].map(run).map(|caller| caller.join().ok())
    });
    assert_eq!(outcomes, [None, Some(1)]);
}

#[test]
fn a_batch_that_does_not_fill_is_decided_all_the_same() {
    let queue = queue(100, Duration::from_millis(1));
    assert_eq!(queue.decide(Prepared::default(), || 7), 7);
}

/// Decisions that a full batch has left behind have waited while other batches were under way.
#[test]
fn a_decision_left_behind_by_a_full_batch_does_not_wait_again() {
    const WAIT: Duration = Duration::from_millis(20);
    let queue = queue(4, WAIT);
    let (notify, notified) = mpsc::channel();
    queue.state().led = true;
    submit(&queue, 0..6, &notify);
    thread::sleep(WAIT);
    queue.state().led = false;
    assert_eq!([queue.advance(true), queue.advance(true)], [Advance::Decided; 2]);
    assert_eq!(notified.try_iter().count(), 6);
}
