//! Deliberate faults for canaries: broken variants of the protocols, built only with the feature `canary`,
//! that the suite must catch. Without the feature [`Core::injects`](crate::Core::injects) is the constant
//! `false`.

/// An injected fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Commits without validating the read set.
    SkipValidation,
    /// Reserves nothing in an attempt that is to reserve what it accesses.
    ReserveNothing,
    /// Installs without taking, or looking at, the locks of the write set.
    NoSubscription,
    /// Validates before it takes the locks of the write set.
    LateSubscription,
    /// Forgets the leaves and buckets that prove ranges and absences (locking: the gaps).
    DropNodeVersion,
    /// Gives a version the TID of the one it replaces.
    ReuseTid,
    /// Makes writes visible before the read set is validated.
    PublishEarly,
    /// Commits in the epoch that it read at begin.
    EpochAtBegin,
    /// Forgets the reads of writes that a rollback to a savepoint undoes.
    ForgetRolledBack,
    /// Keeps no version for the durable epoch.
    ForgetDurable,
    /// Unlinks a record whose deletion is not durable without noting it.
    ForgetUndurableDeletions,
    /// Panics in the middle of a commit, with the records to be written locked.
    PanicInCommit,
    /// Lets a younger transaction wait for an older one.
    YoungerWaits,
    /// Extends the validity of versions that have been overwritten.
    ExtendOverwritten,
    /// Ends explicit transactions that are too old in the middle of a call, too.
    ReapInCall,
    /// Adds rows to runs of clustered tables where others read them, and writes no version.
    GrowSharedRuns,
    /// Goes on from newer row versions whatever changed in them, and writes over them.
    RebaseRegardless,
    /// Reads hot records without locking them, and so without noting them either.
    ReadHotUnlocked,
    /// Writes what transactions under way have read: a write timestamp below a reader's.
    OverwriteReaders,
    /// Opens no windows, in which a transaction publishes in several steps.
    NoWindows,
    /// Makes eventual snapshots while windows are open.
    SnapshotAmidWindows,
    /// Lets readers of eventual snapshots read the one that commits still add to.
    UnwholeSnapshot,
    /// Ends epochs without the snapshot of each, where durability is by snapshot.
    EpochWithoutSnapshot,
    /// Publishes what was deferred when the windows are closed the next time.
    PublishDeferredLate,
    /// Loses one row of the deferred additions.
    ForgetDeferred,
    /// Runs whole transactions of different threads under locks of their own.
    UnsharedLock,
    /// Commits what does not own its partitions without their locks.
    CommitUnowned,
    /// Calls own one of their partitions only, and look no further.
    FewPartitions,
    /// Orders batches without a look at ranges and absences.
    MissNodes,
    /// Orders batches without a look at what was read.
    MissReads,
    /// Decides batches in the reverse of their order.
    ReverseOrder,
    /// Keeps those in the order that are left out of it.
    KeepLeftOut,
    /// Decides each transaction of a batch twice.
    DecideTwice,
}

impl Fault {
    /// Every fault but none.
    pub const ALL: [Fault; 32] = [
        Fault::SkipValidation,
        Fault::NoSubscription,
        Fault::LateSubscription,
        Fault::DropNodeVersion,
        Fault::ReuseTid,
        Fault::PublishEarly,
        Fault::EpochAtBegin,
        Fault::ForgetRolledBack,
        Fault::ForgetDurable,
        Fault::ForgetUndurableDeletions,
        Fault::PanicInCommit,
        Fault::YoungerWaits,
        Fault::ExtendOverwritten,
        Fault::ReapInCall,
        Fault::GrowSharedRuns,
        Fault::RebaseRegardless,
        Fault::ReadHotUnlocked,
        Fault::OverwriteReaders,
        Fault::NoWindows,
        Fault::SnapshotAmidWindows,
        Fault::UnwholeSnapshot,
        Fault::EpochWithoutSnapshot,
        Fault::PublishDeferredLate,
        Fault::ForgetDeferred,
        Fault::UnsharedLock,
        Fault::CommitUnowned,
        Fault::FewPartitions,
        Fault::MissNodes,
        Fault::MissReads,
        Fault::ReverseOrder,
        Fault::KeepLeftOut,
        Fault::DecideTwice,
    ];
}
