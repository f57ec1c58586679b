//! Runs the queue with a model of an executor. Threads come for work, take their time and hold transactions, as
//! a seed determines.

use std::collections::HashMap;

use seriatim_base::Rng;

use super::*;

/// The model's knowledge of a work.
#[derive(Clone, Debug)]
struct Known {
    /// Whether it is a call of a batch.
    rows: Option<Vec<(u64, bool)>>,
    runs_alone: bool,
    /// The batch to which it belongs.
    batch: Option<u64>,
    /// When it began, and on which thread.
    began: Option<(u64, usize)>,
    ended: Option<u64>,
}

impl Known {
    fn conflicts(&self, other: &Known) -> bool {
        let rows = |known: &Known| known.rows.clone().unwrap_or_default();
        rows(self).iter().any(|(row, writes)| {
            rows(other).iter().any(|(other, also_writes)| row == other && (*writes || *also_writes))
        })
    }
}

struct Model {
    queue: WorkQueue<usize>,
    works: Vec<Known>,
    /// For each thread, the work that it runs.
    runs: Vec<Option<usize>>,
    holds: Vec<bool>,
    open_batches: Vec<Option<OpenBatch<usize>>>,
    time: u64,
    /// The order in which works began.
    begun: Vec<usize>,
    /// The newest batch of which a call has begun.
    newest: u64,
    /// The queue gets only the first row of each call: a fault that the test must notice.
    misses_rows: bool,
    /// The largest difference between two shares of a batch.
    uneven: usize,
}

impl Model {
    fn new(threads: usize, size: usize) -> Model {
        Model {
            queue: WorkQueue::new(threads, size),
            works: Vec::new(),
            runs: vec![None; threads],
            holds: vec![false; threads],
            open_batches: (0..threads).map(|_| None).collect(),
            time: 0,
            begun: Vec::new(),
            newest: 0,
            misses_rows: false,
            uneven: 0,
        }
    }

    fn push(&mut self, rows: Option<Vec<(u64, bool)>>, runs_alone: bool) {
        let work = self.works.len();
        self.works.push(Known { rows: rows.clone(), runs_alone, batch: None, began: None, ended: None });
        match rows {
            Some(rows) => {
                let mut footprint = Footprint::default();
                let told = if self.misses_rows { &rows[..1] } else { &rows };
                told.iter().for_each(|(row, writes)| footprint.add("t", Key::Word8(*row), *writes));
                self.queue.push_call(work, footprint);
            }
            None => self.queue.push(work, runs_alone),
        }
    }

    /// The thread takes a turn.
    fn turn(&mut self, thread: usize, rng: &mut Rng) {
        self.time += 1;
        if let Some(mut open_batch) = self.open_batches[thread].take() {
            open_batch.decide();
            let mut sizes = vec![0; self.runs.len()];
            open_batch.placed.iter().for_each(|placed| sizes[placed.thread] += placed.members.len());
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            self.uneven = self.uneven.max(most.expect("a thread") - least.expect("a thread"));
            drop(self.queue.place(thread, open_batch));
            return;
        }
        if let Some(work) = self.runs[thread] {
            if rng.percent(40) {
                self.works[work].ended = Some(self.time);
                self.runs[thread] = None;
                self.holds[thread] |=
                    self.works[work].rows.is_none() && !self.works[work].runs_alone && rng.percent(20);
            }
            return;
        }
        if rng.percent(50) {
            self.holds[thread] = false;
        }
        let (holds, batches) = (self.holds[thread], self.queue.counted.batches);
        let promised = self.queue.has_next(thread, holds);
        let next = self.queue.next(thread, holds);
        assert_eq!(promised, !matches!(next, Next::Nothing), "it is said whether there is something");
        match next {
            Next::Work(work) => {
                if self.queue.counted.batches > batches {
                    self.works[work].batch = Some(self.queue.counted.batches);
                }
                self.begin(work, thread);
            }
            Next::Batch(open_batch) => {
                open_batch.calls.iter().for_each(|call| self.works[call.work].batch = Some(open_batch.batch));
                self.open_batches[thread] = Some(open_batch);
            }
            Next::Nothing => {}
        }
    }

