//! The common part of `blocking` and the two kinds of `speculation`. Transactions run in the order of their arrival,
//! and are kept in two queues (§4.2.1 of the paper).
//!
//! `undecided` has the transactions that ran and are not decided, `waiting` those that have not run.
//! Invariants:
//!
//! (a) The first of `undecided` is a transaction over several partitions; nothing before it is undecided.
//! (b) All others in `undecided` are speculative: all before them have run their last fragment, and they have
//!     run one fragment.
//! (c) Transactions are undone from the end of `undecided` only. Those that are undone with an aborted one
//!     move to the front of `waiting` in their order. So the order of the two queues together never changes.

use std::collections::VecDeque;

use super::replay::Unfinished;
use super::work::{Work, Workplace, decisions_of, send};
use super::{Call, Kept, Out, Outcome, OwnerOutput, OwnerRecord, Partition, TransactionId, blocking, speculation};
use crate::fault::{Fault, is_injected};
use crate::{CoordinatorId, Decision, Fragment, FromCoordinator, Response, Scheme, ToOwner};

/// The two queues.
pub(super) struct Ordered<P: Partition> {
    scheme: Scheme,
    undecided: VecDeque<Entry<P>>,
    waiting: VecDeque<Arrival<P::Work>>,
}

/// A transaction that has not run.
#[derive(Clone, Debug)]
pub(super) enum Arrival<W> {
    /// A single-partition transaction.
    Call(Call<W>),
    /// The first fragment of a transaction over several partitions.
    Fragment(Fragment<W>),
}

/// Whether the next transaction may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It has to wait.
    Wait,
    /// Nothing is undecided.
    Immediate,
    /// It runs on top of undecided ones. Its response waits for them, or not.
    Speculate { response_waits: bool },
}

pub(super) enum Entry<P: Partition> {
    /// A single-partition transaction on top of undecided ones, and the reply that waits for them. After a
    /// crash there is no reply.
    Call { call: Call<P::Work>, undo: Option<P::Undo>, reply: Option<Outcome<P::Reply, P::Abort>> },
    /// A transaction over several partitions.
    Multi {
        /// The fragment that runs again if an earlier transaction aborts.
        first: Option<Fragment<P::Work>>,
        work: Work<P>,
        response: Option<Response<P::Reply, P::Abort>>,
        committed: bool,
    },
    /// A transaction over several partitions that failed here on top of undecided ones. It has no effects, and
    /// is removed when they have committed.
    Failed { first: Fragment<P::Work>, response: Option<Response<P::Reply, P::Abort>> },
}

impl<P: Partition> Entry<P> {
    fn transaction(&self) -> TransactionId {
        match self {
            Entry::Call { call, .. } => call.transaction,
            Entry::Multi { work, .. } => work.transaction,
            Entry::Failed { first, .. } => first.transaction,
        }
    }

    /// Its coordinator, unless it is not decided by one.
    pub(super) fn coordinator(&self) -> Option<CoordinatorId> {
        match self {
            Entry::Call { .. } => None,
            Entry::Multi { work, .. } => Some(work.coordinator),
            Entry::Failed { first, .. } => Some(first.coordinator),
        }
    }

    /// Whether it has run its last fragment here.
    pub(super) fn is_finished(&self) -> bool {
        !matches!(self, Entry::Multi { work, .. } if !work.finished)
    }
}

