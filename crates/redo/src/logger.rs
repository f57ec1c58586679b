//! Loggers collect the entries of their writers, write them and flush them.
//!
//! Invariant: a batch is written only after the batch before it was flushed. Progress is published only after
//! the flush.
//!
//! A step: (1) find the epochs in which no writer can write any more, *before* reading the streams. (2) Take the
//! contents of the streams, which include all entries of those epochs. (3) Write them as one batch and flush it. (4)
//! Publish the progress, which moves the durable point. Nothing is written if there is nothing to record: see the
//! module `log`. Between (3) and (4) the logger checks that its segment and directory are where a recovery would look
//! for them. That takes two or three system calls beside the flush.
//!
//! In DBX (§5) workers hand over full buffers, and the logger computes the smallest snapshot number. In Silo
//! (§4.10) loggers publish the smallest epoch of their workers, minus one. Here the logger reads the streams.

use std::sync::{Arc, PoisonError};

use seriatim_base::clock::Instant;
use seriatim_base::{Epoch, Rng, Tid, thread};

use crate::LogError;
use crate::batch::{self, HEADER_BYTES, padded};
use crate::catalogue;
use crate::entry::{self, GROUP_HEADER_BYTES};
use crate::log::{Filled, Shared};
use crate::manifest::LogEnd;
use crate::segment::{self, Failure, Name, SEGMENT_BYTES_MAX, Segment};
use crate::stream::Consumer;
use crate::writer::Slot;

/// A larger buffer for batches is freed when its batch was flushed. A new buffer costs little beside so large a flush.
const BATCH_BYTES_KEPT: usize = if cfg!(test) { 4 << 10 } else { 4 << 20 };

/// Writes the log of some of the writers.
#[derive(Debug)]
pub struct Logger {
    shared: Arc<Shared>,
    index: usize,
    streams: Vec<Stream>,
    segment: Segment,
    /// The next segment, as far as it is prepared.
    next: Option<Segment>,
    /// Whether there was no space for a segment of the usual size, so that the next one is small.
    low: bool,
    sequence: u64,
    /// The source of the nonces of segments.
    nonces: Rng,
    /// The newest epoch of an entry in `segment`.
    newest: Epoch,
    /// The newest epoch of an entry in any batch.
    newest_ever: Epoch,
    /// The filled segment, until the first batch in `segment` is flushed: the segment with the newest batch
    /// must not be deleted.
    left: Option<Filled>,
    /// The number of the last batch.
    number: u64,
    recorded: Epoch,
    closed: Epoch,
    /// The batch that is being collected or written: header, payload, padding.
    batch: Vec<u8>,
    /// Its header, once complete and until the batch is flushed.
    pending: Option<batch::Header>,
}

#[derive(Debug)]
struct Stream {
    slot: usize,
    consumer: Consumer,
    /// Where this step stops reading, in bytes since the stream began.
    until: u64,
}

impl Logger {
    pub(crate) fn new(shared: Arc<Shared>, index: usize, streams: Vec<(usize, Consumer)>) -> Result<Logger, LogError> {
        let mut nonces = Rng::from_seed(shared.start.nonce_seed.wrapping_add(index as u64));
        let nonce = nonces.next_u64();
        let make = |wanted| {
            create(&shared, index, 1, nonce, 0, wanted).and_then(|mut first| match first.prepare(&*shared.disk, ALL) {
                Ok(_) => Ok(first),
                Err(failure) => {
                    first.discard(&*shared.disk);
                    Err(failure)
                }
            })
        };
        let mut first = Err(Failure::Full);
        for wanted in shared.options.first_segment_bytes() {
            if let Err(Failure::Full) = first {
                first = make(wanted);
            }
        }
        let segment = first.map_err(|failure| match failure {
            Failure::Full => LogError::Full { directory: shared.options.directories[index].clone() },
            Failure::Final(error) => error,
        })?;
        let before = Epoch(shared.start.first_epoch.0 - 1);
        Ok(Logger {
            streams: streams.into_iter().map(|(slot, consumer)| Stream { slot, consumer, until: 0 }).collect(),
            shared,
            index,
            segment,
            next: None,
            low: false,
            sequence: 1,
            nonces,
            newest: Epoch(0),
            newest_ever: Epoch(0),
            left: None,
            number: 0,
            recorded: before,
            closed: before,
            batch: Vec::new(),
            pending: None,
        })
    }

    /// Takes a step. `current` is the current epoch, which the caller has just read. Returns whether anything
    /// was flushed. On a failure the log stops or refuses commits, since a step has no caller to report to.
    pub fn step(&mut self, current: Epoch) -> bool {
        if self.shared.is_stopped() {
            return false;
        }
        let _stops = StopsIfPanicking(Arc::clone(&self.shared));
        let flushed_before = self.number;
        match self.try_step(current) {
            Ok(()) => self.shared.set_full(self.index, false),
            Err(Failure::Full) => self.shared.set_full(self.index, true),
            Err(Failure::Final(error)) => self.shared.stop(match self.check_in_place() {
                // The displacement caused the failure.
                Err(displaced) => displaced.to_string(),
                Ok(()) => format!(
                    "{error}; durable commits are on disk, later ones may be lost: export what you need from the open \
                     database, repair the disk, and open the database again"
                ),
            }),
        }
        self.number > flushed_before
    }

