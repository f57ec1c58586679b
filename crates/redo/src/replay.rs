//! Replay: the log of a directory, read for recovery.
//!
//! [`Replay::open`] walks the batches' headers and decides how far the log reaches; [`Replay::run`] reads the
//! batches and hands every version that counts to an [`Apply`], the versions of a key by one thread and in the
//! order of their TIDs.
//!
//! **What counts.** An incarnation's durable epoch D is the smallest closed epoch that its loggers have
//! recorded. Its entries with epochs up to D count: each logger has closed D, so they are all there, from all
//! loggers, and epochs are consistent cuts. What is above D is void, now and in every later recovery, whose
//! manifest records D. Nothing below the checkpoint's begin counts either: a row that was deleted before the
//! checkpoint began is not in it, and must not come back from a batch that outlived its deletion's.
//!
//! **Patches without a row.** Let a fuzzy checkpoint begin in epoch B and end in e. The pass began when all
//! commits below B were in memory, so of each key it holds the newest version below B, or one from B to e, or
//! no row where it saw none. Replay meets a patch of TID s, from B on, in one of these states:
//! - *An older version*: the one that was patched. All versions of the key between the checkpoint's and s are
//!   replayed before s.
//! - *A version of TID s or above*, from the checkpoint: it says what the patch says, and more.
//! - *No row.* Something was there to be patched, so what was there has been deleted again when the pass came
//!   by, and that deletion is of an epoch up to e. A checkpoint counts only if e is durable; so the deletion is
//!   replayed, with a TID above s.
//!
//! A checkpoint that leaves out rows of B and later ([`crate::checkpoint`]) adds no state: their first entry
//! from B on is a row or a deletion.
//!
//! So a patch without a row is lawful at first. It is noted by its key; the next row or deletion of that key
//! strikes it out, and what is left at the end is damage. Deltas likewise.
//!
//! **Patches and deltas need the version before theirs**: a patch for the columns that it does not name, a
//! delta for the one that it does. A patch applied twice would be one; a delta would not. Each is applied once,
//! and to the version just below its TID:
//! - TIDs rise from one version of a key to the next, in every log, incarnation and life of the key, so a TID
//!   names a version.
//! - A row in a checkpoint and its TID were read together: it has all that was added up to that TID, and
//!   nothing above it.
//! - Versions of a key are handed on in the order of their TIDs, all that count above the row's, none left out: an
//!   epoch is applied
//!   when every log has told all of it. [`Apply`] passes over TIDs that are not above the row's, so what came with the
//!   checkpoint, or is replayed again, is not added again.
//! - A batch counts once, by its number, and its groups are in no other. So entries of one key and TID are different
//!   ones of one
//!   commit, made one version, and each is applied.
//!
//! Reading order: `log_scan` finds the log's end, `partitioned` divides the work, `apply` is what the caller
//! implements.

mod apply;
pub(crate) mod log_scan;
pub(crate) mod partitioned;
#[cfg(all(test, not(loom)))]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use seriatim_base::disk::Disk;
use seriatim_base::{Epoch, Tid};

use self::log_scan::{Batch, Incarnation, LogScan};
use self::partitioned::{Counts, Round, Scatter, Source};
use crate::LogError;
use crate::entry::{self, Change};
use crate::manifest::{self, Manifest};
use crate::tables::Tables;

pub use self::apply::{Apply, Outcome, Version};

/// Bytes of batches that are read before they are applied, or one batch if it is larger.
const ROUND_BYTES: u64 = if cfg!(test) { 8 << 10 } else { 8 << 20 };

/// The end of a logger's log was torn by a power cut: what was being written then, and was never acknowledged,
/// is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The segment.
    pub file: PathBuf,
    /// Where the log ends in it.
    pub offset: u64,
    /// Bytes behind that, up to the last that is not zero.
    pub bytes: u64,
}

impl std::fmt::Display for Torn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Torn { file, offset, bytes } = self;
        write!(f, "{} ends at byte {offset}: ignored {bytes} bytes of a write that was cut short", file.display())
    }
}

/// What was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Bytes read.
    pub bytes: u64,
    /// Versions handed on.
    pub versions: u64,
    /// Those of them that something newer, or they themselves, were there for.
    pub older: u64,
}

/// The log of a database directory.
#[derive(Debug)]
pub struct Replay {
    scan: LogScan,
    tables: Tables,
    begin: Epoch,
}

