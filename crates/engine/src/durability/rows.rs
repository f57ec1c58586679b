//! Reads all committed rows of a table, idle or in use: to rebuild indexes and for checkpoints.
//!
//! Several threads can share the work on one table: a chunk goes to the thread that asks next.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use seriatim_base::{Backoff, Tid, thread};
use seriatim_catalog::{Key, KeyBuf};
use seriatim_store::{RecordPtr, Walk, read_key};
use seriatim_txn::{Core, Peeked, RowBuffer, RowPtr, Table};

use crate::protocol::OpenProtocol;

/// How many milliseconds a record may stay locked by a commit.
const BUSY_MAX: usize = 1000;

/// A walk over one table that several threads share.
pub(crate) struct Rows<'t> {
    table: &'t Table,
    walk: Mutex<Walk>,
}

/// A row that a walk found, readable until the chunk ends, or until [`Take::take`] returns. It may lie in a
/// buffer of the walker.
pub(crate) struct WalkedRow<'c> {
    pub(crate) key: Key<'c>,
    pub(crate) tid: Tid,
    pub(crate) row: RowPtr,
}

/// Whether there is room for another row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Available,
    None,
}

/// Receives rows as a walk finds them.
pub(crate) trait Take {
    /// Why room could not be made.
    type Error: From<Stuck>;

    /// Takes a row. The worker is online, and holds back all reclamation: this must neither wait nor access a file.
    fn take(&mut self, found: &WalkedRow<'_>) -> Room;

    /// Makes room for more, however long that takes. The worker is offline.
    fn make_room(&mut self) -> Result<(), Self::Error>;
}

/// A record was locked by a commit for longer than the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stuck;

/// The state of one walking thread.
pub(crate) struct Walker<'e> {
    pub(crate) protocol: &'e dyn OpenProtocol,
    pub(crate) core: Core,
    records: Vec<RecordPtr>,
    /// Buffers for copied rows, if the protocol copies: one for each row that is shown at a time.
    buffers: Vec<RowBuffer>,
}

