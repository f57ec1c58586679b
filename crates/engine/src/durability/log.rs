//! The log entries of a commit.

use std::cell::RefCell;
use std::hint::cold_path;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::{CacheAligned, Epoch, LayoutId, Tid};
use seriatim_catalog::wire::Updated;
use seriatim_catalog::{Key, RowRef};
use seriatim_redo::catalogue;
use seriatim_redo::entry::GroupWriter;
use seriatim_txn::{Before, Redo, RowPtr, Table};

use crate::record::Log;

/// Receives the writes of one commit, and encodes them for the log. Where histories are recorded, it passes
/// them on. Secondary indexes are not logged: recovery rebuilds them.
///
/// While a checkpoint that begins in epoch B is taken, the first change of a row since B is logged as a whole
/// row. So the checkpoint can leave out all rows that changed since B.
pub(crate) struct CommitLog<'w> {
    state: State<'w>,
    whole_before: &'w WholeBefore,
    history: Option<&'w RefCell<Log>>,
}

enum State<'w> {
    /// Nothing was written yet; entries go to these bytes.
    Empty(&'w mut Vec<u8>),
    Open(GroupWriter<'w>),
    /// The same, of a commit that also changes the catalogue, whose entries are in groups of their own. `true` if the
    /// open group is of the catalogue.
    Mixed(GroupWriter<'w>, bool),
    /// Used only while one state replaces the other.
    Between,
}

/// The epoch in which the current checkpoint began.
///
/// Invariant: until the checkpoint ends, commits of that epoch or a later one may log whole rows. They do so if the old
/// version is of an earlier epoch. So a row with a version of that epoch or a later one is in the log from there on as
/// a whole.
#[derive(Debug, Default)]
pub(crate) struct WholeBefore(CacheAligned<AtomicU64>);

impl WholeBefore {
    /// Begins a checkpoint in the epoch that `advance` begins. The caller drops the result only after all
    /// commits that the walk may have met have reported their writes.
    pub(crate) fn begin(&self, advance: impl FnOnce() -> Epoch) -> WholeRows<'_> {
        // Until the epoch is known, commits log whole rows. A commit of the new epoch sees this value or the
        // next, as it read the epoch.
        self.0.store(u64::MAX, Ordering::Release);
        let begin = advance();
        self.0.store(begin.0, Ordering::Release);
        WholeRows { whole_before: self, begin }
    }

    #[inline]
    fn epoch(&self) -> Epoch {
        // ORDERING: sequenced after the acquire of the epoch in the commit, which pairs with the release in
        // `Epochs::advance`.
        Epoch(self.0.load(Ordering::Acquire))
    }
}

/// Exists while a checkpoint is taken.
pub(crate) struct WholeRows<'w> {
    whole_before: &'w WholeBefore,
    /// The epoch in which the checkpoint began.
    pub(crate) begin: Epoch,
}

impl Drop for WholeRows<'_> {
    fn drop(&mut self) {
        self.whole_before.0.store(0, Ordering::Release);
    }
}

impl<'w> CommitLog<'w> {
    /// Appends groups to `bytes`.
    pub(crate) fn new(
        bytes: &'w mut Vec<u8>,
        whole_before: &'w WholeBefore,
        history: Option<&'w RefCell<Log>>,
    ) -> CommitLog<'w> {
        CommitLog { state: State::Empty(bytes), whole_before, history }
    }

    /// Entries of the catalogue may come among others.
    pub(crate) fn mixed(mut self) -> CommitLog<'w> {
        if let State::Empty(bytes) = self.state {
            self.state = State::Mixed(GroupWriter::begin(Tid::ZERO, bytes), false);
        }
        self
    }

    /// Ends the last group.
    pub(crate) fn finish(self) {
        if let State::Open(group) | State::Mixed(group, _) = self.state {
            group.finish();
        }
    }

    /// The group for entries of this TID and layout.
    #[inline]
    fn group(&mut self, tid: Tid, layout: LayoutId) -> &mut GroupWriter<'w> {
        if let State::Empty(_) = self.state
            && let State::Empty(bytes) = std::mem::replace(&mut self.state, State::Between)
        {
            self.state = State::Open(GroupWriter::begin(tid, bytes));
        }
        match &mut self.state {
            State::Open(group) => {
                group.tid(tid);
                group
            }
            State::Mixed(group, is_of_catalogue) => {
                cold_path();
                let was_of_catalogue = std::mem::replace(is_of_catalogue, layout == catalogue::LAYOUT);
                if was_of_catalogue != *is_of_catalogue {
                    group.cut();
                }
                group.tid(tid);
                group
            }
            State::Empty(_) | State::Between => unreachable!("a group was just begun"),
        }
    }

    /// Logs the new row; of a row that existed before, only the changes.
    fn log(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>) {
        let Some(wire) = &table.wire else { return };
        // SAFETY: rows of this table, readable during the call (the contract of `Redo::write`).
        let row = |row: RowPtr| unsafe { RowRef::from_raw(row.as_ptr()) };
        // Only now, as the commit has its epoch.
        let whole_before = self.whole_before.epoch();
        let group = self.group(tid, wire.layout);
        match (before, after) {
            (Some(before), Some(after)) if before.tid.epoch() < whole_before => {
                group.row(wire.layout, &wire.rows, key, row(after));
            }
            (Some(before), Some(after)) => {
                // Equal rows too: the TID was returned, so the log must contain it, and it must not be given out again.
                if group.update(wire.layout, &wire.rows, key, row(before.row), row(after)) == Updated::Nothing {
                    group.row(wire.layout, &wire.rows, key, row(after));
                }
            }
            (None, Some(after)) => group.row(wire.layout, &wire.rows, key, row(after)),
            (_, None) => group.delete(wire.layout, &wire.rows, key),
        }
    }
}

impl Redo for CommitLog<'_> {
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>) {
        if let Some(history) = self.history {
            history.borrow_mut().write(table, key, tid, before, after);
        }
        self.log(table, key, tid, before, after);
    }

    fn add(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Before, after: RowPtr) {
        if let Some(history) = self.history {
            history.borrow_mut().add(table, key, tid, before, after);
        }
        self.log(table, key, tid, Some(before), Some(after));
    }

    fn defers(&mut self) -> u64 {
        self.history.map_or(0, |history| history.borrow_mut().defers())
    }
}
