//! Which records are hot (§3.1). Failures are counted in the records. A helper makes those hot that had many, and cold
//! again those that had few.
//!
//! A failure is an access or a validation that conflicted. That is a wait for a hot record's lock, or a cold record
//! that was locked or changed. Failures are counted by periods of several epochs: the lock word has the count and the
//! last bits of the number of its period. The transaction that makes a count reach the bound puts the key on a list.
//! The helper is no thread: in each period the first worker between two transactions does its work. It looks up the
//! keys on the list and those of hot records, so it holds no record.
//!
//! A flip changes the TID word of a record. For a cold record it is a compare-and-swap from an unlocked word, as at the
//! begin of a commit. For a hot record it happens under its lock. So every transaction that saw the record before it,
//! to read or to overwrite it, fails.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use seriatim_base::clock::Instant;
use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_catalog::KeyBuf;
use seriatim_htm::Htm;
use seriatim_store::{RecordPtr, read_key};
use seriatim_txn::{Core, HotRecord, Knob, Options, Table};

use super::locks;
use crate::shared::record_header::{self, TidWord};
use crate::shared::table_ref::TableRef;

/// Which records are hot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hot {
    None,
    Auto,
    /// From their first commit on.
    All,
    /// Those of these tables, from their first commit on.
    Tables(Arc<[String]>),
}

pub(super) const HOT: Knob = Knob {
    name: "hot",
    unit: "0: none, 1: automatic, 2: all",
    default: 1,
    min: 0,
    max: 2,
    about: "which records are hot: those with enough failures; for comparisons none or all",
    source: "Wu and Tan, USENIX ATC 2016, §3.1; figure 17",
};
pub(super) const PERIOD: Knob = Knob {
    name: "hot_period",
    unit: "epochs",
    default: 100,
    min: 1,
    max: 1_000_000,
    about: "how long failures are counted before records become hot or cold",
    source: "ours: a second with epochs of 10 ms, so that the hot set follows the load; the paper's example is 60 \
        seconds",
};
pub(super) const FAILURES: Knob = Knob {
    name: "hot_failures",
    unit: "failures",
    default: 100,
    min: 1,
    max: 1_000_000_000,
    about: "the number of failures in a period that makes a record hot",
    source: "ours: from a tenth to ten times as many, simulated YCSB changes by 5 % (README); the paper says the most \
        contended records",
};
pub(super) const FAILURES_KEPT: Knob = Knob {
    name: "hot_failures_kept",
    unit: "failures",
    default: 10,
    min: 1,
    max: 1_000_000_000,
    about: "the number of failures in a period that keeps a record hot. It is at most `hot_failures`, and equal to it \
            if \
        `hot_failures` is below this default",
    source: "ours: a tenth of hot_failures, since transactions that wait for a lock fail less often than those that \
             fail \
         validation",
};
pub(super) const RECORDS_MAX: Knob = Knob {
    name: "hot_max",
    unit: "records",
    default: 10_000,
    min: 0,
    max: 1_000_000,
    about: "the most records that are hot automatically",
    source: "ours: bounds the records that the helper looks up in a period",
};

/// Whether these options agree with each other, and with the tables that are named as hot.
pub(super) fn check(options: &Options, hot_tables: &[String]) -> Result<(), String> {
    if !hot_tables.is_empty() && options.given(&HOT).is_some() {
        let what = format!("either the tables are named whose rows are hot, or option {} is given, not both", HOT.name);
        return Err(what);
    }
    let most = options.get(&FAILURES);
    match options.given(&FAILURES_KEPT).filter(|&kept| kept > most) {
        Some(kept) => {
            Err(format!("option {} is at most {}, which is {most}, not {kept}", FAILURES_KEPT.name, FAILURES.name))
        }
        None => Ok(()),
    }
}

const FAILURES_BITS: u64 = u32::MAX as u64;
const PERIOD_SHIFT: u32 = 32;
const PERIOD_BITS: u64 = 0xFFFF << PERIOD_SHIFT;

/// The count of failures of a record in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    period: u16,
    failures: u32,
}

impl Count {
    const fn of(word: u64) -> Count {
        Count { period: ((word & PERIOD_BITS) >> PERIOD_SHIFT) as u16, failures: (word & FAILURES_BITS) as u32 }
    }

