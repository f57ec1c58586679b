//! Replay: repeats the work in the records, and passes the undecided transactions to the scheme.
//!
//! Records are in execution order, which is a serial order of the committed transactions. A prepared
//! transaction takes effect in that order at its decision. Transactions that ran in between did so on top of
//! it and wait for it, or (under `locking`) do not conflict with it.

use super::{OwnerRecord, Partition, PartitionState, TransactionId};
use crate::CoordinatorId;

/// A transaction that had run at a partition when its owner ended, and whose end is not known there.
pub struct Unfinished<P: Partition> {
    /// The transaction.
    pub transaction: TransactionId,
    /// Its coordinator; `None` for a single-partition transaction that ran on top of others.
    pub coordinator: Option<CoordinatorId>,
    /// Its work here with the undo of each fragment, the latest last.
    pub done: Vec<(P::Work, P::Undo)>,
}

/// The transactions that a partition with its own durable state knows from before its owner ended.
pub struct RecoveredState<P: Partition> {
    /// The incarnation that begins, above all earlier ones.
    pub incarnation: u64,
    /// Transactions that have voted and are not decided, and those that ran on top of them, in execution
    /// order.
    pub unfinished: Vec<Unfinished<P>>,
    /// The highest numbers of single-partition transactions, of each client.
    pub calls: Vec<TransactionId>,
    /// The highest numbers of others, each with its coordinator.
    pub fragments: Vec<(TransactionId, CoordinatorId)>,
}

impl<P: Partition> RecoveredState<P> {
    /// The same for another type of partition with the same work and undo.
    pub fn of_same<Q: Partition<Work = P::Work, Undo = P::Undo>>(self) -> RecoveredState<Q> {
        let of_same = |Unfinished { transaction, coordinator, done }| Unfinished { transaction, coordinator, done };
        let RecoveredState { incarnation, unfinished, calls, fragments } = self;
        RecoveredState { incarnation, unfinished: unfinished.into_iter().map(of_same).collect(), calls, fragments }
    }
}

/// A transaction whose end is not in the records.
#[derive(Debug)]
pub(super) struct Undecided<W> {
    pub(super) transaction: TransactionId,
    /// The transaction on top of which it ran, if that is not decided either.
    pub(super) after: Option<TransactionId>,
    pub(super) what: UndecidedKind<W>,
}

/// The kind of transaction, with its work.
#[derive(Debug)]
pub(super) enum UndecidedKind<W> {
    /// A single-partition transaction that ran on top of an undecided one.
    Executed(W),
    /// A transaction over several partitions, with its fragments.
    Prepared { coordinator: CoordinatorId, works: Vec<W> },
}

impl<W: Clone> Undecided<W> {
    /// Runs it again.
    pub(super) fn again<P: Partition<Work = W>>(self, place: &mut PartitionState<P>) -> Unfinished<P> {
        let transaction = self.transaction;
        let (coordinator, works) = match self.what {
            UndecidedKind::Executed(work) => (None, vec![work]),
            UndecidedKind::Prepared { coordinator, works } => (Some(coordinator), works),
        };
        let done = works.into_iter().map(|work| {
            let (_, undo) = place.run_again(transaction, &work);
            (work, undo)
        });
        Unfinished { transaction, coordinator, done: done.collect() }
    }
}

impl<W> Undecided<W> {
    fn is_prepared(&self) -> bool {
        matches!(self.what, UndecidedKind::Prepared { .. })
    }

    /// Whether it is this transaction, prepared. A single-partition transaction may have the same number.
    fn is_prepared_as(&self, transaction: TransactionId) -> bool {
        self.is_prepared() && self.transaction == transaction
    }
}

/// Repeats the work in the records. Returns the undecided transactions, in order.
pub(super) fn replay<P: Partition>(
    place: &mut PartitionState<P>,
    records: impl IntoIterator<Item = OwnerRecord<P::Work>>,
) -> Vec<Undecided<P::Work>> {
    let mut undecided: Vec<Undecided<P::Work>> = Vec::new();
    for record in records {
        match record {
            OwnerRecord::Executed { transaction, work, after: None } => apply(place, transaction, &work),
            OwnerRecord::Executed { transaction, work, after } => {
                undecided.push(Undecided { transaction, after, what: UndecidedKind::Executed(work) });
            }
            OwnerRecord::Prepared { transaction, coordinator, works, after } => {
                undecided.retain(|other| !other.is_prepared_as(transaction));
                undecided.push(Undecided { transaction, after, what: UndecidedKind::Prepared { coordinator, works } });
            }
            OwnerRecord::Decided { transaction, commit: true } => commit(place, &mut undecided, transaction),
            OwnerRecord::Decided { transaction, commit: false } => abort(&mut undecided, transaction),
        }
    }
    undecided
}

fn apply<P: Partition>(place: &mut PartitionState<P>, transaction: TransactionId, work: &P::Work) {
    let (_, undo) = place.run_again(transaction, work);
    place.partition.forget(undo);
}

/// Commits a transaction, and the single-partition ones that ran on top of it alone.
fn commit<P: Partition>(
    place: &mut PartitionState<P>,
    undecided: &mut Vec<Undecided<P::Work>>,
    transaction: TransactionId,
) {
    let mut kept = Vec::new();
    for mut one in std::mem::take(undecided) {
        let is_on_top = one.after == Some(transaction);
        match &one.what {
            UndecidedKind::Prepared { works, .. } if one.transaction == transaction => {
                works.iter().for_each(|work| apply(place, transaction, work));
            }
            UndecidedKind::Executed(work) if is_on_top => apply(place, one.transaction, work),
            _ => {
                one.after = one.after.filter(|_| !is_on_top);
                kept.push(one);
            }
        }
    }
    *undecided = kept;
}

/// Aborts a transaction; those that ran on top of it are void.
fn abort<W>(undecided: &mut Vec<Undecided<W>>, transaction: TransactionId) {
    let mut void = vec![transaction];
    undecided.retain(|one| {
        let is_void = one.is_prepared_as(transaction) || one.after.is_some_and(|after| void.contains(&after));
        if is_void && one.is_prepared() {
            void.push(one.transaction);
        }
        !is_void
    });
}
