//! The progress of a recovery, for a waiting caller.

use std::fmt;
use std::sync::Arc;

/// The phases of a recovery, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecoveryPhase {
    /// Loading the checkpoint; counted in bytes.
    Checkpoint,
    /// Replaying the log; counted in bytes.
    Log,
    /// Building secondary indexes; counted in rows.
    Indexes,
}

impl RecoveryPhase {
    /// The phase in words.
    pub const fn name(self) -> &'static str {
        match self {
            RecoveryPhase::Checkpoint => "checkpoint",
            RecoveryPhase::Log => "log",
            RecoveryPhase::Indexes => "indexes",
        }
    }
}

/// The progress of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryProgress {
    /// The current phase.
    pub phase: RecoveryPhase,
    /// Bytes or rows done of this phase.
    pub done: u64,
    /// Bytes or rows of this phase in all; `None` if that is not known beforehand.
    pub total: Option<u64>,
}

/// The listener, if there is one.
#[derive(Clone, Default)]
pub struct Listener(pub Option<Arc<dyn Fn(RecoveryProgress) + Send + Sync>>);

impl Listener {
    /// Reports the progress.
    pub(crate) fn report(&self, phase: RecoveryPhase, done: u64, total: Option<u64>) {
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
