//! The table in its four variants: hashed or ordered, with one value of up to 100 bytes or ten such fields. The
//! transaction is a procedure with the same text for each, except that a hashed table has no scans.

use std::error::Error;
use std::fmt;

use super::input::OperationsInput;
use seriatim::procedure::{Declared, Procedures};
use seriatim::{Data, Database, Handle, SchemaError, Table, Text, pure};

/// Bytes that a field has room for.
pub const FIELD_BYTES: usize = 100;

/// The operations that YCSB needs on each variant of its table.
pub trait UserTable: Table<Key = u64> + Send + Sync + 'static {
    /// Fields of a row.
    const FIELDS: usize;

    /// A row never written whose fields repeat a letter (0 to 25) and have `value_bytes` together.
    fn new(key: u64, letter: u8, value_bytes: usize) -> Self;

    /// Writes of the row since it was inserted.
    fn writes(row: &Self::Row<'_>) -> u64;

    /// A field's value.
    fn field<'t>(row: &Self::Row<'t>, field: usize) -> &'t str;

    /// See [`UserTable::OPERATIONS`].
    type Operations: Declared<Arguments = OperationsInput, Output = u64>;

    /// Runs the operations in order. The result is the sum of all reads, so that none can be optimized away. Aborts
    /// with [`NoSuchOperation`]; a row missing that was loaded, or one to insert that is there, fails.
    const OPERATIONS: Self::Operations;

    /// The procedure, to be registered.
    fn procedures() -> Procedures {
        Procedures::new().with(Self::OPERATIONS)
    }
}

/// An operation is none that the table can do.
#[derive(Clone, Copy, Debug, Data)]
pub struct NoSuchOperation(
    /// Its kind.
    pub u8,
);

impl fmt::Display for NoSuchOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this table has no operation of kind {}: kinds are 0 to 4, and a hashed table has no scans (3)",
            self.0
        )
    }
}

impl Error for NoSuchOperation {}

/// The tables.
pub struct Tables<T: UserTable> {
    /// The one there is.
    pub usertable: Handle<T>,
}

impl<T: UserTable> Tables<T> {
    /// Finds the tables.
    ///
    /// # Errors
    /// When one is missing.
    pub fn open(db: &Database) -> Result<Tables<T>, SchemaError> {
        Ok(Tables { usertable: db.table()? })
    }
}

/// `bytes` times a letter, 0 to 25.
fn value(letter: u8, bytes: usize) -> Text<FIELD_BYTES> {
    let all = [b'a' + letter % 26; FIELD_BYTES];
    Text::truncated(std::str::from_utf8(&all[..bytes.min(FIELD_BYTES)]).expect("letters are ASCII"))
}

/// The value that a write stores in one of `fields` fields, which have `value_bytes` together.
#[pure(total)]
#[inline]
pub fn filled(letter: u8, value_bytes: u16, fields: usize) -> Text<FIELD_BYTES> {
    value(letter, usize::from(value_bytes) / fields.max(1))
}

/// Both ends of a field.
#[pure(total)]
#[inline]
pub fn ends(field: &str) -> u64 {
    let bytes = field.as_bytes();
    u64::from(bytes.first().copied().unwrap_or(0)) + u64::from(bytes.last().copied().unwrap_or(0))
}

