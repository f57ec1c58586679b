//! Speculation: while a transaction that has finished here waits for its decision, later ones run on top of it
//! (§4.2 of the paper, Figure 3).
//!
//! Why it is serializable: a transaction that runs on top of a finished one comes behind it in the order, and sees all
//! its effects. If the finished one aborts, all transactions on top of it are undone and run again, in the same order.
//! Their results were sent only to the coordinator of the one that aborted, which knows the dependencies of the
//! responses. So clients get the answers that blocking would have given.
//!
//! Replies of single-partition transactions wait. Transactions over several partitions of the same coordinator are
//! answered at once. The response names the transaction on which it depends, whose response names its own dependency in
//! turn. If another coordinator is among the undecided, it would not know which responses are void, so the response
//! waits as well: this is local speculation.
//!
//! Departures: the paper commits the transactions behind the first one up to the next over several partitions.
//! A transaction that has failed here does not count as one, because it has no effects and its coordinator can
//! only abort it.
//!
//! Waits and their bounds: transactions behind one with rounds to come wait until those have run. Replies wait until
//! all before them are decided. A transaction runs again each time that one before it aborts, at most once for each of
//! these.

use std::collections::VecDeque;

use super::Partition;
use super::ordered::{Admission, Arrival, Entry};
use crate::Scheme;

/// Whether the next transaction may run.
pub(super) fn admit<P: Partition>(
    scheme: Scheme,
    undecided: &VecDeque<Entry<P>>,
    next: &Arrival<P::Work>,
) -> Admission {
    let Some(last) = undecided.back() else { return Admission::Immediate };
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
