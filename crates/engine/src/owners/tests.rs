//! Runs owners with a model of an executor. Threads come for work and take their time, as a seed determines.

use seriatim_base::Rng;

use super::*;

/// A work by its number, which grows with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A call that belongs to this thread.
    Call(usize),
    Shared,
}

/// The shared queue of an executor: numbers of works, counted from 1.
#[derive(Default)]
struct Shared {
    waiting: VecDeque<(u64, usize)>,
    last: u64,
}

struct Model {
    owners: Owners<usize>,
    shared: Shared,
    kinds: Vec<Kind>,
    /// Works that have begun, in order, with their threads.
    begun: Vec<(usize, usize)>,
}

impl Model {
    fn new(threads: usize) -> Model {
        Model { owners: Owners::new(threads), shared: Shared::default(), kinds: Vec::new(), begun: Vec::new() }
    }

    fn publish(&self) {
        self.owners.shared(self.shared.waiting.front().map(|(number, _)| *number), self.shared.last);
    }

    fn push_call(&mut self, partition: usize) {
        let partitions = PartitionSet::one(partition);
        let thread = self.owners.thread_of(partitions).expect("it is in a partition");
        self.owners.push(thread, self.kinds.len(), partitions);
        self.kinds.push(Kind::Call(thread));
    }

    fn push_shared(&mut self) {
        self.shared.last += 1;
        self.shared.waiting.push_back((self.shared.last, self.kinds.len()));
        self.kinds.push(Kind::Shared);
        self.publish();
    }

    /// The thread begins its next work; returns whether there was any.
    fn turn(&mut self, at: usize) -> bool {
        let work = match self.owners.next(at) {
            Next::Call(work) => work,
            Next::Shared(number) => {
                let (first, work) = self.shared.waiting.pop_front().expect("it waits");
                assert_eq!(first, number);
                self.publish();
                self.owners.began(at, PartitionSet::NONE);
                work
            }
            Next::Nothing => return false,
        };
        self.begin(work, at);
        true
    }

    fn begin(&mut self, work: usize, at: usize) {
        let waits = |other: usize| !self.begun.iter().any(|(begun, _)| *begun == other);
        assert!(waits(work), "each begins once");
        let is_overtaken = |other: &usize| match (self.kinds[work], self.kinds[*other]) {
            (Kind::Call(_), Kind::Shared) => true,
            (_, Kind::Call(thread)) => thread == at,
            (Kind::Shared, Kind::Shared) => true,
        };
        let overtaken = (0..work).filter(|other| waits(*other)).find(is_overtaken);
        assert_eq!(overtaken, None, "{work} on thread {at} overtakes it");
        self.begun.push((work, at));
    }
}

#[test]
fn every_work_begins_once_on_its_thread_and_neither_kind_overtakes_the_other() {
    let mut calls_before_shared = 0;
    for seed in 0..500 {
        println!("seed {seed}");
        let mut rng = Rng::from_seed(seed);
        let mut model = Model::new(rng.range(1, 5) as usize);
        let threads = model.owners.owners.len();
        let (works, pushes, shares) = (rng.range(1, 150) as usize, rng.range(5, 95), rng.below(101));
        let mut turns = 0;
        while model.kinds.len() < works || model.begun.len() < works {
            turns += 1;
            assert!(turns < 100_000, "all is begun");
            if model.kinds.len() < works && rng.percent(pushes) {
                if rng.percent(shares) { model.push_shared() } else { model.push_call(rng.below(16) as usize) }
            }
            let at = rng.below(threads as u64) as usize;
            let worked = model.turn(at);
            assert!(worked || !model.owners.has(at), "a thread with calls has something to begin");
            if rng.percent(5) && !worked {
                let most = model.owners.prepare_to_park(at).expect("it has no calls");
                assert!(most.is_none_or(|most| most == STALL));
                model.owners.unparked(at);
            }
        }
        for (work, at) in &model.begun {
            assert!(matches!(model.kinds[*work], Kind::Shared) || model.kinds[*work] == Kind::Call(*at));
        }
        calls_before_shared += usize::from(
            model
                .begun
                .windows(2)
                .any(|two| matches!((model.kinds[two[0].0], model.kinds[two[1].0]), (Kind::Call(_), Kind::Shared))),
        );
    }
    assert!(calls_before_shared > 100, "both kinds met: {calls_before_shared}");
}

#[test]
fn a_call_goes_to_the_thread_of_its_lowest_partition_and_others_to_any() {
    let owners = Owners::<u8>::new(3);
    let set = |numbers: &[usize]| {
        numbers.iter().fold(PartitionSet::NONE, |set, &number| set.union(PartitionSet::one(number)))
    };
    for (partitions, thread) in [
        (set(&[0]), Some(0)),
        (set(&[5]), Some(2)),
        (set(&[63]), Some(0)),
        (set(&[7, 3, 5]), Some(0)),
        (set(&[5, 7]), Some(2)),
        (PartitionSet::NONE, None),
        (PartitionSet::ALL, None),
    ] {
        assert_eq!(owners.thread_of(partitions), thread, "{partitions}");
    }
}

