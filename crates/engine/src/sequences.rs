//! Sequences of an open database: numbers that are given out once, and never again.
//!
//! Numbers are counted. The count of a number is its place in the present *run* of the sequence, from 0. A number is
//! given by one addition to `taken`, without a lock, and conflicts with no transaction. An abort does not take it back.
//!
//! ```text
//! 0 ........ taken ........ limit ........ reserved
//!   given      may be given      committed, not known to be durable
//! ```
//! Invariant: no number is given before a row of the catalogue that has it as given is durable ([`Reserved`]), whatever
//! the durability mode. So a recovery goes on behind every number that anybody has seen. It loses those that were
//! reserved and not given: a gap. A database in memory reserves nothing.
//!
//! Reserving commits a transaction on that row, and does not wait for the disk. It is done ahead, when half of what may
//! be given is taken. Then the row is usually durable when the rest is taken. A caller waits otherwise: outside of
//! transactions at once, in a closure or procedure between two attempts. In an attempt it could have locks that keep
//! others waiting.
//!
//! A run ends when the sequence is set or altered, and when a caller waits. Numbers that were taken and could not be
//! given are then given by the next run. `version` is odd meanwhile. A number that was taken of a run that ended is
//! not given (a seqlock). What is rare is under the lock `slow`; its holder alone changes all fields but `taken`.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError, Weak};
use std::time::Duration;

use seriatim_base::Epoch;
use seriatim_base::clock::Instant;
use seriatim_base::thread;
use seriatim_catalog::evolution::Evolution;
use seriatim_catalog::{SequenceChange, SequenceDef, SequenceOptions, TableDef};
use seriatim_redo::catalogue::{Reserved, Row, SequenceEntry};
use seriatim_txn::{Cause, Phase, Reason};

use crate::Engine;
use crate::changing::{self, LOOK};
use crate::durability::{self, CatalogueRows, OpenHandle, Persistence};
use crate::engine::{Attention, Inner};
use crate::error::{Abort, InvalidSchema, SchemaError, TransactError};
use crate::runtime::DynHandle;
use crate::table::TableSet;
use crate::tx::TxCore;

/// Numbers that are reserved at first.
const BLOCK_MIN: u64 = 32;
/// The most that are reserved at a time, unless the sequence says otherwise: the gap that a crash leaves.
const BLOCK_MAX: u64 = 1 << 16;
/// A block that lasts for less is followed by one of twice its size; one that lasts for ten times as long by a smaller.
const BLOCK_LASTS: Duration = Duration::from_secs(1);
/// How long a caller waits for the disk, unless the settings say otherwise.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A sequence.
pub struct Sequence {
    pub(crate) id: u32,
    /// The number of its database.
    database: u64,
    /// The position of the table whose identity column has its numbers.
    owner: Option<u64>,
    /// Odd while a run ends and another begins.
    version: AtomicU64,
    /// Numbers that were taken of the run, and more if some could not be given.
    taken: AtomicU64,
    /// Numbers of the run that may be given.
    limit: AtomicU64,
    /// When so many are taken, more should be reserved. `u64::MAX` if they are.
    ahead_at: AtomicU64,
    /// The run: its first number, the step, and the first number of a cycle.
    numbers: [AtomicI64; 3],
    /// The run: how many numbers come before the first cycle, and how many are in a cycle.
    counts: [AtomicU64; 2],
    slow: Mutex<Slow>,
}

/// What only the holder of the lock reads.
struct Slow {
    definition: SequenceDef,
    /// How far it had got when the run began.
    before: Reserved,
    /// How many numbers of the run are reserved, also if that is not durable yet.
    reserved: u64,
    /// With this epoch it is durable.
    pending: Option<Epoch>,
    /// The row says more: a run ended that had reserved numbers.
    is_row_ahead: bool,
    /// How many numbers are reserved next, and since when the last ones are.
    block: u64,
    began: Instant,
    end: Option<End>,
    /// Only the transaction that made it knows it: there is nothing to reserve.
    is_private: bool,
}

/// Why no number is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is being changed.
    Held,
    Dropped,
    Closed,
}

/// The numbers of a run.
#[derive(Clone, Copy)]
struct Run {
    first: i64,
    step: i64,
    /// Where a cycle begins.
    again: i64,
    /// How many come before it, at most `u64::MAX`.
    head: u64,
    /// How many are in a cycle; 0 if there is none.
    period: u64,
}

/// What was found instead of a number.
enum Taken {
    Number(i64),
    /// It may not be given yet.
    Early(Early),
    /// There is none.
    Ended,
}

/// A number that may not be given yet.
struct Early {
    version: u64,
    count: u64,
}

impl Run {
    /// The run that begins with this number, or is over at once if there is none.
    fn new(definition: &SequenceDef, first: Option<i64>) -> Run {
        let (step, (low, high)) = (definition.step(), definition.range());
        let again = if step < 0 { high } else { low };
        let count = |from: i64| {
            let left = if step < 0 { i128::from(from) - i128::from(low) } else { i128::from(high) - i128::from(from) };
            u64::try_from(left / i128::from(step.unsigned_abs()) + 1).unwrap_or(u64::MAX)
        };
        let period = if definition.options.cycle { count(again) } else { 0 };
        Run { first: first.unwrap_or(again), step, again, head: first.map_or(0, count), period }
    }

    /// The number with this count. Arithmetic wraps, as numbers of the type have 64 bits.
    fn number(&self, count: u64) -> i64 {
        let (from, at) = match count.checked_sub(self.head) {
            None => (self.first, count),
            Some(beyond) => (self.again, if self.period == 0 { beyond } else { beyond % self.period }),
        };
        from.wrapping_add((at as i64).wrapping_mul(self.step))
    }