    /// One more in this period.
    fn more(self, period: u16) -> Count {
        let failures = if self.period == period { self.failures.saturating_add(1) } else { 1 };
        Count { period, failures }
    }

    /// The word with this count, and the lock as it is.
    const fn in_word(self, word: u64) -> u64 {
        (word & !(PERIOD_BITS | FAILURES_BITS)) | (self.period as u64) << PERIOD_SHIFT | self.failures as u64
    }
}

/// A key whose record is to be examined.
#[derive(Debug)]
struct Entry {
    table: TableRef,
    key: KeyBuf,
    /// As they were counted when it was last looked at, and since when it is on its list: for reports.
    failures: u32,
    since: Instant,
}

impl Entry {
    /// The table, and the record that is linked there now.
    fn find<'t>(&self, core: &Core) -> Option<(&'t Table, RecordPtr)> {
        let table = self.table.get();
        table.index.get(self.key.as_key(), core.local.pinned()).ok().map(|record| (table, record))
    }

    fn report(&self) -> HotRecord {
        let (key, failures) = (KeyBuf::from(self.key.as_key()), u64::from(self.failures));
        HotRecord { table: self.table.get().id, key, failures, since: self.since }
    }
}

/// The helper's state from one period to the next.
#[derive(Debug, Default)]
struct Helper {
    /// The period in which it ran last.
    period: u64,
    /// Hot records.
    hot: Vec<Entry>,
}

/// The state that decides which records are hot.
#[derive(Debug)]
pub(crate) struct Heat {
    hot: Hot,
    lock_steps: u32,
    epochs: u64,
    failures: u32,
    failures_kept: u32,
    records_max: usize,
    /// As the helper has it.
    period: AtomicU64,
    /// Held for as long as it helps, and only tried for.
    helper: Mutex<Helper>,
    /// Records whose count has reached the bound.
    suspects: Mutex<Vec<Entry>>,
    /// The hot records, as it has left them.
    reported: Mutex<Vec<HotRecord>>,
}

impl Heat {
    pub(super) fn new(options: &Options, hot_tables: &Arc<[String]>, lock_steps: &Knob) -> Heat {
        let hot = match options.get(&HOT) {
            _ if !hot_tables.is_empty() => Hot::Tables(Arc::clone(hot_tables)),
            0 => Hot::None,
            1 => Hot::Auto,
            _ => Hot::All,
        };
        Heat {
            hot,
            lock_steps: options.get(lock_steps) as u32,
            epochs: options.get(&PERIOD),
            failures: options.get(&FAILURES) as u32,
            failures_kept: options.get(&FAILURES_KEPT).min(options.get(&FAILURES)) as u32,
            records_max: options.get(&RECORDS_MAX) as usize,
            period: AtomicU64::new(0),
            helper: Mutex::default(),
            suspects: Mutex::default(),
            reported: Mutex::default(),
        }
    }

    pub(super) fn lock_steps(&self) -> u32 {
        self.lock_steps
    }

    /// Whether records of a table are hot as soon as they have a row.
    #[inline]
    pub(super) fn is_hot_from_the_start(&self, table: &Table) -> bool {
        match &self.hot {
            Hot::None | Hot::Auto => false,
            Hot::All => true,
            Hot::Tables(names) => names.contains(&table.name),
        }
    }

    fn period(&self, core: &Core) -> u64 {
        core.epochs.current().0 / self.epochs
    }

    /// Counts a failure of a record, which the caller may read.
    pub(super) fn failed(&self, core: &Core, table: &Table, record: RecordPtr) {
        if self.hot != Hot::Auto {
            return;
        }
        let period = self.period(core) as u16;
        let more = |word| Count::of(word).more(period);
        let count = |word| Some(more(word).in_word(word));
        let word = locks::word(&table.record_layout, record);
        crate::step(Touch::Exchange, word);
        let counted = word.try_update(Ordering::Relaxed, Ordering::Relaxed, count);
        let failures = counted.map_or(0, |before| more(before).failures);
        if failures > 0 && failures.is_multiple_of(self.failures) {
            self.suspect(table, record, failures);
        }
    }

    /// Puts a record's key on the list.
    #[cold]
    fn suspect(&self, table: &Table, record: RecordPtr, failures: u32) {
        let mut suspects = locked(&self.suspects);
        if suspects.len() < self.records_max {
            // SAFETY: key words of a linked record never change; the caller is online.
            let key = KeyBuf::from(unsafe { read_key(record, table.class) });
            suspects.push(Entry { table: table.into(), key, failures, since: Instant::now() });
        }
    }

