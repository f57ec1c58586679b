//! The log as its database sees it: opened, woken, asked how far it is, closed.
//!
//! Invariant: the durable point D is never above what a recovery would keep, but for epochs in which nothing
//! was logged.
//!
//! Each logger tells two epochs: what it has *recorded* as closed, in a flushed batch, and what it has
//! *closed*: flushed all of, whether a batch says so or not. A recovery keeps the smallest recorded epoch R. If
//! nothing was ever logged above R, then D is the smallest closed epoch, otherwise R; and while something was,
//! loggers with nothing to write record what they have closed. So an idle database writes nothing, an idle
//! logger holds nobody up, and D moves on in both.
//!
//! A failure is final unless it says that the disk is full: the log stops, D stays, waiting callers are told,
//! commits are refused. While the disk is full commits are refused and the batch that found no space is kept
//! and tried again.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use seriatim_base::disk::{Disk, Whereabouts};
use seriatim_base::thread::{Periodic, Waker};
use seriatim_base::{CacheAligned, Epoch};

use crate::batch::PAGE;
use crate::checkpoint::Deleting;
#[cfg(any(test, feature = "canary"))]
use crate::fault::LogFault;
use crate::logger::Logger;
use crate::manifest::LogEnd;
use crate::stream::stream;
use crate::sync::fence;
use crate::writer::{Slot, Writer};
use crate::{Durable, LogError, segment};

/// How a log is written.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// One logger for each, which writes its segments there. They exist; one may be named several times.
    pub directories: Vec<PathBuf>,
    /// The directory of the database, if it has one: what was flushed is lost without its manifest.
    pub database: Option<PathBuf>,
    /// Size of a segment, in bytes, at most [`SEGMENT_BYTES_MAX`](segment::SEGMENT_BYTES_MAX). Larger ones are
    /// made for larger batches.
    pub segment_bytes: u64,
    /// What a worker's stream grows by, in bytes.
    pub chunk_bytes: usize,
    /// When a batch has this many bytes the rest goes into another.
    pub batch_bytes: usize,
    /// Bytes that one writer may have appended and not flushed when it begins another commit.
    pub backlog_bytes_max: u64,
    /// How long a transaction may wait, before it begins, for the disk to get below that. Zero where one thread
    /// steps everything.
    pub backlog_wait_max: Duration,
    /// What is broken.
    #[cfg(any(test, feature = "canary"))]
    pub fault: LogFault,
}

/// No segment is smaller, unless all are, in bytes.
const LEAST_SEGMENT_BYTES: u64 = 16 * PAGE as u64;

impl LogOptions {
    /// The defaults, with one logger for each directory.
    pub fn new(directories: Vec<PathBuf>) -> LogOptions {
        LogOptions {
            directories,
            database: None,
            segment_bytes: 64 << 20,
            chunk_bytes: 64 << 10,
            batch_bytes: 16 << 20,
            backlog_bytes_max: 16 << 20,
            backlog_wait_max: Duration::from_secs(1),
            #[cfg(any(test, feature = "canary"))]
            fault: LogFault::None,
        }
    }

    /// Size of a segment where there is no space for one of the usual size, in bytes: 256 KiB for one of 64
    /// MiB, and never below 64 KiB, which are 15 flushes.
    pub fn small_segment_bytes(&self) -> u64 {
        (self.segment_bytes / 256).max(LEAST_SEGMENT_BYTES).min(self.segment_bytes)
    }

    /// Size of the first segment where there is no space for a small one, in bytes: what was set aside may be for
    /// smaller segments than these.
    fn least_segment_bytes(&self) -> u64 {
        LEAST_SEGMENT_BYTES.min(self.segment_bytes)
    }

    /// The sizes of a first segment, in the order in which they are tried.
    pub(crate) fn first_segment_bytes(&self) -> [u64; 3] {
        [self.segment_bytes, self.small_segment_bytes(), self.least_segment_bytes()]
    }
}

/// Where a log begins, as recovery found it.
#[derive(Clone, Copy, Debug)]
pub struct LogStart {
    /// The database's id.
    pub database: u128,
    /// This opening of it.
    pub incarnation: u64,
    /// Above every epoch that an earlier incarnation can have written. Nothing is logged in an earlier one.
    pub first_epoch: Epoch,
    /// Up to here earlier incarnations are durable.
    pub durable: Epoch,
    /// Random; the nonces of its segments are drawn from it.
    pub nonce_seed: u64,
}

