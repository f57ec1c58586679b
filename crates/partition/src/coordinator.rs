//! The coordinator: runs procedures by rounds, and decides by two-phase commit (§3.3 of the paper).
//!
//! Invariants:
//!
//! (a) Fragments of first rounds are sent in the order of calls, to all partitions of a transaction at once.
//!     Messages keep their order, so all owners see transactions of one coordinator in the same order: the
//!     global order.
//! (b) A procedure sees a response, and a vote counts, only when every transaction that the response depends
//!     on has committed. A response that depends on an aborted transaction, or on a void response, is void;
//!     its owner sends another.
//! (c) A decision to commit is durable before it is sent to anyone, and is kept until every participant has
//!     acknowledged it. Of an abort nothing is kept: a transaction that is neither pending nor kept was
//!     aborted.
//! (d) A transaction that is not decided when one of its partitions goes down, or is late, aborts.
//!
//! By (c) and the order of messages, the transaction that a response names is pending, or kept, or was aborted. Its
//! owner acknowledges a commit after every response that depends on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fault::{Fault, is_injected};
use crate::incarnations::Incarnations;
use crate::numbers::Numbers;
use crate::{
    CoordinatorId, CoordinatorRecord, Decision, Fragment, FragmentRequest, FromCoordinator, FromOwner, Kept, Misuse,
    Next, Outcome, PartitionId, Procedure, Refusal, Response, ToCoordinator, TransactionId,
};

/// An output of a coordinator. Outputs take effect in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorOutput<W, O, A> {
    /// Keep a record.
    Keep(Kept, CoordinatorRecord),
    /// Send a message.
    Send {
        /// The receiver.
        to: PartitionId,
        /// The message.
        message: FromCoordinator<W>,
    },
    /// Answer a client.
    Reply {
        /// The client's transaction.
        transaction: TransactionId,
        /// Its outcome.
        outcome: Outcome<O, A>,
    },
    /// Raise an alarm: a transaction has committed, but one of its partitions says that it has not voted and
    /// has not applied it. Owners and this coordinator do not belong together (logs of different databases, or
    /// a carrier that reorders messages); no message can repair that.
    Broken {
        /// The transaction.
        transaction: TransactionId,
        /// The partition that did not apply it.
        partition: PartitionId,
    },
}

/// The outputs of a coordinator of these procedures.
pub type OutputOf<C> = CoordinatorOutput<<C as Procedure>::Work, <C as Procedure>::Output, <C as Procedure>::Abort>;

/// The messages to a coordinator of these procedures.
pub type MessageOf<C> = ToCoordinator<C, <C as Procedure>::Reply, <C as Procedure>::Abort>;

/// Coordinates transactions over several partitions. Under `locking` each client can have its own coordinator;
/// under the other schemes all transactions go through one ([`crate::Scheme::needs_one_coordinator`]).
pub struct Coordinator<C: Procedure> {
    id: CoordinatorId,
    incarnation: u64,
    /// All partitions of the database.
    partitions: BTreeSet<PartitionId>,
    pending: BTreeMap<TransactionId, Pending<C>>,
    /// The numbers of calls.
    numbers: Numbers<()>,
    /// Participants whose acknowledgement is missing.
    committed: BTreeMap<TransactionId, Vec<PartitionId>>,
    incarnations: Incarnations<PartitionId>,
    /// Partitions that are down, or from which nothing has come since a restart.
    down: BTreeSet<PartitionId>,
    /// Partitions of which nothing is known since a restart: no message, and no notice that they are down.
    unheard: BTreeSet<PartitionId>,
    /// Calls that wait until `unheard` is empty.
    early: Vec<(TransactionId, C)>,
    /// Transactions of which a response has become final.
    ready: VecDeque<TransactionId>,
}

struct Pending<C: Procedure> {
    procedure: C,
    round: u32,
    participants: Vec<Participant<C::Reply, C::Abort>>,
    /// Responses that name this transaction as the one on which they depend.
    dependents: Vec<(PartitionId, TransactionId)>,
}

struct Participant<R, A> {
    partition: PartitionId,
    /// Whether it was sent its last fragment.
    finished: bool,
    state: State<R, A>,
}

enum State<R, A> {
    /// Waits for a response.
    Asked,
    /// Has responded, perhaps in dependence on another transaction.
    Responded { result: Result<Option<R>, Refusal<A>>, after: Option<TransactionId> },
    /// The procedure has seen its response.
    Seen,
}

impl<C: Procedure> Pending<C> {
    fn at(&mut self, partition: PartitionId) -> Option<&mut Participant<C::Reply, C::Abort>> {
        self.participants.iter_mut().find(|participant| participant.partition == partition)
    }

