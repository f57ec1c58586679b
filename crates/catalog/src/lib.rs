//! What tables, columns, keys and indexes exist; row layouts; the order-preserving key codec.
//!
//! Invariant: everything here is fixed when a table is created and is read without synchronization afterwards. Tables derived
//! from a Rust struct and tables declared at run time get the same layout and the same keys, byte for byte.
//!
//! The page order is the order of use: a table is declared ([`TableDef`], or [`Table`] by derive), placed ([`Layout`]), its rows
//! are written and read ([`RowWriter`], [`RowRef`], one [`Column`] type for each Rust type), and found by [`Key`]s
//! ([`TableKey`] where types are known, [`KeyCodec`] where only the schema is).

mod bytes;
mod codec;
mod column;
mod column_set;
mod decimal;
mod error;
mod key;
mod key_writer;
mod layout;
mod parts;
mod range;
mod row;
mod schema;
mod table;
mod text;
mod timestamp;
mod value;
mod writer;

pub use bytes::{Bytes, TooLong};
pub use codec::KeyCodec;
pub use column::{Column, KeyColumn};
pub use column_set::ColumnSet;
pub use decimal::{Decimal, DecimalError};
pub use error::{OutOfMemory, SchemaError};
pub use key::{Key, KeyBuf, KeyClass, KeyShape};
pub use key_writer::KeyWriter;
pub use layout::{ColumnSpec, ImageBytes, Layout, Part, Place, image_bytes, place};
pub use parts::{KeyParts, KeyPrefix, TableKey};
pub use range::KeyRange;
pub use row::{RowRef, tail};
pub use schema::{ColumnDef, ColumnType, IndexDef, KeyPart, Organization, PartName, TableBuilder, TableDef, asc, desc};
pub use seriatim_base::{ColumnId, IndexId};
pub use std::cmp::Reverse;
pub use table::{IndexSpec, Table};
pub use text::Text;
pub use timestamp::Timestamp;
pub use value::{Value, ValueError};
pub use writer::{RowWriter, TailStore};
