//! The queue of decisions of a protocol with a [`Validator`]: executed transactions wait in it and are decided in
//! batches. The validator chooses an order for each batch. Its transactions are decided one by one, or at the same time
//! if the order says that they do not conflict. The queue has no thread of its own. The first caller leads: it decides
//! the batch while the others sleep. It hands the lead to a caller that waits by then (flat combining: Hendler, Incze,
//! Shavit, Tzafrir, SPAA 2010). A caller that is alone pays six allocations and six locks. Each transaction also pays
//! for the input of the order: a validation, and lists of what it accessed ([`Prepared`]).
//!
//! A batch goes through three stages on the thread that leads it (Ding, Kot, Gehrke, PVLDB 12(2), 2018, §4.3):
//!
//! 1. *Preparation*: the batch is full, or has waited long enough, or no other transaction is open. Stale
//!    transactions are sorted out.
//! 2. *Reordering*: the validator orders the rest and leaves some out. Callers of refused transactions are notified at
//!    once ([`Turn::refuse`]), so that no reader waits for their writes. Several batches can be in this stage at the
//!    same time.
//! 3. *Validation*: one batch at a time, while others are in the stages before it. A further leader takes full
//!    batches only. Each transaction is decided in that order. If the validator says so, the thread that waits for
//!    it decides it, when those before it by an edge are decided (`round`). Stale transactions are sorted out in
//!    the same way. Refused transactions end last, so that they see the writes of the others when they run again.
//!
//! A transaction that was refused too often is no longer queued. It is executed and decided while no batch is decided
//! ([`Queue::hold`]), so nothing that it has read can change.
//!
//! A thread that has many transactions submits their decisions ([`Queue::submit`]) and continues. It leads when a batch
//! is full, or when it has nothing else to do (`Queue::advance`). Sleeping callers get the lead before threads that
//! submit, which may be busy. A caller sleeps only while a thread leads or a batch is being decided.
//!
//! Access rule, which makes the pointers of this module sound: a [`Frame`] lies on the stack of a caller. The caller
//! does not return before its frame is done. Until then only the leader of its batch touches the frame. Exceptions are
//! its state, its thread and the round that it must join. Its caller may also access it after claiming a piece of a
//! round (`round`). The leader's last access sets the state. Before the frame is in a batch, a thread that has the lock
//! of the queue may notify its caller to lead. There is one lead, and it is given up under the lock when the batch is
//! taken out. So no other leader has the entry of a caller that was notified and has not led yet.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread::{self, Thread};
use seriatim_base::{Backoff, abort_on_unwind};
use seriatim_txn::{Batching, Cause, Ordered, Phase, Prepared, Reason, Validator};

use crate::OpenError;
use crate::pool::Pool;
use crate::statistics::{QUEUE_STAGES, QueueStatistics};
use notify::NotificationCheck;
use round::{Claim, Round};
use turns::{HOLD_MAX, Turns};

/// For how long a leader sleeps at a time while its batch gathers: then it looks whether others still have
/// transactions open.
const GATHER_SLICE: Duration = Duration::from_micros(100);

/// A transaction that its batch left out.
const LEFT_OUT: Cause = Cause { phase: Phase::Validate, reason: Reason::LeftOut };

pub(crate) struct Queue {
    validator: Box<dyn Validator>,
    /// How the validator wants batches to be made.
    batching: Batching,
    turns: Turns,
    /// Knows how many transactions are open; `None`: the number is not known.
    pool: Option<Arc<Pool>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Entry>,
    /// When the first of them began to wait for more, if batches wait.
    since: Option<Instant>,
    /// A thread leads, or was notified to lead: it takes the next batch out.
    led: bool,
    /// The leader, while its batch gathers.
    gathers: Option<Thread>,
    /// Batches that were taken out and are not decided.
    under_way: usize,
    /// Those of them that are not ordered yet.
    unordered: usize,
    counted: QueueStatistics,
}

/// An executed transaction, as the leader of its batch ends it.
pub(crate) trait Turn: Send {
    /// The outcome of the decision.
    type Result;

