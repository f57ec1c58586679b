//! Finds the end of each logger's log from the headers of its batches.
//!
//! A batch is written only after the batch before it was flushed. So a batch that fails its checksums may be a **torn
//! tail**. It is one if no batch of a higher number has a sound header in the rest of its segment or in later ones. It
//! was never acknowledged, and the log ends there. Otherwise it had been flushed, and is **damaged**. A header is
//! sufficient evidence, since it fits into one sector. Here the payload is read of the last batch only. Earlier
//! payloads are read when they are needed, and must then be sound.
//!
//! **A segment that was cut or is missing** is damage too, whatever it held. A segment is complete before its
//! first batch is written, and states its length. A filled segment ends in a link to the next. The first
//! segment exists before the manifest lists the incarnation. The manifest states how many batches there were
//! when it was written and, for an ended log, where it ends. Bytes behind that end have no meaning.
//!
//! Also damage:
//! - a logger without segments, in an incarnation that was not recovered yet or of which an epoch is durable;
//! - a missing segment or a missing number;
//! - a closed epoch that moves back;
//! - a durable epoch below the one that a batch of any logger, the manifest, or the checkpoint states.
//!
//! After a checkpoint the oldest segments of its incarnation are deleted, so that log may begin late. It begins with a
//! batch that states that every earlier entry is of an epoch before the checkpoint. The remains of the log before such
//! a batch do not matter, even with gaps. A deletion whose sync failed may be undone although later ones lasted.
//!
//! Two cases cannot be distinguished: the last batches of a log were overwritten after a flush, or they were torn or
//! never written. They can be distinguished if something that was written later states the durable epoch. A checkpoint,
//! an orderly close and the next opening do: they write the ends of the logs into the manifest.

use std::ops::Range;
use std::path::{Path, PathBuf};

use seriatim_base::Epoch;
use seriatim_base::disk::{Disk, DiskFile, Opening};

use super::{ADVICE, Torn, malformed};
use crate::LogError;
use crate::batch::{HEADER_BYTES, Header, LINK_BYTES, Link, PAGE, Salt};
use crate::catalogue;
use crate::checkpoint::is_needed;
use crate::entry::{self, EntryError, Group};
use crate::manifest::{LogEnd, Manifest, check_epoch};
use crate::narrow;
use crate::segment::{self, FoundSegment, Name, SEGMENT_BYTES_MAX};

/// Bytes of one read when searching for batches.
const SEARCH_BYTES: usize = if cfg!(test) { 2 * PAGE } else { 256 * PAGE };

/// A batch with a sound header.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The index of its segment in the scan.
    pub segment: u32,
    /// Where it begins in the segment.
    pub offset: u64,
    pub header: Header,
}

impl Batch {
    /// Bytes of header and payload, without padding.
    pub(crate) fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.header.payload_bytes)
    }
}

/// The log of one logger in one incarnation.
#[derive(Clone, Debug)]
pub(crate) struct LoggerLog {
    pub segments: Range<usize>,
    pub batches: Range<usize>,
    /// The epoch that is closed before its first batch.
    pub before: Epoch,
    /// Where it ends.
    pub end: (PathBuf, u64),
    /// The epoch that its last batch closes; the one before the incarnation's first epoch without a batch.
    pub closed: Epoch,
}

/// The logs of one incarnation.
#[derive(Clone, Debug)]
pub(crate) struct Incarnation {
    pub number: u64,
    pub durable: Epoch,
    pub logs: Range<usize>,
    pub batches: Range<usize>,
}

/// The logs of the incarnations that a recovery needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogScan {
    pub segments: Vec<FoundSegment>,
    /// The headers of the segments, where these are sound.
    pub headers: Vec<Option<segment::Header>>,
    /// Ordered by incarnation and logger.
    pub batches: Vec<Batch>,
    pub logs: Vec<LoggerLog>,
    pub incarnations: Vec<Incarnation>,
    pub torn: Vec<Torn>,
    pub durable: Epoch,
    pub newest: Epoch,
}

