//! The owner of a partition: takes messages in, runs what its scheme allows, and puts out records, replies and responses.
//!
//! Invariants, under every scheme:
//!
//! (a) A single-partition transaction that finds nothing undecided runs at once, and without undo if it cannot fail.
//! (b) No reply leaves before all that it depends on is decided and kept; no response leaves without saying what it depends on.
//! (c) What an undecided transaction did can be taken back until its decision.
//! (d) A user abort behind an undecided transaction is reported when that one has committed. If it aborts, the transaction that
//!     failed runs again: its failure may have come from what is no more.
//! (e) Without messages there is nothing to do.

mod blocking;
mod locking;
mod locks;
mod ordered;
mod replay;
mod speculation;
mod work;

use std::collections::BTreeMap;

use crate::lives::Lives;
use crate::numbers::Numbers;
use crate::{
    Call, CoordinatorId, FromCoordinator, FromOwner, Kept, Outcome, OwnerRecord, Partition, PartitionId, Scheme,
    ToOwner, TransactionId,
};
use locking::Locking;
use ordered::Ordered;
pub use replay::{Left, Unfinished};
use work::Workplace;

/// What an owner wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerOutput<W, R, A> {
    /// To keep a record.
    Keep(Kept, OwnerRecord<W>),
    /// To answer the client of a single-partition transaction.
    Reply {
        /// Which.
        transaction: TransactionId,
        /// How it ended.
        outcome: Outcome<R, A>,
    },
    /// To send a message.
    Send {
        /// To whom.
        to: CoordinatorId,
        /// Which.
        message: FromOwner<R, A>,
    },
}

/// What the owner of such a partition puts out.
pub type OutputOf<P> = OwnerOutput<<P as Partition>::Work, <P as Partition>::Reply, <P as Partition>::Abort>;

type Out<P> = Vec<OutputOf<P>>;

/// Owns a partition.
pub struct Owner<P: Partition> {
    life: u64,
    coordinators: Lives<CoordinatorId>,
    /// Of single-partition transactions.
    calls: Numbers<()>,
    /// Of others, and through whom they came.
    fragments: Numbers<CoordinatorId>,
    work: Workplace<P>,
    scheme: Running<P>,
}

enum Running<P: Partition> {
    Ordered(Ordered<P>),
    Locking(Locking<P>),
}

/// How owners work. All owners of a database have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How transactions share a partition.
    pub scheme: Scheme,
    /// Whether records are put out. Without them a partition that dies is lost.
    pub records: bool,
    /// Ticks after which a transaction over several partitions no longer waits for a lock (`locking`). Those that wait for each
    /// other at several partitions are not seen otherwise.
    pub lock_wait_ticks_max: u32,
}

impl Options {
    /// The scheme with records, and three ticks.
    pub fn new(scheme: Scheme) -> Options {
        Options { scheme, records: true, lock_wait_ticks_max: 3 }
    }
}

impl<P: Partition> Owner<P> {
    /// The owner of a partition on which nothing is under way, in its life 0.
    pub fn new(id: PartitionId, partition: P, options: &Options) -> Owner<P> {
        let scheme = match options.scheme {
            Scheme::Locking => Running::Locking(Locking::new(options.lock_wait_ticks_max)),
            scheme => Running::Ordered(Ordered::new(scheme)),
        };
        let work = Workplace { id, partition, records: options.records };
        Owner { life: 0, coordinators: Lives::new(), calls: Numbers::new(), fragments: Numbers::new(), work, scheme }
    }

    /// Goes on after a crash. `life` is above that of all its lives before. `partition` is in the state before the first of the records, which are all that were kept since.
    /// `coordinators` are all that there may be; those of transactions in doubt are told anyway.
    ///
    /// # Panics
    /// If what the records say cannot be run again: the partition is not deterministic, or not in the state before them.
    pub fn recover(
        id: PartitionId,
        life: u64,
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
        owner.restore(life, unfinished, coordinators, out);
        owner
    }

    /// Goes on after a crash, where the partition has kept its own state: `left` is what it knows, and what had not voted has been taken back. All else
    /// as [`Owner::recover`].
    pub fn resume(
        id: PartitionId,
        partition: P,
        options: &Options,
        left: Left<P>,
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
        owner.restore(left.life, left.unfinished, coordinators, out);
        owner
    }

    /// Begins this life with what was undecided when the one before ended.
    fn restore(
        &mut self,
        life: u64,
        unfinished: Vec<Unfinished<P>>,
        coordinators: impl IntoIterator<Item = CoordinatorId>,
        out: &mut Vec<OutputOf<P>>,
    ) {
        self.life = life;
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
            out.push(OwnerOutput::Send { to, message: FromOwner::Recovered { partition, life, in_doubt } });
        }
    }

    /// Takes a message in.
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
                if !self.coordinators.hear(fragment.coordinator, fragment.life) =>
            {
                // Of a life that has ended: nobody would decide it before the next one.
                return;
            }
            &ToOwner::Coordinator(FromCoordinator::Recovered { coordinator, life, .. }) => {
                self.coordinators.hear(coordinator, life);
                alive_to = Some(coordinator);
            }
            &ToOwner::CoordinatorDown { coordinator, life } if !self.coordinators.end(coordinator, life) => return,
            ToOwner::Coordinator(FromCoordinator::Fragment(fragment)) if fragment.round == 0 => {
                match self.fragments.note(fragment.transaction, fragment.coordinator) {
                    Ok(()) => {}
                    // The first one's response serves.
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
            let message = FromOwner::Alive { partition: self.work.id, life: self.life };
            out.push(OwnerOutput::Send { to, message });
        }
    }

    /// Which of its lives this is.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        match &self.scheme {
            Running::Ordered(ordered) => ordered.is_idle(),
            Running::Locking(locking) => locking.is_idle(),
        }
    }

    /// Whether time matters: someone waits for a lock, and might wait for ever.
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

    /// The partition, for whoever has it keep the owner's records.
    pub fn partition_mut(&mut self) -> &mut P {
        &mut self.work.partition
    }
}