    /// Called before the order of the batch is chosen. Returns the changed input of the order, if it has
    /// changed, or why the transaction can no longer commit.
    fn recheck(&mut self) -> Result<Option<Prepared>, Cause> {
        Ok(None)
    }

    /// The transaction will be aborted, when the others of the batch have been decided.
    fn refuse(&mut self) {}

    /// Makes the decision, once: an abort with this cause if the transaction was refused.
    fn decide(self, refused: Option<Cause>) -> Self::Result;
}

/// A [`Turn`] of a thread that does not wait for the decision.
trait Submitted: Send {
    fn recheck(&mut self) -> Result<Option<Prepared>, Cause>;
    fn refuse(&mut self);
    fn decide(self: Box<Self>, refused: Option<Cause>);
}

impl<T: Turn<Result = ()>> Submitted for T {
    fn recheck(&mut self) -> Result<Option<Prepared>, Cause> {
        Turn::recheck(self)
    }

    fn refuse(&mut self) {
        Turn::refuse(self);
    }

    fn decide(self: Box<Self>, refused: Option<Cause>) {
        Turn::decide(*self, refused);
    }
}

/// A transaction to be decided.
#[derive(Debug)]
struct Entry {
    prepared: Prepared,
    decision: Decision,
    /// When it was queued.
    came: Instant,
}

/// The time of a batch's transactions in each stage.
struct Stages {
    transactions: u32,
    since: Instant,
    times: [Duration; QUEUE_STAGES.len()],
}

impl Stages {
    /// The stages of a batch that is taken out now.
    fn of(batch: &[Entry]) -> Stages {
        let (since, mut times) = (Instant::now(), [Duration::ZERO; QUEUE_STAGES.len()]);
        times[0] = batch.iter().map(|entry| since.since(entry.came)).sum();
        Stages { transactions: batch.len() as u32, since, times }
    }

    /// Ends this stage.
    fn end(&mut self, stage: usize) {
        let now = Instant::now();
        self.times[stage] += now.since(self.since) * self.transactions;
        self.since = now;
    }
}

enum Decision {
    /// Of a caller that sleeps until the decision.
    Awaited(NonNull<Head>, &'static Awaited),
    /// Of a thread that does not wait, and is woken when no thread leads any more.
    Submitted(Box<dyn Submitted>, Thread),
}

impl Decision {
    /// The caller that waits for it.
    fn caller(&self) -> Option<Thread> {
        match self {
            // SAFETY: the access rule: the caller waits, or is this thread.
            Decision::Awaited(head, _) => Some(unsafe { head.as_ref() }.caller.clone()),
            Decision::Submitted(..) => None,
        }
    }

    /// The head of the caller that waits for it, unless it is `own`.
    fn of_another(&self, own: Option<NonNull<Head>>) -> Option<NonNull<Head>> {
        match self {
            Decision::Awaited(head, _) if Some(*head) != own => Some(*head),
            _ => None,
        }
    }
}

/// A leader's operations on a caller's frame.
struct Awaited {
    recheck: unsafe fn(NonNull<Head>) -> Result<Option<Prepared>, Cause>,
    refuse: unsafe fn(NonNull<Head>),
    decide: unsafe fn(NonNull<Head>, Option<Cause>),
}

// SAFETY: the access rule: what a frame holds is `Send`, and one thread at a time touches it.
unsafe impl Send for Decision {}

impl std::fmt::Debug for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Decision::Awaited(..) => "Awaited",
            Decision::Submitted(..) => "Submitted",
        })
    }
}

/// The outcome of `Queue::advance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// A batch was decided by this thread, or nothing is queued.
    Decided,
    /// The batch waits for more, for at most this long.
    Gathers(Duration),
    /// Another thread leads, or has a batch under way. The submitter is unparked when its decisions are made,
    /// or earlier if it may lead.
    Led,
}

/// The part of a caller's frame on which it sleeps.
struct Head {
    state: AtomicU8,
    caller: Thread,
    /// The round that the caller must join. Written before the caller is notified.
    joins: Mutex<Option<Joins>>,
    /// The result of the caller's recheck of its transaction.
    rechecked: Mutex<Option<Rechecked>>,
    check: NotificationCheck,
}

