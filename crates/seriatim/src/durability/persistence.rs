//! The log of an open database: its mode, and how long a result waits for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use seriatim_base::{Epoch, Stamp};
use seriatim_htm::Htm;
use seriatim_redo::LogError;
use seriatim_redo::durable::Reached;
use seriatim_redo::logger::{Log, Logger};
use seriatim_txn::Epochs;

use super::Durability;
use crate::TransactError;
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
    /// The loggers, where nobody but the database's owner runs them ([`Builder::step_helpers`](crate::Builder::step_helpers)).
    stepped: Option<Mutex<Vec<Logger>>>,
    epochs: Arc<Epochs>,
    htm: Htm,
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
        let epoch = self.epochs.current();
        self.htm.outside(|| self.epochs.advance());
        self.log.kick();
        self.wait(Seal(epoch))
    }

    #[cold]
    fn wait(&self, seal: Seal) -> Result<(), LogError> {
        let Some(loggers) = &self.stepped else { return self.log.durable().wait(seal.0) };
        for _ in 0..STEPS_MAX {
            if self.log.durable().wait_timeout(seal.0, Duration::ZERO)? {
                return Ok(());
            }
            if self.epochs.current() <= seal.0 {
                self.htm.outside(|| self.epochs.advance());
            }
            self.step_loggers(loggers);
        }
        match self.log.durable().wait_timeout(seal.0, Duration::ZERO)? {
            true => Ok(()),
            false => Err(LogError::Stopped("the loggers were stepped and made no progress".to_owned())),
        }
    }

    /// Has every logger flush what it has, if the owner runs them.
    pub(crate) fn step(&self) {
        if let Some(loggers) = &self.stepped {
            self.step_loggers(loggers);
        }
    }

    fn step_loggers(&self, loggers: &Mutex<Vec<Logger>>) {
        let mut loggers = loggers.lock().unwrap_or_else(PoisonError::into_inner);
        for logger in loggers.iter_mut() {
            // A logger that fails tells all who wait.
            let _ = logger.step(self.epochs.current());
        }
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
            Some(persistence) if persistence.seals(seal) => {
                persistence.log.durable().wait_timeout(seal.0, most).map_err(not_durable)
            }
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

    /// Why the log takes no commits.
    #[cold]
    pub(crate) fn log_stopped(&self) -> TransactError {
        let reason = self.persistence.as_ref().and_then(|persistence| persistence.log.refusal());
        TransactError::LogStopped { reason: reason.unwrap_or_else(|| "the log is full for the moment".to_owned()) }
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
