//! The write set at commit, without regions: locked by the lock bit of each TID word in address order, then
//! installed or unlocked.
//!
//! Ordered locking cannot deadlock. A whole run needs no order, since no other transaction locks its records for longer
//! than a look. Each wait is bounded nevertheless (promise d). A record that changed since it was read ends the attempt
//! at once, as none of these protocols can write it any more.

use std::sync::atomic::Ordering;

use seriatim_base::{Backoff, Tid};
use seriatim_htm::Access;
use seriatim_memory::CountedVec;
use seriatim_txn::{OpError, Phase};

use super::access_locks::AccessLocks as _;
use super::attempt::Attempt;
use super::optimistic::{Optimistic, ValidationFailure};
use super::origin::Origin;
use super::record;
use super::record_header::{self, Plain, TidWord};
use super::writes::Write;

/// Locks the write set, and puts the entries' order into `order`. On failure nothing stays locked.
#[inline]
pub fn lock<O: Origin>(attempt: &mut Optimistic<O>, order: &mut CountedVec<u32>, steps: u32) -> Result<(), OpError> {
    let entries = attempt.base.writes.entries();
    (0..entries.len() as u32).for_each(|entry| order.push(entry));
    if attempt.locks.notes() {
        order.sort_unstable_by_key(|&entry| entries[entry as usize].record.addr());
    }
    for (locked, &entry) in order.iter().enumerate() {
        let write = &entries[entry as usize];
        let word = record_header::tid_word(&write.table().record_layout, write.record);
        let mut backoff = Backoff::bounded(steps);
        while !Plain.lock(word, write.expected.0, write.expected.locked().0) {
            let now = TidWord(word.load(Ordering::Acquire));
            let changed = now.unlocked() != write.expected;
            if changed || !backoff.wait() {
                unlock(entries, &order[..locked]);
                return Err(match changed {
                    true => attempt.record_conflict(Phase::Lock, ValidationFailure::Write(entry as usize)),
                    false => attempt.base.record_lock_conflict(),
                });
            }
        }
    }
    Ok(())
}

/// Unlocks entries: their records are as they were.
pub fn unlock<O: Origin>(entries: &[Write<O>], order: &[u32]) {
    for &entry in order {
        let write = &entries[entry as usize];
        Plain.store(record_header::tid_word(&write.table().record_layout, write.record), write.expected.0);
    }
}

/// Installs the write set and unlocks it, record by record: `last` is called just before each is unlocked.
#[inline(always)]
pub fn install<O: Origin>(attempt: &Optimistic<O>, tid: Tid, last: impl Fn(&Write<O>)) {
    for write in attempt.base.writes.entries() {
        let record_layout = &write.table().record_layout;
        if !write.is_nothing() {
            let published = record::put_in_place(&mut Plain, write);
            Plain.store(record_header::row_version(record_layout, write.record), published as u64);
        }
        last(write);
        let after = Attempt::after(write, tid);
        Plain.store(record_header::tid_word(record_layout, write.record), after.0);
    }
}
