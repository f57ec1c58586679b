//! One index of a table: a tree or a hash table over one class of keys, behind one predictable branch.

use crate::cursor::{Cursor, Direction};
use crate::hash::{Hash, Hint};
use crate::node_version::NodeVersion;
use crate::observer::Observer;
use crate::record::{Bytes, Kind, RecordPtr, Word8, Word16, read_key, wrong_class};
use crate::statistics::IndexStatistics;
use crate::tree::{Head, LeafHint, Tree, size};
use crate::walk::Walk;
use seriatim_base::word::AtomicU64;
use seriatim_catalog::{Key, KeyClass, Organization};
use seriatim_htm::{Agent, Htm, Outside};
use seriatim_memory::{Local, OutOfMemory, Pinned};
use std::ops::Bound;

/// The context of an operation that changes an index: all of it belongs to the calling worker.
#[derive(Debug)]
pub struct StoreCx<'a> {
    /// The worker's memory; it is online.
    pub local: &'a mut Local,
    /// The worker's regions.
    pub agent: &'a mut Agent,
    /// The worker is not in a region.
    pub outside: &'a mut Outside,
}

/// The outcome of an insertion (get-with-insert, DBX §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Inserted {
    /// The record is linked.
    Linked,
    /// Nothing changed: the key has this record.
    Exists(RecordPtr),
    /// Nothing changed: the observer did not admit it.
    Refused,
}

/// A hash table has no order to scan in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unordered;

impl std::fmt::Display for Unordered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a hash table has no order: declare the table or index as ordered, or scan all of it")
    }
}

impl std::error::Error for Unordered {}

/// Records of a walk's chunk, about.
pub(crate) const CHUNK: usize = 64;

/// A hint for the lookup of a hashed key.
#[derive(Clone, Copy, Debug)]
pub struct HashHint(Hint);

impl HashHint {
    /// As a word whose bit 63 is set. Its lower 48 bits are an address.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0.bits()
    }

    /// The hint of these bits; `None` if bit 63 is clear.
    #[inline(always)]
    pub fn from_bits(bits: u64) -> Option<HashHint> {
        Hint::from_bits(bits).map(HashHint)
    }

    /// The record that probably has the key of the hint, once its bucket is cached: found from the bucket
    /// alone, without touching a record. It is a guess for prefetching, and may have another key.
    ///
    /// # Safety
    /// The index that gave the hint still exists.
    #[inline]
    pub unsafe fn guess(self, _pin: Pinned<'_>) -> Option<RecordPtr> {
        // SAFETY: the caller's promise.
        unsafe { self.0.guess() }
    }

    /// As [`HashHint::guess`], from the lines behind the bucket. A guess that found nothing has prefetched the
    /// first of them.
    ///
    /// # Safety
    /// The conditions of [`HashHint::guess`].
    #[inline(never)]
    pub unsafe fn guess_behind(self, _pin: Pinned<'_>) -> Option<RecordPtr> {
        // SAFETY: the caller's promise; the thread is pinned.
        unsafe { self.0.guess_behind() }
    }
}

/// Maps the keys of one table or secondary index to records.
///
/// Shared by all workers of one [`Memory`](seriatim_memory::Memory) and one [`Htm`]. Keys are of the class it
/// was made for; another class panics. Dropping it leaves its nodes to the memory it came from;
/// [`Index::dispose`] gives them back.
#[derive(Debug)]
pub struct Index(Kinds);

#[derive(Debug)]
enum Kinds {
    Tree8(Tree<Word8, { size::LEAF }, { size::FAN }>),
    Tree16(Tree<Word16, { size::LEAF }, { size::FAN }>),
    TreeBytes(Tree<Bytes, { size::LEAF }, { size::FAN }>),
    Hash8(Hash<Word8>),
    Hash16(Hash<Word16>),
    HashBytes(Hash<Bytes>),
}

