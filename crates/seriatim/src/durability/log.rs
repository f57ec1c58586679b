//! What a commit wrote, as entries of the log.

use std::cell::RefCell;

use seriatim_base::Stamp;
use seriatim_catalog::wire::Updated;
use seriatim_catalog::{Key, RowRef};
use seriatim_redo::entry::GroupWriter;
use seriatim_txn::{Redo, RowPtr, Table};

use crate::record::Log;

/// Receives the writes of one commit: encodes them for the log and, where histories are recorded, hands them on. Secondary indexes
/// are not logged: recovery rebuilds them.
pub(crate) struct CommitLog<'w> {
    state: State<'w>,
    history: Option<&'w RefCell<Log>>,
}

enum State<'w> {
    /// Nothing was written yet; where entries go.
    Empty(&'w mut Vec<u8>),
    Open(GroupWriter<'w>),
    /// Of use while one becomes the other.
    Between,
}

impl<'w> CommitLog<'w> {
    /// Appends groups to `bytes`.
    pub(crate) fn new(bytes: &'w mut Vec<u8>, history: Option<&'w RefCell<Log>>) -> CommitLog<'w> {
        CommitLog { state: State::Empty(bytes), history }
    }

    /// Ends the last group.
    pub(crate) fn finish(self) {
        if let State::Open(group) = self.state {
            group.finish();
        }
    }

    /// The group for entries of this stamp.
    #[inline]
    fn group(&mut self, stamp: Stamp) -> &mut GroupWriter<'w> {
        if let State::Empty(_) = self.state
            && let State::Empty(bytes) = std::mem::replace(&mut self.state, State::Between)
        {
            self.state = State::Open(GroupWriter::begin(stamp, bytes));
        }
        match &mut self.state {
            State::Open(group) => {
                group.stamp(stamp);
                group
            }
            State::Empty(_) | State::Between => unreachable!("a group was just begun"),
        }
    }
}

impl Redo for CommitLog<'_> {
    fn write(&mut self, table: &Table, key: Key<'_>, stamp: Stamp, before: Option<RowPtr>, after: Option<RowPtr>) {
        if let Some(history) = self.history {
            history.borrow_mut().write(table, key, stamp, before, after);
        }
        let Some(wire) = &table.wire else { return };
        // SAFETY: rows of this table, readable during the call (the contract of `Redo::write`).
        let row = |row: RowPtr| unsafe { RowRef::from_raw(row.as_ptr()) };
        let group = self.group(stamp);
        match (before, after) {
            (Some(before), Some(after)) => {
                // Equal rows too: the stamp is told, so it must be there after a power cut, and is not given twice.
                if group.update(wire.layout, &wire.rows, key, row(before), row(after)) == Updated::Nothing {
                    group.row(wire.layout, &wire.rows, key, row(after));
                }
            }
            (None, Some(after)) => group.row(wire.layout, &wire.rows, key, row(after)),
            (_, None) => group.delete(wire.layout, &wire.rows, key),
        }
    }
}
