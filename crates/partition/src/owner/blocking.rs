//! Blocking: one transaction at a time (§4.1 of the paper, Figure 2).
//!
//! Why it is serializable: at each partition transactions run one after another, and the order at all partitions is that of the
//! coordinator. It is strict: a transaction is answered after it has run everywhere, and what is sent after that comes behind it.
//!
//! What can wait, and for how long: everything behind the first transaction over several partitions, until that one is decided. If its
//! coordinator is down, until that has recovered.

use std::collections::VecDeque;

use super::Partition;
use super::ordered::{Admission, Entry};

/// Whether the next may run.
pub(super) fn admit<P: Partition>(undecided: &VecDeque<Entry<P>>) -> Admission {
    if undecided.is_empty() { Admission::Alone } else { Admission::Wait }
}
