//! What a partition is to its owner: fragments run on it, and are taken back.

use crate::{Left, OwnerRecord, TransactionId};

/// The data of one partition, and what runs on it. The owner calls it from one thread, one call at a time.
///
/// What an implementation promises:
///
/// (a) **A fragment is deterministic**: the same work on the same state has the same effects and the same reply. What comes from
///     clocks, random numbers or other partitions is part of the work. Recovery relies on it.
/// (b) **A fragment that fails has had no effect**: on `Err` the state is as before the call.
/// (c) [`Partition::undo`] takes back what the fragment did, if everything that was done after it has been taken back before. Under
///     `locking` fragments whose footprints do not conflict may lie between.
/// (d) **Nothing unwinds.** A panic of users' code is caught in the partition, and is a failure: (b) holds for it too, and the abort says
///     what it was. The owner does not catch any; where one gets out, the owner is gone as in a crash, and has to be recovered.
/// (e) [`Partition::footprint`] covers all that the fragment reads and writes, whatever the state is.
pub trait Partition {
    /// What a fragment is to do: plain data.
    type Work: Clone;
    /// What a fragment answers: plain data.
    type Reply;
    /// Why a fragment failed, as its author said it: plain data.
    type Abort;
    /// What takes a fragment back.
    type Undo;
    /// What a lock protects: a row, or anything coarser.
    type Key: Clone + Ord;

    /// Runs a fragment to its end.
    ///
    /// # Errors
    /// When the fragment fails by its own will; see (b).
    fn execute(
        &mut self,
        transaction: TransactionId,
        work: &Self::Work,
    ) -> Result<(Self::Reply, Self::Undo), Self::Abort>;

    /// Runs a fragment that nobody will ask to take back, and of which its client says that it cannot fail
    /// ([`crate::Call::may_abort`]). A client's word is not enough: (b) holds here too. So only an implementation that knows by itself that the
    /// work cannot fail, or finds out before it has changed anything, does without undo; otherwise this.
    ///
    /// # Errors
    /// When the fragment fails all the same. Its client is answered so.
    fn execute_without_undo(
        &mut self,
        transaction: TransactionId,
        work: &Self::Work,
    ) -> Result<Self::Reply, Self::Abort> {
        let (reply, undo) = self.execute(transaction, work)?;
        self.forget(undo);
        Ok(reply)
    }

    /// Runs a single-partition transaction that finds nothing undecided, and that nobody will ask to take back. Where a fragment that fails leaves
    /// nothing without undo, none has to be kept: then an implementation does as if nothing may fail.
    ///
    /// # Errors
    /// As [`Partition::execute`].
    fn execute_alone(
        &mut self,
        transaction: TransactionId,
        work: &Self::Work,
        may_abort: bool,
    ) -> Result<Self::Reply, Self::Abort> {
        if !may_abort {
            return self.execute_without_undo(transaction, work);
        }
        let (reply, undo) = self.execute(transaction, work)?;
        self.forget(undo);
        Ok(reply)
    }

    /// Takes a fragment back; see (c).
    fn undo(&mut self, undo: Self::Undo);

    /// Says that a fragment will not be taken back.
    fn forget(&mut self, undo: Self::Undo);

    /// Keeps what its owner's records say, beside what it keeps of fragments itself. Asked after each message, with the records that followed from it; a
    /// number, which never falls: what it has done so far is durable when [`Partition::durable`] has reached that. One that keeps nothing is not asked.
    ///
    /// # Panics
    /// If it can keep nothing any more: its owner ends, as in a crash.
    fn keep(&mut self, _records: Vec<OwnerRecord<Self::Work>>) -> u64 {
        0
    }

    /// Up to which number what it has done is durable. What the disk did not take before is tried again here.
    ///
    /// # Panics
    /// If nothing will become durable any more.
    fn durable(&mut self) -> u64 {
        u64::MAX
    }

    /// What there is of transactions when its owner begins, if it keeps that itself; asked once.
    fn left(&mut self) -> Option<Left<Self>>
    where
        Self: Sized,
    {
        None
    }

    /// Appends what the fragment locks under `locking`, in the order in which it asks for it. A key may be there several times.
    fn footprint(&self, work: &Self::Work, locks: &mut Vec<(Self::Key, LockMode)>);
}

/// How a key is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// With others that only read.
    Shared,
    /// Alone.
    Exclusive,
}