macro_rules! user_table {
    (
        $module:ident $Row:ident $organization:ident $(scan($($scanned:ident)+))?,
        $count:literal: $($number:literal $field:ident),+
    ) => {
        #[allow(clippy::wrong_self_convention, reason = "derived rows are Copy and have `to_owned`")]
        mod $module {
            use super::{NoSuchOperation, UserTable, ends, filled, value};
            use crate::wrapping::wrapping_sum;
            #[allow(unused_imports, reason = "a hashed table has no scans")]
            use crate::ycsb::input::{INSERT, OperationsInput, READ, READ_MODIFY_WRITE, SCAN, UPDATE};
            use seriatim::{Abort, Table, Text, Tx, procedure};

            const FIELDS: usize = $count;

            /// A row.
            #[derive(Table, Clone, Debug)]
            #[table(name = "usertable", key(key), $organization)]
            #[allow(missing_docs, reason = "fields as YCSB numbers them")]
            pub struct $Row {
                pub key: u64,
                /// Writes since it was inserted.
                pub writes: u64,
                $(pub $field: Text<100>,)+
            }

            impl UserTable for $Row {
                const FIELDS: usize = FIELDS;

                fn new(key: u64, letter: u8, value_bytes: usize) -> $Row {
                    let filled = value(letter, value_bytes / FIELDS);
                    $Row { key, writes: 0, $($field: filled,)+ }
                }

                fn writes(row: &Self::Row<'_>) -> u64 {
                    row.writes()
                }

                #[inline]
                fn field<'t>(row: &Self::Row<'t>, field: usize) -> &'t str {
                    match field {
                        $($number => row.$field(),)+
                        _ => panic!("a row has {FIELDS} fields"),
                    }
                }

                type Operations = operations;
                const OPERATIONS: operations = operations;
            }

            /// See [`UserTable::OPERATIONS`].
            #[procedure]
            pub fn operations(tx: &Tx, input: &OperationsInput) -> Result<u64, Abort> {
                let mut sum = 0u64;
                for operation in &input.operations {
                    let key = operation.key;
                    match operation.kind {
                        READ => {
                            if key < input.records {
                                let row = tx.require::<$Row>(key)?;
                                $(sum = wrapping_sum(sum, ends(row.$field));)+
                            } else if let Some(row) = tx.get::<$Row>(key)? {
                                // A newer key may be of an insert that is still running, or failed.
                                $(sum = wrapping_sum(sum, ends(row.$field));)+
                            }
                        }
                        READ_MODIFY_WRITE => {
                            if let Some(row) = tx.get::<$Row>(key)? {
                                $(sum = wrapping_sum(sum, ends(row.$field));)+
                            }
                            tx.update::<$Row>(key, |row| {
                                match operation.field {
                                    $($number => row.$field = filled(operation.letter, input.value_bytes, FIELDS),)+
                                    _ => {}
                                }
                                row.writes += 1;
                            })?;
                        }
                        UPDATE => {
                            tx.update::<$Row>(key, |row| {
                                match operation.field {
                                    $($number => row.$field = filled(operation.letter, input.value_bytes, FIELDS),)+
                                    _ => {}
                                }
                                row.writes += 1;
                            })?;
                        }
                        INSERT => {
                            let all = filled(operation.letter, input.value_bytes, FIELDS);
                            tx.insert($Row { key, writes: 0, $($field: all,)+ })?;
                        }
                        $(SCAN => {
                            for row in tx.scan::<$Row>(key..).limit(usize::from(operation.rows))? {
                                $(sum = wrapping_sum(sum, ends(row.$scanned));)+
                            }
                        })?
                        _ => return Err(tx.abort(NoSuchOperation(operation.kind))),
                    }
                }
                Ok(sum)
            }
        }
        pub use $module::$Row;
    };
}

user_table!(hash_one HashOne hash, 1: 0 field0);
user_table!(ordered_one OrderedOne ordered scan(field0), 1: 0 field0);
user_table!(hash_ten HashTen hash, 10:
    0 field0, 1 field1, 2 field2, 3 field3, 4 field4, 5 field5, 6 field6, 7 field7, 8 field8, 9 field9);
user_table!(ordered_ten OrderedTen ordered scan(field0 field1 field2 field3 field4 field5 field6 field7 field8 field9),
    10: 0 field0, 1 field1, 2 field2, 3 field3, 4 field4, 5 field5, 6 field6, 7 field7, 8 field8, 9 field9);

/// Evaluates an expression with `$T` as the table type that the options ask for.
macro_rules! with_table_type {
    ($options:expr, $T:ident => $body:expr) => {{
        use crate::ycsb::options::ValueLayout;
        use crate::ycsb::table::{HashOne, HashTen, OrderedOne, OrderedTen};
        match ($options.is_ordered, $options.value_layout()) {
            (false, ValueLayout::One) => {
                type $T = HashOne;
                $body
            }
            (true, ValueLayout::One) => {
                type $T = OrderedOne;
                $body
            }
            (false, ValueLayout::Ten) => {
                type $T = HashTen;
                $body
            }
            (true, ValueLayout::Ten) => {
                type $T = OrderedTen;
                $body
            }
        }
    }};
}
pub(super) use with_table_type;
