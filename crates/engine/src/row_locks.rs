//! Locks of rows that explicit transactions take before they read rows in order to change them.
//!
//! Invariant: locks only prevent conflicts. Serializability is the protocol's, which knows nothing of them, and what
//! runs without them conflicts with their holders as with anybody. A lock belongs to a key, so a row need not exist.
//!
//! A row that is locked has an entry in one of [`SHARDS`] maps: its holders, and a queue. A lock is given to those who
//! wait in the order of their arrival. Only a holder of a shared lock who wants the exclusive one comes first.
//!
//! ```text
//!            release of the holders
//! WAITING ──────────────────────────▶ GRANTED
//!    └──▶ CANCELLED, TIMED_OUT, ENDED (its transaction has), LEFT (nobody waits any more)
//! ```
//! Access rules:
//! 1. A wait changes its state under the mutex of its row's map.
//! 2. Mutexes are taken in this order: `waits`, a map, an owner or a wait. No two of one kind are held together.
//! 3. Whoever begins to wait holds `waits` until it has looked for a deadlock. The last wait of a cycle therefore finds
//!    all of them: nobody in a cycle can leave its lock meanwhile.
//!
//! The wait of a transaction for a row goes through the holders of the row only. Those before it in the queue wait for
//! the same holders.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread::{self, Thread};
use seriatim_catalog::Key;
use seriatim_memory::{Charge, OutOfMemory};

use crate::cancel::Deadline;

/// Maps of locked rows: enough that sessions seldom meet at one.
const SHARDS: usize = 64;

/// What a lock takes beside its key: an entry, and a place in the list of its holder.
const LOCK_BYTES: usize = 256;

/// A transaction's locks are charged in steps of so many bytes, beyond the first step.
const CHARGE_STEP: usize = 64 << 10;

/// The longest sleep of a thread that waits: as with all sleeps, a lost wake-up delays it only.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// What a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockStrength {
    /// Exclusive locks.
    Shared,
    /// All locks of others.
    Exclusive,
}

/// What is done about a row that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfLocked {
    /// The transaction queues for it.
    Wait,
    /// Nothing.
    Refuse,
}

/// The result of asking for a lock.
#[derive(Debug)]
pub enum RowLock {
    /// The transaction has it.
    Held,
    /// Another transaction has it.
    Taken,
    /// Another transaction has it, and this one has queued.
    Waits(RowWait),
    /// It would wait for a transaction that waits for it. The text says who waits for whom.
    Deadlock(String),
}

/// How a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The transaction has the lock.
    Granted,
    /// The session's canceller ended it.
    Cancelled,
    /// It took too long.
    TimedOut,
    /// The transaction was ended.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Left,
    Ended(WaitEnd),
}

/// The name of a row: the number of its table and its encoded key.
pub(crate) type RowName = Arc<[u8]>;

pub(crate) fn row_name(table: u64, key: Key<'_>) -> RowName {
    [&table.to_be_bytes(), &*key.to_bytes()].concat().into()
}

/// The map of a row. FNV-1a: the maps protect themselves against chosen keys.
fn shard_of<const PARTS: usize>(name: [&[u8]; PARTS]) -> usize {
    let hash = name
        .into_iter()
        .flatten()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
    (hash >> 32) as usize % SHARDS
}

/// All locks of a database.
pub(crate) struct RowLocks {
    shards: Box<[Shard]>,
    waits: Mutex<()>,
}

#[derive(Default)]
struct Shard {
    /// The locked rows, for those who only ask.
    count: AtomicUsize,
    rows: Mutex<HashMap<RowName, Row>>,
}

/// A locked row.
struct Row {
    strength: LockStrength,
    holders: Vec<Arc<Owner>>,
    queue: VecDeque<Arc<Wait>>,
}

/// Whose locks they are: one explicit transaction, also if its attempt is begun anew.
pub(crate) struct Owner {
    locks: Arc<RowLocks>,
    /// The number of its session.
    session: usize,
    owned: Mutex<Owned>,
}

