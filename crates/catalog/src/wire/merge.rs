//! Two updates of one row, one after the other although neither saw the other, where the columns that they
//! use allow it.

use seriatim_base::ColumnId;

use super::RowWire;
use super::field::Field;
use crate::{ColumnLocation, ColumnSet, ColumnUse, NoOutOfLine, RowPart, RowRef, RowWriter};

/// The amount that `after` adds to a sum of `base`, and a quarter of the column's range. `None` unless `newer` is that
/// far away from the end towards which the amount leads.
///
/// # Safety
/// As [`RowWire::merge`], of rows of the field's table.
unsafe fn amount_with_room(field: &Field, [base, newer, after]: [*const u8; 3]) -> Option<(i128, i128)> {
    // SAFETY: the caller's promise; the places are of the row version.
    unsafe {
        if [base, newer, after].into_iter().any(|row| field.place.is_null(row)) {
            return None;
        }
        let (amount, value, range) = field.sum(base, after, newer)?;
        let quarter = (range.end() - range.start()) / 4;
        let has_room = if amount < 0 { value >= range.start() + quarter } else { value <= range.end() - quarter };
        has_room.then_some((amount, quarter))
    }
}

impl RowWire {
    /// Whether two row versions of the table belong to one row and have the same values in these columns. The fixed
    /// part identifies the row, if there is one.
    ///
    /// # Safety
    /// Rules 1 to 3 of `RowRef`.
    pub unsafe fn agree(&self, one: RowRef<'_>, other: RowRef<'_>, columns: ColumnSet) -> bool {
        let mut named = self.numbered(&self.row_fields).filter(|field| columns.contains(field.column()));
        // SAFETY: the caller's promise; the places are of the row version.
        self.share_fixed(one, other) && !named.any(|field| unsafe { field.differs(one.as_ptr(), other.as_ptr()) })
    }

    /// Whether `newer` has room for the amounts that `after` adds to `sums` of `base`. At most `adders`
    /// transactions at a time, this one among them, may find room in the same way. The value must be a quarter
    /// of the column's range away from its end. The amount must be no more than the adder's share of that quarter.
    ///
    /// # Safety
    /// As [`RowWire::merge`].
    pub unsafe fn has_room(
        &self,
        base: RowRef<'_>,
        newer: RowRef<'_>,
        after: RowRef<'_>,
        sums: ColumnSet,
        adders: u32,
    ) -> bool {
        let [base, newer, after] = [base, newer, after].map(RowRef::as_ptr);
        self.numbered(&self.row_fields).filter(|field| sums.contains(field.column())).all(|field| {
            // SAFETY: the caller's promise.
            let amount = unsafe { amount_with_room(field, [base, newer, after]) };
            amount.is_some_and(|(amount, quarter)| amount.abs().saturating_mul(adders.into()) <= quarter)
        })
    }

