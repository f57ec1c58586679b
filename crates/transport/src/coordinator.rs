//! The role of the coordinator that all clients share.

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use seriatim_base::clock::Instant;
use seriatim_partition::{
    Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorRecord, HoldingCoordinator, MessageOf, PartitionId,
    Procedure, ToCoordinator as ToMachine, ToOwner, TransactionId,
};

use crate::channel::{Inbox, Received};
use crate::outbox::Outbox;
use crate::owner::{Counts, said};
use crate::patience::{Attempts, Holding};
use crate::{Application, Options, ToCoordinator, ToOwnerOf, ToPort};

/// The only shared coordinator.
pub(crate) const ID: CoordinatorId = CoordinatorId(0);

/// Begins the next incarnation of a coordinator that keeps its records itself, and returns the incarnation's
/// number. If it cannot, it panics, and the coordinator is gone.
pub type Begin<A> =
    Arc<dyn Fn(CoordinatorId) -> (HoldingCoordinator<<A as Application>::Procedure>, u64) + Send + Sync>;

/// The coordinator, for the thread or simulated core that runs it.
pub struct CoordinatorRole<A: Application> {
    pub(crate) options: Options,
    pub(crate) begin: Option<Begin<A>>,
    pub(crate) inbox: Inbox<ToCoordinator<A>>,
    pub(crate) owners: Outbox<ToOwnerOf<A>>,
    pub(crate) ports: Outbox<ToPort<A>>,
}

/// The final state of a coordinator.
#[derive(Clone, Debug, Default)]
pub struct CoordinatorEnd {
    /// All records that were kept.
    pub records: Vec<CoordinatorRecord>,
    /// The messages of panics that ended its incarnations.
    pub panics: Vec<String>,
    /// Transactions that have committed but were not applied at this partition, which says that it has not
    /// voted. There must be none.
    pub broken: Vec<(TransactionId, PartitionId)>,
    /// Its counts.
    pub counts: Counts,
}

/// Begins an incarnation of a coordinator of this many partitions, and returns the incarnation's number.
/// `begin` is for a coordinator that keeps its records itself. Otherwise it begins from `records`, in
/// incarnation `next`, or in its first incarnation if there is none.
///
/// # Errors
/// The message of a panic.
pub(crate) fn next_incarnation<A: Application>(
    id: CoordinatorId,
    begin: Option<&Begin<A>>,
    next: Option<u64>,
    records: &[CoordinatorRecord],
    partitions: u32,
) -> Result<(HoldingCoordinator<A::Procedure>, u64), String> {
    let (mut out, partitions) = (Vec::new(), (0..partitions).map(PartitionId));
    let begins = AssertUnwindSafe(|| match (begin, next) {
        (Some(begin), _) => begin(id),
        (None, None) => (HoldingCoordinator::of(Coordinator::new(id, partitions), None, out), 0),
        (None, Some(incarnation)) => {
            let next = Coordinator::recover(id, incarnation, records.iter().cloned(), partitions, &mut out);
            (HoldingCoordinator::of(next, None, out), incarnation)
        }
    });
    catch_unwind(begins).map_err(|panic| format!("coordinator {id} cannot begin: {}", said(&*panic)))
}

/// Notes the message of a panic, unless the previous one had the same.
pub(crate) fn note(panics: &mut Vec<String>, said: String) {
    if panics.last() != Some(&said) {
        panics.push(said);
    }
}

/// Drops a coordinator that has ended. The drop may panic where the coordinator had panicked, or in other
/// procedures of the same kind.
pub(crate) fn bury<C: Procedure>(ended: Option<HoldingCoordinator<C>>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
}

