//! Partitions whose fragments are undone change by change. The lists of changes are reused.

use seriatim_base::thread;
use seriatim_partition::{LockMode, Partition, TransactionId};

/// The contents of a partition, and the operations of its fragments.
pub trait Rows {
    /// As [`Partition::Work`].
    type Work: Clone;
    /// As [`Partition::Reply`].
    type Reply;
    /// As [`Partition::Key`].
    type Key: Clone + Ord;
    /// A former value.
    type Before;

    /// Runs a fragment, and records its changes in `undo` if they may be undone. Returns `None` if it fails,
    /// which it does only at its beginning.
    fn run(&mut self, work: &Self::Work, undo: Option<&mut Vec<Self::Before>>) -> Option<Self::Reply>;

    /// Restores recorded values.
    fn put_back(&mut self, before: Self::Before);

    /// The cost of that on simulated cores.
    fn undo_cost(&self) -> std::time::Duration;

    /// As [`Partition::footprint`].
    fn footprint(&self, work: &Self::Work, locks: &mut Vec<(Self::Key, LockMode)>);
}

/// The partition.
pub struct Undoable<R: Rows> {
    pub(super) rows: R,
    /// Unused lists.
    spare: Vec<Vec<R::Before>>,
    /// Fragments that completed, and those among them that were undone.
    pub(super) fragments: [u64; 2],
}

impl<R: Rows> Undoable<R> {
    pub(super) fn new(rows: R) -> Undoable<R> {
        Undoable { rows, spare: Vec::new(), fragments: [0; 2] }
    }

    fn run(&mut self, work: &R::Work, undo: Option<&mut Vec<R::Before>>) -> Result<R::Reply, ()> {
        let ran = self.rows.run(work, undo);
        self.fragments[0] += u64::from(ran.is_some());
        ran.ok_or(())
    }
}

impl<R: Rows> Partition for Undoable<R> {
    type Work = R::Work;
    type Reply = R::Reply;
    type Abort = ();
    type Undo = Vec<R::Before>;
    type Key = R::Key;

    fn execute(&mut self, _: TransactionId, work: &R::Work) -> Result<(R::Reply, Self::Undo), ()> {
        let mut undo = self.spare.pop().unwrap_or_default();
        match self.run(work, Some(&mut undo)) {
            Ok(reply) => Ok((reply, undo)),
            Err(()) => {
                self.spare.push(undo);
                Err(())
            }
        }
    }

    fn execute_without_undo(&mut self, _: TransactionId, work: &R::Work) -> Result<R::Reply, ()> {
        self.run(work, None)
    }

    fn undo(&mut self, mut undo: Self::Undo) {
        thread::work(self.rows.undo_cost() * undo.len() as u32);
        undo.drain(..).rev().for_each(|before| self.rows.put_back(before));
        self.fragments[1] += 1;
        self.spare.push(undo);
    }

    fn forget(&mut self, mut undo: Self::Undo) {
        undo.clear();
        self.spare.push(undo);
    }

    fn footprint(&self, work: &R::Work, locks: &mut Vec<(R::Key, LockMode)>) {
        self.rows.footprint(work, locks);
    }
}
