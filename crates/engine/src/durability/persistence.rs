//! The log of an open database: its mode, and the waits of results for it.
//!
//! Acknowledgement ends for good when the log stops: a sync of the log or the manifest failed, or a commit panicked.
//! From then on a result is returned only if all that it depends on was durable before, in every mode.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{Epoch, Hold, Tid, thread};
use seriatim_htm::Htm;
use seriatim_redo::durable::Reached;
use seriatim_redo::manifest::{Manifest, NotWritten};
use seriatim_redo::{Log, LogError, LogThreads, Logger, Writer};
use seriatim_txn::{Epochs, Freshness, UNSAID_MAX};

use super::Durability;
use super::checkpointer::Checkpoints;
use super::epochs_left::{self, is_at_limit};
use super::log::WholeBefore;
use super::open::{BACKLOG_WAIT_MAX, Home, OpenLog};
use crate::engine::{Foundation, Inner};
use crate::settings::Settings;
use crate::{CloseError, LogStatistics, TransactError};

/// The dependency of a result: it is returned when this epoch is durable. Epoch zero: no dependency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitDependency {
    epoch: Epoch,
    /// Whether the transaction has written something.
    wrote: bool,
}

impl CommitDependency {
    /// The dependency, extended by the epoch of this TID.
    #[inline]
    pub(crate) fn with(self, tid: Tid) -> CommitDependency {
        CommitDependency { epoch: self.epoch.max(tid.epoch()), ..self }
    }

    /// The dependency of a transaction that has written something.
    #[inline]
    pub(crate) fn of_writer(self) -> CommitDependency {
        CommitDependency { wrote: true, ..self }
    }

    /// The newest epoch of the dependency.
    #[inline]
    pub(crate) fn epoch(self) -> Epoch {
        self.epoch
    }

    fn until(epoch: Epoch) -> CommitDependency {
        CommitDependency { epoch, wrote: false }
    }
}

/// Whether the durable point has not moved for long although there is something to flush. If so, snapshots show
/// the durable epoch instead of waiting for the disk.
#[derive(Debug, Default)]
pub(crate) struct Behind(AtomicBool);

/// How long the durable point may stay.
const BEHIND_AFTER: Duration = Duration::from_millis(100);

/// The time after which it is known whether the disk is full or behind.
const OVERTAKEN_WITHIN: Duration = Duration::from_millis(250);

impl Behind {
    #[inline]
    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the check for each tick of an epoch that lasts `interval`.
    pub(crate) fn watch(self: Arc<Behind>, interval: Duration) -> impl FnMut(Epoch, Epoch) {
        let most = u32::try_from(BEHIND_AFTER.as_nanos().div_ceil(interval.as_nanos().max(1))).unwrap_or(u32::MAX);
        let (mut mark, mut ticks) = (Epoch(0), 0);
        move |current, durable| {
            ticks += 1;
            if durable >= mark {
                (mark, ticks) = (current, 0);
            }
            self.0.store(ticks > most, Ordering::Relaxed);
        }
    }
}

/// The log of an open database.
pub(crate) struct Persistence {
    mode: Durability,
    log: Log,
    loggers: Mutex<Loggers>,
    /// Whether the owner steps the loggers.
    stepped: bool,
    epochs: Arc<Epochs>,
    htm: Htm,
    home: Arc<Home>,
    /// The state that checkpoints need of commits.
    pub(crate) whole_before: Arc<WholeBefore>,
    /// Held while a checkpoint is taken.
    checkpointing: Mutex<()>,
    pub(super) checkpoints: Mutex<Checkpoints>,
    /// No handle keeps the database open: a checkpoint under way is given up.
    closing: AtomicBool,
    /// Whether versions are kept for readers of the durable epoch.
    keeps_versions: bool,
    pub(crate) behind: Arc<Behind>,
    /// When the log was opened, and the epoch then.
    began: (Instant, Epoch),
}