/// Without the second check a wake-up would be lost.
#[test]
fn a_thread_with_a_call_does_not_park_and_one_that_sleeps_is_woken_by_a_call() {
    let owners = Owners::new(2);
    assert!(!owners.push(1, 'a', PartitionSet::one(1)), "nobody sleeps who could watch");
    assert_eq!(owners.prepare_to_park(1), None);
    assert!(matches!(owners.next(1), Next::Call('a')));
    assert_eq!(owners.prepare_to_park(1), Some(None));
    assert!(!owners.push(1, 'b', PartitionSet::one(1)), "the owner is woken");
    // Returns because of the wake-up.
    thread::park();
    owners.unparked(1);
    assert!(matches!(owners.next(1), Next::Call('b')));
}

#[test]
fn calls_behind_one_that_takes_long_are_taken_over_but_those_of_its_partition() {
    let owners = Owners::new(2);
    let mut seen = owners.seen();
    let both = PartitionSet::one(0).union(PartitionSet::one(2));
    for (call, partitions) in [
        ('a', both),
        ('b', PartitionSet::one(0)),
        ('c', PartitionSet::one(4)),
        ('d', PartitionSet::one(2).union(PartitionSet::one(5))),
    ] {
        owners.push(0, call, partitions);
    }
    assert!(matches!(owners.next(0), Next::Call('a')));
    owners.push(0, 'e', PartitionSet::one(6));
    assert_eq!(owners.take_over(1, &mut seen), None, "it has just begun");
    thread::sleep(2 * STALL);
    assert_eq!(owners.take_over(1, &mut seen), Some('c'));
    assert_eq!(owners.take_over(1, &mut seen), Some('e'), "of the inbox as well");
    assert_eq!(owners.take_over(1, &mut seen), None, "the others need what it runs in");
    assert!(matches!(owners.next(0), Next::Call('b')));
    owners.push(0, 'f', PartitionSet::one(4));
    thread::sleep(2 * STALL);
    assert_eq!(owners.take_over(1, &mut seen), None, "it has begun another since it was looked at");
}

#[test]
fn a_thread_that_sleeps_watches_while_calls_wait_for_one_that_does_not() {
    let owners = Owners::new(3);
    assert_eq!(owners.prepare_to_park(1), Some(None), "nothing waits");
    assert!(owners.push(0, 'a', PartitionSet::one(0)), "somebody sleeps, and nobody watches");
    assert!(owners.appoint(1) && !owners.appoint(2));
    assert!(!owners.push(0, 'b', PartitionSet::one(0)), "one has been woken");
    assert_eq!(owners.prepare_to_park(2), Some(None), "it is not the watcher");
    owners.unparked(1);
    assert_eq!(owners.prepare_to_park(1), Some(Some(STALL)));
    owners.unparked(1);
    assert!(owners.resign(1), "the other sleeps and could watch");
    assert!(!owners.resign(1));
    while let Next::Call(_) = owners.next(0) {}
    assert_eq!(owners.prepare_to_park(1), Some(None));
}

#[test]
fn a_busy_thread_looks_at_the_others_now_and_then() {
    let owners = Owners::<u8>::new(2);
    let mut seen = owners.seen();
    let looks: Vec<u32> = (1..=3 * LOOK).filter(|_| owners.looks(&mut seen)).collect();
    assert_eq!(looks, [LOOK, 2 * LOOK, 3 * LOOK]);
}

/// Otherwise the owner would wait for the partition's lock until the call ends, and its other calls with it.
#[test]
fn an_owner_begins_calls_around_one_that_was_taken_over() {
    let owners = Owners::new(2);
    let mut seen = owners.seen();
    owners.push(0, 'a', PartitionSet::one(0));
    owners.push(0, 'b', PartitionSet::one(2));
    assert!(matches!(owners.next(0), Next::Call('a')));
    assert_eq!(owners.take_over(1, &mut seen), None, "it has just begun");
    thread::sleep(2 * STALL);
    assert_eq!(owners.take_over(1, &mut seen), Some('b'));
    for (call, partition) in [('c', 2), ('d', 4), ('e', 2)] {
        owners.push(0, call, PartitionSet::one(partition));
    }
    assert!(matches!(owners.next(0), Next::Call('d')), "the other thread runs in partition 2");
    assert!(matches!(owners.next(0), Next::Nothing));
    assert!(owners.has(0));
    assert_eq!(owners.prepare_to_park(0), Some(None), "it has nothing to begin");
    owners.ended(&mut seen);
    assert!(lock(&owners.owners[0].inbox).asleep.is_none(), "the end wakes it");
    owners.unparked(0);
    assert_eq!(owners.prepare_to_park(0), None);
    assert!(matches!(owners.next(0), Next::Call('c')));
    assert!(matches!(owners.next(0), Next::Call('e')));
}
