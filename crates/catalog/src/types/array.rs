//! Bytes of a fixed number: hashes, keys of other systems, addresses.
//!
//! ```
//! use seriatim_catalog::{Key, Table, TableKey};
//!
//! #[derive(seriatim_macros::Table)]
//! #[table(key(digest), crate = "seriatim_catalog")]
//! struct File {
//!     digest: [u8; 32],
//!     address: Option<[u8; 4]>,
//! }
//!
//! assert_eq!(File::definition().columns[0].ty.to_string(), "[u8; 32]");
//! // Up to 16 bytes are an integer in a key.
//! [1u8, 2, 3].encode(|key| assert_eq!(key, Key::Word8(0x01_02_03)));
//! ```

use std::fmt;

use super::{Misfit, Raw, Rules, without_room};
use crate::column::by_value;
use crate::value::into_value;
use crate::{Stored, Value};

by_value! {
    [<const N: usize>] [u8; N] => <[u8; N] as Stored>::TYPE, [u8; N], |stored| stored, |value| value;
}

into_value! {
    [<const N: usize>] [u8; N], |value| Value::Bytes(value.to_vec());
}

pub(super) struct Array {
    pub(super) bytes: u16,
}

impl Rules for Array {
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[u8; {}]", self.bytes)
    }

    fn problem(&self) -> Option<String> {
        without_room(self.bytes)
    }

    fn value(&self, stored: &[u8]) -> Value {
        Value::Bytes(stored.to_vec())
    }

    fn stored<'v>(&self, value: &'v Value) -> Result<Raw<'v>, Misfit> {
        Raw::of_bytes(value).and_then(|bytes| match bytes.len() == usize::from(self.bytes) {
            true => Ok(bytes),
            false => Err(Misfit::Other),
        })
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        let bytes = super::bytes::of_hexadecimal(text).filter(|bytes| bytes.len() == usize::from(self.bytes));
        bytes.map(Value::Bytes).ok_or_else(|| format!("write {} hexadecimal digits", 2 * u32::from(self.bytes)))
    }
}
