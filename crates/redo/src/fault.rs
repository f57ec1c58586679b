//! Deliberate faults for canaries. A log with a fault breaks a promise, and the tests must catch it. Built only
//! in tests and with the feature `canary`; nothing enables a fault otherwise.

/// The fault of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFault {
    /// Nothing.
    #[default]
    None,
    /// Moves the durable point before the flush.
    AcknowledgeBeforeFlush,
    /// Takes the progress of one logger for that of all loggers.
    FlushOwnLogOnly,
    /// Recovers without the log of one logger.
    ForgetLog,
    /// Recovery takes written bytes for flushed ones.
    TrustUnflushed,
    /// Deletes the log before the manifest names the checkpoint.
    DeleteEarly,
    /// Logs a patch for a row that a checkpoint leaves out.
    ForgetWhole,
    /// Recovery adds the amount of each delta twice.
    AddTwice,
    /// Writes no link at the end of a filled segment.
    OmitLinks,
}

impl LogFault {
    /// Every fault but none.
    pub const ALL: [LogFault; 8] = [
        LogFault::AcknowledgeBeforeFlush,
        LogFault::FlushOwnLogOnly,
        LogFault::ForgetLog,
        LogFault::TrustUnflushed,
        LogFault::DeleteEarly,
        LogFault::ForgetWhole,
        LogFault::AddTwice,
        LogFault::OmitLinks,
    ];
}
