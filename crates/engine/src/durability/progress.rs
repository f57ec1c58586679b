//! How far a recovery is, for the caller that waits for it.

use std::fmt;
use std::sync::Arc;

/// What a recovery is at, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecoveryPhase {
    /// Loading the checkpoint; counted in bytes.
    Checkpoint,
    /// Replaying the log; counted in bytes.
    Log,
    /// Making secondary indexes; counted in rows.
    Indexes,
}

impl RecoveryPhase {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            RecoveryPhase::Checkpoint => "checkpoint",
            RecoveryPhase::Log => "log",
            RecoveryPhase::Indexes => "indexes",
        }
    }
}

/// How far a recovery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryProgress {
    /// What it is at.
    pub phase: RecoveryPhase,
    /// Bytes or rows done of this phase.
    pub done: u64,
    /// Bytes or rows of this phase in all; `None` where that is not known beforehand.
    pub total: Option<u64>,
}

/// The listener, if there is one.
#[derive(Clone, Default)]
pub struct Listener(pub Option<Arc<dyn Fn(RecoveryProgress) + Send + Sync>>);

impl Listener {
    /// Tells how far it is.
    pub(crate) fn tell(&self, phase: RecoveryPhase, done: u64, total: Option<u64>) {
        if let Some(listener) = &self.0 {
            listener(RecoveryProgress { phase, done, total });
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.0.is_some()).finish()
    }
}
