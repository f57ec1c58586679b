//! Notes whether an attempt runs whole. If it does, its reads are not noted: no commit of others in its
//! partitions comes in between, so there is nothing to validate.
//!
//! [`Exclusive`] takes the position of the locks of an attempt in other protocols, because these, too, decide
//! which reads are noted. It locks nothing. Where there are partitions it checks each access of an attempt
//! that runs whole: whether it is within the attempt's partitions.

use std::ops::Bound;
use std::sync::Arc;

use seriatim_catalog::Key;
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, OpError, PartitionSet, Partitions, Placement, Reason, Table};

use super::access_locks::{AccessLocks, AccessPurpose};
use super::origin::Origin;
use super::record_header::TidWord;

/// Whether the attempt runs whole, and where; `PARTITIONED`: in some partitions, or in all that there is.
#[derive(Debug, Default)]
pub struct Exclusive<const PARTITIONED: bool> {
    /// None if it does not run whole.
    owned: PartitionSet,
    partitions: Option<Arc<Partitions>>,
}

impl Exclusive<true> {
    pub fn among(partitions: Arc<Partitions>) -> Exclusive<true> {
        Exclusive { owned: PartitionSet::NONE, partitions: Some(partitions) }
    }
}

impl<const PARTITIONED: bool> Exclusive<PARTITIONED> {
    #[inline]
    pub fn is_whole(&self) -> bool {
        !self.owned.is_empty()
    }

    /// The attempt has ended.
    #[inline]
    pub fn end(&mut self) {
        self.owned = PartitionSet::NONE;
    }

    /// Whether an access checks no owner. The transaction owns all partitions, or it does not run whole and checks its
    /// writes when it commits.
    #[inline(always)]
    fn is_anywhere(&self) -> bool {
        self.owned.is_all() || self.owned.is_empty()
    }
}

const ELSEWHERE: OpError = OpError::execute(Reason::OtherPartition);

impl<const PARTITIONED: bool> AccessLocks for Exclusive<PARTITIONED> {
    const PARTITIONED: bool = PARTITIONED;
    const LOCKLESS: bool = true;

    #[inline(always)]
    fn look(
        &mut self,
        core: &mut Core,
        table: &Table,
        record: RecordPtr,
        access: AccessPurpose,
    ) -> Result<(TidWord, usize), OpError> {
        ().look(core, table, record, access)
    }

    fn begin_whole(&mut self, partitions: PartitionSet) {
        let count = self.partitions.as_deref().map_or(1, Partitions::count);
        let is_all = partitions.len_of(count) == count;
        self.owned = if is_all { PartitionSet::ALL } else { partitions };
    }

    #[inline(always)]
    fn admit(&self, table: &Table, key: Key<'_>, access: AccessPurpose) -> Result<(), OpError> {
        let (false, Some(partitions)) = (self.is_anywhere(), &self.partitions) else { return Ok(()) };
        let is_owned = match &table.placement {
            Placement::Value(place) => self.owned.contains(partitions.of_key(place, key)?),
            Placement::Everywhere => access == AccessPurpose::Reading,
        };
        if is_owned { Ok(()) } else { Err(ELSEWHERE) }
    }

    #[inline]
    fn admit_range(&self, table: &Table, low: Bound<Key<'_>>, high: Bound<Key<'_>>) -> Result<(), OpError> {
        let (false, Some(partitions)) = (self.is_anywhere(), &self.partitions) else { return Ok(()) };
        match &table.placement {
            Placement::Value(place) if !self.owned.has(partitions.of_range(place, low, high)?) => Err(ELSEWHERE),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn notes(&self) -> bool {
        !self.is_whole()
    }

    fn release(&mut self, _: &Core) {
        self.end();
    }
}

/// Entries remember nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry<const PARTITIONED: bool>;

impl<const PARTITIONED: bool> Origin for Entry<PARTITIONED> {
    type Locks = Exclusive<PARTITIONED>;
}
