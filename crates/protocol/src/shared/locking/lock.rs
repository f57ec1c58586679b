//! Reader–writer lock words of records and gaps, and the list of those an attempt holds.
//!
//! ```text
//! 63       62       61        48 47           0
//! | WRITER | WAITED | readers   | age          |     a gap word that is GAP_CLOSED is never locked; 0 is free
//! ```
//! No-wait: a lock that is not free is a reason to abort. `WAITED` and `age` stay zero.
//!
//! Wait-die: `age` is at most the rounded priority of every holder and of the waiter. (It is not raised when the oldest
//! reader leaves before others.) A conflicting request waits if it is older than `age`, which it then lowers to its
//! own, and sets `WAITED`; otherwise it dies. So there is one waiter, the oldest request: an older one replaces it, and
//! it dies when it looks again. A lock that is released while a transaction waits for it is reserved: no younger
//! request gets it, nor joins its readers.
//!
//! Why no cycle of waits forms. A waiter is older than the holder was when it began to wait. Every later holder of the
//! lock is older than the waiter, and the waiter then dies. So in a cycle of waits all would have the same rounded age.
//! The last of them that began to wait found a lock held by another of them, and was not older: it died. (A reader that
//! waits to become the only one compares with its own `age`. So a request as old as `age` does not join readers.)

use std::ptr;

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_htm::Htm;
use seriatim_memory::{CountedVec, Local, OutOfMemory};
use seriatim_store::{GAP_CLOSED, RecordPtr};
use seriatim_txn::{Priority, RecordLayout, Table};

use crate::shared::own::OwnIndex;
use crate::shared::record_header;

const WRITER: u64 = 1 << 63;
const WAITED: u64 = 1 << 62;
const READER: u64 = 1 << 48;
const READERS: u64 = WAITED - READER;
const AGE: u64 = READER - 1;
/// The garbage collector is younger than every transaction.
const YOUNGEST: u64 = AGE;

/// The outcome of a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Request {
    Taken,
    /// Ask again: the holders are younger.
    Wait,
    Refused,
}

use Request::{Refused, Taken, Wait};

/// A transaction that requests a lock: its age, and whether it is, to its knowledge, the one that waits there.
#[derive(Clone, Copy, Debug)]
struct LockRequester {
    age: u64,
    waits: bool,
}

impl LockRequester {
    fn has_mark(self, now: u64) -> bool {
        self.waits && now & WAITED != 0 && now & AGE == self.age
    }

    /// A lock that others hold.
    fn held(self, now: u64) -> (u64, Request) {
        if self.has_mark(now) {
            (now, Wait)
        } else if self.age < now & AGE {
            (now & !AGE | WAITED | self.age, Wait)
        } else {
            (now, Refused)
        }
    }

    /// Whether the lock is kept for one that waits.
    fn is_reserved(self, now: u64) -> bool {
        now & WAITED != 0 && !self.has_mark(now) && self.age >= now & AGE
    }

    fn shared(self, now: u64) -> (u64, Request) {
        let readers = now & READERS;
        if now == GAP_CLOSED || (self.is_reserved(now) && now & WRITER == 0) {
            (now, Refused)
        } else if now & WRITER != 0 {
            self.held(now)
        } else if readers != 0 && now & AGE == self.age && !self.has_mark(now) {
            (now, Refused)
        } else {
            // A younger one that waits finds an older holder, and dies.
            let oldest = if readers == 0 { self.age } else { self.age.min(now & AGE) };
            ((readers + READER) | oldest, Taken)
        }
    }

    fn exclusive(self, now: u64) -> (u64, Request) {
        if now & (WRITER | READERS) != 0 {
            self.held(now)
        } else if self.is_reserved(now) {
            (now, Refused)
        } else {
            (WRITER | self.age, Taken)
        }
    }

    /// Of one of the readers.
    fn upgrade(self, now: u64) -> (u64, Request) {
        if now & READERS == READER {
            let waited = if self.has_mark(now) { 0 } else { now & WAITED };
            (WRITER | waited | now & AGE, Taken)
        } else {
            self.alone(now)
        }
    }

    /// One of several readers waits to be the only one.
    fn alone(self, now: u64) -> (u64, Request) {
        if self.has_mark(now) {
            (now, Wait)
        } else if now & WAITED == 0 && now & AGE == self.age {
            (now | WAITED, Wait)
        } else {
            (now, Refused)
        }
    }
}

/// The value of a lock after a holder's release; `held` is the part that other holders still have.
fn released(now: u64, held: u64) -> u64 {
    if held != 0 || now & WAITED != 0 { held | now & (WAITED | AGE) } else { 0 }
}

