//! The owner of a partition: takes messages in, runs the fragments that its scheme allows, and puts out
//! records, replies and responses.
//!
//! Invariants, under every scheme:
//!
//! (a) A single-partition transaction that finds no undecided one runs at once, and without undo if it cannot
//!     fail.
//! (b) A reply leaves only when everything that it depends on is decided and kept; a response names the
//!     transaction on which it depends.
//! (c) The effects of an undecided transaction can be undone until its decision.
//! (d) A user abort behind an undecided transaction is reported when that one has committed. If it aborts, the
//!     failed transaction runs again: it may have failed because of effects that are now undone.
//! (e) Without messages there is nothing to do.

mod blocking;
mod locking;
mod locks;
mod ordered;
mod replay;
mod speculation;
mod work;

use std::collections::BTreeMap;

use crate::incarnations::Incarnations;
use crate::numbers::Numbers;
use crate::{
    Call, CoordinatorId, FromCoordinator, FromOwner, Kept, Outcome, OwnerRecord, Partition, PartitionId, Scheme,
    ToOwner, TransactionId,
};
use locking::Locking;
use ordered::Ordered;
pub use replay::{RecoveredState, Unfinished};
use work::Workplace;

/// An output of an owner. Outputs take effect in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerOutput<W, R, A> {
    /// Keep a record.
    Keep(Kept, OwnerRecord<W>),
    /// Answer the client of a single-partition transaction.
    Reply {
        /// The transaction.
        transaction: TransactionId,
        /// Its outcome.
        outcome: Outcome<R, A>,
    },
    /// Send a message.
    Send {
        /// The receiver.
        to: CoordinatorId,
        /// The message.
        message: FromOwner<R, A>,
    },
}

/// The outputs of the owner of this kind of partition.
pub type OutputOf<P> = OwnerOutput<<P as Partition>::Work, <P as Partition>::Reply, <P as Partition>::Abort>;

type Out<P> = Vec<OutputOf<P>>;

/// Owns a partition.
pub struct Owner<P: Partition> {
    incarnation: u64,
    coordinators: Incarnations<CoordinatorId>,
    /// The numbers of single-partition transactions.
    calls: Numbers<()>,
    /// The numbers of others, each with its coordinator.
    fragments: Numbers<CoordinatorId>,
    work: Workplace<P>,
    scheme: Running<P>,
}

enum Running<P: Partition> {
    Ordered(Ordered<P>),
    Locking(Locking<P>),
}

/// The settings of owners. All owners of a database have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How transactions share a partition.
    pub scheme: Scheme,
    /// Whether records are put out. Without them a partition that dies is lost.
    pub records: bool,
    /// Ticks after which a transaction over several partitions stops waiting for a lock (`locking`). Deadlocks
    /// over several partitions are broken in no other way.
    pub lock_wait_ticks_max: u32,
}

impl Options {
    /// The scheme with records, and three ticks.
    pub fn new(scheme: Scheme) -> Options {
        Options { scheme, records: true, lock_wait_ticks_max: 3 }
    }
}

impl<P: Partition> Owner<P> {
    /// The owner of a partition without transactions, in its incarnation 0.
    pub fn new(id: PartitionId, partition: P, options: &Options) -> Owner<P> {
        let scheme = match options.scheme {
            Scheme::Locking => Running::Locking(Locking::new(options.lock_wait_ticks_max)),
            scheme => Running::Ordered(Ordered::new(scheme)),
        };
        let work = Workplace { id, partition, records: options.records };
        Owner {
            incarnation: 0,
            coordinators: Incarnations::new(),
            calls: Numbers::new(),
            fragments: Numbers::new(),
            work,
            scheme,
        }
    }

    /// Continues after a crash. `incarnation` is above that of all earlier incarnations. `partition` is in the state
    /// before the first of the records, which are all that were kept since. `coordinators` are all coordinators of the
    /// database; those of transactions in doubt are notified in any case.
    ///
    /// # Panics
    /// If the work in the records cannot be run again: the partition is not deterministic, or not in the state
    /// before them.
    pub fn recover(
        id: PartitionId,
        incarnation: u64,
        partition: P,
        options: &Options,
        records: impl IntoIterator<Item = OwnerRecord<P::Work>>,
        coordinators: impl IntoIterator<Item = CoordinatorId>,
        out: &mut Vec<OutputOf<P>>,
    ) -> Owner<P> {
        let mut owner = Owner::new(id, partition, options);
        let (calls, fragments) = (&mut owner.calls, &mut owner.fragments);
        let records = records.into_iter().inspect(|record| {
            // Those of one client need not be in the order of their numbers: the highest counts.
            let _ = match *record {
                OwnerRecord::Executed { transaction, .. } => calls.note(transaction, ()),
                OwnerRecord::Prepared { transaction, coordinator, .. } => {
                    fragments.note(transaction, coordinator).map_err(drop)
                }
                OwnerRecord::Decided { .. } => Ok(()),
            };
        });
        let undecided = replay::replay(&mut owner.work, records);
        let unfinished = undecided.into_iter().map(|one| one.again(&mut owner.work)).collect();
        owner.restore(incarnation, unfinished, coordinators, out);
        owner
    }

