//! Deliberate faults for canaries: a log that breaks its promise, built only in tests and with the feature `canary`, that must
//! be caught. Without the feature nothing asks for them.

/// What is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFault {
    /// Nothing.
    #[default]
    None,
    /// Moves the durable point before the flush.
    AcknowledgeBeforeFlush,
    /// Takes what one logger has flushed for what all have.
    FlushOwnLogOnly,
    /// Recovers without the log of the last logger.
    DropOneLoggersLog,
}

impl LogFault {
    /// Every fault of the log; a recovery is broken by [`Replay::suffer`](crate::replay::Replay::suffer).
    pub const ALL: [LogFault; 2] = [LogFault::AcknowledgeBeforeFlush, LogFault::FlushOwnLogOnly];
}
