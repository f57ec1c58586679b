//! Keys of derived tables: a column, or a tuple of columns, known at compile time.

use crate::{Key, KeyBuf, KeyClass, KeyShape, KeyWriter};

use crate::column::KeyColumn;

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
    const SHAPE: KeyShape = KeyShape::new(Self::WIDTH.0, Self::WIDTH.1);

    /// Encodes the key. For integers a few shifts.
    #[inline(always)]
    fn encode<R>(&self, with: impl FnOnce(Key<'_>) -> R) -> R {
        match Self::SHAPE.class {
            KeyClass::Word8 => with(Key::Word8(self.parts_bits() as u64)),
            KeyClass::Word16 => with(Key::Word16(self.parts_bits())),
            KeyClass::Bytes => {
                let mut key = KeyWriter::new();
                self.write_parts(&mut key);
                with(Key::Bytes(key.as_slice()))
            }
        }
    }

    /// Encodes the key into a buffer of its own.
    #[inline]
    fn to_buf(&self) -> KeyBuf {
        self.encode(|key| key.to_buf())
    }
}

impl<K: KeyParts> TableKey for K {}

/// The first columns of a key `K`, or all of them.
pub trait KeyPrefix<K>: KeyParts {}

impl<K: KeyParts> KeyPrefix<K> for K {}

impl KeyParts for () {
    const WIDTH: (u32, bool) = (0, false);
    const COUNT: usize = 0;
    fn parts_bits(&self) -> u128 {
        0
    }
    fn write_parts(&self, _: &mut KeyWriter) {}
}

impl<C: KeyColumn> KeyParts for C {
    const WIDTH: (u32, bool) = width::<C>((0, false));
    const COUNT: usize = 1;

    #[inline(always)]
    fn parts_bits(&self) -> u128 {
        KeyColumn::bits(self)
    }

    #[inline]
    fn write_parts(&self, key: &mut KeyWriter) {
        KeyColumn::write(self, key);
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
                $(let bits = bits << (8 * $column::WIDTH.unwrap_or(0)) | self.$at.bits();)+
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

/// The proper prefixes of a tuple.
macro_rules! prefix {
    ($($all:ident)+: $($prefix:ident)*) => {
        impl<$($all: KeyColumn),+> KeyPrefix<($($all,)+)> for ($($prefix,)*) {}
    };
}

prefix!(A B:);
prefix!(A B: A);
prefix!(A B C:);
prefix!(A B C: A);
prefix!(A B C: A B);
prefix!(A B C D:);
prefix!(A B C D: A);
prefix!(A B C D: A B);
prefix!(A B C D: A B C);
prefix!(A B C D E:);
prefix!(A B C D E: A);
prefix!(A B C D E: A B);
prefix!(A B C D E: A B C);
prefix!(A B C D E: A B C D);
prefix!(A B C D E F:);
prefix!(A B C D E F: A);
prefix!(A B C D E F: A B);
prefix!(A B C D E F: A B C);
prefix!(A B C D E F: A B C D);
prefix!(A B C D E F: A B C D E);
prefix!(A B C D E F G:);
prefix!(A B C D E F G: A);
prefix!(A B C D E F G: A B);
prefix!(A B C D E F G: A B C);
prefix!(A B C D E F G: A B C D);
prefix!(A B C D E F G: A B C D E);
prefix!(A B C D E F G: A B C D E F);
prefix!(A B C D E F G H:);
prefix!(A B C D E F G H: A);
prefix!(A B C D E F G H: A B);
prefix!(A B C D E F G H: A B C);
prefix!(A B C D E F G H: A B C D);
prefix!(A B C D E F G H: A B C D E);
prefix!(A B C D E F G H: A B C D E F);
prefix!(A B C D E F G H: A B C D E F G);
