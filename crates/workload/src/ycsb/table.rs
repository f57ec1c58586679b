//! The table in its four shapes, hashed or ordered, one value of up to 100 bytes or ten fields of as many; and the transaction,
//! which is the same text for each.

use super::input::OperationsInput;
use seriatim::{Abort, Database, Handle, SchemaError, Table, Text, Tx};

/// Bytes that a field has room for.
pub const FIELD_BYTES: usize = 100;

/// What YCSB needs of its table, whatever the shape.
pub trait Shape: Table<Key = u64> + Send + Sync + 'static {
    /// Fields of a row.
    const FIELDS: usize;

    /// A row never written whose fields repeat a letter (0 to 25) and have `value_bytes` together.
    fn new(key: u64, letter: u8, value_bytes: usize) -> Self;

    /// Writes of the row since it was inserted.
    fn writes(row: &Self::Row<'_>) -> u64;

    /// A field's value.
    fn field<'t>(row: &Self::Row<'t>, field: usize) -> &'t str;

    /// Runs the operations in order. What the reads saw comes back as a sum, so that none can be optimized away.
    ///
    /// # Errors
    /// A conflict, a row missing that was loaded, or a row to insert that is there.
    fn run(tx: &Tx, tables: &Tables<Self>, input: &OperationsInput) -> Result<u64, Abort>;
}

/// The tables.
pub struct Tables<T: Shape> {
    /// The one there is.
    pub usertable: Handle<T>,
}

impl<T: Shape> Tables<T> {
    /// Finds the tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables<T>, SchemaError> {
        Ok(Tables { usertable: db.table()? })
    }
}

/// `bytes` times a letter.
#[inline]
fn value(letter: u8, bytes: usize) -> Text<FIELD_BYTES> {
    let all = [b'a' + letter; FIELD_BYTES];
    Text::truncated(std::str::from_utf8(&all[..bytes.min(FIELD_BYTES)]).expect("letters are ASCII"))
}

/// Both ends of every field, which touches every line of the row.
#[inline]
fn look<T: Shape>(row: &T::Row<'_>) -> u64 {
    (0..T::FIELDS).fold(0, |sum, field| {
        let bytes = T::field(row, field).as_bytes();
        sum + u64::from(bytes.first().copied().unwrap_or(0)) + u64::from(bytes.last().copied().unwrap_or(0))
    })
}

macro_rules! shape {
    ($module:ident $Row:ident $organization:ident, $count:literal: $($number:literal $field:ident $set:ident),+) => {
        #[allow(clippy::wrong_self_convention, reason = "derived rows are Copy and have `to_owned`")]
        mod $module {
            use super::{Shape, Tables, look, value};
            use crate::Missing;
            use crate::ycsb::input::{INSERT, OperationsInput, READ, READ_MODIFY_WRITE, SCAN, UPDATE};
            use seriatim::{Abort, Table, Text, Tx};

            /// A row.
            #[derive(Table, Clone, Debug)]
            #[table(name = "usertable", key(key), $organization)]
            #[allow(missing_docs, reason = "fields as YCSB numbers them")]
            pub(crate) struct $Row {
                pub(crate) key: u64,
                /// Writes since it was inserted.
                pub(crate) writes: u64,
                $(pub(crate) $field: Text<100>,)+
            }

            impl Shape for $Row {
                const FIELDS: usize = $count;

                fn new(key: u64, letter: u8, value_bytes: usize) -> $Row {
                    let filled = value(letter, value_bytes / $count);
                    $Row { key, writes: 0, $($field: filled,)+ }
                }

                fn writes(row: &Self::Row<'_>) -> u64 {
                    row.writes()
                }

                #[inline]
                fn field<'t>(row: &Self::Row<'t>, field: usize) -> &'t str {
                    match field {
                        $($number => row.$field(),)+
                        _ => panic!("a row has {} fields", $count),
                    }
                }

                #[inline]
                fn run(tx: &Tx, tables: &Tables<$Row>, input: &OperationsInput) -> Result<u64, Abort> {
                    operations(tx, tables, input)
                }
            }

            /// See [`Shape::run`].
            fn operations(tx: &Tx, tables: &Tables<$Row>, input: &OperationsInput) -> Result<u64, Abort> {
                let field_bytes = usize::from(input.value_bytes) / $count;
                let mut sum = 0u64;
                for operation in &input.operations {
                    let key = operation.key;
                    if operation.kind == READ || operation.kind == READ_MODIFY_WRITE {
                        match tx.get(&tables.usertable, &key)? {
                            Some(row) => sum = sum.wrapping_add(look::<$Row>(&row)),
                            // A newer key may be of an insert that is still running, or failed.
                            None => {
                                if key < input.records {
                                    return Err(tx.abort(Missing("usertable")));
                                }
                            }
                        }
                    }
                    if operation.kind == UPDATE || operation.kind == READ_MODIFY_WRITE {
                        let field = operation.field;
                        let filled = value(operation.letter, field_bytes);
                        let written = tx.update(&tables.usertable, &key, |row| {
                            match field {
                                $($number => row.$set(&filled),)+
                                _ => {}
                            }
                            row.set_writes(row.writes() + 1);
                        })?;
                        if written.is_none() {
                            return Err(tx.abort(Missing("usertable")));
                        }
                    }
                    if operation.kind == INSERT {
                        let filled = value(operation.letter, field_bytes);
                        tx.insert(&tables.usertable, &$Row { key, writes: 0, $($field: filled,)+ })?;
                    }
                    if operation.kind == SCAN {
                        for row in tx.scan(&tables.usertable, key..).take(usize::from(operation.rows)) {
                            sum = sum.wrapping_add(look::<$Row>(&row?));
                        }
                    }
                }
                Ok(sum)
            }
        }
        pub(super) use $module::$Row;
    };
}

shape!(hash_one HashOne hash, 1: 0 field0 set_field0);
shape!(ordered_one OrderedOne ordered, 1: 0 field0 set_field0);
shape!(hash_ten HashTen hash, 10: 0 field0 set_field0, 1 field1 set_field1, 2 field2 set_field2, 3 field3 set_field3,
    4 field4 set_field4, 5 field5 set_field5, 6 field6 set_field6, 7 field7 set_field7, 8 field8 set_field8,
    9 field9 set_field9);
shape!(ordered_ten OrderedTen ordered, 10: 0 field0 set_field0, 1 field1 set_field1, 2 field2 set_field2,
    3 field3 set_field3, 4 field4 set_field4, 5 field5 set_field5, 6 field6 set_field6, 7 field7 set_field7,
    8 field8 set_field8, 9 field9 set_field9);

/// Evaluates an expression with `$T` as the shape that the options ask for.
macro_rules! with_shape {
    ($options:expr, $T:ident => $body:expr) => {{
        use crate::ycsb::options::ValueShape;
        use crate::ycsb::table::{HashOne, HashTen, OrderedOne, OrderedTen};
        match ($options.is_ordered, $options.value_shape()) {
            (false, ValueShape::One) => {
                type $T = HashOne;
                $body
            }
            (true, ValueShape::One) => {
                type $T = OrderedOne;
                $body
            }
            (false, ValueShape::Ten) => {
                type $T = HashTen;
                $body
            }
            (true, ValueShape::Ten) => {
                type $T = OrderedTen;
                $body
            }
        }
    }};
}
pub(super) use with_shape;