    fn try_step(&mut self, current: Epoch) -> Result<(), Failure> {
        if self.pending.is_some() {
            self.write()?;
        }
        let slots = self.streams.iter().map(|stream| &*self.shared.slots[stream.slot]);
        // A writer may announce an epoch that has been closed and then read a later one: what was closed stays closed.
        let closed = Slot::closed(current, slots).max(self.closed);
        for stream in &mut self.streams {
            stream.until = stream.consumer.consumed() + stream.consumer.available();
        }
        let mut has_groups = false;
        loop {
            let (mut header, complete) = self.collect();
            let newest_logged = self.shared.newest_logged();
            let unrecorded = newest_logged > self.recorded && closed > self.recorded;
            if header.groups == 0 && !unrecorded {
                break;
            }
            has_groups |= header.groups > 0;
            header.closed = if complete { closed } else { self.recorded };
            self.seal(header);
            self.write()?;
            if complete {
                break;
            }
        }
        self.closed = closed;
        self.report_positions();
        // The groups are durable once every logger has recorded them. A record without groups wakes no logger,
        // since each epoch would then cost a step of each.
        if has_groups {
            self.shared.wake_behind(self.recorded);
        }
        Ok(())
    }

    /// Takes groups from the streams, up to where this step reads or to the size of a batch. Returns whether it
    /// took all.
    fn collect(&mut self) -> (batch::Header, bool) {
        self.batch.clear();
        self.batch.resize(HEADER_BYTES, 0);
        let (mut groups, mut has_catalogue, mut newest, mut complete) = (0, false, Epoch(0), true);
        'streams: for stream in &mut self.streams {
            while stream.consumer.consumed() < stream.until {
                if self.batch.len() >= self.shared.options.batch_bytes.max(HEADER_BYTES + 1) {
                    complete = false;
                    break 'streams;
                }
                let at = self.batch.len();
                stream.consumer.read(GROUP_HEADER_BYTES, &mut self.batch);
                let (entries_bytes, tid) = entry::group_header(&self.batch[at..]).expect("a group has a header");
                stream.consumer.read(entries_bytes, &mut self.batch);
                has_catalogue |= catalogue::is_group(&self.batch[at + GROUP_HEADER_BYTES..]);
                newest = newest.max(Tid::from_bits(tid).epoch());
                groups += 1;
            }
        }
        // Published before any logger publishes that the epoch is closed.
        self.shared.logged(newest);
        let payload = &self.batch[HEADER_BYTES..];
        let header = batch::Header {
            number: self.number + 1,
            incarnation: self.shared.start.incarnation,
            closed: self.recorded,
            durable: self.shared.recorded(),
            newest,
            newest_before: self.newest_ever,
            groups,
            has_catalogue,
            payload_bytes: u32::try_from(payload.len()).expect("batches are smaller than 4 GiB"),
            payload_crc: crc32fast::hash(payload),
        };
        (header, complete)
    }

    fn seal(&mut self, header: batch::Header) {
        self.batch.resize(padded(self.batch.len()), 0);
        self.pending = Some(header);
    }

    /// Writes and flushes the pending batch. Without space for it, the batch stays pending.
    fn write(&mut self) -> Result<(), Failure> {
        let Some(header) = self.pending else { return Ok(()) };
        let bytes = header.bytes();
        if self.segment.room() < bytes {
            self.roll(bytes, header.number)?;
        }
        // The segment, and so the salt, is known only now.
        self.batch[..HEADER_BYTES].copy_from_slice(&header.encode(self.segment.salt()));
        self.segment.write(&self.batch)?;
        if self.shared.injects_acknowledging_early() {
            self.shared.advance(self.index, header.closed, header.closed);
        }
        let began = Instant::now();
        self.segment.flush(bytes)?;
        self.check_in_place().map_err(Failure::Final)?;
        let progress = &self.shared.loggers[self.index];
        progress.counts.flushed(header.groups, header.payload_bytes, bytes, began.elapsed());
        let end = LogEnd { segment: self.sequence, batches: header.number, bytes: self.segment.end() };
        *progress.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
        if let Some(left) = self.left.take() {
            progress.filled.lock().unwrap_or_else(PoisonError::into_inner).push_back(left);
        }
        // Before waiters of this batch are woken and commit again.
        self.shared.set_full(self.index, false);
        self.pending = None;
        self.batch.clear();
        self.batch.shrink_to(BATCH_BYTES_KEPT);
        self.number = header.number;
        self.newest = self.newest.max(header.newest);
        self.newest_ever = self.newest_ever.max(header.newest);
        self.recorded = header.closed;
        self.closed = self.closed.max(header.closed);
        for stream in &self.streams {
            self.shared.slots[stream.slot].set_flushed(stream.consumer.consumed());
        }
        self.report_positions();
        self.look_ahead(bytes)
    }

    /// Checks that an opening of the database would find what is flushed here.
    fn check_in_place(&self) -> Result<(), LogError> {
        self.shared.check_in_place(&self.shared.options.directories[self.index])?;
        match self.segment.is_removed() {
            true => Err(LogError::Removed { path: self.segment.path.clone() }),
            false => Ok(()),
        }
    }

    /// Frees the unused space of a closed log. The manifest records durably where it ends.
    pub(crate) fn trim(&mut self) {
        self.segment.trim();
        if let Some(next) = self.next.take() {
            next.discard(&*self.shared.disk);
        }
    }

    /// Removes the segments that creating the logger made. It has written nothing.
    pub(crate) fn discard(self) {
        self.segment.discard(&*self.shared.disk);
    }

    fn report_positions(&self) {
        self.shared.advance(self.index, self.recorded, self.closed);
    }

    /// Prepares a part of the next segment, if that is needed soon. A lack of space matters only when it is needed.
    fn look_ahead(&mut self, flushed_bytes: u64) -> Result<(), Failure> {
        if !self.segment.is_half_full() {
            return Ok(());
        }
        let made = self.next_segment(0).map(drop).and_then(|()| self.prepare(segment::piece_after(flushed_bytes)));
        match made {
            Ok(_) => Ok(()),
            Err(Failure::Full) => {
                self.give_up_next();
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Handles a lack of space for the next segment: if it had the usual size, removes it and tries a small one.
    fn give_up_next(&mut self) -> bool {
        let options = &self.shared.options;
        if self.low || options.small_segment_bytes() >= options.segment_bytes {
            return false;
        }
        // If it cannot be removed, its name is taken: preparing it continues when there is space.
        if self.next.as_ref().is_some_and(|next| self.shared.disk.remove_file(&next.path).is_err()) {
            return false;
        }
        self.next = None;
        self.low = true;
        true
    }

    /// Continues in the next segment, which gets room for batch `number` of `bytes` bytes.
    fn roll(&mut self, bytes: u64, number: u64) -> Result<(), Failure> {
        let make = |logger: &mut Logger| {
            logger.next_segment(bytes)?.enlarge(bytes);
            logger.prepare(ALL)
        };
        match make(self) {
            Err(Failure::Full) if self.give_up_next() => make(self)?,
            made => made?,
        };
        if !self.shared.injects_omitting_links() {
            self.segment.link(number)?;
        }
        self.low = false;
        if let Some(next) = self.next.take() {
            let filled = std::mem::replace(&mut self.segment, next);
            self.sequence += 1;
            self.left = Some(Filled { path: filled.path, newest: std::mem::take(&mut self.newest) });
        }
        Ok(())
    }

    fn next_segment(&mut self, bytes: u64) -> Result<&mut Segment, Failure> {
        match &mut self.next {
            Some(next) => Ok(next),
            none => {
                let nonce = self.nonces.next_u64();
                let options = &self.shared.options;
                let wanted = if self.low { options.small_segment_bytes() } else { options.segment_bytes };
                Ok(none.insert(create(&self.shared, self.index, self.sequence + 1, nonce, bytes, wanted)?))
            }
        }
    }

    fn prepare(&mut self, piece: u64) -> Result<bool, Failure> {
        self.next.as_mut().map_or(Ok(true), |next| next.prepare(&*self.shared.disk, piece))
    }
}

/// More than any segment has.
const ALL: u64 = u64::MAX / 2;

/// A segment of the usual size, or a larger one if a batch of `bytes` bytes needs it.
fn create(
    shared: &Shared,
    index: usize,
    sequence: u64,
    nonce: u64,
    bytes: u64,
    wanted: u64,
) -> Result<Segment, Failure> {
    let logger = u32::try_from(index).expect("loggers are few");
    let name = Name { incarnation: shared.start.incarnation, logger, sequence };
    let header = segment::Header { format: crate::FORMAT, database: shared.start.database, name, nonce, bytes: 0 };
    let page = batch::PAGE as u64;
    let usual = wanted.min(SEGMENT_BYTES_MAX).saturating_sub(2 * page).max(page);
    Segment::create(&*shared.disk, &shared.options.directories[index], header, usual.max(bytes))
}

impl Drop for Logger {
    fn drop(&mut self) {
        // No thread flushes the entries of these writers any more.
        self.shared.stop("its loggers ended");
    }
}

/// Stops the log when a logger panics, so that waiters get an error.
struct StopsIfPanicking(Arc<Shared>);

impl Drop for StopsIfPanicking {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop("a logger panicked: open the database again, and report what it printed");
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
