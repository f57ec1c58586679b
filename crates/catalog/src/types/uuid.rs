//! Universally unique identifiers (RFC 9562), of the crate `uuid`.
//!
//! ```
//! use seriatim_catalog::{ColumnType, TableKey, Uuid, Value};
//! let id = Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8);
//! assert_eq!(ColumnType::Uuid.parse("67e55044-10b1-426f-9247-bb680e5fe0c8")?, Value::from(id));
//! // In order of their bytes; one is a key of two words.
//! assert!(Uuid::nil().to_buf() < id.to_buf() && id.to_buf() < Uuid::max().to_buf());
//! # Ok::<(), seriatim_catalog::ParseError>(())
//! ```

use uuid::Uuid;

use super::scalar::scalar;

scalar! {
    Uuid, "uuid", Identifier => Uuid, [u8; 16], |stored| Uuid::from_bytes(stored), |value| value.into_bytes(),
    |text| text.parse().map_err(|_| {
        "write 32 hexadecimal digits, such as 67e55044-10b1-426f-9247-bb680e5fe0c8".to_owned()
    });
}
