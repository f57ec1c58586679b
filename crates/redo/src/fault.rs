//! Deliberate faults for canaries: a log that breaks its promise, built only in tests and with the feature
//! `canary`, that must be caught. Without the feature nothing asks for them.

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
    /// Recovers without the log of one logger.
    ForgetLog,
    /// Takes what was written for flushed, when it recovers.
    TrustUnflushed,
    /// Deletes the log before a checkpoint counts.
    DeleteEarly,
    /// Logs a row that a checkpoint leaves out as a patch.
    ForgetWhole,
    /// Adds the amount of each delta twice, when it recovers.
    AddTwice,
    /// Does not say in a filled segment that there is another.
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
