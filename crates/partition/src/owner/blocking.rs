//! Blocking: one transaction at a time (§4.1 of the paper, Figure 2).
//!
//! Why it is serializable: at each partition transactions run one after another, and the order at all
//! partitions is that of the coordinator. It is strict: a transaction is answered after it has run everywhere,
//! and transactions sent after that come behind it.
//!
//! Waits and their bounds: every transaction behind the first one over several partitions waits until that one is
//! decided. If its coordinator is down, until that has recovered.

use std::collections::VecDeque;

use super::Partition;
use super::ordered::{Admission, Entry};

/// Whether the next transaction may run.
pub(super) fn admit<P: Partition>(undecided: &VecDeque<Entry<P>>) -> Admission {
    if undecided.is_empty() { Admission::Immediate } else { Admission::Wait }
}