impl Replay {
    /// Looks at the log of a directory: at every batch's header, and at the last batch of each logger. Keeps
    /// some 100 bytes for each batch.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] if something is missing or damaged in front of something that is there, or
    /// something that was durable is not there; [`LogError::Format`] for segments of a newer format;
    /// [`LogError::Io`].
    pub fn open(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<Replay, LogError> {
        let scan = LogScan::of(disk, directory, manifest)?;
        scan.check(manifest)?;
        Ok(Replay::new(scan, manifest))
    }

    /// As [`Replay::open`], for a database that may be in use: finds what a power cut could have left
    /// meanwhile. It counts only if the manifest is still the same when all was read; otherwise segments may
    /// have been deleted under the look, the oldest first, which nothing else would tell.
    ///
    /// # Errors
    /// As [`Replay::open`]. A batch that is being written may look like damage: that has to be found again.
    pub fn look(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<Replay, LogError> {
        Ok(Replay::new(LogScan::while_written(disk, directory, manifest)?, manifest))
    }

    fn new(scan: LogScan, manifest: &Manifest) -> Replay {
        let begin = manifest.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.begin_epoch);
        Replay { scan, tables: Tables::new(manifest), begin }
    }

    /// The newest epoch that counts: of the last incarnation with a log, or the one that the manifest tells.
    pub fn durable(&self) -> Epoch {
        self.scan.durable
    }

    /// The newest epoch seen anywhere, also in what is void. The next incarnation begins above it.
    pub fn newest(&self) -> Epoch {
        self.scan.newest
    }

    /// The durable epochs found, by incarnation number. Those that the checkpoint made superfluous are not among them.
    pub fn incarnations(&self) -> impl Iterator<Item = (u64, Epoch)> {
        self.scan.incarnations.iter().map(|incarnation| (incarnation.number, incarnation.durable))
    }

    /// The incarnations of the manifest as the next one should have them: each says up to which epoch and batch
    /// it counts. For when what counts is secured ([`Replay::secure`]), and nothing is written to their logs
    /// any more.
    pub fn ended_incarnations(&self, manifest: &Manifest) -> Vec<manifest::Incarnation> {
        let mut ended = manifest.incarnations.clone();
        for incarnation in &mut ended {
            let found = self.scan.incarnations.iter().find(|found| found.number == incarnation.number);
            if let Some(found) = found
                && (incarnation.durable_epoch.is_none() || incarnation.ends.is_empty())
            {
                incarnation.durable_epoch = Some(found.durable);
                incarnation.ends = self.scan.ends(found);
            }
        }
        ended
    }

    /// Where loggers' logs were torn, in the last incarnation.
    pub fn torn(&self) -> &[Torn] {
        &self.scan.torn
    }

    /// Makes sure that what counts is on the disk, and not only in the memory of the machine, as it may be
    /// where the process that wrote the log has ended and the machine has not, or where a flush had failed.
    /// Before anything says that it counts: the manifest, or an answer. What is there is written again, and
    /// nothing else.
    ///
    /// # Errors
    /// [`LogError::Io`]; then the database is not opened. [`LogError::Corrupt`] if it cannot be read any more.
    pub fn secure(&self, disk: &dyn Disk) -> Result<(), LogError> {
        self.scan.secure(disk)
    }

    /// Bytes that [`Replay::run`] will read.
    pub fn bytes(&self) -> u64 {
        self.wanted().map(Batch::bytes).sum()
    }

    /// Batches that [`Replay::run`] will read.
    pub fn batches(&self) -> u64 {
        self.wanted().count() as u64
    }

    /// Leaves a logger's log out, for a canary.
    #[cfg(feature = "canary")]
    pub fn forget_log(&mut self) {
        if let Some(log) = self.scan.logs.last_mut() {
            log.batches.end = log.batches.start;
        }
    }

    fn wanted(&self) -> impl Iterator<Item = &Batch> {
        let Replay { scan, begin, .. } = self;
        scan.incarnations.iter().flat_map(move |incarnation| {
            let logs = scan.logs_of(incarnation);
            logs.flat_map(move |log| scan.wanted(incarnation, log, *begin)).map(|at| &scan.batches[at])
        })
    }

    /// Reads the log and applies what counts, by `threads` threads, which is at least one. With one, nothing is
    /// spawned and the order is always the same. `progress` is told the bytes read so far. Nothing is written:
    /// it can be done again at any time, and applying everything twice is applying it once.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] for a batch that is damaged, or a change of a row that there never was;
    /// [`LogError::Io`]; those of `apply`. Some of the log may have been applied by then.
    pub fn run(
        &self,
        disk: &dyn Disk,
        threads: usize,
        apply: &dyn Apply,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Replayed, LogError> {
        let source = Log { replay: self, disk, planner: Mutex::new(Planner::default()) };
        let Counts { bytes, versions, older } = partitioned::replay(&source, &self.tables, threads, apply, progress)?;
        Ok(Replayed { bytes, versions, older })
    }
}

/// The log as a source of versions, epoch by epoch.
struct Log<'r> {
    replay: &'r Replay,
    disk: &'r dyn Disk,
    planner: Mutex<Planner>,
}

/// How far the log has been planned.
#[derive(Default)]
struct Planner {
    incarnation: usize,
    /// Of each logger of the incarnation, what is left.
    left: Vec<(std::ops::Range<usize>, Epoch)>,
    begun: bool,
}

impl Log<'_> {
    fn incarnation_of(&self, batch: usize) -> &Incarnation {
        let incarnations = &self.replay.scan.incarnations;
        let after = incarnations.partition_point(|incarnation| incarnation.batches.start <= batch);
        &incarnations[after - 1]
    }
}

