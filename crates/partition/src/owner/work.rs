//! The work of all schemes on a partition: run fragments, keep undo until the decision, and return records and answers.

use super::{Call, FromOwner, Kept, Out, Outcome, OwnerOutput, OwnerRecord, Partition, PartitionId, TransactionId};
use crate::fault::{Fault, is_injected};
use crate::{CoordinatorId, Decision, Fragment, Refusal, Response};

/// A partition and its id.
pub(super) struct Workplace<P> {
    pub(super) id: PartitionId,
    pub(super) partition: P,
    pub(super) records: bool,
}

/// The state of a transaction over several partitions here.
pub(super) struct Work<P: Partition> {
    pub(super) transaction: TransactionId,
    pub(super) coordinator: CoordinatorId,
    /// By rounds; empty where no records are kept.
    done: Vec<P::Work>,
    /// The latest last.
    undo: Vec<P::Undo>,
    /// The round of its latest fragment.
    pub(super) round: u32,
    /// Whether it has run its last fragment here, and has voted to commit.
    pub(super) finished: bool,
}

/// The decisions of a coordinator that continued after a crash: of the transactions that are `known` here,
/// these have committed and the others have not. It may name some that are not known.
pub(super) fn decisions_of(
    coordinator: CoordinatorId,
    known: Vec<TransactionId>,
    committed: &[TransactionId],
) -> Vec<Decision> {
    let unknown = committed.iter().filter(|transaction| !known.contains(transaction));
    let decision = |&transaction| Decision { transaction, coordinator, commit: committed.contains(&transaction) };
    known.iter().chain(unknown).map(decision).collect()
}

impl<P: Partition> Workplace<P> {
    pub(super) fn keep(&self, kept: Kept, record: impl FnOnce() -> OwnerRecord<P::Work>, out: &mut Out<P>) {
        if self.records {
            out.push(OwnerOutput::Keep(kept, record()));
        }
    }

    /// Runs a single-partition transaction that will not be undone.
    pub(super) fn run_alone(&mut self, call: Call<P::Work>, out: &mut Out<P>) {
        let Call { transaction, work, may_abort } = call;
        let outcome = match self.partition.execute_alone(transaction, &work, may_abort) {
            Ok(reply) => {
                self.keep(Kept::Forced, || OwnerRecord::Executed { transaction, work, after: None }, out);
                Outcome::Committed(reply)
            }
            Err(abort) => Outcome::UserAborted(abort),
        };
        out.push(OwnerOutput::Reply { transaction, outcome });
    }

    /// Runs a fragment. If it is the last one, the transaction is prepared. If it fails, nothing of the
    /// transaction is left here.
    pub(super) fn run_fragment(
        &mut self,
        work: &mut Work<P>,
        fragment: Fragment<P::Work>,
        after: Option<TransactionId>,
        out: &mut Out<P>,
    ) -> Response<P::Reply, P::Abort> {
        let Fragment { transaction, round, last, .. } = fragment;
        let result = match fragment.work.map(|todo| (self.partition.execute(transaction, &todo), todo)) {
            None => Ok(None),
            Some((Ok((reply, undo)), todo)) => {
                work.undo.push(undo);
                if self.records {
                    work.done.push(todo);
                }
                Ok(Some(reply))
            }
            Some((Err(abort), _)) => {
                self.undo(work);
                Err(Refusal::UserAbort(abort))
            }
        };
        work.round = round;
        if last && result.is_ok() {
            work.finished = true;
            if !is_injected(Fault::PrepareForgotten) {
                let (coordinator, works) = (work.coordinator, work.done.clone());
                let record = || OwnerRecord::Prepared { transaction, coordinator, works, after };
                self.keep(Kept::Forced, record, out);
            }
            if is_injected(Fault::UndoDroppedEarly) {
                self.forget(work);
            }
        }
        Response { transaction, partition: self.id, round, result, after }
    }

    /// Refuses a first fragment whose number is in use.
    pub(super) fn refuse_repeated(&self, fragment: &Fragment<P::Work>, out: &mut Out<P>) {
        let &Fragment { transaction, coordinator, round, .. } = fragment;
        let response = Response { transaction, partition: self.id, round, result: Err(Refusal::Repeated), after: None };
        send::<P>(coordinator, response, out);
    }

    /// Answers a commit of a transaction for which there is no vote.
    pub(super) fn not_voted(&self, transaction: TransactionId, to: CoordinatorId, out: &mut Out<P>) {
        out.push(OwnerOutput::Send { to, message: FromOwner::NotVoted { transaction, partition: self.id } });
    }

    /// Runs the work of a record again.
    ///
    /// # Panics
    /// If it fails, although it did not before.
    pub(super) fn run_again(&mut self, transaction: TransactionId, work: &P::Work) -> (P::Reply, P::Undo) {
        self.partition.execute(transaction, work).unwrap_or_else(|_| {
            panic!("transaction {transaction} ran at partition {}, and fails when it is run again", self.id)
        })
    }

    /// Undoes all effects of the transaction here.
    pub(super) fn undo(&mut self, work: &mut Work<P>) {
        work.undo.drain(..).rev().for_each(|undo| self.partition.undo(undo));
        work.done.clear();
    }

    /// The transaction will not be undone.
    pub(super) fn forget(&mut self, work: &mut Work<P>) {
        work.undo.drain(..).for_each(|undo| self.partition.forget(undo));
    }

    /// Notes the end of a transaction, and acknowledges a commit to its coordinator.
    pub(super) fn decided(&self, transaction: TransactionId, committed: Option<CoordinatorId>, out: &mut Out<P>) {
        let (kept, commit) = (if committed.is_some() { Kept::Forced } else { Kept::Later }, committed.is_some());
        self.keep(kept, || OwnerRecord::Decided { transaction, commit }, out);
        if let Some(coordinator) = committed {
            self.ack(transaction, coordinator, out);
        }
    }

    /// Acknowledges a commit to the coordinator.
    pub(super) fn ack(&self, transaction: TransactionId, to: CoordinatorId, out: &mut Out<P>) {
        out.push(OwnerOutput::Send { to, message: FromOwner::Ack { transaction, partition: self.id } });
    }
}

impl<P: Partition> Work<P> {
    /// A transaction that has done nothing here.
    pub(super) fn new(transaction: TransactionId, coordinator: CoordinatorId) -> Work<P> {
        Work { transaction, coordinator, done: Vec::new(), undo: Vec::new(), round: 0, finished: false }
    }

    /// A prepared transaction with its work.
    pub(super) fn restored(
        transaction: TransactionId,
        coordinator: CoordinatorId,
        done: Vec<(P::Work, P::Undo)>,
    ) -> Work<P> {
        let (done, undo) = done.into_iter().unzip();
        Work { transaction, coordinator, done, undo, round: 0, finished: true }
    }
}

/// Sends a response.
pub(super) fn send<P: Partition>(to: CoordinatorId, response: Response<P::Reply, P::Abort>, out: &mut Out<P>) {
    out.push(OwnerOutput::Send { to, message: FromOwner::Response(response) });
}