/// `on!(self, index, K => body)`: `body` for the index that this is, with `K` its kind of keys.
macro_rules! on {
    ($self:expr, $index:ident, $kind:ident => tree $tree:expr, hash $hash:expr) => {
        match $self {
            Kinds::Tree8($index) => {
                #[allow(dead_code)]
                type $kind = Word8;
                $tree
            }
            Kinds::Tree16($index) => {
                #[allow(dead_code)]
                type $kind = Word16;
                $tree
            }
            Kinds::TreeBytes($index) => {
                #[allow(dead_code)]
                type $kind = Bytes;
                $tree
            }
            Kinds::Hash8($index) => {
                #[allow(dead_code)]
                type $kind = Word8;
                $hash
            }
            Kinds::Hash16($index) => {
                #[allow(dead_code)]
                type $kind = Word16;
                $hash
            }
            Kinds::HashBytes($index) => {
                #[allow(dead_code)]
                type $kind = Bytes;
                $hash
            }
        }
    };
    ($self:expr, $index:ident, $kind:ident => $body:expr) => {
        on!($self, $index, $kind => tree $body, hash $body)
    };
}

impl Index {
    /// An empty index for keys of `class`; `capacity` is a hint of how many records it will hold.
    ///
    /// # Errors
    /// When memory is refused.
    pub fn new(
        organization: Organization,
        class: KeyClass,
        capacity: usize,
        htm: &Htm,
        cx: &mut StoreCx<'_>,
    ) -> Result<Index, OutOfMemory> {
        Ok(Index(match (organization, class) {
            (Organization::Ordered, KeyClass::Word8) => Kinds::Tree8(Tree::new(htm, cx)?),
            (Organization::Ordered, KeyClass::Word16) => Kinds::Tree16(Tree::new(htm, cx)?),
            (Organization::Ordered, KeyClass::Bytes) => Kinds::TreeBytes(Tree::new(htm, cx)?),
            (Organization::Hash, KeyClass::Word8) => Kinds::Hash8(Hash::new(capacity, htm, cx)?),
            (Organization::Hash, KeyClass::Word16) => Kinds::Hash16(Hash::new(capacity, htm, cx)?),
            (Organization::Hash, KeyClass::Bytes) => Kinds::HashBytes(Hash::new(capacity, htm, cx)?),
        }))
    }

    /// The class of its keys.
    pub fn class(&self) -> KeyClass {
        on!(&self.0, _index, K => K::CLASS)
    }

    /// How it finds its records.
    pub fn organization(&self) -> Organization {
        on!(&self.0, _index, K => tree Organization::Ordered, hash Organization::Hash)
    }

    /// The record of `key`, or the node version that proves its absence: the word that changes when `key` is linked.
    /// Waits for no one but writers in the act.
    ///
    /// # Errors
    /// The node version, when the key is absent.
    #[inline]
    pub fn get(&self, key: Key<'_>, pin: Pinned<'_>) -> Result<RecordPtr, NodeVersion> {
        on!(&self.0, index, K => index.get(K::probe(key), pin))
    }

    /// As [`Index::get`], beginning at the leaf that `leaf_hint` was last used for; a hash table ignores it.
    ///
    /// # Errors
    /// The node version, when the key is absent.
    // Not inlined: six searches, which would push their callers out of the instruction cache.
    #[inline(never)]
    pub fn get_near(&self, key: Key<'_>, leaf_hint: &mut LeafHint, pin: Pinned<'_>) -> Result<RecordPtr, NodeVersion> {
        on!(&self.0, index, K => tree index.get_near(K::probe(key), leaf_hint, pin), hash index.get(K::probe(key), pin))
    }

