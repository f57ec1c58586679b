//! What a partition is to its owner: fragments run on it, and are taken back.

use crate::TransactionId;

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

    /// Takes a fragment back; see (c).
    fn undo(&mut self, undo: Self::Undo);

    /// Says that a fragment will not be taken back.
    fn forget(&mut self, undo: Self::Undo);

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
