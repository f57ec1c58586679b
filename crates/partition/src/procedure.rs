//! What a transaction over several partitions is to its coordinator: rounds of fragments, and what follows from their replies.

use crate::PartitionId;

/// A transaction over several partitions, as the coordinator runs it.
///
/// What an implementation promises:
///
/// (a) **The first round has a fragment for every partition that takes part**, so that all partitions order transactions alike. One
///     that has nothing to do yet gets [`Part::place`].
/// (b) A partition gets no fragment after its last one. Every partition has had its last one before [`Next::Done`].
/// (c) [`Procedure::next`] depends on nothing but the procedure and the replies.
///
/// A procedure that breaks (a) or (b), names a partition that does not exist, or panics is aborted with [`crate::Misuse`]. The panic is
/// caught around [`Procedure::next`], where panics unwind, and the procedure is dropped.
pub trait Procedure {
    /// As the [`crate::Partition`] has it.
    type Work;
    /// As the [`crate::Partition`] has it.
    type Reply;
    /// As the [`crate::Partition`] has it.
    type Abort;
    /// What the client is answered.
    type Output;

    /// What follows from the replies to the latest round; none before the first. They come in the order of the first round's
    /// fragments, and only when it is certain that they stay: a reply that a later abort could take back is not shown.
    fn next(&mut self, replies: Vec<(PartitionId, Option<Self::Reply>)>)
    -> Next<Self::Work, Self::Output, Self::Abort>;
}

/// How a procedure goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<W, O, A> {
    /// With these fragments, at most one for each partition.
    Round(Vec<Part<W>>),
    /// It commits.
    Done(O),
    /// It gives up.
    Abort(A),
}

/// What a partition is to do in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<W> {
    /// Where.
    pub partition: PartitionId,
    /// What; nothing for a partition that only takes its place in the order.
    pub work: Option<W>,
    /// Whether this is the transaction's last fragment there. The request to prepare travels with it.
    pub last: bool,
}

impl<W> Part<W> {
    /// A fragment after which there may be others.
    pub fn more(partition: PartitionId, work: W) -> Part<W> {
        Part { partition, work: Some(work), last: false }
    }

    /// The last fragment at its partition.
    pub fn last(partition: PartitionId, work: W) -> Part<W> {
        Part { partition, work: Some(work), last: true }
    }

    /// No work yet.
    pub fn place(partition: PartitionId) -> Part<W> {
        Part { partition, work: None, last: false }
    }
}