    /// How many numbers there are.
    fn end(&self) -> u64 {
        if self.period == 0 { self.head } else { u64::MAX }
    }
}

/// The number that comes next; `None` if there is none.
fn next_of(definition: &SequenceDef, Reserved { last, given }: Reserved) -> Option<i64> {
    if !given {
        return Some(last);
    }
    let (low, high) = definition.range();
    let next = last.checked_add(definition.step()).filter(|next| (low..=high).contains(next));
    next.or_else(|| definition.options.cycle.then_some(if definition.step() < 0 { high } else { low }))
}

/// How far a sequence has got that was just declared.
fn beginning(definition: &SequenceDef) -> Reserved {
    Reserved { last: definition.first(), given: false }
}

/// Taking numbers.
impl Sequence {
    /// Takes the next number.
    #[inline]
    fn take(&self) -> Taken {
        loop {
            let version = self.version.load(Ordering::SeqCst);
            if !version.is_multiple_of(2) {
                std::hint::spin_loop();
                continue;
            }
            let count = self.taken.fetch_add(1, Ordering::SeqCst);
            if let Some(taken) = self.look(Early { version, count }) {
                return taken;
            }
        }
    }

    /// What a number that was taken is; `None` if its run has ended.
    #[inline]
    fn look(&self, early: Early) -> Option<Taken> {
        let (run, limit) = (self.run(), self.limit.load(Ordering::SeqCst));
        // ORDERING: pairs with the changes in `begin_run`: if the version is the same, no run began since it was read.
        // Then the number is of this run, and whoever ends it finds it among those that were taken.
        if self.version.load(Ordering::SeqCst) != early.version {
            return None;
        }
        Some(match early.count < limit {
            true => Taken::Number(run.number(early.count)),
            false if early.count >= run.end() => Taken::Ended,
            false => Taken::Early(early),
        })
    }

    /// The next number of a sequence that needs no reservation; `None` if there is none.
    pub(crate) fn next_private(&self) -> Option<i64> {
        match self.take() {
            Taken::Number(number) => Some(number),
            Taken::Early(_) | Taken::Ended => None,
        }
    }

    /// As [`Sequence::take`]. A number that is reserved may be given if that has become durable.
    #[inline]
    fn take_durable(&self, inner: &Inner) -> Taken {
        match self.take() {
            Taken::Early(early) => self.look_again(early, inner),
            taken => taken,
        }
    }

    #[cold]
    fn look_again(&self, early: Early, inner: &Inner) -> Taken {
        let durable = inner.persistence.as_ref().map(Persistence::durable_epoch);
        match self.slow.try_lock() {
            Ok(mut slow) => self.note_durable(&mut slow, durable),
            Err(TryLockError::Poisoned(slow)) => self.note_durable(&mut slow.into_inner(), durable),
            Err(TryLockError::WouldBlock) => {}
        }
        self.look(early).unwrap_or_else(|| self.take())
    }

    /// Whether more should be reserved now.
    #[inline]
    fn runs_low(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.ahead_at.load(Ordering::Relaxed)
    }

    fn run(&self) -> Run {
        let [first, step, again] = [0, 1, 2].map(|at: usize| self.numbers[at].load(Ordering::SeqCst));
        let [head, period] = [0, 1].map(|at: usize| self.counts[at].load(Ordering::SeqCst));
        Run { first, step, again, head, period }
    }
}

/// Reserving numbers.
impl Sequence {
    /// A sequence as the catalogue has it, or is going to.
    fn new(inner: &Inner, entry: SequenceEntry, is_private: bool) -> Sequence {
        let SequenceEntry { id, definition, owner, reserved: before } = entry;
        let (block, began) = (BLOCK_MIN, Instant::now());
        let slow = Slow {
            definition,
            before,
            reserved: 0,
            pending: None,
            is_row_ahead: false,
            block,
            began,
            end: None,
            is_private,
        };
        let sequence = Sequence {
            id,
            database: inner.number,
            owner,
            version: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            ahead_at: AtomicU64::new(u64::MAX),
            numbers: Default::default(),
            counts: Default::default(),
            slow: Mutex::new(slow),
        };
        sequence.begin_run(&mut sequence.slow(), inner, false, |_| {});
        sequence
    }

    fn slow(&self) -> MutexGuard<'_, Slow> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it has got: of the numbers that were given.
    fn state(&self, slow: &Slow, taken: u64) -> Reserved {
        match taken.min(self.limit.load(Ordering::SeqCst)) {
            0 => slow.before,
            given => Reserved { last: self.run().number(given - 1), given: true },
        }
    }