/// A round, the caller's place in it, and its task: [`RECHECKS`] or [`DECIDES`].
struct Joins {
    round: Arc<Round>,
    at: usize,
    what: u8,
}

/// Whether a transaction can still commit, and the new input of the order if that has changed.
type Rechecked = Result<Option<Prepared>, Cause>;

const WAITING: u8 = 0;
/// The caller is to lead.
const LEADS: u8 = 1;
const DONE: u8 = 2;
/// The caller is to recheck its transaction, unless the leader does.
const RECHECKS: u8 = 3;
/// The caller is to make the decision, unless the leader does.
const DECIDES: u8 = 4;

/// Steps of [`Backoff`] for which a thread stays awake while it waits for decisions that will come soon. They are 63
/// pauses and some yields, in which one or two decisions are made.
const AWAKE_STEPS: u32 = Backoff::SPINS + 10;

/// Waits for one step: awake for [`AWAKE_STEPS`], then asleep until it is unparked.
fn settle(awake: &mut Backoff) {
    if !awake.wait() {
        thread::park();
    }
}

/// The stack frame of a caller.
#[repr(C)]
struct Frame<T: Turn> {
    /// First, so that a pointer to the head is a pointer to the frame.
    head: Head,
    turn: UnsafeCell<ManuallyDrop<T>>,
    result: UnsafeCell<Option<thread::Result<T::Result>>>,
}

impl Head {
    /// The head of this thread, which waits.
    fn new() -> Head {
        Head {
            state: AtomicU8::new(WAITING),
            caller: thread::current(),
            joins: Mutex::default(),
            rechecked: Mutex::default(),
            check: NotificationCheck::default(),
        }
    }

    /// Sets the caller's state. The caller may return, and free its frame, as soon as it sees the state.
    ///
    /// # Safety
    /// The caller's state was not set to done before.
    unsafe fn notify(head: NonNull<Head>, state: u8) {
        // SAFETY: the access rule.
        let Head { state: word, caller, check, .. } = unsafe { head.as_ref() };
        let caller = caller.clone();
        check.end();
        // The last access. ORDERING: pairs with the acquire in `wait`.
        word.store(state, Ordering::Release);
        caller.unpark();
    }

    /// Notifies the caller to join a round at this place, for the task `what`.
    ///
    /// # Safety
    /// The caller waits, and its piece of the round is not claimed.
    unsafe fn join(head: NonNull<Head>, round: &Arc<Round>, at: usize, what: u8) {
        // SAFETY: the caller's promise.
        let Head { joins, check, .. } = unsafe { head.as_ref() };
        check.begin();
        *joins.lock().unwrap_or_else(PoisonError::into_inner) = Some(Joins { round: Arc::clone(round), at, what });
        check.step();
        // SAFETY: as above.
        unsafe { Head::notify(head, what) };
    }

    /// Sleeps until the state differs from `known`.
    fn wait(&self, known: u8) -> u8 {
        let mut awake = Backoff::bounded(AWAKE_STEPS);
        loop {
            // ORDERING: pairs with the release in `notify`.
            match self.state.load(Ordering::Acquire) {
                state if state != known => return state,
                _ => settle(&mut awake),
            }
        }
    }

    /// The round that the caller was notified to join, if it has not joined it. The next round may be stored before the
    /// caller is notified of it. The caller leaves that one: the notifying thread still uses the frame, which is gone
    /// when that round's decision is made.
    fn joins(&self, state: u8) -> Option<Joins> {
        let mut joins = self.joins.lock().unwrap_or_else(PoisonError::into_inner);
        joins.take_if(|joins| joins.what == state)
    }
}

impl Joins {
    /// Waits for the turn of the caller's piece. Returns whether the caller has claimed it.
    fn claim(&self) -> bool {
        let mut awake = Backoff::bounded(AWAKE_STEPS);
        loop {
            match self.round.claim(self.at) {
                Claim::Own => return true,
                Claim::Taken => return false,
                Claim::Early => settle(&mut awake),
            }
        }
    }
}

