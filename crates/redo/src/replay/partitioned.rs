//! Distributes versions from many blocks over threads. One thread gets all versions of a key, in the order of
//! their TIDs.
//!
//! Threads work in rounds of three steps, with a barrier after each step. First, one thread plans the round. Second,
//! all threads decode its blocks. Each takes the next block when it is free, and copies every entry into a partition by
//! the hash of the key. Third, each thread sorts its partition by TID, and applies the versions of completed epochs,
//! some dozens at a time. Other versions stay for the next round. There is no allocation per entry. Memory is bounded
//! by a round and the versions of incomplete epochs. A single thread runs the same steps without barriers.
//!
//! Invariant: in the third step one thread accesses a partition. Entries of one TID and key are applied
//! together, in the order in which they were written.

use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, OnceLock, PoisonError};

use seriatim_base::{Epoch, LayoutId, TableId, Tid, prefetch, thread};
use seriatim_catalog::wire::RowWire;
use seriatim_catalog::{Key, KeyBuf};

use super::{Apply, Outcome, Version, end_of, is_whole};
use crate::LogError;
use crate::entry::{Change, Entry};
use crate::tables::Tables;

/// A source of versions.
pub(crate) trait Source: Sync {
    /// The next blocks to read; one thread calls at a time. `None` at the end.
    fn next(&self) -> Option<Round>;

    /// Reads a block of the round. `buffer` belongs to the thread, for any use.
    fn decode(&self, task: usize, buffer: &mut Vec<u8>, scatter: &mut Scatter<'_>) -> Result<(), LogError>;

    /// The file and the offset of the entry with this order number.
    fn place(&self, order: u64) -> (PathBuf, u64);

    /// The number of rows that were changed and do not exist, if that is no damage.
    fn missing(&self) -> Option<&AtomicU64> {
        None
    }
}

/// The blocks that are read at once.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Blocks.
    pub tasks: Vec<usize>,
    /// After this round, all versions up to this epoch have been read; all versions that exist if this is `None`.
    pub until: Option<Epoch>,
    /// Bytes of the blocks.
    pub bytes: u64,
}

/// Counts of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub bytes: u64,
    pub versions: u64,
    pub older: u64,
}

/// An entry in a chunk.
#[derive(Clone, Copy, Debug)]
struct Item {
    tid: Tid,
    hash: u64,
    /// The order number of the entry. It rises with the order in which the entries of one commit were written.
    order: u64,
    at: usize,
    bytes: u32,
    chunk: u32,
    layout: LayoutId,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Row,
    Delete,
    Patch,
    Delta,
}

/// Copied entries: key and change of each.
#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

/// Copies the entries that one thread decodes into the partitions of all threads.
pub(crate) struct Scatter<'t> {
    tables: &'t Tables,
    chunks: Vec<Chunk>,
}

impl Scatter<'_> {
    /// Copies an entry. Its layout must be known.
    pub(crate) fn put(&mut self, tid: Tid, order: u64, entry: &Entry<'_>) {
        let Some((table, rows)) = self.tables.get(entry.layout) else { return };
        let hash = hash(table, entry.key);
        let part = ((u128::from(hash) * self.chunks.len() as u128) >> 64) as usize;
        let chunk = &mut self.chunks[part];
        let at = chunk.bytes.len();
        rows.encode_key(entry.key, &mut chunk.bytes);
        let (kind, change) = match entry.change {
            Change::Row(bytes) => (Kind::Row, bytes),
            Change::Delete => (Kind::Delete, &[][..]),
            Change::Patch(bytes) => (Kind::Patch, bytes),
            Change::Delta(bytes) => (Kind::Delta, bytes),
        };
        chunk.bytes.extend_from_slice(change);
        let bytes = (chunk.bytes.len() - at) as u32;
        chunk.items.push(Item { tid, hash, order, at, bytes, chunk: 0, layout: entry.layout, kind });
    }
}

/// A hash of table and key. It is the same in every run, so a single thread always works in the same order.
fn hash(table: TableId, key: Key<'_>) -> u64 {
    let mut hasher = Mixer(u64::from(table.0));
    match key {
        Key::Word8(word) => hasher.write_u64(word),
        Key::Word16(words) => {
            hasher.write_u64(words as u64);
            hasher.write_u64((words >> 64) as u64);
        }
        Key::Bytes(bytes) => hasher.write(bytes),
    }
    hasher.finish()
}