impl LogScan {
    /// Scans the logs.
    pub(crate) fn of(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<LogScan, LogError> {
        LogScan::scan(disk, directory, manifest, &mut |_, error| Err(error))
    }

    /// Scans logs that may be damaged. Each ends at its first damage. `damage` gets that with the log's index.
    pub(crate) fn up_to_damage(
        disk: &dyn Disk,
        directory: &Path,
        manifest: &Manifest,
        damage: &mut Vec<(usize, LogError)>,
    ) -> Result<LogScan, LogError> {
        LogScan::scan(disk, directory, manifest, &mut |log, error| match error {
            error @ LogError::Corrupt { .. } => {
                damage.push((log, error));
                Ok(())
            }
            error => Err(error),
        })
    }

    /// Scans the logs. `damaged` decides whether the scan goes on behind the damage of a log, which has that index.
    fn scan(
        disk: &dyn Disk,
        directory: &Path,
        manifest: &Manifest,
        damaged: &mut dyn FnMut(usize, LogError) -> Result<(), LogError>,
    ) -> Result<LogScan, LogError> {
        let mut scan = LogScan::default();
        let begin = manifest.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.begin_epoch);
        scan.newest = manifest.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.end_epoch);
        let last = manifest.incarnations.last().map(|incarnation| incarnation.number);
        for incarnation in &manifest.incarnations {
            let before = Epoch(incarnation.first_epoch.0.saturating_sub(1));
            scan.newest = scan.newest.max(before);
            if let Some(durable) = incarnation.durable_epoch {
                scan.newest = scan.newest.max(durable);
                if !is_needed(manifest, incarnation) {
                    // The epochs between the durable epoch of one incarnation and the first epoch of the next are void.
                    if !incarnation.is_void() {
                        scan.durable = durable;
                    }
                    continue;
                }
            }
            let (first_log, first_batch) = (scan.logs.len(), scan.batches.len());
            for (logger, relative) in incarnation.loggers.iter().enumerate() {
                let directory = directory.join(relative);
                let mut found = if disk.find(&directory).map_err(LogError::io("reading the log"))?.is_some() {
                    segment::list(disk, &directory)?
                } else {
                    Vec::new()
                };
                found.retain(|found| {
                    found.name.incarnation == incarnation.number && found.name.logger as usize == logger
                });
                let name = Name { incarnation: incarnation.number, logger: logger as u32, sequence: 1 };
                if found.is_empty() && incarnation.durable_epoch.is_none_or(|durable| durable > before) {
                    let problem = "it is missing, with everything that this logger has written";
                    let advice = "put the directory back, if its disk is not mounted, or restore a backup";
                    let first = directory.join(name.to_string());
                    damaged(scan.logs.len(), LogError::corrupt(&first, 0, problem, advice))?;
                    scan.push_log((scan.segments.len(), scan.batches.len()), before, (first, 0));
                    continue;
                }
                let walk = Walk {
                    disk,
                    database: manifest.database.0,
                    name,
                    begin,
                    may_begin_late: begin > incarnation.first_epoch,
                    before,
                    torn: Some(incarnation.number) == last,
                    end: incarnation.ends.get(logger).copied(),
                    has_ended: incarnation.durable_epoch.is_some(),
                };
                let begins = (scan.segments.len(), scan.batches.len());
                let before_gap = walk.before_gap(&found);
                if let Err(error) = walk.run(&directory, found, &mut scan) {
                    let (place, log) = (error.place(), scan.logs.len());
                    damaged(log, error)?;
                    if scan.segments.len() == begins.0 {
                        // Nothing was read, as a segment is missing. A second error is that again.
                        let _ = walk.run(&directory, before_gap, &mut scan);
                    }
                    if scan.logs.len() == log {
                        walk.end_at_damage(begins, place, &mut scan);
                    }
                }
            }
            let logs = first_log..scan.logs.len();
            let closed = scan.logs[logs.clone()].iter().map(|log| log.closed).min();
            let durable = closed.unwrap_or(before);
            let batches = first_batch..scan.batches.len();
            let durable = incarnation.durable_epoch.unwrap_or(durable);
            if durable > before {
                scan.durable = durable;
            }
            scan.incarnations.push(Incarnation { number: incarnation.number, durable, logs, batches });
        }
        for Batch { header, .. } in &scan.batches {
            scan.newest = scan.newest.max(header.newest).max(header.closed).max(header.durable);
        }
        Ok(scan)
    }

    /// Checks that every epoch that was durable is there.
    pub(crate) fn check(&self, manifest: &Manifest) -> Result<(), LogError> {
        self.incarnations.iter().try_for_each(|incarnation| self.check_one(manifest, incarnation))
    }

    /// As [`LogScan::check`], of one incarnation.
    pub(crate) fn check_one(&self, manifest: &Manifest, incarnation: &Incarnation) -> Result<(), LogError> {
        let logs = &self.logs[incarnation.logs.clone()];
        let Some(lagging) = logs.iter().min_by_key(|log| log.closed) else { return Ok(()) };
        let entry = manifest.incarnations.iter().find(|entry| entry.number == incarnation.number);
        let recorded = entry.and_then(|entry| entry.durable_epoch).map(|epoch| (epoch, "the manifest".to_owned()));
        let first = entry.map_or(Epoch(0), |entry| entry.first_epoch);
        let checkpoint = manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.end_epoch);
        // A checkpoint that ended before this incarnation says nothing about it.
        let checkpoint = checkpoint.filter(|&end| end >= first).map(|epoch| (epoch, "the checkpoint".to_owned()));
        let batches = logs.iter().flat_map(|log| &self.batches[log.batches.clone()]);
        let batch = batches.max_by_key(|batch| batch.header.durable);
        let batch = batch.map(|batch| (batch.header.durable, self.file(batch).display().to_string()));
        let known = [recorded, checkpoint, batch].into_iter().flatten().max_by_key(|(epoch, _)| *epoch);
        if let Some((epoch, source)) = known.filter(|(epoch, _)| *epoch > lagging.closed) {
            let (file, offset) = &lagging.end;
            let problem = format!(
                "the log ends here at epoch {}, but {source} says that epoch {} was durable: batches are missing",
                lagging.closed.0, epoch.0
            );
            return Err(LogError::corrupt(file, *offset, problem, ADVICE));
        }
        Ok(())
    }

    /// Scans and checks the logs of a database that may be in use. The result is a state that a power cut
    /// meanwhile could have left. The logs are scanned twice. If a batch of the first scan states a durable
    /// epoch, all loggers had flushed it, so the second scan must see it.
    pub(crate) fn while_written(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<LogScan, LogError> {
        let known = LogScan::of(disk, directory, manifest)?.known_durable();
        let mut scan = LogScan::of(disk, directory, manifest)?;
        if scan.durable >= known {
            scan.trim();
        }
        scan.check(manifest)?;
        Ok(scan)
    }

    /// Scans and checks the logs of a database that this process has open, up to the ends that the manifest states. The
    /// ends were read one after the other, so batches beyond a state that a power cut could have left are dropped.
    pub(crate) fn up_to_ends(disk: &dyn Disk, directory: &Path, manifest: &Manifest) -> Result<LogScan, LogError> {
        let mut scan = LogScan::of(disk, directory, manifest)?;
        scan.trim();
        scan.check(manifest)?;
        Ok(scan)
    }

    /// Adds a log, whose first segment and first batch these are.
    fn push_log(&mut self, (segment, batch): (usize, usize), before: Epoch, end: (PathBuf, u64)) {
        let closed = self.batches[batch..].last().map_or(before, |batch| batch.header.closed);
        let (segments, batches) = (segment..self.segments.len(), batch..self.batches.len());
        self.logs.push(LoggerLog { segments, batches, before, end, closed });
    }

    /// Drops the batches of a log from this one on.
    pub(crate) fn cut(&mut self, log: usize, batch: usize) {
        let log = &mut self.logs[log];
        log.batches.end = batch;
        log.closed = self.batches[log.batches.clone()].last().map_or(log.before, |batch| batch.header.closed);
    }

    /// The newest durable epoch that any batch states.
    pub(crate) fn known_durable(&self) -> Epoch {
        self.batches.iter().map(|batch| batch.header.durable).max().unwrap_or(Epoch(0))
    }

    /// Drops the last batches of the last incarnation's logs that state a durable epoch which other logs do not
    /// reach. The loggers were scanned one after the other while they wrote. The rest is a state that a power
    /// cut could have left.
    fn trim(&mut self) {
        let Some(incarnation) = self.incarnations.last_mut() else { return };
        let logs = &mut self.logs[incarnation.logs.clone()];
        while let Some(durable) = logs.iter().map(|log| log.closed).min() {
            let batches = &self.batches;
            let ahead = logs
                .iter_mut()
                .find(|log| batches[log.batches.clone()].last().is_some_and(|batch| batch.header.durable > durable));
            let Some(log) = ahead else { break };
            log.batches.end -= 1;
            log.closed = batches[log.batches.clone()].last().map_or(log.before, |batch| batch.header.closed);
        }
        let durable = logs.iter().map(|log| log.closed).min().unwrap_or(incarnation.durable);
        incarnation.durable = incarnation.durable.min(durable);
        self.durable = self.durable.min(durable);
    }

    pub(crate) fn logs_of(&self, incarnation: &Incarnation) -> impl Iterator<Item = &LoggerLog> {
        self.logs[incarnation.logs.clone()].iter()
    }

    pub(crate) fn file(&self, batch: &Batch) -> &Path {
        &self.segments[batch.segment as usize].path
    }

    /// The format of the segment with this batch.
    fn format(&self, batch: &Batch) -> u32 {
        self.headers[batch.segment as usize].map_or(crate::FORMAT, |header| header.format)
    }

    /// The bytes of the batch's header.
    pub(crate) fn encoded_header(&self, batch: &Batch) -> [u8; HEADER_BYTES] {
        let salt = self.headers[batch.segment as usize].map_or(Salt::NONE, |header| header.salt());
        batch.header.narrowed(self.format(batch)).encode(salt)
    }

    /// Where the logs of an incarnation end that counts up to `durable`: behind the batches that close that
    /// epoch. Later batches are void.
    pub(crate) fn ends(&self, incarnation: &Incarnation) -> Vec<LogEnd> {
        let end = |log: &LoggerLog| self.end_of(log.batches.start..self.void_after(log, incarnation.durable));
        self.logs_of(incarnation).map(end).collect()
    }

    /// Where the last of these batches ends.
    pub(crate) fn end_of(&self, batches: Range<usize>) -> LogEnd {
        self.batches[batches].last().map_or(LogEnd::FIRST, |batch| LogEnd {
            segment: self.segments[batch.segment as usize].name.sequence,
            batches: batch.header.number,
            bytes: batch.offset + batch.header.bytes(),
        })
    }

    /// The index of the first batch such that it and all later ones hold only epochs after `durable`.
    pub(crate) fn void_after(&self, log: &LoggerLog, durable: Epoch) -> usize {
        let batches = &self.batches[log.batches.clone()];
        let closing = batches.iter().position(|batch| batch.header.closed >= durable);
        closing.map_or(log.batches.end, |at| log.batches.start + at + 1)
    }

    /// The batches of a log that may hold epochs from `begin` to the durable epoch.
    pub(crate) fn wanted(&self, incarnation: &Incarnation, log: &LoggerLog, begin: Epoch) -> Range<usize> {
        let counting = log.batches.start..self.void_after(log, incarnation.durable);
        let skipped = self.batches[counting.clone()].iter().position(|batch| batch.header.newest >= begin);
        skipped.map_or(counting.end, |at| counting.start + at)..counting.end
    }

    /// Whether entries of this epoch in this batch count, with a checkpoint that begins here.
    pub(crate) fn counts(&self, batch: usize, epoch: Epoch, begin: Epoch) -> bool {
        let after = self.incarnations.partition_point(|incarnation| incarnation.batches.start <= batch);
        (begin..=self.incarnations[after - 1].durable).contains(&epoch)
    }

    /// Whether a recovery reads each batch. It does not if the checkpoint has all its entries, or if they are void.
    pub(crate) fn needed(&self, manifest: &Manifest) -> Vec<bool> {
        let begin = manifest.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.begin_epoch);
        let mut needed = vec![false; self.batches.len()];
        for incarnation in &self.incarnations {
            let wanted = self.logs_of(incarnation).flat_map(|log| self.wanted(incarnation, log, begin));
            wanted.for_each(|batch| needed[batch] = true);
        }
        needed
    }

    /// Reads the payload of a batch without checking it. The result is shorter if the file ends early.
    pub(crate) fn read_raw(&self, disk: &dyn Disk, batch: usize, buffer: &mut Vec<u8>) -> Result<(), LogError> {
        let batch = &self.batches[batch];
        let mut read = || {
            let file = disk.open(self.file(batch), Opening::Read)?;
            let begin = batch.offset + HEADER_BYTES as u64;
            let there = file.bytes()?.saturating_sub(begin).min(u64::from(batch.header.payload_bytes));
            buffer.resize(there as usize, 0);
            file.read_exact_at(buffer, begin)
        };
        read().map_err(LogError::io("reading the log"))
    }

    /// Reads and checks the payload of a batch.
    pub(crate) fn read(&self, disk: &dyn Disk, batch: usize, buffer: &mut Vec<u8>) -> Result<(), LogError> {
        let batch = &self.batches[batch];
        let path = self.file(batch);
        let file = disk.open(path, Opening::Read).map_err(LogError::io("reading the log"))?;
        if read_payload(&*file, batch, buffer).map_err(LogError::io("reading the log"))? {
            return Ok(());
        }
        let problem = format!("the payload of batch {} does not match its checksum", batch.header.number);
        Err(LogError::corrupt(path, batch.offset, problem, ADVICE))
    }

    /// Writes the last batch of each log of the last incarnation again, unchanged, and flushes it. Its writer
    /// may have ended before the flush, or the flush may have failed. Then a power cut could still undo a batch
    /// that this process has read.
    pub(crate) fn secure(&self, disk: &dyn Disk) -> Result<(), LogError> {
        let Some(incarnation) = self.incarnations.last() else { return Ok(()) };
        let (mut payload, mut bytes) = (Vec::new(), Vec::new());
        for at in self.logs_of(incarnation).filter_map(|log| log.batches.clone().last()) {
            let batch = &self.batches[at];
            self.read(disk, at, &mut payload)?;
            bytes.clear();
            bytes.extend_from_slice(&self.encoded_header(batch));
            bytes.extend_from_slice(&payload);
            let write = || {
                let file = disk.open(self.file(batch), Opening::Write)?;
                file.write_all_at(&bytes, batch.offset)?;
                file.sync_data()
            };
            write().map_err(LogError::io("flushing the end of the log"))?;
        }
        Ok(())
    }

    /// Passes on the groups of a batch, and checks them against its header and earlier batches.
    pub(crate) fn each_group(
        &self,
        at: usize,
        payload: &[u8],
        mut each: impl FnMut(Group<'_>) -> Result<(), EntryError>,
    ) -> Result<(), LogError> {
        let batch = &self.batches[at];
        let wrong = |error| malformed(self.file(batch), batch.offset, &error);
        let (mut groups, mut has_catalogue, mut newest) = (0, false, Epoch(0));
        for group in entry::groups(payload) {
            let group = group.map_err(wrong)?;
            groups += 1;
            has_catalogue |= catalogue::is_group(group.body);
            newest = newest.max(group.tid.epoch());
            each(group).map_err(wrong)?;
        }
        let header = &batch.header;
        let newest = narrow::rounded(self.format(batch), newest);
        if (groups, has_catalogue, newest) == (header.groups, header.has_catalogue, header.newest) {
            return Ok(());
        }
        let problem = format!("batch {} does not hold the groups that its header states", header.number);
        Err(LogError::corrupt(self.file(batch), batch.offset, problem, ADVICE))
    }
}

