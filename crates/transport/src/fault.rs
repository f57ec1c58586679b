//! Faults of a carrier that tests inject, to see that they are noticed. Other builds have none.

/// A fault.
#[cfg(any(test, feature = "canary"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Of the messages that an owner takes at once, every other one overtakes the one before it.
    Overtaking,
    /// Some messages to an owner are delivered twice.
    Repeating,
    /// Some decisions do not reach their owner.
    Losing,
}
