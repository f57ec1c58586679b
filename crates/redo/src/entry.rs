//! Redo entries: the writes of a commit, in groups.
//!
//! ```text
//! group    body bytes u32 | TID u64 | body: entries            little-endian
//! entry    varint(layout << 2 | kind) | key | row (0), nothing (1, delete), patch (2), delta (3)
//! ```
//! Key, row, patch and delta are encoded as in [`seriatim_catalog::wire`]. A commit that is larger than [`CUT_BYTES`]
//! is several groups of one TID. Its epoch makes it atomic. Entries have no length field: a reader needs the layouts.
//! So those of the catalogue, which has the layouts, are in groups of their own.
//!
//! Invariant: a group is never empty. Reading checks every byte of an entry before it returns the entry.

use std::fmt;

use seriatim_base::{ColumnId, LayoutId, Tid};
use seriatim_catalog::wire::{Malformed, RowWire, Updated, read_varint, write_varint};
use seriatim_catalog::{Key, RowRef};

use crate::catalogue;

/// Bytes in front of a group's entries.
pub const GROUP_HEADER_BYTES: usize = 12;

/// A group with this many bytes of entries takes no more entries. The writer chooses this; the format does not.
pub const CUT_BYTES: usize = if cfg!(test) { 256 } else { 1 << 20 };

/// The lowest bits of an entry's first byte.
const KIND_BITS: u32 = 2;
const ROW: u64 = 0;
const DELETE: u64 = 1;
const PATCH: u64 = 2;
const DELTA: u64 = 3;

/// Writes the entries of one commit as groups.
///
/// The last group is open until [`GroupWriter::finish`] writes its length. One entry may be larger than
/// [`CUT_BYTES`], but must fit into a `u32`. The engine bounds long texts (`TransactError::TooLarge`).
#[derive(Debug)]
pub struct GroupWriter<'b> {
    out: &'b mut Vec<u8>,
    /// Where the open group begins in `out`.
    begin: usize,
    tid: Tid,
    groups: u32,
}

impl<'b> GroupWriter<'b> {
    /// Begins a group at the end of `out`.
    pub fn begin(tid: Tid, out: &'b mut Vec<u8>) -> GroupWriter<'b> {
        let mut writer = GroupWriter { begin: out.len(), out, tid, groups: 0 };
        writer.open();
        writer
    }

    /// Sets the TID of the entries from here on.
    pub fn tid(&mut self, tid: Tid) {
        if tid != self.tid {
            self.close();
            self.tid = tid;
            self.open();
        }
    }

    /// Ends the group: the entries from here on are in another one.
    pub fn cut(&mut self) {
        self.close();
        self.open();
    }

    /// Records that the row of `key` became `row`, whatever it was before.
    pub fn row(&mut self, layout: LayoutId, wire: &RowWire, key: Key<'_>, row: RowRef<'_>) {
        self.entry(layout, ROW, wire, key);
        wire.encode_row(row, self.out);
    }

    /// Records that the row of `key` became `after`. `before` is the version just below this TID. Writes a
    /// patch or a delta, the whole row if neither can express the change, and nothing if both rows are equal.
    pub fn update(
        &mut self,
        layout: LayoutId,
        wire: &RowWire,
        key: Key<'_>,
        before: RowRef<'_>,
        after: RowRef<'_>,
    ) -> Updated {
        let begin = self.entry(layout, PATCH, wire, key);
        let updated = wire.encode_update(before, after, self.out);
        match updated {
            Updated::Nothing => self.out.truncate(begin),
            Updated::Patch => {}
            Updated::Delta => self.make(begin, DELTA),
            Updated::NotByUpdate => {
                self.make(begin, ROW);
                wire.encode_row(after, self.out);
            }
        }
        updated
    }

    /// Records that the row of `key` was deleted.
    pub fn delete(&mut self, layout: LayoutId, wire: &RowWire, key: Key<'_>) {
        self.entry(layout, DELETE, wire, key);
    }

    /// Records that an amount was added to a column of the row of `key`.
    ///
    /// # Panics
    /// As [`RowWire::encode_delta`].
    pub fn delta(&mut self, layout: LayoutId, wire: &RowWire, key: Key<'_>, column: ColumnId, amount: i64) {
        self.entry(layout, DELTA, wire, key);
        wire.encode_delta(column, amount, self.out);
    }

    /// Ends the last group. Returns the number of groups, which is zero without entries.
    pub fn finish(mut self) -> u32 {
        self.close();
        self.groups
    }

    /// Appends kind and key. Returns where the entry begins.
    fn entry(&mut self, layout: LayoutId, kind: u64, wire: &RowWire, key: Key<'_>) -> usize {
        if self.out.len() - self.begin >= GROUP_HEADER_BYTES + CUT_BYTES {
            self.cut();
        }
        let begin = self.out.len();
        write_varint(self.out, u64::from(layout.0) << KIND_BITS | kind);
        wire.encode_key(key, self.out);
        begin
    }

    /// Changes the kind of the entry that begins at `begin`.
    fn make(&mut self, begin: usize, kind: u64) {
        self.out[begin] = self.out[begin] >> KIND_BITS << KIND_BITS | kind as u8;
    }

    fn open(&mut self) {
        self.begin = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(&self.tid.bits().to_le_bytes());
    }

    fn close(&mut self) {
        let body = self.out.len() - self.begin - GROUP_HEADER_BYTES;
        if body == 0 {
            self.out.truncate(self.begin);
            return;
        }
        assert!(body <= u32::MAX as usize, "an entry of {body} bytes, although the engine bounds long texts");
        self.out[self.begin..self.begin + 4].copy_from_slice(&(body as u32).to_le_bytes());
        self.groups += 1;
    }
}

/// The layout in the number that an entry begins with.
pub(crate) const fn layout_of(head: u64) -> u64 {
    head >> KIND_BITS
}

/// Bytes of entries and TID bits of the group that begins here, if its header is complete.
pub(crate) fn group_header(bytes: &[u8]) -> Option<(usize, u64)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let tid = rest.first_chunk::<8>()?;
    Some((u32::from_le_bytes(*length) as usize, u64::from_le_bytes(*tid)))
}

