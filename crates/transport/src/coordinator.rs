//! The role of the coordinator that all clients share.

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use seriatim_base::clock::Instant;
use seriatim_partition::{
    Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorOutputOf, CoordinatorRecord, MessageOf, PartitionId,
    ToOwner, TransactionId,
};

use crate::channel::{Found, Inbox};
use crate::outbox::Outbox;
use crate::owner::{Counts, said};
use crate::{Application, Options, ToCoordinator, ToOwnerOf, ToPort};

/// There is one.
pub(crate) const ID: CoordinatorId = CoordinatorId(0);

/// The coordinator, for the thread or simulated core that is to run it.
pub struct CoordinatorRole<A: Application> {
    pub(crate) options: Options,
    pub(crate) inbox: Inbox<ToCoordinator<A>>,
    pub(crate) owners: Outbox<ToOwnerOf<A>>,
    pub(crate) ports: Outbox<ToPort<A>>,
}

/// What is left of a coordinator.
#[derive(Clone, Debug, Default)]
pub struct CoordinatorEnd {
    /// All that were kept.
    pub records: Vec<CoordinatorRecord>,
    /// Panics that ended its lives, and what they said.
    pub panics: Vec<String>,
    /// Transactions that have committed and are not done at this partition, which says that it has not voted. There must be none.
    pub broken: Vec<(TransactionId, PartitionId)>,
    /// What it did.
    pub counts: Counts,
}

impl<A: Application> CoordinatorRole<A> {
    /// Runs until all clients are gone and nothing is under way.
    pub fn run(mut self) -> CoordinatorEnd {
        let count = self.options.partitions;
        let partitions = || (0..count).map(PartitionId);
        let mut coordinator = Coordinator::new(ID, partitions());
        let (mut left, mut gone, mut life) = (0, BTreeSet::new(), 0);
        let mut end = CoordinatorEnd::default();
        let (mut batch, mut out) = (VecDeque::new(), Vec::new());
        let began = Instant::now();
        while left < self.options.ports || !coordinator.is_idle_without(&gone) {
            if self.inbox.receive(&mut batch, self.options.batch_max.max(1), None) == Found::Closed {
                break;
            }
            end.counts.batches += 1;
            end.counts.messages += batch.len() as u64;
            while let Some(message) = batch.pop_front() {
                let message = match message {
                    ToCoordinator::Message(message) => message,
                    ToCoordinator::Left => {
                        left += 1;
                        continue;
                    }
                    ToCoordinator::Gone(partition) => {
                        gone.insert(partition);
                        continue;
                    }
                };
                if let Err(panic) = handle(&mut coordinator, message, &mut out) {
                    end.panics.push(panic);
                    out.clear();
                    self.owners.put_all(|| ToOwner::CoordinatorDown { coordinator: ID, life });
                    self.ports.put_all(|| ToPort::CoordinatorDown);
                    life += 1;
                    let records = end.records.iter().cloned();
                    let next = Coordinator::recover(ID, life, records, partitions(), &mut out);
                    let ended = std::mem::replace(&mut coordinator, next);
                    // It may panic again where it had panicked, or in other procedures of the same kind.
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
                }
                self.put_out(&mut out, &mut end);
            }
            self.owners.flush();
            self.ports.flush();
        }
        end.counts.sleeps = self.inbox.sleeps;
        end.counts.busy = began.elapsed().saturating_sub(self.inbox.slept);
        end
    }

    fn put_out(&mut self, out: &mut Vec<CoordinatorOutputOf<A::Procedure>>, end: &mut CoordinatorEnd) {
        for output in out.drain(..) {
            match output {
                CoordinatorOutput::Keep(_, record) if self.options.records => end.records.push(record),
                CoordinatorOutput::Keep(..) => {}
                CoordinatorOutput::Send { to, message } => self.owners.put(to.0, ToOwner::Coordinator(message)),
                CoordinatorOutput::Reply { transaction, outcome } => {
                    self.ports.put(transaction.client.0, ToPort::Multi(transaction, outcome));
                }
                CoordinatorOutput::Broken { transaction, partition } => end.broken.push((transaction, partition)),
            }
        }
    }
}

/// Has the coordinator handle a message. Should it panic, what it had put out does not leave.
fn handle<C: seriatim_partition::Procedure>(
    coordinator: &mut Coordinator<C>,
    message: MessageOf<C>,
    out: &mut Vec<CoordinatorOutputOf<C>>,
) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| coordinator.handle(message, out))).map_err(|panic| said(&*panic))
}