/// What a log has done since it was opened, over all loggers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Batches flushed: one write and one flush each.
    pub batches: u64,
    /// Groups in them: commits, but for very large ones, which are several.
    pub groups: u64,
    /// Bytes written, with headers and padding.
    pub bytes: u64,
    /// Bytes of groups in them.
    pub payload_bytes: u64,
    /// Time spent in flushes.
    pub flush_time: Duration,
    /// The longest flush.
    pub flush_time_max: Duration,
    /// Bytes appended and not flushed now.
    pub backlog_bytes: u64,
}

/// A handle of the log.
#[derive(Clone, Debug)]
pub struct Log {
    shared: Arc<Shared>,
}

impl Log {
    /// Opens a log for writing: makes the first segment of each logger, durably, which none of this incarnation
    /// may be there for ([`segment::delete_unnamed`]). The manifest names the incarnation after that, and
    /// before anything is committed; so an incarnation that it names has segments. Answers the log, a writer
    /// for each worker slot, and the loggers, which somebody has to step: [`Log::spawn`], or the caller.
    ///
    /// # Errors
    /// When the options make no sense, and when a segment cannot be made, also because the disk is full.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        start: LogStart,
        writers: usize,
    ) -> Result<(Log, Vec<Writer>, Vec<Logger>), LogError> {
        let loggers = options.directories.len();
        if loggers == 0 || options.chunk_bytes == 0 || start.first_epoch <= start.durable {
            let problem = "a log needs a directory, chunks that hold something, and epochs that were never used";
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, problem);
            return Err(LogError::io("opening the log")(source));
        }
        let before = Epoch(start.first_epoch.0 - 1);
        let shared = Arc::new(Shared {
            slots: (0..writers).map(|_| CacheAligned(Slot::new())).collect(),
            loggers: (0..loggers).map(|_| CacheAligned(Progress::new(before))).collect(),
            newest_logged: CacheAligned(AtomicU64::new(0)),
            requested: CacheAligned(AtomicU64::new(0)),
            refusing: CacheAligned(AtomicU64::new(0)),
            durable: Arc::new(Durable::new(start.durable)),
            wakers: OnceLock::new(),
            deleting: Mutex::default(),
            disk,
            options,
            start,
        });
        let mut handles = Vec::with_capacity(writers);
        let mut streams: Vec<Vec<_>> = (0..loggers).map(|_| Vec::new()).collect();
        for slot in 0..writers {
            let (producer, consumer) = stream(shared.options.chunk_bytes);
            handles.push(Writer::new(Arc::clone(&shared), slot, producer));
            streams[slot % loggers].push((slot, consumer));
        }
        let numbered = streams.into_iter().enumerate();
        let mut loggers = Vec::with_capacity(numbered.len());
        for (index, streams) in numbered {
            match Logger::new(Arc::clone(&shared), index, streams) {
                Ok(logger) => loggers.push(logger),
                Err(error) => {
                    loggers.into_iter().for_each(Logger::discard);
                    return Err(error);
                }
            }
        }
        Ok((Log { shared }, handles, loggers))
    }

    /// Steps each logger on a thread of its own, every `interval`, when woken, and soon again while somebody
    /// waits for what the step could not flush. `epoch` ends the epoch that it is given, if that is not over,
    /// and answers the current one: it is given the newest that somebody waits for ([`Log::request`]). As a
    /// logger does this only between two flushes, epochs end no faster than the disk flushes them.
    ///
    /// # Errors
    /// When the operating system refuses another thread.
    pub fn spawn(
        &self,
        loggers: Vec<Logger>,
        interval: Duration,
        epoch: impl Fn(Epoch) -> Epoch + Clone + Send + 'static,
    ) -> Result<LogThreads, LogError> {
        let loggers: Vec<_> = loggers.into_iter().map(|logger| Arc::new(Mutex::new(logger))).collect();
        let threads = loggers.iter().enumerate().map(|(index, logger)| {
            let (logger, epoch, shared) = (Arc::clone(logger), epoch.clone(), Arc::clone(&self.shared));
            let step = move || {
                // Only its own thread steps it, until the thread is joined.
                logger.lock().unwrap_or_else(PoisonError::into_inner).step(epoch(shared.requested()));
                if shared.is_behind_request() { interval.min(REQUEST_LOOK) } else { interval }
            };
            Periodic::spawn_paced(&format!("seriatim-log-{index}"), interval, step)
        });
        let threads =
            threads.collect::<Result<Vec<_>, _>>().map_err(LogError::io("starting the threads of the log"))?;
        // Waking is an optimization: a log whose loggers were spawned twice keeps the first wakers.
        let _ = self.shared.wakers.set(threads.iter().map(Periodic::waker).collect());
        Ok(LogThreads { log: self.clone(), threads, loggers })
    }

    /// Has every logger with a thread take a step now. Never waits.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// Somebody waits until `epoch` is durable: the loggers end it and flush it as soon as they have flushed
    /// what they are at. Never waits.
    pub fn request(&self, epoch: Epoch) {
        // ORDERING: before the wake-up, whose lock has a logger that wakes for it see this.
        self.shared.requested.fetch_max(epoch.0, Ordering::AcqRel);
        self.shared.wake();
    }

    /// The newest epoch that somebody waited for.
    pub fn requested(&self) -> Epoch {
        self.shared.requested()
    }

    /// The durable point.
    pub fn durable(&self) -> &Arc<Durable> {
        &self.shared.durable
    }

    /// Whether a commit would be refused now: the log has stopped, or its disk is full.
    #[inline]
    pub fn refuses(&self) -> bool {
        self.shared.refuses()
    }

    /// Whether a commit would be refused now, and why.
    pub fn refusal(&self) -> Option<LogError> {
        self.shared.refuses().then(|| self.shared.refusal())
    }

    /// Has the loggers record `epoch` as closed although nothing was logged in it. The durable point may have
    /// reached it unrecorded before. But when it reaches an epoch that was the current one after this call, a
    /// recovery would find `epoch`. For a checkpoint, whose last epoch the manifest tells.
    pub fn record(&self, epoch: Epoch) {
        self.shared.newest_logged.fetch_max(epoch.0, Ordering::AcqRel);
        // ORDERING: pairs with the fence in `Slot::closed`: a logger that closes an epoch which the caller
        // reads from here on has read a later one before its fence, so that came after this one, and it finds
        // the request.
        fence(Ordering::SeqCst);
    }

    /// An epoch that a recovery would find mentioned, or a later one, though it may not be durable.
    pub fn mentioned(&self) -> Epoch {
        // ORDERING: pairs with the release in `advance`.
        let recorded = self.shared.loggers.iter().map(|progress| progress.recorded.load(Ordering::Acquire));
        Epoch(recorded.max().unwrap_or(0))
    }

    /// Deletes segments of this incarnation in which every entry is of an epoch before `epoch`, oldest first,
    /// and never the one being written. For when a checkpoint that begins at `epoch` is durable. Answers how
    /// many.
    ///
    /// # Errors
    /// When one cannot be deleted; it and the later ones of its logger are kept for the next time.
    pub fn delete_before(&self, epoch: Epoch) -> Result<usize, LogError> {
        let mut deleting = Deleting::default();
        // Recovery expects every segment of an incarnation whose first epoch it needs, also those without an entry.
        if epoch <= self.shared.start.first_epoch {
            return Ok(0);
        }
        // One at a time, so that they go in order; the loggers do not wait for it.
        let _alone = self.shared.deleting.lock().unwrap_or_else(PoisonError::into_inner);
        for progress in &self.shared.loggers {
            let filled = || progress.filled.lock().unwrap_or_else(PoisonError::into_inner);
            let oldest = || filled().front().filter(|oldest| oldest.newest < epoch).map(|oldest| oldest.path.clone());
            while let Some(path) = oldest() {
                let deleted = segment::delete(&*self.shared.disk, &path);
                let is_deleted = deleted.is_ok();
                deleting.add(deleted.map(|()| 1));
                if !is_deleted {
                    break;
                }
                filled().pop_front();
            }
        }
        deleting.end()
    }

    /// Whether the directories of the log and its database are where the log was opened. One that was removed, or has
    /// another in its place, stops the log: nobody would find there what is acknowledged from then on.
    ///
    /// # Errors
    /// [`LogError::Removed`], [`LogError::Replaced`].
    pub fn check_in_place(&self) -> Result<(), LogError> {
        let options = &self.shared.options;
        let checked = options.directories.iter().try_for_each(|directory| self.shared.check_in_place(directory));
        checked.inspect_err(|error| self.shared.stop(error.to_string()))
    }

    /// Stops the log for good, for a reason of the caller's: nothing more becomes durable.
    pub fn stop(&self, reason: &str) {
        self.shared.stop(reason);
    }

    /// What the log has done.
    pub fn statistics(&self) -> LogStatistics {
        let mut sum = LogStatistics::default();
        for progress in &self.shared.loggers {
            progress.counts.add_to(&mut sum);
        }
        sum.backlog_bytes = self.shared.slots.iter().map(|slot| slot.backlog_bytes()).sum();
        sum
    }

    /// An epoch that a recovery finds durable, and where the log of each logger ends at least that finds it.
    pub fn recorded(&self) -> (Epoch, Vec<LogEnd>) {
        // The ends after it: what it was recorded in was flushed before.
        let recorded = self.shared.recorded();
        (recorded, self.ends())
    }

    /// Where the log of each logger ends at least: the batches up to there are flushed.
    pub fn ends(&self) -> Vec<LogEnd> {
        let end = |progress: &CacheAligned<Progress>| *progress.end.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.loggers.iter().map(end).collect()
    }

    /// Ends the log: flushes all that was committed before epoch `after`, to which the caller has advanced the
    /// current epoch, and stops. No commit is under way. `note` is told the epoch that a recovery finds, which
    /// the durable point may be above, and where the logs end, and has the manifest say so; then the space is
    /// given back that the segments have left.
    ///
    /// # Errors
    /// When the log had stopped before or does so now, or the disk is full: then what is not durable is lost.
    /// Those of `note`.
    pub fn close(
        &self,
        mut loggers: Vec<Logger>,
        after: Epoch,
        note: impl FnOnce(Epoch, Vec<LogEnd>) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        // In the first round everything is written, in the second everybody records that.
        for _ in 0..2 {
            loggers.iter_mut().for_each(|logger| {
                logger.step(after);
            });
        }
        let refusal = self.refusal();
        self.shared.close();
        refusal.map_or_else(|| note(self.shared.recorded(), self.ends()), Err)?;
        loggers.iter_mut().for_each(Logger::trim);
        Ok(())
    }
}

