//! The record of YCSB's one-field table: a key of 8 bytes and a value of 100.

use seriatim::Table;
use seriatim::catalog::Bytes;

/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 100;

/// What the comparisons need of a table of such records.
pub(crate) trait Record: Table<Key = u64> + 'static {
    /// The record of a key as it is loaded.
    fn new(key: u64) -> Self;
    /// Its value.
    fn value<'t>(row: &Self::Row<'t>) -> &'t [u8];
    /// Sets its value.
    fn set(row: &mut Self::Update<'_>, value: &[u8; VALUE_BYTES]);
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
            fn set(row: &mut Self::Update<'_>, value: &[u8; VALUE_BYTES]) {
                if let Ok(value) = Bytes::new(value) {
                    row.set_value(&value);
                }
            }
        }
    };
}

record!(Hashed hash);
record!(Ordered ordered);

/// The value that the record of a key begins with.
pub(crate) fn initial(key: u64) -> [u8; VALUE_BYTES] {
    [key as u8; VALUE_BYTES]
}

/// The value that follows another: each byte one more.
#[inline]
pub(crate) fn next(value: &[u8]) -> [u8; VALUE_BYTES] {
    let mut next = [0; VALUE_BYTES];
    for (next, byte) in next.iter_mut().zip(value) {
        *next = byte.wrapping_add(1);
    }
    next
}
