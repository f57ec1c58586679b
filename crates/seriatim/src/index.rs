//! Secondary indexes: tables whose rows are primary keys, changed through the same protocol calls as the rows they index.
//!
//! An entry's key is the indexed columns, followed by the primary key where the index is ordered and not unique; its row is the
//! primary key. A hash index that is not unique has one entry a key, whose row is the list of primary keys. So an index read is protected exactly as a table read is (decision record 6).

use seriatim_catalog::{
    ColumnDef, ColumnSet, ColumnType, Key, KeyBuf, KeyClass, Layout, OutOfMemory, RowRef, TailStore,
};
use seriatim_txn::RowPtr;

use crate::ReadTx;
use crate::error::Abort;
use crate::handle::{Secondary, TableSet};
use crate::tx::Tails;

/// The layout of an entry's row: the words of a primary key; of a list, the tail that holds it.
pub(crate) fn entry_layout(primary: KeyClass, is_list: bool) -> Layout {
    let word = |name: &'static str| ColumnDef::new(name, ColumnType::U64);
    Layout::new(&match primary {
        _ if is_list => vec![ColumnDef::new("keys", ColumnType::LongText)],
        KeyClass::Word8 => vec![word("key")],
        KeyClass::Word16 => vec![word("high"), word("low")],
        KeyClass::Bytes => vec![ColumnDef::new("key", ColumnType::LongText)],
    })
}

/// A list of primary keys: each as its bytes with their number before them (4 bytes, little-endian).
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyList<'t> {
    bytes: &'t [u8],
}

impl<'t> KeyList<'t> {
    /// The list that an entry's row holds.
    ///
    /// # Safety
    /// `row` is a row of a list index, readable for `'t`.
    pub(crate) unsafe fn of(row: RowPtr) -> KeyList<'t> {
        // SAFETY: the caller's promise: the row is the address of a tail.
        KeyList { bytes: unsafe { seriatim_catalog::tail(row.cast::<u64>().read()) } }
    }

    /// Takes the first key off.
    pub(crate) fn next(&mut self) -> Option<&'t [u8]> {
        let (length, rest) = self.bytes.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.bytes = rest;
        Some(key)
    }

    fn append(list: &mut Vec<u8>, key: &[u8]) {
        list.extend_from_slice(&(key.len() as u32).to_le_bytes());
        list.extend_from_slice(key);
    }

    /// The list with a key more.
    fn with(self, key: &[u8]) -> Vec<u8> {
        let mut list = self.bytes.to_vec();
        Self::append(&mut list, key);
        list
    }

    /// The list without a key.
    fn without(mut self, key: &[u8]) -> Vec<u8> {
        let mut list = Vec::with_capacity(self.bytes.len());
        while let Some(other) = self.next() {
            if other != key {
                Self::append(&mut list, other);
            }
        }
        list
    }
}

/// A key of this class from its bytes.
pub(crate) fn key_from_bytes(bytes: &[u8], class: KeyClass) -> Key<'_> {
    let number = || bytes.iter().fold(0u128, |value, &byte| value << 8 | u128::from(byte));
    match class {
        KeyClass::Word8 => Key::Word8(number() as u64),
        KeyClass::Word16 => Key::Word16(number()),
        KeyClass::Bytes => Key::Bytes(bytes),
    }
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
            if index.is_list() {
                self.move_in_lists(set, index, before.or(after), old, new)?;
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

    /// Takes a row's primary key off the list of its old index key and puts it on that of its new one.
    fn move_in_lists(
        &self,
        set: &TableSet,
        index: &Secondary,
        row: Option<RowPtr>,
        old: Option<KeyBuf>,
        new: Option<KeyBuf>,
    ) -> Result<(), Abort> {
        let Some(row) = row else { return Ok(()) };
        // SAFETY: a row of this table, readable until the transaction ends. Before and after have one primary key.
        let row = unsafe { RowRef::from_raw(row.as_ptr()) };
        let primary = set.primary.codec.encode_row(row, |key| key.to_bytes().into_owned());
        let table = &index.table;
        if let Some(old) = old {
            let emptied = self.change_list(table, old.as_key(), |list| list.without(&primary))?;
            if emptied == Some(true) {
                self.unlink_entry(table, old.as_key())?;
            }
        }
        if let Some(new) = new
            && self.change_list(table, new.as_key(), |list| list.with(&primary))?.is_none()
        {
            let mut list = Vec::new();
            KeyList::append(&mut list, &primary);
            // As a byte key: the entry's row is the tail that holds it.
            self.link_entry(table, new.as_key(), Key::Bytes(&list))?;
        }
        Ok(())
    }

    /// Replaces the list of an entry; whether it is empty now, or `None` if there is no such entry.
    fn change_list(
        &self,
        table: &seriatim_txn::Table,
        key: Key<'_>,
        change: impl Fn(KeyList<'_>) -> Vec<u8>,
    ) -> Result<Option<bool>, Abort> {
        let Some(updating) = self.update_entry(table, key)? else { return Ok(None) };
        // SAFETY: a row of a list index, readable until the transaction ends.
        let list = change(unsafe { KeyList::of(updating.before) });
        let Ok(tail) = Tails::unlogged(self).store(&list) else { return Err(self.out_of_memory()) };
        // SAFETY: a private image of one word, which nobody else uses.
        unsafe { updating.after.cast::<u64>().write(tail) };
        Ok(Some(list.is_empty()))
    }
}