/// Multiply and fold, eight bytes at a time.
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.write_u64(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_u64(&mut self, word: u64) {
        // The multiplier of Knuth's golden section; both halves of the product are kept.
        let product = u128::from(self.0 ^ word ^ 0x5851_f42d_4c95_7f2d) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The hasher of the few keys whose patches wait for a row.
#[derive(Clone, Copy, Debug, Default)]
struct Mixed;

impl BuildHasher for Mixed {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        Mixer(0)
    }
}

/// The state that one thread keeps between rounds.
#[derive(Default)]
struct Partition {
    /// In the order of application.
    items: Vec<Item>,
    chunks: Vec<Chunk>,
    /// Keys with a patch that found no row, with the TID and order number of the first such patch.
    baseless: HashMap<(TableId, KeyBuf), (Tid, u64), Mixed>,
    counts: Counts,
}

/// Versions that are applied together. So many cache lines can be prefetched without evicting each other.
const RUN_VERSIONS: usize = 32;

/// Versions, in the order of application.
#[derive(Default)]
struct Run<'c> {
    heads: Vec<Head<'c>>,
    /// The changes of all of them.
    changes: Vec<Change<'c>>,
    outcomes: Vec<Outcome>,
}

/// A decoded entry: its table, the encoding of its rows, the key, and the change.
type Said<'c> = (TableId, &'c RowWire, Key<'c>, Change<'c>);

/// A [`Version`] whose changes are in a [`Run`].
struct Head<'c> {
    table: TableId,
    key: Key<'c>,
    layout: LayoutId,
    rows: &'c RowWire,
    tid: Tid,
    /// The order number of its first entry.
    order: u64,
    changes: Range<usize>,
}

/// The state that the threads share.
struct Shared<'s, S> {
    source: &'s S,
    tables: &'s Tables,
    threads: usize,
    apply: &'s dyn Apply,
    progress: &'s (dyn Fn(u64) + Sync),
    round: Mutex<Option<Arc<Round>>>,
    /// How many blocks of the round are taken.
    taken: AtomicUsize,
    bytes: AtomicU64,
    /// The decoded chunks for each partition.
    full: Vec<Mutex<Vec<Chunk>>>,
    empty: Mutex<Vec<Chunk>>,
    barrier: Barrier,
    failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

enum Failure {
    Error(LogError),
    Panic(Box<dyn Any + Send>),
}

