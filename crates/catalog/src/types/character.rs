//! Characters: Unicode scalar values.
//!
//! ```
//! use seriatim_catalog::{ColumnType, Value};
//! assert_eq!(ColumnType::Char.parse("é")?, Value::from('é'));
//! assert!(ColumnType::Char.parse("ab").is_err());
//! # Ok::<(), seriatim_catalog::ParseError>(())
//! ```

use super::scalar::scalar;

scalar! {
    char, "char", Character => Char, u32,
    |stored| char::from_u32(stored).unwrap_or(char::REPLACEMENT_CHARACTER), |value| value.into(),
    |text| text.parse().map_err(|_| "write one character".to_owned());
}