    /// Ends the run, and begins another behind the last number that was given, after a change of the state. If it
    /// `keeps` them, the numbers that might have been given may still be. In memory all may be given, and so may those
    /// of a sequence that is private.
    fn begin_run(&self, slow: &mut Slow, inner: &Inner, keeps: bool, change: impl FnOnce(&mut Slow)) {
        self.version.fetch_add(1, Ordering::SeqCst);
        // Whoever takes a number from here on finds that the version changes.
        let (taken, limit) = (self.taken.swap(0, Ordering::SeqCst), self.limit.load(Ordering::SeqCst));
        let given = taken.min(limit);
        let (left, reserved, pending) = match keeps {
            true => (limit - given, slow.reserved - given, slow.pending),
            false => (0, 0, None),
        };
        slow.is_row_ahead |= slow.reserved > given + reserved;
        slow.before = self.state(slow, taken);
        change(slow);
        let mut run = Run::new(&slow.definition, next_of(&slow.definition, slow.before));
        if slow.end.is_some() {
            (run.head, run.period) = (0, 0);
        }
        for (place, value) in self.numbers.iter().zip([run.first, run.step, run.again]) {
            place.store(value, Ordering::SeqCst);
        }
        for (place, value) in self.counts.iter().zip([run.head, run.period]) {
            place.store(value, Ordering::SeqCst);
        }
        if inner.persistence.is_none() || slow.is_private {
            self.limit.store(run.end(), Ordering::SeqCst);
        } else {
            self.limit.store(left, Ordering::SeqCst);
            (slow.reserved, slow.pending) = (reserved, pending);
        }
        self.reserve_when_half_is_taken(slow, 0);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// More is to be reserved when half of those behind a count are taken, if there are more.
    fn reserve_when_half_is_taken(&self, slow: &Slow, behind: u64) {
        let half = slow.reserved - (slow.reserved - behind) / 2;
        let is_last = slow.reserved == 0 || slow.pending.is_some() || slow.reserved == self.run().end();
        self.ahead_at.store(if is_last { u64::MAX } else { half }, Ordering::SeqCst);
    }

    /// Lets the reserved numbers be given if they are durable with this epoch.
    fn note_durable(&self, slow: &mut Slow, durable: Option<Epoch>) {
        let Some(pending) = slow.pending else { return };
        if durable.is_none_or(|durable| durable < pending) {
            return;
        }
        slow.pending = None;
        let behind = self.limit.swap(slow.reserved, Ordering::SeqCst);
        self.reserve_when_half_is_taken(slow, behind);
    }

    /// How many numbers to reserve.
    fn block(&self, slow: &mut Slow) -> u64 {
        let lasted = slow.began.elapsed();
        if slow.reserved > 0 && lasted < BLOCK_LASTS {
            slow.block = (2 * slow.block).min(BLOCK_MAX);
        } else if lasted > 10 * BLOCK_LASTS {
            slow.block = (slow.block / 2).max(BLOCK_MIN);
        }
        slow.began = Instant::now();
        slow.definition.options.cache.map_or(slow.block, u64::from)
    }

    /// Reserves more numbers, at least so many, by a commit that writes the row.
    fn reserve<E>(&self, slow: &mut Slow, least: u64, commit: impl FnOnce(&Row) -> Result<Epoch, E>) -> Result<(), E> {
        let (run, block) = (self.run(), self.block(slow));
        let end = slow.reserved.saturating_add(block.max(least)).min(run.end());
        let row = SequenceEntry::row_of_reserved(self.id, Reserved { last: run.number(end - 1), given: true });
        slow.pending = Some(commit(&row)?);
        (slow.reserved, slow.is_row_ahead) = (end, false);
        self.ahead_at.store(u64::MAX, Ordering::SeqCst);
        Ok(())
    }

    /// Reserves more numbers ahead, if that needs no wait.
    fn reserve_ahead(&self, inner: &Arc<Inner>, open: &Arc<OpenHandle>) {
        let Ok(mut slow) = self.slow.try_lock() else { return };
        let slow = &mut *slow;
        if self.runs_low() && slow.pending.is_none() && slow.reserved < self.run().end() {
            let commit = |row: &Row| durability::try_change_catalogue(inner, open, |rows| rows.update(row)).ok_or(());
            if self.reserve(slow, 0, commit).is_err() {
                // Whoever finds no number reserves more.
                self.ahead_at.store(u64::MAX, Ordering::SeqCst);
            }
        }
    }

    /// Waits until at least so many numbers may be given, or all that there are. No transaction of this thread is open
    /// that others wait for.
    fn refill(&self, inner: &Arc<Inner>, open: &Arc<OpenHandle>, least: u64) -> Result<(), TransactError> {
        let Some(persistence) = &inner.persistence else { return Ok(()) };
        inner.check_process().map_err(|_| TransactError::Forked)?;
        let mut slow = self.slow();
        let slow = &mut *slow;
        let left = |slow: &Slow| slow.reserved.saturating_sub(self.taken.load(Ordering::SeqCst));
        if slow.end.is_some() || slow.pending.is_none() && left(slow) >= least {
            return Ok(());
        }
        // Before more may be given: numbers that were taken in vain then are not among them.
        self.begin_run(slow, inner, true, |_| {});
        self.wait(slow, inner, persistence)?;
        if slow.reserved < least.min(self.run().end()) {
            self.reserve(slow, least, |row| durability::commit_catalogue(inner, open, |rows| rows.update(row)))?;
            self.wait(slow, inner, persistence)?;
        }
        Ok(())
    }

    /// Waits until what is reserved is durable.
    fn wait(&self, slow: &mut Slow, inner: &Inner, persistence: &Persistence) -> Result<(), TransactError> {
        let Some(pending) = slow.pending else { return Ok(()) };
        let wait = inner.options.wait_max.unwrap_or(WAIT_MAX);
        let reason = match persistence.wait_for_at_most(pending, Some(wait)) {
            Ok(true) => None,
            Ok(false) => Some(format!("the disk did not take it within {wait:?}")),
            Err(error) => Some(error.to_string()),
        };
        match reason {
            None => {
                self.note_durable(slow, Some(pending));
                Ok(())
            }
            Some(reason) => {
                Err(TransactError::SequenceNotReserved { sequence: slow.definition.name.to_string(), reason })
            }
        }
    }

    /// Gives no number until it is given back, or changes.
    fn hold(&self, inner: &Inner) {
        let mut slow = self.slow();
        if slow.end.is_none() {
            self.begin_run(&mut slow, inner, false, |slow| slow.end = Some(End::Held));
        }
    }

    /// Gives numbers again, as before it was held.
    fn give_back(&self, inner: &Inner) {
        let mut slow = self.slow();
        if slow.end == Some(End::Held) {
            self.begin_run(&mut slow, inner, false, |slow| slow.end = None);
        }
    }

    /// The change of which it is part is undone: it is given back, or there is none any more.
    pub(crate) fn undo(&self, inner: &Inner) {
        let mut slow = self.slow();
        match slow.is_private {
            true => self.begin_run(&mut slow, inner, false, |slow| slow.end = Some(End::Dropped)),
            false => {
                drop(slow);
                self.give_back(inner);
            }
        }
    }

    /// Why it gives no number, if so.
    fn refusal(&self, end: Option<End>, definition: &SequenceDef) -> Option<TransactError> {
        let sequence = definition.name.to_string();
        Some(match end? {
            End::Held => TransactError::Excluded { by: "a transaction that changes the sequence" },
            End::Dropped => TransactError::SequenceGone { sequence },
            End::Closed => TransactError::Closed,
        })
    }

    /// Why it has no number.
    #[cold]
    fn ended(&self) -> TransactError {
        let slow = self.slow();
        let definition = &slow.definition;
        let (sequence, (low, high)) = (definition.name.to_string(), definition.range());
        let limit = if definition.step() < 0 { low } else { high };
        self.refusal(slow.end, definition).unwrap_or(TransactError::SequenceExhausted { sequence, limit })
    }

    /// Whether it is being changed.
    fn is_held(&self) -> bool {
        self.slow().end == Some(End::Held)
    }

    /// Its declaration.
    pub fn definition(&self) -> SequenceDef {
        self.slow().definition.clone()
    }

    /// The last number that was given, or may have been before the database was opened; `None` if none was.
    pub fn last(&self) -> Option<i64> {
        let Reserved { last, given } = self.position();
        given.then_some(last)
    }

    /// How far it has got: of the numbers that were given.
    pub fn position(&self) -> Reserved {
        let slow = self.slow();
        self.state(&slow, self.taken.load(Ordering::SeqCst))
    }
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sequence({})", self.slow().definition.name)
    }
}