/// The threads that step the loggers. Dropping them stops the log where it is: [`LogThreads::close`] ends it in order.
#[derive(Debug)]
pub struct LogThreads {
    log: Log,
    threads: Vec<Periodic>,
    loggers: Vec<Arc<Mutex<Logger>>>,
}

impl LogThreads {
    /// Whether the caller runs on one of them, as what a waker does when it is told; it cannot close the log.
    pub fn is_current(&self) -> bool {
        self.threads.iter().any(Periodic::is_current)
    }

    /// Joins the threads and closes the log, as [`Log::close`].
    ///
    /// # Errors
    /// As [`Log::close`].
    pub fn close(
        self,
        after: Epoch,
        note: impl FnOnce(Epoch, Vec<LogEnd>) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        // Joined, so that nobody else has the loggers.
        drop(self.threads);
        let loggers = self.loggers.into_iter().filter_map(Arc::into_inner);
        let loggers = loggers.map(|logger| logger.into_inner().unwrap_or_else(PoisonError::into_inner));
        self.log.close(loggers.collect(), after, note)
    }
}

/// What writers, loggers and handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slots: Box<[CacheAligned<Slot>]>,
    pub(crate) loggers: Box<[CacheAligned<Progress>]>,
    /// The newest epoch of an entry that a logger has taken out of a stream, or that must be recorded.
    newest_logged: CacheAligned<AtomicU64>,
    /// The newest epoch that somebody waited for.
    requested: CacheAligned<AtomicU64>,
    /// Why commits are refused: full loggers counted, and a bit once the log has stopped.
    refusing: CacheAligned<AtomicU64>,
    pub(crate) durable: Arc<Durable>,
    wakers: OnceLock<Vec<Waker>>,
    /// Held while segments are deleted.
    deleting: Mutex<()>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: LogOptions,
    pub(crate) start: LogStart,
}

