//! Integers. Those of 128 bits are values that procedures pass on and compare; amounts are not added to them unread.
//!
//! ```
//! use seriatim_catalog::{ColumnType, Key, TableKey, Value};
//! assert_eq!(ColumnType::U128.parse("340282366920938463463374607431768211455")?, Value::from(u128::MAX));
//! (-1i128).encode(|key| assert_eq!(key, Key::Word16(u128::MAX >> 1)));
//! # Ok::<(), seriatim_catalog::ParseError>(())
//! ```

use std::fmt;

use super::rules::{signed, unsigned};
use super::scalar::{Plain, scalar};
use super::{Misfit, Raw, Rules};
use crate::column::by_value;
use crate::value::into_value;
use crate::{ColumnType, Value};

by_value! {
    [] u8 => ColumnType::U8, u8, |stored| stored, |value| value;
    [] u16 => ColumnType::U16, u16, |stored| stored, |value| value;
    [] u32 => ColumnType::U32, u32, |stored| stored, |value| value;
    [] u64 => ColumnType::U64, u64, |stored| stored, |value| value;
    [] i8 => ColumnType::I8, i8, |stored| stored, |value| value;
    [] i16 => ColumnType::I16, i16, |stored| stored, |value| value;
    [] i32 => ColumnType::I32, i32, |stored| stored, |value| value;
    [] i64 => ColumnType::I64, i64, |stored| stored, |value| value;
}

scalar! {
    i128, "i128", Signed => I128, i128, |stored| stored, |value| value,
    |text| text.parse().map_err(|_| format!("write an integer from {} to {}", i128::MIN, i128::MAX));

    fn converted(&self, value: &Value) -> Option<Raw<'static>> {
        if let Value::Integer(number, _) = *value { Some(number.raw()) } else { None }
    }
}

scalar! {
    u128, "u128", Unsigned => U128, u128, |stored| stored, |value| value,
    |text| text.parse().map_err(|_| format!("write an integer from 0 to {}", u128::MAX));

    fn converted(&self, value: &Value) -> Option<Raw<'static>> {
        if let Value::Integer(number, _) = *value { u128::try_from(number).ok().map(Plain::raw) } else { None }
    }
}

macro_rules! integers {
    ($($variant:ident $type:ident)+) => {
        /// A type of integers of at most 64 bits.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum IntegerType {
            $($variant,)+
        }

        impl IntegerType {
            /// All of them.
            pub const ALL: [IntegerType; 9] = [$(IntegerType::$variant,)+];

            /// Its name in Rust.
            pub const fn name(self) -> &'static str {
                match self {
                    $(IntegerType::$variant => stringify!($type),)+
                }
            }

            /// Smallest and largest value.
            pub const fn range(self) -> (i128, i128) {
                match self {
                    $(IntegerType::$variant => ($type::MIN as i128, $type::MAX as i128),)+
                }
            }
        }

        into_value! { $([] $type, |value| Value::Integer(value as i128, Some(IntegerType::$variant));)+ }
    };
}

integers! { I8 i8 I16 i16 I32 i32 I64 i64 U8 u8 U16 u16 U32 u32 U64 u64 Usize usize }

impl IntegerType {
    /// The type of this name in Rust.
    pub fn by_name(name: &str) -> Option<IntegerType> {
        IntegerType::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// The type of the integers in columns of this type.
    pub const fn of_column(ty: ColumnType) -> Option<IntegerType> {
        Some(match ty {
            ColumnType::I8 => IntegerType::I8,
            ColumnType::I16 => IntegerType::I16,
            ColumnType::I32 => IntegerType::I32,
            ColumnType::I64 => IntegerType::I64,
            ColumnType::U8 => IntegerType::U8,
            ColumnType::U16 => IntegerType::U16,
            ColumnType::U32 => IntegerType::U32,
            ColumnType::U64 => IntegerType::U64,
            _ => return None,
        })
    }

    /// Whether it has this value.
    pub const fn has(self, number: i128) -> bool {
        let (least, greatest) = self.range();
        least <= number && number <= greatest
    }
}

impl fmt::Display for IntegerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(super) struct Integer(pub(super) IntegerType);

impl Rules for Integer {
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }

    fn value(&self, stored: &[u8]) -> Value {
        let is_signed = self.0.range().0 < 0;
        Value::Integer(if is_signed { signed(stored) } else { unsigned(stored) as i128 }, Some(self.0))
    }

    fn stored<'v>(&self, value: &'v Value) -> Result<Raw<'v>, Misfit> {
        match *value {
            Value::Integer(number, _) if self.0.has(number) => {
                let bits = 128 - self.0.range().1.leading_zeros();
                Ok(Raw::number(number as u128, bits.div_ceil(8) as usize))
            }
            _ => Err(Misfit::Other),
        }
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        let (least, greatest) = self.0.range();
        let number = text.parse().ok().filter(|number| self.0.has(*number));
        number
            .map(|number| Value::Integer(number, Some(self.0)))
            .ok_or_else(|| format!("write an integer from {least} to {greatest}"))
    }
}
