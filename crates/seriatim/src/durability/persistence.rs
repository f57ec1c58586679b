//! The log of an open database: its mode, and how long a result waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim_base::{Epoch, Stamp};
use seriatim_htm::Htm;
use seriatim_redo::durable::Reached;
use seriatim_redo::{Log, LogError, LogThreads, Logger, Writer};
use seriatim_txn::{Environment, Epochs};

use super::Durability;
use super::open::{Home, OpenLog};
use crate::TransactError;
use crate::builder::Builder;
use crate::database::Inner;

/// What a result depends on: it leaves when this epoch is durable. Epoch zero: on nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seal(Epoch);

impl Seal {
    /// The same, and on what has this stamp.
    #[inline]
    pub(crate) fn with(self, stamp: Stamp) -> Seal {
        Seal(self.0.max(stamp.epoch()))
    }
}

/// The log of an open database.
pub(crate) struct Persistence {
    mode: Durability,
    log: Log,
    loggers: Mutex<Loggers>,
    epochs: Arc<Epochs>,
    htm: Htm,
    home: Home,
    /// Held while a checkpoint is taken.
    pub(super) checkpointing: Mutex<()>,
}

/// Who steps the loggers.
enum Loggers {
    /// Threads of their own.
    Threads(LogThreads),
    /// The database's owner ([`Builder::step_helpers`](crate::Builder::step_helpers)), and whoever waits.
    Stepped(Vec<Logger>),
    /// Nobody any more.
    Closed,
}

/// Steps of all loggers that make an epoch durable where nothing fails: one that flushes it, one in which a logger that had
/// nothing notes that others had.
const STEPS_MAX: usize = 3;

impl Persistence {
    /// Whether a result has to wait.
    #[inline]
    pub(crate) fn seals(&self, seal: Seal) -> bool {
        matches!(self.mode, Durability::Group | Durability::Sync) && seal.0 > self.log.durable().epoch()
    }

    /// Ends the epoch of the seal, so that it can become durable, if the mode asks for it.
    fn hasten(&self, seal: Seal) {
        if self.mode == Durability::Sync {
            if self.epochs.current() <= seal.0 {
                self.htm.outside(|| self.epochs.advance());
            }
            self.log.kick();
        }
    }

    /// Makes everything committed so far durable.
    pub(crate) fn flush(&self) -> Result<(), LogError> {
        self.wait_for(self.current())
    }

    /// The epoch now.
    pub(super) fn current(&self) -> Epoch {
        self.epochs.current()
    }

    /// Ends the epoch, if it is the current one, and waits until it is durable.
    pub(super) fn wait_for(&self, epoch: Epoch) -> Result<(), LogError> {
        if self.epochs.current() <= epoch {
            self.htm.outside(|| self.epochs.advance());
        }
        self.log.kick();
        self.wait(Seal(epoch))
    }

    /// Ends the current epoch and waits until the disk says that it is durable, whether anything was logged in it or not.
    pub(super) fn record(&self) -> Result<Epoch, LogError> {
        let epoch = self.current();
        self.log.record(epoch);
        self.wait_for(epoch).map(|()| epoch)
    }

    #[cold]
    fn wait(&self, seal: Seal) -> Result<(), LogError> {
        if !self.is_stepped() {
            return self.log.durable().wait(seal.0);
        }
        for _ in 0..STEPS_MAX {
            if self.reached_now(seal)? {
                return Ok(());
            }
            if self.epochs.current() <= seal.0 {
                self.htm.outside(|| self.epochs.advance());
            }
            self.step();
        }
        match self.reached_now(seal)? {
            true => Ok(()),
            false => {
                Err(self.log.refusal().unwrap_or_else(|| LogError::Stopped("the loggers make no progress".to_owned())))
            }
        }
    }

    fn wait_within(&self, seal: Seal, most: Duration) -> Result<bool, LogError> {
        if most.is_zero() { self.reached_now(seal) } else { self.log.durable().wait_timeout(seal.0, most) }
    }

    fn reached_now(&self, seal: Seal) -> Result<bool, LogError> {
        self.log.durable().poll(seal.0).map_or(Ok(false), |answer| answer.map(|()| true))
    }

    fn is_stepped(&self) -> bool {
        matches!(*self.loggers(), Loggers::Stepped(_))
    }

    fn loggers(&self) -> MutexGuard<'_, Loggers> {
        self.loggers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has every logger flush what it has, if the owner runs them.
    pub(crate) fn step(&self) {
        if let Loggers::Stepped(loggers) = &mut *self.loggers() {
            for logger in loggers {
                // A logger that fails tells all who wait.
                logger.step(self.epochs.current());
            }
        }
    }

