//! Finds a transaction's own entry for an address: a hash of chains that is reused without being cleared.
//!
//! A slot is (generation, entry); one of an older generation is empty. A chain runs from the newest entry with a slot's
//! hash to older ones, so entries can be popped from the end (savepoints). An entry can also be removed from the
//! middle. The last entry takes its number and its place in the chain, so that later entries can be popped as before.
//!
//! The first `LINEAR_MAX` entries are in no chain. A filter of their addresses answers most questions, and a search
//! from the newest to the oldest answers the rest. The next entry has all of them enter their chains.

use seriatim_memory::{CountedVec, Local};

const NONE: u32 = u32::MAX;

/// Entries that need no chains.
const LINEAR_MAX: usize = 32;

/// Words of the filter.
const FILTER_WORDS: usize = 8;

/// Slots that an index has at least, and that it has again when its worker rests.
const SLOTS_MIN: usize = 256;
const SHIFT_MAX: u32 = 64 - SLOTS_MIN.ilog2();

/// Fibonacci hashing of an address without its alignment bits. The upper bits are the hash.
#[inline(always)]
fn hash(address: usize) -> u64 {
    (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The word and the bit of the filter for a hash.
#[inline(always)]
fn filtered(hash: u64) -> (usize, u64) {
    ((hash >> 61) as usize % FILTER_WORDS, 1 << (hash >> 55 & 63))
}

#[derive(Debug)]
pub struct OwnIndex {
    /// Has the bit of each entry's address, and perhaps of others.
    filter: [u64; FILTER_WORDS],
    len: usize,
    slots: CountedVec<u64>,
    /// 64 less the bits of a slot's number.
    shift: u32,
    /// The next older entry of the chain; empty as long as no entry is in a chain.
    next: CountedVec<u32>,
    generation: u32,
}

impl OwnIndex {
    pub fn new(local: &Local) -> OwnIndex {
        let (slots, next) = (local.counted(SLOTS_MIN), local.counted(SLOTS_MIN));
        let filter = [0; FILTER_WORDS];
        let mut index = OwnIndex { filter, len: 0, slots, shift: SHIFT_MAX, next, generation: u32::MAX };
        index.start_over();
        index
    }

    #[inline]
    fn slot(&self, address: usize) -> usize {
        (hash(address) >> self.shift) as usize
    }

    #[inline]
    fn record_header(&self, slot: usize) -> u32 {
        let value = self.slots[slot];
        if (value >> 32) as u32 == self.generation { value as u32 } else { NONE }
    }

    /// Whether there may be an entry for `address`.
    #[inline(always)]
    pub fn may_have(&self, address: usize) -> bool {
        let (word, bit) = filtered(hash(address));
        self.filter[word] & bit != 0
    }

    /// The newest entry for `address`; `address_of` gives an entry's address.
    #[inline(always)]
    pub fn find(&self, address: usize, address_of: impl Fn(usize) -> usize) -> Option<usize> {
        if self.may_have(address) { self.search(address, address_of) } else { None }
    }

    #[inline(never)]
    fn search(&self, address: usize, address_of: impl Fn(usize) -> usize) -> Option<usize> {
        if self.next.is_empty() {
            return (0..self.len).rev().find(|&entry| address_of(entry) == address);
        }
        let mut at = self.record_header(self.slot(address));
        while at != NONE {
            if address_of(at as usize) == address {
                return Some(at as usize);
            }
            at = self.next[at as usize];
        }
        None
    }

    /// Adds the next entry (its index is the number of entries so far).
    #[inline(always)]
    pub fn push(&mut self, address: usize, address_of: impl Fn(usize) -> usize) {
        let (word, bit) = filtered(hash(address));
        self.filter[word] |= bit;
        if self.len >= LINEAR_MAX || !self.next.is_empty() {
            self.enter(address, address_of);
        }
        self.len += 1;
    }

    #[inline(never)]
    fn enter(&mut self, address: usize, address_of: impl Fn(usize) -> usize) {
        if self.next.is_empty() {
            (0..self.len).for_each(|entry| self.link(address_of(entry)));
        } else if self.next.len() >= 2 * self.slots.len() {
            self.grow(address_of);
        }
        self.link(address);
    }

    #[inline(always)]
    fn link(&mut self, address: usize) {
        let slot = self.slot(address);
        let entry = self.next.len() as u32;
        assert!(entry < NONE, "a transaction has fewer than 2^32 writes");
        self.next.push(self.record_header(slot));
        self.slots[slot] = u64::from(self.generation) << 32 | u64::from(entry);
    }

    #[cold]
    fn grow(&mut self, address_of: impl Fn(usize) -> usize) {
        let entries = self.next.len();
        self.shift -= 2;
        self.generation = 1;
        self.slots.reset(1 << (64 - self.shift), 0);
        self.next.truncate(0);
        for entry in 0..entries {
            self.link(address_of(entry));
        }
    }

    /// Removes the newest entry, which is `address`'s.
    pub fn pop(&mut self, address: usize) {
        self.len -= 1;
        if let Some(previous) = self.next.pop() {
            let slot = self.slot(address);
            self.slots[slot] = u64::from(self.generation) << 32 | u64::from(previous);
        }
    }

    /// Removes an entry, which is `address`'s; the last one, which is `last_address`'s, has its number from now on.
    pub fn remove(&mut self, entry: usize, address: usize, last_address: usize) {
        self.len -= 1;
        if self.next.is_empty() {
            return;
        }
        self.redirect(address, entry as u32, self.next[entry]);
        let last = self.next.len() - 1;
        if entry != last {
            self.redirect(last_address, last as u32, entry as u32);
            self.next[entry] = self.next[last];
        }
        self.next.pop();
    }

    /// Whatever names the entry `from` in the chain of `address` names `to` instead.
    fn redirect(&mut self, address: usize, from: u32, to: u32) {
        let slot = self.slot(address);
        let mut at = self.record_header(slot);
        if at == from {
            self.slots[slot] = u64::from(self.generation) << 32 | u64::from(to);
            return;
        }
        while self.next[at as usize] != from {
            at = self.next[at as usize];
        }
        self.next[at as usize] = to;
    }

    #[inline]
    pub fn clear(&mut self) {
        self.filter = [0; FILTER_WORDS];
        self.len = 0;
        if !self.next.is_empty() || self.next.room() > SLOTS_MIN {
            self.unlink();
        }
    }

    /// No entry is in a chain any more.
    #[cold]
    fn unlink(&mut self) {
        self.next.clear();
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 || self.slots.len() > 4 * self.next.room().max(SLOTS_MIN) {
            self.start_over();
        }
    }

    /// No slot has a generation; there are as many as suit the entries that there is room for.
    #[cold]
    fn start_over(&mut self) {
        while self.shift < SHIFT_MAX && 1 << (64 - self.shift) > self.next.room() {
            self.shift += 2;
        }
        self.slots.reset(1 << (64 - self.shift), 0);
        self.generation = 1;
    }

    /// Gives back memory that a large transaction took.
    pub fn rest(&mut self) {
        self.clear();
        self.next.rest();
        self.unlink();
    }
}

#[cfg(test)]
mod tests {
    use seriatim_base::Rng;
    use seriatim_memory::{Memory, Options};

    use super::*;

    #[test]
    fn entries_leave_from_the_middle_and_the_others_are_found() {
        let memory = Memory::new(Options { workers_max: 1, ..Options::default() }).expect("memory");
        let mut own = OwnIndex::new(&memory.register().expect("a free slot"));
        for seed in 0..400 {
            let mut rng = Rng::from_seed(seed);
            // Some rounds grow the index, others pile up in few chains, or stay at the bound of those without chains.
            let bound = [3000, 40, 24, 12][seed as usize % 4];
            let mut model: Vec<usize> = Vec::new();
            for _ in 0..bound * 2 {
                match rng.below(8) {
                    0..=3 => {
                        let address = 0x1000 + rng.below(bound) as usize * 16;
                        if !model.contains(&address) {
                            own.push(address, |e| model[e]);
                            model.push(address);
                        }
                    }
                    4..=5 if !model.is_empty() => {
                        let at = rng.below(model.len() as u64) as usize;
                        own.remove(at, model[at], *model.last().expect("not empty"));
                        model.swap_remove(at);
                    }
                    6 if !model.is_empty() => {
                        // As a rollback to a savepoint does: the entries that were pushed last leave, newest first.
                        for address in (0..rng.below(4)).map(|n| 0x9_0000 + n as usize * 16).collect::<Vec<_>>() {
                            own.push(address, |e| model[e]);
                            model.push(address);
                        }
                        while model.last().is_some_and(|address| *address >= 0x9_0000) {
                            own.pop(model.pop().expect("not empty"));
                        }
                    }
                    _ => {
                        let address = 0x1000 + rng.below(bound) as usize * 16;
                        let wanted = model.iter().position(|known| *known == address);
                        assert_eq!(own.find(address, |e| model[e]), wanted, "seed {seed}");
                    }
                }
            }
            for (at, address) in model.iter().enumerate() {
                assert_eq!(own.find(*address, |e| model[e]), Some(at), "seed {seed}");
            }
            own.clear();
        }
    }

    #[test]
    fn finds_what_was_pushed_and_nothing_of_an_older_generation() {
        let memory = Memory::new(Options { workers_max: 1, ..Options::default() }).expect("memory");
        let mut own = OwnIndex::new(&memory.register().expect("a free slot"));
        let addresses: Vec<usize> = (0..2000).map(|i| 0x1000 + i * 16).collect();
        for round in 0..3 {
            for (i, &address) in addresses.iter().enumerate() {
                assert_eq!(own.find(address, |e| addresses[e]), None, "round {round}");
                own.push(address, |e| addresses[e]);
                assert_eq!(own.find(address, |e| addresses[e]), Some(i));
            }
            for &address in addresses[1000..].iter().rev() {
                own.pop(address);
                assert_eq!(own.find(address, |e| addresses[e]), None);
            }
            assert_eq!(own.find(addresses[999], |e| addresses[e]), Some(999));
            own.clear();
        }
    }
}
