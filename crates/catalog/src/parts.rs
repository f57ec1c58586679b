//! Keys of derived tables: a column, or a tuple of columns, known at compile time.

use crate::{Key, KeyBuf, KeyClass, KeyColumn, KeyFormat, KeyWriter};

/// Columns that make up a key or the beginning of one.
pub trait KeyParts {
    /// Bytes of the columns of fixed width, and whether there are others.
    const WIDTH: (u32, bool);
    /// How many columns.
    const COUNT: usize;
    /// The key bytes of all columns as a number, right-aligned. Only for keys of fixed width up to 16.
    fn parts_bits(&self) -> u128;
    /// Appends the key bytes of all columns.
    fn write_parts(&self, key: &mut KeyWriter);
}

/// A key: the type of a table's primary key, or the columns of an index.
pub trait TableKey: KeyParts {
    /// How keys of this type are represented.
    const FORMAT: KeyFormat = KeyFormat::new(Self::WIDTH.0, Self::WIDTH.1);

    /// Encodes the key. For integers a few shifts; for bytes up to [`KeyBuf::INLINE`] no allocation.
    ///
    /// ```
    /// use seriatim_catalog::{Key, Reverse, TableKey, Text};
    /// (7u16, 300u32).encode(|key| assert_eq!(key, Key::Word8(0x0007_0000_012C)));
    /// (7u16, Reverse(1u8)).encode(|key| assert_eq!(key, Key::Word8(0x0007_FE)));
    /// (7u16, Text::<4>::literal("ab")).encode(|key| assert_eq!(key, Key::Bytes(b"\0\x07ab\0")));
    /// ```
    #[inline(always)]
    fn encode<R>(&self, with: impl FnOnce(Key<'_>) -> R) -> R {
        // Of a condition that is a constant, only the branch that is taken is compiled; of a match, all
        // branches are.
        if const { matches!(Self::FORMAT.class, KeyClass::Word8) } {
            with(Key::Word8(self.parts_bits() as u64))
        } else if const { matches!(Self::FORMAT.class, KeyClass::Word16) } {
            with(Key::Word16(self.parts_bits()))
        } else {
            let mut key = KeyWriter::new();
            self.write_parts(&mut key);
            with(Key::Bytes(key.as_slice()))
        }
    }

    /// The key, if keys of this type are one word.
    #[inline(always)]
    fn word(&self) -> Option<u64> {
        if const { matches!(Self::FORMAT.class, KeyClass::Word8) } { Some(self.parts_bits() as u64) } else { None }
    }

    /// Encodes the key into a buffer of its own.
    #[inline]
    fn to_buf(&self) -> KeyBuf {
        self.encode(|key| key.to_buf())
    }
}

impl<K: KeyParts> TableKey for K {}

/// The beginning of a key `K`: its first columns as a tuple (the empty tuple included), its first column
/// alone, or all of it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the beginning of the key `{K}`",
    label = "not the key's first columns",
    note = "write the first column, or a tuple of the first columns, with exactly the key's types"
)]
pub trait KeyPrefix<K>: KeyParts {}

impl<K: KeyParts> KeyPrefix<K> for K {}

impl KeyParts for () {
    const WIDTH: (u32, bool) = (0, false);
    const COUNT: usize = 0;
    #[inline]
    fn parts_bits(&self) -> u128 {
        0
    }
    #[inline]
    fn write_parts(&self, _: &mut KeyWriter) {}
}

impl<C: KeyColumn> KeyParts for C {
    const WIDTH: (u32, bool) = width::<C>((0, false));
    const COUNT: usize = 1;

    #[inline(always)]
    fn parts_bits(&self) -> u128 {
        self.bits()
    }

    #[inline]
    fn write_parts(&self, key: &mut KeyWriter) {
        self.write(key);
    }
}

const fn width<C: KeyColumn>(before: (u32, bool)) -> (u32, bool) {
    match C::WIDTH {
        Some(width) => (before.0 + width, before.1),
        None => (before.0, true),
    }
}

macro_rules! tuple {
    ($($column:ident $at:tt),+) => {
        impl<$($column: KeyColumn),+> KeyParts for ($($column,)+) {
            const WIDTH: (u32, bool) = {
                let total = (0, false);
                $(let total = width::<$column>(total);)+
                total
            };
            const COUNT: usize = [$($at),+].len();

            #[inline(always)]
            fn parts_bits(&self) -> u128 {
                let bits = 0u128;
                $(let bits = bits.unbounded_shl(8 * $column::WIDTH.unwrap_or(0)) | self.$at.bits();)+
                bits
            }

            #[inline]
            fn write_parts(&self, key: &mut KeyWriter) {
                $(self.$at.write(key);)+
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// The proper prefixes of a key: none of its columns, the first alone, tuples of the first ones.
macro_rules! prefixes {
    ($first:ident $($rest:ident)*) => {
        impl<$first: KeyColumn, $($rest: KeyColumn),*> KeyPrefix<($first, $($rest,)*)> for () {}
        impl<$first: KeyColumn, $($rest: KeyColumn),*> KeyPrefix<($first, $($rest,)*)> for $first {}
        prefixes!(@ [$first $($rest)*] [] $first $($rest)*);
    };
    (@ [$($all:ident)*] [$($before:ident)*] $next:ident $($after:ident)+) => {
        impl<$($all: KeyColumn),*> KeyPrefix<($($all,)*)> for ($($before,)* $next,) {}
        prefixes!(@ [$($all)*] [$($before)* $next] $($after)+);
    };
    (@ [$($all:ident)*] [$($before:ident)*] $last:ident) => {};
}

impl<C: KeyColumn> KeyPrefix<C> for () {}
prefixes!(A B);
prefixes!(A B C);
prefixes!(A B C D);
prefixes!(A B C D E);
prefixes!(A B C D E F);
prefixes!(A B C D E F G);
prefixes!(A B C D E F G H);