/// The sequences of a database.
#[derive(Default)]
pub(crate) struct Sequences {
    list: RwLock<List>,
    /// The handle that keeps the database open.
    open: OnceLock<Weak<OpenHandle>>,
}

#[derive(Default)]
struct List {
    /// In the order of their ids.
    sequences: Vec<Arc<Sequence>>,
    next_id: u32,
}

impl Sequences {
    /// Whether there is a sequence with this id.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.list().iter().any(|sequence| sequence.id == id)
    }

    fn list(&self) -> Vec<Arc<Sequence>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).sequences.clone()
    }

    fn open(&self) -> Option<Arc<OpenHandle>> {
        self.open.get().and_then(Weak::upgrade)
    }

    /// Reserves more of those that run low.
    #[cold]
    pub(crate) fn reserve_ahead(&self, inner: &Arc<Inner>) {
        let Some(open) = self.open() else { return };
        self.list().iter().filter(|sequence| sequence.runs_low()).for_each(|low| low.reserve_ahead(inner, &open));
    }
}

/// Sequences of an open database.
impl Inner {
    /// The sequences that were recovered.
    pub(crate) fn restore_sequences(&self, open: &Arc<OpenHandle>, entries: &[SequenceEntry]) {
        let sequences = entries.iter().map(|entry| Arc::new(Sequence::new(self, entry.clone(), false)));
        let (sequences, next_id) = (sequences.collect(), entries.iter().map(|entry| entry.id + 1).max().unwrap_or(0));
        *self.sequences.list.write().unwrap_or_else(PoisonError::into_inner) = List { sequences, next_id };
        let _ = self.sequences.open.set(Arc::downgrade(open));
        self.sets().iter().for_each(|set| self.bind_identity(set));
    }

    /// The sequence of this name.
    ///
    /// # Errors
    /// There is none; this is a fork.
    pub(crate) fn sequence(&self, name: &str) -> Result<Arc<Sequence>, SchemaError> {
        self.check_process().map_err(SchemaError::storage)?;
        SequenceSteps::default().find(self, name)
    }

    /// Tells a table the sequence of its identity column.
    pub(crate) fn bind_identity(&self, set: &TableSet) {
        SequenceSteps::default().bind_identity(self, set);
    }

    /// Takes a number outside of transactions. Waits for a transaction that changes the sequence.
    ///
    /// # Errors
    /// The sequence is exhausted, or gone; no number could be reserved.
    pub(crate) fn next_number(self: &Arc<Inner>, sequence: &Arc<Sequence>) -> Result<i64, TransactError> {
        self.check_process().map_err(|_| TransactError::Forked)?;
        let began = Instant::now();
        loop {
            match sequence.take_durable(self) {
                Taken::Number(number) => {
                    if sequence.runs_low()
                        && let Some(open) = self.sequences.open()
                    {
                        sequence.reserve_ahead(self, &open);
                    }
                    return Ok(number);
                }
                Taken::Ended if sequence.is_held() && began.elapsed() < changing::WAIT_MAX => thread::sleep(LOOK),
                Taken::Ended => return Err(sequence.ended()),
                Taken::Early(_) => self.refill(sequence, 1)?,
            }
        }
    }

    /// Waits until at least so many numbers may be given.
    ///
    /// # Errors
    /// They could not be reserved.
    pub(crate) fn refill(self: &Arc<Inner>, sequence: &Sequence, least: u64) -> Result<(), TransactError> {
        let open = self.sequences.open().ok_or(TransactError::Closed)?;
        sequence.refill(self, &open, least)
    }

