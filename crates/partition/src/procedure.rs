//! A transaction over several partitions, as its coordinator sees it: rounds of fragments, each chosen from
//! the replies to the last.

use crate::PartitionId;

/// A transaction over several partitions, as the coordinator runs it.
///
/// An implementation promises:
///
/// (a) **The first round has a fragment for every partition that takes part**, so that all partitions order
///     transactions alike. A partition that has nothing to do yet gets [`FragmentRequest::place`].
/// (b) A partition gets no fragment after its last one. Every partition has had its last one before [`Next::Done`].
/// (c) [`Procedure::next`] depends on nothing but the procedure and the replies.
///
/// A procedure that breaks (a) or (b), names a partition that does not exist, or panics is aborted with
/// [`crate::Misuse`]. The panic is caught around [`Procedure::next`], where panics unwind, and the procedure
/// is dropped.
pub trait Procedure {
    /// As in [`crate::Partition`].
    type Work;
    /// As in [`crate::Partition`].
    type Reply;
    /// As in [`crate::Partition`].
    type Abort;
    /// The result for the client.
    type Output;

    /// Chooses the next step from the replies to the latest round; before the first round there are none.
    /// Replies are in the order of the first round's fragments. The coordinator passes them only when they are
    /// final: never one that a later abort could void.
    fn next(&mut self, replies: Vec<(PartitionId, Option<Self::Reply>)>)
    -> Next<Self::Work, Self::Output, Self::Abort>;
}

/// The next step of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<W, O, A> {
    /// Runs these fragments, at most one for each partition.
    Round(Vec<FragmentRequest<W>>),
    /// Commits.
    Done(O),
    /// Aborts.
    Abort(A),
}

/// One fragment of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentRequest<W> {
    /// The partition that runs it.
    pub partition: PartitionId,
    /// The work; `None` for a partition that only takes its position in the order.
    pub work: Option<W>,
    /// Whether this is the transaction's last fragment at the partition. The request to prepare travels with
    /// it.
    pub last: bool,
}

impl<W> FragmentRequest<W> {
    /// A fragment after which there may be others.
    pub fn more(partition: PartitionId, work: W) -> FragmentRequest<W> {
        FragmentRequest { partition, work: Some(work), last: false }
    }

    /// The last fragment at its partition.
    pub fn last(partition: PartitionId, work: W) -> FragmentRequest<W> {
        FragmentRequest { partition, work: Some(work), last: true }
    }

    /// A fragment without work yet.
    pub fn place(partition: PartitionId) -> FragmentRequest<W> {
        FragmentRequest { partition, work: None, last: false }
    }
}