    /// Steps one logger, if the owner runs them and there are so many.
    #[cfg(feature = "trial")]
    pub(crate) fn step_logger(&self, logger: usize) {
        if let Loggers::Stepped(loggers) = &mut *self.loggers()
            && let Some(logger) = loggers.get_mut(logger)
        {
            logger.step(self.epochs.current());
        }
    }

    /// The log.
    pub(crate) fn log(&self) -> Log {
        self.log.clone()
    }

    /// The directory.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Begins to log.
    pub(crate) fn start(
        options: &Builder,
        environment: &Environment,
        opened: OpenLog,
    ) -> Result<(Persistence, Vec<Writer>), LogError> {
        let OpenLog { home, log, loggers, writers } = opened;
        let epochs = Arc::clone(&environment.epochs);
        let loggers = match options.step_helpers {
            true => Loggers::Stepped(loggers),
            false => {
                let epochs = Arc::clone(&epochs);
                Loggers::Threads(log.spawn(loggers, options.epoch_interval, move || epochs.current())?)
            }
        };
        let mode = options.durability.unwrap_or(Durability::Group);
        let htm = environment.htm.clone();
        Ok((
            Persistence { mode, log, loggers: Mutex::new(loggers), epochs, htm, home, checkpointing: Mutex::default() },
            writers,
        ))
    }
}

/// Closing flushes what was committed. What cannot be flushed then is lost as in a power cut: who must know asks
/// [`Database::flush`](crate::Database::flush) before.
impl Drop for Persistence {
    fn drop(&mut self) {
        self.htm.outside(|| self.epochs.advance());
        let after = self.epochs.current();
        let closed = match std::mem::replace(&mut *self.loggers(), Loggers::Closed) {
            Loggers::Threads(threads) => threads.close(after),
            Loggers::Stepped(loggers) => self.log.close(loggers, after),
            Loggers::Closed => return,
        };
        drop(closed);
    }
}

/// Sealing and unsealing, for databases with a log and without.
impl Inner {
    /// Waits until a result with this seal may leave.
    ///
    /// # Errors
    /// [`TransactError::NotDurable`] if the log stopped before.
    #[inline]
    pub(crate) fn unseal(&self, seal: Seal) -> Result<(), TransactError> {
        match &self.persistence {
            Some(persistence) if persistence.seals(seal) => {
                persistence.hasten(seal);
                persistence.wait(seal).map_err(not_durable)
            }
            _ => Ok(()),
        }
    }

    /// As [`Inner::unseal`], for `most` at the longest: whether it may leave.
    pub(crate) fn unseal_within(&self, seal: Seal, most: Duration) -> Result<bool, TransactError> {
        match &self.persistence {
            Some(persistence) if persistence.seals(seal) => persistence.wait_within(seal, most).map_err(not_durable),
            _ => Ok(true),
        }
    }

    /// Whether a result has to wait.
    #[inline]
    pub(crate) fn seals(&self, seal: Seal) -> bool {
        match &self.persistence {
            None => false,
            Some(persistence) => {
                let sealed = persistence.seals(seal);
                if sealed {
                    persistence.hasten(seal);
                }
                sealed
            }
        }
    }

    /// Ready when a result with this seal may leave; `None` if it always may.
    pub(crate) fn reached(&self, seal: Seal) -> Option<Reached> {
        self.persistence.as_ref().map(|persistence| persistence.log.durable().reached(seal.0))
    }

    /// Makes everything committed so far durable.
    ///
    /// # Errors
    /// [`TransactError::NotDurable`] if the log has stopped.
    pub(crate) fn flush(&self) -> Result<(), TransactError> {
        match &self.persistence {
            Some(persistence) => persistence.flush().map_err(not_durable),
            None => Ok(()),
        }
    }

    /// Why the log takes no commits.
    #[cold]
    pub(crate) fn log_stopped(&self) -> TransactError {
        let refusal = self.persistence.as_ref().and_then(|persistence| persistence.log.refusal());
        // If it takes commits again by now, the disk was behind or full for a while.
        let reason =
            refusal.map_or_else(|| "the disk did not keep up; try again".to_owned(), |error| error.to_string());
        TransactError::LogStopped { reason }
    }

    /// Ends acknowledgement for good.
    #[cold]
    pub(crate) fn stop_log(&self, reason: &str) {
        if let Some(persistence) = &self.persistence {
            persistence.log.stop(reason);
        }
    }
}

pub(super) fn not_durable(error: LogError) -> TransactError {
    TransactError::NotDurable { reason: error.to_string() }
}
