//! Mistakes of a carrier that tests make on purpose, to see that they are noticed. Elsewhere there are none.

/// A mistake.
#[cfg(any(test, feature = "canary"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Of the messages that an owner takes at once, every other one overtakes the one before it.
    Overtaking,
    /// A message to an owner is delivered twice, now and then.
    Repeating,
    /// A decision does not reach its owner, now and then.
    Losing,
}
