//! Secondary indexes: tables whose rows are primary keys, changed through the same protocol calls as the rows they index.
//!
//! An entry's key is the indexed columns, followed by the primary key where the index is not unique; its row is the primary key.
//! So an index read is protected exactly as a table read is (decision record 6), and taking a row out of an index is a delete,
//! which needs no memory (the same record).

use seriatim_catalog::{ColumnDef, ColumnSet, ColumnType, Key, KeyClass, Layout, OutOfMemory, RowRef, TailStore};
use seriatim_txn::RowPtr;

use crate::ReadTx;
use crate::error::Abort;
use crate::handle::TableSet;

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
pub(crate) fn write_primary(row: RowPtr, primary: Key<'_>, tails: &mut dyn TailStore) -> Result<(), OutOfMemory> {
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
            let tail = tails.store(bytes)?;
            // SAFETY: as above.
            unsafe { words.write(tail) };
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
            KeyClass::Bytes => Key::Bytes(seriatim_catalog::tail(words.read())),
        }
    }
}

impl ReadTx {
    /// Brings the indexes of `set` from the row `before` to the row `after`; `dirty` are the columns that may differ.
    pub(crate) fn maintain(
        &self,
        set: &TableSet,
        before: Option<RowPtr>,
        after: Option<RowPtr>,
        dirty: ColumnSet,
    ) -> Result<(), Abort> {
        if self.watching.get() {
            // What indexes read is not what the body reads.
            return seriatim_catalog::watch::unwatched(|| self.maintain_all(set, before, after, dirty));
        }
        self.maintain_all(set, before, after, dirty)
    }

    fn maintain_all(
        &self,
        set: &TableSet,
        before: Option<RowPtr>,
        after: Option<RowPtr>,
        dirty: ColumnSet,
    ) -> Result<(), Abort> {
        for index in &set.indexes {
            if !index.columns.intersects(dirty) {
                continue;
            }
            let key_of = |row: RowPtr| {
                // SAFETY: a row of this table, readable until the transaction ends.
                let row = unsafe { RowRef::from_raw(row.as_ptr()) };
                index.table.codec.encode_row(row, |key| key.to_buf())
            };
            let (old, new) = (before.map(key_of), after.map(key_of));
            if old == new {
                continue;
            }
            if let Some(old) = old {
                self.unlink_entry(&index.table, old.as_key())?;
            }
            if let (Some(new), Some(after)) = (new, after) {
                // SAFETY: as above.
                let row = unsafe { RowRef::from_raw(after.as_ptr()) };
                let linked = set
                    .primary
                    .codec
                    .encode_row(row, |primary| self.link_entry(&index.table, new.as_key(), primary))?;
                if !linked {
                    return Err(self.duplicate(&index.table, new.as_key()));
                }
            }
        }
        Ok(())
    }
}
