//! Options that a caller can set for one transaction.

use std::time::Duration;

use crate::engine::Inner;

/// Bounds of one transaction. The session's options (`Session::set_options`) apply where none is set here, and
/// the database's [`Settings`](crate::Settings) where the session has none either.
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
    /// How long an attempt may be open: see [the setting](crate::Settings::transaction_age_max).
    pub age_max: Option<Duration>,
    /// How long a call waits until its result is durable: see [the setting](crate::Settings::wait_max).
    pub wait_max: Option<Duration>,
    /// Whether a snapshot shows earlier transactions of its session: see [`TransactionOptions::own_commits`].
    pub own_commits: Option<bool>,
    /// The weight of the commit: see [`TransactionOptions::weight`].
    pub weight: Option<u64>,
}

impl TransactionOptions {
    /// All options as the session or the database has them.
    pub fn new() -> TransactionOptions {
        TransactionOptions::default()
    }

    /// How long an attempt may be open. Its next call, or its commit, then fails with
    /// [`TransactError::TooOld`](crate::TransactError::TooOld). See the
    /// [setting](crate::Settings::transaction_age_max).
    #[must_use]
    pub fn age_max(self, age: Duration) -> TransactionOptions {
        TransactionOptions { age_max: Some(age), ..self }
    }

    /// How long a call waits for the disk until its result is durable. It then fails with
    /// [`TransactError::NotDurableYet`](crate::TransactError::NotDurableYet), which says whether the
    /// transaction may be committed. [`Duration::MAX`] has no bound: see [the setting](crate::Settings::wait_max).
    #[must_use]
    pub fn wait_max(self, wait: Duration) -> TransactionOptions {
        TransactionOptions { wait_max: Some(wait), ..self }
    }

    /// Whether a snapshot shows what its session committed and read before, and all commits before the session
    /// was opened. Default: yes. It matters where snapshots are made periodically
    /// ([`Freshness::Eventual`](seriatim_txn::Freshness)). If the newest snapshot lacks something of these, a
    /// new one is made when the transaction begins. Writers then keep a version of each row that they change
    /// next. Without this option a transaction takes the newest snapshot, whatever its age.
    #[must_use]
    pub fn own_commits(self, shown: bool) -> TransactionOptions {
        TransactionOptions { own_commits: Some(shown), ..self }
    }

    /// The weight of the commit, in any unit; 1 by default. Used by `occ-batch` with option `policy` 6: of
    /// conflicting transactions of a batch, one with the least weight is left out and runs again.
    #[must_use]
    pub fn weight(self, weight: u64) -> TransactionOptions {
        TransactionOptions { weight: Some(weight), ..self }
    }

    /// These options; `others` fills those that are not set.
    pub(crate) fn or(&self, others: &TransactionOptions) -> TransactionOptions {
        TransactionOptions {
            age_max: self.age_max.or(others.age_max),
            wait_max: self.wait_max.or(others.wait_max),
            own_commits: self.own_commits.or(others.own_commits),
            weight: self.weight.or(others.weight),
        }
    }

    /// The bounds in this database.
    pub(crate) fn bounds(&self, inner: &Inner) -> Bounds {
        let (database, resolution) = (&inner.options, inner.clock_resolution);
        let age = self.age_max.unwrap_or(database.transaction_age_max);
        let wait = match self.wait_max {
            None => database.wait_max,
            wait => wait.filter(|wait| *wait < Duration::MAX),
        };
        let nanoseconds = |age: Duration| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        Bounds {
            age: nanoseconds(age).saturating_add(resolution),
            snapshot_age: nanoseconds(age.min(database.snapshot_age_max)).saturating_add(resolution),
            wait,
            own_commits: self.own_commits.unwrap_or(true),
            weight: self.weight.unwrap_or(1),
        }
    }
}

/// The bounds of the transactions that a session opens now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Nanoseconds that an attempt may be open by the ticker's clock.
    pub(crate) age: u64,
    /// Nanoseconds that a read-only attempt may be open.
    pub(crate) snapshot_age: u64,
    /// How long a result waits until it is durable.
    pub(crate) wait: Option<Duration>,
    /// Whether snapshots show earlier transactions of the session.
    pub(crate) own_commits: bool,
    /// The weight of the commit.
    pub(crate) weight: u64,
}
