//! Speculation: while a transaction that has finished here waits for its decision, those behind it run on top of it (§4.2 of the
//! paper, Figure 3).
//!
//! Why it is serializable: what runs on top of a finished transaction comes behind it in the order, and sees all that it did. If it
//! aborts, all that ran on top of it is taken back and runs again, in the same order. Nothing of it was told anyone but the coordinator of
//! the one that aborted, which knows what the responses depended on. So what is told is what blocking would have told.
//!
//! Single-partition transactions wait with their replies. Transactions over several partitions of the same coordinator answer at once, and say
//! which one they depend on; that one's own response says what it depends on in turn. If another coordinator is among the
//! undecided, which would not know what to take back, the response waits as well: this is local speculation.
//!
//! Departures: the paper commits the transactions behind the first one up to the next over several partitions; a transaction that has failed
//! here is none for that purpose, because it has no effects and its coordinator can only abort it.
//!
//! What can wait, and for how long: what is behind a transaction with rounds to come, until those have run; replies, until all before
//! them is decided. A transaction runs again each time that one before it aborts, at most as often as there are such.

use std::collections::VecDeque;

use super::Partition;
use super::ordered::{Admission, Arrival, Entry};
use crate::Scheme;

/// Whether the next may run.
pub(super) fn admit<P: Partition>(
    scheme: Scheme,
    undecided: &VecDeque<Entry<P>>,
    next: &Arrival<P::Work>,
) -> Admission {
    let Some(last) = undecided.back() else { return Admission::Alone };
    if !last.is_finished() {
        return Admission::Wait;
    }
    let response_waits = match next {
        Arrival::Call(_) => true,
        Arrival::Fragment(fragment) => {
            let is_other = |other| other != fragment.coordinator;
            scheme == Scheme::LocalSpeculation || undecided.iter().filter_map(Entry::coordinator).any(is_other)
        }
    };
    Admission::Speculate { response_waits }
}
