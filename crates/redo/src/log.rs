//! The log as a database uses it: open, wake, ask for progress, close.
//!
//! Invariant: the durable point D is never above the epoch that a recovery would keep, except for epochs in
//! which nothing was logged.
//!
//! Each logger publishes two epochs. Up to the *closed* epoch it has flushed everything. The *recorded* epoch
//! is the closed epoch that its flushed batches state. A recovery keeps the smallest recorded epoch R. If
//! nothing was logged above R, then D is the smallest closed epoch; otherwise D is R. While something was
//! logged above R, loggers without entries also record what they have closed. So an idle database writes
//! nothing, an idle logger delays no commit, and D advances in both cases.
//!
//! A full disk refuses commits until there is space; the batch that found no space is kept and written again.
//! Any other failure is final: the log stops, D stays, waiting callers get an error, and commits are refused.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use seriatim_base::disk::{DirectoryState, Disk};
use seriatim_base::thread::{Periodic, Waker};
use seriatim_base::{CacheAligned, Epoch};

use crate::batch::PAGE;
use crate::checkpoint::Deleting;
#[cfg(any(test, feature = "canary"))]
use crate::fault::LogFault;
use crate::logger::Logger;
use crate::manifest::LogEnd;
use crate::stream::stream;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::writer::{Slot, Writer};
use crate::{Durable, LogError, segment};

/// Options of a log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The directories of the loggers, one logger each. They must exist. A directory may be listed several times.
    pub directories: Vec<PathBuf>,
    /// The directory of the database, if it has one. Without its manifest, flushed commits are lost.
    pub database: Option<PathBuf>,
    /// Size of a segment in bytes, at most [`SEGMENT_BYTES_MAX`](segment::SEGMENT_BYTES_MAX). A larger batch
    /// gets a larger segment.
    pub segment_bytes: u64,
    /// Size in bytes of the chunks of a worker's stream.
    pub chunk_bytes: usize,
    /// A batch of this many bytes is full; further groups go into the next batch.
    pub batch_bytes: usize,
    /// A writer with more appended and unflushed bytes than this is refused another commit.
    pub backlog_bytes_max: u64,
    /// How long a transaction may wait for the disk before it begins, if its writer is above that limit. Zero
    /// where one thread steps everything.
    pub backlog_wait_max: Duration,
    /// The deliberate fault.
    #[cfg(any(test, feature = "canary"))]
    pub fault: LogFault,
}

/// The smallest segment in bytes, unless `segment_bytes` is smaller.
const LEAST_SEGMENT_BYTES: u64 = 16 * PAGE as u64;

impl LogOptions {
    /// The default options, with one logger for each directory.
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

    /// Size in bytes of a segment when there is no space for one of the usual size. It is 256 KiB for segments
    /// of 64 MiB, and never below 64 KiB, which hold 15 flushes.
    pub fn small_segment_bytes(&self) -> u64 {
        (self.segment_bytes / 256).max(LEAST_SEGMENT_BYTES).min(self.segment_bytes)
    }

    /// Size in bytes of the first segment when there is no space even for a small one. The reserved space may
    /// have been sized for smaller segments.
    fn least_segment_bytes(&self) -> u64 {
        LEAST_SEGMENT_BYTES.min(self.segment_bytes)
    }

    /// The sizes that are tried for a first segment, in this order.
    pub(crate) fn first_segment_bytes(&self) -> [u64; 3] {
        [self.segment_bytes, self.small_segment_bytes(), self.least_segment_bytes()]
    }
}

/// Where a log begins, as recovery determined.
#[derive(Clone, Copy, Debug)]
pub struct LogStart {
    /// The id of the database.
    pub database: u128,
    /// The number of this opening.
    pub incarnation: u64,
    /// Above every epoch in which an earlier incarnation can have written. Nothing is logged in earlier epochs.
    pub first_epoch: Epoch,
    /// The durable epoch of the earlier incarnations.
    pub durable: Epoch,
    /// Random. The nonces of its segments are drawn from this seed.
    pub nonce_seed: u64,
}

/// Counts of a log since it was opened, over all loggers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Batches flushed: one write and one flush each.
    pub batches: u64,
    /// Groups in them: one for each commit, several for a very large commit.
    pub groups: u64,
    /// Bytes written, with headers and padding.
    pub bytes: u64,
    /// Bytes of groups in the batches.
    pub payload_bytes: u64,
    /// Time spent in flushes.
    pub flush_time: Duration,
    /// The longest flush.
    pub flush_time_max: Duration,
    /// Bytes that are appended and not yet flushed.
    pub backlog_bytes: u64,
}

