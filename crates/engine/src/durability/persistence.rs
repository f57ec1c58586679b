//! The log of an open database: its mode, and how long a result waits for it.
//!
//! Acknowledgement ends for good when the log stops: a sync failed, here or of the manifest, or a commit ended by a panic. From then
//! on a result is returned only if all it depends on was durable before, in every mode.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::table::TableSet;
use crate::{CloseError, LogStatistics, TransactError};

/// What a result depends on: it is returned when this epoch is durable. Epoch zero: on nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitDependency {
    epoch: Epoch,
    /// Whether the transaction has written something.
    wrote: bool,
}

impl CommitDependency {
    /// The same, and on what has this TID.
    #[inline]
    pub(crate) fn with(self, tid: Tid) -> CommitDependency {
        CommitDependency { epoch: self.epoch.max(tid.epoch()), ..self }
    }

    /// The same, of a transaction that has written something.
    #[inline]
    pub(crate) fn of_writer(self) -> CommitDependency {
        CommitDependency { wrote: true, ..self }
    }

    /// Of which epoch the newest is that it depends on.
    #[inline]
    pub(crate) fn epoch(self) -> Epoch {
        self.epoch
    }

    fn until(epoch: Epoch) -> CommitDependency {
        CommitDependency { epoch, wrote: false }
    }
}

/// Whether the durable point has stood still for long although there is something to flush, and so whether snapshots show the durable
/// epoch rather than wait for the disk.
#[derive(Debug, Default)]
pub(crate) struct Behind(AtomicBool);

/// For how long the durable point may stand still.
const BEHIND_AFTER: Duration = Duration::from_millis(100);

/// By then it is known whether the disk is full or behind.
const OVERTAKEN_WITHIN: Duration = Duration::from_millis(250);

impl Behind {
    #[inline]
    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Looks at each tick of an epoch that lasts `interval`.
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
    /// Whether the owner runs the loggers.
    stepped: bool,
    epochs: Arc<Epochs>,
    htm: Htm,
    home: Arc<Home>,
    /// What a checkpoint wants of commits.
    pub(crate) whole_before: Arc<WholeBefore>,
    /// Held while a checkpoint is taken.
    pub(crate) checkpointing: Mutex<()>,
    pub(super) checkpoints: Mutex<Checkpoints>,
    /// Nobody has the database open any more: a checkpoint under way is given up.
    closing: AtomicBool,
    /// Whether there are versions for readers of the durable epoch.
    keeps_versions: bool,
    pub(crate) behind: Arc<Behind>,
    /// When the log was opened, and the epoch then.
    began: (Instant, Epoch),
}

/// Which thread steps the loggers.
enum Loggers {
    /// Threads of their own.
    Threads(LogThreads),
    /// The database's owner ([`Settings::step_helpers`](crate::Settings::step_helpers)), and each waiting caller.
    Stepped(Vec<Logger>),
    /// Nobody any more; how that went.
    Closed(Result<(), CloseError>),
}

/// Steps of all loggers that make an epoch durable where nothing fails: one before which it cannot end, as epochs are far; one that flushes it; one in
/// which a logger that had nothing notes that others had; and one more.
const STEPS_MAX: usize = 4;

/// How long a wait that has other ends than the durable point lasts until it looks for them.
const LOOK: Duration = Duration::from_millis(5);

/// How long it takes until it is looked at again whether epochs are far.
const NEAR_LOOK: Duration = Duration::from_millis(1);

