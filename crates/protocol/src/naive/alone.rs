//! What an attempt remembers of whether it runs whole. If it does, nothing is noted of what it reads: nothing that others commit comes in
//! between, so there is nothing to validate.
//!
//! [`Alone`] stands where other protocols have the locks of an attempt, for they, too, say what need not be noted. It locks nothing.

use seriatim_store::RecordPtr;
use seriatim_txn::{Core, OpError, Table};

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

    fn release(&mut self, _: &Core) {
        self.end();
    }
}

/// What entries remember: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Entry;

impl Origin for Entry {
    type Locks = Alone;
}