/// Which thread steps the loggers.
pub(super) enum Loggers {
    /// Threads of their own.
    Threads(LogThreads),
    /// The database's owner ([`Settings::step_helpers`](crate::Settings::step_helpers)), and each waiting caller.
    Stepped(Vec<Logger>),
    /// No thread: the result of closing.
    Closed(Result<(), CloseError>),
}

/// Steps of all loggers that make an epoch durable if nothing fails. One may be needed before the epoch can end, as
/// epochs are far. One flushes it. In another, a logger without entries notes those of others. One is spare.
const STEPS_MAX: usize = 4;

/// How often a wait checks for conditions other than the durable point.
const LOOK: Duration = Duration::from_millis(5);

/// How often a wait checks whether epochs are still far.
const NEAR_LOOK: Duration = Duration::from_millis(1);

/// A checkpoint is due when recovery needs the logs of this many earlier openings. Each counts as a part of
/// [`Settings::checkpoint_bytes`].
const INCARNATIONS_MAX: u64 = 32;

impl Persistence {
    /// Whether a result has to wait.
    #[inline]
    pub(crate) fn must_wait(&self, dependency: CommitDependency) -> bool {
        let durable = self.log.durable();
        match self.mode {
            Durability::Group | Durability::Sync => dependency.epoch > durable.epoch(),
            Durability::Async => durable.is_stopped() && dependency.epoch > durable.epoch(),
            Durability::Off => false,
        }
    }

    /// Whether no thread may end an epoch before the disk has reported its progress.
    pub(super) fn are_epochs_far(&self) -> bool {
        self.epochs.are_far()
    }

    /// Ends the epoch.
    pub(super) fn advance(&self) -> Epoch {
        self.epochs.advance(&self.htm)
    }

    /// Skips all commits so far: they are entries of rebuilt indexes, which are not logged. No other thread has
    /// the database yet. They count as durable, so that they are visible if the log stops at once.
    pub(crate) fn skip_unlogged(&self) {
        let next = self.advance();
        self.log.durable().point().skip_to(Epoch(next.0 - 1));
    }

    /// The hold of a snapshot that begins now and shows the durable epoch. `None` if it shows all commits, for which it
    /// may have to wait. Where results wait until they are durable, no acknowledged transaction is missing.
    #[inline]
    pub(crate) fn hold(&self) -> Option<Hold> {
        self.holds_up().then(|| self.log.durable().point().hold())
    }

    /// Whether snapshots should not wait for the disk. Once the log has stopped they show the durable epoch anyway.
    #[inline]
    fn holds_up(&self) -> bool {
        let is_behind = self.log.refuses() || self.behind.is_so();
        is_behind && self.keeps_versions && self.mode != Durability::Async && !self.log.durable().is_stopped()
    }

    /// Waits until the reads of a snapshot are durable, or until it should begin again and show the durable
    /// epoch. Returns whether it should.
    #[cold]
    fn is_overtaken(&self, dependency: CommitDependency, limit: Option<Duration>) -> bool {
        if !self.keeps_versions {
            return false;
        }
        if self.stepped {
            return matches!(self.step_until(dependency), Ok(false)) && self.holds_up();
        }
        let (began, limit) = (Instant::now(), limit.map_or(OVERTAKEN_WITHIN, |limit| limit.min(OVERTAKEN_WITHIN)));
        self.log.request(dependency.epoch);
        while matches!(self.log.durable().wait_timeout(dependency.epoch, LOOK), Ok(false)) {
            if self.holds_up() || began.elapsed() >= limit {
                return self.holds_up();
            }
        }
        false
    }

    /// Waits until a beginning transaction may end an epoch. It waits while epochs are far, as a transaction
    /// waits for a disk that is behind. It does not wait if snapshots show the durable epoch.
    ///
    /// # Errors
    /// Epochs are still far.
    #[cold]
    pub(crate) fn wait_until_near(&self) -> Result<(), LogError> {
        let (began, mut steps) = (Instant::now(), 0);
        while self.epochs.are_far() && !self.holds_up() {
            let waits = match self.stepped {
                true => steps < STEPS_MAX,
                false => began.elapsed() < BACKLOG_WAIT_MAX && !self.log.refuses(),
            };
            if !waits {
                let behind = || LogError::Backlogged { backlog_bytes: self.log.statistics().backlog_bytes };
                return Err(self.log.refusal().unwrap_or_else(behind));
            }
            steps += 1;
            if self.stepped { self.step() } else { thread::sleep(NEAR_LOOK) }
        }
        Ok(())
    }