/// A checkpoint is due when recovery needs the logs of so many earlier openings, each of which counts as a part of
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

    /// Whether nobody is to end one before the disk has said how far they are.
    pub(super) fn are_epochs_far(&self) -> bool {
        self.epochs.are_far()
    }

    /// Ends the epoch.
    pub(super) fn advance(&self) -> Epoch {
        self.epochs.advance(&self.htm)
    }

    /// What was committed so far is not logged: the entries of indexes that were made again. Nobody else has the database yet. It
    /// counts as durable, so it is seen should the log stop before anything else is.
    pub(crate) fn skip_unlogged(&self) {
        let next = self.advance();
        self.log.durable().point().skip_to(Epoch(next.0 - 1));
    }

    /// What a snapshot that begins now holds, to show the durable epoch; `None` if it shows what has committed. What has committed would
    /// have to be waited for. Nothing that was acknowledged is missing, where results wait until they are durable.
    #[inline]
    pub(crate) fn hold(&self) -> Option<Hold> {
        self.holds_up().then(|| self.log.durable().point().hold())
    }

    /// Whether snapshots are not to wait for the disk. Once the log has stopped they show the durable epoch anyway.
    #[inline]
    fn holds_up(&self) -> bool {
        let is_behind = self.log.refuses() || self.behind.is_so();
        is_behind && self.keeps_versions && self.mode != Durability::Async && !self.log.durable().is_stopped()
    }

    /// Waits until what a snapshot saw is durable, or until it would better begin again and show the durable epoch: whether so.
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

    /// Waits until who begins may end an epoch: while they are far, as a transaction waits for a disk that is behind, and not if snapshots show the durable
    /// epoch.
    ///
    /// # Errors
    /// That did not help.
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

    /// Makes everything committed so far durable; gives up when the disk is full. Whether it did within the limit.
    pub(crate) fn flush(&self, limit: Option<Duration>) -> Result<bool, LogError> {
        self.wait_for_at_most(self.current(), limit)
    }

    /// The newest epoch that a power cut does not take back.
    pub(crate) fn durable_epoch(&self) -> Epoch {
        self.log.durable().epoch()
    }

    /// What log and checkpoints have done.
    pub(crate) fn statistics(&self) -> LogStatistics {
        // First: if it has stopped, the durable epoch does not change any more; and that is not above the epoch.
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

    /// Nobody has the database open any more.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Whether a checkpoint under way is of no use any more.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// The epoch now.
    pub(super) fn current(&self) -> Epoch {
        self.epochs.current()
    }

    /// Has the loggers end the epoch, and waits until it is durable, the disk is full, or the database is closed.
    pub(super) fn wait_for(&self, epoch: Epoch) -> Result<(), LogError> {
        self.wait_for_at_most(epoch, None).map(drop)
    }

    /// As [`Persistence::wait_for`]: whether it is durable within the limit.
    fn wait_for_at_most(&self, epoch: Epoch, limit: Option<Duration>) -> Result<bool, LogError> {
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

    /// Waits until the disk says that the current epoch is durable, whether anything was logged in it or not.
    pub(super) fn record(&self) -> Result<Epoch, LogError> {
        let end = self.current();
        self.log.record(end);
        // The epoch that was asked for may be durable by now, and not be recorded. One that ends from here on is told durable only by
        // a logger that has seen the request: see `Log::record`.
        self.wait_for(self.current()).map(|()| end)
    }

    /// Whether it is durable within the limit. While the disk is full that takes until there is space. Where the owner runs the
    /// loggers it runs them, and fails if that does not help.
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
            false => Err(self
                .log
                .refusal()
                .unwrap_or_else(|| LogError::Stopped("a commit is in the way of the log".to_owned()))),
        }
    }

    /// Runs the loggers until it is durable; whether it is.
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

    fn loggers(&self) -> MutexGuard<'_, Loggers> {
        self.loggers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has every logger flush what it has, if the owner runs them.
    pub(crate) fn step(&self) {
        if is_at_limit(self.current()) {
            stop_at_limit(&self.log);
        }
        if let Loggers::Stepped(loggers) = &mut *self.loggers() {
            for logger in loggers {
                // A logger that fails tells all who wait.
                logger.step(self.end_requested());
            }
        }
    }

    /// Steps one logger, if the owner runs them and there are so many.
    #[cfg(feature = "test-support")]
    pub(crate) fn step_logger(&self, logger: usize) {
        if let Loggers::Stepped(loggers) = &mut *self.loggers()
            && let Some(logger) = loggers.get_mut(logger)
        {
            logger.step(self.end_requested());
        }
    }

    /// The limit was reached.
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

    /// What the directory consists of, with the log up to now, as if the database was closed.
    pub(crate) fn manifest_now(&self) -> Manifest {
        let manifest = self.home.manifest();
        let mut now = manifest.clone();
        // Under the lock: the log has entries of no table that is created later.
        let (recorded, ends) = self.log.recorded();
        if let Some(current) = now.incarnations.last_mut() {
            (current.durable_epoch, current.ends) = (Some(recorded), ends);
        }
        now
    }

    /// Changes what the directory consists of: durable when this returns.
    ///
    /// # Errors
    /// That the log has stopped. When the manifest cannot be written: the old one is in place and all goes on; or that is not known,
    /// and then the log stops.
    pub(super) fn change(&self, change: impl FnOnce(&mut Manifest)) -> Result<(), LogError> {
        // Under the manifest's lock, so that nobody builds on what another did not know to be there.
        let mut manifest = self.home.manifest();
        if let Some(reason) = self.log.durable().stop_reason() {
            return Err(LogError::Stopped(reason));
        }
        self.log.check_in_place()?;
        let mut changed = manifest.clone();
        change(&mut changed);
        if let Some(current) = changed.incarnations.last_mut() {
            // A reader that finds less later finds damage.
            current.ends = self.log.ends();
        }
        match changed.write(self.home.disk.as_ref(), &self.home.directory) {
            Ok(()) => *manifest = changed,
            Err(NotWritten { error, is_final }) => {
                if is_final {
                    self.log.stop(&format!("{error}; look after the disk, and open the database again"));
                }
                return Err(error);
            }
        }
        // It may have been moved or removed since.
        self.log.check_in_place()
    }

    /// Adds tables that were just made.
    ///
    /// # Errors
    /// As [`Persistence::change`].
    pub(crate) fn add_tables(&self, sets: &[Arc<TableSet>]) -> Result<(), LogError> {
        self.change(|manifest| sets.iter().for_each(|set| super::open::add_table(manifest, set, false)))
    }

    /// Begins to log.
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
                // Of a database that was there before: so that the next recovery is of a snapshot of this opening.
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
            // For readers of the durable epoch, should the log stop.
            environment.memory.keep_versions(Arc::clone(log.durable().point()));
        }
        // Many short lives leave many files, however little is in them.
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

