//! Faults that tests inject, to see that they are noticed. In other builds the answer is a constant.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The response of a speculated fragment does not name the transaction on which it depends.
    DependencyLost,
    /// An owner votes to commit without a record that it is prepared.
    PrepareForgotten,
    /// An abort that undoes the transactions on top of it misses the one that ran last.
    CascadeMissed,
    /// A coordinator keeps a response that depends on a void one.
    VoidResponseKept,
    /// Undo buffers are dropped with the vote.
    UndoDroppedEarly,
    /// Single-partition transactions take no locks while another is active.
    LockSkipped,
    /// The reply of a speculated transaction is sent at once.
    ReplyLeaked,
    /// A user abort behind an undecided transaction is reported at once.
    UserAbortLeaked,
    /// The first participant receives a decision before it is durable.
    DecisionHalfPersisted,
    /// A speculated single-partition transaction is recorded when it commits, after votes that depend on it.
    SpeculatedUnrecorded,
    /// A coordinator believes that a partition is down although it has had a message of a later incarnation.
    LateNoticeTaken,
    /// An owner undoes transactions that have voted when the coordinator goes down.
    VotedUndone,
    /// The undo of a fragment is kept in a transaction of its own, after the fragment's.
    UndoApart,
    /// An undo that failed because a durable owner's disk was full is not done later either.
    OwedForgotten,
    /// A durable owner forgets its votes at a restart.
    VotesForgotten,
    /// Outputs of a durable owner leave before the state on which they depend is durable.
    LeftEarly,
    /// Decisions of a durable coordinator leave before they are durable.
    DecisionLeftEarly,
}

/// Whether this fault is injected.
#[cfg(not(any(test, feature = "canary")))]
pub const fn is_injected(_: Fault) -> bool {
    false
}

#[cfg(any(test, feature = "canary"))]
thread_local! {
    pub(crate) static INJECTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Injects a fault on this thread from now on, or none.
#[cfg(feature = "canary")]
pub fn inject(fault: Option<Fault>) {
    INJECTED.set(fault);
}

/// Whether this fault is injected.
#[cfg(any(test, feature = "canary"))]
pub fn is_injected(fault: Fault) -> bool {
    INJECTED.get() == Some(fault)
}