    /// The helper, if its time has come and no other worker does it. The worker is offline before and after.
    #[inline]
    pub(super) fn help(&self, core: &mut Core) {
        if self.hot == Hot::Auto && self.period(core) != self.period.load(Ordering::Relaxed) {
            self.flip(core);
        }
    }

    #[cold]
    fn flip(&self, core: &mut Core) {
        let mut helper = match self.helper.try_lock() {
            Ok(helper) => helper,
            Err(TryLockError::Poisoned(helper)) => helper.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let period = self.period(core);
        if helper.period == period {
            return;
        }
        helper.period = period;
        self.period.store(period, Ordering::Relaxed);
        core.local.enter();
        let suspects = mem::take(&mut *locked(&self.suspects));
        let hot = &mut helper.hot;
        hot.retain_mut(|entry| {
            let Some((table, record)) = entry.find(core) else { return false };
            entry.failures = failures(table, record).failures;
            self.stays_hot(core, table, record)
        });
        for suspect in suspects {
            let found = suspect.find(core).filter(|_| hot.len() < self.records_max);
            if let Some((table, record)) = found.filter(|&(table, record)| heat(&core.htm, table, record)) {
                // The next period may have begun, and counts from zero.
                let failures = suspect.failures.max(failures(table, record).failures);
                hot.push(Entry { failures, since: Instant::now(), ..suspect });
            }
        }
        core.local.leave();
        *locked(&self.reported) = hot.iter().map(Entry::report).collect();
    }

    /// Makes a hot record cold if there were few failures; whether it is hot still.
    fn stays_hot(&self, core: &Core, table: &Table, record: RecordPtr) -> bool {
        let Count { period, failures } = failures(table, record);
        let stays = match (self.period(core) as u16).wrapping_sub(period) {
            // It failed again before the helper ran, and the earlier count is gone.
            0 => true,
            1 => failures >= self.failures_kept,
            _ => false,
        };
        match stays {
            true => TidWord(record_header::tid_word(&table.record_layout, record).load(Ordering::Acquire)).is_hot(),
            false => !cool(&core.htm, table, record),
        }
    }

    /// The hot records, as the helper has left them, where that is automatic.
    pub(super) fn records(&self) -> Option<Vec<HotRecord>> {
        (self.hot == Hot::Auto).then(|| locked(&self.reported).clone())
    }
}

/// Locks a mutex that is held for some instructions only, and whose content no panic can leave half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The failures of a record in the last period in which there were any.
fn failures(table: &Table, record: RecordPtr) -> Count {
    Count::of(locks::word(&table.record_layout, record).load(Ordering::Relaxed))
}

/// Makes a record hot; whether it is now. One that is locked, has no row, or is hot already is left alone.
pub(super) fn heat(htm: &Htm, table: &Table, record: RecordPtr) -> bool {
    let word = record_header::tid_word(&table.record_layout, record);
    let cold = TidWord(word.load(Ordering::Acquire));
    if cold.is_locked() || cold.is_absent() || cold.is_hot() {
        return false;
    }
    crate::step(Touch::Exchange, word);
    // ORDERING: as the lock of a commit; a region that read the word aborts.
    let exchange = || word.compare_exchange(cold.0, cold.hot().0, Ordering::AcqRel, Ordering::Relaxed);
    htm.outside(exchange).is_ok()
}

/// Makes a hot record cold if its lock is free. Returns whether it is cold now.
pub(super) fn cool(htm: &Htm, table: &Table, record: RecordPtr) -> bool {
    let lock = locks::word(&table.record_layout, record);
    if !locks::try_exclusive(lock) {
        return false;
    }
    cool_locked(htm, table, record);
    locks::let_go(lock, true);
    true
}

/// The same of a record whose lock the caller holds.
pub(super) fn cool_locked(htm: &Htm, table: &Table, record: RecordPtr) {
    // Rule 2 of `locks`: while it is held the word of a hot record is ours to change.
    let word = record_header::tid_word(&table.record_layout, record);
    let hot = TidWord(word.load(Ordering::Acquire));
    if hot.is_hot() {
        crate::step(Touch::Store, word);
        htm.outside(|| word.store(hot.cold().0, Ordering::Release));
    }
}
