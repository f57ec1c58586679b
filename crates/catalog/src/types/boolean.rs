//! Truth values.

use super::{Misfit, Raw, Rules, named};
use crate::column::by_value;
use crate::value::into_value;
use crate::{ColumnType, Value};

by_value! {
    [] bool => ColumnType::Bool, u8, |stored| stored != 0, |value| u8::from(value);
}

into_value! {
    [] bool, |value| Value::Bool(value);
}

pub(super) struct Boolean;

impl Rules for Boolean {
    named!("bool");

    fn value(&self, stored: &[u8]) -> Value {
        Value::Bool(stored != [0])
    }

    fn stored<'v>(&self, value: &'v Value) -> Result<Raw<'v>, Misfit> {
        if let Value::Bool(value) = *value { Ok(Raw::copied(&[value.into()])) } else { Err(Misfit::Other) }
    }

    /// Words that PostgreSQL takes too.
    fn parse(&self, text: &str) -> Result<Value, String> {
        match &*text.to_ascii_lowercase() {
            "true" | "t" | "yes" | "y" | "on" | "1" => Ok(Value::Bool(true)),
            "false" | "f" | "no" | "n" | "off" | "0" => Ok(Value::Bool(false)),
            _ => Err("write true or false".to_owned()),
        }
    }

    fn is_valid(&self, stored: &[u8]) -> bool {
        stored[0] <= 1
    }
}
