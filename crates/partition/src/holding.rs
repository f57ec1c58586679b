//! Owners and coordinators that hold back what they put out until that on which it rests is durable, and go on meanwhile.
//!
//! Invariants:
//!
//! (a) What leaves is in the order in which it was put out, and rests on nothing that a power cut could take back.
//! (b) Who keeps its own state is given records instead of putting them out. Records of others are put out, and are for whoever carries them.

use std::collections::VecDeque;

use crate::fault::{Fault, is_injected};
use crate::{
    Coordinator, CoordinatorId, CoordinatorOutput, CoordinatorOutputOf, CoordinatorRecord, Kept, MessageOf, Options,
    Owner, OwnerOutput, OwnerOutputOf, Partition, PartitionId, Procedure, ToOwner,
};

/// Where a coordinator keeps its records.
pub trait Journal: Send {
    /// Keeps a record, behind those before; it is durable when [`Journal::durable`] has reached this number, which never falls.
    ///
    /// # Panics
    /// If it cannot: the coordinator ends, as in a crash.
    fn keep(&mut self, record: &CoordinatorRecord) -> u64;

    /// Up to which number everything is durable. What the disk did not take before is tried again here.
    ///
    /// # Panics
    /// If nothing will become durable any more.
    fn durable(&mut self) -> u64;
}

/// What has been put out, with the number on which each rests.
struct Held<O>(VecDeque<(u64, O)>);

impl<O> Held<O> {
    fn hold(&mut self, until: u64, output: O) {
        self.0.push_back((until, output));
    }

    /// The next that may leave, or leaves all the same, by mistake.
    fn next(&mut self, mistake: Fault, durable: impl FnOnce() -> u64) -> Option<O> {
        let (until, _) = self.0.front()?;
        let leaves = *until == 0 || *until <= durable() || is_injected(mistake);
        if leaves { self.0.pop_front().map(|(_, output)| output) } else { None }
    }
}

/// An owner.
pub struct HoldingOwner<P: Partition> {
    owner: Owner<P>,
    /// Whether its partition keeps its own state.
    keeps: bool,
    held: Held<OwnerOutputOf<P>>,
    life: u64,
    out: Vec<OwnerOutputOf<P>>,
}

impl<P: Partition> HoldingOwner<P> {
    /// Of this partition: which begins, in its life 0, or goes on where it has kept its state. `coordinators` are all that there may be.
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

    /// An owner whose records are put out, which has put out these.
    pub fn of(owner: Owner<P>, out: Vec<OwnerOutputOf<P>>) -> HoldingOwner<P> {
        let mut owner = HoldingOwner { life: owner.life(), owner, keeps: false, held: Held(VecDeque::new()), out };
        owner.put_out();
        owner
    }

    /// Which of its lives this is.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Whether its partition keeps its own state.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// The owner.
    pub fn owner(&self) -> &Owner<P> {
        &self.owner
    }

    /// The owner, with nothing held.
    pub fn into_owner(self) -> Owner<P> {
        self.owner
    }

    /// Takes a message in.
    ///
    /// # Panics
    /// If the partition breaks its contract, or can keep nothing any more.
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

    /// The next that may leave; a record only where the partition keeps none.
    ///
    /// # Panics
    /// As [`HoldingOwner::handle`].
    pub fn take_output(&mut self) -> Option<OwnerOutputOf<P>> {
        let partition = self.owner.partition_mut();
        self.held.next(Fault::LeftEarly, || partition.durable())
    }

    /// Whether something has been put out and has not left.
    pub fn is_holding(&self) -> bool {
        !self.held.0.is_empty()
    }
}

/// A coordinator.
pub struct HoldingCoordinator<C: Procedure> {
    coordinator: Coordinator<C>,
    journal: Option<Box<dyn Journal>>,
    /// On which the next output rests.
    until: u64,
    held: Held<CoordinatorOutputOf<C>>,
    out: Vec<CoordinatorOutputOf<C>>,
}

impl<C: Procedure> HoldingCoordinator<C> {
    /// This one, which has put out these. Without a journal its records are put out.
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

    /// Takes a message in.
    ///
    /// # Panics
    /// If its journal can keep nothing any more.
    pub fn handle(&mut self, message: MessageOf<C>) {
        self.coordinator.handle(message, &mut self.out);
        self.put_out();
    }

    fn put_out(&mut self) {
        for output in self.out.drain(..) {
            match (output, &mut self.journal) {
                (CoordinatorOutput::Keep(kept, record), Some(journal)) => {
                    let number = journal.keep(&record);
                    // What follows the end of a transaction does not rest on it.
                    if kept == Kept::Forced {
                        self.until = number;
                    }
                }
                (output, _) => self.held.hold(self.until, output),
            }
        }
    }

    /// The next that may leave; a record only where there is no journal.
    ///
    /// # Panics
    /// As [`HoldingCoordinator::handle`].
    pub fn take_output(&mut self) -> Option<CoordinatorOutputOf<C>> {
        let journal = &mut self.journal;
        self.held.next(Fault::DecisionLeftEarly, || journal.as_mut().map_or(u64::MAX, |journal| journal.durable()))
    }

    /// Whether something has been put out and has not left.
    pub fn is_holding(&self) -> bool {
        !self.held.0.is_empty()
    }
}