impl<A: Application> CoordinatorRole<A> {
    /// Runs until all clients are gone, and all transactions have ended except those that wait for late partitions or a
    /// late disk. A coordinator that cannot begin again is gone, and its callers are notified.
    pub fn run(mut self) -> CoordinatorEnd {
        let (mut end, mut incarnation) = (CoordinatorEnd::default(), 0);
        let (mut holding, mut attempts) = (Holding::default(), Attempts::default());
        let mut coordinator = self.begin(None, &mut incarnation, &mut attempts, &mut end);
        let (mut left, mut gone) = (0, BTreeSet::new());
        let (mut batch, began) = (VecDeque::new(), Instant::now());
        loop {
            holding.note(coordinator.as_ref().is_some_and(HoldingCoordinator::is_holding));
            let look = holding.look();
            let is_idle = coordinator.as_ref().is_none_or(|one| one.coordinator().is_idle_without(&gone));
            if left >= self.options.ports && (holding.is_late() || look.is_none() && is_idle) {
                // A late one may not have decided all.
                if let Some(leaves) = coordinator.as_mut().filter(|_| is_idle && look.is_none()) {
                    leaves.leave();
                    let said = self.handle(leaves, None, &mut end);
                    end.panics.extend(said.err());
                    self.owners.flush();
                }
                break;
            }
            let until = look.into_iter().chain(attempts.due).min();
            if self.inbox.receive(&mut batch, self.options.batch_max.max(1), until) == Received::Closed {
                break;
            }
            end.counts.batches += 1;
            end.counts.messages += batch.len() as u64;
            // Held outputs are checked also if there are no messages.
            for message in batch.drain(..).map(Some).chain([None]) {
                let message = match message {
                    Some(ToCoordinator::Message(message)) => Some(message),
                    Some(ToCoordinator::ClientGone) => {
                        left += 1;
                        continue;
                    }
                    Some(ToCoordinator::Gone(partition)) => {
                        gone.insert(partition);
                        continue;
                    }
                    None => None,
                };
                match &message {
                    Some(ToMachine::PartitionLate { partition }) => drop(gone.insert(*partition)),
                    Some(ToMachine::Owner(said)) => drop(gone.remove(&said.partition())),
                    _ => {}
                }
                let is_late = holding.is_late() && matches!(message, Some(ToMachine::Call { .. }));
                let Some(alive) = coordinator.as_mut().filter(|_| !is_late) else {
                    if let Some(ToMachine::Call { transaction, .. }) = message {
                        self.ports.put(transaction.client.0, ToPort::CoordinatorDown);
                    }
                    continue;
                };
                match self.handle(alive, message, &mut end) {
                    Ok(false) => {}
                    Ok(true) => holding.left(),
                    Err(panic) => {
                        end.panics.push(panic);
                        self.owners.put_all(|| ToOwner::CoordinatorDown { coordinator: ID, incarnation });
                        self.ports.put_all(|| ToPort::CoordinatorDown);
                        // No client is left that would need the next incarnation.
                        self.owners.flush();
                        self.ports.flush();
                        bury(coordinator.take());
                        holding.left();
                        coordinator = self.begin(Some(incarnation + 1), &mut incarnation, &mut attempts, &mut end);
                    }
                }
            }
            if holding.becomes_late(self.options.hold_max) {
                self.ports.put_all(|| ToPort::CoordinatorDown);
            }
            if attempts.take() {
                coordinator = self.begin(Some(incarnation + 1), &mut incarnation, &mut attempts, &mut end);
            }
            self.owners.flush();
            self.ports.flush();
        }
        end.counts.sleeps = self.inbox.sleeps;
        end.counts.busy = began.elapsed().saturating_sub(self.inbox.slept);
        end
    }

    /// Begins an incarnation, as [`next_incarnation`]. If the coordinator keeps its records itself and cannot
    /// begin, it tries again later.
    fn begin(
        &mut self,
        next: Option<u64>,
        incarnation: &mut u64,
        attempts: &mut Attempts,
        end: &mut CoordinatorEnd,
    ) -> Option<HoldingCoordinator<A::Procedure>> {
        let begun = next_incarnation::<A>(ID, self.begin.as_ref(), next, &end.records, self.options.partitions);
        let begun = begun.and_then(|(mut coordinator, number)| {
            *incarnation = number;
            match self.handle(&mut coordinator, None, end) {
                Ok(_) => Ok(coordinator),
                Err(panic) => {
                    bury(Some(coordinator));
                    Err(panic)
                }
            }
        });
        if begun.is_err() && self.begin.is_some() {
            attempts.again();
        }
        begun.map_err(|panic| note(&mut end.panics, panic)).ok()
    }

    /// Lets the coordinator handle a message, if there is one, and sends the outputs that may leave. Returns
    /// whether an output has left. If the coordinator panics, the outputs of the message do not leave.
    fn handle(
        &mut self,
        coordinator: &mut HoldingCoordinator<A::Procedure>,
        message: Option<MessageOf<A::Procedure>>,
        end: &mut CoordinatorEnd,
    ) -> Result<bool, String> {
        let (mut next, mut message, mut left) = (None, message, false);
        loop {
            let step = catch_unwind(AssertUnwindSafe(|| {
                message.take().into_iter().for_each(|message| coordinator.handle(message));
                next = coordinator.take_output();
            }));
            step.map_err(|panic| said(&*panic))?;
            left |= next.is_some();
            match next.take() {
                None => return Ok(left),
                Some(CoordinatorOutput::Keep(_, record)) if self.options.records => end.records.push(record),
                Some(CoordinatorOutput::Keep(..)) => {}
                Some(CoordinatorOutput::Send { to, message }) => {
                    self.owners.put(to.0, ToOwner::Coordinator(message));
                }
                Some(CoordinatorOutput::Reply { transaction, outcome }) => {
                    self.ports.put(transaction.client.0, ToPort::Multi(transaction, outcome));
                }
                Some(CoordinatorOutput::Broken { transaction, partition }) => {
                    end.broken.push((transaction, partition));
                }
            }
        }
    }
}