impl<T: Turn> Frame<T> {
    const AWAITED: &Awaited =
        &Awaited { recheck: Frame::<T>::recheck, refuse: Frame::<T>::refuse, decide: Frame::<T>::decide };

    /// Rechecks the transaction of a frame.
    ///
    /// # Safety
    /// `head` is that of a `Frame<T>` that is not done, and this thread leads its batch.
    unsafe fn recheck(head: NonNull<Head>) -> Result<Option<Prepared>, Cause> {
        // SAFETY: the caller's promise, and the access rule.
        let frame = unsafe { head.cast::<Frame<T>>().as_ref() };
        // SAFETY: the turn is taken when the frame is decided, which it is not yet.
        unsafe { &mut *frame.turn.get() }.recheck()
    }

    /// Refuses the transaction of a frame.
    ///
    /// # Safety
    /// As of `recheck`.
    unsafe fn refuse(head: NonNull<Head>) {
        // SAFETY: the caller's promise, and the access rule.
        let frame = unsafe { head.cast::<Frame<T>>().as_ref() };
        // SAFETY: as in `recheck`.
        unsafe { &mut *frame.turn.get() }.refuse();
    }

    /// Makes the decision of a frame.
    ///
    /// # Safety
    /// As of `recheck`.
    unsafe fn decide(head: NonNull<Head>, refused: Option<Cause>) {
        // SAFETY: the caller's promise, and the access rule.
        let frame = unsafe { head.cast::<Frame<T>>().as_ref() };
        // SAFETY: the caller's promise.
        unsafe { frame.make(refused) };
        // SAFETY: the caller was not notified before; this thread does not use the frame any more.
        unsafe { Head::notify(head, DONE) };
    }

    /// Makes the frame's decision.
    ///
    /// # Safety
    /// The frame is not decided, and this thread leads its batch or has claimed the decision.
    unsafe fn make(&self, refused: Option<Cause>) {
        // SAFETY: a frame is decided once, so the turn is taken once.
        let turn = unsafe { ManuallyDrop::take(&mut *self.turn.get()) };
        let result = catch_unwind(AssertUnwindSafe(|| turn.decide(refused)));
        // SAFETY: the access rule.
        unsafe { *self.result.get() = Some(result) };
    }
}

impl State {
    /// Whether a thread must take the next batch out. While another batch is under way, only full ones are taken. At
    /// most `workers` batches are ordered at the same time, and one more is decided.
    fn wants_leader(&self, Batching { batch_max, workers, .. }: Batching) -> bool {
        let may_order = self.unordered < workers && self.under_way <= workers;
        let has_room = self.under_way == 0 || may_order && self.waiting.len() >= batch_max;
        !self.led && has_room && !self.waiting.is_empty()
    }
}

impl Queue {
    /// Checks that the settings leave time for the waits of this validator's batches.
    ///
    /// # Errors
    /// Batches would wait for as long as a transaction may be open.
    pub(crate) fn check_wait(validator: &dyn Validator, transaction_age_max: Duration) -> Result<(), OpenError> {
        let Batching { wait, .. } = validator.batching();
        match wait < transaction_age_max {
            true => Ok(()),
            false => Err(OpenError::Invalid(format!(
                "a batch of decisions waits for {wait:?}, but a transaction is too old after {transaction_age_max:?}: \
                 let batches wait for less, or transactions get older"
            ))),
        }
    }