/// A handle of the log.
#[derive(Clone, Debug)]
pub struct Log {
    shared: Arc<Shared>,
}

impl Log {
    /// Opens a log for writing. Creates the first segment of each logger durably. No segment of this
    /// incarnation may exist ([`segment::delete_unnamed`]). Afterwards, and before any commit, the manifest
    /// lists the incarnation. So every listed incarnation has segments.
    ///
    /// Returns the log, a writer for each worker slot, and the loggers. [`Log::spawn`] or the caller steps the loggers.
    ///
    /// # Errors
    /// When the options are invalid, or a segment cannot be created, for instance because the disk is full.
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
            newest_logged: NewestLogged::default(),
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

    /// Steps each logger on its own thread, every `interval` and when woken. It steps again soon while a caller waits
    /// for an epoch that the step could not flush. The closure `epoch` gets the newest epoch that a caller waits for
    /// ([`Log::request`]). It ends that epoch, unless it is over, and returns the current epoch. A logger calls it only
    /// between two flushes, so epochs end no faster than the disk flushes them.
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
                // No other thread steps it before this thread is joined.
                logger.lock().unwrap_or_else(PoisonError::into_inner).step(epoch(shared.requested()));
                if shared.is_behind_request() { interval.min(REQUEST_LOOK) } else { interval }
            };
            Periodic::spawn_paced(&format!("seriatim-log-{index}"), interval, step)
        });
        let threads =
            threads.collect::<Result<Vec<_>, _>>().map_err(LogError::io("starting the threads of the log"))?;
        // Waking only saves time: if loggers are spawned twice, the log keeps the first wakers.
        let _ = self.shared.wakers.set(threads.iter().map(Periodic::waker).collect());
        Ok(LogThreads { log: self.clone(), threads, loggers })
    }

    /// Makes every logger with a thread take a step now. Never waits.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// Asks the loggers to make `epoch` durable for a waiting caller. They end and flush that epoch after their
    /// current flush. Never waits.
    pub fn request(&self, epoch: Epoch) {
        // ORDERING: the store precedes the wake-up, and the lock of the wake-up makes it visible to the woken logger.
        self.shared.requested.fetch_max(epoch.0, Ordering::AcqRel);
        self.shared.wake();
    }

    /// The newest epoch that a caller waited for.
    pub fn requested(&self) -> Epoch {
        self.shared.requested()
    }

    /// The durable point.
    pub fn durable(&self) -> &Arc<Durable> {
        &self.shared.durable
    }

    /// Whether a commit would be refused now, because the log has stopped or its disk is full.
    #[inline]
    pub fn refuses(&self) -> bool {
        self.shared.refuses()
    }

    /// The error with which a commit would be refused now, if it would be.
    pub fn refusal(&self) -> Option<LogError> {
        self.shared.refuses().then(|| self.shared.refusal())
    }

    /// Makes the loggers record `epoch` as closed, although nothing was logged in it. The durable point may
    /// have reached it without a record before. But once it reaches an epoch that was current after this call,
    /// a recovery finds `epoch`. A checkpoint needs this for its last epoch, which the manifest lists.
    pub fn record(&self, epoch: Epoch) {
        self.shared.newest_logged.ask(epoch);
    }

    /// An epoch that a recovery finds in a batch, even if it is not durable. A later epoch may be found as well.
    pub fn mentioned(&self) -> Epoch {
        // ORDERING: pairs with the release in `advance`.
        let recorded = self.shared.loggers.iter().map(|progress| progress.recorded.load(Ordering::Acquire));
        Epoch(recorded.max().unwrap_or(0))
    }

    /// Deletes segments of this incarnation whose entries are all of epochs before `epoch`, oldest first. The segment
    /// being written stays. A checkpoint that begins at `epoch` must be durable. Returns how many segments it deleted.
    ///
    /// # Errors
    /// When a segment cannot be deleted. It and the later segments of its logger are kept for the next call.
    pub fn delete_before(&self, epoch: Epoch) -> Result<usize, LogError> {
        let mut deleting = Deleting::default();
        // While recovery needs the first epoch of an incarnation, it expects all its segments, even those
        // without entries.
        if epoch <= self.shared.start.first_epoch {
            return Ok(0);
        }
        // The lock keeps deletions in order. Loggers do not take it.
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

    /// Whether the directories of log and database are still where they were when the log was opened. If one
    /// was removed or replaced, the log stops, since a later opening would not find further commits.
    ///
    /// # Errors
    /// [`LogError::Removed`], [`LogError::Replaced`].
    pub fn check_in_place(&self) -> Result<(), LogError> {
        let options = &self.shared.options;
        let checked = options.directories.iter().try_for_each(|directory| self.shared.check_in_place(directory));
        checked.inspect_err(|error| self.shared.stop(error.to_string()))
    }

    /// Stops the log for good with the caller's reason. Nothing more becomes durable.
    pub fn stop(&self, reason: &str) {
        self.shared.stop(reason);
    }

    /// The counts of the log.
    pub fn statistics(&self) -> LogStatistics {
        let mut sum = LogStatistics::default();
        for progress in &self.shared.loggers {
            progress.counts.add_to(&mut sum);
        }
        sum.backlog_bytes = self.shared.slots.iter().map(|slot| slot.backlog_bytes()).sum();
        sum
    }

    /// An epoch that a recovery finds durable, and positions up to which each logger's log records it.
    pub fn recorded(&self) -> (Epoch, Vec<LogEnd>) {
        // The ends are read afterwards: the batches that record the epoch were flushed before.
        let recorded = self.shared.recorded();
        (recorded, self.ends())
    }

    /// Positions up to which the batches of each logger are flushed.
    pub fn ends(&self) -> Vec<LogEnd> {
        let end = |progress: &CacheAligned<Progress>| *progress.end.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.loggers.iter().map(end).collect()
    }

    /// Closes the log: flushes all commits of epochs before `after`, and stops. The caller has advanced the
    /// current epoch to `after`, and no commit is running. `note` gets the epoch that a recovery finds, which
    /// may be below the durable point, and the ends of the logs. It writes both to the manifest. Then the
    /// unused space of the segments is freed.
    ///
    /// # Errors
    /// When the log has stopped, or the disk is full: commits that are not durable are lost. Errors of `note`.
    pub fn close(
        &self,
        mut loggers: Vec<Logger>,
        after: Epoch,
        note: impl FnOnce(Epoch, Vec<LogEnd>) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        // The first round writes everything. The second makes every logger record it.
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

/// The threads that step the loggers. Dropping them stops the log at once; [`LogThreads::close`] ends it in order.
#[derive(Debug)]
pub struct LogThreads {
    log: Log,
    threads: Vec<Periodic>,
    loggers: Vec<Arc<Mutex<Logger>>>,
}

impl LogThreads {
    /// Whether the caller runs on one of these threads, for instance in a waker. Such a caller cannot close the log.
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
        // The threads are joined, so no other thread has the loggers.
        drop(self.threads);
        let loggers = self.loggers.into_iter().filter_map(Arc::into_inner);
        let loggers = loggers.map(|logger| logger.into_inner().unwrap_or_else(PoisonError::into_inner));
        self.log.close(loggers.collect(), after, note)
    }
}

/// The state that writers, loggers and handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slots: Box<[CacheAligned<Slot>]>,
    pub(crate) loggers: Box<[CacheAligned<Progress>]>,
    newest_logged: NewestLogged,
    /// The newest epoch that a caller waited for.
    requested: CacheAligned<AtomicU64>,
    /// The number of loggers with a full disk, and a bit that is set once the log has stopped. Commits are
    /// refused unless it is zero.
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

/// How soon a logger steps again if it could not flush all that a caller waits for.
const REQUEST_LOOK: Duration = Duration::from_millis(1);

impl Shared {
    #[inline]
    pub(crate) fn refuses(&self) -> bool {
        self.refusing.load(Ordering::Relaxed) != 0
    }

    /// The error with which commits are refused. The disk may have space again.
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

    /// Records whether logger `index` finds no space.
    pub(crate) fn set_full(&self, index: usize, full: bool) {
        let before = self.loggers[index].counts.full.swap(u64::from(full), Ordering::AcqRel) != 0;
        match (before, full) {
            (false, true) => drop(self.refusing.fetch_add(1, Ordering::AcqRel)),
            (true, false) => drop(self.refusing.fetch_sub(1, Ordering::AcqRel)),
            _ => {}
        }
    }

    /// Checks that this log directory and the database's directory are where they were when the log was opened.
    /// A directory that was only moved passes.
    pub(crate) fn check_in_place(&self, directory: &Path) -> Result<(), LogError> {
        let database = self.options.database.as_deref().filter(|database| *database != directory);
        for directory in std::iter::once(directory).chain(database) {
            match self.disk.whereabouts(directory) {
                DirectoryState::InPlace | DirectoryState::Moved => {}
                DirectoryState::Removed => return Err(LogError::Removed { path: directory.to_owned() }),
                DirectoryState::Replaced => return Err(LogError::Replaced { directory: directory.to_owned() }),
            }
        }
        Ok(())
    }

    fn requested(&self) -> Epoch {
        Epoch(self.requested.load(Ordering::Acquire))
    }

    /// Whether a caller waits for an epoch that another step may make durable: a commit delayed it, or another
    /// logger is behind.
    fn is_behind_request(&self) -> bool {
        self.requested() > self.durable.epoch() && !self.refuses()
    }

    pub(crate) fn wake(&self) {
        self.wakers.get().into_iter().flatten().for_each(Waker::wake);
    }

    /// Wakes the loggers that have not recorded `epoch`, so that it does not wait for their intervals.
    pub(crate) fn wake_behind(&self, epoch: Epoch) {
        let loggers = self.loggers.iter().zip(self.wakers.get().into_iter().flatten());
        for (progress, waker) in loggers {
            if progress.recorded.load(Ordering::Acquire) < epoch.0 {
                waker.wake();
            }
        }
    }

    /// Makes one logger take a step now.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn wake_one(&self, index: usize) {
        self.wakers.get().expect("it was spawned")[index].wake();
    }

    pub(crate) fn newest_logged(&self) -> Epoch {
        self.newest_logged.get()
    }

    /// Notes that an entry of epoch `newest` was taken from a stream.
    pub(crate) fn logged(&self, newest: Epoch) {
        self.newest_logged.note(newest);
    }

    /// The epoch that a recovery would keep at least.
    pub(crate) fn recorded(&self) -> Epoch {
        Progress::recorded(&self.loggers)
    }

    /// Advances the durable point: logger `index` has flushed up to `closed`, and its batches record `recorded`.
    pub(crate) fn advance(&self, index: usize, recorded: Epoch, closed: Epoch) {
        let durable = Progress::advance(&self.loggers, index, [recorded, closed], &self.newest_logged);
        self.durable.publish(if self.injects_own_log_only() { closed } else { durable });
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

/// The newest epoch of an entry that a logger took from a stream, or of a request to record.
#[derive(Debug, Default)]
struct NewestLogged(CacheAligned<AtomicU64>);

impl NewestLogged {
    fn get(&self) -> Epoch {
        // ORDERING: pairs with the release in `note`.
        Epoch(self.0.load(Ordering::Acquire))
    }

    fn note(&self, newest: Epoch) {
        self.0.fetch_max(newest.0, Ordering::AcqRel);
    }

    /// Requests that `epoch` is recorded.
    fn ask(&self, epoch: Epoch) {
        self.note(epoch);
        // ORDERING: pairs with the fence in `Slot::closed`. Consider a logger that closes an epoch which the
        // caller reads after this call. It has read a later epoch before its fence, so its fence comes after
        // this one, and it sees the request.
        fence(Ordering::SeqCst);
    }
}

/// The progress of one logger, which alone writes it.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The epoch that its flushed batches record as closed.
    recorded: AtomicU64,
    /// The epoch up to which everything is flushed.
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

/// The counts of one logger.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    batches: AtomicU64,
    groups: AtomicU64,
    bytes: AtomicU64,
    payload_bytes: AtomicU64,
    flush_nanoseconds: AtomicU64,
    flush_nanoseconds_max: AtomicU64,
    /// 1 while the logger finds no space.
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

    /// The epoch that a recovery would keep at least.
    fn recorded(loggers: &[CacheAligned<Progress>]) -> Epoch {
        // ORDERING: pairs with the release in `advance`.
        let recorded = loggers.iter().map(|progress| progress.recorded.load(Ordering::Acquire));
        Epoch(recorded.min().unwrap_or(0))
    }

    /// Logger `index` has flushed up to `closed`, and its batches record `recorded`. Returns the durable epoch.
    fn advance(
        loggers: &[CacheAligned<Progress>],
        index: usize,
        [recorded, closed]: [Epoch; 2],
        newest_logged: &NewestLogged,
    ) -> Epoch {
        let own = &loggers[index];
        // ORDERING: pairs with the acquires here and in `recorded`: a thread that sees an epoch closed sees
        // what was logged in it.
        own.recorded.store(recorded.0, Ordering::Release);
        own.closed.store(closed.0, Ordering::Release);
        // ORDERING: pairs with itself. Of two loggers that are here at the same time one sees what both have flushed.
        // Otherwise neither would move the durable point there, and callers would wait for the next step.
        fence(Ordering::SeqCst);
        let closed = loggers.iter().map(|progress| progress.closed.load(Ordering::Acquire)).min();
        // Read after the stores above, so that it includes everything logged up to there.
        let newest_logged = newest_logged.get();
        let recorded = Progress::recorded(loggers);
        let nothing_between = newest_logged <= recorded;
        if nothing_between { recorded.max(Epoch(closed.unwrap_or(0))) } else { recorded }
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

#[cfg(all(test, loom))]
mod loom_model;
