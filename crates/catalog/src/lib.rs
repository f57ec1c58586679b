//! Declarations of tables, columns, keys and indexes; row layouts; the order-preserving key codec.
//!
//! Invariant: everything here is fixed when a table is created and is read without synchronization
//! afterwards. Tables derived from a Rust struct and tables declared at run time get the same layout and the
//! same keys, byte for byte.
//!
//! The page order is the order of use. A table is declared ([`TableDef`], or [`Table`] by derive) and placed
//! ([`Layout`]). Its rows are written and read ([`RowWriter`], [`RowRef`], one [`Column`] type for each Rust type).
//! They are found by [`Key`]s ([`TableKey`] where types are known, [`KeyCodec`] where only the schema is).
//!
//! ```
//! use seriatim_catalog::{ColumnDef, ColumnType, Decimal, Key, KeyCodec, Table, TableDef, TableKey, Text};
//! use seriatim_macros::Table;
//!
//! #[derive(Table)]
//! #[table(name = "account", key(branch, id), index(name = "by_owner", columns(owner)), crate = "seriatim_catalog")]
//! struct Account {
//!     branch: u16,
//!     id: u32,
//!     owner: Text<20>,
//!     balance: Decimal<2>,
//! }
//!
//! // The same table, declared at run time.
//! let declared = TableDef::builder("account")
//!     .column(ColumnDef::new("branch", ColumnType::U16))
//!     .column(ColumnDef::new("id", ColumnType::U32))
//!     .column(ColumnDef::new("owner", ColumnType::Text { max: 20 }))
//!     .column(ColumnDef::new("balance", ColumnType::Decimal { scale: 2 }))
//!     .key(["branch", "id"])
//!     .index("by_owner", ["owner"])
//!     .finish()?;
//! assert_eq!(Account::definition(), declared);
//!
//! let row = Account { branch: 1, id: 7, owner: Text::new("ann")?, balance: "10.50".parse()? };
//! row.key().encode(|key| {
//!     assert_eq!(key, Key::Word8(0x0001_0000_0007));
//!     assert_eq!(KeyCodec::for_table(&declared).describe(key), "branch 1, id 7");
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod addend;
mod check;
mod codec;
mod column;
mod column_set;
mod conversion;
mod error;
pub mod evolution;
pub mod expression;
mod kept;
mod key;
mod key_writer;
mod layout;
mod order;
mod parts;
mod range;
mod reference;
mod row;
mod run;
mod schema;
mod sequence;
mod stored;
mod table;
mod types;
mod value;
pub mod watch;
pub mod wire;
mod writer;

pub use access::{Access, Grantee, Object, Privileges, Rights, RoleDef, Secret, WrittenGrant};
pub use addend::Addend;
pub use check::{BrokenCheck, CheckDef, Checks};
pub use codec::{KeyCodec, KeyPlace, PartitionValue, RowWord};
pub use column::{Column, StoredRef, StoredSet};
pub use column_set::{ColumnSet, ColumnUse};
pub use conversion::{Conversion, copy_row};
pub use error::{OutOfMemory, SchemaError};
pub use kept::KeptRow;
pub use key::{Key, KeyBuf, KeyClass, KeyFormat};
pub use key_writer::KeyWriter;
pub use layout::{ColumnLocation, ColumnSpec, Layout, RowPart, RowSizes, place, row_sizes};
pub use order::KeyColumn;
pub use parts::{KeyParts, KeyPrefix, TableKey};
pub use range::KeyRange;
pub use reference::{Checked, ColumnOrder, Found, OnChange, ReferenceDef, check_references};
pub use row::{RowRef, out_of_line};
pub use run::Run;
pub use schema::{
    ColumnDef, IndexDef, KeyPart, Organization, PartName, Partitioning, TableBuilder, TableDef, asc, desc,
};
pub use sequence::{
    Identity, IdentityKind, IdentityTable, RowId, SequenceChange, SequenceDef, SequenceNumber, SequenceOptions,
    TableWithoutKey,
};
pub use seriatim_base::{ColumnId, IndexId};
pub use std::cmp::Reverse;
pub use stored::Stored;
pub use table::{IndexSpec, IndexedBy, OrderedTable, Table, TableColumn, TableColumns, kind};
pub use types::bytes::{Bytes, TooLong};
pub use types::date::Date;
pub use types::date_time::DateTime;
pub use types::decimal::{Decimal, DecimalError, Overflow};
pub use types::enumeration::{Variant, Variants, no_variant};
pub use types::integer::IntegerType;
pub use types::interval::{Interval, IntervalError};
pub use types::numeric::Numeric;
pub use types::scalar::{Scalar, ScalarType};
pub use types::text::Text;
pub use types::time::Time;
pub use types::timestamp::{TimeError, Timestamp};
pub use types::{ColumnType, ParseError};
pub use uuid::Uuid;
pub use value::{Value, ValueError};
pub use writer::{NoOutOfLine, OutOfLineStore, RowWriter};
