//! The queue of an executor: which work a thread begins next.
//!
//! Without batching it is first come, first served. With batching, calls with known footprints are taken from
//! the queue in batches and placed on threads. Conflicting calls of a batch form a component, which runs on one
//! thread ([`Batch::place`]). Alternatively each thread gets an equal share ([`Placement::Shares`]), which is
//! called a component here too. Batches do not wait: a batch is what is queued when a thread comes for work, up
//! to the batch size. The queue executes nothing, and knows threads only by number.
//!
//! 1. *Work that is not batched is not delayed.* It begins in order of arrival, and no later work begins before
//!    it.
//! 2. *Work that runs by itself may wait for earlier work.* A batch has calls of only one side of it. It begins
//!    when every earlier call has begun, or is behind a call that has begun on another thread.
//! 3. *A component stays on one thread.* A thread without work takes over a whole component that has not begun.
//! 4. *A call is overtaken by a bounded number of batches.* No batch is formed while a call waits that
//!    [`OVERTAKING_BATCHES_MAX`] later batches may have overtaken. That call begins first, on any thread. This
//!    is an exception to rule 3; the protocol then resolves conflicts, as always.
//!
//! A batch is placed outside of the queue's lock: from [`Next::Batch`] to [`WorkQueue::place`] its thread owns it.

use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

use seriatim_base::thread::{self, BatchWork};
use seriatim_batch::{Batch, Member, Placed, Placement, Settings};
use seriatim_catalog::Key;

use switch::Switch;

/// Most later batches that may overtake a call. Threads that take equal shares are one or two batches apart;
/// more means that a thread is delayed.
pub const OVERTAKING_BATCHES_MAX: u64 = 4;

/// Most rows of a footprint of a batched call. Placing a call takes some 50 ns for each of its rows. A call
/// with more rows would probably conflict with all others of its batch.
const FOOTPRINT_ROWS_MAX: usize = 256;

/// The rows that a call will access, as far as they are known before it runs: a hint, which may be wrong.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    /// Hashes of table and key. Two rows with the same hash count as one.
    reads: Vec<u64>,
    writes: Vec<u64>,
}

impl Footprint {
    /// Adds a row that the call will read, or write.
    pub fn add(&mut self, table: &str, key: Key<'_>, writes: bool) {
        if self.reads.len() > FOOTPRINT_ROWS_MAX {
            return;
        }
        let mut hasher = DefaultHasher::new();
        table.hash(&mut hasher);
        match key {
            Key::Word8(word) => word.hash(&mut hasher),
            Key::Word16(word) => word.hash(&mut hasher),
            Key::Bytes(bytes) => bytes.hash(&mut hasher),
        }
        let row = hasher.finish();
        // A write reads the row too, or its absence.
        self.reads.push(row);
        if writes {
            self.writes.push(row);
        }
    }

    /// Reports the cost of computing it.
    pub(crate) fn pass_time(&self) {
        thread::batch_work(BatchWork::FootprintRow, self.reads.len() as u64);
    }

    /// Whether calls can be batched by it: it has rows, and not too many.
    pub fn is_usable(&self) -> bool {
        (1..=FOOTPRINT_ROWS_MAX).contains(&self.reads.len())
    }
}

/// Counts of batching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchStatistics {
    /// Batches formed, including those of one call.
    pub batches: u64,
    /// Calls in them.
    pub calls: u64,
    /// Components of conflicting calls, including those of one call; or shares.
    pub components: u64,
    /// Components that another thread took over before they began.
    pub taken_over: u64,
    /// Calls that began on another thread than the rest of their component, as too many batches had overtaken them.
    pub overdue: u64,
    /// Times that [`Batch::Auto`](crate::Batch::Auto) switched batching on. While it is off, batches have one call.
    pub switched: u64,
}

impl BatchStatistics {
    /// The counts since `earlier`.
    pub fn since(self, earlier: BatchStatistics) -> BatchStatistics {
        BatchStatistics {
            batches: self.batches - earlier.batches,
            calls: self.calls - earlier.calls,
            components: self.components - earlier.components,
            taken_over: self.taken_over - earlier.taken_over,
            overdue: self.overdue - earlier.overdue,
            switched: self.switched - earlier.switched,
        }
    }
}

/// Removes the items that `is_wanted` picks. The caller drops them, outside of the queue's lock.
pub(crate) fn remove<T>(queue: &mut VecDeque<T>, is_wanted: impl Fn(&T) -> bool) -> VecDeque<T> {
    let (removed, kept): (VecDeque<T>, VecDeque<T>) = std::mem::take(queue).into_iter().partition(is_wanted);
    *queue = kept;
    removed
}

