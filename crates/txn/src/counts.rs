//! Rows and bytes of each table.
//!
//! Each worker counts for itself what its own commits change: plain additions to words that no other worker
//! writes. The reader adds up. So the numbers are exact when no transaction is in the middle of its commit,
//! and otherwise a moment old.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use seriatim_base::TableId;

/// Tables whose counts are contiguous.
const CHUNK: usize = 16;

/// Rows and bytes of one table or index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCount {
    /// Rows committed.
    pub rows: i64,
    /// Bytes of records, newest versions with their texts, and nodes of the index, rounded up as they are allocated.
    pub bytes: i64,
}

/// One worker's counts of [`CHUNK`] tables.
#[derive(Debug, Default)]
struct Chunk {
    counts: [(AtomicI64, AtomicI64); CHUNK],
}

/// The counts of all workers of a database.
#[derive(Debug, Default)]
pub struct Census {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    /// With the id of their first table.
    chunks: Vec<(usize, Arc<Chunk>)>,
    /// The counts of workers that are gone, by table id.
    gone: Vec<TableCount>,
}

impl Census {
    /// Bytes of all tables.
    pub fn bytes(&self) -> i64 {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let there = all.chunks.iter().flat_map(|(_, chunk)| &chunk.counts);
        let there: i64 = there.map(|(_, bytes)| bytes.load(Ordering::Relaxed)).sum();
        there + all.gone.iter().map(|count| count.bytes).sum::<i64>()
    }

    /// The counts of a table.
    pub fn of(&self, table: TableId) -> TableCount {
        let (id, all) = (table.index(), self.all.lock().unwrap_or_else(PoisonError::into_inner));
        let gone = all.gone.get(id).copied().unwrap_or_default();
        let chunks = all.chunks.iter().filter(|(first, _)| *first == id / CHUNK * CHUNK);
        chunks.fold(gone, |sum, (_, chunk)| {
            let (rows, bytes) = &chunk.counts[id % CHUNK];
            TableCount {
                rows: sum.rows + rows.load(Ordering::Relaxed),
                bytes: sum.bytes + bytes.load(Ordering::Relaxed),
            }
        })
    }
}

/// The counts of one worker.
#[derive(Debug)]
pub struct Counts {
    census: Arc<Census>,
    /// By the id of their first table, divided by [`CHUNK`].
    chunks: Vec<Option<Arc<Chunk>>>,
}

impl Counts {
    pub(crate) fn new(census: &Arc<Census>) -> Counts {
        Counts { census: Arc::clone(census), chunks: Vec::new() }
    }

    /// Adds rows and bytes to the counts of a table; negative numbers subtract.
    #[inline]
    pub fn add(&mut self, table: TableId, rows: i64, bytes: i64) {
        let id = table.index();
        let Some(Some(chunk)) = self.chunks.get(id / CHUNK) else { return self.add_first(table, rows, bytes) };
        let (old_rows, old_bytes) = &chunk.counts[id % CHUNK];
        // No locked instruction: no other thread writes them.
        old_rows.store(old_rows.load(Ordering::Relaxed) + rows, Ordering::Relaxed);
        old_bytes.store(old_bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    #[cold]
    fn add_first(&mut self, table: TableId, rows: i64, bytes: i64) {
        let (at, chunk) = (table.index() / CHUNK, Arc::<Chunk>::default());
        if at >= self.chunks.len() {
            self.chunks.resize(at + 1, None);
        }
        let mut all = self.census.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.chunks.push((at * CHUNK, Arc::clone(&chunk)));
        drop(all);
        self.chunks[at] = Some(chunk);
        self.add(table, rows, bytes);
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        let mut all = self.census.all.lock().unwrap_or_else(PoisonError::into_inner);
        let All { chunks, gone } = &mut *all;
        for (at, chunk) in self.chunks.iter().enumerate().filter_map(|(at, chunk)| Some((at, chunk.as_ref()?))) {
            chunks.retain(|(_, other)| !Arc::ptr_eq(other, chunk));
            let first = at * CHUNK;
            if gone.len() < first + CHUNK {
                gone.resize(first + CHUNK, TableCount::default());
            }
            for (sum, (rows, bytes)) in gone[first..].iter_mut().zip(&chunk.counts) {
                sum.rows += rows.load(Ordering::Relaxed);
                sum.bytes += bytes.load(Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_workers_stay_when_the_workers_are_gone() {
        let census = Arc::<Census>::default();
        let (mut one, mut other) = (Counts::new(&census), Counts::new(&census));
        one.add(TableId(3), 5, 500);
        other.add(TableId(3), -2, -150);
        other.add(TableId(40), 1, 8);
        assert_eq!(census.of(TableId(3)), TableCount { rows: 3, bytes: 350 });
        drop(one);
        other.add(TableId(3), 1, 50);
        drop(other);
        assert_eq!(census.of(TableId(3)), TableCount { rows: 4, bytes: 400 });
        assert_eq!(census.bytes(), 408);
        assert_eq!(census.of(TableId(40)), TableCount { rows: 1, bytes: 8 });
        assert_eq!(census.of(TableId(4000)), TableCount::default());
    }
}
