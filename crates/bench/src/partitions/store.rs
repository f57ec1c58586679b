//! The contents of a partition: a hash table of small keys and counters.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::thread;
use seriatim_partition::LockMode;

use super::{KEYS, Rows};

/// The initial value. Each write increments a value, so a value is also its version.
pub(super) const INITIAL: u32 = 1;

/// The keys of a fragment, or the corresponding values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentValues {
    count: u8,
    items: [u32; KEYS],
}

impl FragmentValues {
    pub(super) fn push(&mut self, item: u32) {
        self.items[usize::from(self.count)] = item;
        self.count += 1;
    }

    pub(super) fn items(&self) -> &[u32] {
        &self.items[..usize::from(self.count)]
    }
}

/// The operation of a fragment on its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Reads and increments the values.
    Update,
    /// Reads the values.
    Read,
    /// Writes the values of the round before, incremented.
    Write(FragmentValues),
}

/// A fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub(super) keys: FragmentValues,
    pub(super) act: Act,
    /// Whether it fails at its beginning.
    pub(super) fails: bool,
}

/// The costs of keys on simulated cores. Threads take real time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCosts {
    /// Beginning and ending a fragment.
    pub fragment: Duration,
    /// Finding a key, and reading and writing its value.
    pub key: Duration,
    /// Recording a value for undo, or restoring it.
    pub undo: Duration,
    /// Locking and releasing a key.
    pub lock: Duration,
    /// Additional work for each key that is read or written, on threads too.
    pub more: Duration,
}

/// A hash by one multiplication, since keys are small numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, key: u32) {
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    }
}

/// The contents of a partition.
#[derive(Debug)]
pub struct Store {
    values: HashMap<u32, u32, BuildHasherDefault<Multiply>>,
    costs: StoreCosts,
}

impl Store {
    pub(super) fn new(keys: u32, costs: StoreCosts) -> Store {
        let values = (0..keys).map(|key| (key, INITIAL)).collect();
        Store { values, costs }
    }

    /// The growth of the sum of all values.
    pub(super) fn grown(&self) -> u64 {
        self.values.values().map(|value| u64::from(value - INITIAL)).sum()
    }
}

/// Works for this long, on a thread or a simulated core.
pub(super) fn spend(time: Duration) {
    if time.is_zero() {
        return;
    }
    let began = Instant::now();
    thread::work(time);
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

impl Rows for Store {
    type Work = Work;
    /// The former values.
    type Reply = FragmentValues;
    type Key = u32;
    type Before = (u32, u32);

    fn run(&mut self, work: &Work, mut undo: Option<&mut Vec<(u32, u32)>>) -> Option<FragmentValues> {
        let StoreCosts { fragment, key: each, undo: noted, more, .. } = self.costs;
        let keys = work.keys.items();
        thread::work(fragment);
        if work.fails {
            return None;
        }
        let cost = if undo.is_some() && work.act != Act::Read { each + noted } else { each };
        thread::work(cost * keys.len() as u32);
        spend(more * keys.len() as u32);
        let mut seen = FragmentValues::default();
        for (at, &key) in keys.iter().enumerate() {
            let value = self.values.get_mut(&key).expect("clients ask for keys that there are");
            let before = *value;
            match work.act {
                Act::Read => {}
                Act::Update => *value += 1,
                Act::Write(read) => *value = read.items()[at] + 1,
            }
            seen.push(before);
            if let Some(undo) = undo.as_mut().filter(|_| work.act != Act::Read) {
                undo.push((key, before));
            }
        }
        Some(seen)
    }

    fn put_back(&mut self, (key, before): (u32, u32)) {
        self.values.insert(key, before);
    }

    fn undo_cost(&self) -> Duration {
        self.costs.key + self.costs.undo
    }

    fn footprint(&self, work: &Work, locks: &mut Vec<(u32, LockMode)>) {
        let mode = if work.act == Act::Read { LockMode::Shared } else { LockMode::Exclusive };
        thread::work(self.costs.lock * work.keys.items().len() as u32);
        locks.extend(work.keys.items().iter().map(|&key| (key, mode)));
    }
}