    /// Whether it has a vote of this partition on which others can depend.
    fn has_vote_of(&mut self, partition: PartitionId) -> bool {
        self.at(partition).is_some_and(|participant| {
            let responded = matches!(participant.state, State::Responded { result: Ok(_), .. } | State::Seen);
            participant.finished && responded
        })
    }
}

impl<C: Procedure> Coordinator<C> {
    /// A coordinator that has decided nothing yet, in its incarnation 0. `partitions` are all partitions of
    /// the database.
    pub fn new(id: CoordinatorId, partitions: impl IntoIterator<Item = PartitionId>) -> Coordinator<C> {
        Coordinator {
            id,
            incarnation: 0,
            partitions: partitions.into_iter().collect(),
            pending: BTreeMap::new(),
            numbers: Numbers::new(),
            committed: BTreeMap::new(),
            incarnations: Incarnations::new(),
            down: BTreeSet::new(),
            unheard: BTreeSet::new(),
            early: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// Continues after a crash, from the records that were kept. `incarnation` is above that of all earlier
    /// incarnations, and `partitions` are all partitions of the database.
    pub fn recover(
        id: CoordinatorId,
        incarnation: u64,
        records: impl IntoIterator<Item = CoordinatorRecord>,
        partitions: impl IntoIterator<Item = PartitionId>,
        out: &mut Vec<OutputOf<C>>,
    ) -> Coordinator<C> {
        let mut coordinator = Coordinator::new(id, partitions);
        coordinator.incarnation = incarnation;
        coordinator.down.clone_from(&coordinator.partitions);
        coordinator.unheard.clone_from(&coordinator.partitions);
        for record in records {
            match record {
                CoordinatorRecord::Committed { transaction, participants } => {
                    // Perhaps not in the order of numbers: the highest counts.
                    let _ = coordinator.numbers.note(transaction, ());
                    coordinator.committed.insert(transaction, participants);
                }
                CoordinatorRecord::Ended { transaction } => {
                    coordinator.committed.remove(&transaction);
                }
            }
        }
        coordinator.say_what_committed(out);
        coordinator
    }

    /// Handles a message.
    pub fn handle(&mut self, message: MessageOf<C>, out: &mut Vec<OutputOf<C>>) {
        match message {
            ToCoordinator::Call { transaction, procedure } => self.call(transaction, procedure, out),
            ToCoordinator::Owner(FromOwner::Response(response)) => self.respond(response),
            ToCoordinator::Owner(FromOwner::Ack { transaction, partition }) => self.ack(transaction, partition, out),
            ToCoordinator::Owner(FromOwner::NotVoted { transaction, partition }) => {
                out.push(CoordinatorOutput::Broken { transaction, partition });
            }
            ToCoordinator::Owner(FromOwner::Alive { partition, incarnation }) => {
                if self.incarnations.hear(partition, incarnation) {
                    self.down.remove(&partition);
                    self.unheard.remove(&partition);
                }
            }
            ToCoordinator::Owner(FromOwner::Recovered { partition, incarnation, in_doubt }) => {
                if self.incarnations.hear(partition, incarnation) {
                    self.partition_down(partition, out);
                    self.partition_recovered(partition, in_doubt, out);
                }
            }
            ToCoordinator::PartitionDown { partition, incarnation } => {
                if self.incarnations.end(partition, incarnation) || is_injected(Fault::LateNoticeTaken) {
                    self.partition_down(partition, out);
                }
            }
            ToCoordinator::PartitionLate { partition } => {
                // A message of the partition waits for its disk. Until it arrives the partition counts as
                // down.
                self.unheard.remove(&partition);
                self.abort_over(partition, out);
            }
        }
        if self.unheard.is_empty() {
            let early = std::mem::take(&mut self.early);
            early.into_iter().for_each(|(transaction, procedure)| self.start(transaction, procedure, out));
        }
        while let Some(transaction) = self.ready.pop_front() {
            self.advance(transaction, out);
        }
    }

    /// Leaves: the last message for each partition decides every transaction that its owner may still have in doubt.
    ///
    /// No abort is acknowledged, so an idle coordinator does not know whether owners have its aborts. An owner may die
    /// with one in its inbox, and would then ask a coordinator that is gone. The carrier must deliver this message to
    /// the owner's later incarnations too. No other call follows, and nothing that owners send needs an answer.
    ///
    /// # Panics
    /// If a transaction is undecided: the message would deny it.
    pub fn leave(&self, out: &mut Vec<OutputOf<C>>) {
        assert!(self.pending.is_empty() && self.early.is_empty(), "a coordinator leaves when it has decided");
        self.say_what_committed(out);
    }

    /// Sends each partition the commits that it has not acknowledged. All other transactions that it knows are aborted.
    fn say_what_committed(&self, out: &mut Vec<OutputOf<C>>) {
        let (coordinator, incarnation) = (self.id, self.incarnation);
        for &to in &self.partitions {
            let committed = self.unacknowledged(to);
            let message = FromCoordinator::Recovered { coordinator, incarnation, committed };
            out.push(CoordinatorOutput::Send { to, message });
        }
    }

    /// Whether no transaction needs further work.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.early.is_empty() && self.committed.is_empty()
    }

    /// As [`Coordinator::is_idle`], except for transactions that wait for an acknowledgement of these
    /// partitions, which are gone for good.
    pub fn is_idle_without(&self, gone: &BTreeSet<PartitionId>) -> bool {
        let has_calls = !self.pending.is_empty() || !self.early.is_empty();
        !has_calls && self.committed.values().flatten().all(|missing| gone.contains(missing))
    }

    fn call(&mut self, transaction: TransactionId, procedure: C, out: &mut Vec<OutputOf<C>>) {
        if self.numbers.note(transaction, ()).is_err() {
            return out.push(CoordinatorOutput::Reply { transaction, outcome: Outcome::Repeated });
        }
        if self.unheard.is_empty() {
            self.start(transaction, procedure, out);
        } else {
            self.early.push((transaction, procedure));
        }
    }

    fn start(&mut self, transaction: TransactionId, mut procedure: C, out: &mut Vec<OutputOf<C>>) {
        let next = ask(&mut procedure, Vec::new());
        let pending = Pending { procedure, round: 0, participants: Vec::new(), dependents: Vec::new() };
        self.pending.insert(transaction, pending);
        self.go_on(transaction, next, out);
    }

    fn respond(&mut self, response: Response<C::Reply, C::Abort>) {
        let Response { transaction, partition, round, result, after } = response;
        let is_awaited = self.pending.get_mut(&transaction).is_some_and(|pending| {
            let this_round = pending.round == round;
            pending.at(partition).is_some_and(|participant| this_round && !matches!(participant.state, State::Seen))
        });
        if !is_awaited {
            return;
        }
        // An earlier response is void, and so are those that depend on it.
        self.forget_response(partition, transaction);
        let after = after.filter(|before| !self.committed.contains_key(before));
        if let Some(before) = after {
            let Some(pending) = self.pending.get_mut(&before) else { return };
            if !pending.has_vote_of(partition) && !is_injected(Fault::VoidResponseKept) {
                return;
            }
            pending.dependents.push((partition, transaction));
        }
        let participant = self.pending.get_mut(&transaction).and_then(|pending| pending.at(partition));
        participant.expect("it is awaited").state = State::Responded { result, after };
        self.ready.push_back(transaction);
    }

    /// Decides a transaction, or runs its next round, if its responses are final.
    fn advance(&mut self, transaction: TransactionId, out: &mut Vec<OutputOf<C>>) {
        let Some(pending) = self.pending.get_mut(&transaction) else { return };
        let refused =
            |p: &Participant<C::Reply, C::Abort>| matches!(p.state, State::Responded { result: Err(_), after: None });
        if let Some(participant) = pending.participants.iter_mut().find(|participant| refused(participant)) {
            let State::Responded { result: Err(refusal), .. } = std::mem::replace(&mut participant.state, State::Seen)
            else {
                unreachable!("it refused");
            };
            let refuser = participant.partition;
            let outcome = match refusal {
                Refusal::UserAbort(abort) => Outcome::UserAborted(abort),
                Refusal::Conflict(conflict) => Outcome::Conflict(conflict),
                Refusal::Repeated => Outcome::Repeated,
            };
            return self.abort(transaction, outcome, Some(refuser), out);
        }
        let is_certain = |p: &Participant<C::Reply, C::Abort>| {
            matches!(p.state, State::Seen | State::Responded { result: Ok(_), after: None })
        };
        let has_new = pending.participants.iter().any(|p| matches!(p.state, State::Responded { .. }));
        if !has_new || !pending.participants.iter().all(is_certain) {
            return;
        }
        let see = |participant: &mut Participant<C::Reply, C::Abort>| match std::mem::replace(
            &mut participant.state,
            State::Seen,
        ) {
            State::Responded { result: Ok(reply), .. } => Some((participant.partition, reply)),
            _ => None,
        };
        let replies = pending.participants.iter_mut().filter_map(see).collect();
        pending.round += 1;
        let next = ask(&mut pending.procedure, replies);
        self.go_on(transaction, next, out);
    }

    fn go_on(
        &mut self,
        transaction: TransactionId,
        next: Option<Next<C::Work, C::Output, C::Abort>>,
        out: &mut Vec<OutputOf<C>>,
    ) {
        let Some(next) = next else {
            return self.abort(transaction, Outcome::Misuse(Misuse::Panicked), None, out);
        };
        match next {
            Next::Round(parts) => match self.begin_round(transaction, &parts) {
                Ok(()) => self.send_round(transaction, parts, out),
                Err(outcome) => self.abort(transaction, outcome, None, out),
            },
            Next::Done(output) => self.commit(transaction, output, out),
            Next::Abort(abort) => self.abort(transaction, Outcome::UserAborted(abort), None, out),
        }
    }

    /// Notes the participants of a round, or returns why the round is not allowed.
    fn begin_round(
        &mut self,
        transaction: TransactionId,
        parts: &[FragmentRequest<C::Work>],
    ) -> Result<(), Outcome<C::Output, C::Abort>> {
        let (partitions, down) = (&self.partitions, &self.down);
        let pending = self.pending.get_mut(&transaction).expect("it is pending");
        if parts.is_empty() {
            return Err(Outcome::Misuse(Misuse::EmptyRound));
        }
        for (i, &FragmentRequest { partition, last, .. }) in parts.iter().enumerate() {
            if parts[..i].iter().any(|other| other.partition == partition) {
                return Err(Outcome::Misuse(Misuse::TwoFragments(partition)));
            }
            let is_first = pending.round == 0;
            match pending.at(partition) {
                Some(participant) if participant.finished => {
                    return Err(Outcome::Misuse(Misuse::AfterLast(partition)));
                }
                Some(_) => {}
                None if !is_first => return Err(Outcome::Misuse(Misuse::NotInFirstRound(partition))),
                None if !partitions.contains(&partition) => {
                    return Err(Outcome::Misuse(Misuse::NoSuchPartition(partition)));
                }
                None if down.contains(&partition) => return Err(Outcome::Unavailable(partition)),
                None => {}
            }
            debug_assert!(!is_first || pending.at(partition).is_none(), "participants are noted below");
            if !is_first {
                let participant = pending.at(partition).expect("it took part in the first round");
                (participant.finished, participant.state) = (last, State::Asked);
            }
        }
        if pending.round == 0 {
            let note = |part: &FragmentRequest<C::Work>| Participant {
                partition: part.partition,
                finished: part.last,
                state: State::Asked,
            };
            pending.participants = parts.iter().map(note).collect();
        }
        Ok(())
    }

    fn send_round(
        &mut self,
        transaction: TransactionId,
        parts: Vec<FragmentRequest<C::Work>>,
        out: &mut Vec<OutputOf<C>>,
    ) {
        let (coordinator, incarnation, round) = (self.id, self.incarnation, self.pending[&transaction].round);
        for FragmentRequest { partition, work, last } in parts {
            let fragment = Fragment { transaction, coordinator, incarnation, round, work, last };
            out.push(CoordinatorOutput::Send { to: partition, message: FromCoordinator::Fragment(fragment) });
        }
    }

    fn commit(&mut self, transaction: TransactionId, output: C::Output, out: &mut Vec<OutputOf<C>>) {
        let pending = &self.pending[&transaction];
        if let Some(participant) = pending.participants.iter().find(|participant| !participant.finished) {
            let misuse = Misuse::NotFinished(participant.partition);
            return self.abort(transaction, Outcome::Misuse(misuse), None, out);
        }
        let pending = self.pending.remove(&transaction).expect("it is pending");
        let participants: Vec<PartitionId> = pending.participants.iter().map(|p| p.partition).collect();
        if participants.is_empty() {
            return out.push(CoordinatorOutput::Reply { transaction, outcome: Outcome::Committed(output) });
        }
        let mut to_tell = &participants[..];
        if is_injected(Fault::DecisionHalfPersisted) {
            self.decide(transaction, participants[0], true, out);
            to_tell = &participants[1..];
        }
        let record = CoordinatorRecord::Committed { transaction, participants: participants.clone() };
        out.push(CoordinatorOutput::Keep(Kept::Forced, record));
        to_tell.iter().for_each(|&to| self.decide(transaction, to, true, out));
        out.push(CoordinatorOutput::Reply { transaction, outcome: Outcome::Committed(output) });
        self.committed.insert(transaction, participants);
        for (partition, dependent) in pending.dependents {
            let participant = self.pending.get_mut(&dependent).and_then(|pending| pending.at(partition));
            if let Some(Participant { state: State::Responded { after, .. }, .. }) = participant
                && *after == Some(transaction)
            {
                *after = None;
                self.ready.push_back(dependent);
            }
        }
    }

    /// Aborts a transaction. `refuser` has forgotten it already.
    fn abort(
        &mut self,
        transaction: TransactionId,
        outcome: Outcome<C::Output, C::Abort>,
        refuser: Option<PartitionId>,
        out: &mut Vec<OutputOf<C>>,
    ) {
        let pending = self.pending.remove(&transaction).expect("it is pending");
        for participant in &pending.participants {
            if Some(participant.partition) != refuser {
                self.decide(transaction, participant.partition, false, out);
            }
        }
        out.push(CoordinatorOutput::Reply { transaction, outcome });
        for (partition, dependent) in pending.dependents {
            self.void(partition, dependent, transaction);
        }
    }

    fn decide(&self, transaction: TransactionId, to: PartitionId, commit: bool, out: &mut Vec<OutputOf<C>>) {
        let decision = Decision { transaction, coordinator: self.id, commit };
        out.push(CoordinatorOutput::Send { to, message: FromCoordinator::Decision(decision) });
    }

    /// Makes the responses void that depended on `before` at a partition.
    fn void(&mut self, partition: PartitionId, dependent: TransactionId, before: TransactionId) {
        let participant = self.pending.get_mut(&dependent).and_then(|pending| pending.at(partition));
        if participant
            .is_some_and(|p| matches!(p.state, State::Responded { after: Some(after), .. } if after == before))
        {
            self.forget_response(partition, dependent);
        }
    }

    /// Makes a response void that no procedure has seen, and all that depend on it.
    fn forget_response(&mut self, partition: PartitionId, transaction: TransactionId) {
        let pending = self.pending.get_mut(&transaction).expect("it is pending");
        pending.at(partition).expect("it takes part").state = State::Asked;
        if is_injected(Fault::VoidResponseKept) {
            return;
        }
        let (void, kept) = std::mem::take(&mut pending.dependents).into_iter().partition(|&(at, _)| at == partition);
        pending.dependents = kept;
        let void: Vec<(PartitionId, TransactionId)> = void;
        for (_, dependent) in void {
            self.void(partition, dependent, transaction);
        }
    }

    fn ack(&mut self, transaction: TransactionId, partition: PartitionId, out: &mut Vec<OutputOf<C>>) {
        let Some(missing) = self.committed.get_mut(&transaction) else { return };
        missing.retain(|&other| other != partition);
        if missing.is_empty() {
            self.committed.remove(&transaction);
            out.push(CoordinatorOutput::Keep(Kept::Later, CoordinatorRecord::Ended { transaction }));
        }
    }

    fn partition_down(&mut self, partition: PartitionId, out: &mut Vec<OutputOf<C>>) {
        self.down.insert(partition);
        self.unheard.remove(&partition);
        self.abort_over(partition, out);
    }

    /// Aborts the undecided transactions over a partition.
    fn abort_over(&mut self, partition: PartitionId, out: &mut Vec<OutputOf<C>>) {
        let concerned = |(&transaction, pending): (&TransactionId, &mut Pending<C>)| {
            pending.at(partition).is_some().then_some(transaction)
        };
        let concerned: Vec<TransactionId> = self.pending.iter_mut().filter_map(concerned).collect();
        for transaction in concerned {
            self.abort(transaction, Outcome::Unavailable(partition), None, out);
        }
    }

    fn partition_recovered(
        &mut self,
        partition: PartitionId,
        in_doubt: Vec<TransactionId>,
        out: &mut Vec<OutputOf<C>>,
    ) {
        self.down.remove(&partition);
        for transaction in in_doubt {
            if !self.committed.contains_key(&transaction) {
                self.decide(transaction, partition, false, out);
            }
        }
        for transaction in self.unacknowledged(partition) {
            self.decide(transaction, partition, true, out);
        }
    }

    fn unacknowledged(&self, partition: PartitionId) -> Vec<TransactionId> {
        let missing = self.committed.iter().filter(|(_, missing)| missing.contains(&partition));
        missing.map(|(&transaction, _)| transaction).collect()
    }
}

/// The procedure's next step; `None` if it panics. It is not called again then, so its state does not matter.
fn ask<C: Procedure>(
    procedure: &mut C,
    replies: Vec<(PartitionId, Option<C::Reply>)>,
) -> Option<Next<C::Work, C::Output, C::Abort>> {
    catch_unwind(AssertUnwindSafe(|| procedure.next(replies))).ok()
}
