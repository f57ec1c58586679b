//! What a caller can set for one transaction.

use std::time::Duration;

use crate::settings::Settings;

/// Bounds of one transaction. What is not set here is as the session says (`Session::set_options`),
/// and what is not set there as the database's [`Settings`].
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
    /// How long an attempt may be open: see [`Settings::transaction_age_max`].
    pub age_max: Option<Duration>,
    /// How long a call waits until its result is durable: see [`Settings::wait_max`]. [`Duration::MAX`] is for as long as it takes.
    pub wait_max: Option<Duration>,
    /// Whether a snapshot shows what its session did before: see [`TransactionOptions::own_commits`].
    pub own_commits: Option<bool>,
    /// What the commit is worth: [`TransactionOptions::weight`].
    pub weight: Option<u64>,
}

impl TransactionOptions {
    /// Everything as the session or the database says.
    pub fn new() -> TransactionOptions {
        TransactionOptions::default()
    }

    /// How long an attempt may be open: its next call, or its commit, then fails with
    /// [`TransactError::TooOld`](crate::TransactError::TooOld). See [`Settings::transaction_age_max`].
    #[must_use]
    pub fn age_max(self, age: Duration) -> TransactionOptions {
        TransactionOptions { age_max: Some(age), ..self }
    }

    /// How long a call waits for the disk until its result is durable: it then fails with
    /// [`TransactError::NotDurableYet`](crate::TransactError::NotDurableYet), which says whether it may be committed. With
    /// [`Duration::MAX`] it waits for as long as it takes. See [`Settings::wait_max`].
    #[must_use]
    pub fn wait_max(self, wait: Duration) -> TransactionOptions {
        TransactionOptions { wait_max: Some(wait), ..self }
    }

    /// Whether a snapshot shows what its session committed and read before, and what had committed when the session was opened: yes,
    /// unless it is told otherwise. It matters where snapshots are made every so often
    /// ([`Freshness::Eventual`](seriatim_txn::Freshness)): a snapshot that is to show what the newest lacks is made when it begins, which
    /// costs those that write a version of each row they change next. One that need not show it is as old as it happens to be.
    #[must_use]
    pub fn own_commits(self, shown: bool) -> TransactionOptions {
        TransactionOptions { own_commits: Some(shown), ..self }
    }

    /// What the commit is worth, in whatever unit; 1 unless it is said. Under `occ-batch` with option `policy` 6, of transactions of a batch
    /// that are in each other's way one with the least weight is left out, and runs again; others pay no attention to it.
    #[must_use]
    pub fn weight(self, weight: u64) -> TransactionOptions {
        TransactionOptions { weight: Some(weight), ..self }
    }

    /// These, and of `others` what these leave open.
    pub(crate) fn or(&self, others: &TransactionOptions) -> TransactionOptions {
        TransactionOptions {
            age_max: self.age_max.or(others.age_max),
            wait_max: self.wait_max.or(others.wait_max),
            own_commits: self.own_commits.or(others.own_commits),
            weight: self.weight.or(others.weight),
        }
    }

    /// What holds in a database that was opened so.
    pub(crate) fn bounds(&self, database: &Settings) -> Bounds {
        let age = self.age_max.unwrap_or(database.transaction_age_max);
        let wait = match self.wait_max {
            None => database.wait_max,
            wait => wait.filter(|wait| *wait < Duration::MAX),
        };
        let nanoseconds = |age: Duration| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        Bounds {
            age: nanoseconds(age),
            snapshot_age: nanoseconds(age.min(database.snapshot_age_max)),
            wait,
            own_commits: self.own_commits.unwrap_or(true),
            weight: self.weight.unwrap_or(1),
        }
    }
}

/// The bounds of the transactions that a session opens now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Nanoseconds that an attempt may be open.
    pub(crate) age: u64,
    /// Nanoseconds that an attempt may be open that only reads.
    pub(crate) snapshot_age: u64,
    /// How long a result waits until it is durable.
    pub(crate) wait: Option<Duration>,
    /// Whether snapshots show what the session did before.
    pub(crate) own_commits: bool,
    /// What its commit is worth.
    pub(crate) weight: u64,
}
