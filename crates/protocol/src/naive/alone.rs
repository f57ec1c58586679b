//! What an attempt remembers of whether it runs whole. If it does, nothing is noted of what it reads: nothing that others commit comes in
//! between, so there is nothing to validate.
//!
//! [`Alone`] stands where other protocols have the locks of an attempt, for they, too, say what need not be noted. It locks nothing.

use seriatim_base::{TableId, Tid};
use seriatim_store::RecordPtr;
use seriatim_txn::{Core, OpError, Runs, Table};

use crate::shared::access_locks::{AccessLocks, For};
use crate::shared::origin::Origin;
use crate::shared::record_header::TidWord;

/// Whether the attempt runs whole.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    whole: bool,
}

impl Alone {
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The attempt has ended.
    pub(super) fn end(&mut self) {
        self.whole = false;
    }
}

impl AccessLocks for Alone {
    #[inline(always)]
    fn is_locked_at_access(_: TidWord) -> bool {
        false
    }

    #[inline(always)]
    fn is_removed(word: TidWord) -> bool {
        word.is_removed()
    }

    #[inline(always)]
    fn look(
        &mut self,
        core: &mut Core,
        table: &Table,
        record: RecordPtr,
        access: For,
    ) -> Result<(TidWord, usize), OpError> {
        ().look(core, table, record, access)
    }

    fn begin_whole(&mut self) {
        self.whole = true;
    }

    #[inline(always)]
    fn notes(&self) -> bool {
        !self.whole
    }

    fn failed(&mut self, _: &Core, _: TableId, _: RecordPtr) {}

    fn held(&self) -> impl Iterator<Item = (RecordPtr, Tid)> {
        std::iter::empty()
    }

    fn release_unless(&mut self, _: impl Fn(RecordPtr) -> bool) {}

    fn release(&mut self, _: &Core) {
        self.end();
    }

    fn rest(&mut self) {}
}

/// What entries remember: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Entry;

impl Origin for Entry {
    type Locks = Alone;

    const CARRIED: bool = false;

    fn of(_: u16, _: u32) -> Entry {
        Entry
    }

    fn is_of(self, _: Runs) -> bool {
        false
    }
}
