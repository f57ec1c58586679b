//! Workers, records and keys for the tests.

use crate::index::StoreCx;
use crate::node_version::NodeVersion;
use crate::record::{Bytes, Kind, RecordPtr, Word8, Word16, key_bytes, out_of_line_bytes, read_key, write_key};
use crate::tree::Tree;
use crate::tree::kind::NodeKind;
use crate::{Cursor, Direction, LeafHint};
use seriatim_base::Rng;
use seriatim_catalog::{Key, KeyBuf};
use seriatim_htm::{Agent, Budget, Emulation, Htm, HtmMode, Outside};
use seriatim_memory::{Local, Memory, Options};
use std::ops::Bound;

/// Prints the seed of a test first, so that a failure can be repeated.
pub(super) fn seeded(test: &str) -> (u64, Rng) {
    let seed = seriatim_base::rng::seed(test);
    (seed, Rng::from_seed(seed))
}

/// The back ends every machine has. The emulated one aborts every third region.
pub(super) fn modes(seed: u64) -> [HtmMode; 2] {
    [HtmMode::Absent, HtmMode::Emulated(Emulation { seed, abort_one_in: 3, yields: true })]
}

pub(super) struct World {
    pub(super) memory: Memory,
    pub(super) htm: Htm,
}

impl World {
    pub(super) fn new(mode: HtmMode) -> World {
        let memory = Memory::new(Options { workers_max: 8, ..Options::default() }).expect("memory for tests");
        World { memory, htm: Htm::new(mode).expect("tests ask for what every machine has") }
    }

    /// From now on the memory limit has refused a request, so half-empty leaves are merged.
    pub(super) fn make_scarce(&self, worker: &mut Worker) {
        self.memory.set_limit(Some(0));
        assert!(worker.local.allocate(&mut worker.outside, 1 << 20).is_err(), "beyond the limit");
        self.memory.set_limit(None);
        assert!(worker.local.is_scarce());
    }

    /// A worker that is online.
    pub(super) fn worker(&self) -> Worker {
        let mut local = self.memory.register().expect("a free worker");
        local.enter();
        let agent = self.htm.agent(local.worker(), Budget::default());
        Worker { local, agent, outside: Outside::claim() }
    }
}

pub(super) struct Worker {
    pub(super) local: Local,
    pub(super) agent: Agent,
    pub(super) outside: Outside,
}

impl Worker {
    pub(super) fn cx(&mut self) -> StoreCx<'_> {
        StoreCx { local: &mut self.local, agent: &mut self.agent, outside: &mut self.outside }
    }

    /// Between two transactions: nothing read before is used after.
    pub(super) fn rest(&mut self) {
        self.local.leave();
        self.local.enter();
    }

    pub(super) fn record(&mut self, key: Key<'_>) -> RecordPtr {
        let out_of_line = out_of_line_bytes(key);
        let out_of_line =
            (out_of_line > 0).then(|| self.local.allocate(&mut self.outside, out_of_line).expect("memory"));
        let memory = self.local.allocate(&mut self.outside, key_bytes(key.class())).expect("memory");
        // SAFETY: just allocated with the bytes asked for; the out-of-line value is released with the record.
        unsafe {
            let record = RecordPtr::from_raw(memory);
            write_key(record, key, out_of_line);
            record
        }
    }

    /// Retires a record of kind `K`.
    ///
    /// # Safety
    /// It came from [`Worker::record`] and was unlinked by the caller, once.
    pub(super) unsafe fn retire<K: Kind>(&mut self, record: RecordPtr) {
        // SAFETY: the caller's promise; the sizes are those of `record`.
        unsafe {
            let key = read_key(record, K::CLASS);
            let (out_of_line, bytes) = (out_of_line_bytes(key), key_bytes(K::CLASS));
            if out_of_line > 0 {
                let address = record.as_ptr().cast::<u64>().add(1).read();
                let block = std::ptr::with_exposed_provenance_mut(address as usize);
                self.local.retire(std::ptr::NonNull::new(block).expect("an out-of-line value"), out_of_line);
            }
            self.local.retire(std::ptr::NonNull::new(record.as_ptr()).expect("a record"), bytes);
        }
    }
}

/// Keys of a kind, numbered; the order of the numbers is not that of the keys.
pub(super) trait TestKind: NodeKind {
    fn key(n: u64) -> KeyBuf;
}

impl TestKind for Word8 {
    fn key(n: u64) -> KeyBuf {
        Key::Word8(n).to_buf()
    }
}

impl TestKind for Word16 {
    /// Runs of keys whose high words tie.
    fn key(n: u64) -> KeyBuf {
        Key::Word16(u128::from(n / 16) << 64 | u128::from(n % 16)).to_buf()
    }
}

impl TestKind for Bytes {
    /// Some short, some with zero bytes at the end, some that tie in their first 16 bytes and beyond.
    fn key(n: u64) -> KeyBuf {
        let mut bytes = match n % 4 {
            0 => Vec::new(),
            1 => b"sixteen letters.".to_vec(),
            2 => b"sixteen letters. and then some more".to_vec(),
            _ => b"ab".to_vec(),
        };
        let mut rest = n / 4;
        while rest > 0 {
            bytes.push([0, b'a', 0xFF][(rest % 3) as usize]);
            rest /= 3;
        }
        // Makes it unique: without it, 0 and 3 in base 3 differ by trailing zeros only, which is the point.
        bytes.push(b'.');
        if n.is_multiple_of(7) {
            bytes.extend_from_slice(&[0; 5]);
        }
        Key::Bytes(&bytes).to_buf()
    }
}

/// A byte string ordered as the keys are.
pub(super) fn bytes_of(key: Key<'_>) -> Vec<u8> {
    key.to_bytes().into_owned()
}

/// The key of a record as a byte string.
pub(super) fn key_of<K: Kind>(record: RecordPtr) -> Vec<u8> {
    // SAFETY: records of tests stay allocated while the worker that read them is online.
    bytes_of(unsafe { read_key(record, K::CLASS) })
}

impl<K: NodeKind, const LEAF: usize, const FAN: usize> Tree<K, LEAF, FAN> {
    /// Checks the invariants.
    pub(super) fn checked(&self) {
        // SAFETY: tests call this when no other thread changes the tree.
        unsafe { self.check() }.unwrap_or_else(|wrong| panic!("{wrong}"));
    }

    /// All leaves as a scan of everything shows them.
    pub(super) fn leaves(&self, worker: &Worker, direction: Direction) -> Vec<(NodeVersion, Vec<RecordPtr>)> {
        let mut cursor = Cursor::new();
        let mut leaves = Vec::new();
        cursor.begin(Bound::Unbounded, Bound::Unbounded, direction);
        cursor.show_whole_leaves();
        while self.next_leaf(&mut cursor, &mut LeafHint::default(), worker.local.pinned()) {
            leaves.push((cursor.node_version(), cursor.records().to_vec()));
        }
        leaves
    }
}

/// Whether a node version taken by this worker, online ever since, still holds.
pub(super) fn holds(node_version: NodeVersion) -> bool {
    // SAFETY: tests ask only while the worker that took it is online.
    unsafe { node_version.still_valid() }
}
