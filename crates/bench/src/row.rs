//! The record of YCSB's one-field table: a key of 8 bytes and a value of 100.

use seriatim::Table;
use seriatim::catalog::Bytes;

/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 100;

/// The operations that comparisons need on a table of such records.
pub(crate) trait Record: Table<Key = u64> + 'static {
    /// The initial record of a key.
    fn new(key: u64) -> Self;
    /// Its value.
    fn value<'t>(row: &Self::Row<'t>) -> &'t [u8];
    /// Replaces its value by the next one.
    fn advance(row: &mut Self::Update<'_>);
}

macro_rules! record {
    ($Row:ident $organization:ident) => {
        /// Key and value.
        #[derive(Table, Clone, Debug)]
        #[table(name = "record", key(key), $organization)]
        pub(crate) struct $Row {
            key: u64,
            value: Bytes<100>,
        }

        impl Record for $Row {
            fn new(key: u64) -> $Row {
                $Row { key, value: Bytes::new(&initial(key)).unwrap_or(Bytes::EMPTY) }
            }

            #[inline]
            fn value<'t>(row: &Self::Row<'t>) -> &'t [u8] {
                row.value()
            }

            #[inline]
            fn advance(row: &mut Self::Update<'_>) {
                let value = Bytes::new(&next(row.value())).unwrap_or(Bytes::EMPTY);
                row.set_value(&value);
            }
        }
    };
}

record!(Hashed hash);
record!(Ordered ordered);

/// The initial value of a key.
pub(crate) fn initial(key: u64) -> [u8; VALUE_BYTES] {
    [key as u8; VALUE_BYTES]
}

/// The value after another one: each byte is incremented.
#[inline]
fn next(value: &[u8]) -> [u8; VALUE_BYTES] {
    let mut next = [0; VALUE_BYTES];
    for (next, byte) in next.iter_mut().zip(value) {
        *next = byte.wrapping_add(1);
    }
    next
}
