//! What a caller can set for one transaction.

use std::time::Duration;

use crate::builder::Builder;

/// Bounds of one transaction. What is not set here is as the session says ([`Session::set_options`](crate::Session::set_options)),
/// and what is not set there as the database's [`Builder`].
///
/// ```
/// # use std::time::Duration;
/// # use seriatim::{Database, Table, TransactionOptions};
/// # #[derive(Table)] #[table(name = "counter", key(id), hash)] struct Counter { id: u32, n: u64 }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = Database::in_memory()?;
/// # let counters = db.create::<Counter>()?;
/// # let mut session = db.session();
/// let brief = TransactionOptions::new().age_max(Duration::from_millis(500));
/// session.transact_with(&brief, |tx| tx.insert(&counters, &Counter { id: 7, n: 41 }))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// How long an attempt may be open: see [`Builder::transaction_age_max`].
    pub age_max: Option<Duration>,
}

impl TransactionOptions {
    /// Everything as the session or the database says.
    pub fn new() -> TransactionOptions {
        TransactionOptions::default()
    }

    /// How long an attempt may be open: its next call, or its commit, then fails with
    /// [`TransactError::TooOld`](crate::TransactError::TooOld). See [`Builder::transaction_age_max`].
    #[must_use]
    pub fn age_max(self, age: Duration) -> TransactionOptions {
        TransactionOptions { age_max: Some(age), ..self }
    }

    /// These, and of `others` what these leave open.
    pub(crate) fn or(&self, others: &TransactionOptions) -> TransactionOptions {
        TransactionOptions { age_max: self.age_max.or(others.age_max) }
    }

    /// What holds in a database that was opened so.
    pub(crate) fn bounds(&self, database: &Builder) -> Bounds {
        let age = self.age_max.unwrap_or(database.transaction_age_max);
        Bounds { age: u64::try_from(age.as_nanos()).unwrap_or(u64::MAX) }
    }
}

/// The bounds of the transactions that a session opens now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Nanoseconds that an attempt may be open.
    pub(crate) age: u64,
}