    fn begin(&mut self, work: usize, thread: usize) {
        assert_eq!(self.works[work].began, None, "each begins once");
        self.works[work].began = Some((self.time, thread));
        self.begun.push(work);
        self.runs[thread] = Some(work);
        let Known { rows, runs_alone, batch, .. } = self.works[work].clone();
        if rows.is_none() {
            // Rule 1.
            let before = self.begun.iter().filter(|other| **other > work).count();
            assert_eq!(before, 0, "{work} was overtaken: {:?}", self.begun);
        } else {
            let batch = batch.expect("it came in a batch");
            self.newest = self.newest.max(batch);
            assert!(self.newest <= batch + OVERTAKING_BATCHES_MAX, "rule 4: batch {batch}, now {}", self.newest);
            assert!(!self.holds[thread], "a call begins with nothing held");
        }
        if runs_alone {
            let waits = |other: &usize| self.works[*other].began.is_none() && self.is_stuck(*other);
            assert_eq!((0..work).find(waits), None, "rule 2: {work} could wait for it");
            assert!(!self.holds[thread], "it could wait for what is held");
        }
    }

    /// Whether no thread will begin the call while threads that run work by themselves are away. It is not
    /// behind a call of a thread that comes back, and no thread places its batch.
    fn is_stuck(&self, work: usize) -> bool {
        let is_open = |open_batch: &Option<OpenBatch<usize>>| {
            open_batch.as_ref().is_some_and(|batch| batch.calls.iter().any(|call| call.work == work))
        };
        let has = |component: &Component<usize>| component.calls.iter().any(|call| call.work == work);
        let behind = self.queue.threads.iter().zip(&self.runs).any(|(components, runs)| {
            let comes_back = runs.is_none_or(|runs| !self.works[runs].runs_alone);
            comes_back && components.front().is_some_and(|component| component.has_begun && has(component))
        });
        // A batch that is being placed has a thread that comes back.
        let goes_on = self.open_batches.iter().any(Option::is_some);
        !behind && !goes_on && !self.open_batches.iter().any(is_open)
    }

    fn is_done(&self) -> bool {
        self.works.iter().all(|work| work.ended.is_some())
    }

    /// Conflicting calls of one batch that did not run one after another on one thread.
    fn apart(&self) -> usize {
        let mut batches: HashMap<u64, Vec<&Known>> = HashMap::new();
        for work in self.works.iter().filter(|work| work.batch.is_some()) {
            batches.entry(work.batch.expect("it has one")).or_default().push(work);
        }
        let apart = |one: &Known, other: &Known| {
            let ((began, thread), (other_began, other_thread)) = (one.began.expect("done"), other.began.expect("done"));
            let (ended, other_ended) = (one.ended.expect("done"), other.ended.expect("done"));
            thread != other_thread || began < other_ended && other_began < ended
        };
        let pairs = batches.values().flat_map(|calls| {
            calls.iter().enumerate().flat_map(move |(at, one)| calls[at + 1..].iter().map(move |other| (one, other)))
        });
        pairs.filter(|(one, other)| one.conflicts(other) && apart(one, other)).count()
    }
}

/// A random run. Returns how many calls ran apart from those with which they conflict, and the counts.
fn run(seed: u64, misses_rows: bool) -> (usize, BatchStatistics) {
    let (model, counted) = run_placing(Placement::Components, seed, misses_rows);
    (model.apart(), counted)
}

fn run_placing(placement: Placement, seed: u64, misses_rows: bool) -> (Model, BatchStatistics) {
    println!("seed {seed}");
    let mut rng = Rng::from_seed(seed);
    let threads = rng.range(2, 5) as usize;
    let mut model = Model::new(threads, rng.range(2, 20) as usize);
    model.misses_rows = misses_rows;
    model.queue = model.queue.placing(placement);
    let (rows, works) = (rng.range(2, 200), rng.range(1, 120));
    if rng.percent(30) {
        model.queue = model.queue.switched();
    }
    let (batched, pushes, slow) = (rng.below(101), rng.range(5, 95), rng.below(threads as u64 * 2) as usize);
    let mut turns = 0;
    while model.works.len() < works as usize || !model.is_done() {
        turns += 1;
        assert!(turns < 1_000_000, "all is begun");
        if model.works.len() < works as usize && rng.percent(pushes) {
            let some = (0..rng.range(1, 4)).map(|_| (rng.below(rows), rng.percent(60))).collect();
            let is_call = rng.percent(batched);
            model.push(is_call.then_some(some), !is_call && rng.percent(30));
        }
        if rng.percent(10) {
            model.queue.ended(500, rng.below(1500));
        }
        let thread = rng.below(threads as u64) as usize;
        // One thread may be slow, so that it falls behind.
        if thread != slow || rng.percent(2) {
            model.turn(thread, &mut rng);
        }
    }
    assert_eq!(model.begun.len(), model.works.len());
    let counted = model.queue.statistics();
    (model, counted)
}

