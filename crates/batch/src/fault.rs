//! Faults that tests inject, to see that they are noticed. In other builds the answer is a constant.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Some edges of the graph are missing.
    EdgesMissed,
    /// Edges run from writers to readers.
    EdgesReversed,
    /// Transactions that abort stay in the order.
    AbortedKept,
    /// Some conflicts do not join components.
    ConflictsMissed,
}

#[cfg(not(test))]
pub(crate) const fn is_injected(_: Fault) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    pub(crate) static INJECTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn is_injected(fault: Fault) -> bool {
    INJECTED.get() == Some(fault)
}