    /// The queue of a database whose batches this validator orders.
    pub(crate) fn new(validator: Box<dyn Validator>, pool: Option<Arc<Pool>>) -> Queue {
        let batching = validator.batching();
        Queue { validator, batching, turns: Turns::default(), pool, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn statistics(&self) -> QueueStatistics {
        self.state().counted
    }

    /// Whether a transaction with this many restarts is no longer queued, but executed and decided while
    /// nothing else is decided ([`Queue::hold`]).
    pub(crate) fn has_lost_patience(&self, restarts: u32) -> bool {
        restarts >= self.batching.patience
    }

    /// No batch is decided until [`Queue::release`], or until that takes too long: the caller's reads do not
    /// change meanwhile.
    pub(crate) fn hold(&self) -> u64 {
        self.state().counted.alone += 1;
        self.turns.take(Some(HOLD_MAX))
    }

    /// Ends a [`Queue::hold`].
    pub(crate) fn release(&self, turn: u64) {
        self.turns.end(turn);
    }

    /// Most decisions of a batch.
    pub(crate) fn batch_max(&self) -> usize {
        self.batching.batch_max
    }

    /// Waits until this thread or another has made the decision, when its place in the order has come. Returns
    /// the outcome.
    pub(crate) fn decide<T: Turn<Result: Send>>(&self, prepared: Prepared, turn: T) -> T::Result {
        let frame =
            Frame { head: Head::new(), turn: UnsafeCell::new(ManuallyDrop::new(turn)), result: UnsafeCell::new(None) };
        // Nothing here may unwind: the frame would be freed while other threads use it.
        abort_on_unwind("a queue of decisions", || {
            let own: NonNull<Head> = NonNull::from(&frame).cast();
            let leads = self.enter(prepared, Decision::Awaited(own, Frame::<T>::AWAITED), true);
            let mut state = if leads { LEADS } else { frame.head.wait(WAITING) };
            while state != DONE {
                if state == LEADS {
                    // This thread's decision is in the batch, or behind decisions of threads that submit.
                    frame.head.state.store(WAITING, Ordering::Relaxed);
                    self.lead(true, Some(own));
                    state = frame.head.wait(WAITING);
                    continue;
                }
                frame.head.check.meet();
                if let Some(joins) = frame.head.joins(state).filter(Joins::claim) {
                    if joins.what == DECIDES {
                        // SAFETY: this thread has claimed the decision.
                        unsafe { frame.make(None) };
                        return joins.round.done(joins.at);
                    }
                    // SAFETY: this thread has claimed the piece.
                    let rechecked = unsafe { Frame::<T>::recheck(own) };
                    *frame.head.rechecked.lock().unwrap_or_else(PoisonError::into_inner) = Some(rechecked);
                    joins.round.done(joins.at);
                }
                state = frame.head.wait(state);
            }
        });
        match frame.result.into_inner().expect("a decision that is done has a result") {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Queues a decision that this thread or another makes later, when its place in the order has come. The
    /// turn reports its result itself, and does not panic. A full batch is decided now, unless another thread
    /// leads; `Queue::advance` decides a smaller one.
    pub(crate) fn submit(&self, prepared: Prepared, turn: impl Turn<Result = ()> + 'static) {
        if self.enter(prepared, Decision::Submitted(Box::new(turn), thread::current()), false) {
            abort_on_unwind("a queue of decisions", || self.lead(false, None));
        }
    }

    /// For a thread that has submitted decisions and has no other work. Decides a batch that has waited long
    /// enough, or any batch unless `gather`. Does nothing if another thread leads.
    pub(crate) fn advance(&self, gather: bool) -> Advance {
        let Batching { batch_max, wait, .. } = self.batching;
        let mut state = self.state();
        if state.led || state.under_way > 0 && !state.wants_leader(self.batching) {
            return Advance::Led;
        }
        if state.waiting.is_empty() {
            return Advance::Decided;
        }
        let left = state.since.and_then(|since| wait.checked_sub(since.elapsed())).filter(|left| !left.is_zero());
        if let Some(left) = left.filter(|_| gather && state.waiting.len() < batch_max && self.has_company(&state)) {
            return Advance::Gathers(left.min(GATHER_SLICE.max(wait / 1000)));
        }
        state.led = true;
        drop(state);
        abort_on_unwind("a queue of decisions", || self.lead(false, None));
        Advance::Decided
    }

    /// For a thread with other work: decides a batch that has waited long enough. Where batches do not wait,
    /// they gather meanwhile.
    pub(crate) fn end_wait(&self) {
        let wait = self.batching.wait;
        let is_over = || {
            let state = self.state();
            !state.waiting.is_empty() && state.since.is_some_and(|since| since.elapsed() >= wait)
        };
        if !wait.is_zero() && is_over() {
            self.advance(false);
        }
    }

    /// Whether batches wait for more.
    pub(crate) fn has_wait(&self) -> bool {
        !self.batching.wait.is_zero()
    }

    /// For a thread without work that has submitted nothing: how long it may sleep before it checks for decisions that
    /// no thread handles. Where batches wait: until a batch has waited long enough. `None` if nothing is queued.
    pub(crate) fn look_again(&self, at_latest: Duration) -> Option<Duration> {
        let wait = self.batching.wait;
        let state = self.state();
        if state.waiting.is_empty() && state.under_way == 0 {
            return None;
        }
        // Once the wait is over, a thread has the batch under way.
        Some(state.since.map_or(at_latest, |since| wait.saturating_sub(since.elapsed()).max(GATHER_SLICE)))
    }

    /// Queues a decision. Returns whether the caller leads: it may lead any batch with `any`, else only a full one.
    fn enter(&self, prepared: Prepared, decision: Decision, any: bool) -> bool {
        let Batching { batch_max, .. } = self.batching;
        let came = Instant::now();
        let mut state = self.state();
        if state.waiting.is_empty() {
            state.since = self.has_wait().then_some(came);
        }
        state.waiting.push(Entry { prepared, decision, came });
        let leads = state.wants_leader(self.batching) && (any || state.waiting.len() >= batch_max);
        state.led |= leads;
        let gathers = state.gathers.clone();
        drop(state);
        if let Some(leader) = gathers {
            leader.unpark();
        }
        leads
    }

    /// Whether a transaction is open that is not in the queue. Called while no batch is under way: otherwise
    /// only full batches are led.
    fn has_company(&self, state: &State) -> bool {
        self.pool.as_ref().is_none_or(|pool| pool.busy() > state.waiting.len())
    }

    /// Takes a batch out, gives up the lead, which this thread has, and decides the batch. `own` is the head of
    /// this thread's own decision, if it waits for one.
    fn lead(&self, gather: bool, own: Option<NonNull<Head>>) {
        let Batching { batch_max, wait, .. } = self.batching;
        let mut state = self.state();
        if gather && !wait.is_zero() {
            state = self.gather(state);
        }
        let size = state.waiting.len().min(batch_max);
        let batch: Vec<Entry> = state.waiting.drain(..size).collect();
        if size > 0 {
            state.counted.decisions += size as u64;
            state.counted.waited += batch.iter().filter(|entry| entry.prepared.waited).count() as u64;
            state.counted.batches += 1;
            state.counted.largest = state.counted.largest.max(size as u64);
        }
        let mut stages = Stages::of(&batch);
        let first = state.waiting.first().map(|first| first.came);
        state.since = self.has_wait().then(|| first.unwrap_or_else(Instant::now));
        state.led = false;
        state.under_way += 1;
        state.unordered += 1;
        self.hand_on(state);
        self.order_and_validate(batch, own, &mut stages);
        stages.end(4);
        let mut state = self.state();
        state.counted.stages.iter_mut().zip(stages.times).for_each(|(sum, time)| *sum += time);
        state.under_way -= 1;
        self.hand_on(state);
    }

    /// Takes a batch through its stages.
    fn order_and_validate(&self, mut batch: Vec<Entry>, own: Option<NonNull<Head>>, stages: &mut Stages) {
        if batch.len() == 1 {
            // The decision itself finds out whether it is stale.
            let (_, decisions) = split(batch);
            return self.validate(decisions, Vec::new(), Ordered::default(), own, stages);
        }
        let began = Instant::now();
        let (mut fresh, mut refused) = (Vec::with_capacity(batch.len()), Vec::new());
        let rechecked = self.recheck(&mut batch, own);
        stages.end(1);
        for (entry, rechecked) in batch.into_iter().zip(rechecked) {
            match rechecked {
                Ok(None) => fresh.push(entry),
                Ok(Some(prepared)) => fresh.push(Entry { prepared, ..entry }),
                Err(cause) => refused.push((entry.decision, cause)),
            }
        }
        let stale = refused.len() as u64;
        let (prepared, mut decisions) = split(fresh);
        let ordered = self.contain(|| self.validator.order(&prepared));
        let left_out = ordered.left_out.iter().filter_map(|&at| decisions.get_mut(at).and_then(Option::take));
        refused.extend(left_out.map(|decision| (decision, LEFT_OUT)));
        refused.iter_mut().for_each(|(decision, _)| decision.refuse());
        let mut state = self.state();
        let counted = &mut state.counted;
        counted.stale += stale;
        counted.left_out += ordered.left_out.len() as u64;
        counted.order_time += began.elapsed();
        drop(state);
        stages.end(2);
        self.validate(decisions, refused, ordered, own, stages);
    }

    /// Rechecks each transaction of a batch. Callers that wait recheck their own at the same time.
    fn recheck(&self, batch: &mut [Entry], own: Option<NonNull<Head>>) -> Vec<Rechecked> {
        let others: Vec<_> = batch.iter().map(|entry| entry.decision.of_another(own)).collect();
        if !self.batching.parallel || others.iter().all(Option::is_none) {
            return batch.iter_mut().map(|entry| entry.decision.recheck()).collect();
        }
        let round = Round::new(batch.iter().map(|entry| entry.decision.caller()), []);
        let mut own: Vec<Option<Rechecked>> = batch.iter().map(|_| None).collect();
        lead(round, &others, RECHECKS, |at| own[at] = Some(batch[at].decision.recheck()));
        let of_caller = |head: NonNull<Head>| {
            // SAFETY: the caller waits: it has not been notified of its decision.
            let rechecked = unsafe { &head.as_ref().rechecked };
            rechecked.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let found = own.into_iter().zip(others).map(|(own, head)| own.or_else(|| of_caller(head?)));
        found.map(|rechecked| rechecked.expect("a piece is done by its caller or by the leader")).collect()
    }

    /// The order that `choose` returns; an empty one if it panics.
    fn contain(&self, choose: impl FnOnce() -> Ordered) -> Ordered {
        catch_unwind(AssertUnwindSafe(choose)).unwrap_or_else(|panic| {
            // The panic's payload may panic when it is dropped, and nothing may unwind here.
            std::mem::forget(panic);
            self.state().counted.orders_failed += 1;
            Ordered::default()
        })
    }

    /// Decides an ordered batch when no other batch is being decided: in this order, then the transactions that
    /// the order does not name. If the order has edges, transactions without a path between them may be decided
    /// at the same time.
    fn validate(
        &self,
        mut decisions: Vec<Option<Decision>>,
        refused: Vec<(Decision, Cause)>,
        ordered: Ordered,
        own: Option<NonNull<Head>>,
        stages: &mut Stages,
    ) {
        let mut state = self.state();
        state.unordered -= 1;
        // The next batch can be ordered while this one is decided.
        self.hand_on(state);
        let Ordered { order, edges, .. } = ordered;
        let mut places = vec![usize::MAX; decisions.len()];
        let mut sequence = Vec::with_capacity(decisions.len());
        for at in order.into_iter().chain(0..places.len()) {
            if let Some(decision) = decisions.get_mut(at).and_then(Option::take) {
                places[at] = sequence.len();
                sequence.push(Some(decision));
            }
        }
        let others = sequence.iter().map(|decision| decision.as_ref().and_then(|decision| decision.of_another(own)));
        let others: Vec<Option<NonNull<Head>>> = others.collect();
        let is_joined = others.iter().any(Option::is_some);
        let round = edges.filter(|_| is_joined).map(|edges| {
            let place = |at: usize| places.get(at).copied().unwrap_or(usize::MAX);
            let edges = edges.into_iter().map(|(first, second)| (place(first), place(second)));
            Round::new(sequence.iter().map(|decision| decision.as_ref().and_then(Decision::caller)), edges)
        });
        let turn = self.turns.take(None);
        stages.end(3);
        match round {
            Some(round) => lead(round, &others, DECIDES, |at| {
                sequence[at].take().expect("it is decided once").make(None);
            }),
            None => sequence.into_iter().flatten().for_each(|decision| decision.make(None)),
        }
        self.turns.end(turn);
        refused.into_iter().for_each(|(decision, cause)| decision.make(Some(cause)));
    }

    /// Gives the lead to a thread if a batch is to be led. A sleeping caller comes first, as a thread that
    /// submitted may be busy. Without a sleeping caller the threads that submitted are woken.
    fn hand_on(&self, mut state: MutexGuard<'_, State>) {
        if !state.wants_leader(self.batching) {
            return;
        }
        let sleeper = state.waiting.iter().find_map(|entry| match entry.decision {
            Decision::Awaited(head, _) => Some(head),
            Decision::Submitted(..) => None,
        });
        match sleeper {
            Some(head) => {
                state.led = true;
                // SAFETY: the caller waits, and its decision is not made.
                unsafe { Head::notify(head, LEADS) };
            }
            None => {
                for entry in &state.waiting {
                    if let Decision::Submitted(_, submitter) = &entry.decision {
                        submitter.unpark();
                    }
                }
            }
        }
    }

    /// Waits until the batch is full or has waited long enough, or no other transaction can join it.
    #[cold]
    fn gather<'q>(&'q self, mut state: MutexGuard<'q, State>) -> MutexGuard<'q, State> {
        let Batching { batch_max, wait, .. } = self.batching;
        let began = state.since.unwrap_or_else(Instant::now);
        while state.waiting.len() < batch_max
            && let Some(left) = wait.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
            && self.has_company(&state)
        {
            state.gathers = Some(thread::current());
            drop(state);
            thread::park_timeout(left.min(GATHER_SLICE.max(wait / 1000)));
            state = self.state();
            state.gathers = None;
        }
        state
    }
}

/// Runs a round: these callers claim their pieces, and this thread does the others by `work`.
fn lead(round: Round, callers: &[Option<NonNull<Head>>], what: u8, work: impl FnMut(usize)) {
    let round = Arc::new(round);
    let comes: Vec<bool> = callers.iter().map(Option::is_some).collect();
    for (at, head) in callers.iter().enumerate() {
        if let Some(head) = head {
            // SAFETY: the caller waits for its decision. Its piece is not claimed: the caller was not notified, and
            // this thread has not claimed it.
            unsafe { Head::join(*head, &round, at, what) };
        }
    }
    round.lead(&comes, work);
}

/// Splits a batch into the inputs of the order and the decisions.
fn split(batch: Vec<Entry>) -> (Vec<Prepared>, Vec<Option<Decision>>) {
    batch.into_iter().map(|entry| (entry.prepared, Some(entry.decision))).unzip()
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("validator", &self.validator).finish_non_exhaustive()
    }
}

impl Decision {
    /// Rechecks the transaction, on the leading thread.
    fn recheck(&mut self) -> Result<Option<Prepared>, Cause> {
        match self {
            // SAFETY: the caller of the frame waits, or is this thread; it is not decided.
            Decision::Awaited(head, awaited) => unsafe { (awaited.recheck)(*head) },
            Decision::Submitted(turn, _) => turn.recheck(),
        }
    }

    /// Refuses the transaction, on the leading thread.
    fn refuse(&mut self) {
        match self {
            // SAFETY: as in `recheck`.
            Decision::Awaited(head, awaited) => unsafe { (awaited.refuse)(*head) },
            Decision::Submitted(turn, _) => turn.refuse(),
        }
    }

    /// Makes the decision, on the leading thread.
    fn make(self, refused: Option<Cause>) {
        match self {
            // SAFETY: the caller of the frame waits, or is this thread; a frame is decided once.
            Decision::Awaited(head, awaited) => unsafe { (awaited.decide)(head, refused) },
            Decision::Submitted(turn, _) => turn.decide(refused),
        }
    }
}

mod notify;
mod round;
mod turns;

#[cfg(test)]
mod tests;