/// Reads a payload. Returns whether it is complete and its checksum right.
fn read_payload(file: &dyn DiskFile, batch: &Batch, buffer: &mut Vec<u8>) -> std::io::Result<bool> {
    let bytes = batch.header.payload_bytes as usize;
    let begin = batch.offset + HEADER_BYTES as u64;
    if file.bytes()?.saturating_sub(begin) < bytes as u64 {
        return Ok(false);
    }
    buffer.resize(bytes, 0);
    match file.read_exact_at(buffer, begin) {
        Ok(()) => Ok(batch.header.holds(buffer)),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// A walk along the segments of one logger.
struct Walk<'d> {
    disk: &'d dyn Disk,
    database: u128,
    /// The name of its first segment.
    name: Name,
    /// The epoch in which the checkpoint began.
    begin: Epoch,
    may_begin_late: bool,
    before: Epoch,
    /// Whether torn ends are reported.
    torn: bool,
    /// Where the log ends according to the manifest: exactly there if it has ended, otherwise at least there.
    end: Option<LogEnd>,
    /// Whether the log has ended and no process writes to it.
    has_ended: bool,
}

/// The bytes behind the end of a log in one segment.
#[derive(Default)]
struct Rest {
    /// Where they begin: the index of the segment in the scan, and the offset.
    place: Option<(usize, u64)>,
    /// Bytes up to the last that is not zero.
    bytes: u64,
    /// Whether the segment has a link to a next one.
    linked: bool,
}

impl Walk<'_> {
    fn run(&self, directory: &Path, mut found: Vec<FoundSegment>, scan: &mut LogScan) -> Result<(), LogError> {
        let (first_segment, first_batch) = (scan.segments.len(), scan.batches.len());
        let exact = self.end.filter(|_| self.has_ended);
        found.retain(|segment| exact.is_none_or(|end| segment.name.sequence <= end.segment));
        let missing = self.skip_to_last_gap(directory, &mut found)?;
        let begins_late = found.first().is_some_and(|segment| segment.name.sequence > 1);
        scan.segments.extend(found);
        let mut next = (!begins_late).then_some(1);
        let mut end: Option<Rest> = None;
        // The first segment existed before the manifest listed the incarnation, or a deleted segment linked to it.
        let mut linked = true;
        for at in first_segment..scan.segments.len() {
            let rest = self.segment(scan, first_batch, at, linked, &mut next, end.as_ref())?;
            linked = rest.linked;
            // The log continues if this segment has batches. Otherwise it ends where the earlier batches ended.
            let goes_on = scan.batches[first_batch..].last().is_some_and(|batch| batch.segment as usize == at);
            if goes_on || end.is_none() {
                end = Some(rest);
            } else if let (Some((segment, offset)), true) = (rest.place, self.torn && rest.bytes > 0) {
                // The log ended in an earlier segment, but this one was also being written.
                scan.torn.push(Torn { file: scan.segments[segment].path.clone(), offset, bytes: rest.bytes });
            }
        }
        if let Some(last) = scan.segments[first_segment..].last().filter(|_| linked && exact.is_none()) {
            let path = directory.join(Name { sequence: last.name.sequence.saturating_add(1), ..last.name }.to_string());
            // If it exists now, a process that is writing the log created it after the directory was listed.
            if self.disk.find(&path).map_err(LogError::io("reading the log"))?.is_none() {
                let problem = format!("the segment is missing, but {} links to it", last.path.display());
                return Err(LogError::corrupt(&path, 0, problem, "put the file back, or restore a backup"));
            }
        }
        self.check_begin(scan, first_batch, begins_late, missing)?;
        let mut end = end.unwrap_or_default();
        self.drop_torn_payload(scan, first_batch, &mut end)?;
        let missing = || (directory.join(self.name.to_string()), 0);
        let place = end.place.map_or_else(missing, |(at, offset)| (scan.segments[at].path.clone(), offset));
        if self.torn && end.bytes > 0 {
            scan.torn.push(Torn { file: place.0.clone(), offset: place.1, bytes: end.bytes });
        }
        let number = scan.batches[first_batch..].last().map_or(0, |batch| batch.header.number);
        if let Some(LogEnd { batches, .. }) = self.end.filter(|end| end.batches > number) {
            let problem = format!("batch {} is missing: the manifest says that {batches} were written", number + 1);
            return Err(LogError::corrupt(&place.0, place.1, problem, ADVICE));
        }
        scan.push_log((first_segment, first_batch), self.before, place);
        Ok(())
    }

    /// The segments before the first that is missing.
    fn before_gap(&self, found: &[FoundSegment]) -> Vec<FoundSegment> {
        let there = found.iter().zip(1..).take_while(|(segment, sequence)| segment.name.sequence == *sequence);
        there.map(|(segment, _)| segment.clone()).collect()
    }

    /// Ends a log where it is damaged, behind the batches that were found before.
    fn end_at_damage(&self, begins: (usize, usize), place: (PathBuf, u64), scan: &mut LogScan) {
        scan.headers.resize(scan.segments.len(), None);
        // Batches behind a gap are of no use if those before it are needed.
        let begins_late = scan.segments.get(begins.0).is_some_and(|first| first.name.sequence > 1);
        let is_void = |first: &Batch| begins_late && first.header.newest_before >= self.begin;
        if scan.batches.get(begins.1).is_some_and(is_void) {
            scan.batches.truncate(begins.1);
        }
        scan.push_log(begins, self.before, place);
    }

    /// Keeps the newest segments without a gap. Returns an error for the newest gap, which matters only if the
    /// segments before it are needed.
    fn skip_to_last_gap(&self, directory: &Path, found: &mut Vec<FoundSegment>) -> Result<Option<LogError>, LogError> {
        let mut expected = match found.first() {
            Some(first) if self.may_begin_late => first.name.sequence,
            _ => 1,
        };
        let (mut begin, mut missing) = (0, None);
        for (at, segment) in found.iter().enumerate() {
            if segment.name.sequence != expected {
                let path = directory.join(Name { sequence: expected, ..self.name }.to_string());
                let problem = format!("the segment is missing, but {} is there", segment.path.display());
                let error = LogError::corrupt(&path, 0, problem, "put the file back, or restore a backup");
                if !self.may_begin_late {
                    return Err(error);
                }
                (begin, missing) = (at, Some(error));
            }
            expected = segment.name.sequence.saturating_add(1);
        }
        found.drain(..begin);
        Ok(missing)
    }

    /// Checks that a log that begins late has lost only entries that the checkpoint has.
    fn check_begin(
        &self,
        scan: &LogScan,
        first_batch: usize,
        begins_late: bool,
        missing: Option<LogError>,
    ) -> Result<(), LogError> {
        let first = scan.batches[first_batch..].first().filter(|_| begins_late);
        match (first, missing) {
            (Some(batch), missing) if batch.header.newest_before >= self.begin => Err(missing.unwrap_or_else(|| {
                let problem = format!("batch {} is the first, but those before it are needed", batch.header.number);
                LogError::corrupt(scan.file(batch), batch.offset, problem, ADVICE)
            })),
            (None, Some(missing)) => Err(missing),
            _ => Ok(()),
        }
    }

    /// Appends the batches of a segment, and returns where they end. A `linked` segment existed as a whole.
    fn segment(
        &self,
        scan: &mut LogScan,
        first_batch: usize,
        at: usize,
        linked: bool,
        next: &mut Option<u64>,
        end: Option<&Rest>,
    ) -> Result<Rest, LogError> {
        let reading = || LogError::io("reading the log");
        let found = scan.segments[at].clone();
        let file = self.disk.open(&found.path, Opening::Read).map_err(reading())?;
        let file = &*file;
        let length = file.bytes().map_err(reading())?;
        let mut offset = PAGE as u64;
        let header = self.header(file, length, &found)?;
        scan.headers.push(header);
        let Some(header) = header else {
            if linked {
                let problem = "the segment's header is damaged, or was cut off";
                return Err(LogError::corrupt(&found.path, 0, problem, ADVICE));
            }
            // In format 1 nothing links segments, but the header is on disk before the first batch is written.
            // So the expected batch itself is evidence, too.
            let expected = next.map_or(0, |next| next.saturating_sub(1));
            let (later, last) = self.search(file, offset, length.min(SEGMENT_BYTES_MAX), expected, Salt::NONE)?;
            if let Some((place, _)) = later {
                let problem = format!("the segment's header is damaged, and there is a batch at byte {place}");
                return Err(LogError::corrupt(&found.path, 0, problem, ADVICE));
            }
            return Ok(Rest { place: Some((at, 0)), bytes: last, linked: false });
        };
        let (salt, format) = (header.salt(), header.format);
        let trimmed = self.end.filter(|end| self.has_ended && end.segment == found.name.sequence).map(|end| end.bytes);
        // Without a link, the power may have been cut while the segment was being made. Its header may be on
        // disk, but not its end.
        let whole = trimmed.or(header.whole_bytes().filter(|_| linked));
        if let Some(whole) = whole.filter(|whole| length < *whole) {
            let problem = format!("the file is cut off: it had {whole} bytes");
            return Err(LogError::corrupt(&found.path, length, problem, ADVICE));
        }
        // Bytes behind the stated length never belonged to the log.
        let bytes = length.min(whole.unwrap_or(u64::MAX));
        let mut page = [0; HEADER_BYTES];
        while let Some(room) = bytes.checked_sub(offset).filter(|room| *room >= HEADER_BYTES as u64) {
            file.read_exact_at(&mut page, offset).map_err(reading())?;
            let header = Header::decode(&page, salt).filter(|header| self.is_next(header, *next, room));
            let Some(header) = header.map(|header| header.widened(format)) else { break };
            if scan.batches[first_batch..].last().is_some_and(|last| last.header.closed > header.closed) {
                let problem = format!("batch {} closes an epoch before the one that was closed", header.number);
                return Err(LogError::corrupt(&found.path, offset, problem, ADVICE));
            }
            for epoch in [header.closed, header.durable, header.newest, header.newest_before] {
                check_epoch(epoch).map_err(|problem| LogError::corrupt(&found.path, offset, problem, ADVICE))?;
            }
            *next = Some(header.number.saturating_add(1));
            scan.batches.push(Batch { segment: at as u32, offset, header });
            offset += header.bytes();
        }
        let link = self.link(file, offset, bytes, salt)?.filter(|link| {
            link.sequence == found.name.sequence.saturating_add(1) && next.is_none_or(|next| next == link.number)
        });
        if let Some(link) = link {
            *next = Some(link.number);
            offset += PAGE as u64;
        }
        let (later, last) =
            self.search(file, offset, bytes.min(offset + SEGMENT_BYTES_MAX), next.unwrap_or(0), salt)?;
        let Some((place, number)) = later else {
            let bytes = last.saturating_sub(offset);
            return Ok(Rest { place: Some((at, offset)), bytes, linked: link.is_some() });
        };
        let here = end.and_then(|rest| rest.place).filter(|_| place == offset);
        let (file, offset) = here.map_or((&found.path, offset), |(at, offset)| (&scan.segments[at].path, offset));
        let expected = next.map_or_else(|| "a batch".to_owned(), |next| format!("batch {next}"));
        let problem = format!(
            "{expected} is missing or damaged, but batch {number} at byte {place} of {} is there",
            found.path.display()
        );
        Err(LogError::corrupt(file, offset, problem, ADVICE))
    }

    /// Reads the segment's header, if it is sound.
    fn header(
        &self,
        file: &dyn DiskFile,
        bytes: u64,
        found: &FoundSegment,
    ) -> Result<Option<segment::Header>, LogError> {
        let mut page = [0; PAGE];
        if bytes < PAGE as u64 {
            return Ok(None);
        }
        file.read_exact_at(&mut page, 0).map_err(LogError::io("reading the log"))?;
        let Some(header) = segment::Header::decode(&page) else { return Ok(None) };
        if header.format > crate::FORMAT {
            let (found, newest) = (header.format.into(), crate::FORMAT.into());
            return Err(LogError::Format { file: file.path().to_owned(), found, newest });
        }
        let problem = match () {
            () if header.database != self.database => "the segment is of another database".to_owned(),
            () if header.name != found.name => format!("the segment is {}, its file was renamed", header.name),
            () => return Ok(Some(header)),
        };
        Err(LogError::corrupt(&found.path, 0, problem, "move the file to where it belongs, or restore a backup"))
    }

    /// Reads the link at an offset, if there is one.
    fn link(&self, file: &dyn DiskFile, offset: u64, bytes: u64, salt: Salt) -> Result<Option<Link>, LogError> {
        if bytes.saturating_sub(offset) < LINK_BYTES as u64 {
            return Ok(None);
        }
        let mut link = [0; LINK_BYTES];
        file.read_exact_at(&mut link, offset).map_err(LogError::io("reading the log"))?;
        Ok(Link::decode(&link, salt).filter(|link| link.incarnation == self.name.incarnation))
    }

    fn is_next(&self, header: &Header, next: Option<u64>, room: u64) -> bool {
        header.incarnation == self.name.incarnation
            && next.is_none_or(|next| header.number == next)
            && HEADER_BYTES as u64 + u64::from(header.payload_bytes) <= room
    }

    /// Searches from `offset` on for the first sound header of batch `number` or a later one. Also returns
    /// where the last byte that is not zero ends.
    fn search(
        &self,
        file: &dyn DiskFile,
        offset: u64,
        bytes: u64,
        number: u64,
        salt: Salt,
    ) -> Result<(Option<(u64, u64)>, u64), LogError> {
        let (mut buffer, mut at, mut last) = (vec![0; SEARCH_BYTES], offset, 0);
        while at < bytes {
            let piece = &mut buffer[..usize::try_from(bytes - at).unwrap_or(usize::MAX).min(SEARCH_BYTES)];
            file.read_exact_at(piece, at).map_err(LogError::io("reading the log"))?;
            for (page, begin) in piece.chunks(PAGE).zip((at..).step_by(PAGE)) {
                let Some(used) = page.iter().rposition(|&byte| byte != 0) else { continue };
                last = begin + used as u64 + 1;
                let header = Header::decode(page, salt).filter(|header| header.incarnation == self.name.incarnation);
                // Batch `number` at its own place does not fit there. It does not prove that a later batch was written.
                let later =
                    header.filter(|header| header.number > number || (header.number == number && begin > offset));
                if let Some(header) = later {
                    return Ok((Some((begin, header.number)), last));
                }
            }
            at += piece.len() as u64;
        }
        Ok((None, last))
    }

    /// If the payload of the last batch is torn, the log ends before that batch.
    fn drop_torn_payload(&self, scan: &mut LogScan, first_batch: usize, end: &mut Rest) -> Result<(), LogError> {
        let Some(last) = scan.batches[first_batch..].last() else { return Ok(()) };
        let path = scan.file(last);
        let file = self.disk.open(path, Opening::Read).map_err(LogError::io("reading the log"))?;
        if read_payload(&*file, last, &mut Vec::new()).map_err(LogError::io("reading the log"))? {
            return Ok(());
        }
        end.place = Some((last.segment as usize, last.offset));
        end.bytes += last.bytes();
        scan.batches.pop();
        Ok(())
    }
}
