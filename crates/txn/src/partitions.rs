//! Partitions of a database: which one a key belongs to, and the lock that makes a thread the owner of one.
//!
//! Inside one process data are shared memory, so nothing is sent to an owner. **The owner of a partition is the thread
//! that holds its lock** (decision record 20). Locks of several are taken in ascending order.

use std::fmt;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::FairLock;
use seriatim_catalog::{Key, KeyCodec, KeyPlace, PartitionValue, Partitioning, TableDef};

use crate::{OpError, Reason};

/// Some of the partitions of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionSet(u64);

impl PartitionSet {
    /// No partition.
    pub const NONE: PartitionSet = PartitionSet(0);
    /// Every partition, of however many.
    pub const ALL: PartitionSet = PartitionSet(u64::MAX);

    /// One partition.
    ///
    /// # Panics
    /// If its number is not below [`Partitions::MAX`].
    #[inline]
    pub fn one(partition: usize) -> PartitionSet {
        assert!(partition < Partitions::MAX, "partitions are numbered from 0 to 63");
        PartitionSet(1 << partition)
    }

    /// Those of both.
    #[inline]
    #[must_use]
    pub const fn union(self, other: PartitionSet) -> PartitionSet {
        PartitionSet(self.0 | other.0)
    }

    /// Those that are not among these.
    #[inline]
    #[must_use]
    pub const fn without(self, others: PartitionSet) -> PartitionSet {
        PartitionSet(self.0 & !others.0)
    }

    /// Whether it has this partition.
    #[inline]
    pub const fn contains(self, partition: usize) -> bool {
        partition < Partitions::MAX && self.0 >> partition & 1 == 1
    }

    /// Whether it has all of these.
    #[inline]
    pub const fn has(self, others: PartitionSet) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether it has none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it is [`PartitionSet::ALL`].
    #[inline]
    pub const fn is_all(self) -> bool {
        self.0 == u64::MAX
    }

    /// Their number in a database with `count` partitions.
    pub const fn len_of(self, count: usize) -> usize {
        (self.0 & u64::MAX >> (Partitions::MAX - count)).count_ones() as usize
    }

    /// Whether it has one of these.
    #[inline]
    pub const fn meets(self, others: PartitionSet) -> bool {
        self.0 & others.0 != 0
    }

    /// The lowest number in it.
    #[inline]
    pub fn first(self) -> Option<usize> {
        (!self.is_empty()).then_some(self.0.trailing_zeros() as usize)
    }

    /// A bit for each partition, and back.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// See [`PartitionSet::bits`].
    #[inline]
    pub const fn from_bits(bits: u64) -> PartitionSet {
        PartitionSet(bits)
    }

    /// The one with the lowest number, alone.
    #[must_use]
    pub const fn lowest(self) -> PartitionSet {
        PartitionSet(self.0 & self.0.wrapping_neg())
    }

    /// Their numbers below `count`, ascending.
    #[inline]
    fn numbers(self, count: usize) -> impl Iterator<Item = usize> {
        let mut left = self.0 & u64::MAX >> (Partitions::MAX - count);
        std::iter::from_fn(move || {
            let next = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (next < Partitions::MAX).then_some(next)
        })
    }
}

/// The partitions, numbered, e.g. `0, 3`.
impl fmt::Display for PartitionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all");
        }
        let numbers: Vec<String> = self.numbers(Partitions::MAX).map(|number| number.to_string()).collect();
        f.write_str(&numbers.join(", "))
    }
}

/// The partition of a value, among this many partitions.
pub type PartitionFunction = Arc<dyn Fn(&PartitionValue, usize) -> usize + Send + Sync>;

/// Which partitions the keys of a table or index belong to.
#[derive(Clone, Debug)]
pub enum Placement {
    /// The partition of the value that these columns have here.
    Value(KeyPlace),
    /// In all of them: a replicated table, or an index without the column by which its table is partitioned.
    /// The owner of a partition may read it, the owner of all partitions may write it.
    Everywhere,
}

impl Placement {
    /// The placement of the rows of a table, or of the entries of an index of it, whose keys this codec makes.
    pub fn of(definition: &TableDef, codec: &KeyCodec, is_index: bool) -> Placement {
        let Some(column) = definition.partition_column() else { return Placement::Everywhere };
        let at = match definition.partitioning {
            Partitioning::KeyColumn(at) if !is_index => Some(at),
            _ => codec.position_of(&definition.columns[column.index()].name),
        };
        at.and_then(|at| codec.place_of(at)).map_or(Placement::Everywhere, Placement::Value)
    }
}

/// The partitions of a database, and their owners.
pub struct Partitions {
    locks: Box<[FairLock]>,
    function: Option<PartitionFunction>,
}

