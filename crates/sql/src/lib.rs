//! SQL for Seriatim, with the meaning of PostgreSQL 15.
//!
//! A text becomes statements ([`text`]), whose names are bound to tables and whose expressions are those of the
//! catalogue ([`expression`]). Queries find their rows by keys and indexes where conditions permit it ([`from`]). A
//! [`Session`] runs statements as transactions of the database. `docs/sql.md` says what there is and what is not.
//!
//! Invariant: this crate does no I/O. It answers with values; who asked for them is not its business.

mod aggregate;
mod array;
mod binary;
mod copy;
mod ddl;
mod error;
mod expression;
mod form;
mod from;
mod locking;
mod names;
mod point;
mod roles;
mod rows;
mod run;
mod select;
mod sequence;
mod session;
mod set;
mod subquery;
mod surroundings;
mod system;
mod text;
mod types;
mod write;

pub use binary::{Format, read as read_value, write as write_value};
pub use error::{Report, SqlError, SqlState};
pub use expression::VERSION;
pub use run::bytes_of_rows;
pub use select::{Column, Row};
pub use session::{Answer, Failure, Prepared, Session, Status};
pub use text::{Part, split, without_password};
pub use types::SqlType;

/// The stack that a thread needs to run any statement. Debug builds need most of it, others a part.
pub const STACK_BYTES: usize = 8 << 20;