const STOPPED: u64 = 1 << 32;

/// How soon a logger looks again that could not flush all that somebody waits for.
const REQUEST_LOOK: Duration = Duration::from_millis(1);

impl Shared {
    #[inline]
    pub(crate) fn refuses(&self) -> bool {
        self.refusing.load(Ordering::Relaxed) != 0
    }

    /// Why commits are refused; the disk may have got space since.
    #[cold]
    pub(crate) fn refusal(&self) -> LogError {
        if let Some(error) = self.durable.error() {
            return error;
        }
        let full = self.loggers.iter().position(|progress| progress.counts.full.load(Ordering::Relaxed) != 0);
        LogError::Full { directory: self.options.directories[full.unwrap_or(0)].clone() }
    }

    pub(crate) fn stop(&self, reason: impl Into<String>) {
        self.durable.stop(reason);
        self.refusing.fetch_or(STOPPED, Ordering::AcqRel);
    }

    fn close(&self) {
        self.durable.close();
        self.refusing.fetch_or(STOPPED, Ordering::AcqRel);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.durable.is_stopped()
    }

    /// Says whether logger `index` finds no space.
    pub(crate) fn set_full(&self, index: usize, full: bool) {
        let before = self.loggers[index].counts.full.swap(u64::from(full), Ordering::AcqRel) != 0;
        match (before, full) {
            (false, true) => drop(self.refusing.fetch_add(1, Ordering::AcqRel)),
            (true, false) => drop(self.refusing.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
    }

    /// Whether this directory of the log, and the database's, are where the log was opened. One that was moved only is
    /// the same still.
    pub(crate) fn check_in_place(&self, directory: &Path) -> Result<(), LogError> {
        let database = self.options.database.as_deref().filter(|database| *database != directory);
        for directory in std::iter::once(directory).chain(database) {
            match self.disk.whereabouts(directory) {
                Whereabouts::InPlace | Whereabouts::Moved => {}
                Whereabouts::Removed => return Err(LogError::Removed { path: directory.to_owned() }),
                Whereabouts::Replaced => return Err(LogError::Replaced { directory: directory.to_owned() }),
            }
        }
        Ok(())
    }

    fn requested(&self) -> Epoch {
        Epoch(self.requested.load(Ordering::Acquire))
    }

    /// Whether somebody waits for what is not durable and could be: a commit was in the way, or another logger
    /// is not so far.
    fn is_behind_request(&self) -> bool {
        self.requested() > self.durable.epoch() && !self.refuses()
    }

    pub(crate) fn wake(&self) {
        self.wakers.get().into_iter().flatten().for_each(Waker::wake);
    }

    /// Has those loggers take a step now that have not recorded `epoch`, so that it does not wait for their intervals.
    pub(crate) fn wake_behind(&self, epoch: Epoch) {
        let loggers = self.loggers.iter().zip(self.wakers.get().into_iter().flatten());
        for (progress, waker) in loggers {
            if progress.recorded.load(Ordering::Acquire) < epoch.0 {
                waker.wake();
            }
        }
    }

    /// Has one logger take a step now.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn wake_one(&self, index: usize) {
        self.wakers.get().expect("it was spawned")[index].wake();
    }

    pub(crate) fn newest_logged(&self) -> Epoch {
        // ORDERING: pairs with the release in `logged`.
        Epoch(self.newest_logged.load(Ordering::Acquire))
    }

    /// An entry of this epoch was taken out of a stream.
    pub(crate) fn logged(&self, newest: Epoch) {
        self.newest_logged.fetch_max(newest.0, Ordering::AcqRel);
    }

    /// What a recovery would keep at least.
    pub(crate) fn recorded(&self) -> Epoch {
        // ORDERING: pairs with the release in `advance`.
        let recorded = self.loggers.iter().map(|progress| progress.recorded.load(Ordering::Acquire));
        Epoch(recorded.min().unwrap_or(0))
    }

    /// Logger `index` has flushed up to `closed`, and says so on disk up to `recorded`: moves the durable point.
    pub(crate) fn advance(&self, index: usize, recorded: Epoch, closed: Epoch) {
        let own = &self.loggers[index];
        // ORDERING: pairs with the acquires here and in `recorded`: a thread that sees an epoch closed sees
        // what was logged in it.
        own.recorded.store(recorded.0, Ordering::Release);
        own.closed.store(closed.0, Ordering::Release);
        if self.injects_own_log_only() {
            self.durable.publish(closed);
            return;
        }
        let closed = self.loggers.iter().map(|progress| progress.closed.load(Ordering::Acquire)).min();
        // After the above: all that was logged up to there counts.
        let newest_logged = self.newest_logged();
        let recorded = self.recorded();
        let nothing_between = newest_logged <= recorded;
        self.durable.publish(if nothing_between { recorded.max(Epoch(closed.unwrap_or(0))) } else { recorded });
    }

    #[cfg(any(test, feature = "canary"))]
    fn injects_own_log_only(&self) -> bool {
        self.options.fault == LogFault::FlushOwnLogOnly
    }

    #[cfg(not(any(test, feature = "canary")))]
    const fn injects_own_log_only(&self) -> bool {
        false
    }

    #[cfg(any(test, feature = "canary"))]
    pub(crate) fn injects_acknowledging_early(&self) -> bool {
        self.options.fault == LogFault::AcknowledgeBeforeFlush
    }

    #[cfg(not(any(test, feature = "canary")))]
    pub(crate) const fn injects_acknowledging_early(&self) -> bool {
        false
    }

    #[cfg(any(test, feature = "canary"))]
    pub(crate) fn injects_omitting_links(&self) -> bool {
        self.options.fault == LogFault::OmitLinks
    }

    #[cfg(not(any(test, feature = "canary")))]
    pub(crate) const fn injects_omitting_links(&self) -> bool {
        false
    }
}

/// How far one logger is. Written by it, read by all.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Recorded as closed in a flushed batch.
    recorded: AtomicU64,
    /// Everything up to here is flushed.
    closed: AtomicU64,
    /// Its segments before the one being written, oldest first.
    pub(crate) filled: Mutex<VecDeque<Filled>>,
    /// The end of the last batch that was flushed.
    pub(crate) end: Mutex<LogEnd>,
    pub(crate) counts: Counts,
}

