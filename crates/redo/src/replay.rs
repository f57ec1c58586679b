//! Replay reads the log of a directory for recovery.
//!
//! [`Replay::open`] reads the headers of all batches and determines where the log ends. [`Replay::run`] reads
//! the batches and passes every valid version to an [`Apply`]. One thread gets all versions of a key, in the
//! order of their TIDs.
//!
//! **What counts.** The durable epoch D of an incarnation is the smallest closed epoch that its loggers have recorded.
//! Entries of epochs up to D count. Each logger has closed D, so these entries are all on disk, and epochs are
//! consistent cuts. Entries above D are void, now and in every later recovery, whose manifest records D. Entries below
//! the beginning of the checkpoint do not count either. A row that was deleted before the checkpoint began is not in
//! the checkpoint. It must not come back from a batch that outlived the batch of its deletion.
//!
//! **Patches without a row.** Let a fuzzy checkpoint begin in epoch B and end in epoch e. The pass began when
//! all commits below B were in memory. So for each key it holds the newest version below B, or a version from B
//! to e, or no row if it saw none. Replay meets a patch with TID s, from B on, in one of these states:
//! - *An older version*, which the patch changes. All versions of the key between the checkpoint's version and
//!   s are replayed before s.
//! - *A version with TID s or above*, from the checkpoint. It includes the change of the patch.
//! - *No row.* The patch changed a row, so that row was deleted before the pass reached the key, in an epoch up
//!   to e. A checkpoint counts only if e is durable. So the deletion is replayed, with a TID above s.
//!
//! A checkpoint that omits rows of B and later ([`crate::checkpoint`]) adds no state: their first entry from B
//! on is a row or a deletion.
//!
//! So a patch without a row is not an error at first. Its key is noted, and the next row or deletion of the key
//! removes the note. A note that remains at the end is damage. The same holds for deltas.
//!
//! **Patches and deltas need the version before theirs.** A patch needs it for the columns that it omits, a
//! delta for its column. A patch could be applied twice, a delta could not. Each is applied once, to the
//! version just below its TID:
//! - TIDs rise from one version of a key to the next, across logs, incarnations, deletions and inserts. So a
//!   TID identifies a version.
//! - A row of a checkpoint and its TID were read together. The row includes every addition up to that TID, and
//!   none above it.
//! - Every version of a key above the checkpoint's is passed on, in the order of TIDs. An epoch is applied only
//!   when the entries of all logs have been read. [`Apply`] skips a TID that is not above the row's. So an
//!   addition that the checkpoint includes, or that is replayed twice, is not applied again.
//! - A batch counts once, by its number, and no other batch has its groups. So several entries of one key and
//!   TID are different changes of one commit. They form one version, and each is applied.
//!
//! Reading order: `log_scan` finds the end of the log, `partitioned` divides the work among threads, and the
//! caller implements `apply`.

mod apply;
pub(crate) mod log_scan;
pub(crate) mod partitioned;
#[cfg(all(test, not(loom)))]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use seriatim_base::disk::Disk;
use seriatim_base::{Epoch, Tid};

use self::log_scan::{Batch, LogScan};
use self::partitioned::{Counts, Round, Scatter, Source};
use crate::LogError;
use crate::catalogue;
use crate::checkpoint::Sound;
use crate::entry::{self, Change};
use crate::manifest::{self, Manifest};
use crate::tables::Tables;

pub use self::apply::{Apply, Outcome, Version};

/// Bytes of batches that are read in one round, unless one batch is larger.
const ROUND_BYTES: u64 = if cfg!(test) { 8 << 10 } else { 8 << 20 };

/// A torn end of a logger's log. A power cut interrupted a write, which was never acknowledged and is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The segment.
    pub file: PathBuf,
    /// Where the log ends in it.
    pub offset: u64,
    /// Bytes from there to the last byte that is not zero.
    pub bytes: u64,
}

