//! YCSB's transaction as a handwritten closure with explicit prefetching, for tables of one value. Unlike the
//! procedure it cannot scan, which the measured mix does not do. It computes with the same functions.

use seriatim::{Abort, Handle, Tx};
use seriatim_workload::ycsb::{
    HashOne, INSERT, NoSuchOperation, Operation, OperationsInput, OrderedOne, READ, READ_MODIFY_WRITE, UPDATE,
    UserTable, ends, filled,
};

/// A table whose rows have one value.
pub(crate) trait OneField: UserTable {
    /// Applies a write operation to a row.
    fn write(row: &mut Self::Update<'_>, operation: &Operation, value_bytes: u16);
}

macro_rules! one_field {
    ($Row:ident) => {
        impl OneField for $Row {
            #[inline]
            fn write(row: &mut Self::Update<'_>, operation: &Operation, value_bytes: u16) {
                if operation.field == 0 {
                    row.set_field0(&filled(operation.letter, value_bytes, Self::FIELDS));
                }
                row.set_writes(row.writes() + 1);
            }
        }
    };
}

one_field!(HashOne);
one_field!(OrderedOne);

/// Runs the operations in order.
pub(super) fn operations<T: OneField>(tx: &Tx, table: &Handle<T>, input: &OperationsInput) -> Result<u64, Abort> {
    if tx.prefetching() {
        for operation in &input.operations {
            tx.begin_prefetch(table, [operation.key]);
            if operation.kind == READ_MODIFY_WRITE {
                // It is looked up twice.
                tx.begin_prefetch(table, [operation.key]);
            }
        }
        tx.advance_prefetch();
        tx.advance_prefetch();
    }
    let mut sum = 0u64;
    for operation in &input.operations {
        let key = operation.key;
        let write = || tx.update(table, &key, |row| T::write(row, operation, input.value_bytes));
        match operation.kind {
            READ if key < input.records => sum = sum.wrapping_add(ends(T::field(&tx.require(table, &key)?, 0))),
            READ => {
                if let Some(row) = tx.get(table, &key)? {
                    sum = sum.wrapping_add(ends(T::field(&row, 0)));
                }
            }
            READ_MODIFY_WRITE => {
                if let Some(row) = tx.get(table, &key)? {
                    sum = sum.wrapping_add(ends(T::field(&row, 0)));
                }
                write()?;
            }
            UPDATE => write()?,
            INSERT => tx.insert(table, &T::new(key, operation.letter, usize::from(input.value_bytes)))?,
            kind => return Err(tx.abort(NoSuchOperation(kind))),
        }
    }
    Ok(sum)
}
