//! Records histories for the checker: what committed transactions read and wrote, by version.
//!
//! Hooks sit where every protocol passes: reads are noted as the contract's `seen` reports them, writes as the redo buffer gets
//! them. So a protocol cannot forget to record, and an unrecorded version is a finding.

use std::ops::Bound;

use seriatim_base::{Stamp, TableId, clock};
use seriatim_catalog::Key;
use seriatim_history::{Recorder, Saw};
use seriatim_txn::{Redo, RowPtr, Seen, Table};

/// The recorder of one session.
pub(crate) struct Log {
    recorder: Recorder,
    session: u32,
}

/// What `seen` says of a key.
pub(crate) fn saw(seen: Seen) -> Saw {
    match (seen.absent, seen.record) {
        (false, _) => Saw::Row(seen.stamp.bits()),
        (true, Some(_)) if seen.stamp > Stamp::ZERO => Saw::AbsentAt(seen.stamp.bits()),
        (true, _) => Saw::Absent,
    }
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(bytes) => Bound::Included(bytes),
        Bound::Excluded(bytes) => Bound::Excluded(bytes),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl Log {
    pub(crate) fn new(recorder: Recorder, session: u32) -> Log {
        Log { recorder, session }
    }

    pub(crate) fn begin(&mut self, snapshot: bool) {
        let now = clock::Instant::now().nanoseconds();
        self.recorder.begin(self.session, now);
        if snapshot {
            self.recorder.snapshot(now);
        }
    }

    pub(crate) fn read(&mut self, table: TableId, key: Key<'_>, seen: Seen) {
        if !seen.own {
            self.recorder.read(table, &key.to_bytes(), saw(seen));
        }
    }

    /// A finished scan: its bounds, shortened to what it looked at, and the rows it saw.
    pub(crate) fn scan(&mut self, table: TableId, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>, rows: &[(Vec<u8>, Saw)]) {
        self.recorder.scan(table, borrowed(&low), borrowed(&high));
        for (key, saw) in rows {
            self.recorder.scan_saw(key, *saw);
        }
    }

    pub(crate) fn commit(&mut self) {
        self.recorder.commit(clock::Instant::now().nanoseconds());
    }
}

impl Redo for Log {
    fn write(&mut self, table: &Table, key: Key<'_>, stamp: Stamp, _: Option<RowPtr>, after: Option<RowPtr>) {
        self.recorder.write(table.id, &key.to_bytes(), stamp.bits(), after.is_none());
    }
}
