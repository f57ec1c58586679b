//! The origin in an entry of a read, node or write set. For protocols that repair it is the operation of a procedure to
//! which the entry belongs. For those that order by timestamps it is the time until which the version was valid. For
//! others it is `()`, which takes no room and no instruction.

use std::fmt::Debug;

use seriatim_store::RecordPtr;
use seriatim_txn::{Runs, Table};

use super::access_locks::AccessLocks;

/// The origin of an entry.
pub trait Origin: Copy + Debug + Default + PartialEq + Send {
    /// Locks that are taken when records are accessed.
    type Locks: AccessLocks;

    /// Whether it remembers an operation. If not, the three functions that follow are not used.
    const CARRIED: bool = false;

    /// This run of this operation: as [`seriatim_txn::Repair::operation`] names it.
    fn of(_operation: u16, _iteration: u32) -> Self {
        Self::default()
    }

    /// Whether it is one of these runs.
    fn is_of(self, _runs: Runs) -> bool {
        false
    }

    /// The run of an operation; `None` for accesses before the first was named.
    fn run(self) -> Option<(u16, u32)> {
        None
    }

    /// The same, of an entry for this record, whose header is read next.
    #[inline(always)]
    fn at(self, _: &Table, _: RecordPtr) -> Self {
        self
    }

    /// The same, of an entry that is noted as read, for a record of this table.
    #[inline(always)]
    fn of_read(self, _: &Table) -> Self {
        self
    }

    /// Sets the protocol's own words of a record that is about to be linked.
    #[inline(always)]
    fn prepare(_: &Table, _: RecordPtr) {}
}

impl Origin for () {
    type Locks = ();
}

/// A run of an operation; by default, the accesses before the first was named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub operation: Option<u16>,
    pub iteration: u32,
}

impl Origin for Run {
    type Locks = ();

    const CARRIED: bool = true;

    fn of(operation: u16, iteration: u32) -> Run {
        Run { operation: Some(operation), iteration }
    }

    fn is_of(self, runs: Runs) -> bool {
        self.operation == Some(runs.operation) && runs.iteration.is_none_or(|iteration| self.iteration == iteration)
    }

    fn run(self) -> Option<(u16, u32)> {
        self.operation.map(|operation| (operation, self.iteration))
    }
}