#[test]
fn in_equal_shares_every_work_begins_once_under_the_same_rules() {
    let (mut apart, mut batches) = (0, 0);
    for seed in 0..500 {
        let (model, counted) = run_placing(Placement::Shares, seed, false);
        assert!(model.uneven <= 1, "seed {seed}: shares of one batch differ by {}", model.uneven);
        (apart, batches) = (apart + model.apart(), batches + counted.batches);
        assert!(counted.components <= counted.batches * model.runs.len() as u64, "seed {seed}: {counted:?}");
    }
    assert!(apart > 0 && batches > 500, "conflicts are split over threads: {apart} in {batches} batches");
}

#[test]
fn every_work_begins_once_and_calls_that_conflict_run_one_after_another_on_one_thread() {
    let mut all = BatchStatistics::default();
    for seed in 0..1500 {
        let (apart, counted) = run(seed, false);
        assert!(apart == 0 || counted.overdue > 0, "seed {seed}: {apart} apart, {counted:?}");
        all.batches += counted.batches;
        all.calls += counted.calls;
        all.components += counted.components;
        all.taken_over += counted.taken_over;
        all.overdue += counted.overdue;
        all.switched += counted.switched;
    }
    println!("{all:?}");
    assert!(all.calls > 2 * all.batches && all.components > all.batches && all.components < all.calls, "{all:?}");
    assert!(all.taken_over > 100 && all.overdue > 50 && all.switched > 100, "{all:?}");
}

#[test]
fn canary_conflicts_that_the_queue_is_not_told_of_are_noticed() {
    let is_noticed = |seed| {
        let (apart, counted) = run(seed, true);
        apart > 0 && counted.overdue == 0
    };
    assert!((0..100).any(is_noticed));
}

fn call(queue: &mut WorkQueue<&'static str>, name: &'static str, rows: &[(u64, bool)]) {
    let mut footprint = Footprint::default();
    rows.iter().for_each(|(row, writes)| footprint.add("t", Key::Word8(*row), *writes));
    queue.push_call(name, footprint);
}

/// The work that the thread begins next; it also places batches.
fn begins(queue: &mut WorkQueue<&'static str>, thread: usize) -> Option<&'static str> {
    loop {
        match queue.next(thread, false) {
            Next::Work(work) => return Some(work),
            Next::Batch(mut open_batch) => {
                open_batch.decide();
                drop(queue.place(thread, open_batch));
            }
            Next::Nothing => return None,
        }
    }
}

#[test]
fn a_lone_call_begins_at_once_and_a_batch_is_what_is_queued() {
    let mut queue = WorkQueue::new(2, 8);
    call(&mut queue, "a", &[(1, true)]);
    assert_eq!(begins(&mut queue, 0), Some("a"));
    call(&mut queue, "b", &[(1, true)]);
    call(&mut queue, "c", &[(2, true)]);
    call(&mut queue, "d", &[(1, false)]);
    assert_eq!(begins(&mut queue, 1), Some("d"), "the reader before the writer");
    assert_eq!(begins(&mut queue, 0), Some("c"));
    assert_eq!(begins(&mut queue, 0), None, "b is behind d, on the other thread");
    assert_eq!(begins(&mut queue, 1), Some("b"));
    let counted = BatchStatistics { batches: 2, calls: 4, components: 3, ..BatchStatistics::default() };
    assert_eq!(queue.statistics(), counted);
}

#[test]
fn calls_that_all_conflict_are_on_one_thread_as_a_component_and_on_each_in_shares() {
    let begun = |placement| {
        let mut queue = WorkQueue::new(2, 8).placing(placement);
        ["a", "b", "c", "d"].into_iter().for_each(|name| call(&mut queue, name, &[(1, true)]));
        [0, 0, 1, 1, 0, 0].map(|thread| begins(&mut queue, thread))
    };
    assert_eq!(begun(Placement::Components), [Some("a"), Some("b"), None, None, Some("c"), Some("d")]);
    assert_eq!(begun(Placement::Shares), [Some("a"), Some("b"), Some("c"), Some("d"), None, None]);
}

#[test]
fn batches_have_one_call_until_conflicts_cost_more() {
    let mut queue = WorkQueue::new(2, 8).switched();
    let four = |queue: &mut WorkQueue<&'static str>| {
        let before = queue.statistics().batches;
        ["a", "b", "c", "d"].into_iter().for_each(|name| call(queue, name, &[(1, true)]));
        let mut begun: Vec<_> = std::iter::from_fn(|| begins(queue, 0)).collect();
        begun.sort_unstable();
        assert_eq!(begun, ["a", "b", "c", "d"]);
        queue.statistics().batches - before
    };
    assert_eq!(four(&mut queue), 4);
    queue.ended(1024, 500);
    assert_eq!(four(&mut queue), 4, "a retry for every second call");
    queue.ended(1024, 1024);
    assert_eq!((four(&mut queue), queue.statistics().switched), (1, 1), "one for each");
    queue.ended(16 * 1024, 0);
    assert_eq!(four(&mut queue), 4, "it is measured again");
    queue.ended(1024, 600);
    assert_eq!((four(&mut queue), queue.statistics().switched), (1, 1), "it goes on");
    queue.ended(16 * 1024, 0);
    queue.ended(1024, 500);
    assert_eq!((four(&mut queue), queue.statistics().switched), (4, 1), "it does not pay any more");
}