    /// Makes a sequence continue behind this state. Durable when this returns.
    ///
    /// # Errors
    /// A number that it cannot have; it could not be made durable.
    pub(crate) fn set_sequence(
        self: &Arc<Inner>,
        sequence: &Sequence,
        wanted: impl FnOnce(Reserved) -> Option<Reserved>,
    ) -> Result<(), TransactError> {
        self.check_process().map_err(|_| TransactError::Forked)?;
        let open = self.sequences.open().ok_or(TransactError::Closed)?;
        let mut slow = sequence.slow();
        let slow = &mut *slow;
        // From here on no number is given.
        sequence.begin_run(slow, self, false, |_| {});
        if let Some(refusal) = sequence.refusal(slow.end, &slow.definition) {
            return Err(refusal);
        }
        let Some(state) = wanted(slow.before) else { return Ok(()) };
        let (low, high) = slow.definition.range();
        if !(low..=high).contains(&state.last) {
            let sequence = slow.definition.name.to_string();
            return Err(TransactError::SequenceRange { sequence, number: state.last, low, high });
        }
        let Some(persistence) = self.persistence.as_ref().filter(|_| !slow.is_private) else {
            sequence.begin_run(slow, self, false, |slow| slow.before = state);
            return Ok(());
        };
        let row = SequenceEntry::row_of_reserved(sequence.id, state);
        let epoch = durability::commit_catalogue(self, &open, |rows| rows.update(&row))?;
        sequence.begin_run(slow, self, false, |slow| slow.before = state);
        (slow.pending, slow.is_row_ahead) = (Some(epoch), false);
        sequence.wait(slow, self, persistence)
    }

    /// The database is about to be closed: no number is given any more, and the next opening gives those that were
    /// reserved and not given.
    pub(crate) fn close_sequences(self: &Arc<Inner>) {
        let Some(persistence) = &self.persistence else { return };
        let mut rows = Vec::new();
        for sequence in self.sequences.list() {
            let mut slow = sequence.slow();
            if slow.end.is_none() {
                sequence.begin_run(&mut slow, self, false, |slow| slow.end = Some(End::Closed));
                rows.extend(slow.is_row_ahead.then(|| SequenceEntry::row_of_reserved(sequence.id, slow.before)));
            }
        }
        if !rows.is_empty() && !persistence.is_logger() {
            // The last handle may be gone. If this fails, the numbers are lost.
            let open = Arc::new(OpenHandle::new(self));
            durability::try_change_catalogue(self, &open, |all| rows.iter().try_for_each(|row| all.update(row)));
        }
    }
}

/// Sequences for callers.
impl Engine {
    /// The sequence of this name.
    ///
    /// # Errors
    /// There is none; this is a fork.
    pub fn sequence(&self, name: &str) -> Result<Arc<Sequence>, SchemaError> {
        self.inner.sequence(name)
    }

    /// All sequences, in order of creation, each with the name of the table to which it belongs; none in a fork.
    pub fn sequences(&self) -> Vec<(Arc<Sequence>, Option<String>)> {
        let sets = self.inner.sets();
        let list = if self.is_forked() { Vec::new() } else { self.inner.sequences.list() };
        let owner = |sequence: &Sequence| {
            let set = sets.iter().find(|set| Some(set.position) == sequence.owner)?;
            Some(set.definition.name.to_string())
        };
        list.into_iter().map(|sequence| (Arc::clone(&sequence), owner(&sequence))).collect()
    }

    /// The sequence of a table's identity column, if it has one.
    pub fn identity_of(&self, table: &DynHandle) -> Option<Arc<Sequence>> {
        table.set.identity.get().cloned()
    }

    /// Takes a number outside of transactions.
    ///
    /// # Errors
    /// The sequence is exhausted, or gone; no number could be reserved.
    pub fn next_number(&self, sequence: &Arc<Sequence>) -> Result<i64, TransactError> {
        self.inner.next_number(sequence)
    }

    /// Makes a sequence continue behind this state. Durable when this returns.
    ///
    /// # Errors
    /// A number that the sequence cannot have. It could not be made durable: then it counts unless a power cut comes.
    pub fn set_sequence(&self, sequence: &Sequence, state: Reserved) -> Result<(), TransactError> {
        self.inner.set_sequence(sequence, |_| Some(state))
    }

    /// As [`Engine::set_sequence`], unless the sequence has got as far.
    ///
    /// # Errors
    /// As [`Engine::set_sequence`].
    pub fn advance_sequence(&self, sequence: &Sequence, state: Reserved) -> Result<(), TransactError> {
        let is_descending = sequence.definition().step() < 0;
        self.inner.set_sequence(sequence, |before| {
            let order = if is_descending { before.last.cmp(&state.last) } else { state.last.cmp(&before.last) };
            order.then(state.given.cmp(&before.given)).is_gt().then_some(state)
        })
    }
}

/// Changes of sequences, to be made together with those of tables, or not at all: what a migration or a transaction has
/// changed so far.
#[derive(Clone, Default)]
pub(crate) struct SequenceSteps {
    steps: Vec<SequenceStep>,
}

#[derive(Clone)]
struct SequenceStep {
    /// The sequence, to which handles and tables refer.
    target: Arc<Sequence>,
    is_new: bool,
    /// What it is afterwards: itself if it is only new, another one if it was altered, `None` if it was dropped.
    after: Option<Arc<Sequence>>,
    /// Whether it still gives numbers itself: then it has got as far as it has by then.
    is_live: bool,
    /// The role that creates it; none if it is the first superuser.
    creator: Option<u32>,
}