    /// Makes all commits so far durable; gives up when the disk is full. Returns whether this took no longer
    /// than the limit.
    pub(crate) fn flush(&self, limit: Option<Duration>) -> Result<bool, LogError> {
        self.wait_for_at_most(self.current(), limit)
    }

    /// The newest durable epoch.
    pub(crate) fn durable_epoch(&self) -> Epoch {
        self.log.durable().epoch()
    }

    /// Counts of the log and the checkpoints.
    pub(crate) fn statistics(&self) -> LogStatistics {
        // Read first: if the log has stopped, the durable epoch no longer changes, and is not above the current epoch.
        let stopped = self.log.durable().is_stopped();
        let durable_epoch = self.durable_epoch();
        let log = self.log.statistics();
        let checkpoints = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, first) = self.began;
        let epoch = self.current();
        let epochs_left = epochs_left::left(epoch);
        let epochs_lasting = epochs_left::lasting(epochs_left, epoch.0.saturating_sub(first.0), began.elapsed());
        LogStatistics {
            flushes: log.batches,
            commits: log.groups,
            bytes: log.bytes,
            payload_bytes: log.payload_bytes,
            flush_time: log.flush_time,
            flush_time_max: log.flush_time_max,
            backlog_bytes: log.backlog_bytes,
            epoch: epoch.0,
            epochs_left,
            epochs_lasting,
            epochs_warning: epochs_left::warning(epochs_lasting),
            durable_epoch: durable_epoch.0,
            durable_snapshot: self.epochs.snapshots().made_by_end_of(durable_epoch),
            refusal: self.log.refusal().map(|refusal| refusal.to_string()),
            stopped,
            checkpoints: checkpoints.taken,
            checkpoints_failed: checkpoints.failed,
            checkpoint_duration: checkpoints.duration,
            checkpoint_error: checkpoints.error.clone(),
            deletion_error: checkpoints.deletion_error.clone(),
        }
    }

    /// No handle keeps the database open any more.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Whether a checkpoint under way has become useless.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// As [`Persistence::without_checkpoint`], unless a checkpoint is being taken.
    pub(crate) fn try_without_checkpoint(&self) -> Option<MutexGuard<'_, ()>> {
        match self.checkpointing.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits for a checkpoint that is being taken. None is taken while this is held.
    pub(crate) fn without_checkpoint(&self) -> MutexGuard<'_, ()> {
        self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current epoch.
    pub(super) fn current(&self) -> Epoch {
        self.epochs.current()
    }

    /// Makes the loggers end the epoch, and waits until it is durable, the disk is full, or the database is closed.
    pub(crate) fn wait_for(&self, epoch: Epoch) -> Result<(), LogError> {
        self.wait_for_at_most(epoch, None).map(drop)
    }

    /// As [`Persistence::wait_for`]; returns whether the epoch is durable within the limit.
    pub(crate) fn wait_for_at_most(&self, epoch: Epoch, limit: Option<Duration>) -> Result<bool, LogError> {
        if self.stepped {
            return self.wait(CommitDependency::until(epoch), None);
        }
        let began = Instant::now();
        self.log.request(epoch);
        while !self.log.durable().wait_timeout(epoch, limit.map_or(LOOK, |limit| limit.min(LOOK)))? {
            if let Some(refusal) = self.log.refusal() {
                return Err(refusal);
            }
            if self.is_closing() {
                return Err(LogError::Stopped("the database is being closed".to_owned()));
            }
            if limit.is_some_and(|limit| began.elapsed() >= limit) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until a durable batch mentions the current epoch, even if nothing was logged in it.
    pub(super) fn record(&self) -> Result<Epoch, LogError> {
        let end = self.current();
        self.log.record(end);
        // The requested epoch may be durable by now without being recorded. An epoch that ends later is
        // reported as durable only by a logger that has seen the request: see `Log::record`.
        self.wait_for(self.current()).map(|()| end)
    }

    /// Whether the epoch is durable within the limit. While the disk is full this waits for space. If the owner
    /// steps the loggers, this steps them, and fails if that does not help.
    #[cold]
    fn wait(&self, dependency: CommitDependency, limit: Option<Duration>) -> Result<bool, LogError> {
        if !self.stepped {
            self.log.request(dependency.epoch);
            return match limit {
                None => self.log.durable().wait(dependency.epoch).map(|()| true),
                Some(limit) => self.log.durable().wait_timeout(dependency.epoch, limit),
            };
        }
        match self.step_until(dependency)? {
            true => Ok(true),
            false => Err(self.log.refusal().unwrap_or_else(|| LogError::Stopped("a commit blocks the log".to_owned()))),
        }
    }

    /// Steps the loggers until the epoch is durable; returns whether it is.
    fn step_until(&self, dependency: CommitDependency) -> Result<bool, LogError> {
        self.log.request(dependency.epoch);
        for _ in 0..STEPS_MAX {
            if self.reached_now(dependency)? {
                return Ok(true);
            }
            self.step();
        }
        self.reached_now(dependency)
    }

    fn wait_within(&self, dependency: CommitDependency, most: Duration) -> Result<bool, LogError> {
        match (most.is_zero(), self.stepped) {
            (true, _) => self.reached_now(dependency),
            (false, true) => self.step_until(dependency),
            (false, false) => self.wait(dependency, Some(most)),
        }
    }

    fn reached_now(&self, dependency: CommitDependency) -> Result<bool, LogError> {
        self.log.durable().poll(dependency.epoch).map_or(Ok(false), |answer| answer.map(|()| true))
    }

    pub(super) fn loggers(&self) -> MutexGuard<'_, Loggers> {
        self.loggers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every logger flush what it has, if the owner steps them.
    pub(crate) fn step(&self) {
        if is_at_limit(self.current()) {
            stop_at_limit(&self.log);
        }
        if let Loggers::Stepped(loggers) = &mut *self.loggers() {
            for logger in loggers {
                // A logger that fails notifies all waiting callers.
                logger.step(self.end_requested());
            }
        }
    }

    /// Steps one logger, if the owner steps them and it exists.
    #[cfg(feature = "test-support")]
    pub(crate) fn step_logger(&self, logger: usize) {
        if let Loggers::Stepped(loggers) = &mut *self.loggers()
            && let Some(logger) = loggers.get_mut(logger)
        {
            logger.step(self.end_requested());
        }
    }

    /// The error of a wait that reached its limit.
    #[cold]
    fn not_yet(&self, wrote: bool, limit: Option<Duration>) -> TransactError {
        let reason = self.log.refusal().map(|refusal| refusal.to_string());
        TransactError::NotDurableYet { waited: limit.unwrap_or_default(), wrote, reason }
    }

    /// As a logger's thread does before each step.
    fn end_requested(&self) -> Epoch {
        end_epoch(&self.epochs, &self.htm, self.log.requested())
    }

    /// The log.
    pub(crate) fn log(&self) -> Log {
        self.log.clone()
    }

    /// The directory.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// The contents of the directory with the log up to now, as if the database was closed.
    pub(crate) fn manifest_now(&self) -> Manifest {
        let manifest = self.home.manifest();
        let mut now = manifest.clone();
        let (recorded, ends) = self.log.recorded();
        if let Some(current) = now.incarnations.last_mut() {
            (current.durable_epoch, current.ends) = (Some(recorded), ends);
        }
        now
    }

    /// Changes the contents of the directory: durable when this returns.
    ///
    /// # Errors
    /// The log has stopped. Or the manifest cannot be written: if the old one is in place, the database
    /// continues; if that is unknown, the log stops.
    pub(super) fn change(&self, change: impl FnOnce(&mut Manifest)) -> Result<(), LogError> {
        let mut manifest = self.manifest_to_change()?;
        let mut changed = manifest.clone();
        change(&mut changed);
        self.write(&mut changed)?;
        *manifest = changed;
        // It may have been moved or removed since.
        self.log.check_in_place()
    }

    /// The manifest, locked, so that no change depends on a state that another has replaced.
    ///
    /// # Errors
    /// The log has stopped.
    fn manifest_to_change(&self) -> Result<MutexGuard<'_, Manifest>, LogError> {
        let manifest = self.home.manifest();
        if let Some(reason) = self.log.durable().stop_reason() {
            return Err(LogError::Stopped(reason));
        }
        self.log.check_in_place()?;
        Ok(manifest)
    }

    /// Writes a manifest, with the ends of the logs.
    fn write(&self, manifest: &mut Manifest) -> Result<(), LogError> {
        if let Some(current) = manifest.incarnations.last_mut() {
            // A reader that later finds less than this reports damage.
            current.ends = self.log.ends();
        }
        self.stop_unless_whole(self.home.write(manifest))
    }

    /// Stops the log if it is unknown which contents the directory has.
    fn stop_unless_whole<T>(&self, written: Result<T, NotWritten>) -> Result<T, LogError> {
        written.map_err(|NotWritten { error, is_final }| {
            if is_final {
                self.log.stop(&format!("{error}; look after the disk, and open the database again"));
            }
            error
        })
    }

    /// Starts the log.
    pub(crate) fn start(
        options: &Settings,
        Foundation { protocol, environment, .. }: &Foundation,
        opened: OpenLog,
        recovered_bytes: u64,
    ) -> Result<(Persistence, Vec<Writer>), LogError> {
        let OpenLog { home, log, loggers, writers } = opened;
        let epochs = Arc::clone(&environment.epochs);
        let began = (Instant::now(), epochs.current());
        if epochs.snapshots().end_epochs() {
            let log = log.clone();
            let first = epochs.current();
            if first.0 > UNSAID_MAX {
                // For a database that existed before: the next recovery then restores a snapshot of this opening.
                log.record(first);
            }
            epochs.bound_by(Box::new(move |current| said(&log, current)));
        }
        let loggers = match options.step_helpers {
            true => Loggers::Stepped(loggers),
            false => {
                let (epochs, htm) = (Arc::clone(&epochs), environment.htm.clone());
                let end_requested = move |requested| end_epoch(&epochs, &htm, requested);
                Loggers::Threads(log.spawn(loggers, options.epoch_interval(), end_requested)?)
            }
        };
        let keeps_versions = protocol.info().capabilities.snapshots != Freshness::None;
        if keeps_versions {
            // For readers of the durable epoch if the log stops.
            environment.memory.keep_versions(Arc::clone(log.durable().point()));
        }
        // Many short openings leave many files, however little is in them.
        let earlier = home.manifest().incarnations.len().saturating_sub(1) as u64;
        let counted = earlier.saturating_mul(options.checkpoint_bytes.unwrap_or(0) / INCARNATIONS_MAX);
        let recovered_bytes = recovered_bytes.saturating_add(counted);
        let mode = options.durability.unwrap_or(Durability::Group);
        let htm = environment.htm.clone();
        let persistence = Persistence {
            mode,
            log,
            loggers: Mutex::new(loggers),
            stepped: options.step_helpers,
            epochs,
            htm,
            home: Arc::new(home),
            whole_before: Arc::default(),
            checkpointing: Mutex::default(),
            checkpoints: Mutex::new(Checkpoints::new(recovered_bytes)),
            closing: AtomicBool::new(false),
            keeps_versions,
            behind: Arc::default(),
            began,
        };
        Ok((persistence, writers))
    }
}

