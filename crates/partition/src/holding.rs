//! Owners and coordinators that continue at once, and hold outputs back until the state on which these depend
//! is durable.
//!
//! Invariants:
//!
//! (a) Outputs leave in the order in which they were put out, and depend on nothing that a power cut could
//!     undo.
//! (b) A partition or journal that keeps state itself receives the records. Otherwise records are put out for
//!     the carrier.

use std::collections::VecDeque;

use crate::fault::{Fault, is_injected};
use crate::{
    Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorOutputOf, CoordinatorRecord, Kept, MessageOf, Options,
    Owner, OwnerOutput, OwnerOutputOf, Partition, PartitionId, Procedure, ToOwner,
};

/// Keeps the records of a coordinator.
pub trait Journal: Send {
    /// Keeps a record, after all earlier ones. It is durable when [`Journal::durable`] has reached the
    /// returned number, which never falls.
    ///
    /// # Panics
    /// If it cannot keep the record: the coordinator ends, as in a crash.
    fn keep(&mut self, record: &CoordinatorRecord) -> u64;

    /// The number up to which everything is durable. A write that the disk refused earlier is tried again
    /// here.
    ///
    /// # Panics
    /// If nothing will become durable any more.
    fn durable(&mut self) -> u64;
}

/// Outputs, each with the number that must become durable first.
struct Held<O>(VecDeque<(u64, O)>);

impl<O> Held<O> {
    fn hold(&mut self, until: u64, output: O) {
        self.0.push_back((until, output));
    }

    /// The next output that may leave. An injected fault lets it leave early.
    fn next(&mut self, mistake: Fault, durable: impl FnOnce() -> u64) -> Option<O> {
        let (until, _) = self.0.front()?;
        let leaves = *until == 0 || *until <= durable() || is_injected(mistake);
        if leaves { self.0.pop_front().map(|(_, output)| output) } else { None }
    }
}

/// An owner with the outputs that it holds back.
pub struct HoldingOwner<P: Partition> {
    owner: Owner<P>,
    /// Whether its partition keeps its own state.
    keeps: bool,
    held: Held<OwnerOutputOf<P>>,
    incarnation: u64,
    out: Vec<OwnerOutputOf<P>>,
}

impl<P: Partition> HoldingOwner<P> {
    /// The owner of a partition that is new, in its incarnation 0, or that has kept its state and continues
    /// from there. `coordinators` are all coordinators of the database.
    pub fn begin(
        id: PartitionId,
        mut partition: P,
        options: &Options,
        coordinators: impl IntoIterator<Item = CoordinatorId>,
    ) -> HoldingOwner<P> {
        let mut out = Vec::new();
        let Some(left) = partition.left() else {
            return HoldingOwner::of(Owner::new(id, partition, options), out);
        };
        let options = Options { records: true, ..*options };
        let owner = Owner::resume(id, partition, &options, left, coordinators, &mut out);
        let mut owner = HoldingOwner { keeps: true, ..HoldingOwner::of(owner, out) };
        owner.put_out();
        owner
    }

    /// An owner whose records are put out, with its outputs so far.
    pub fn of(owner: Owner<P>, out: Vec<OwnerOutputOf<P>>) -> HoldingOwner<P> {
        let mut owner =
            HoldingOwner { incarnation: owner.incarnation(), owner, keeps: false, held: Held(VecDeque::new()), out };
        owner.put_out();
        owner
    }

    /// The number of this incarnation.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether its partition keeps its own state.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// The owner.
    pub fn owner(&self) -> &Owner<P> {
        &self.owner
    }

    /// The owner without the held outputs.
    pub fn into_owner(self) -> Owner<P> {
        self.owner
    }

    /// Handles a message.
    ///
    /// # Panics
    /// If the partition breaks its contract, or can no longer keep anything.
    pub fn handle(&mut self, message: ToOwner<P::Work>) {
        self.owner.handle(message, &mut self.out);
        self.put_out();
    }

    fn put_out(&mut self) {
        if !self.keeps {
            self.out.drain(..).for_each(|output| self.held.hold(0, output));
            return;
        }
        let mut records = Vec::new();
        let others = self.out.drain(..).filter_map(|output| match output {
            OwnerOutput::Keep(_, record) => {
                records.push(record);
                None
            }
            output => Some(output),
        });
        let others: Vec<_> = others.collect();
        let until = self.owner.partition_mut().keep(records);
        others.into_iter().for_each(|output| self.held.hold(until, output));
    }

    /// The next output that may leave; a record only where the partition keeps none.
    ///
    /// # Panics
    /// As [`HoldingOwner::handle`].
    pub fn take_output(&mut self) -> Option<OwnerOutputOf<P>> {
        let partition = self.owner.partition_mut();
        self.held.next(Fault::LeftEarly, || partition.durable())
    }

    /// Whether an output is held back.
    pub fn is_holding(&self) -> bool {
        !self.held.0.is_empty()
    }
}

/// A coordinator with the outputs that it holds back.
pub struct HoldingCoordinator<C: Procedure> {
    coordinator: Coordinator<C>,
    journal: Option<Box<dyn Journal>>,
    /// The number that must be durable before the next output leaves.
    until: u64,
    held: Held<CoordinatorOutputOf<C>>,
    out: Vec<CoordinatorOutputOf<C>>,
}

impl<C: Procedure> HoldingCoordinator<C> {
    /// A coordinator with its outputs so far. Without a journal its records are put out.
    pub fn of(
        coordinator: Coordinator<C>,
        journal: Option<Box<dyn Journal>>,
        out: Vec<CoordinatorOutputOf<C>>,
    ) -> HoldingCoordinator<C> {
        let mut coordinator = HoldingCoordinator { coordinator, journal, until: 0, held: Held(VecDeque::new()), out };
        coordinator.put_out();
        coordinator
    }

    /// The coordinator.
    pub fn coordinator(&self) -> &Coordinator<C> {
        &self.coordinator
    }

    /// Leaves, as [`Coordinator::leave`].
    ///
    /// # Panics
    /// If a transaction is undecided.
    pub fn leave(&mut self) {
        self.coordinator.leave(&mut self.out);
        self.put_out();
    }

    /// Handles a message.
    ///
    /// # Panics
    /// If its journal can no longer keep anything.
    pub fn handle(&mut self, message: MessageOf<C>) {
        self.coordinator.handle(message, &mut self.out);
        self.put_out();
    }

    fn put_out(&mut self) {
        for output in self.out.drain(..) {
            match (output, &mut self.journal) {
                (CoordinatorOutput::Keep(kept, record), Some(journal)) => {
                    let number = journal.keep(&record);
                    // Outputs after the end of a transaction do not depend on the record of that end.
                    if kept == Kept::Forced {
                        self.until = number;
                    }
                }
                (output, _) => self.held.hold(self.until, output),
            }
        }
    }

    /// The next output that may leave; a record only where there is no journal.
    ///
    /// # Panics
    /// As [`HoldingCoordinator::handle`].
    pub fn take_output(&mut self) -> Option<CoordinatorOutputOf<C>> {
        let journal = &mut self.journal;
        self.held.next(Fault::DecisionLeftEarly, || journal.as_mut().map_or(u64::MAX, |journal| journal.durable()))
    }

    /// Whether an output is held back.
    pub fn is_holding(&self) -> bool {
        !self.held.0.is_empty()
    }
}
