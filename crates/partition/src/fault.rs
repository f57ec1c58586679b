//! Mistakes that tests make on purpose, to see that they are noticed. Elsewhere the answer is a constant.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A speculated fragment's response does not say what it depends on.
    DependencyLost,
    /// An owner votes to commit without a record that it is prepared.
    PrepareForgotten,
    /// What is taken back with an aborted transaction leaves out the one that ran last.
    CascadeMissed,
    /// A coordinator keeps a response that depends on one that has become void.
    VoidResponseKept,
    /// Undo buffers are dropped with the vote.
    UndoDroppedEarly,
    /// Single-partition transactions take no locks while another is active.
    LockSkipped,
    /// The reply of a speculated transaction is sent at once.
    ReplyLeaked,
    /// A user abort behind an undecided transaction is reported at once.
    UserAbortLeaked,
    /// The first participant is told a decision before it is durable.
    DecisionHalfPersisted,
    /// A speculated single-partition transaction is recorded when it commits, after votes that depend on it.
    SpeculatedUnrecorded,
    /// A coordinator believes that a partition is down although it has heard of a later life.
    LateNoticeTaken,
    /// An owner undoes what has voted when the coordinator goes down.
    VotedUndone,
    /// What takes a fragment back is kept in a transaction of its own, after the fragment's.
    UndoApart,
    /// What a durable owner's full disk did not let it take back is not taken back later either.
    OwedForgotten,
    /// A durable owner does not know after a restart what it has voted for.
    VotesForgotten,
    /// What a durable owner puts out leaves before that on which it rests is durable.
    LeftEarly,
    /// Decisions of a durable coordinator leave before they are durable.
    DecisionLeftEarly,
}

/// Whether this mistake is to be made here.
#[cfg(not(any(test, feature = "canary")))]
pub const fn is_injected(_: Fault) -> bool {
    false
}

#[cfg(any(test, feature = "canary"))]
thread_local! {
    pub(crate) static INJECTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Makes a mistake on this thread from now on, or none any more.
#[cfg(feature = "canary")]
pub fn inject(fault: Option<Fault>) {
    INJECTED.set(fault);
}

/// Whether this mistake is to be made here.
#[cfg(any(test, feature = "canary"))]
pub fn is_injected(fault: Fault) -> bool {
    INJECTED.get() == Some(fault)
}
