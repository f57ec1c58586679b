//! Timestamps of absences and ranges, for protocols whose order is that of timestamps.
//!
//! An unchanged node version proves that no record was linked until now. It does not prove that later links belong
//! later in the order of timestamps. So a transaction that relies on a node version announces its timestamp. Each
//! worker has a few words for this, each for some of the tables. (A word for each leaf would move when leaves split,
//! and only insertions read the words.)

use std::sync::atomic::AtomicUsize;

use seriatim_base::thread::Touch;
use seriatim_base::word::{AtomicU64, Ordering};
use seriatim_base::{CacheAligned, TableId, Tid, WorkerId};
use seriatim_memory::Memory;

use super::origin::Origin;
use super::writes::Write;

/// Words of a worker: two tables have one in common if their ids are equal modulo this.
const LANES: usize = 16;

/// A set of tables, as far as the words of a worker distinguish them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lanes(u16);

impl Lanes {
    pub fn add(&mut self, table: TableId) {
        self.0 |= 1 << (table.index() % LANES);
    }

    fn has(self, lane: usize) -> bool {
        self.0 & 1 << lane != 0
    }
}

/// The timestamps up to which absences and ranges proved by node versions are valid. For each worker and table it is
/// the newest timestamp of a transaction that relied on one. A transaction that gives a key of the table its first row
/// commits above all of them. Timestamps are the bits of TIDs, or another number by which the protocol orders
/// transactions.
///
/// A transaction that relies on a node version announces this first, and validates the node version then. One
/// that links a record changes the node version first, and loads these words then; both with a fence between.
/// So one of the two finds the other.
#[derive(Debug)]
pub struct Absences {
    by_worker: Box<[CacheAligned<[AtomicU64; LANES]>]>,
    /// Workers there have been.
    workers: AtomicUsize,
}

impl Absences {
    pub fn new(memory: &Memory) -> Absences {
        let by_worker = (0..memory.workers_max()).map(|_| CacheAligned::default()).collect();
        Absences { by_worker, workers: AtomicUsize::new(0) }
    }

    /// A worker that may rely on absences.
    pub fn add(&self, worker: WorkerId) {
        self.workers.fetch_max(usize::from(worker.0) + 1, Ordering::SeqCst);
    }

    /// The worker relies on absences in `table` at `at`. A fence follows.
    pub fn rely(&self, worker: WorkerId, table: TableId, at: u64) {
        let own = &self.by_worker[usize::from(worker.0)][table.index() % LANES];
        if own.load(Ordering::Relaxed) < at {
            crate::step(Touch::Store, own);
            // ORDERING: releases the epoch of the transaction, whether it is part of `at` or was read before.
            own.store(at, Ordering::Release);
        }
    }

    /// The newest timestamp of transactions that relied on absences in these tables, and perhaps in others. It takes
    /// one walk over the workers, whose words are a line each.
    pub fn newest(&self, tables: Lanes) -> u64 {
        if tables.0 == 0 {
            return 0;
        }
        let workers = &self.by_worker[..self.workers.load(Ordering::SeqCst)];
        let newest = workers.iter().map(|own| {
            crate::step(Touch::Header, &own[0]);
            let words = own.iter().enumerate().filter(|&(lane, _)| tables.has(lane));
            words.map(|(_, word)| word.load(Ordering::Acquire)).max().unwrap_or_default()
        });
        newest.max().unwrap_or_default()
    }

    /// The lower bound for a transaction that is about to commit these writes, which are linked and locked. If it gives
    /// a key its first row, it must be above the timestamps of all transactions that relied on absences. (Above those
    /// of deletions of which nothing is left it is already: `Attempt::note_unlinked`.) A fence came before.
    pub fn below_first_rows<O: Origin>(&self, entries: &[Write<O>]) -> Tid {
        let mut tables = Lanes::default();
        for write in entries.iter().filter(|write| write.expected.tid() == Tid::ZERO) {
            tables.add(write.table().id);
        }
        Tid::from_bits(self.newest(tables))
    }
}