/// Work, the number of its arrival, and what its queue knows of it.
struct Queued<W, K = ()> {
    arrival: u64,
    work: W,
    known: K,
}

/// Calls that run one after another on one thread.
struct Component<W> {
    batch: u64,
    /// Its thread has begun a call of it.
    has_begun: bool,
    calls: VecDeque<Queued<W>>,
}

impl<W> Component<W> {
    fn next(&self) -> u64 {
        self.calls.front().map_or(u64::MAX, |call| call.arrival)
    }
}

/// Rule 4: whether calls of this batch may have been overtaken by the most batches, when `batches` have been formed.
fn is_overdue(batch: u64, batches: u64) -> bool {
    batch + OVERTAKING_BATCHES_MAX <= batches
}

/// The next action of a thread.
pub(crate) enum Next<W> {
    /// Begin this work.
    Work(W),
    /// Place this batch.
    Batch(OpenBatch<W>),
    /// Nothing can begin.
    Nothing,
}

/// A batch that a thread has taken and must place.
pub(crate) struct OpenBatch<W> {
    batch: u64,
    calls: Vec<Queued<W, Footprint>>,
    loads: Vec<usize>,
    placement: Placement,
    placed: Vec<Placed>,
}

pub(crate) struct WorkQueue<W> {
    /// Most calls of a batch; 0 without batching.
    size: usize,
    placement: Placement,
    /// Decides whether batches have more than one call; `None` if they always may.
    switch: Option<Switch>,
    arrivals: u64,
    /// Work that is not batched, and whether it runs by itself.
    works: VecDeque<Queued<W, bool>>,
    /// Arrivals of work that runs by itself and has not begun.
    alone: VecDeque<u64>,
    /// Calls to be batched.
    calls: VecDeque<Queued<W, Footprint>>,
    /// Batches that threads have taken and not placed yet.
    open_batches: Vec<u64>,
    /// For each thread, the components on it that are not finished.
    threads: Vec<VecDeque<Component<W>>>,
    /// Threads that run work by itself, which may take any time.
    away: Vec<bool>,
    counted: BatchStatistics,
}

impl<W> WorkQueue<W> {
    /// A queue for this many threads, with batches of at most `size` calls. With one thread, or batches of one,
    /// nothing is batched.
    pub(crate) fn new(threads: usize, size: usize) -> WorkQueue<W> {
        WorkQueue {
            size: if threads < 2 || size < 2 { 0 } else { size },
            placement: Placement::default(),
            switch: None,
            arrivals: 0,
            works: VecDeque::new(),
            alone: VecDeque::new(),
            calls: VecDeque::new(),
            open_batches: Vec::new(),
            threads: (0..threads).map(|_| VecDeque::new()).collect(),
            away: vec![false; threads],
            counted: BatchStatistics::default(),
        }
    }

    /// The queue with another placement of batches.
    pub(crate) fn placing(self, placement: Placement) -> WorkQueue<W> {
        WorkQueue { placement, ..self }
    }

    /// The queue with batching only while it pays.
    pub(crate) fn switched(self) -> WorkQueue<W> {
        WorkQueue { switch: Some(Switch::new(self.size)), ..self }
    }

    /// Counts calls with footprints that have ended, and their retries.
    pub(crate) fn ended(&mut self, calls: u64, retries: u64) {
        if let Some(switch) = &mut self.switch
            && switch.ended(calls, retries)
        {
            self.counted.switched += 1;
        }
    }

    /// Whether calls are batched, always or at times.
    pub(crate) fn batches(&self) -> bool {
        self.size > 0
    }

    pub(crate) fn statistics(&self) -> BatchStatistics {
        self.counted
    }

    /// The arrival of the first work that is not batched, if any, and of the last work that came.
    pub(crate) fn numbers(&self) -> (Option<u64>, u64) {
        (self.works.front().map(|work| work.arrival), self.arrivals)
    }

    /// Adds work that is not batched.
    pub(crate) fn push(&mut self, work: W, runs_alone: bool) {
        let arrival = self.arrive();
        if runs_alone && self.batches() {
            self.alone.push_back(arrival);
        }
        self.works.push_back(Queued { arrival, work, known: runs_alone });
    }

    /// Adds a call to be batched.
    pub(crate) fn push_call(&mut self, work: W, footprint: Footprint) {
        let arrival = self.arrive();
        self.calls.push_back(Queued { arrival, work, known: footprint });
    }

    fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// Removes the work that `is_wanted` picks, except that of batches that are being placed.
    pub(crate) fn remove(&mut self, is_wanted: impl Fn(&W) -> bool) -> Vec<W> {
        fn take<W, K>(queue: &mut VecDeque<Queued<W, K>>, is_wanted: impl Fn(&W) -> bool, to: &mut Vec<(u64, W)>) {
            to.extend(remove(queue, |queued| is_wanted(&queued.work)).into_iter().map(|it| (it.arrival, it.work)));
        }
        let mut removed = Vec::new();
        take(&mut self.works, &is_wanted, &mut removed);
        self.alone.retain(|alone| removed.iter().all(|(arrival, _)| arrival != alone));
        take(&mut self.calls, &is_wanted, &mut removed);
        for components in &mut self.threads {
            components.iter_mut().for_each(|component| take(&mut component.calls, &is_wanted, &mut removed));
            components.retain(|component| !component.calls.is_empty());
        }
        removed.into_iter().map(|(_, work)| work).collect()
    }

    /// The next action of the thread. A thread that holds undecided transactions begins no call of a batch,
    /// which could conflict with them, and no work that runs by itself.
    pub(crate) fn next(&mut self, thread: usize, holds: bool) -> Next<W> {
        self.away[thread] = false;
        let first = self.works.front().map_or(u64::MAX, |work| work.arrival);
        if self.batches() && holds {
            return if self.can_begin_while_holding(thread) { self.begin_work(thread) } else { Next::Nothing };
        }
        match self.threads[thread].front().map(Component::next) {
            Some(own) if own < first => return self.begin_call(thread),
            Some(_) => return self.begin_work(thread),
            None => {}
        }
        if let Some(work) = self.begin_overdue(thread, first) {
            return work;
        }
        if self.can_form(first) {
            return self.form(thread);
        }
        if self.take_over(thread, |component| component.next() < first) {
            self.counted.taken_over += 1;
            return self.begin_call(thread);
        }
        self.begin_work(thread)
    }

    /// Whether [`WorkQueue::next`] has anything for the thread.
    pub(crate) fn has_next(&self, thread: usize, holds: bool) -> bool {
        if self.batches() && holds {
            return self.can_begin_while_holding(thread);
        }
        !self.works.is_empty()
            || !self.threads[thread].is_empty()
            || self.overdue().is_some()
            || self.can_form(u64::MAX)
            || self.threads.iter().flatten().any(|component| !component.has_begun)
    }

    /// Whether a thread that holds transactions may begin the first unbatched work. It may not overtake earlier
    /// calls: the thread first has its transactions decided, and then comes for these calls.
    fn can_begin_while_holding(&self, thread: usize) -> bool {
        let own = self.threads[thread].front().map(Component::next);
        let calls = own.into_iter().chain(self.calls.front().map(|call| call.arrival));
        let first = calls.min().unwrap_or(u64::MAX);
        self.works.front().is_some_and(|work| !work.known && work.arrival < first)
    }

    /// Rule 1: begins the first work that is not batched.
    fn begin_work(&mut self, thread: usize) -> Next<W> {
        let Some(Queued { arrival, work, known: runs_alone }) = self.works.pop_front() else { return Next::Nothing };
        self.away[thread] = runs_alone;
        if self.alone.front() == Some(&arrival) {
            self.alone.pop_front();
        }
        Next::Work(work)
    }

    /// Begins the next call of the thread's components.
    fn begin_call(&mut self, thread: usize) -> Next<W> {
        let components = &mut self.threads[thread];
        let Some(component) = components.front_mut() else { return Next::Nothing };
        component.has_begun = true;
        let Some(Queued { work, .. }) = component.calls.pop_front() else {
            unreachable!("a component without calls is taken away")
        };
        if component.calls.is_empty() {
            components.pop_front();
        }
        Next::Work(work)
    }

    /// Rule 3: moves the oldest wanted component that has not begun to this thread, which has none.
    fn take_over(&mut self, thread: usize, is_wanted: impl Fn(&Component<W>) -> bool) -> bool {
        let waiting = self.threads.iter().enumerate().flat_map(|(owner, components)| {
            components.iter().enumerate().map(move |(at, component)| (owner, at, component))
        });
        let wanted = waiting.filter(|(_, _, component)| !component.has_begun && is_wanted(component));
        let Some((owner, at, _)) = wanted.min_by_key(|(.., component)| (component.batch, component.next())) else {
            return false;
        };
        let taken = self.threads[owner].remove(at);
        self.threads[thread].extend(taken);
        true
    }

