//! Secondary indexes: tables whose rows are primary keys, changed by the same protocol calls as indexed rows.
//!
//! An entry's key is the indexed columns, followed by the primary key if the index is not unique; its row is
//! the primary key. So an index read is protected as a table read is (decision record 6). Removing a row from
//! an index is a delete, which needs no memory (the same record).

use std::hint::cold_path;

use seriatim_catalog::{ColumnDef, ColumnSet, ColumnType, Key, KeyClass, Layout, OutOfLineStore, OutOfMemory, RowRef};
use seriatim_txn::RowPtr;

use crate::error::Abort;
use crate::table::{Secondary, TableSet};
use crate::tx::TxCore;

/// The layout of an entry's row: the words of a primary key.
pub(crate) fn entry_layout(primary: KeyClass) -> Layout {
    let word = |name: &'static str| ColumnDef::new(name, ColumnType::U64);
    Layout::new(&match primary {
        KeyClass::Word8 => vec![word("key")],
        KeyClass::Word16 => vec![word("high"), word("low")],
        KeyClass::Bytes => vec![ColumnDef::new("key", ColumnType::LongText)],
    })
}

/// Writes a primary key as an entry's row.
pub(crate) fn write_primary(
    row: RowPtr,
    primary: Key<'_>,
    out_of_line_values: &mut dyn OutOfLineStore,
) -> Result<(), OutOfMemory> {
    let words = row.cast::<u64>();
    match primary {
        // SAFETY: `entry_layout` gave the row room for the key's words.
        Key::Word8(key) => unsafe { words.write(key) },
        Key::Word16(key) => {
            // SAFETY: as above.
            unsafe {
                words.write((key >> 64) as u64);
                words.add(1).write(key as u64);
            }
        }
        Key::Bytes(bytes) => {
            let out_of_line = out_of_line_values.store(bytes)?;
            // SAFETY: as above.
            unsafe { words.write(out_of_line) };
        }
    }
    Ok(())
}

/// The primary key that an entry's row holds.
///
/// # Safety
/// `row` is a row of an index whose table has keys of class `primary`, readable for `'t`.
#[inline]
pub(crate) unsafe fn read_primary<'t>(row: RowPtr, primary: KeyClass) -> Key<'t> {
    let words = row.cast::<u64>();
    // SAFETY: the caller's promise; `write_primary` wrote it.
    unsafe {
        match primary {
            KeyClass::Word8 => Key::Word8(words.read()),
            KeyClass::Word16 => Key::Word16(u128::from(words.read()) << 64 | u128::from(words.add(1).read())),
            KeyClass::Bytes => Key::Bytes(seriatim_catalog::out_of_line(words.read())),
        }
    }
}

impl TxCore {
    /// Updates the indexes of `set` for a row with this primary key that changes from `before` to `after`. Only
    /// the columns `dirty` may differ.
    pub(crate) fn maintain(
        &self,
        set: &TableSet,
        primary: Key<'_>,
        before: Option<RowPtr>,
        after: Option<RowPtr>,
        dirty: ColumnSet,
    ) -> Result<(), Abort> {
        for index in set.indexes.iter().filter(|index| index.columns.intersects(dirty)) {
            if self.watching.get() {
                cold_path();
                // Reads for index maintenance are not reads of the body.
                seriatim_catalog::watch::unwatched(|| self.maintain_one(index, primary, before, after))?;
            } else {
                self.maintain_one(index, primary, before, after)?;
            }
        }
        if set.is_followed_or_linked() {
            cold_path();
            return self.statement(|| {
                // Before what follows is written: the rows may lie where that is.
                self.refer(set, primary, before, after, dirty)?;
                if set.is_followed() { self.follow_row(set, primary, before, after) } else { Ok(()) }
            });
        }
        Ok(())
    }

    #[inline(never)]
    fn maintain_one(
        &self,
        index: &Secondary,
        primary: Key<'_>,
        before: Option<RowPtr>,
        after: Option<RowPtr>,
    ) -> Result<(), Abort> {
        let Secondary { table, .. } = index;
        // SAFETY: a row of the index's table, readable until the transaction ends.
        let row = |row: RowPtr| unsafe { RowRef::from_raw(row.as_ptr()) };
        match (before, after) {
            (None, None) => Ok(()),
            (None, Some(after)) => table.codec.encode_row(row(after), |new| self.link_entry(table, new, primary)),
            (Some(before), None) => table.codec.encode_row(row(before), |old| self.unlink_entry(table, old)),
            (Some(before), Some(after)) => table.codec.encode_row(row(before), |old| {
                table.codec.encode_row(row(after), |new| {
                    if old == new {
                        return Ok(());
                    }
                    self.unlink_entry(table, old)?;
                    self.link_entry(table, new, primary)
                })
            }),
        }
    }
}
