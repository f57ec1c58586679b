//! Nanoseconds per operation of the tree on this machine: `cargo run --release -p seriatim-bench --example tree`.
//!
//! One thread, software latches, best of some rounds. Standard output is one line per measurement. An
//! argument such as `Word8` or `"Word8, 100000"` picks the trees whose name begins so.

use seriatim_base::clock::Instant;
use seriatim_base::{Rng, WorkerId};
use seriatim_catalog::{Key, KeyClass, Organization};
use seriatim_htm::{Agent, Budget, Htm, HtmMode, Outside};
use seriatim_memory::{Local, Memory, Options};
use seriatim_store::{
    Cursor, Direction, Index, LeafHint, RecordPtr, StoreCx, Unobserved, key_bytes, out_of_line_bytes, write_key,
};
use std::hint::black_box;
use std::ops::Bound;

const ROUNDS: usize = 5;
const RECORD_BYTES: usize = 64;

struct Bench {
    local: Local,
    agent: Agent,
    outside: Outside,
    htm: Htm,
}

impl Bench {
    fn cx(&mut self) -> StoreCx<'_> {
        StoreCx { local: &mut self.local, agent: &mut self.agent, outside: &mut self.outside }
    }

    fn record(&mut self, key: Key<'_>) -> RecordPtr {
        let out_of_line = out_of_line_bytes(key);
        let out_of_line = (out_of_line > 0)
            .then(|| self.local.allocate(&mut self.outside, out_of_line).expect("enough memory for a benchmark"));
        let bytes = RECORD_BYTES.max(key_bytes(key.class()));
        let memory = self.local.allocate(&mut self.outside, bytes).expect("enough memory for a benchmark");
        // SAFETY: just allocated, large enough and aligned to 8; the out-of-line value lives as long.
        unsafe {
            let record = RecordPtr::from_raw(memory);
            write_key(record, key, out_of_line);
            record
        }
    }
}

/// Ordered as `n` is; the first 16 bytes tell keys apart.
fn text(n: u64) -> [u8; 24] {
    let mut key = *b"w0001d01NNNNNNNNTheTail.";
    for (i, byte) in key[8..16].iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(n >> (28 - 4 * i)) as usize & 15];
    }
    key
}

fn with_key<R>(class: KeyClass, n: u64, f: impl FnOnce(Key<'_>) -> R) -> R {
    match class {
        KeyClass::Word8 => f(Key::Word8(n)),
        KeyClass::Word16 => f(Key::Word16(u128::from(n) << 64 | u128::from(n))),
        KeyClass::Bytes => f(Key::Bytes(&text(n))),
    }
}

fn measure(what: &str, operations: usize, mut round: impl FnMut()) {
    let best = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_nanos() as f64 / operations as f64
        })
        .fold(f64::INFINITY, f64::min);
    println!("{what:56} {best:8.1} ns");
}

fn main() {
    let memory = Memory::new(Options::default()).expect("memory for a benchmark");
    let htm = Htm::new(HtmMode::Absent).expect("absent is always available");
    let local = memory.register().expect("the first worker");
    let agent = htm.agent(WorkerId(0), Budget::default());
    let mut bench = Bench { local, agent, outside: Outside::claim(), htm };
    bench.local.enter();
    let only = std::env::args().nth(1).unwrap_or_default();
    for class in [KeyClass::Word8, KeyClass::Word16, KeyClass::Bytes] {
        for records in [1_000, 100_000, 2_000_000] {
            if format!("{class:?}, {records} ").starts_with(&only) {
                run(&mut bench, class, records);
            }
        }
    }
}