impl std::fmt::Display for Torn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Torn { file, offset, bytes } = self;
        write!(f, "{} ends at byte {offset}: ignored {bytes} bytes of a write that was cut short", file.display())
    }
}

/// Counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Bytes read.
    pub bytes: u64,
    /// Versions passed to `apply`.
    pub versions: u64,
    /// Versions among these that were not above the TID of their row.
    pub older: u64,
}

/// The log of a database directory.
#[derive(Debug)]
pub struct Replay {
    scan: LogScan,
    found: catalogue::Found,
    tables: Tables,
    begin: Epoch,
    /// If rows of the checkpoint are lost: how many of them the log changes.
    missing: Option<AtomicU64>,
}

impl Replay {
    /// Reads the header of every batch of a directory's log, the last batch of each logger, and the catalogue. Keeps
    /// about 100 bytes for each batch.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] if something is missing or damaged before an intact batch, or if a durable batch
    /// is missing. [`LogError::Format`] for segments of a newer format; [`LogError::Io`].
    pub fn open(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<Replay, LogError> {
        let scan = LogScan::of(disk, directory, manifest)?;
        scan.check(manifest)?;
        Replay::new(disk, directory, scan, manifest)
    }

    /// As [`Replay::open`], for a database that may be in use: finds a state that a power cut meanwhile could
    /// have left. The result is valid only if the manifest is still the same after everything was read.
    /// Otherwise segments may have been deleted meanwhile, oldest first, which nothing else would reveal.
    ///
    /// # Errors
    /// As [`Replay::open`]. A batch that is being written may look damaged, so look again before you report damage.
    pub fn look(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<Replay, LogError> {
        Replay::new(disk, directory, LogScan::while_written(disk, directory, manifest)?, manifest)
    }

    /// As [`Replay::open`], where the checkpoint may be damaged. Changes of rows that it lacks are counted and are no
    /// damage.
    ///
    /// # Errors
    /// As [`Replay::open`]; or the damage affects the catalogue.
    pub fn open_sound(
        disk: &dyn Disk,
        directory: &Path,
        manifest: &Manifest,
    ) -> Result<(Replay, Option<Sound>), LogError> {
        let Some(checkpoint) = &manifest.checkpoint else {
            return Ok((Replay::open(disk, directory, manifest)?, None));
        };
        let scan = LogScan::of(disk, directory, manifest)?;
        scan.check(manifest)?;
        let mut sound = Sound::open(disk, directory, manifest, checkpoint)?;
        let found = catalogue::find_in(disk, directory, manifest, &scan, Some(&sound.catalogue()))?;
        let tables = Tables::new(&found.catalogue);
        sound.check(disk, &tables, checkpoint)?;
        let (begin, missing) = (checkpoint.begin_epoch, Some(AtomicU64::new(0)));
        Ok((Replay { scan, found, tables, begin, missing }, Some(sound)))
    }

    /// The number of rows that the log changes and the checkpoint has lost, after [`Replay::run`].
    pub fn missing(&self) -> u64 {
        self.missing.as_ref().map_or(0, |missing| missing.load(Ordering::Relaxed))
    }

    fn new(disk: &dyn Disk, directory: &Path, scan: LogScan, manifest: &Manifest) -> Result<Replay, LogError> {
        let begin = manifest.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.begin_epoch);
        let found = catalogue::find(disk, directory, manifest, &scan)?;
        let tables = Tables::new(&found.catalogue);
        Ok(Replay { scan, found, tables, begin, missing: None })
    }

    /// The catalogue, as it is at the end of the log.
    pub fn catalogue(&self) -> &catalogue::Found {
        &self.found
    }

    /// The layouts of the catalogue.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The newest durable epoch: of the last incarnation with a log, or the one that the manifest states.
    pub fn durable(&self) -> Epoch {
        self.scan.durable
    }

    /// The newest epoch in any batch, void ones included. The next incarnation begins above it.
    pub fn newest(&self) -> Epoch {
        self.scan.newest
    }

    /// The durable epochs that were found, by incarnation number, without incarnations that the checkpoint made
    /// superfluous.
    pub fn incarnations(&self) -> impl Iterator<Item = (u64, Epoch)> {
        self.scan.incarnations.iter().map(|incarnation| (incarnation.number, incarnation.durable))
    }

    /// The incarnations of the manifest, each with its durable epoch and the ends of its logs, for the next
    /// manifest. Call it after [`Replay::secure`], when no process writes to their logs any more.
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

    /// The torn ends of logs in the last incarnation.
    pub fn torn(&self) -> &[Torn] {
        &self.scan.torn
    }

    /// Ensures that the valid log is on disk and not only in the page cache. The process that wrote it may have
    /// ended before a flush, or its flush may have failed. Writes the last batches again, unchanged. Must
    /// precede any statement that the log counts: the manifest, or an answer to a caller.
    ///
    /// # Errors
    /// [`LogError::Io`]: the database must not be opened. [`LogError::Corrupt`] if the batches cannot be read
    /// any more.
    pub fn secure(&self, disk: &dyn Disk) -> Result<(), LogError> {
        self.scan.secure(disk)
    }

    /// The number of bytes that [`Replay::run`] will read.
    pub fn bytes(&self) -> u64 {
        self.wanted().map(Batch::bytes).sum()
    }

    /// The number of batches that [`Replay::run`] will read.
    pub fn batches(&self) -> u64 {
        self.wanted().count() as u64
    }

    /// Omits the log of one logger, for a canary.
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

    /// Reads the log and applies valid versions, on `threads` threads, which is at least one. With one, no
    /// thread is spawned and the order is always the same. `progress` gets the number of bytes read so far.
    /// Replay writes nothing and may be repeated: applying everything twice equals applying it once.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] for a damaged batch, or a change of a row that never existed; [`LogError::Io`];
    /// errors of `apply`. A part of the log may have been applied.
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

/// The part of the log that has been planned.
#[derive(Default)]
struct Planner {
    incarnation: usize,
    /// The remaining batches of each logger of the incarnation, and the epoch that its planned batches close.
    left: Vec<(std::ops::Range<usize>, Epoch)>,
    begun: bool,
}

impl Source for Log<'_> {
    /// Takes batches from the logger that lags most. Once all loggers have closed an epoch in the taken
    /// batches, all its entries have been read. Then it and earlier epochs can be applied.
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
        let Replay { scan, tables, begin, .. } = self.replay;
        scan.read(self.disk, task, buffer)?;
        scan.each_group(task, buffer, |group| {
            if !scan.counts(task, group.tid.epoch(), *begin) {
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

    fn missing(&self) -> Option<&AtomicU64> {
        self.replay.missing.as_ref()
    }

    fn place(&self, order: u64) -> (PathBuf, u64) {
        let batch = &self.replay.scan.batches[(order >> 32) as usize];
        (self.replay.scan.file(batch).to_owned(), batch.offset)
    }
}

/// All TIDs of this epoch and earlier ones are below the result.
pub(crate) fn end_of(epoch: Epoch) -> u64 {
    if epoch.0 >> (Tid::BITS - Tid::COUNTER_BITS) == 0 { (epoch.0 + 1) << Tid::COUNTER_BITS } else { u64::MAX }
}

/// Whether a change determines the whole row, independently of its former version.
pub(crate) fn is_whole(change: &Change<'_>) -> bool {
    matches!(change, Change::Row(_) | Change::Delete)
}

/// Advice for a damaged log.
pub(crate) const ADVICE: &str = "restore a backup; the log behind the damage cannot be recovered";

/// The error for a malformed group or entry in a batch whose checksum is right.
pub(crate) fn malformed(file: &Path, offset: u64, error: &entry::EntryError) -> LogError {
    let at = offset + (crate::batch::HEADER_BYTES + error.offset) as u64;
    let problem = format!("the batch's checksum is right, but {}", error.problem);
    LogError::corrupt(file, at, problem, "open the database with the program that wrote it, or restore a backup")
}