impl SequenceSteps {
    /// Notes the role that creates a sequence.
    pub(crate) fn note_creator(&mut self, name: &str, role: u32) -> Result<(), SchemaError> {
        let is_it = |step: &&mut SequenceStep| step.is_new && step.target.slow().definition.name == name;
        let step = self.steps.iter_mut().find(is_it).ok_or_else(|| SchemaError::Unknown(name.to_owned()))?;
        step.creator = Some(role);
        Ok(())
    }

    fn step(&self, sequence: &Sequence) -> Option<&SequenceStep> {
        self.steps.iter().find(|step| std::ptr::eq(&*step.target, sequence))
    }

    /// What gives the numbers of a sequence that was changed, if it was not dropped.
    fn changed(&self, sequence: &Sequence) -> Option<Arc<Sequence>> {
        self.step(sequence)?.after.clone()
    }

    /// The sequences and what they are after the steps so far, in order of creation.
    pub(crate) fn list(&self, inner: &Inner) -> Vec<(Arc<Sequence>, Arc<Sequence>)> {
        let before = inner.sequences.list().into_iter().filter_map(|sequence| match self.step(&sequence) {
            None => Some((Arc::clone(&sequence), sequence)),
            Some(step) => Some((sequence, step.after.clone()?)),
        });
        let new = self.steps.iter().filter(|step| step.is_new);
        before.chain(new.filter_map(|step| Some((Arc::clone(&step.target), step.after.clone()?)))).collect()
    }

    /// The sequence of this name, and what it is after the steps so far.
    fn find_both(&self, inner: &Inner, name: &str) -> Option<(Arc<Sequence>, Arc<Sequence>)> {
        self.list(inner).into_iter().find(|(_, after)| after.slow().definition.name == name)
    }