/// Maps layouts to encodings.
pub trait Layouts {
    /// The encoding of rows of this layout, or `None` for an unknown layout.
    fn rows(&self, layout: LayoutId) -> Option<&RowWire>;
}

/// The groups of a batch's payload, first to last. The iterator ends after the first error.
pub fn groups(payload: &[u8]) -> Groups<'_> {
    Groups { payload, at: 0 }
}

/// See [`groups`].
#[derive(Clone, Debug)]
pub struct Groups<'a> {
    payload: &'a [u8],
    at: usize,
}

/// A group whose entries have not been read.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The TID of its entries.
    pub tid: Tid,
    /// Bytes from the start of the payload to its entries.
    pub offset: usize,
    /// Its entries.
    pub body: &'a [u8],
}

impl<'a> Groups<'a> {
    fn read(&mut self) -> Result<Group<'a>, EntryError> {
        let wrong = |problem| EntryError { offset: self.at, problem };
        let rest = &self.payload[self.at..];
        let (length, tid) = group_header(rest).ok_or(wrong(Problem::GroupCutShort))?;
        if length == 0 {
            return Err(wrong(Problem::EmptyGroup));
        }
        if tid == 0 || tid >> Tid::BITS != 0 {
            return Err(wrong(Problem::Tid));
        }
        let body = rest[GROUP_HEADER_BYTES..].get(..length).ok_or(wrong(Problem::GroupCutShort))?;
        let offset = self.at + GROUP_HEADER_BYTES;
        self.at = offset + length;
        Ok(Group { tid: Tid::from_bits(tid), offset, body })
    }
}

impl<'a> Iterator for Groups<'a> {
    type Item = Result<Group<'a>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.payload.len() {
            return None;
        }
        let group = self.read();
        if group.is_err() {
            self.at = self.payload.len();
        }
        Some(group)
    }
}

impl<'a> Group<'a> {
    /// Its entries, first to last, each fully checked. The iterator ends after the first error.
    pub fn entries<'l, L: Layouts>(&self, layouts: &'l L) -> Entries<'a, 'l, L> {
        let of_catalogue = catalogue::is_group(self.body);
        Entries { rest: self.body, end: self.offset + self.body.len(), of_catalogue, layouts }
    }
}

