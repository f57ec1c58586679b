//! Salvage: a copy of a damaged directory up to its first damage, and what it lacks.
//!
//! Each log ends at its first damage. Epochs are consistent cuts. So the copy ends with the newest epoch that all logs
//! of the first damaged incarnation close before their damage. Everything up to it is there, and nothing later. The
//! copy has no later incarnation, as its transactions may have read what is lost.
//!
//! The checkpoint counts only together with the log up to its last epoch. If either is damaged there is no state of one
//! moment to return to: the log before the checkpoint was deleted.

use std::path::{Path, PathBuf};

use seriatim_base::Epoch;
use seriatim_base::disk::{Disk, Opening};

use super::{Copied, PIECE_BYTES, Progress, copy, prepare};
use crate::batch::PAGE;
use crate::checkpoint::Parts;
use crate::manifest::Manifest;
use crate::replay::log_scan::{Incarnation, LogScan, LoggerLog};
use crate::segment::{self, FoundSegment, Name};
use crate::{LogError, Tables, catalogue};

const WHAT: &str = "salvaging a database";

/// A copy up to the first damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// The copy.
    pub copied: Copied,
    /// The newest epoch that was durable, as far as the undamaged files say.
    pub known: Epoch,
    /// The damage, the first of each log.
    pub damage: Vec<Damaged>,
    /// What the copy lacks, by segment.
    pub lost: Vec<Lost>,
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damaged {
    /// The file, or its path if it is missing.
    pub file: PathBuf,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The fault.
    pub problem: String,
}

/// What the copy lacks of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The segment.
    pub file: PathBuf,
    /// Where the part begins that the copy lacks.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Transactions in its batches that have sound headers.
    pub transactions: u64,
    /// Its bytes that are in no such batch, so that nothing is known of them.
    pub unknown_bytes: u64,
}

/// Copies a database that no process has open, up to its first damage, into a directory that is missing or empty. A
/// database without damage is copied whole.
///
/// # Errors
/// [`LogError::Corrupt`] if no earlier state can be made, as the manifest, the checkpoint, or the log that the
/// checkpoint needs is damaged. Others as [`super::backup`].
pub fn salvage(disk: &dyn Disk, from: &Path, to: &Path, progress: &Progress<'_>) -> Result<Salvaged, NotSalvaged> {
    let room = prepare(disk, from, to)?;
    let salvaged = Salvage::find(disk, from).and_then(|(found, salvaged)| -> Result<Salvaged, NotSalvaged> {
        let (copied_manifest, copied) = copy(disk, from, to, &found.manifest, &found.scan, progress)?;
        copied_manifest.write(disk, to).map_err(LogError::from)?;
        Ok(Salvaged { copied, ..salvaged })
    });
    salvaged
        .map_err(|NotSalvaged { error, is_checkpoint }| NotSalvaged { error: room.clear(disk, error), is_checkpoint })
}

/// Why there is no copy.
#[derive(Debug)]
pub struct NotSalvaged {
    /// The error.
    pub error: LogError,
    /// Whether only the checkpoint is damaged: then rows of it can be read, and the log.
    pub is_checkpoint: bool,
}

impl From<LogError> for NotSalvaged {
    fn from(error: LogError) -> NotSalvaged {
        NotSalvaged { error, is_checkpoint: false }
    }
}

/// What is to be copied.
struct Salvage {
    manifest: Manifest,
    scan: LogScan,
}