fn run(bench: &mut Bench, class: KeyClass, records: u64) {
    let name = |what: &str| format!("{class:?}, {records} records: {what}");
    let htm = bench.htm.clone();
    let htm = &htm;
    let rows: Vec<RecordPtr> = (0..records).map(|n| with_key(class, n * 4, |key| bench.record(key))).collect();
    let new = |bench: &mut Bench| {
        Index::new(Organization::Ordered, class, records as usize, htm, &mut bench.cx()).expect("memory")
    };
    let key_of = |i: u64| i * 4;
    let mut shuffled: Vec<u64> = (0..records).collect();
    Rng::from_seed(1).shuffle(&mut shuffled);

    let operations = records as usize;
    measure(&name("append, exclusive, finger"), operations, || {
        let index = new(bench);
        let mut leaf_hint = LeafHint::default();
        for i in 0..records {
            let inserted = with_key(class, key_of(i), |key| {
                // SAFETY: the only thread.
                unsafe { index.insert_exclusive(&mut bench.cx(), key, &mut leaf_hint, rows[i as usize]) }
            });
            let _ = black_box(inserted);
        }
        // SAFETY: the only thread.
        unsafe { index.dispose(&mut bench.local) };
    });
    measure(&name("append, finger"), operations, || {
        let index = new(bench);
        let mut leaf_hint = LeafHint::default();
        for i in 0..records {
            let inserted = with_key(class, key_of(i), |key| {
                index.insert_near(&mut bench.cx(), key, &mut leaf_hint, rows[i as usize], &mut Unobserved)
            });
            let _ = black_box(inserted);
        }
        // SAFETY: the only thread.
        unsafe { index.dispose(&mut bench.local) };
    });
    measure(&name("append"), operations, || {
        let index = new(bench);
        for i in 0..records {
            let inserted =
                with_key(class, key_of(i), |key| index.insert(&mut bench.cx(), key, rows[i as usize], &mut Unobserved));
            let _ = black_box(inserted);
        }
        // SAFETY: the only thread.
        unsafe { index.dispose(&mut bench.local) };
    });
    measure(&name("insert in random order"), operations, || {
        let index = new(bench);
        for &i in &shuffled {
            let inserted =
                with_key(class, key_of(i), |key| index.insert(&mut bench.cx(), key, rows[i as usize], &mut Unobserved));
            let _ = black_box(inserted);
        }
        // SAFETY: the only thread.
        unsafe { index.dispose(&mut bench.local) };
    });

    let index = new(bench);
    for &i in &shuffled {
        let _ = with_key(class, key_of(i), |key| index.insert(&mut bench.cx(), key, rows[i as usize], &mut Unobserved));
    }
    // SAFETY: the only thread.
    println!("{:56} {:?}", name("built in random order"), unsafe { index.statistics() });
    let lookups: Vec<u64> = shuffled.iter().copied().cycle().take(1_000_000).map(key_of).collect();
    measure(&name("get, random"), lookups.len(), || {
        let pin = bench.local.pinned();
        for &n in &lookups {
            let _ = with_key(class, n, |key| black_box(index.get(key, pin)));
        }
    });
    measure(&name("get, random, each depending on the last"), lookups.len(), || {
        let pin = bench.local.pinned();
        let mut zero = 0;
        for &n in &lookups {
            zero = with_key(class, n + zero, |key| black_box(index.get(key, pin))).map_or(1, |r| r.addr() as u64 & 1);
        }
    });
    measure(&name("get of absent keys, random"), lookups.len(), || {
        let pin = bench.local.pinned();
        for &n in &lookups {
            let _ = with_key(class, n + 1, |key| black_box(index.get(key, pin)));
        }
    });
    measure(&name("get, finger, ascending"), operations, || {
        let pin = bench.local.pinned();
        let mut leaf_hint = LeafHint::default();
        for i in 0..records {
            let _ = with_key(class, key_of(i), |key| black_box(index.get_near(key, &mut leaf_hint, pin)));
        }
    });
    let mut cursor = Cursor::new();
    for (length, direction) in [(10, Direction::Forward), (200, Direction::Forward), (200, Direction::Backward)] {
        let scans = 2_000_000 / (length as usize + 50);
        measure(&name(&format!("scan of {length}, {direction:?}, per scan")), scans, || {
            let pin = bench.local.pinned();
            for &i in shuffled.iter().cycle().take(scans) {
                let (low, high) = (key_of(i), key_of(i + length - 1));
                with_key(class, low, |low| {
                    with_key(class, high, |high| {
                        let (low, high) = (Bound::Included(low), Bound::Included(high));
                        index.scan(low, high, direction, &mut cursor).expect("a tree can be scanned");
                    });
                });
                while index.next_leaf(&mut cursor, &mut LeafHint::default(), pin) {
                    black_box(cursor.records());
                }
            }
        });
    }
    measure(&name("remove in random order"), operations / ROUNDS, || {
        for &i in shuffled.iter().rev().take(operations / ROUNDS) {
            let removed =
                with_key(class, key_of(i), |key| index.remove(&mut bench.cx(), key, rows[i as usize], &mut Unobserved));
            black_box(removed);
        }
        for &i in shuffled.iter().rev().take(operations / ROUNDS) {
            let _ =
                with_key(class, key_of(i), |key| index.insert(&mut bench.cx(), key, rows[i as usize], &mut Unobserved));
        }
    });
    println!("{:56} (with its insertion back)", "");
    // SAFETY: the only thread.
    unsafe { index.dispose(&mut bench.local) };
}