#[test]
fn of_one_thread_or_in_batches_of_one_nothing_is_batched() {
    for (threads, size) in [(1, 8), (4, 0), (4, 1)] {
        assert!(!WorkQueue::<u8>::new(threads, size).batches());
    }
    assert!(WorkQueue::<u8>::new(2, 2).batches());
}

#[test]
fn a_thread_that_runs_work_by_itself_gets_nothing_while_others_have_less_than_a_batch() {
    let mut queue = WorkQueue::new(2, 4);
    queue.push("alone", true);
    assert_eq!(begins(&mut queue, 0), Some("alone"));
    for (name, row) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        call(&mut queue, name, &[(row, true)]);
    }
    let begun: Vec<_> = std::iter::from_fn(|| begins(&mut queue, 1)).collect();
    assert_eq!(begun, ["a", "b", "c", "d"]);
    assert_eq!(queue.statistics().taken_over, 0);
}

#[test]
fn a_footprint_without_rows_or_with_too_many_is_not_used() {
    let mut footprint = Footprint::default();
    assert!(!footprint.is_usable());
    for row in 0..FOOTPRINT_ROWS_MAX as u64 {
        footprint.add("t", Key::Word8(row), false);
        assert!(footprint.is_usable());
    }
    for row in 0..1000 {
        footprint.add("t", Key::Word8(row), true);
        assert!(!footprint.is_usable() && footprint.reads.len() <= FOOTPRINT_ROWS_MAX + 1, "it takes no more memory");
    }
}

#[test]
fn rows_are_distinguished_by_table_and_key() {
    let row = |table: &str, key: Key<'_>| {
        let mut footprint = Footprint::default();
        footprint.add(table, key, true);
        assert_eq!(footprint.reads, footprint.writes, "what a write builds on is read");
        footprint.reads[0]
    };
    let keys = [Key::Word8(1), Key::Word8(2), Key::Word16(3), Key::Bytes(b"1"), Key::Bytes(b"")];
    let rows: Vec<u64> = ["t", "u"].iter().flat_map(|table| keys.map(|key| row(table, key))).collect();
    for (at, one) in rows.iter().enumerate() {
        assert!(!rows[at + 1..].contains(one), "{at}");
    }
    assert_eq!(row("t", Key::Word8(1)), rows[0]);
}

#[test]
fn removed_work_is_begun_by_no_thread_and_blocks_no_other() {
    let mut queue = WorkQueue::new(2, 4);
    let call = |row| {
        let mut footprint = Footprint::default();
        footprint.add("table", Key::Word8(row), true);
        footprint
    };
    // A component of two calls, and one of a single call that is on the thread that forms the batch.
    [(0, 7), (1, 7), (2, 8), (3, 8)].into_iter().for_each(|(work, row)| queue.push_call(work, call(row)));
    let Next::Batch(mut open_batch) = queue.next(0, false) else { panic!("four calls") };
    open_batch.decide();
    queue.place(0, open_batch);
    queue.push(4, true);
    queue.push_call(5, call(9));
    queue.push_call(6, call(9));
    let mut removed = queue.remove(|work| [0, 1, 3, 4, 5].contains(work));
    removed.sort_unstable();
    assert_eq!(removed, [0, 1, 3, 4, 5]);
    let mut begun = Vec::new();
    for thread in [0, 1, 0, 1] {
        if let Next::Work(work) = queue.next(thread, false) {
            begun.push(work);
        }
    }
    begun.sort_unstable();
    assert_eq!(begun, [2, 6], "work by itself, which was removed, keeps no call back");
    assert!(!queue.has_next(0, false) && !queue.has_next(1, false));
}