struct Owned {
    /// The locked rows in the order of locking.
    rows: Vec<RowName>,
    bytes: usize,
    charge: Charge,
    wait: Option<Arc<Wait>>,
    is_released: bool,
}

struct Wait {
    owner: Arc<Owner>,
    row: RowName,
    strength: LockStrength,
    /// The row in words.
    says: String,
    /// The session that had the lock.
    blocker: usize,
    progress: Mutex<(State, Option<Waker>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bytes_of(row: &RowName) -> usize {
    LOCK_BYTES + row.len()
}

impl Default for RowLocks {
    fn default() -> RowLocks {
        RowLocks { shards: (0..SHARDS).map(|_| Shard::default()).collect(), waits: Mutex::default() }
    }
}

impl RowLocks {
    fn shard(&self, row: &[u8]) -> &Shard {
        &self.shards[shard_of([row])]
    }

    /// Whether a transaction has the row locked, so that another one would wait for this lock, or waits for it itself.
    pub(crate) fn is_locked(&self, table: u64, key: Key<'_>, strength: LockStrength) -> bool {
        let shard = &self.shards[match key {
            Key::Word8(word) => shard_of([&table.to_be_bytes()[..], &word.to_be_bytes()]),
            Key::Word16(words) => shard_of([&table.to_be_bytes()[..], &words.to_be_bytes()]),
            Key::Bytes(bytes) => shard_of([&table.to_be_bytes()[..], bytes]),
        }];
        // ORDERING: who asks learns of a lock sooner or later; the protocol decides.
        shard.count.load(Ordering::Relaxed) != 0
            && lock(&shard.rows).get(&row_name(table, key)).is_some_and(|row| row.excludes(strength))
    }

    /// Whether no row is locked.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: as in `is_locked`.
        self.shards.iter().all(|shard| shard.count.load(Ordering::Relaxed) == 0)
    }

    /// An owner without locks.
    pub(crate) fn owner(self: &Arc<Self>, session: usize, charge: Charge) -> Arc<Owner> {
        let owned = Owned { rows: Vec::new(), bytes: 0, charge, wait: None, is_released: false };
        Arc::new(Owner { locks: Arc::clone(self), session, owned: Mutex::new(owned) })
    }

    /// Locks a row for this owner, which waits for nothing. `says` is the row in words. A wait ends when `deadline` is
    /// cancelled.
    pub(crate) fn lock(
        &self,
        owner: &Arc<Owner>,
        row: &RowName,
        strength: LockStrength,
        if_locked: IfLocked,
        says: impl FnOnce() -> String,
        deadline: &Deadline,
    ) -> Result<RowLock, OutOfMemory> {
        let shard = self.shard(row);
        if shard.take(&mut lock(&shard.rows), owner, row, strength)? {
            return Ok(RowLock::Held);
        }
        if if_locked == IfLocked::Refuse {
            return Ok(RowLock::Taken);
        }
        let (says, progress) = (says(), Mutex::new((State::Waiting, None)));
        let waits = lock(&self.waits);
        let wait = {
            let mut rows = lock(&shard.rows);
            if shard.take(&mut rows, owner, row, strength)? {
                return Ok(RowLock::Held);
            }
            let Some(locked) = rows.get_mut(row) else { return Ok(RowLock::Taken) };
            let others = locked.holders.iter().find(|holder| !Arc::ptr_eq(holder, owner));
            let blocker = others.map_or(0, |holder| holder.session);
            let (owner, row) = (Arc::clone(owner), Arc::clone(row));
            let wait = Arc::new(Wait { owner, row, strength, says, blocker, progress });
            let owner = &wait.owner;
            match locked.is_held_by(owner) {
                true => locked.queue.push_front(Arc::clone(&wait)),
                false => {
                    owner.reserve(&wait.row)?;
                    locked.queue.push_back(Arc::clone(&wait));
                }
            }
            lock(&owner.owned).wait = Some(Arc::clone(&wait));
            wait
        };
        if let Some(detail) = self.deadlock(&wait) {
            self.leave(&wait, State::Left);
            return Ok(RowLock::Deadlock(detail));
        }
        drop(waits);
        let wait = RowWait { wait, deadline: deadline.clone() };
        deadline.waits(wait.handle());
        Ok(RowLock::Waits(wait))
    }

    /// Who waits for whom, if the owner of this wait is among those for whom it waits.
    fn deadlock(&self, first: &Arc<Wait>) -> Option<String> {
        // Each with the position of the one that waits for its owner.
        let mut found: Vec<(Arc<Wait>, Option<usize>)> = vec![(Arc::clone(first), None)];
        let mut seen = BTreeSet::new();
        let mut at = 0;
        while let Some(wait) = found.get(at).map(|(wait, _)| Arc::clone(wait)) {
            let holders = lock(&self.shard(&wait.row).rows).get(&wait.row).map(|row| row.holders.clone());
            let blockers = holders.unwrap_or_default().into_iter().filter(|holder| !Arc::ptr_eq(holder, &wait.owner));
            for blocker in blockers.collect::<Vec<_>>() {
                if Arc::ptr_eq(&blocker, &first.owner) {
                    return Some(describe(&found, at));
                }
                let next = lock(&blocker.owned).wait.clone();
                if let Some(next) = next.filter(|_| seen.insert(Arc::as_ptr(&blocker).addr())) {
                    found.push((next, Some(at)));
                }
            }
            at += 1;
        }
        None
    }

    /// Ends a wait, unless it has ended.
    fn leave(&self, wait: &Arc<Wait>, state: State) {
        let shard = self.shard(&wait.row);
        let mut woken = Vec::new();
        {
            let mut rows = lock(&shard.rows);
            if !wait.finish(state, &mut woken) {
                return;
            }
            lock(&wait.owner.owned).wait = None;
            if let Some(row) = rows.get_mut(&wait.row) {
                row.queue.retain(|other| !Arc::ptr_eq(other, wait));
                row.grant(&mut woken);
            }
            shard.clean(&mut rows, &wait.row);
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Locked rows, and transactions that wait.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let of = |shard: &Shard| {
            let rows = lock(&shard.rows);
            assert_eq!(shard.count.load(Ordering::Relaxed), rows.len());
            (rows.len(), rows.values().map(|row| row.queue.len()).sum::<usize>())
        };
        self.shards.iter().map(of).fold((0, 0), |(rows, waits), (more, wait)| (rows + more, waits + wait))
    }
}

/// The cycle that ends with the wait at this position.
fn describe(found: &[(Arc<Wait>, Option<usize>)], last: usize) -> String {
    let (mut lines, mut at, mut blocker) = (Vec::new(), Some(last), found[0].0.owner.session);
    while let Some((wait, before)) = at.and_then(|at| found.get(at)) {
        let Wait { owner, says, .. } = &**wait;
        lines.push(format!("Process {} waits for {says}; blocked by process {blocker}.", owner.session));
        (at, blocker) = (*before, owner.session);
    }
    lines.reverse();
    lines.join("\n")
}

impl Shard {
    /// Gives the owner the lock, if nobody excludes that.
    fn take(
        &self,
        rows: &mut HashMap<RowName, Row>,
        owner: &Arc<Owner>,
        name: &RowName,
        strength: LockStrength,
    ) -> Result<bool, OutOfMemory> {
        let Some(row) = rows.get_mut(name) else {
            owner.reserve(name)?;
            owner.note(name);
            let row = Row { strength, holders: vec![Arc::clone(owner)], queue: VecDeque::new() };
            rows.insert(Arc::clone(name), row);
            self.count.store(rows.len(), Ordering::Relaxed);
            return Ok(true);
        };
        if row.is_held_by(owner) {
            let has_it = strength == LockStrength::Shared || row.strength == LockStrength::Exclusive;
            if !has_it && row.holders.len() == 1 {
                row.strength = LockStrength::Exclusive;
                return Ok(true);
            }
            return Ok(has_it);
        }
        let is_free = row.queue.is_empty() && row.admits(owner, strength);
        if is_free {
            owner.reserve(name)?;
            owner.note(name);
            row.holders.push(Arc::clone(owner));
        }
        Ok(is_free)
    }

    /// Removes a row that nobody has locked.
    fn clean(&self, rows: &mut HashMap<RowName, Row>, name: &RowName) {
        if rows.get(name).is_some_and(|row| row.holders.is_empty() && row.queue.is_empty()) {
            rows.remove(name);
            if rows.is_empty() {
                rows.shrink_to(SHARDS);
            }
            self.count.store(rows.len(), Ordering::Relaxed);
        }
    }
}

impl Row {
    fn is_held_by(&self, owner: &Arc<Owner>) -> bool {
        self.holders.iter().any(|holder| Arc::ptr_eq(holder, owner))
    }

    /// Whether somebody who has no lock of it would wait for this one.
    fn excludes(&self, strength: LockStrength) -> bool {
        let is_shared = strength == LockStrength::Shared && self.strength == LockStrength::Shared;
        !is_shared || !self.queue.is_empty()
    }

    /// Whether the holders allow another lock.
    fn admits(&self, owner: &Arc<Owner>, strength: LockStrength) -> bool {
        match strength {
            LockStrength::Shared => self.holders.is_empty() || self.strength == LockStrength::Shared,
            LockStrength::Exclusive => self.holders.iter().all(|holder| Arc::ptr_eq(holder, owner)),
        }
    }

    /// Gives the lock to the first ones in the queue, as far as holders allow it.
    fn grant(&mut self, woken: &mut Vec<Waker>) {
        while let Some(wait) = self.queue.front().filter(|wait| self.admits(&wait.owner, wait.strength)).cloned() {
            self.queue.pop_front();
            let is_held = self.is_held_by(&wait.owner);
            let is_wanted = {
                let mut owned = lock(&wait.owner.owned);
                owned.wait = None;
                if !owned.is_released && !is_held {
                    owned.rows.push(Arc::clone(&wait.row));
                }
                !owned.is_released
            };
            let end = if is_wanted { WaitEnd::Granted } else { WaitEnd::Ended };
            wait.finish(State::Ended(end), woken);
            if is_wanted {
                self.strength = wait.strength;
                if !is_held {
                    self.holders.push(Arc::clone(&wait.owner));
                }
            }
        }
    }
}

impl Owner {
    /// Counts the memory of one lock more.
    fn reserve(&self, row: &RowName) -> Result<(), OutOfMemory> {
        let mut owned = lock(&self.owned);
        let bytes = owned.bytes + bytes_of(row);
        if bytes > owned.charge.bytes() + CHARGE_STEP {
            owned.charge.try_set(bytes)?;
        }
        owned.bytes = bytes;
        Ok(())
    }

    fn note(&self, row: &RowName) {
        lock(&self.owned).rows.push(Arc::clone(row));
    }

    /// How many rows it has locked.
    pub(crate) fn len(&self) -> usize {
        lock(&self.owned).rows.len()
    }

    /// Whether its locks were released for good.
    pub(crate) fn is_released(&self) -> bool {
        lock(&self.owned).is_released
    }

    /// Releases all locks, and lets it have no others.
    pub(crate) fn release(self: &Arc<Self>) {
        let wait = {
            let mut owned = lock(&self.owned);
            owned.is_released = true;
            owned.wait.clone()
        };
        if let Some(wait) = wait {
            self.locks.leave(&wait, State::Ended(WaitEnd::Ended));
        }
        self.release_from(0);
    }

    /// Releases the locks behind the first ones.
    pub(crate) fn release_from(self: &Arc<Self>, first: usize) {
        let rows = {
            let mut owned = lock(&self.owned);
            let first = first.min(owned.rows.len());
            let rows = owned.rows.split_off(first);
            owned.bytes -= rows.iter().map(bytes_of).sum::<usize>().min(owned.bytes);
            let kept = owned.bytes.min(owned.charge.bytes());
            owned.charge.set(kept);
            rows
        };
        let mut woken = Vec::new();
        for name in rows {
            let shard = self.locks.shard(&name);
            let mut rows = lock(&shard.rows);
            if let Some(row) = rows.get_mut(&name) {
                row.holders.retain(|holder| !Arc::ptr_eq(holder, self));
                row.grant(&mut woken);
            }
            shard.clean(&mut rows, &name);
            drop(rows);
            woken.drain(..).for_each(Waker::wake);
        }
    }
}

impl Wait {
    /// Sets the state of a wait that has not ended. Returns whether it had not.
    fn finish(&self, state: State, woken: &mut Vec<Waker>) -> bool {
        let mut progress = lock(&self.progress);
        if progress.0 != State::Waiting {
            return false;
        }
        progress.0 = state;
        woken.extend(progress.1.take());
        true
    }
}

/// A place in the queue for a lock. Dropping it leaves the queue; a lock that was granted stays.
pub struct RowWait {
    wait: Arc<Wait>,
    deadline: Deadline,
}

impl RowWait {
    /// A future that is ready when the wait has ended, and can end it.
    pub fn handle(&self) -> WaitHandle {
        WaitHandle(Arc::clone(&self.wait))
    }

    /// The number of the session that had the lock when the wait began.
    pub fn blocker(&self) -> usize {
        self.wait.blocker
    }

    /// Blocks the thread until the wait has ended, at most so long; then it has timed out.
    pub fn block(&self, limit: Option<Duration>) {
        let (handle, began) = (self.handle(), Instant::now());
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut polled = handle.clone();
        while Pin::new(&mut polled).poll(&mut context).is_pending() {
            let left = limit.map_or(SLEEP_MAX, |limit| limit.saturating_sub(began.elapsed()));
            if left.is_zero() {
                return handle.end(WaitEnd::TimedOut);
            }
            thread::park_timeout(left.min(SLEEP_MAX));
        }
    }

    /// How it has ended, if it has.
    pub fn ended(&self) -> Option<WaitEnd> {
        match lock(&self.wait.progress).0 {
            State::Ended(end) => Some(end),
            State::Left => Some(WaitEnd::Ended),
            State::Waiting => None,
        }
    }
}

impl Drop for RowWait {
    fn drop(&mut self) {
        self.deadline.forget_wait(&self.handle());
        self.wait.owner.locks.leave(&self.wait, State::Left);
    }
}

impl std::fmt::Debug for RowWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RowWait").field(&self.wait.says).finish()
    }
}

