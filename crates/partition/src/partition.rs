//! The interface between an owner and its partition: fragments run on the partition, and are undone.

use crate::{OwnerRecord, RecoveredState, TransactionId};

/// The data of one partition, and the code that runs on it. The owner calls it from one thread, one call at a
/// time.
///
/// An implementation promises:
///
/// (a) **A fragment is deterministic**: the same work on the same state has the same effects and the same
///     reply. Values of clocks, random numbers or other partitions are part of the work. Recovery relies on
///     it.
/// (b) **A fragment that fails has had no effect**: on `Err` the state is as before the call.
/// (c) [`Partition::undo`] undoes a fragment if every later one has been undone before. Under `locking`
///     fragments whose footprints do not conflict may lie between.
/// (d) **Nothing unwinds.** The partition catches a panic of users' code, and treats it as a failure: (b)
///     holds for it too, and the abort describes it. The owner does not catch panics; one that escapes ends
///     the owner as a crash does, and the owner has to be recovered.
/// (e) [`Partition::footprint`] covers all that the fragment reads and writes, whatever the state is.
pub trait Partition {
    /// The work of a fragment: plain data.
    type Work: Clone;
    /// The reply of a fragment: plain data.
    type Reply;
    /// Why a fragment failed, as its author said it: plain data.
    type Abort;
    /// The data that undo a fragment.
    type Undo;
    /// The unit of locking: a row, or anything coarser.
    type Key: Clone + Ord;

    /// Runs a fragment to its end.
    ///
    /// # Errors
    /// When the fragment's work fails; see (b).
    fn execute(
        &mut self,
        transaction: TransactionId,
        work: &Self::Work,
    ) -> Result<(Self::Reply, Self::Undo), Self::Abort>;

    /// Runs a fragment that will not be undone, and of which its client says that it cannot fail
    /// ([`crate::Call::may_abort`]). The client may be wrong, and (b) holds here too. So an implementation may
    /// do without undo only if it knows by itself that the work cannot fail. It may also find that out before it has
    /// changed anything. Otherwise it keeps undo until the work has succeeded.
    ///
    /// # Errors
    /// When the fragment fails all the same. The client is notified.
    fn execute_without_undo(
        &mut self,
        transaction: TransactionId,
        work: &Self::Work,
    ) -> Result<Self::Reply, Self::Abort> {
        let (reply, undo) = self.execute(transaction, work)?;
        self.forget(undo);
        Ok(reply)
    }

    /// Runs a single-partition transaction that finds no undecided one, and that will not be undone. In some
    /// implementations a failed fragment leaves no effect even without undo. Such an implementation keeps none here: it
    /// runs the work as if it could not fail.
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

    /// Undoes a fragment; see (c).
    fn undo(&mut self, undo: Self::Undo);

    /// Drops the undo of a fragment that is final.
    fn forget(&mut self, undo: Self::Undo);

    /// Keeps the owner's records, beside the partition's own state. The owner calls it after each message,
    /// with the records that followed from the message. Returns a number, which never falls: all work so far
    /// is durable when [`Partition::durable`] has reached it. A partition that keeps nothing is not called.
    ///
    /// # Panics
    /// If it can no longer keep anything: its owner ends, as in a crash.
    fn keep(&mut self, _records: Vec<OwnerRecord<Self::Work>>) -> u64 {
        0
    }

    /// The number up to which all work is durable. A write that the disk refused earlier is tried again here.
    ///
    /// # Panics
    /// If nothing will become durable any more.
    fn durable(&mut self) -> u64 {
        u64::MAX
    }

    /// The state of transactions when the owner begins, if the partition keeps it itself; called once.
    fn left(&mut self) -> Option<RecoveredState<Self>>
    where
        Self: Sized,
    {
        None
    }

    /// Appends the locks of the fragment under `locking`, in the order in which it takes them. A key may occur
    /// several times.
    fn footprint(&self, work: &Self::Work, locks: &mut Vec<(Self::Key, LockMode)>);
}

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// Shared with other readers.
    Shared,
    /// Exclusive.
    Exclusive,
}