/// Closing flushes what was committed. What cannot be flushed then is lost as in a power cut. What was flushed the manifest says, so that
/// damage at the end of the log is not taken for a write that was cut short.
impl Persistence {
    /// Ends the log, once; from then on it takes nothing, and the directory is unlocked.
    ///
    /// # Errors
    /// What was committed and is not durable. The same each time.
    pub(crate) fn close(&self) -> Result<(), CloseError> {
        let after = self.advance();
        let is_logger = matches!(&*self.loggers(), Loggers::Threads(threads) if threads.is_current());
        // A backup under way has the directory. A logger closes the database only where nobody else has it.
        let _no_backup = (!is_logger).then(|| self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner));
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
            // Whether anything was lost: a log that cannot go on may have flushed all there was, and where the manifest does not say where
            // it ends a recovery finds out.
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
            // A result that a logger woke was the last that kept the database: its thread cannot wait for itself. Where no thread can
            // be had the log stops where it is.
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
        // Callers that asked for durability were told; to know now there is `Database::close`.
        let _ = self.close();
    }
}

/// What the disk has said of epochs, and has it say more now and then, though nothing is logged in them.
fn said(log: &Log, current: Epoch) -> Epoch {
    if log.durable().is_stopped() {
        // From now on none is told above the durable one.
        return current;
    }
    let said = log.mentioned();
    if current.0 >= said.0 + UNSAID_MAX / 2 {
        log.record(current);
        // Who is told of a full disk, or has found it so, tries again in time: this may be a logger's step.
        if !log.refuses() {
            log.wake();
        }
    }
    said
}

/// Ends `epoch`, if it is not over and they are not far; the current epoch.
fn end_epoch(epochs: &Epochs, htm: &Htm, epoch: Epoch) -> Epoch {
    let current = epochs.current();
    if current > epoch { current } else { epochs.advance_unless_far(htm) }
}

/// Refuses commits while there are still epochs for those under way.
#[cold]
pub(crate) fn stop_at_limit(log: &Log) {
    log.stop("the epochs that TIDs have bits for are used up: load the rows into a new database");
}

/// Withholding results until they are durable, for databases with a log and without.
impl Inner {
    /// Refuses what needs the threads of the process that opened the database.
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

    /// Whether a snapshot with this dependency is to begin again: what it saw is not durable, and waiting for the disk
    /// takes long.
    #[inline]
    pub(crate) fn is_overtaken(&self, dependency: CommitDependency, limit: Option<Duration>) -> bool {
        let persistence = self.persistence.as_ref();
        persistence
            .is_some_and(|persistence| persistence.must_wait(dependency) && persistence.is_overtaken(dependency, limit))
    }

    /// As [`Inner::wait_until_durable`], for `most` at the longest: whether it may be returned.
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

    /// Whether a submitted result has to wait. Under [`Durability::Sync`] it is flushed although nobody waits for it yet.
    #[inline]
    pub(crate) fn must_wait(&self, dependency: CommitDependency) -> bool {
        match &self.persistence {
            None => false,
            Some(persistence) => {
                let withheld = persistence.must_wait(dependency);
                if withheld && persistence.mode == Durability::Sync {
                    persistence.log.request(dependency.epoch);
                }
                withheld
            }
        }
    }

    /// Ready when a result with this dependency may be returned; `None` if it always may. Somebody waits for it.
    pub(crate) fn reached(&self, dependency: CommitDependency) -> Option<Reached> {
        self.persistence.as_ref().map(|persistence| {
            persistence.log.request(dependency.epoch);
            persistence.log.durable().reached(dependency.epoch)
        })
    }

    /// Makes everything committed so far durable.
    ///
    /// # Errors
    /// [`TransactError::NotDurable`] if the log has stopped or the disk is full; [`TransactError::NotDurableYet`] beyond the limit.
    pub(crate) fn flush(&self, limit: Option<Duration>) -> Result<(), TransactError> {
        let Some(persistence) = &self.persistence else { return Ok(()) };
        self.check_process().map_err(|_| TransactError::Forked)?;
        match persistence.flush(limit) {
            Ok(true) => Ok(()),
            Ok(false) => Err(persistence.not_yet(true, limit)),
            Err(error) => Err(not_durable(error)),
        }
    }

    /// Why the log takes no commits, as far as it is known now.
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

/// Why a commit was refused.
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