    /// The sequence of this name, as it is called after the steps so far.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find(&self, inner: &Inner, name: &str) -> Result<Arc<Sequence>, SchemaError> {
        let found = self.find_both(inner, name).map(|(sequence, _)| sequence);
        found.ok_or_else(|| SchemaError::UnknownSequence(name.to_owned()))
    }

    /// The sequence of the table at this position, and what it is after the steps so far.
    fn owned_by(&self, inner: &Inner, position: u64) -> Option<(Arc<Sequence>, Arc<Sequence>)> {
        self.list(inner).into_iter().find(|(sequence, _)| sequence.owner == Some(position))
    }

    /// Tells a table the sequence of its identity column.
    pub(crate) fn bind_identity(&self, inner: &Inner, set: &TableSet) {
        if set.definition.identity_column().is_some()
            && let Some((sequence, _)) = self.owned_by(inner, set.position)
        {
            let _ = set.identity.set(sequence);
        }
    }

    /// The sequences that the steps hold, or have made.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.steps.iter().flat_map(|step| [&step.target].into_iter().chain(&step.after))
    }

    /// After steps were undone: whether a sequence that one of them held or made gives numbers.
    pub(crate) fn settle(&self, inner: &Inner, sequence: &Arc<Sequence>) {
        let is_after = |step: &SequenceStep| step.after.as_ref().is_some_and(|after| Arc::ptr_eq(after, sequence));
        let is_as_before = self.step(sequence).is_none() && !sequence.slow().is_private;
        match is_as_before || self.steps.iter().any(is_after) {
            true => sequence.give_back(inner),
            false => sequence.hold(inner),
        }
    }

    fn check_free(&self, inner: &Inner, name: &str) -> Result<(), SchemaError> {
        match self.find_both(inner, name) {
            Some(_) => Err(SchemaError::SequenceExists(name.to_owned())),
            None => Ok(()),
        }
    }

    /// Creates a sequence, of the table at this position if it has an owner.
    pub(crate) fn create(
        &mut self,
        inner: &Inner,
        definition: SequenceDef,
        owner: Option<u64>,
    ) -> Result<(), SchemaError> {
        definition.validate().map_err(SchemaError::Invalid)?;
        self.check_free(inner, &definition.name)?;
        let next = inner.sequences.list.read().unwrap_or_else(PoisonError::into_inner).next_id;
        let id = self.steps.iter().map(|step| step.target.id + 1).fold(next, u32::max);
        let (reserved, definition) = (beginning(&definition), definition.said());
        let target = Arc::new(Sequence::new(inner, SequenceEntry { id, definition, owner, reserved }, true));
        let after = Some(Arc::clone(&target));
        self.steps.push(SequenceStep { after, target, is_new: true, is_live: false, creator: None });
        Ok(())
    }

    /// Creates the sequence of the identity column of a table that is to have one.
    pub(crate) fn create_owned(&mut self, inner: &Inner, table: &TableDef, position: u64) -> Result<(), SchemaError> {
        let Some(column) = table.identity_column() else { return Ok(()) };
        let name = format!("{}_{}_seq", table.name, table.columns[column.index()].name);
        let name_of = |number: u32| {
            let number = if number == 0 { String::new() } else { number.to_string() };
            let most = name.floor_char_boundary(TableDef::NAME_MAX - number.len());
            format!("{}{number}", &name[..most])
        };
        let is_free = |name: &String| self.find_both(inner, name).is_none();
        let name = (0..).map(name_of).find(is_free).expect("there are more numbers than names");
        match table.identity_sequence(name) {
            Some(definition) => self.create(inner, definition, Some(position)),
            None => Ok(()),
        }
    }

    /// Changes a sequence. If it `holds` it, the sequence gives no number to others until the steps are made or undone.
    pub(crate) fn alter(
        &mut self,
        inner: &Inner,
        name: &str,
        changes: &[SequenceChange],
        holds: bool,
    ) -> Result<(), SchemaError> {
        let found = self.find_both(inner, name);
        let (target, now) = found.ok_or_else(|| SchemaError::UnknownSequence(name.to_owned()))?;
        let (mut definition, mut restart) = (now.definition(), None);
        changes.iter().for_each(|change| restart = definition.apply(change).or(restart));
        let definition = definition.said();
        definition.validate().map_err(SchemaError::Invalid)?;
        let (low, high) = definition.range();
        if let Some(number) = restart
            && !(low..=high).contains(&number)
        {
            let problem = format!("restarts with {number}, which is none of its numbers");
            return Err(SchemaError::Invalid(InvalidSchema::Sequence { sequence: name.to_owned(), problem }));
        }
        if definition.name != name {
            self.check_free(inner, &definition.name)?;
        }
        self.set(inner, (target, &now), (definition, restart), holds)
    }

    /// Notes what a sequence is afterwards.
    fn set(
        &mut self,
        inner: &Inner,
        (target, now): (Arc<Sequence>, &Sequence),
        (definition, restart): (SequenceDef, Option<i64>),
        holds: bool,
    ) -> Result<(), SchemaError> {
        if holds {
            now.hold(inner);
        }
        let reserved = restart.map_or_else(|| now.position(), |last| Reserved { last, given: false });
        if let Err(error) = check_reached(&definition, reserved) {
            now.give_back(inner);
            return Err(error);
        }
        let entry = SequenceEntry { id: target.id, definition, owner: target.owner, reserved };
        let after = Some(Arc::new(Sequence::new(inner, entry, true)));
        match self.steps.iter_mut().find(|step| Arc::ptr_eq(&step.target, &target)) {
            Some(step) => {
                step.is_live &= restart.is_none();
                step.after = after;
            }
            None => {
                let is_live = !holds && restart.is_none();
                self.steps.push(SequenceStep { target, is_new: false, after, is_live, creator: None });
            }
        }
        Ok(())
    }

    /// Lets the sequence of the table at this position follow its column, which may be gone, new or of another type.
    /// Numbers that were all of the type are all of the new one.
    pub(crate) fn follow_column(
        &mut self,
        inner: &Inner,
        evolution: &Evolution,
        position: u64,
        holds: bool,
    ) -> Result<(), SchemaError> {
        let after = evolution.after();
        if !evolution.keeps_identity() {
            self.drop_owned(inner, position);
            return self.create_owned(inner, after, position);
        }
        let Some(ty) = after.identity_column().map(|column| after.columns[column.index()].ty) else { return Ok(()) };
        let Some((target, now)) = self.owned_by(inner, position) else { return Ok(()) };
        let mut definition = now.definition();
        if definition.ty == ty {
            return Ok(());
        }
        let all = SequenceOptions { minimum: None, maximum: None, ..definition.options };
        let all = SequenceDef { options: all, ..definition.clone() }.range();
        let options = &mut definition.options;
        options.minimum = options.minimum.filter(|low| *low != all.0);
        options.maximum = options.maximum.filter(|high| *high != all.1);
        definition.ty = ty;
        let definition = definition.said();
        definition.validate().map_err(SchemaError::Invalid)?;
        self.set(inner, (target, &now), (definition, None), holds)
    }

    /// Drops a sequence that none of these tables owns.
    pub(crate) fn drop(&mut self, inner: &Inner, name: &str, tables: &[Arc<TableSet>]) -> Result<(), SchemaError> {
        let sequence = self.find(inner, name)?;
        if let Some(owner) = sequence.owner {
            let table = tables.iter().find(|set| set.position == owner);
            let table = table.map_or_else(String::new, |set| set.definition.name.to_string());
            return Err(SchemaError::SequenceOwned { sequence: name.to_owned(), table });
        }
        self.note_dropped(sequence);
        Ok(())
    }

    /// Drops the sequence of the table at this position, if it has one.
    pub(crate) fn drop_owned(&mut self, inner: &Inner, position: u64) {
        if let Some((owned, _)) = self.owned_by(inner, position) {
            self.note_dropped(owned);
        }
    }

    fn note_dropped(&mut self, target: Arc<Sequence>) {
        match self.steps.iter_mut().find(|step| Arc::ptr_eq(&step.target, &target)) {
            Some(step) => step.after = None,
            None => {
                let (is_new, after, is_live, creator) = (false, None, false, None);
                self.steps.push(SequenceStep { target, is_new, after, is_live, creator });
            }
        }
    }

    /// Before the changes are committed. None of the changed sequences gives a number from here on, until the changes
    /// are applied or undone.
    ///
    /// # Errors
    /// A number that was given is none of the sequence afterwards.
    pub(crate) fn begin(&self, inner: &Inner) -> Result<ReadySteps, SchemaError> {
        let steps = self.steps.iter().filter(|step| step.after.is_some() || !step.is_new);
        let ready = steps.map(|SequenceStep { target, is_new, after, is_live, creator }| {
            target.hold(inner);
            let kept = after.as_ref().unwrap_or(target);
            kept.hold(inner);
            let reserved = if *is_live { target.position() } else { kept.position() };
            let (id, definition, owner) = (target.id, kept.definition(), target.owner);
            check_reached(&definition, reserved)?;
            let (is_new, entry) = (*is_new, SequenceEntry { id, definition, owner, reserved });
            let mut rows = entry.rows();
            let run = Run::new(&entry.definition, next_of(&entry.definition, reserved));
            // The first numbers of a new sequence are durable with it.
            let block = match is_new && inner.persistence.is_some() {
                true => entry.definition.options.cache.map_or(BLOCK_MIN, u64::from).min(run.end()),
                false => 0,
            };
            if block > 0 {
                rows[1] = SequenceEntry::row_of_reserved(id, Reserved { last: run.number(block - 1), given: true });
            }
            let (target, is_dropped) = (Arc::clone(target), after.is_none());
            Ok(Ready { target, is_new, is_dropped, entry, block, rows, creator: *creator })
        });
        ready.collect::<Result<Vec<_>, _>>().map(ReadySteps)
    }

    /// The changes will not be made.
    pub(crate) fn undo(&self, inner: &Inner) {
        self.all().for_each(|sequence| sequence.undo(inner));
    }
}