/// Turns a word as `step` says. The loop waits for no thread: each turn that fails is another thread's that succeeded,
/// or is spurious.
#[inline]
fn turn(word: &AtomicU64, step: impl Fn(u64) -> (u64, Request)) -> Request {
    let mut now = word.load(Ordering::Acquire);
    loop {
        let (next, request) = step(now);
        if next == now {
            return request;
        }
        // ORDERING: acquire pairs with the release of the last holder; SeqCst for the gaps, see `Gaps::admit`.
        match word.compare_exchange_weak(now, next, Ordering::SeqCst, Ordering::Acquire) {
            Ok(_) => return request,
            Err(other) => now = other,
        }
    }
}

/// Words of a record's header that belong to protocols that lock: the lock word.
pub const OWN_WORDS: usize = 1;

/// The lock word of a record.
#[inline]
pub(super) fn lock_word<'t>(record_layout: &RecordLayout, record: RecordPtr) -> &'t AtomicU64 {
    record_header::own::<0>(record_layout, record)
}

/// The lock word of a record of `table`.
#[inline]
pub fn of<'t>(table: &Table, record: RecordPtr) -> &'t AtomicU64 {
    lock_word(&table.record_layout, record)
}

/// Takes a record without holders and waiters, to unlink it.
pub(super) fn claim(word: &AtomicU64) -> bool {
    word.compare_exchange(0, WRITER | YOUNGEST, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// Releases a lock that [`claim`] took.
pub(super) fn give(word: &AtomicU64) {
    let _ = turn(word, |now| (released(now, 0), Taken));
}

#[inline]
fn try_shared(word: &AtomicU64) -> bool {
    let mut now = word.load(Ordering::Relaxed);
    while now & WRITER == 0 {
        // ORDERING: acquire pairs with the release of the last writer; SeqCst for the gaps, see `Gaps::admit`.
        match word.compare_exchange_weak(now, now + READER, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
    false
}

#[derive(Clone, Copy, Debug)]
struct Held {
    word: *const AtomicU64,
    exclusive: bool,
}

/// The locks that an attempt holds; released together at its end (strict two-phase locking). If it `WAITS`, an older
/// transaction must wait for younger ones; otherwise none waits.
#[derive(Debug)]
pub(super) struct Locks<const WAITS: bool> {
    held: CountedVec<Held>,
    own: OwnIndex,
    /// Regions read gap words: changes go through it.
    htm: Htm,
    /// The upper bits of the transaction's priority; zero if it does not wait.
    age: u64,
    /// The lock word for which the transaction waits, or was last told to wait.
    waiting: *const AtomicU64,
    /// Canary: every conflicting transaction waits, however young.
    all_wait: bool,
}

// SAFETY: the pointers are only followed by the worker that holds the locks; the worker moves between threads
// as a whole.
unsafe impl<const WAITS: bool> Send for Locks<WAITS> {}

impl<const WAITS: bool> Locks<WAITS> {
    pub(super) fn new(htm: Htm, local: &Local, all_wait: bool) -> Locks<WAITS> {
        let (held, own) = (local.counted(256), OwnIndex::new(local));
        Locks { held, own, htm, age: 0, waiting: ptr::null(), all_wait }
    }

    /// An attempt of a transaction of this priority begins.
    #[inline]
    pub(super) fn begin(&mut self, priority: Priority) {
        if WAITS {
            self.age = priority.rounded();
        }
    }

    /// Makes room for one lock more, before it is taken.
    #[inline(always)]
    pub(super) fn reserve(&mut self) -> Result<(), OutOfMemory> {
        self.held.reserve_one()
    }

    /// Gives back memory that a large transaction took, as the worker is idle.
    pub(super) fn rest(&mut self) {
        self.held.rest();
        self.own.rest();
    }

    #[inline]
    fn find(&self, word: &AtomicU64) -> Option<usize> {
        self.own.find(ptr::from_ref(word) as usize, |e| self.held[e].word as usize)
    }

    /// Notes a lock that was taken.
    pub(super) fn note(&mut self, word: &AtomicU64, exclusive: bool) {
        let held = &self.held;
        self.own.push(ptr::from_ref(word) as usize, |e| held[e].word as usize);
        self.held.push(Held { word, exclusive });
    }

    /// Whether the attempt holds this word, in whichever mode.
    #[inline]
    pub(super) fn holds(&self, word: &AtomicU64) -> bool {
        self.find(word).is_some()
    }

    /// The word of a record that is linked with the attempt as its writer.
    #[inline]
    pub(super) fn written(&self) -> u64 {
        WRITER | self.age
    }

    /// The gap word of a new leaf whose gap only this attempt holds.
    #[inline]
    pub(super) fn joined(&self) -> u64 {
        READER | self.age
    }

    /// Whether no other transaction holds this gap.
    #[inline]
    pub(super) fn admits(&self, gap: &AtomicU64) -> bool {
        let own = if self.holds(gap) { READER } else { 0 };
        gap.load(Ordering::Acquire) & (WRITER | READERS) == own
    }

    fn asker(&self, word: &AtomicU64) -> LockRequester {
        LockRequester { age: self.age, waits: ptr::eq(self.waiting, word) }
    }

    /// Asks, and remembers where it waits.
    fn ask(&mut self, word: &AtomicU64, step: impl Fn(LockRequester, u64) -> (u64, Request)) -> Request {
        crate::step(Touch::Exchange, word);
        let asker = self.asker(word);
        let request = match self.htm.outside(|| turn(word, |now| step(asker, now))) {
            Refused if self.all_wait && word.load(Ordering::Relaxed) != GAP_CLOSED => return Wait,
            request => request,
        };
        match request {
            Wait if !asker.waits => {
                self.stop_waiting();
                self.waiting = word;
            }
            Taken if asker.waits => self.waiting = ptr::null(),
            _ => {}
        }
        request
    }

    /// Takes a word shared, unless it is held already.
    #[inline]
    pub(super) fn shared(&mut self, word: &AtomicU64) -> Request {
        if self.find(word).is_some() {
            return Taken;
        }
        let request = if WAITS {
            self.ask(word, LockRequester::shared)
        } else {
            crate::step(Touch::Exchange, word);
            if self.htm.outside(|| try_shared(word)) { Taken } else { Refused }
        };
        if request == Taken {
            self.note(word, false);
        }
        request
    }

    /// Takes a word exclusively, upgrading a shared lock if there is no other reader.
    #[inline]
    pub(super) fn exclusive(&mut self, word: &AtomicU64) -> Request {
        let exchange = |readers: u64| {
            crate::step(Touch::Exchange, word);
            let taken = word.compare_exchange(readers, WRITER, Ordering::SeqCst, Ordering::Relaxed);
            if taken.is_ok() { Taken } else { Refused }
        };
        match self.find(word) {
            Some(at) if self.held[at].exclusive => Taken,
            Some(at) => {
                let request = if WAITS { self.ask(word, LockRequester::upgrade) } else { exchange(READER) };
                self.held[at].exclusive |= request == Taken;
                request
            }
            None => {
                let request = if WAITS { self.ask(word, LockRequester::exclusive) } else { exchange(0) };
                if request == Taken {
                    self.note(word, true);
                }
                request
            }
        }
    }

    /// The outcome of an insert into a gap that other transactions have locked. It must wait, even if they have
    /// released the gap since.
    #[cold]
    pub(super) fn kept_out(&mut self, gap: &AtomicU64) -> Request {
        if !WAITS {
            return Refused;
        }
        let own = if self.holds(gap) { READER } else { 0 };
        self.ask(gap, |asker, now| match now & READERS {
            _ if now == GAP_CLOSED => (now, Wait),
            readers if readers <= own => (now, Wait),
            _ if own != 0 => asker.alone(now),
            _ => asker.held(now),
        })
    }

    /// The transaction stops waiting, and gives up its reservation.
    pub(super) fn stop_waiting(&mut self) {
        let waiting = std::mem::replace(&mut self.waiting, ptr::null());
        // SAFETY: the word of a record or leaf that this attempt found; it is online.
        let Some(word) = (unsafe { waiting.as_ref() }) else { return };
        let asker = LockRequester { age: self.age, waits: true };
        let step = |now| match asker.has_mark(now) && now != GAP_CLOSED {
            true => (released(now & !WAITED, now & (WRITER | READERS)), Taken),
            false => (now, Taken),
        };
        let _ = self.htm.outside(|| turn(word, step));
    }

    /// Releases every lock.
    pub(super) fn release_all(&mut self) {
        if WAITS {
            self.stop_waiting();
        }
        for held in self.held.iter() {
            // SAFETY: a locked record is not unlinked and a leaf whose gap is held is not retired; and we are online.
            let word = unsafe { &*held.word };
            crate::step(if !WAITS && held.exclusive { Touch::Store } else { Touch::Exchange }, word);
            match (WAITS, held.exclusive) {
                // ORDERING: here and below, pairs with the acquire of the next holder.
                (false, true) => word.store(0, Ordering::Release),
                (false, false) => drop(self.htm.outside(|| word.fetch_sub(READER, Ordering::Release))),
                (true, true) => give(word),
                (true, false) => {
                    let step = |now| (released(now, (now & READERS) - READER), Taken);
                    let _ = self.htm.outside(|| turn(word, step));
                }
            }
        }
        self.held.clear();
        self.own.clear();
    }
}
