//! Protocols for tests. Each is a registered protocol under another name, with one difference.
//!
//! The engine opens them by their names in its own tests, and with its feature `test-support`.
//!
//! Invariant: a product build contains none of them.

pub mod all_hot;
mod altered;
pub mod copying;
mod delegate;
pub mod disturbing;
pub mod repairing;

/// Calls a macro with `name => Type` of every protocol for tests.
#[macro_export]
macro_rules! for_each_test_protocol {
    ($callback:path) => {
        $callback! {
            repairing => $crate::repairing::Repairing,
            planned => $crate::repairing::Planned,
            plain => $crate::repairing::Plain,
            grouped => $crate::repairing::Grouped,
            copying => $crate::copying::Copying,
            disturbed => $crate::disturbing::Disturbing,
        }
    };
}