    /// A thread with an overdue component.
    fn overdue(&self) -> Option<usize> {
        let is_overdue = |component: &Component<W>| is_overdue(component.batch, self.counted.batches);
        self.threads.iter().position(|components| components.iter().any(is_overdue))
    }

    /// Rule 4: begins an overdue call that arrived before `first`.
    fn begin_overdue(&mut self, thread: usize, first: u64) -> Option<Next<W>> {
        let batches = self.counted.batches;
        let is_wanted = |component: &Component<W>| is_overdue(component.batch, batches) && component.next() < first;
        if self.take_over(thread, is_wanted) {
            self.counted.taken_over += 1;
            return Some(self.begin_call(thread));
        }
        // Every overdue component is behind a call that runs.
        let owner = self.threads.iter().position(|components| components.front().is_some_and(is_wanted))?;
        self.counted.overdue += 1;
        Some(self.begin_call(owner))
    }

    /// Whether a batch can be formed of calls that arrived before `first`.
    fn can_form(&self, first: u64) -> bool {
        let is_first = self.calls.front().is_some_and(|call| call.arrival < first && !self.is_behind(call.arrival));
        is_first
            && self.overdue().is_none()
            && !self.open_batches.iter().any(|&batch| is_overdue(batch, self.counted.batches))
    }

    /// Rule 2: whether the call arrived after work that runs by itself and has not begun.
    fn is_behind(&self, arrival: u64) -> bool {
        self.alone.front().is_some_and(|alone| *alone < arrival)
    }

    fn form(&mut self, thread: usize) -> Next<W> {
        let size = if self.switch.is_none_or(|switch| switch.is_on()) { self.size } else { 1 };
        let ready = self.calls.iter().take(size).take_while(|call| !self.is_behind(call.arrival)).count();
        self.counted.batches += 1;
        self.counted.calls += ready as u64;
        if ready == 1
            && let Some(call) = self.calls.pop_front()
        {
            self.counted.components += 1;
            return Next::Work(call.work);
        }
        let batch = self.counted.batches;
        self.open_batches.push(batch);
        let waiting = |at: usize| self.threads[at].iter().map(|component| component.calls.len()).sum::<usize>();
        let load = |at: usize| if self.away[at] { waiting(at) + self.size } else { waiting(at) };
        // The forming thread comes first among the least loaded.
        let mut loads: Vec<usize> = (0..self.threads.len()).map(load).collect();
        loads.rotate_left(thread);
        let (calls, placement) = (self.calls.drain(..ready).collect(), self.placement);
        Next::Batch(OpenBatch { batch, calls, loads, placement, placed: Vec::new() })
    }

    /// Places a batch that the thread has taken; returns the thread of each component.
    pub(crate) fn place(&mut self, thread: usize, open_batch: OpenBatch<W>) -> Vec<usize> {
        let OpenBatch { batch, calls, placed, .. } = open_batch;
        self.open_batches.retain(|open| *open != batch);
        self.counted.components += placed.len() as u64;
        let mut calls: Vec<_> =
            calls.into_iter().map(|Queued { arrival, work, .. }| Some(Queued { arrival, work, known: () })).collect();
        let mut owners = Vec::with_capacity(placed.len());
        for Placed { thread: after, members } in placed {
            let owner = (thread + after) % self.threads.len();
            let calls = members.into_iter().filter_map(|member| calls[member].take()).collect();
            self.threads[owner].push_back(Component { batch, has_begun: false, calls });
            owners.push(owner);
        }
        assert!(calls.iter().all(Option::is_none), "every call of a batch is placed");
        owners
    }
}

/// Resources of a batch are already hashes.
#[derive(Default)]
pub(crate) struct HashedAlready(u64);

impl Hasher for HashedAlready {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("resources are words")
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<W> OpenBatch<W> {
    /// Decides on which thread, and in which order, its calls run.
    pub(crate) fn decide(&mut self) {
        let mut batch: Batch<u64, (), BuildHasherDefault<HashedAlready>> = Batch::default();
        for Queued { known: Footprint { reads, writes }, .. } in &self.calls {
            let reads = reads.iter().map(|&row| (row, ()));
            batch.add(Member::default()).reads(reads).writes(writes.iter().copied());
        }
        self.placed = batch.place(self.placement, &Settings::default(), &self.loads);
        let rows: usize = self.calls.iter().map(|call| call.known.reads.len() + call.known.writes.len()).sum();
        thread::batch_work(BatchWork::CallRow, rows as u64);
    }
}

mod switch;
#[cfg(test)]
mod tests;