    /// As [`Index::get`], for protocols that lock absences: where the key is absent, its node version with the gap word
    /// beside it.
    ///
    /// # Errors
    /// The node version and the gap word of the leaf or bucket that would have the key. They stay allocated while the
    /// worker is online.
    #[inline]
    pub fn get_or_gap<'p>(&'p self, key: Key<'_>, pin: Pinned<'p>) -> Result<RecordPtr, (NodeVersion, &'p AtomicU64)> {
        on!(&self.0, index, K => index.get_or_gap(K::probe(key), pin))
    }

    /// Starts to fetch the bucket, the first line that a lookup of `key` will miss. Returns a hint for its
    /// record. `None` for a tree: it has no bucket.
    #[inline(always)]
    pub fn prefetch_bucket(&self, key: Key<'_>) -> Option<HashHint> {
        on!(&self.0, _index, K => tree None, hash Some(HashHint(_index.prefetch_bucket(K::probe(key)))))
    }

    /// Links `record` under `key` unless the key has a record already. The key words of `record` hold `key`.
    ///
    /// # Errors
    /// When memory is refused; nothing changed.
    #[inline]
    pub fn insert<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        key: Key<'_>,
        record: RecordPtr,
        observer: &mut O,
    ) -> Result<Inserted, OutOfMemory> {
        on!(&self.0, index, K => index.insert(cx, K::probe(key), record, observer))
    }

    /// As [`Index::insert`], beginning at the leaf that `leaf_hint` was last used for; a hash table ignores it.
    ///
    /// # Errors
    /// When memory is refused; nothing changed.
    #[inline]
    pub fn insert_near<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        key: Key<'_>,
        leaf_hint: &mut LeafHint,
        record: RecordPtr,
        observer: &mut O,
    ) -> Result<Inserted, OutOfMemory> {
        on!(
            &self.0,
            index,
            K => tree index.insert_near(cx, K::probe(key), leaf_hint, record, observer),
            hash index.insert(cx, K::probe(key), record, observer)
        )
    }

    /// As [`Index::insert_near`] without latches, regions and observers: for loading.
    ///
    /// # Safety
    /// No other thread uses the index during the call (rule 5).
    ///
    /// # Errors
    /// When memory is refused; nothing changed.
    pub unsafe fn insert_exclusive(
        &self,
        cx: &mut StoreCx<'_>,
        key: Key<'_>,
        leaf_hint: &mut LeafHint,
        record: RecordPtr,
    ) -> Result<Inserted, OutOfMemory> {
        on!(
            &self.0,
            index,
            // SAFETY: the caller's promise.
            K => tree unsafe { index.insert_exclusive(cx, K::probe(key), leaf_hint, record) },
            hash index.insert(cx, K::probe(key), record, &mut crate::Unobserved)
        )
    }

    /// Unlinks exactly `record`; `false` if `key` has no or another record, or it is to stay for now
    /// ([`Observer::EMPTIES`]). The caller retires the record.
    pub fn remove<O: Observer>(&self, cx: &mut StoreCx<'_>, key: Key<'_>, record: RecordPtr, observer: &mut O) -> bool {
        self.remove_near(cx, key, &mut LeafHint::default(), record, observer)
    }

    /// As [`Index::remove`], beginning at the leaf that `leaf_hint` was last used for; a hash table ignores it.
    #[inline]
    pub fn remove_near<O: Observer>(
        &self,
        cx: &mut StoreCx<'_>,
        key: Key<'_>,
        leaf_hint: &mut LeafHint,
        record: RecordPtr,
        observer: &mut O,
    ) -> bool {
        on!(
            &self.0,
            index,
            K => tree index.remove_near(cx, K::probe(key), leaf_hint, record, observer),
            hash index.remove(cx, K::probe(key), record, observer)
        )
    }

    /// The first records of the keys from `low` to `high`, and the node version that proves that no others come before
    /// them. `None` if that takes a scan, or for a hash table. The leaf becomes that of `leaf_hint`.
    // Not inlined, for the reason of `get_near`.
    #[inline(never)]
    pub fn head_near(
        &self,
        low: Key<'_>,
        high: Key<'_>,
        leaf_hint: &mut LeafHint,
        pin: Pinned<'_>,
    ) -> Option<(Head, NodeVersion)> {
        on!(
            &self.0,
            index,
            K => tree index.head_near(K::probe(low), K::probe(high), leaf_hint, pin),
            hash { let _ = (index, low, high, leaf_hint, pin); None }
        )
    }

    /// Positions `cursor` before the keys between `low` and `high` in `direction`.
    ///
    /// # Errors
    /// A hash table cannot be scanned.
    #[inline]
    pub fn scan(
        &self,
        low: Bound<Key<'_>>,
        high: Bound<Key<'_>>,
        direction: Direction,
        cursor: &mut Cursor,
    ) -> Result<(), Unordered> {
        if self.organization() == Organization::Hash {
            return Err(Unordered);
        }
        let class = self.class();
        for bound in [low, high] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound
                && key.class() != class
            {
                wrong_class(key.class(), class);
            }
        }
        cursor.begin(low, high, direction);
        Ok(())
    }

    /// Positions `cursor` before all records: those of a tree in key order, those of a hash table in no order that
    /// means anything.
    #[inline]
    pub fn scan_all(&self, cursor: &mut Cursor) {
        cursor.begin(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        cursor.position.near.word = 0;
    }

    /// Moves `cursor` to the next records of its scan. They are those of one leaf within the bounds, read at one time,
    /// with the leaf's node version and gap word. Every leaf that could hold a key of the range is shown, so also
    /// leaves without a record. Of the first leaf with records the first few are shown. The next call shows the others,
    /// with the node version that the leaf has then. `false` when there are none left; the cursor then still shows the
    /// last ones. Of a hash table, the leaves are its buckets.
    ///
    /// Keys that stay linked are shown exactly once, whatever splits and unlinks happen between calls. The leaf becomes
    /// that of `leaf_hint`.
    // Not inlined, for the reason of `get_near`.
    #[inline(never)]
    pub fn next_leaf(&self, cursor: &mut Cursor, leaf_hint: &mut LeafHint, pin: Pinned<'_>) -> bool {
        on!(
            &self.0,
            index,
            K => tree index.next_leaf(cursor, leaf_hint, pin),
            hash index.next_bucket(cursor, pin)
        )
    }

    /// As [`Index::next_leaf`], and merges in those of `others` whose keys the cursor passes, each once. In a tree they
    /// come in key order; among records with one key any may come first. `others` is called when the leaf has been
    /// read.
    ///
    /// # Safety
    /// The others' key words are written and their memory is allocated during the call; they are of the index's class.
    pub unsafe fn next_leaf_with(
        &self,
        cursor: &mut Cursor,
        leaf_hint: &mut LeafHint,
        pin: Pinned<'_>,
        others: impl FnOnce() -> Vec<RecordPtr>,
    ) -> bool {
        let class = self.class();
        let from = cursor.position.near.word;
        cursor.before.set(cursor.position.near.bound(class));
        if !self.next_leaf(cursor, leaf_hint, pin) {
            return false;
        }
        let others = others();
        if others.is_empty() {
            return true;
        }
        let Cursor { records, position, before, .. } = cursor;
        if self.organization() == Organization::Hash {
            let range = from..position.near.word;
            let passed = |record: &RecordPtr| {
                // SAFETY: the caller's promise.
                on!(&self.0, _index, K => tree false, hash unsafe { _index.has_passed(&range, *record) })
            };
            records.extend(others.into_iter().filter(passed));
            records.sort_unstable();
            records.dedup();
            return true;
        }
        // SAFETY: the caller's promise; the leaf's records are linked, or were (rule 2).
        let key = |record: &RecordPtr| unsafe { read_key(*record, class) };
        let passed = |record: &RecordPtr| position.has_passed(before, key(record));
        records.extend(others.into_iter().filter(passed));
        let order = |a: Key<'_>, b: Key<'_>| match position.direction {
            Direction::Forward => a.cmp(&b),
            Direction::Backward => b.cmp(&a),
        };
        records.sort_by(|a, b| order(key(a), key(b)).then(a.cmp(b)));
        records.dedup();
        true
    }

    /// Appends the next chunk of records to `out`, some dozens at most. `false`: there is none left, and
    /// nothing was appended. Others may use and change the index meanwhile, and the worker may go offline
    /// between calls; [`Walk`] says what is visited. A walk is used with one index.
    pub fn walk(&self, walk: &mut Walk, pin: Pinned<'_>, out: &mut Vec<RecordPtr>) -> bool {
        let first = !std::mem::replace(&mut walk.begun, true);
        on!(
            &self.0,
            index,
            K => tree {
                if first {
                    walk.cursor.begin(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                }
                let begin = out.len();
                let Walk { cursor, leaf_hint, .. } = walk;
                let mut more = index.next_leaf(cursor, leaf_hint, pin);
                let found = more;
                while more {
                    out.extend_from_slice(cursor.records());
                    more = out.len() - begin < CHUNK && index.next_leaf(cursor, leaf_hint, pin);
                }
                found
            },
            hash {
                let _ = first;
                index.walk(&mut walk.bucket, CHUNK, pin, out)
            }
        )
    }

    /// About how many records are linked.
    pub fn len_estimate(&self, pin: Pinned<'_>) -> usize {
        on!(&self.0, index, K => tree index.len_estimate(pin), hash { let _ = pin; index.len_estimate() })
    }

    /// Counts of its parts. Walks all of it.
    ///
    /// # Safety
    /// No other thread changes the index during the call (rule 5).
    pub unsafe fn statistics(&self) -> IndexStatistics {
        // SAFETY: the caller's promise.
        on!(&self.0, index, K => tree unsafe { index.statistics() }, hash index.statistics())
    }

    /// Checks every structural invariant.
    ///
    /// # Safety
    /// No other thread changes the index during the call (rule 5).
    ///
    /// # Errors
    /// A description of the fault.
    pub unsafe fn check(&self) -> Result<(), String> {
        // SAFETY: the caller's promise.
        on!(&self.0, index, K => tree unsafe { index.check() }, hash index.check())
    }

    /// Calls `f` for every record; a tree in key order.
    ///
    /// # Safety
    /// No other thread changes the index during the call (rule 5).
    pub unsafe fn for_each(&self, mut f: impl FnMut(RecordPtr)) {
        // SAFETY: the caller's promise.
        on!(&self.0, index, K => tree unsafe { index.for_each(&mut f) }, hash index.for_each(&mut f));
    }

    /// Gives the index's own memory back, not that of its records.
    ///
    /// # Safety
    /// No node version, cursor or leaf hint of the index is used any more by any thread (rule 5).
    pub unsafe fn dispose(self, local: &mut Local) {
        // SAFETY: the caller's promise.
        on!(self.0, index, K => unsafe { index.dispose(local) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Unobserved, key_bytes, out_of_line_bytes, write_key};
    use seriatim_htm::{Budget, HtmMode};
    use seriatim_memory::{Memory, Options};

    fn key(class: KeyClass, n: u64, text: &mut String) -> Key<'_> {
        match class {
            KeyClass::Word8 => Key::Word8(n),
            KeyClass::Word16 => Key::Word16(u128::from(n) << 70 | 1),
            KeyClass::Bytes => {
                *text = format!("a key of some length, number {n:05}");
                Key::Bytes(text.as_bytes())
            }
        }
    }

    #[test]
    fn every_organization_serves_every_class() {
        const N: u64 = 1_000;
        let memory = Memory::new(Options::default()).expect("memory");
        let htm = Htm::new(HtmMode::Absent).expect("always there");
        let mut local = memory.register().expect("a worker");
        let mut agent = htm.agent(local.worker(), Budget::default());
        let mut outside = Outside::claim();
        local.enter();
        for organization in [Organization::Ordered, Organization::Hash] {
            for class in [KeyClass::Word8, KeyClass::Word16, KeyClass::Bytes] {
                let mut cx = StoreCx { local: &mut local, agent: &mut agent, outside: &mut outside };
                let index = Index::new(organization, class, 100, &htm, &mut cx).expect("memory");
                assert_eq!((index.class(), index.organization()), (class, organization));
                let mut text = String::new();
                let mut records = Vec::new();
                for n in 0..N {
                    let key = key(class, n, &mut text);
                    let out_of_line = out_of_line_bytes(key);
                    let out_of_line =
                        (out_of_line > 0).then(|| cx.local.allocate(cx.outside, out_of_line).expect("memory"));
                    let memory = cx.local.allocate(cx.outside, key_bytes(class)).expect("memory");
                    // SAFETY: just allocated, and never released.
                    let record = unsafe { RecordPtr::from_raw(memory) };
                    // SAFETY: as above.
                    unsafe { write_key(record, key, out_of_line) };
                    // SAFETY: as above.
                    assert_eq!(unsafe { read_key(record, class) }, key);
                    assert!(index.get(key, cx.local.pinned()).is_err());
                    assert_eq!(index.insert(&mut cx, key, record, &mut Unobserved), Ok(Inserted::Linked));
                    assert_eq!(index.insert(&mut cx, key, record, &mut Unobserved), Ok(Inserted::Exists(record)));
                    assert_eq!(index.get(key, cx.local.pinned()).ok(), Some(record));
                    records.push(record);
                }
                // SAFETY: the only thread.
                unsafe {
                    assert_eq!(index.check(), Ok(()));
                    let mut all = 0;
                    index.for_each(|_| all += 1);
                    assert_eq!((all, index.statistics().records as u64), (N, N));
                }
                let mut cursor = Cursor::new();
                let (all, forward) = (Bound::Unbounded, Direction::Forward);
                let is_ordered = organization == Organization::Ordered;
                assert_eq!(
                    index.scan(all, all, forward, &mut cursor),
                    if is_ordered { Ok(()) } else { Err(Unordered) }
                );
                index.scan_all(&mut cursor);
                let mut shown = Vec::new();
                while index.next_leaf(&mut cursor, &mut LeafHint::default(), cx.local.pinned()) {
                    shown.extend_from_slice(cursor.records());
                }
                if !is_ordered {
                    shown.sort_by_key(|record| records.iter().position(|known| known == record));
                }
                assert_eq!(shown, records);
                // Records that are merged in are shown where they belong, and once.
                index.scan_all(&mut cursor);
                let (mut met, mut hint, others) = (0, LeafHint::default(), || records.clone());
                // SAFETY: the records are allocated, and of this class.
                while unsafe { index.next_leaf_with(&mut cursor, &mut hint, cx.local.pinned(), others) } {
                    met += cursor.records().len();
                }
                assert_eq!(met, records.len());
                for (n, &record) in (0..).zip(&records) {
                    assert!(index.remove(&mut cx, key(class, n, &mut text), record, &mut Unobserved));
                }
                // SAFETY: the only thread, and nothing of the index is kept.
                unsafe {
                    assert_eq!((index.check(), index.statistics().records), (Ok(()), 0));
                    index.dispose(cx.local);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "an index of key class Word8 was asked for")]
    fn a_key_of_another_class_is_a_mistake() {
        let memory = Memory::new(Options::default()).expect("memory");
        let htm = Htm::new(HtmMode::Absent).expect("always there");
        let mut local = memory.register().expect("a worker");
        let mut agent = htm.agent(local.worker(), Budget::default());
        let mut outside = Outside::claim();
        local.enter();
        let mut cx = StoreCx { local: &mut local, agent: &mut agent, outside: &mut outside };
        let index = Index::new(Organization::Ordered, KeyClass::Word8, 0, &htm, &mut cx).expect("memory");
        let _ = index.get(Key::Word16(1), cx.local.pinned());
    }
}