    /// Continues after a crash where the partition has kept its own state. `left` is that state; transactions
    /// that had not voted have been undone. Otherwise as [`Owner::recover`].
    pub fn resume(
        id: PartitionId,
        partition: P,
        options: &Options,
        left: RecoveredState<P>,
        coordinators: impl IntoIterator<Item = CoordinatorId>,
        out: &mut Vec<OutputOf<P>>,
    ) -> Owner<P> {
        let mut owner = Owner::new(id, partition, options);
        // Each is the highest of its client.
        for call in left.calls {
            let _ = owner.calls.note(call, ());
        }
        for (one, through) in left.fragments {
            let _ = owner.fragments.note(one, through);
        }
        owner.restore(left.incarnation, left.unfinished, coordinators, out);
        owner
    }

    /// Begins this incarnation with the transactions that were undecided when the previous one ended.
    fn restore(
        &mut self,
        incarnation: u64,
        unfinished: Vec<Unfinished<P>>,
        coordinators: impl IntoIterator<Item = CoordinatorId>,
        out: &mut Vec<OutputOf<P>>,
    ) {
        self.incarnation = incarnation;
        let mut in_doubt: BTreeMap<CoordinatorId, Vec<TransactionId>> =
            coordinators.into_iter().map(|coordinator| (coordinator, Vec::new())).collect();
        for Unfinished { transaction, coordinator, .. } in &unfinished {
            if let Some(coordinator) = coordinator {
                in_doubt.entry(*coordinator).or_default().push(*transaction);
            }
        }
        match &mut self.scheme {
            Running::Ordered(ordered) => ordered.restore(unfinished),
            Running::Locking(locking) => locking.restore(&self.work, unfinished),
        }
        let partition = self.work.id;
        for (to, in_doubt) in in_doubt {
            out.push(OwnerOutput::Send { to, message: FromOwner::Recovered { partition, incarnation, in_doubt } });
        }
    }

    /// Handles a message.
    ///
    /// # Panics
    /// If the partition breaks its contract.
    pub fn handle(&mut self, message: ToOwner<P::Work>, out: &mut Vec<OutputOf<P>>) {
        let mut alive_to = None;
        match &message {
            &ToOwner::Call(Call { transaction, .. }) if self.calls.note(transaction, ()).is_err() => {
                return out.push(OwnerOutput::Reply { transaction, outcome: Outcome::Repeated });
            }
            ToOwner::Coordinator(FromCoordinator::Fragment(fragment))
                if !self.coordinators.hear(fragment.coordinator, fragment.incarnation) =>
            {
                // Sent by an incarnation that has ended: it would stay undecided until the next one.
                return;
            }
            &ToOwner::Coordinator(FromCoordinator::Recovered { coordinator, incarnation, .. }) => {
                self.coordinators.hear(coordinator, incarnation);
                alive_to = Some(coordinator);
            }
            &ToOwner::CoordinatorDown { coordinator, incarnation }
                if !self.coordinators.end(coordinator, incarnation) =>
            {
                return;
            }
            ToOwner::Coordinator(FromCoordinator::Fragment(fragment)) if fragment.round == 0 => {
                match self.fragments.note(fragment.transaction, fragment.coordinator) {
                    Ok(()) => {}
                    // The response to the first one suffices.
                    Err(earlier) if earlier == fragment.coordinator => return,
                    Err(_) => return self.work.refuse_repeated(fragment, out),
                }
            }
            _ => {}
        }
        match &mut self.scheme {
            Running::Ordered(ordered) => ordered.handle(&mut self.work, message, out),
            Running::Locking(locking) => locking.handle(&mut self.work, message, out),
        }
        if let Some(to) = alive_to {
            let message = FromOwner::Alive { partition: self.work.id, incarnation: self.incarnation };
            out.push(OwnerOutput::Send { to, message });
        }
    }

    /// The number of this incarnation.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether there is no transaction.
    pub fn is_idle(&self) -> bool {
        match &self.scheme {
            Running::Ordered(ordered) => ordered.is_idle(),
            Running::Locking(locking) => locking.is_idle(),
        }
    }

    /// Whether the owner needs ticks: a transaction waits for a lock, perhaps for ever.
    pub fn wants_ticks(&self) -> bool {
        match &self.scheme {
            Running::Ordered(_) => false,
            Running::Locking(locking) => locking.wants_ticks(),
        }
    }

    /// The partition.
    pub fn partition(&self) -> &P {
        &self.work.partition
    }

    /// The partition, for a caller that has it keep the owner's records.
    pub fn partition_mut(&mut self) -> &mut P {
        &mut self.work.partition
    }
}