impl Salvage {
    fn find(disk: &dyn Disk, from: &Path) -> Result<(Salvage, Salvaged), NotSalvaged> {
        let mut manifest = Manifest::read(disk, from)?;
        let mut damage = Vec::new();
        let mut scan = LogScan::up_to_damage(disk, from, &manifest, &mut damage)?;
        let (whole, unread) = (scan.logs.clone(), damage.iter().map(|(log, _)| *log).collect::<Vec<usize>>());
        cut_damaged(disk, &manifest, &mut scan, &mut damage)?;
        let mut salvaged = Salvaged { known: known(&manifest, &scan), ..Salvaged::default() };
        let is_damaged = |incarnation: &Incarnation| damage.iter().any(|(log, _)| incarnation.logs.contains(log));
        let first = scan.incarnations.iter().position(is_damaged);
        if let Some(first) = first {
            let incarnation = &mut scan.incarnations[first];
            let reached = scan.logs[incarnation.logs.clone()].iter().map(|log| log.closed).min();
            incarnation.durable = reached.unwrap_or(incarnation.durable).min(incarnation.durable);
            let (durable, number) = (incarnation.durable, incarnation.number);
            let Some(entry) = manifest.incarnations.iter().position(|entry| entry.number == number) else {
                let advice = "close the database, and try again";
                return Err(LogError::corrupt(from, 0, "the manifest changed", advice).into());
            };
            if let Some(checkpoint) = &manifest.checkpoint
                && checkpoint.end_epoch > durable
                && checkpoint.end_epoch >= manifest.incarnations[entry].first_epoch
            {
                let (_, error) = damage.swap_remove(0);
                return Err(without_checkpoint(error, "the checkpoint counts only with the log that is damaged").into());
            }
            salvaged.lost = lost(disk, (from, &manifest), &scan, first, &whole, &unread)?;
            manifest.incarnations.truncate(entry + 1);
            manifest.incarnations[entry].durable_epoch = Some(durable);
            scan.incarnations.truncate(first + 1);
            scan.logs.truncate(scan.incarnations[first].logs.end);
            for log in scan.incarnations[first].logs.clone() {
                let end = scan.void_after(&scan.logs[log], durable);
                scan.cut(log, end);
            }
        }
        check_checkpoint(disk, from, &manifest, &scan).map_err(|error| NotSalvaged {
            is_checkpoint: damage.is_empty() && matches!(error, LogError::Corrupt { .. }),
            error,
        })?;
        salvaged.damage = damage.into_iter().filter_map(|(_, error)| Damaged::of(error)).collect();
        Ok((Salvage { manifest, scan }, salvaged))
    }
}

impl Damaged {
    /// The place of damage; `None` for another error.
    pub fn of(error: LogError) -> Option<Damaged> {
        match error {
            LogError::Corrupt { file, offset, problem, .. } => Some(Damaged { file, offset, problem }),
            _ => None,
        }
    }
}