impl<'e> Walker<'e> {
    pub(crate) fn new(protocol: &'e dyn OpenProtocol, core: Core) -> Walker<'e> {
        Walker { protocol, core, records: Vec::new(), buffers: vec![RowBuffer::default()] }
    }

    /// Gives the committed rows of the next chunk, some dozens, to `see`; `false` if none was left. A row that
    /// is linked from the first chunk to the last is seen at least once, perhaps twice with different TIDs.
    ///
    /// # Errors
    /// Errors of `see`; [`Stuck`].
    pub(crate) fn chunk<E: From<Stuck>>(
        &mut self,
        rows: &Rows<'_>,
        see: impl FnOnce(&[WalkedRow<'_>]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let more = self.enter_next(rows);
        let shown = self.buffers.len().max(self.records.len());
        self.buffers.resize_with(shown, RowBuffer::default);
        let peek = |(&record, buffer)| peek(self.protocol, &self.core, rows.table, record, buffer).transpose();
        let found: Result<Vec<WalkedRow<'_>>, Stuck> =
            self.records.iter().zip(&mut self.buffers).filter_map(peek).collect();
        let seen = found.map_err(E::from).and_then(|found| see(&found));
        self.core.local.leave();
        seen.map(|()| more)
    }

    /// Comes online and finds the records of the next chunk; `false` if none was left.
    fn enter_next(&mut self, rows: &Rows<'_>) -> bool {
        self.records.clear();
        self.core.local.enter();
        let mut walk = rows.walk.lock().unwrap_or_else(PoisonError::into_inner);
        rows.table.index.walk(&mut walk, self.core.local.pinned(), &mut self.records)
    }

    /// Gives the committed rows of the next chunk to `taker`, one at a time; `false` if none was left. The
    /// worker is offline while `taker` makes room, so the remaining rows are then looked up again by key. A row
    /// that exists all the time is seen, as in [`Walker::chunk`].
    ///
    /// # Errors
    /// Errors of `taker`; [`Stuck`].
    pub(crate) fn chunk_in_pieces<T: Take>(&mut self, rows: &Rows<'_>, taker: &mut T) -> Result<bool, T::Error> {
        let more = self.enter_next(rows);
        let mut left = Vec::new();
        let records = std::mem::take(&mut self.records);
        let taken = records.iter().try_fold(Room::Available, |room, &record| match room {
            Room::Available => self.show(rows.table, record, taker),
            Room::None => {
                // SAFETY: as in `peek`.
                left.push(unsafe { read_key(record, rows.table.class) }.to_buf());
                Ok(Room::None)
            }
        });
        self.core.local.leave();
        self.records = records;
        let mut room = taken?;
        let mut left = left.into_iter();
        loop {
            if room == Room::None {
                taker.make_room()?;
            }
            if left.len() == 0 {
                return Ok(more);
            }
            self.core.local.enter();
            let taken = self.show_again(rows.table, &mut left, taker);
            self.core.local.leave();
            room = taken?;
        }
    }

    /// Gives the rows with these keys to `taker` while there is room.
    fn show_again<T: Take>(
        &mut self,
        table: &Table,
        keys: &mut impl Iterator<Item = KeyBuf>,
        taker: &mut T,
    ) -> Result<Room, Stuck> {
        for key in keys {
            if let Ok(record) = table.index.get(key.as_key(), self.core.local.pinned())
                && self.show(table, record, taker)? == Room::None
            {
                return Ok(Room::None);
            }
        }
        Ok(Room::Available)
    }

    /// Gives the committed row of a record to `taker`, if it has one.
    fn show<T: Take>(&mut self, table: &Table, record: RecordPtr, taker: &mut T) -> Result<Room, Stuck> {
        let found = peek(self.protocol, &self.core, table, record, &mut self.buffers[0])?;
        Ok(found.map_or(Room::Available, |found| taker.take(&found)))
    }
}

/// The newest committed row of a record, if it has one. The record was found after the worker of `core` came online.
fn peek<'c>(
    protocol: &dyn OpenProtocol,
    core: &'c Core,
    table: &Table,
    record: RecordPtr,
    buffer: &'c mut RowBuffer,
) -> Result<Option<WalkedRow<'c>>, Stuck> {
    for _ in 0..BUSY_MAX {
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: the callers found the record while the worker was online.
            match unsafe { protocol.peek_committed(table, record, core.local.pinned(), buffer) } {
                Peeked::Row(tid, row) => {
                    // SAFETY: a linked record's key never changes, and its memory stays while this worker is online.
                    let key = unsafe { read_key(record, table.class) };
                    return Ok(Some(WalkedRow { key, tid, row }));
                }
                Peeked::Deleted(_) | Peeked::NeverCommitted => return Ok(None),
                Peeked::Busy if backoff.wait() => {}
                Peeked::Busy => break,
            }
        }
        // The committing thread may have no processor.
        thread::sleep(Duration::from_millis(1));
    }
    Err(Stuck)
}

impl<'t> Rows<'t> {
    pub(crate) fn new(table: &'t Table) -> Rows<'t> {
        Rows::resumed(table, Walk::default())
    }

    /// A walk that goes on where another one has got to.
    pub(crate) fn resumed(table: &'t Table, walk: Walk) -> Rows<'t> {
        Rows { table, walk: Mutex::new(walk) }
    }

    /// The table that it walks over.
    pub(crate) fn table(&self) -> &'t Table {
        self.table
    }

    /// Where it has got to.
    pub(crate) fn into_walk(self) -> Walk {
        self.walk.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of rows that a record's row stands for.
    pub(crate) fn rows_in(&self, found: &WalkedRow<'_>) -> usize {
        // SAFETY: a row of the table, readable while it is shown.
        unsafe { self.table.rows_in(found.row) }
    }
}