impl Source for Log<'_> {
    /// Takes batches from the logger that lags most. When all loggers have closed an epoch in what was taken,
    /// all of its entries have been read: it and those before it can be applied.
    fn next(&self) -> Option<Round> {
        let scan = &self.replay.scan;
        let mut planner = self.planner.lock().unwrap_or_else(PoisonError::into_inner);
        let planner = &mut *planner;
        loop {
            let incarnation = scan.incarnations.get(planner.incarnation)?;
            if !planner.begun {
                planner.begun = true;
                let logs = scan.logs_of(incarnation);
                planner.left = logs.map(|log| (scan.wanted(incarnation, log, self.replay.begin), Epoch(0))).collect();
            }
            let mut round = Round::default();
            while round.bytes < ROUND_BYTES {
                let lagging = planner.left.iter_mut().filter(|(left, _)| !left.is_empty());
                let Some((left, closed)) = lagging.min_by_key(|(_, closed)| *closed) else { break };
                let batch = &scan.batches[left.start];
                round.tasks.push(left.start);
                round.bytes += batch.bytes();
                *closed = batch.header.closed;
                left.start += 1;
            }
            let open = planner.left.iter().filter(|(left, _)| !left.is_empty());
            round.until = open.map(|(_, closed)| *closed).min();
            if round.until.is_none() {
                planner.incarnation += 1;
                planner.begun = false;
            }
            if !round.tasks.is_empty() {
                return Some(round);
            }
        }
    }

    fn decode(&self, task: usize, buffer: &mut Vec<u8>, scatter: &mut Scatter<'_>) -> Result<(), LogError> {
        let Replay { scan, tables, begin } = self.replay;
        let durable = self.incarnation_of(task).durable;
        scan.read(self.disk, task, buffer)?;
        scan.each_group(task, buffer, |group| {
            let epoch = group.tid.epoch();
            if epoch < *begin || epoch > durable {
                return Ok(());
            }
            for entry in group.entries(tables) {
                let entry = entry?;
                let order = (task as u64) << 32 | entry.offset as u64;
                scatter.put(group.tid, order, &entry);
            }
            Ok(())
        })
    }

    fn place(&self, order: u64) -> (PathBuf, u64) {
        let batch = &self.replay.scan.batches[(order >> 32) as usize];
        (self.replay.scan.file(batch).to_owned(), batch.offset)
    }
}

/// The TIDs of an epoch and those before it are below this.
pub(crate) fn end_of(epoch: Epoch) -> u64 {
    epoch.0.saturating_add(1).checked_shl(Tid::COUNTER_BITS).filter(|_| epoch.0 < u64::MAX >> 30).unwrap_or(u64::MAX)
}

/// Whether a change says what the row is, whatever was there.
pub(crate) fn is_whole(change: &Change<'_>) -> bool {
    matches!(change, Change::Row(_) | Change::Delete)
}

/// What can be done about a damaged log.
pub(crate) const ADVICE: &str = "restore a backup; what follows in the log cannot be recovered without what is damaged";

/// A malformed group or entry of a batch that checks out.
pub(crate) fn malformed(file: &Path, offset: u64, error: &entry::EntryError) -> LogError {
    let at = offset + (crate::batch::HEADER_BYTES + error.offset) as u64;
    let problem = format!("the batch's checksum is right, and yet {}", error.problem);
    LogError::corrupt(file, at, problem, "open the database with the program that wrote it, or restore a backup")
}
