//! Rust types of columns.

use std::cmp::Reverse;
use std::fmt::Debug;

use crate::{ColumnType, KeyColumn, KeyWriter, Stored};

/// A Rust type that a column can have. Derive it for a struct around another such type, and for an enum without
/// fields.
///
/// A column stores its values as a [`Stored`] type does, in other words. What is stored decides the order of keys and
/// what programs see that know the schema only. By hand, without unsafe code:
///
/// ```
/// use seriatim_catalog::{Column, Key, StoredRef, StoredSet, Table, TableKey};
///
/// /// A temperature.
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Celsius(i16);
///
/// impl Column for Celsius {
///     type Stored = i16;
///     type Ref<'t> = Celsius;
///     type Set<'a> = Celsius;
///     fn load(tenths: StoredRef<'_, Self>) -> Self::Ref<'_> {
///         Celsius(tenths)
///     }
///     fn store(value: Self::Set<'_>) -> StoredSet<'_, Self> {
///         value.0
///     }
///     fn owned(value: Celsius) -> Celsius {
///         value
///     }
///     fn lend(&self) -> Celsius {
///         *self
///     }
/// }
///
/// #[derive(seriatim_macros::Table)]
/// #[table(key(at), crate = "seriatim_catalog")]
/// struct Reading {
///     at: u64,
///     inside: Celsius,
///     outside: Option<Celsius>,
/// }
///
/// assert_eq!(Reading::definition().columns[1].ty.to_string(), "i16");
/// Celsius(-5).encode(|key| assert_eq!(key, Key::Word8(0x7FFB)));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the type of a column",
    label = "not a column type",
    note = "write bool, an integer or float, Decimal<S>, Timestamp, Text<N>, Bytes<N>, String, Vec<u8>, [u8; N], or an \
        Option of one; derive Column for a type of your own"
)]
pub trait Column: Sized {
    /// Its type in the schema: that of what it stores, or another of the same form. Of this other type, `store` gives
    /// only values: setting a column to anything else panics, since no recovery could read it.
    const TYPE: ColumnType = <Self::Stored as Stored>::TYPE;
    /// Whether `store` is known to give only values of the type, so that nobody checks it.
    #[doc(hidden)]
    const IS_EXACT: bool = false;
    /// What rows store.
    type Stored: Stored;
    /// The result of reading it: the value, or a reference into the row.
    type Ref<'t>: Copy + Debug;
    /// The argument of setting it: the value, or a reference to one.
    type Set<'a>: Copy;

    /// A value from what was stored. Every stored value of the column's type makes one.
    fn load(stored: StoredRef<'_, Self>) -> Self::Ref<'_>;

    /// What to store of a value.
    fn store(value: Self::Set<'_>) -> StoredSet<'_, Self>;

    /// A loaded value as an owned one.
    fn owned(value: Self::Ref<'_>) -> Self;

    /// An owned value as one to store.
    fn lend(&self) -> Self::Set<'_>;
}

/// What is read of a row for a column of Rust type `C`.
pub type StoredRef<'t, C> = <<C as Column>::Stored as Stored>::Ref<'t>;

/// What is written into a row for a column of Rust type `C`.
pub type StoredSet<'a, C> = <<C as Column>::Stored as Stored>::Set<'a>;

/// Columns that are read and set by value: `Type => its type in the schema, what is stored, |stored| value, |value|
/// stored`.
macro_rules! by_value {
    ($(
        [$($generics:tt)*] $type:ty => $column:expr, $stored:ty, |$from:ident| $load:expr, |$value:ident| $store:expr;
    )+) => {$(
        impl $($generics)* $crate::Column for $type {
            const TYPE: $crate::ColumnType = $column;
            const IS_EXACT: bool = true;
            type Stored = $stored;
            type Ref<'t> = $type;
            type Set<'a> = $type;

            #[inline(always)]
            fn load($from: $crate::StoredRef<'_, Self>) -> Self::Ref<'_> {
                $load
            }

            #[inline(always)]
            fn store($value: Self::Set<'_>) -> $crate::StoredSet<'_, Self> {
                $store
            }

            #[inline(always)]
            fn owned(value: $type) -> $type {
                value
            }

            #[inline(always)]
            fn lend(&self) -> $type {
                *self
            }
        }
    )+};
}
pub(crate) use by_value;

/// Columns that are read as a reference into the row: `Type => what is read, what is set, |read| owned`.
macro_rules! by_reference {
    ($([$($generics:tt)*] $type:ty => $ref:ty, $set:ty, |$value:ident| $owned:expr;)+) => {$(
        impl $($generics)* $crate::Column for $type {
            const IS_EXACT: bool = true;
            type Stored = $type;
            type Ref<'t> = &'t $ref;
            type Set<'a> = &'a $set;

            #[inline(always)]
            fn load(stored: $crate::StoredRef<'_, Self>) -> Self::Ref<'_> {
                stored
            }

            #[inline(always)]
            fn store(value: Self::Set<'_>) -> $crate::StoredSet<'_, Self> {
                value
            }

            fn owned($value: &$ref) -> $type {
                $owned
            }

            #[inline(always)]
            fn lend(&self) -> &$set {
                self
            }
        }
    )+};
}
pub(crate) use by_reference;

impl<C: Column> Column for Option<C> {
    const TYPE: ColumnType = {
        let _of_one_null = <Self::Stored as Stored>::TYPE;
        C::TYPE
    };
    const IS_EXACT: bool = C::IS_EXACT;
    type Stored = Option<C::Stored>;
    type Ref<'t> = Option<C::Ref<'t>>;
    type Set<'a> = Option<C::Set<'a>>;

    #[inline(always)]
    fn load(stored: StoredRef<'_, Self>) -> Self::Ref<'_> {
        stored.map(C::load)
    }

    #[inline(always)]
    fn store(value: Self::Set<'_>) -> StoredSet<'_, Self> {
        value.map(C::store)
    }

    fn owned(value: Option<C::Ref<'_>>) -> Option<C> {
        value.map(C::owned)
    }

    #[inline]
    fn lend(&self) -> Option<C::Set<'_>> {
        self.as_ref().map(C::lend)
    }
}

impl<C: Column> KeyColumn for C {
    const WIDTH: Option<u32> = match C::TYPE.key_bytes() {
        Some(bytes) => Some(bytes + <C::Stored as Stored>::NULLABLE as u32),
        None => None,
    };

    #[inline(always)]
    fn bits(&self) -> u128 {
        C::Stored::key_bits(C::store(self.lend()), C::TYPE)
    }

    #[inline(always)]
    fn write(&self, key: &mut KeyWriter) {
        C::Stored::write_key(C::store(self.lend()), C::TYPE, key);
    }
}

impl<C: KeyColumn> KeyColumn for Reverse<C> {
    const WIDTH: Option<u32> = C::WIDTH;

    #[inline(always)]
    fn bits(&self) -> u128 {
        match C::WIDTH {
            Some(width @ 0..=16) => !self.0.bits() & u128::MAX.unbounded_shr(128 - 8 * width),
            _ => 0,
        }
    }

    #[inline]
    fn write(&self, key: &mut KeyWriter) {
        let from = key.len();
        self.0.write(key);
        key.invert(from);
    }
}
