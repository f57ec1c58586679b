//! Procedures: transactions declared beforehand, as a set, from which plans are derived.
//!
//! A procedure is written once, as a function. The attribute macro translates it to data ([`ir::Procedure`]) and to
//! the code of each execution mode ([`Declared`]). [`Database::register`](crate::Database::register) resolves and
//! analyses the set. [`Session::call`](crate::Session::call) runs a procedure. The analysed data and the executed
//! code come from the same tokens.
//!
//! ```
//! use seriatim::{Abort, Database, Table, Tx, procedure, procedures};
//!
//! #[derive(Table)]
//! #[table(name = "account", key(id), hash)]
//! struct Account {
//!     id: u64,
//!     balance: i64,
//! }
//!
//! /// Moves money; returns what is left.
//! #[procedure]
//! fn transfer(tx: &Tx, from: u64, to: u64, amount: i64) -> Result<i64, Abort> {
//!     let left = tx.update::<Account>(from, |account| {
//!         account.balance -= amount;
//!         account.balance
//!     })?;
//!     tx.update::<Account>(to, |account| account.balance += amount)?;
//!     Ok(left)
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = Database::in_memory()?;
//! let accounts = db.create::<Account>()?;
//! let mut session = db.session();
//! session.transact(|tx| (1..=2).try_for_each(|id| tx.insert(&accounts, &Account { id, balance: 100 })))?;
//!
//! db.register(procedures![transfer])?;
//! assert_eq!(session.call(transfer, &(1, 2, 30))?.value, 70);
//! assert_eq!(session.interpret(transfer, &(1, 2, 30))?.value, 40);
//! println!("{}", db.plan("transfer").expect("it is registered"));
//! # Ok(())
//! # }
//! ```

pub(crate) mod call;
pub(crate) mod check;
#[cfg(test)]
mod columns;
mod declared;
pub mod divided;
mod interpret;
mod kept;
pub(crate) mod registered;
pub(crate) mod registry;
mod represented;
#[cfg(test)]
mod runs;
mod schedule;
mod slots;
#[doc(hidden)]
pub mod support;
mod touch;
mod values;

pub use seriatim_engine::procedure::{Aborted, ExecutionMode};
pub use seriatim_procedure::analysis::{ChopError, Refusal, Refusals};
pub use seriatim_procedure::{
    Data, DataType, EvaluationError, IntegerType, Pack, Pure, Scalar, Value, checked, field, ir, methods, pack, plan,
    show,
};

pub use seriatim_procedure_macros::{procedure, pure};

pub use declared::{Declared, Number, Procedures};
pub use registry::{Everywhere, RegisterError, Registration, Repieced, Uncut};
pub use schedule::{Next, Schedule};
pub use touch::{Access, Keys, Touch};