impl Partitions {
    /// Most partitions of a database.
    pub const MAX: usize = 64;
    /// The number of partitions of a database for which none is configured.
    pub const DEFAULT: usize = 4;

    /// This many partitions, by this function. By default integers are taken modulo the count, and other values are
    /// hashed.
    ///
    /// # Panics
    /// If they are none or more than [`Partitions::MAX`].
    pub fn new(count: usize, function: Option<PartitionFunction>) -> Partitions {
        assert!((1..=Self::MAX).contains(&count), "a database has 1 to 64 partitions");
        Partitions { locks: (0..count).map(|_| FairLock::default()).collect(), function }
    }

    /// The same partitions with separate locks, which exclude no other owner: for canaries.
    #[must_use]
    pub fn unshared(&self) -> Partitions {
        Partitions::new(self.count(), self.function.clone())
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.locks.len()
    }

    /// The partition of a value.
    ///
    /// # Errors
    /// The user's function panicked, or named a partition that is not there.
    pub fn of_value(&self, value: &PartitionValue) -> Result<usize, OpError> {
        let count = self.count();
        match (&self.function, value) {
            (Some(function), _) => {
                let named = catch_unwind(AssertUnwindSafe(|| function(value, count)));
                named.ok().filter(|&partition| partition < count).ok_or(OpError::execute(Reason::NoPartition))
            }
            (None, PartitionValue::Integer(number)) => Ok(number.rem_euclid(count as i128) as usize),
            (None, PartitionValue::Bytes(bytes)) => Ok((hash(bytes) % count as u64) as usize),
        }
    }

    /// The partition of a key that has its value here.
    ///
    /// # Errors
    /// As [`Partitions::of_value`].
    #[inline]
    pub fn of_key(&self, place: &KeyPlace, key: Key<'_>) -> Result<usize, OpError> {
        match place.unsigned(key) {
            Some(number) if self.function.is_none() => Ok((number % self.count() as u64) as usize),
            _ => self.of_any_key(place, key),
        }
    }

    #[inline(never)]
    fn of_any_key(&self, place: &KeyPlace, key: Key<'_>) -> Result<usize, OpError> {
        let value = place.value(key).ok_or(OpError::execute(Reason::NoPartition))?;
        self.of_value(&value)
    }

    /// The partitions in which keys between two bounds can be: one, or all.
    ///
    /// # Errors
    /// As [`Partitions::of_value`].
    pub fn of_range(
        &self,
        place: &KeyPlace,
        low: Bound<Key<'_>>,
        high: Bound<Key<'_>>,
    ) -> Result<PartitionSet, OpError> {
        match place.value_between(low, high) {
            Some(value) => self.of_value(&value).map(PartitionSet::one),
            None => Ok(PartitionSet::ALL),
        }
    }

    /// As [`Partitions::of_range`], where the bounds may be one key.
    ///
    /// # Errors
    /// As [`Partitions::of_key`].
    pub fn of_keys(
        &self,
        place: &KeyPlace,
        low: Bound<Key<'_>>,
        high: Bound<Key<'_>>,
    ) -> Result<PartitionSet, OpError> {
        match (low, high) {
            (Bound::Included(low), Bound::Included(high)) if low == high => {
                self.of_key(place, low).map(PartitionSet::one)
            }
            (low, high) => self.of_range(place, low, high),
        }
    }

    /// Takes the locks of these partitions: this thread owns them until the answer is dropped. `None` if one
    /// of them was held for longer than `wait`.
    #[inline]
    pub fn own(&self, partitions: PartitionSet, wait: Duration) -> Option<Owned<'_>> {
        let mut owned = Owned { partitions: self, owned: PartitionSet::NONE };
        for number in partitions.numbers(self.count()) {
            if !self.locks[number].take(wait) {
                return None;
            }
            owned.owned = owned.owned.union(PartitionSet::one(number));
        }
        Some(owned)
    }
}

impl fmt::Debug for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitions").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// FNV-1a, of 64 bits.
pub fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// FNV-1a, finished so that its low bits depend on all. It does not change: rows stay in their partitions.
fn hash(bytes: &[u8]) -> u64 {
    let hash = fnv1a(bytes.iter().copied());
    (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// Partitions that the thread owns, until this is dropped, also by a panic.
#[derive(Debug)]
#[must_use]
pub struct Owned<'p> {
    partitions: &'p Partitions,
    owned: PartitionSet,
}

impl Drop for Owned<'_> {
    #[inline]
    fn drop(&mut self) {
        for number in self.owned.numbers(self.partitions.count()) {
            self.partitions.locks[number].give();
        }
    }
}