/// Passes every version of a source to `apply`, on `threads` threads, or fewer if the operating system refuses some.
pub(crate) fn replay<S: Source>(
    source: &S,
    tables: &Tables,
    threads: usize,
    apply: &dyn Apply,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Counts, LogError> {
    // Created once the number of threads is known, since all of them meet at the barrier.
    let shared = OnceLock::new();
    let share = |threads| Shared {
        source,
        tables,
        threads,
        apply,
        progress,
        round: Mutex::new(None),
        taken: AtomicUsize::new(0),
        bytes: AtomicU64::new(0),
        full: (0..threads).map(|_| Mutex::default()).collect(),
        empty: Mutex::default(),
        barrier: Barrier::new(threads),
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    let parts = thread::crew(threads, |number, threads| shared.get_or_init(|| share(threads)).run(number));
    let shared = shared.into_inner().expect("this thread ran");
    let mut counts = Counts::default();
    for part in parts {
        counts.versions += part.versions;
        counts.older += part.older;
    }
    match lock(&shared.failure).take() {
        None => {}
        Some(Failure::Error(error)) => return Err(error),
        Some(Failure::Panic(panic)) => resume_unwind(panic),
    }
    counts.bytes = shared.bytes.into_inner();
    Ok(counts)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Source> Shared<'_, S> {
    fn run(&self, number: usize) -> Counts {
        let mut part = Partition::default();
        let mut scatter = Scatter { tables: self.tables, chunks: Vec::new() };
        let mut buffer = Vec::new();
        loop {
            if number == 0 {
                // Failures end the rounds only here, so that all threads agree.
                *lock(&self.round) = None;
                self.step(|| {
                    self.taken.store(0, Ordering::Relaxed);
                    *lock(&self.round) = self.source.next().map(Arc::new);
                    Ok(())
                });
            }
            self.barrier.wait();
            let Some(round) = lock(&self.round).clone() else { break };
            self.step(|| self.decode(&round, &mut buffer, &mut scatter));
            self.barrier.wait();
            self.step(|| self.apply(number, &round, &mut part));
            if number == 0 {
                let bytes = self.bytes.fetch_add(round.bytes, Ordering::Relaxed) + round.bytes;
                self.step(|| {
                    (self.progress)(bytes);
                    Ok(())
                });
            }
            self.barrier.wait();
        }
        if let Some(missing) = self.source.missing() {
            missing.fetch_add(part.baseless.len() as u64, Ordering::Relaxed);
            return part.counts;
        }
        // All threads have left the rounds. A failure from here on stops no other thread.
        let first = part.baseless.iter().min_by_key(|(_, (_, order))| *order);
        if let Some(((table, key), (tid, order))) = first.filter(|_| !self.has_failed()) {
            let (file, offset) = self.source.place(*order);
            let problem = format!(
                "change {tid} of row {:?} of table {table} has no row to change, and no row or deletion follows",
                key.as_key()
            );
            self.fail(Failure::Error(LogError::corrupt(&file, offset, problem, super::ADVICE)));
        }
        part.counts
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn fail(&self, failure: Failure) {
        lock(&self.failure).get_or_insert(failure);
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Runs a step, unless one has failed. A panic is kept, so that the other threads do not wait at a barrier
    /// for ever.
    fn step(&self, step: impl FnOnce() -> Result<(), LogError>) {
        if self.has_failed() {
            return;
        }
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(Failure::Error(error)),
            Err(panic) => self.fail(Failure::Panic(panic)),
        }
    }

    fn decode(&self, round: &Round, buffer: &mut Vec<u8>, scatter: &mut Scatter<'_>) -> Result<(), LogError> {
        if scatter.chunks.is_empty() {
            let mut empty = lock(&self.empty);
            scatter.chunks = (0..self.threads).map(|_| empty.pop().unwrap_or_default()).collect();
        }
        while !self.has_failed() {
            let Some(&task) = round.tasks.get(self.taken.fetch_add(1, Ordering::Relaxed)) else { break };
            self.source.decode(task, buffer, scatter)?;
        }
        for (part, chunk) in self.full.iter().zip(scatter.chunks.drain(..)) {
            lock(part).push(chunk);
        }
        Ok(())
    }

    fn apply(&self, number: usize, round: &Round, part: &mut Partition) -> Result<(), LogError> {
        for mut chunk in mem::take(&mut *lock(&self.full[number])) {
            let index = part.chunks.len() as u32;
            part.items.extend(chunk.items.drain(..).map(|item| Item { chunk: index, ..item }));
            part.chunks.push(chunk);
        }
        // Blocks are almost in the order of TIDs, which a stable sort exploits. A commit has few entries.
        part.items.sort_by_key(|item| item.tid);
        for commit in part.items.chunk_by_mut(|a, b| a.tid == b.tid) {
            commit.sort_unstable_by_key(|item| (item.hash, item.order));
        }
        let until = round.until.map_or(u64::MAX, end_of);
        let complete = part.items.partition_point(|item| item.tid.bits() < until);
        let Partition { items, chunks, baseless, counts } = part;
        let mut run = Run::default();
        let mut left = &mut items[..complete];
        while let Some(first) = left.first() {
            if let Some(later) = left.get(2 * RUN_VERSIONS) {
                prefetch::line(&raw const chunks[later.chunk as usize].bytes[later.at]);
            }
            let of_first = |item: &&Item| (item.tid, item.hash) == (first.tid, first.hash);
            let count = left.iter().take_while(of_first).count();
            let (same, behind) = left.split_at_mut(count);
            self.gather(same, chunks, &mut run)?;
            left = behind;
            if run.heads.len() >= RUN_VERSIONS {
                self.apply_run(number, &mut run, baseless, counts)?;
            }
        }
        self.apply_run(number, &mut run, baseless, counts)?;
        let mut kept = lock(&self.empty).pop().unwrap_or_default();
        items.drain(..complete);
        for item in &mut *items {
            let at = kept.bytes.len();
            kept.bytes.extend_from_slice(&chunks[item.chunk as usize].bytes[item.at..item.at + item.bytes as usize]);
            (item.chunk, item.at) = (0, at);
        }
        let mut empty = lock(&self.empty);
        empty.extend(chunks.drain(..).map(|mut chunk| {
            chunk.bytes.clear();
            chunk
        }));
        drop(empty);
        chunks.push(kept);
        Ok(())
    }

    /// Makes versions of the entries of one TID, which nearly always have one key.
    fn gather<'c>(&'c self, mut same: &mut [Item], chunks: &'c [Chunk], run: &mut Run<'c>) -> Result<(), LogError> {
        while let Some(&first) = same.first() {
            let (table, rows, key, change) = self.entry(&first, chunks)?;
            let begin = run.changes.len();
            run.changes.push(change);
            let mut count = 1;
            if same.len() > 1 {
                let is_this =
                    |item: &Item| self.entry(item, chunks).is_ok_and(|(of, _, other, _)| (of, other) == (table, key));
                // Entries of several keys may be mixed. Those of this key come first, in their order.
                same.sort_by_key(|item| !is_this(item));
                count = same.partition_point(is_this).max(1);
            }
            let (these, rest) = same.split_at_mut(count);
            let (mut rows, mut layout) = (rows, first.layout);
            for item in &these[1..] {
                let (_, of, _, change) = self.entry(item, chunks)?;
                if item.layout != layout {
                    // The commit took the row out of an earlier layout, and perhaps put it into this one.
                    match (run.changes.get(begin), &change) {
                        (Some(Change::Delete), Change::Row(_)) => (rows, layout) = (of, item.layout),
                        _ => continue,
                    }
                }
                if is_whole(&change) {
                    run.changes.truncate(begin);
                }
                run.changes.push(change);
            }
            let changes = begin..run.changes.len();
            let Item { tid, order, .. } = first;
            run.heads.push(Head { table, key, layout, rows, tid, order, changes });
            same = rest;
        }
        Ok(())
    }

    /// Applies the versions of a run and empties it.
    fn apply_run(
        &self,
        number: usize,
        run: &mut Run<'_>,
        baseless: &mut HashMap<(TableId, KeyBuf), (Tid, u64), Mixed>,
        counts: &mut Counts,
    ) -> Result<(), LogError> {
        let Run { heads, changes, outcomes } = run;
        let versions = heads.iter().map(|head| {
            let &Head { table, key, layout, rows, tid, .. } = head;
            Version { table, layout, rows, key, tid, changes: &changes[head.changes.clone()] }
        });
        let versions: Vec<Version<'_>> = versions.collect();
        self.apply.apply_all(number, &versions, outcomes)?;
        for ((head, version), outcome) in heads.iter().zip(&versions).zip(outcomes.drain(..)) {
            let &Head { table, key, tid, order, .. } = head;
            let is_whole = is_whole(&version.changes[0]);
            counts.versions += 1;
            match outcome {
                Outcome::NoBase if !is_whole => {
                    baseless.entry((table, key.to_buf())).or_insert((tid, order));
                }
                outcome => {
                    counts.older += u64::from(outcome == Outcome::Older);
                    if !baseless.is_empty() && is_whole {
                        baseless.remove(&(table, key.to_buf()));
                    }
                }
            }
        }
        heads.clear();
        changes.clear();
        Ok(())
    }

    /// Decodes an item. It was checked when it was copied.
    fn entry<'c>(&'c self, item: &Item, chunks: &'c [Chunk]) -> Result<Said<'c>, LogError> {
        let mut bytes = &chunks[item.chunk as usize].bytes[item.at..item.at + item.bytes as usize];
        let known = self
            .tables
            .get(item.layout)
            .and_then(|(table, rows)| Some((table, rows, rows.decode_key(&mut bytes).ok()?)));
        let Some((table, rows, key)) = known else {
            let (file, offset) = self.source.place(item.order);
            return Err(LogError::corrupt(
                &file,
                offset,
                "an entry changed in memory",
                "check the memory of this machine",
            ));
        };
        let change = match item.kind {
            Kind::Row => Change::Row(bytes),
            Kind::Delete => Change::Delete,
            Kind::Patch => Change::Patch(bytes),
            Kind::Delta => Change::Delta(bytes),
        };
        Ok((table, rows, key, change))
    }
}