/// A wait as others see it: a future that is ready when the wait has ended.
#[derive(Clone)]
pub struct WaitHandle(Arc<Wait>);

impl WaitHandle {
    /// Ends the wait, unless it has ended.
    pub fn end(&self, end: WaitEnd) {
        self.0.owner.locks.leave(&self.0, State::Ended(end));
    }

    /// Whether it is of the same wait.
    pub(crate) fn is(&self, other: &WaitHandle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Future for WaitHandle {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut progress = lock(&self.0.progress);
        match progress.0 {
            State::Waiting => {
                progress.1 = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl std::fmt::Debug for WaitHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WaitHandle").field(&self.0.says).finish()
    }
}

/// Wakes a thread that blocks.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use seriatim_base::Rng;
    use seriatim_memory::{Memory, Options};

    use super::*;

    const EXCLUSIVE: LockStrength = LockStrength::Exclusive;
    const SHARED: LockStrength = LockStrength::Shared;

    struct Bench {
        memory: Memory,
        locks: Arc<RowLocks>,
    }

    impl Bench {
        fn new(limit_bytes: Option<usize>) -> Bench {
            let options = Options { workers_max: 1, limit_bytes, ..Options::default() };
            Bench { memory: Memory::new(options).expect("sane"), locks: Arc::default() }
        }

        fn owner(&self, session: usize) -> Arc<Owner> {
            self.locks.owner(session, self.memory.charge())
        }

        fn ask(&self, owner: &Arc<Owner>, row: u64, strength: LockStrength) -> RowLock {
            let says = || format!("row {row}");
            let name = row_name(1, Key::Word8(row));
            let lock = self.locks.lock(owner, &name, strength, IfLocked::Wait, says, &deadline());
            lock.expect("there is memory")
        }

        fn lock(&self, owner: &Arc<Owner>, row: u64, strength: LockStrength) {
            assert!(matches!(self.ask(owner, row, strength), RowLock::Held), "row {row}");
        }

        fn wait(&self, owner: &Arc<Owner>, row: u64, strength: LockStrength) -> RowWait {
            match self.ask(owner, row, strength) {
                RowLock::Waits(wait) => wait,
                other => panic!("row {row}: {other:?}"),
            }
        }

        fn deadlock(&self, owner: &Arc<Owner>, row: u64, strength: LockStrength) -> String {
            match self.ask(owner, row, strength) {
                RowLock::Deadlock(detail) => detail,
                other => panic!("row {row}: {other:?}"),
            }
        }
    }

    /// Of a transaction that is not over.
    fn deadline() -> Deadline {
        let deadline = Deadline::default();
        deadline.set(7, true);
        deadline
    }

    fn is_over(wait: &RowWait) -> bool {
        Pin::new(&mut wait.handle()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn those_who_wait_get_the_lock_in_their_order() {
        let bench = Bench::new(None);
        let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|session| bench.owner(session));
        bench.lock(&a, 7, EXCLUSIVE);
        bench.lock(&a, 7, SHARED);
        bench.lock(&a, 7, EXCLUSIVE);
        let (of_b, of_c) = (bench.wait(&b, 7, SHARED), bench.wait(&c, 7, EXCLUSIVE));
        let (of_d, of_e) = (bench.wait(&d, 7, SHARED), bench.wait(&e, 7, SHARED));
        a.release();
        // The shared locks behind the exclusive one do not pass it.
        assert_eq!([&of_b, &of_c, &of_d, &of_e].map(is_over), [true, false, false, false]);
        assert_eq!((of_b.ended(), bench.locks.counts()), (Some(WaitEnd::Granted), (1, 3)));
        let late = bench.owner(6);
        let of_late = bench.wait(&late, 7, SHARED);
        drop(of_late);
        b.release();
        assert_eq!([&of_c, &of_d, &of_e].map(is_over), [true, false, false]);
        c.release();
        assert_eq!([&of_d, &of_e].map(is_over), [true, true]);
        assert_eq!([of_d.ended(), of_e.ended()], [Some(WaitEnd::Granted); 2]);
        d.release();
        e.release();
        assert_eq!(bench.locks.counts(), (0, 0));
    }

    #[test]
    fn whoever_leaves_the_queue_lets_those_behind_it_pass() {
        let bench = Bench::new(None);
        let [a, b, c] = [1, 2, 3].map(|session| bench.owner(session));
        bench.lock(&a, 7, SHARED);
        let (of_b, of_c) = (bench.wait(&b, 7, EXCLUSIVE), bench.wait(&c, 7, SHARED));
        assert_eq!((of_b.ended(), of_c.ended()), (None, None));
        of_b.handle().end(WaitEnd::TimedOut);
        assert_eq!((of_b.ended(), is_over(&of_c)), (Some(WaitEnd::TimedOut), true));
        assert_eq!(of_c.ended(), Some(WaitEnd::Granted));
        drop(bench.wait(&b, 7, EXCLUSIVE));
        a.release();
        c.release();
        bench.lock(&b, 7, EXCLUSIVE);
        // It was not granted, and is released once.
        assert_eq!((b.len(), bench.locks.counts()), (1, (1, 0)));
        b.release();
        assert_eq!(bench.locks.counts(), (0, 0));
    }

    #[test]
    fn the_last_wait_of_a_cycle_is_refused() {
        let bench = Bench::new(None);
        let [a, b, c] = [1, 2, 3].map(|session| bench.owner(session));
        bench.lock(&a, 1, EXCLUSIVE);
        bench.lock(&b, 2, EXCLUSIVE);
        bench.lock(&c, 3, EXCLUSIVE);
        let of_a = bench.wait(&a, 2, EXCLUSIVE);
        assert_eq!(of_a.blocker(), 2);
        let two = bench.deadlock(&b, 1, EXCLUSIVE);
        let says = "Process 2 waits for row 1; blocked by process 1.\nProcess 1 waits for row 2; blocked by process 2.";
        assert_eq!(two, says);
        let of_b = bench.wait(&b, 3, SHARED);
        let three = bench.deadlock(&c, 1, EXCLUSIVE);
        assert_eq!(three.lines().count(), 3, "{three}");
        assert!(three.starts_with("Process 3 waits for row 1; blocked by process 1.\n"), "{three}");
        // Whoever is refused has not left its locks.
        assert!(!is_over(&of_a) && !is_over(&of_b));
        c.release();
        assert!(is_over(&of_b) && !is_over(&of_a));
        b.release();
        assert_eq!(of_a.ended(), Some(WaitEnd::Granted));
        a.release();
        assert_eq!(bench.locks.counts(), (0, 0));
    }

    #[test]
    fn a_shared_lock_becomes_exclusive_before_others_have_it() {
        let bench = Bench::new(None);
        let [a, b, c] = [1, 2, 3].map(|session| bench.owner(session));
        bench.lock(&a, 7, SHARED);
        bench.lock(&b, 7, SHARED);
        let of_c = bench.wait(&c, 7, EXCLUSIVE);
        let of_a = bench.wait(&a, 7, EXCLUSIVE);
        assert_eq!(bench.deadlock(&b, 7, EXCLUSIVE).lines().count(), 2, "both hold it");
        b.release();
        assert!(is_over(&of_a) && !is_over(&of_c));
        let other = bench.owner(4);
        drop(bench.wait(&other, 7, SHARED));
        assert_eq!(a.len(), 1);
        a.release();
        assert!(is_over(&of_c));
        drop((of_a, of_c));
        c.release();
        bench.lock(&other, 7, SHARED);
        other.release();
        assert_eq!(bench.locks.counts(), (0, 0));
    }

    #[test]
    fn a_wait_ends_with_its_transaction_and_by_a_cancellation() {
        let bench = Bench::new(None);
        let [a, b, c] = [1, 2, 3].map(|session| bench.owner(session));
        bench.lock(&a, 7, EXCLUSIVE);
        let of_b = bench.wait(&b, 7, EXCLUSIVE);
        b.release();
        assert_eq!((is_over(&of_b), of_b.ended()), (true, Some(WaitEnd::Ended)));
        let deadline = deadline();
        let ask = || {
            let name = row_name(1, Key::Word8(7));
            match bench.locks.lock(&c, &name, EXCLUSIVE, IfLocked::Wait, String::new, &deadline) {
                Ok(RowLock::Waits(wait)) => wait,
                other => panic!("{other:?}"),
            }
        };
        let of_c = ask();
        assert!(!is_over(&of_c));
        deadline.canceller().cancel();
        assert_eq!((is_over(&of_c), of_c.ended()), (true, Some(WaitEnd::Cancelled)));
        drop(of_c);
        assert_eq!(ask().ended(), Some(WaitEnd::Cancelled), "it was cancelled before it waited");
        assert_eq!(bench.locks.counts(), (1, 0));
        let began = Instant::now();
        let limit = Duration::from_millis(5);
        let of_late = bench.wait(&bench.owner(4), 7, EXCLUSIVE);
        of_late.block(Some(limit));
        assert!(began.elapsed() >= limit && of_late.ended() == Some(WaitEnd::TimedOut));
        a.release();
        assert_eq!(bench.locks.counts(), (0, 0));
    }

    #[test]
    fn locks_are_released_from_a_place_on() {
        let bench = Bench::new(None);
        let [a, b] = [1, 2].map(|session| bench.owner(session));
        (0..4).for_each(|row| bench.lock(&a, row, EXCLUSIVE));
        let (of_b, before) = (bench.wait(&b, 2, EXCLUSIVE), a.len());
        a.release_from(before - 2);
        assert!(is_over(&of_b) && a.len() == 2 && !a.is_released());
        bench.lock(&b, 3, EXCLUSIVE);
        drop(bench.wait(&b, 0, EXCLUSIVE));
        b.release();
        a.release();
        assert_eq!(bench.locks.counts(), (0, 0));
    }

    #[test]
    fn locks_take_memory_from_the_limit_and_give_it_back() {
        const LIMIT: usize = 1 << 20;
        let bench = Bench::new(Some(LIMIT));
        let owner = bench.owner(1);
        let ask = |row| {
            let name = row_name(1, Key::Word8(row));
            bench.locks.lock(&owner, &name, EXCLUSIVE, IfLocked::Wait, String::new, &deadline())
        };
        let most = 1 << 18;
        let full = (0..most).find(|row| ask(*row).is_err()).expect("they do not fit");
        assert!(full > 1000, "{full} locks fit");
        assert_eq!(bench.locks.counts().0 as u64, full);
        owner.release();
        assert_eq!((bench.locks.counts(), lock(&owner.owned).charge.bytes()), ((0, 0), 0));
    }

    /// Threads that lock several rows in any order. Whoever has an exclusive lock is alone, everybody gets on, and
    /// nothing is left.
    #[test]
    fn threads_exclude_each_other_and_all_get_on() {
        const ROWS: u64 = 5;
        let seed = seriatim_base::rng::seed("row locks");
        let bench = Bench::new(None);
        let inside: Vec<AtomicUsize> = (0..ROWS).map(|_| AtomicUsize::new(0)).collect();
        const WRITER: usize = 1 << 16;
        let refused = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..4 {
                let (bench, inside, refused) = (&bench, &inside, &refused);
                scope.spawn(move || {
                    let mut rng = Rng::from_seed(seed ^ number);
                    for _ in 0..500 {
                        let owner = bench.owner(number as usize);
                        let mut held = std::collections::BTreeMap::new();
                        for _ in 0..3 {
                            let row = rng.below(ROWS);
                            let strength = if rng.below(2) == 0 { EXCLUSIVE } else { SHARED };
                            match bench.ask(&owner, row, strength) {
                                RowLock::Held => {}
                                RowLock::Waits(wait) if rng.below(8) == 0 => {
                                    drop(wait);
                                    continue;
                                }
                                RowLock::Waits(wait) => {
                                    wait.block(None);
                                    assert_eq!(wait.ended(), Some(WaitEnd::Granted));
                                }
                                RowLock::Deadlock(_) => {
                                    refused.fetch_add(1, Ordering::Relaxed);
                                    break;
                                }
                                RowLock::Taken => panic!("it waits"),
                            }
                            let is_mine = held.get(&row).copied().unwrap_or(0);
                            let wanted = if strength == EXCLUSIVE { WRITER } else { 1 };
                            if wanted > is_mine {
                                let before = inside[row as usize].fetch_add(wanted - is_mine, Ordering::SeqCst);
                                let others = before - is_mine;
                                assert!(others < WRITER && (wanted < WRITER || others == 0), "{others:#x} in {row}");
                                held.insert(row, wanted);
                            }
                        }
                        for (row, own) in held {
                            inside[row as usize].fetch_sub(own, Ordering::SeqCst);
                        }
                        owner.release();
                    }
                });
            }
        });
        assert_eq!(bench.locks.counts(), (0, 0));
        assert!(refused.into_inner() > 0, "there were deadlocks");
    }
}