/// Closing flushes all commits. Those that cannot be flushed are lost as in a power cut. The manifest says how
/// far the log was flushed, so that later damage at its end is not taken for a torn write.
impl Persistence {
    /// Whether this thread is a logger, which does not wait for itself.
    pub(crate) fn is_logger(&self) -> bool {
        matches!(&*self.loggers(), Loggers::Threads(threads) if threads.is_current())
    }

    /// Ends the log, once. From then on it takes no commits, and the directory is unlocked.
    ///
    /// # Errors
    /// Commits that are not durable. Each call returns the same.
    pub(crate) fn close(&self) -> Result<(), CloseError> {
        let after = self.advance();
        let is_logger = self.is_logger();
        // A backup under way uses the directory. A logger closes the database only if no other thread has it.
        let _no_backup = (!is_logger).then(|| self.without_checkpoint());
        let mut closing = self.loggers();
        let own_thread = "the log was closed by its own thread, which does not wait for itself";
        let early = Err(CloseError::new(self.durable_epoch(), 0, own_thread));
        let loggers = match &*closing {
            Loggers::Closed(closed) => return closed.clone(),
            _ => std::mem::replace(&mut *closing, Loggers::Closed(early.clone())),
        };
        let (log, home) = (self.log(), Arc::clone(&self.home));
        let close = move || {
            let note = |recorded, ends| home.note_end(recorded, ends);
            let ended = match loggers {
                Loggers::Threads(threads) => threads.close(after, note),
                Loggers::Stepped(loggers) => log.close(loggers, after, note),
                Loggers::Closed(closed) => return closed,
            };
            // Whether commits were lost: a log that stopped may have flushed all of them. If the manifest does
            // not say where the log ends, a recovery finds out.
            let closed = ended.or_else(|error| match log.statistics().backlog_bytes {
                0 => Ok(()),
                lost => {
                    let reason = match error {
                        LogError::Full { directory } => format!("the disk of {} is full", directory.display()),
                        error => error.to_string(),
                    };
                    Err(CloseError::new(log.durable().epoch(), lost, &reason))
                }
            });
            home.reserve.fill();
            home.unlock();
            closed
        };
        let closed = match is_logger {
            false => close(),
            // A result that a logger woke was the last owner of the database: the logger's thread cannot wait
            // for itself. If no thread can be started, the log stops where it is.
            true => {
                drop(thread::spawn("seriatim-close", close));
                early
            }
        };
        *closing = Loggers::Closed(closed.clone());
        closed
    }
}