    /// Calls `see` with the amount that `after` adds to each of `sums` of `base`. It also passes the most that one of
    /// at most `adders` may add in that direction until all of it is added up. That is its share of a quarter of the
    /// column's range. Returns false if `see` does, or if amounts cannot be added to a column. It also does if `newer`
    /// is less than a quarter away from the end towards which the amount leads.
    ///
    /// # Safety
    /// As [`RowWire::merge`].
    pub unsafe fn each_amount(
        &self,
        [base, newer, after]: [RowRef<'_>; 3],
        sums: ColumnSet,
        adders: u32,
        mut see: impl FnMut(ColumnId, i64, i64) -> bool,
    ) -> bool {
        let [base, newer, after] = [base, newer, after].map(RowRef::as_ptr);
        self.numbered(&self.row_fields).filter(|field| sums.contains(field.column())).all(|field| {
            // SAFETY: the caller's promise.
            let Some((amount, quarter)) = (unsafe { amount_with_room(field, [base, newer, after]) }) else {
                return false;
            };
            let share = i64::try_from(quarter / i128::from(adders)).unwrap_or(i64::MAX);
            i64::try_from(amount).is_ok_and(|amount| see(field.column(), amount, share))
        })
    }

    /// Whether the values of these columns are a quarter of the column's range away from both of its ends.
    ///
    /// # Safety
    /// As [`RowWire::merge`], of a readable row.
    pub unsafe fn is_amid(&self, row: RowRef<'_>, columns: ColumnSet) -> bool {
        let row = row.as_ptr();
        self.numbered(&self.row_fields).filter(|field| columns.contains(field.column())).all(|field| {
            // SAFETY: the caller's promise; the places are of the row version.
            let Some((_, value, range)) = (unsafe { field.sum(row, row, row) }) else { return false };
            let quarter = (range.end() - range.start()) / 4;
            (range.start() + quarter..=range.end() - quarter).contains(&value)
        })
    }

    /// Adds an amount to a column of a row. False if the sum leaves its range: then it is as it was.
    ///
    /// # Safety
    /// Rules 1 to 3 of `RowRef`; the row is private to the caller.
    pub unsafe fn add(&self, row: *mut u8, column: ColumnId, amount: i64) -> bool {
        let mut out_of_line_values = NoOutOfLine;
        // SAFETY: the caller's promise.
        let mut writer = unsafe { RowWriter::for_update(row, &mut out_of_line_values) };
        let field = self.numbered(&self.row_fields).find(|field| field.column() == column);
        field.is_some_and(|field| field.is_sum && field.add(amount, &mut writer).is_ok())
    }

    fn share_fixed(&self, one: RowRef<'_>, other: RowRef<'_>) -> bool {
        self.row_fields.len() == self.fields.len() || one.block(RowPart::Fixed) == other.block(RowPart::Fixed)
    }

    /// Puts an update after another one: `after`, which came from `base`, becomes what the same update would have made
    /// of `newer`, another update of `base`. Columns to which it only adds get its amounts on top of `newer`'s sum. The
    /// other changed columns are as in `newer`, except for those that it has set blindly.
    ///
    /// False if it would not be the same update. Then `newer` has another value in a column that it used, another fixed
    /// part, or a sum that leaves its range. Then `after` may have changed in part.
    ///
    /// # Safety
    /// Rules 1 to 3 of `RowRef` for all three; `after` is private to the caller, and in all columns but those
    /// of `columns` it is as `base`.
    pub unsafe fn merge(&self, base: RowRef<'_>, newer: RowRef<'_>, after: *mut u8, columns: ColumnUse) -> bool {
        if !self.share_fixed(base, newer) {
            return false;
        }
        let (old, new) = (base.as_ptr(), newer.as_ptr());
        self.numbered(&self.row_fields).all(|field| {
            // SAFETY: the caller's promise; the places are of the row version.
            unsafe {
                if !field.differs(old, new) {
                    // A long text may be the same at another address, and the row owns the one that the newer
                    // row version has.
                    if field.is_shared(old, after) {
                        field.place.copy(new, after);
                    }
                    return true;
                }
                if columns.used().contains(field.column()) {
                    // A column with its old value was not set, or was set to that value: it is not known
                    // which.
                    return columns.set().contains(field.column()) && field.differs(old, after);
                }
                let added = if columns.added.contains(field.column()) { field.added(old, after) } else { None };
                if added.is_none() && field.differs(old, after) {
                    return false;
                }
                field.place.copy(new, after);
                let mut out_of_line_values = NoOutOfLine;
                let mut writer = RowWriter::for_update(after, &mut out_of_line_values);
                added.is_none_or(|added| field.add(added.amount, &mut writer).is_ok())
            }
        })
    }
}

impl Field {
    fn column(&self) -> ColumnId {
        ColumnId(self.place.column)
    }
}

impl ColumnLocation {
    /// Copies the value and whether it is NULL; of a long text, the address.
    ///
    /// # Safety
    /// Both are the block of memory of a row to which the place refers: `from` readable and not being written,
    /// `to` private to the caller.
    unsafe fn copy(&self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise; the value and the NULL bits lie in the block.
        unsafe {
            let (offset, bytes) = (self.offset as usize, self.bytes as usize);
            from.add(offset).copy_to_nonoverlapping(to.add(offset), bytes);
            self.set_null(to, self.is_null(from));
        }
    }
}
