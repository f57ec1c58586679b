//! Binary floating-point numbers. In keys they are ordered by value, with one zero and one NaN above infinity.
//!
//! ```
//! use seriatim_catalog::{ColumnType, TableKey, Value};
//! assert_eq!(ColumnType::F32.parse("-1.5e3")?, Value::from(-1500f32));
//! assert!((-1.5f32).to_buf() < 0f32.to_buf() && (-0f32).to_buf() == 0f32.to_buf());
//! # Ok::<(), seriatim_catalog::ParseError>(())
//! ```

use super::scalar::scalar;
use super::{Misfit, Raw, Rules, named};
use crate::column::by_value;
use crate::value::into_value;
use crate::{ColumnType, Value};

by_value! {
    [] f64 => ColumnType::F64, f64, |stored| stored, |value| value;
}

into_value! {
    [] f64, |value| Value::Float(value);
}

scalar! {
    f32, "f32", Single => F32, f32, |stored| stored, |value| value, |text| text.parse().map_err(|_| PROBLEM.to_owned());
}

pub(super) struct Double;

impl Rules for Double {
    named!("f64");

    fn value(&self, stored: &[u8]) -> Value {
        Value::Float(f64::from_ne_bytes(stored.try_into().unwrap_or_default()))
    }

    fn stored<'v>(&self, value: &'v Value) -> Result<Raw<'v>, Misfit> {
        if let Value::Float(value) = value { Ok(Raw::copied(&value.to_ne_bytes())) } else { Err(Misfit::Other) }
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        text.parse().map(Value::Float).map_err(|_| PROBLEM.to_owned())
    }
}

const PROBLEM: &str = "write a number, such as -1.5 or 1e300, or NaN, inf or -inf";