/// A segment that is no longer written.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) path: PathBuf,
    /// The newest epoch of an entry in it.
    pub(crate) newest: Epoch,
}

/// What one logger has done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    batches: AtomicU64,
    groups: AtomicU64,
    bytes: AtomicU64,
    payload_bytes: AtomicU64,
    flush_nanoseconds: AtomicU64,
    flush_nanoseconds_max: AtomicU64,
    /// 1 while it finds no space.
    full: AtomicU64,
}

impl Progress {
    fn new(before: Epoch) -> Progress {
        Progress {
            recorded: AtomicU64::new(before.0),
            closed: AtomicU64::new(before.0),
            filled: Mutex::default(),
            end: Mutex::new(LogEnd::FIRST),
            counts: Counts::default(),
        }
    }
}

impl Counts {
    pub(crate) fn flushed(&self, groups: u32, payload_bytes: u32, bytes: u64, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for (count, more) in [
            (&self.batches, 1),
            (&self.groups, u64::from(groups)),
            (&self.bytes, bytes),
            (&self.payload_bytes, u64::from(payload_bytes)),
            (&self.flush_nanoseconds, nanoseconds),
        ] {
            count.fetch_add(more, Ordering::Relaxed);
        }
        self.flush_nanoseconds_max.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    fn add_to(&self, sum: &mut LogStatistics) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        sum.batches += get(&self.batches);
        sum.groups += get(&self.groups);
        sum.bytes += get(&self.bytes);
        sum.payload_bytes += get(&self.payload_bytes);
        sum.flush_time += Duration::from_nanos(get(&self.flush_nanoseconds));
        sum.flush_time_max = sum.flush_time_max.max(Duration::from_nanos(get(&self.flush_nanoseconds_max)));
    }
}