/// Cuts each log off before its first damaged batch that a recovery would read. Logs that lack durable batches are
/// noted, too.
fn cut_damaged(
    disk: &dyn Disk,
    manifest: &Manifest,
    scan: &mut LogScan,
    damage: &mut Vec<(usize, LogError)>,
) -> Result<(), LogError> {
    let begin = manifest.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.begin_epoch);
    let mut buffer = Vec::new();
    for incarnation in scan.incarnations.clone() {
        for log in incarnation.logs.clone() {
            for batch in scan.wanted(&incarnation, &scan.logs[log], begin) {
                let read = scan.read(disk, batch, &mut buffer);
                match read.and_then(|()| scan.each_group(batch, &buffer, |_| Ok(()))) {
                    Ok(()) => {}
                    Err(error @ LogError::Corrupt { .. }) => {
                        scan.cut(log, batch);
                        damage.push((log, error));
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let is_damaged = damage.iter().any(|(log, _)| incarnation.logs.contains(log));
        if let (false, Err(error)) = (is_damaged, scan.check_one(manifest, &incarnation)) {
            let lagging = incarnation.logs.clone().min_by_key(|log| scan.logs[*log].closed);
            damage.push((lagging.unwrap_or(incarnation.logs.start), error));
        }
    }
    Ok(())
}

/// The newest epoch that was durable, as far as the files say.
fn known(manifest: &Manifest, scan: &LogScan) -> Epoch {
    let recorded = manifest.incarnations.iter().filter_map(|incarnation| incarnation.durable_epoch);
    let checkpoint = manifest.checkpoint.iter().map(|checkpoint| checkpoint.end_epoch);
    recorded.chain(checkpoint).chain([scan.known_durable(), scan.durable]).max().unwrap_or(Epoch(0))
}

/// What a copy lacks that ends with the durable epoch of the incarnation at `first`. `whole` are the logs with the
/// batches behind payloads that are damaged. Behind the damage of an `unread` log no batch was looked for.
fn lost(
    disk: &dyn Disk,
    (from, manifest): (&Path, &Manifest),
    scan: &LogScan,
    first: usize,
    whole: &[LoggerLog],
    unread: &[usize],
) -> Result<Vec<Lost>, LogError> {
    let (mut lost, mut buffer) = (Vec::new(), Vec::new());
    let incarnation = &scan.incarnations[first];
    for (at, log) in whole.iter().enumerate().skip(incarnation.logs.start) {
        let kept = match incarnation.logs.contains(&at) {
            true => log.batches.start..scan.void_after(&scan.logs[at], incarnation.durable),
            false => log.batches.start..log.batches.start,
        };
        let end = scan.end_of(kept.clone());
        for segment in log.segments.clone() {
            let found = &scan.segments[segment];
            let is_of_segment = |batch: &usize| scan.batches[*batch].segment as usize == segment;
            let mut transactions = 0;
            // Batches that are kept may have later epochs, too.
            for batch in log.batches.clone().filter(is_of_segment) {
                let header = &scan.batches[batch].header;
                if header.newest > incarnation.durable {
                    transactions += count(disk, scan, batch, incarnation.durable, &mut buffer)?;
                }
            }
            let offset = match (found.name.sequence.cmp(&end.segment), kept.is_empty()) {
                (std::cmp::Ordering::Less, false) => continue,
                (std::cmp::Ordering::Equal, false) => end.bytes,
                _ => PAGE as u64,
            };
            let last = (kept.end..log.batches.end).rfind(is_of_segment);
            let known = last.map_or(offset, |batch| scan.end_of(batch..batch + 1).bytes);
            let used = if unread.contains(&at) { last_used(disk, &found.path)?.max(known) } else { known };
            if used > offset || transactions > 0 {
                let (bytes, unknown_bytes) = (used - offset, used - known);
                lost.push(Lost { file: found.path.clone(), offset, bytes, transactions, unknown_bytes });
            }
        }
    }
    for entry in manifest.incarnations.iter().filter(|entry| entry.number >= incarnation.number) {
        for (logger, relative) in entry.loggers.iter().enumerate() {
            // Segments behind one that is missing.
            for found in segments_of(disk, &from.join(relative))? {
                let Name { incarnation, logger: its, sequence } = found.name;
                let is_of_log = incarnation == entry.number && its as usize == logger;
                let end = entry.ends.get(logger).filter(|_| entry.durable_epoch.is_some());
                let is_beyond = end.is_some_and(|end| sequence > end.segment);
                if is_of_log && !is_beyond && scan.segments.iter().all(|known| known.path != found.path) {
                    let bytes = last_used(disk, &found.path)?.saturating_sub(PAGE as u64);
                    let (offset, transactions) = (PAGE as u64, 0);
                    lost.push(Lost { file: found.path, offset, bytes, transactions, unknown_bytes: bytes });
                }
            }
        }
    }
    Ok(lost)
}

/// The segments in a directory; none if it is missing.
fn segments_of(disk: &dyn Disk, directory: &Path) -> Result<Vec<FoundSegment>, LogError> {
    match disk.find(directory).map_err(LogError::io(WHAT))? {
        Some(_) => segment::list(disk, directory),
        None => Ok(Vec::new()),
    }
}

/// The transactions of a batch in epochs after this one; all that its header states if its payload is damaged.
fn count(disk: &dyn Disk, scan: &LogScan, batch: usize, durable: Epoch, buffer: &mut Vec<u8>) -> Result<u64, LogError> {
    let mut transactions = 0;
    let read = scan.read(disk, batch, buffer).and_then(|()| {
        scan.each_group(batch, buffer, |group| {
            transactions += u64::from(group.tid.epoch() > durable);
            Ok(())
        })
    });
    match read {
        Ok(()) => Ok(transactions),
        Err(LogError::Corrupt { .. }) => Ok(u64::from(scan.batches[batch].header.groups)),
        Err(error) => Err(error),
    }
}

/// Where the last byte of a file is that is not zero.
fn last_used(disk: &dyn Disk, path: &Path) -> Result<u64, LogError> {
    let read = || {
        let file = disk.open(path, Opening::Read)?;
        let (mut buffer, mut end) = (vec![0; PIECE_BYTES], file.bytes()?);
        while end > 0 {
            let begin = end.saturating_sub(PIECE_BYTES as u64);
            let piece = &mut buffer[..(end - begin) as usize];
            file.read_exact_at(piece, begin)?;
            if let Some(last) = piece.iter().rposition(|byte| *byte != 0) {
                return Ok(begin + last as u64 + 1);
            }
            end = begin;
        }
        Ok(0)
    };
    match disk.find(path) {
        Ok(None) => Ok(0),
        _ => read().map_err(LogError::io(WHAT)),
    }
}

/// Checks the checkpoint before anything is copied.
fn check_checkpoint(disk: &dyn Disk, from: &Path, manifest: &Manifest, scan: &LogScan) -> Result<(), LogError> {
    let Some(checkpoint) = &manifest.checkpoint else { return Ok(()) };
    let check = || {
        let tables = Tables::new(&catalogue::find(disk, from, manifest, scan)?.catalogue);
        Parts::open(disk, from, manifest, checkpoint)?.verify(disk, &tables, |_| {})
    };
    check().map_err(|error| without_checkpoint(error, "it is the only checkpoint"))
}

/// The damage leaves no state of one moment.
fn without_checkpoint(error: LogError, why: &str) -> LogError {
    match error {
        LogError::Corrupt { file, offset, problem, .. } => {
            let advice = format!("no state before the damage can be made, as {why}: restore a backup");
            LogError::Corrupt { file, offset, problem, advice }
        }
        error => error,
    }
}