/// See [`Group::entries`].
#[derive(Debug)]
pub struct Entries<'a, 'l, L> {
    rest: &'a [u8],
    /// The offset in the payload at which the group ends.
    end: usize,
    /// Whether all of them are of the catalogue. Otherwise none is.
    of_catalogue: bool,
    layouts: &'l L,
}

/// One write of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The version of the table's columns.
    pub layout: LayoutId,
    /// The row's key.
    pub key: Key<'a>,
    /// The change of the row.
    pub change: Change<'a>,
    /// Bytes from the start of the payload to the entry.
    pub offset: usize,
}

/// A change of a row. The bytes have been checked; decode them with the named method of [`RowWire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The row became this one: [`RowWire::decode_row`].
    Row(&'a [u8]),
    /// It was deleted.
    Delete,
    /// Some columns changed: [`RowWire::decode_patch`].
    Patch(&'a [u8]),
    /// An amount was added to a column: [`RowWire::decode_delta`].
    Delta(&'a [u8]),
}

impl Change<'_> {
    /// The kind of the entry, as `FORMAT.md` names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Change::Row(_) => "row",
            Change::Delete => "delete",
            Change::Patch(_) => "patch",
            Change::Delta(_) => "delta",
        }
    }
}

impl<'a, L: Layouts> Entries<'a, '_, L> {
    fn read(&mut self) -> Result<Entry<'a>, EntryError> {
        let offset = self.end - self.rest.len();
        let wrong = |problem| EntryError { offset, problem };
        let malformed = |error| wrong(Problem::Malformed(error));
        let rest = &mut self.rest;
        let head = read_varint(rest).map_err(malformed)?;
        let layout = u32::try_from(layout_of(head)).map_err(|_| wrong(Problem::Layout(layout_of(head))))?;
        let layout = LayoutId(layout);
        if (layout == catalogue::LAYOUT) != self.of_catalogue {
            return Err(wrong(Problem::Mixed));
        }
        let rows = self.layouts.rows(layout).ok_or(wrong(Problem::Layout(layout.0.into())))?;
        let key = rows.decode_key(rest).map_err(malformed)?;
        let change = match head & ((1 << KIND_BITS) - 1) {
            ROW => rows.skip_row(rest).map(Change::Row),
            DELETE => Ok(Change::Delete),
            PATCH => rows.skip_patch(rest).map(Change::Patch),
            _ => rows.skip_delta(rest).map(Change::Delta),
        };
        Ok(Entry { layout, key, change: change.map_err(malformed)?, offset })
    }
}

impl<'a, L: Layouts> Iterator for Entries<'a, '_, L> {
    type Item = Result<Entry<'a>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.rest = &[];
        }
        Some(entry)
    }
}

/// Bytes of a payload that are neither a group nor an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryError {
    /// Bytes from the start of the payload to the malformed group or entry.
    pub offset: usize,
    /// The fault.
    pub problem: Problem,
}

/// The fault of a group or entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The payload ends within the group.
    GroupCutShort,
    /// The group has no entries.
    EmptyGroup,
    /// The bits of the group's TID are not a TID.
    Tid,
    /// The catalogue has no such layout.
    Layout(u64),
    /// The group has entries of the catalogue and others.
    Mixed,
    /// The key or the change does not have the form that its layout prescribes.
    Malformed(Malformed),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::GroupCutShort => f.write_str("the payload ends within a group"),
            Problem::EmptyGroup => f.write_str("a group has no entries"),
            Problem::Tid => f.write_str("the bits of a group's TID are not a TID"),
            Problem::Layout(layout) => {
                write!(f, "an entry is of layout {layout}, which the catalogue does not have")
            }
            Problem::Mixed => f.write_str("a group has entries of the catalogue and others"),
            Problem::Malformed(error) => write!(f, "an entry is not of its layout: {error}"),
        }
    }
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {} of the payload: {}", self.offset, self.problem)
    }
}

impl std::error::Error for EntryError {}

#[cfg(all(test, not(loom)))]
mod tests;