/// Checks that a sequence can have got so far.
fn check_reached(definition: &SequenceDef, Reserved { last, .. }: Reserved) -> Result<(), SchemaError> {
    let (low, high) = definition.range();
    if (low..=high).contains(&last) {
        return Ok(());
    }
    let problem = format!("has got to {last}, which is not from {low} to {high}: restart it too");
    Err(SchemaError::Invalid(InvalidSchema::Sequence { sequence: definition.name.to_string(), problem }))
}

/// Changes of sequences that give no number until the changes are applied or undone.
pub(crate) struct ReadySteps(Vec<Ready>);

struct Ready {
    target: Arc<Sequence>,
    is_new: bool,
    is_dropped: bool,
    /// What it is afterwards.
    entry: SequenceEntry,
    /// How many numbers are reserved with it.
    block: u64,
    rows: [Row; 2],
    creator: Option<u32>,
}

impl ReadySteps {
    /// Writes the changes into the catalogue.
    pub(crate) fn record(&self, rows: &CatalogueRows<'_>) -> Result<(), Abort> {
        let rights = self.0.iter().try_for_each(|Ready { target, is_dropped, creator, .. }| {
            rows.inner().record_sequence_rights(rows, target.id, *is_dropped, *creator)
        });
        rights?;
        self.0.iter().try_for_each(|ready| match ready {
            Ready { is_dropped: true, .. } => rows.delete(&ready.rows),
            Ready { is_new: true, .. } => ready.rows.iter().try_for_each(|row| rows.insert(row)),
            _ => ready.rows.iter().try_for_each(|row| rows.update(row)),
        })
    }

    /// The changes were committed, in this epoch.
    pub(crate) fn apply(self, inner: &Inner, epoch: Epoch) {
        let durable = inner.persistence.as_ref().map(Persistence::durable_epoch);
        let mut list = inner.sequences.list.write().unwrap_or_else(PoisonError::into_inner);
        for Ready { target, is_new, is_dropped, entry, block, creator, .. } in self.0 {
            inner.access.settle_sequence(target.id, is_dropped, creator);
            let slow = &mut *target.slow();
            if is_dropped {
                target.begin_run(slow, inner, false, |slow| slow.end = Some(End::Dropped));
                list.sequences.retain(|other| !Arc::ptr_eq(other, &target));
                continue;
            }
            target.begin_run(slow, inner, false, |slow| {
                (slow.definition, slow.before) = (entry.definition, entry.reserved);
                (slow.end, slow.is_private, slow.is_row_ahead) = (None, false, false);
            });
            if block > 0 {
                (slow.reserved, slow.pending) = (block, Some(epoch));
                target.note_durable(slow, durable);
            }
            if is_new {
                list.next_id = list.next_id.max(target.id + 1);
                list.sequences.push(Arc::clone(&target));
            }
        }
    }
}

/// Numbers in transactions.
impl TxCore {
    /// The next number of a sequence. No abort takes it back.
    ///
    /// # Errors
    /// The sequence is exhausted, or gone; a handle of another database. If no number may be given yet, the transaction
    /// stops, and its next attempt waits for one.
    pub fn next_number(&self, sequence: &Arc<Sequence>) -> Result<i64, Abort> {
        let inner = self.inner();
        if sequence.database != inner.number {
            return Err(Abort::stopped(Reason::ForeignHandle));
        }
        let _call = self.call()?;
        self.count_operation(true)?;
        loop {
            match sequence.take_durable(inner) {
                Taken::Number(number) => {
                    if sequence.runs_low() {
                        // The next transaction that begins reserves more.
                        inner.attention.ask(Attention::SEQUENCES);
                    }
                    self.took_number();
                    return Ok(number);
                }
                Taken::Ended => return self.next_of_changed(sequence),
                // Nobody waits for what an explicit transaction has.
                Taken::Early(_) if self.keeps_rows() => match inner.refill(sequence, 1) {
                    Ok(()) => {}
                    Err(error) => return Err(self.sequence_error(error)),
                },
                Taken::Early(_) => {
                    self.awaits(Arc::clone(sequence));
                    return Err(self.stop(Cause { phase: Phase::Execute, reason: Reason::SequenceEmpty }));
                }
            }
        }
    }

    /// The next number of a sequence that gives none: of what the transaction has made of it.
    #[cold]
    fn next_of_changed(&self, sequence: &Arc<Sequence>) -> Result<i64, Abort> {
        let changed = self.with_view(|view| view.sequences.changed(sequence)).flatten();
        match changed {
            Some(changed) => changed.next_private().ok_or_else(|| self.sequence_error(changed.ended())),
            None if sequence.is_held() => {
                Err(self.stop(Cause { phase: Phase::Execute, reason: Reason::TableChanging }))
            }
            None => Err(self.sequence_error(sequence.ended())),
        }
    }

    /// The next number for the identity column of a table.
    ///
    /// # Errors
    /// As [`TxCore::next_number`]; the table has no identity column.
    pub fn next_identity(&self, set: &TableSet) -> Result<i64, Abort> {
        match set.identity.get() {
            Some(sequence) => self.next_number(sequence),
            None => {
                self.admits(self.own(set)?)?;
                Err(self.abort(format!("table {:?} has no identity column", set.definition.name)))
            }
        }
    }
}