impl<P: Partition> Ordered<P> {
    pub(super) fn new(scheme: Scheme) -> Ordered<P> {
        Ordered { scheme, undecided: VecDeque::new(), waiting: VecDeque::new() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.undecided.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn handle(&mut self, place: &mut Workplace<P>, message: ToOwner<P::Work>, out: &mut Out<P>) {
        match message {
            ToOwner::Call(call) => self.waiting.push_back(Arrival::Call(call)),
            ToOwner::Coordinator(FromCoordinator::Fragment(fragment)) if fragment.round == 0 => {
                self.waiting.push_back(Arrival::Fragment(fragment));
            }
            ToOwner::Coordinator(FromCoordinator::Fragment(fragment)) => self.proceed(place, fragment, out),
            ToOwner::Coordinator(FromCoordinator::Decision(decision)) => self.decide(place, decision, out),
            ToOwner::Coordinator(FromCoordinator::Recovered { coordinator, committed, .. }) => {
                self.coordinator_recovered(place, coordinator, &committed, out);
            }
            ToOwner::CoordinatorDown { coordinator, .. } => self.coordinator_down(place, coordinator, out),
            ToOwner::Tick => {}
        }
        self.run(place, out);
    }

    /// Runs all transactions that may run.
    fn run(&mut self, place: &mut Workplace<P>, out: &mut Out<P>) {
        while let Some(arrival) = self.waiting.front() {
            let admission = match self.scheme {
                Scheme::Blocking => blocking::admit(&self.undecided),
                scheme => speculation::admit(scheme, &self.undecided, arrival),
            };
            if admission == Admission::Wait {
                return;
            }
            let arrival = self.waiting.pop_front().expect("it is there");
            match arrival {
                Arrival::Call(call) if admission == Admission::Immediate => place.run_alone(call, out),
                Arrival::Call(call) => self.speculate(place, call, out),
                Arrival::Fragment(fragment) => {
                    self.begin(place, fragment, admission == Admission::Speculate { response_waits: true }, out);
                }
            }
        }
    }

    /// The transaction on which the next one to run will depend.
    fn tail(&self) -> Option<TransactionId> {
        let multi = |entry: &&Entry<P>| matches!(entry, Entry::Multi { .. });
        self.undecided.iter().rev().find(multi).map(Entry::transaction)
    }

    /// Runs a single-partition transaction on top of undecided ones.
    fn speculate(&mut self, place: &mut Workplace<P>, call: Call<P::Work>, out: &mut Out<P>) {
        let (transaction, after) = (call.transaction, self.tail());
        match place.partition.execute(transaction, &call.work) {
            Ok((reply, undo)) => {
                if !is_injected(Fault::SpeculatedUnrecorded) {
                    let record = || OwnerRecord::Executed { transaction, work: call.work.clone(), after };
                    place.keep(Kept::Forced, record, out);
                }
                if is_injected(Fault::ReplyLeaked) {
                    out.push(OwnerOutput::Reply { transaction, outcome: Outcome::Committed(reply) });
                    return self.undecided.push_back(Entry::Call { call, undo: Some(undo), reply: None });
                }
                let reply = Some(Outcome::Committed(reply));
                self.undecided.push_back(Entry::Call { call, undo: Some(undo), reply });
            }
            Err(abort) if is_injected(Fault::UserAbortLeaked) => {
                out.push(OwnerOutput::Reply { transaction, outcome: Outcome::UserAborted(abort) });
            }
            Err(abort) => {
                let reply = Some(Outcome::UserAborted(abort));
                self.undecided.push_back(Entry::Call { call, undo: None, reply });
            }
        }
    }

    /// Runs a first fragment.
    fn begin(&mut self, place: &mut Workplace<P>, first: Fragment<P::Work>, response_waits: bool, out: &mut Out<P>) {
        let (after, to) = (self.tail(), first.coordinator);
        let mut work = Work::new(first.transaction, to);
        let mut response = place.run_fragment(&mut work, first.clone(), after, out);
        if is_injected(Fault::DependencyLost) {
            response.after = None;
        }
        let failed = response.result.is_err();
        let response = if response_waits {
            Some(response)
        } else {
            send::<P>(to, response, out);
            None
        };
        if !failed {
            self.undecided.push_back(Entry::Multi { first: Some(first), work, response, committed: false });
        } else if after.is_some() {
            self.undecided.push_back(Entry::Failed { first, response });
        }
    }

    /// Runs a later fragment. Its coordinator sends one when all transactions before it are decided, so its
    /// transaction is the first here. Otherwise the transaction was lost with the owner's memory, and will be
    /// aborted.
    fn proceed(&mut self, place: &mut Workplace<P>, fragment: Fragment<P::Work>, out: &mut Out<P>) {
        let Some(Entry::Multi { work, .. }) = self.undecided.front_mut() else { return };
        let is_next = !work.finished && fragment.round > work.round;
        if (work.transaction, work.coordinator) != (fragment.transaction, fragment.coordinator) || !is_next {
            return;
        }
        let to = work.coordinator;
        let response = place.run_fragment(work, fragment, None, out);
        if response.result.is_err() {
            self.undecided.pop_front();
        }
        send::<P>(to, response, out);
    }

    fn decide(&mut self, place: &mut Workplace<P>, decision: Decision, out: &mut Out<P>) {
        let Decision { transaction, coordinator, commit } = decision;
        // A single-partition transaction may have the same number: it is never decided.
        let is_it = |entry: &Entry<P>| entry.coordinator() == Some(coordinator) && entry.transaction() == transaction;
        let is_in_waiting = |arrival: &Arrival<P::Work>| {
            matches!(arrival, Arrival::Fragment(fragment)
                if (fragment.transaction, fragment.coordinator) == (transaction, coordinator))
        };
        match self.undecided.iter().position(is_it) {
            Some(at) if commit => match &mut self.undecided[at] {
                Entry::Multi { committed, work, .. } if work.finished => *committed = true,
                _ => place.not_voted(transaction, coordinator, out),
            },
            Some(at) => self.abort(place, at, out),
            None if commit && self.waiting.iter().any(is_in_waiting) => place.not_voted(transaction, coordinator, out),
            None if commit => place.ack(transaction, coordinator, out),
            // It has not run here, or not again since a transaction before it aborted.
            None => self.waiting.retain(|arrival| !is_in_waiting(arrival)),
        }
        self.settle(place, out);
    }

    /// Aborts a transaction, and undoes those that ran on top of it. Those of an earlier incarnation of the owner do
    /// not run again. Clients and coordinators know that it died, and may have received an outcome without a record.
    fn abort(&mut self, place: &mut Workplace<P>, at: usize, out: &mut Out<P>) {
        if matches!(self.undecided[at], Entry::Failed { .. }) {
            // Nothing ran on top of it.
            self.undecided.remove(at);
            return;
        }
        let missed = (is_injected(Fault::CascadeMissed) && self.undecided.len() > at + 1)
            .then(|| self.undecided.pop_back().expect("it is there"));
        while self.undecided.len() > at + 1 {
            match self.undecided.pop_back().expect("it is there") {
                Entry::Call { call, undo, reply } => {
                    if let Some(undo) = undo {
                        place.partition.undo(undo);
                    }
                    if reply.is_some() {
                        self.waiting.push_front(Arrival::Call(call));
                    }
                }
                Entry::Multi { first, mut work, .. } => {
                    place.undo(&mut work);
                    // Its vote is void, also if it does not run again.
                    if work.finished {
                        place.decided(work.transaction, None, out);
                    }
                    if let Some(first) = first {
                        self.waiting.push_front(Arrival::Fragment(first));
                    }
                }
                Entry::Failed { first, .. } => self.waiting.push_front(Arrival::Fragment(first)),
            }
        }
        let Some(Entry::Multi { mut work, .. }) = self.undecided.pop_back() else {
            unreachable!("only transactions over several partitions are decided")
        };
        place.undo(&mut work);
        if work.finished {
            place.decided(work.transaction, None, out);
        }
        self.undecided.extend(missed);
    }

    /// Removes the decided transactions at the front.
    fn settle(&mut self, place: &mut Workplace<P>, out: &mut Out<P>) {
        // Replies need not wait for the records of the decisions on which they depend: the coordinator has
        // them.
        let mut committed = Vec::new();
        while let Some(entry) = self.undecided.front_mut() {
            if let Entry::Multi { response, committed: false, work, .. } = entry {
                if let Some(response) = response.take() {
                    send::<P>(work.coordinator, Response { after: None, ..response }, out);
                }
                break;
            }
            match self.undecided.pop_front().expect("it is there") {
                Entry::Call { call, undo, reply } => {
                    if is_injected(Fault::SpeculatedUnrecorded) && undo.is_some() {
                        let record = || OwnerRecord::Executed {
                            transaction: call.transaction,
                            work: call.work.clone(),
                            after: None,
                        };
                        place.keep(Kept::Forced, record, out);
                    }
                    if let Some(undo) = undo {
                        place.partition.forget(undo);
                    }
                    let transaction = call.transaction;
                    out.extend(reply.map(|outcome| OwnerOutput::Reply { transaction, outcome }));
                }
                Entry::Failed { first, response } => {
                    if let Some(response) = response {
                        send::<P>(first.coordinator, Response { after: None, ..response }, out);
                    }
                }
                Entry::Multi { mut work, .. } => {
                    place.forget(&mut work);
                    committed.push((work.transaction, work.coordinator));
                }
            }
        }
        for (transaction, coordinator) in committed {
            place.decided(transaction, Some(coordinator), out);
        }
    }

    /// Undoes the transactions that have not voted. Those that have voted may have committed.
    fn coordinator_down(&mut self, place: &mut Workplace<P>, coordinator: CoordinatorId, out: &mut Out<P>) {
        let may_have_voted = |entry: &Entry<P>| {
            matches!(entry, Entry::Multi { work, .. } if work.finished) && !is_injected(Fault::VotedUndone)
        };
        let unvoted = |entry: &Entry<P>| {
            (entry.coordinator() == Some(coordinator) && !may_have_voted(entry)).then(|| entry.transaction())
        };
        self.waiting.retain(|arrival| !matches!(arrival, Arrival::Fragment(one) if one.coordinator == coordinator));
        let unvoted: Vec<TransactionId> = self.undecided.iter().filter_map(unvoted).collect();
        for transaction in unvoted {
            self.decide(place, Decision { transaction, coordinator, commit: false }, out);
        }
    }

    fn coordinator_recovered(
        &mut self,
        place: &mut Workplace<P>,
        coordinator: CoordinatorId,
        committed: &[TransactionId],
        out: &mut Out<P>,
    ) {
        let own = |entry: &Entry<P>| (entry.coordinator() == Some(coordinator)).then(|| entry.transaction());
        let waits = |arrival: &Arrival<P::Work>| match arrival {
            Arrival::Fragment(fragment) if fragment.coordinator == coordinator => Some(fragment.transaction),
            _ => None,
        };
        let known = self.undecided.iter().filter_map(own).chain(self.waiting.iter().filter_map(waits));
        for decision in decisions_of(coordinator, known.collect(), committed) {
            self.decide(place, decision, out);
        }
    }

    /// Restores the transactions that were undecided at a crash, in their order.
    pub(super) fn restore(&mut self, unfinished: Vec<Unfinished<P>>) {
        for Unfinished { transaction, coordinator, mut done } in unfinished {
            self.undecided.push_back(match coordinator {
                None => {
                    let Some((work, undo)) = done.pop() else { continue };
                    let call = Call { transaction, work, may_abort: true };
                    Entry::Call { call, undo: Some(undo), reply: None }
                }
                Some(coordinator) => {
                    let work = Work::restored(transaction, coordinator, done);
                    Entry::Multi { first: None, work, response: None, committed: false }
                }
            });
        }
    }
}