impl Drop for Persistence {
    fn drop(&mut self) {
        // Callers that asked for durability got their answer; `Database::close` reports the rest.
        let _ = self.close();
    }
}

/// The newest epoch that the disk has reported. Now and then it makes the log report more, though nothing was logged.
fn said(log: &Log, current: Epoch) -> Epoch {
    if log.durable().is_stopped() {
        // From now on no epoch above the durable one is reported.
        return current;
    }
    let said = log.mentioned();
    if current.0 >= said.0 + UNSAID_MAX / 2 {
        log.record(current);
        // A logger that found the disk full retries by itself: this may run in its step.
        if !log.refuses() {
            log.wake();
        }
    }
    said
}

/// Ends `epoch`, unless it has ended or epochs are far. Returns the current epoch.
fn end_epoch(epochs: &Epochs, htm: &Htm, epoch: Epoch) -> Epoch {
    let current = epochs.current();
    if current > epoch { current } else { epochs.advance_unless_far(htm) }
}

/// Refuses commits while epochs are left for those under way.
#[cold]
pub(crate) fn stop_at_limit(log: &Log) {
    log.stop("the epochs that TIDs have bits for are used up: load the rows into a new database");
}

/// Withholds results until they are durable, for databases with and without a log.
impl Inner {
    /// Refuses actions that need the threads of the process that opened the database.
    ///
    /// # Errors
    /// [`LogError::Forked`].
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), LogError> {
        if self.process.is_current() { Ok(()) } else { Err(LogError::Forked) }
    }

    /// Waits until a result with this dependency may be returned.
    ///
    /// # Errors
    /// [`TransactError::NotDurable`] if the log stopped before; [`TransactError::NotDurableYet`] beyond the limit.
    #[inline]
    pub(crate) fn wait_until_durable(
        &self,
        dependency: CommitDependency,
        limit: Option<Duration>,
    ) -> Result<(), TransactError> {
        match &self.persistence {
            Some(persistence) if persistence.must_wait(dependency) => {
                match self.check_process().and_then(|()| persistence.wait(dependency, limit)) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(persistence.not_yet(dependency.wrote, limit)),
                    Err(error) => Err(not_durable(error)),
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether a snapshot with this dependency should begin again: its reads are not durable, and waiting for
    /// the disk takes long.
    #[inline]
    pub(crate) fn is_overtaken(&self, dependency: CommitDependency, limit: Option<Duration>) -> bool {
        let persistence = self.persistence.as_ref();
        persistence
            .is_some_and(|persistence| persistence.must_wait(dependency) && persistence.is_overtaken(dependency, limit))
    }

    /// As [`Inner::wait_until_durable`], for at most `most`. Returns whether the result may be returned.
    pub(crate) fn wait_until_durable_within(
        &self,
        dependency: CommitDependency,
        most: Duration,
    ) -> Result<bool, TransactError> {
        match &self.persistence {
            Some(persistence) if persistence.must_wait(dependency) => {
                let waited = self.check_process().and_then(|()| persistence.wait_within(dependency, most));
                waited.map_err(not_durable)
            }
            _ => Ok(true),
        }
    }

    /// Whether a submitted result has to wait. Under [`Durability::Sync`] it is flushed even if no caller waits
    /// for it yet.
    #[inline]
    pub(crate) fn must_wait(&self, dependency: CommitDependency) -> bool {
        match &self.persistence {
            None => false,
            Some(persistence) => {
                let withheld = persistence.must_wait(dependency);
                if withheld && persistence.mode == Durability::Sync && self.process.is_current() {
                    persistence.log.request(dependency.epoch);
                }
                withheld
            }
        }
    }

    /// Ready when a result with this dependency may be returned; `None` if it always may. Requests the flush.
    pub(crate) fn reached(&self, dependency: CommitDependency) -> Option<Reached> {
        self.persistence.as_ref().map(|persistence| {
            persistence.log.request(dependency.epoch);
            persistence.log.durable().reached(dependency.epoch)
        })
    }

    /// Makes all commits so far durable.
    ///
    /// # Errors
    /// [`TransactError::NotDurable`] if the log has stopped or the disk is full;
    /// [`TransactError::NotDurableYet`] beyond the limit.
    pub(crate) fn flush(&self, limit: Option<Duration>) -> Result<(), TransactError> {
        let Some(persistence) = &self.persistence else { return Ok(()) };
        self.check_process().map_err(|_| TransactError::Forked)?;
        match persistence.flush(limit) {
            Ok(true) => Ok(()),
            Ok(false) => Err(persistence.not_yet(true, limit)),
            Err(error) => Err(not_durable(error)),
        }
    }

    /// Why the log takes no commits, as far as known now.
    #[cold]
    pub(crate) fn log_stopped(&self) -> TransactError {
        let refusal = self.persistence.as_ref().and_then(|persistence| persistence.log.refusal());
        refused(refusal.unwrap_or(LogError::Backlogged { backlog_bytes: 0 }))
    }

    /// Whether the database was closed, or is being closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.persistence.as_ref().is_some_and(Persistence::is_closing)
    }

    /// Ends acknowledgement for good.
    #[cold]
    pub(crate) fn stop_log(&self, reason: &str) {
        if let Some(persistence) = &self.persistence {
            persistence.log.stop(reason);
        }
    }
}

/// The error of a refused commit.
pub(crate) fn refused(refusal: LogError) -> TransactError {
    match refusal {
        LogError::Full { directory } => TransactError::DiskFull { directory },
        LogError::Backlogged { backlog_bytes } => TransactError::DiskBehind { backlog_bytes },
        LogError::Closed => TransactError::Closed,
        error => TransactError::LogStopped { reason: error.to_string() },
    }
}

pub(super) fn not_durable(error: LogError) -> TransactError {
    TransactError::NotDurable { reason: error.to_string() }
}
