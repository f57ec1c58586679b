//! Values that procedures pass on and compare, and do not compute with: dates, numbers of 128 bits and the like.

use std::cmp::Ordering;
use std::fmt;

use super::Raw;
use crate::{Column, ColumnType, KeyWriter, Value};

/// A value of one of these types, as a row has it. Equal and ordered as keys are.
#[derive(Clone, Copy)]
pub struct Scalar {
    ty: ColumnType,
    // The first bytes, as many as the type has.
    stored: [u8; Raw::BYTES_MAX],
}

/// A Rust type whose values are [`Scalar`]s where only the schema is known.
pub trait ScalarType: Column {
    /// The value.
    fn to_scalar(&self) -> Scalar;

    /// The value of this type; `None` if it is of another.
    fn of_scalar(scalar: &Scalar) -> Option<Self>;
}

impl Scalar {
    pub(super) fn new(ty: ColumnType, stored: &[u8]) -> Scalar {
        let mut copy = [0; Raw::BYTES_MAX];
        copy[..stored.len()].copy_from_slice(stored);
        Scalar { ty, stored: copy }
    }

    /// The type.
    pub fn column_type(&self) -> ColumnType {
        self.ty
    }

    /// The bytes as in a row.
    pub fn stored(&self) -> &[u8] {
        &self.stored[..self.ty.row_bytes() as usize]
    }

    /// The value with these stored bytes; `None` if there is none, or if values of the type are no scalars.
    pub fn of_stored(ty: ColumnType, stored: &[u8]) -> Option<Scalar> {
        let is_one = stored.len() == ty.row_bytes() as usize && stored.len() <= Raw::BYTES_MAX;
        let value = (is_one && ty.rules(|rules| rules.is_valid(stored))).then(|| ty.rules(|rules| rules.value(stored)));
        if let Some(Value::Scalar(scalar)) = value { Some(scalar) } else { None }
    }

    /// Its key bytes.
    pub(crate) fn key(&self) -> Vec<u8> {
        let mut key = KeyWriter::new();
        self.ty.write_key(self.stored(), &mut key);
        key.as_slice().to_vec()
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

/// None of two types.
impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Scalar) -> Option<Ordering> {
        (self.ty == other.ty).then(|| self.key().cmp(&other.key()))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.ty.rules(|rules| rules.show(self.stored())))
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {self}", self.ty)
    }
}

/// What rows store of a scalar.
pub(super) trait Plain: Sized {
    fn raw(self) -> Raw<'static>;
    fn of_raw(stored: &[u8]) -> Self;
}

macro_rules! plain {
    ($($type:ident)+) => {$(
        impl Plain for $type {
            fn raw(self) -> Raw<'static> {
                Raw::copied(&self.to_ne_bytes())
            }

            fn of_raw(stored: &[u8]) -> $type {
                $type::from_ne_bytes(stored.try_into().unwrap_or_default())
            }
        }
    )+};
}

plain!(u16 u32 i32 i64 i128 u128 f32);

impl<const N: usize> Plain for [u8; N] {
    fn raw(self) -> Raw<'static> {
        Raw::copied(&self)
    }

    fn of_raw(stored: &[u8]) -> [u8; N] {
        stored.try_into().unwrap_or([0; N])
    }
}

/// Everything of a type that its Rust type does not have: `Type, its name, its rules => its type in the schema, what
/// is stored, |stored| value, |value| stored, |text| the value that a text is`. Stored bytes of which no value is made
/// and stored as the same bytes are not valid. More rules may follow.
macro_rules! scalar {
    (
        $type:ty, $name:literal, $rules:ident => $column:ident, $stored:ty,
        |$from:ident| $load:expr, |$value:ident| $store:expr, |$text:ident| $parse:expr; $($more:tt)*
    ) => {
        $crate::column::by_value! {
            [] $type => $crate::ColumnType::$column, $stored, |$from| $load, |$value| $store;
        }

        $crate::value::into_value! {
            [] $type, |value| $crate::Value::Scalar($crate::ScalarType::to_scalar(&value));
        }

        impl $crate::ScalarType for $type {
            fn to_scalar(&self) -> $crate::Scalar {
                let stored: $stored = <$type as $crate::Column>::store(*self);
                let raw = $crate::types::scalar::Plain::raw(stored);
                $crate::Scalar::new($crate::ColumnType::$column, &raw)
            }

            fn of_scalar(scalar: &$crate::Scalar) -> Option<$type> {
                let stored: $stored = $crate::types::scalar::Plain::of_raw(scalar.stored());
                let is_one = scalar.column_type() == $crate::ColumnType::$column;
                is_one.then(|| <$type as $crate::Column>::load(stored))
            }
        }

        pub(super) struct $rules;

        impl $crate::types::Rules for $rules {
            $crate::types::named!($name);

            fn value(&self, stored: &[u8]) -> $crate::Value {
                $crate::Value::Scalar($crate::Scalar::new($crate::ColumnType::$column, stored))
            }

            fn stored<'v>(&self, value: &'v $crate::Value) -> Result<$crate::types::Raw<'v>, $crate::types::Misfit> {
                match value {
                    $crate::Value::Scalar(scalar) if scalar.column_type() == $crate::ColumnType::$column => {
                        Ok($crate::types::Raw::copied(scalar.stored()))
                    }
                    value => self.converted(value).ok_or($crate::types::Misfit::Other),
                }
            }

            fn show(&self, stored: &[u8]) -> String {
                let stored: $stored = $crate::types::scalar::Plain::of_raw(stored);
                <$type as $crate::Column>::load(stored).to_string()
            }

            fn is_checked(&self) -> bool {
                true
            }

            fn is_valid(&self, bytes: &[u8]) -> bool {
                let stored: $stored = $crate::types::scalar::Plain::of_raw(bytes);
                let again = <$type as $crate::Column>::store(<$type as $crate::Column>::load(stored));
                *$crate::types::scalar::Plain::raw(again) == *bytes
            }

            fn parse(&self, $text: &str) -> Result<$crate::Value, String> {
                let value: Result<$type, String> = $parse;
                value.map($crate::Value::from)
            }

            $($more)*
        }
    };
}
pub(super) use scalar;
