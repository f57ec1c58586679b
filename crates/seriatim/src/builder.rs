//! How a database is opened.

use std::sync::Arc;
use std::time::Duration;

use seriatim_htm::{Budget, Htm, HtmMode};
use seriatim_memory::{Memory, Options};
use seriatim_txn::{Environment, Epochs};

use crate::procedure::Shape;
use crate::{Database, OpenError, RetryPolicy};

/// Options of a database; every one has a default.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) protocol: String,
    pub(crate) htm: HtmMode,
    pub(crate) budget: Budget,
    pub(crate) workers: usize,
    pub(crate) prefault_bytes: usize,
    pub(crate) huge_pages: bool,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) record_history: bool,
    pub(crate) retry: RetryPolicy,
    pub(crate) transaction_age_max: Duration,
    pub(crate) epoch_interval: Duration,
    pub(crate) step_helpers: bool,
    pub(crate) operations_max: u32,
    pub(crate) seed: u64,
    pub(crate) prefetch: bool,
    pub(crate) shape: Shape,
    pub(crate) check_plans: bool,
    #[cfg(feature = "canary")]
    pub(crate) fault: seriatim_txn::Fault,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            protocol: "auto".to_owned(),
            htm: HtmMode::Auto,
            budget: Budget::default(),
            workers: 64,
            prefault_bytes: 0,
            huge_pages: true,
            memory_limit: None,
            record_history: false,
            retry: RetryPolicy::default(),
            transaction_age_max: Duration::from_secs(60),
            epoch_interval: Duration::from_millis(10),
            step_helpers: false,
            operations_max: 1 << 16,
            seed: 0,
            prefetch: true,
            shape: Shape::Whole,
            check_plans: false,
            #[cfg(feature = "canary")]
            fault: seriatim_txn::Fault::None,
        }
    }
}

impl Builder {
    /// The protocol by name, or `auto`. [`crate::protocols`] lists them. Default `auto`.
    pub fn protocol(mut self, name: &str) -> Builder {
        name.clone_into(&mut self.protocol);
        self
    }

    /// How regions run. Default [`HtmMode::Auto`]: in hardware where it works.
    pub fn htm(mut self, mode: HtmMode) -> Builder {
        self.htm = mode;
        self
    }

    /// Retries of a region, per cause, before its fallback. Default as in the DBX paper, §6.1.
    pub fn region_budget(mut self, budget: Budget) -> Builder {
        self.budget = budget;
        self
    }

    /// Transactions that can be open at the same time. Default 64.
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = workers;
        self
    }

    /// Bytes to map and touch now, so that no transaction waits for fresh pages. Default 0.
    pub fn prefault(mut self, bytes: usize) -> Builder {
        self.prefault_bytes = bytes;
        self
    }

    /// Whether to ask the kernel for large pages. Default yes.
    pub fn huge_pages(mut self, wanted: bool) -> Builder {
        self.huge_pages = wanted;
        self
    }

    /// Bytes of rows and indexes beyond which writes are refused, for good, with [`TransactError::OutOfMemory`] (a new table with
    /// [`SchemaError::OutOfMemory`]). Default none.
    ///
    /// What counts is the memory that workers have taken for records, row versions, long texts and keys, nodes and buckets of
    /// indexes; in steps of 64 KiB for each worker, and more for what is larger. What does not count: what a transaction notes of
    /// its reads and writes while it is open, sessions, procedures, and the few megabytes that are mapped ahead of use.
    ///
    /// At the limit inserts, updates that make a new version, and new tables are refused; the transaction has no effect. Reads,
    /// scans, snapshots, deletes, however many at a time, and roll-backs allocate nothing and go on, so nothing is set aside for
    /// them. Updates go on as far as the versions that earlier ones replaced are given back.
    ///
    /// What was deleted can be used again when the transactions that were open at the time have ended, and the worker that
    /// deleted it has looked after it: after its own next transactions, or when it rests. It serves what has about the same size
    /// (in steps of an eighth); memory from 32 KiB on serves anything. Give the limit room for one open transaction's new
    /// versions, and for 256 KiB of free blocks of each size that a busy worker keeps at hand.
    ///
    /// [`TransactError::OutOfMemory`]: crate::TransactError::OutOfMemory
    /// [`SchemaError::OutOfMemory`]: crate::SchemaError::OutOfMemory
    pub fn memory_limit(mut self, bytes: usize) -> Builder {
        self.memory_limit = Some(bytes);
        self
    }

    /// Whether to record what every committed transaction read and wrote, for [`crate::history::check`]. Default no.
    pub fn record_history(mut self, wanted: bool) -> Builder {
        self.record_history = wanted;
        self
    }

    /// How conflicts are retried.
    pub fn retry(mut self, policy: RetryPolicy) -> Builder {
        self.retry = policy;
        self
    }

    /// How long a transaction may stay open; its next operation then fails. Default 60 s. Ages are counted in epochs.
    pub fn transaction_age_max(mut self, age: Duration) -> Builder {
        self.transaction_age_max = age;
        self
    }

    /// How often the epoch advances. Default 10 ms.
    pub fn epoch_interval(mut self, interval: Duration) -> Builder {
        self.epoch_interval = interval;
        self
    }

    /// No helper threads: [`Database::step`] does their work when called. For deterministic tests. Default no.
    pub fn step_helpers(mut self, wanted: bool) -> Builder {
        self.step_helpers = wanted;
        self
    }

    /// Operations of one attempt after which its read set is validated, and again after as many more; so that a body that
    /// loops over values that never existed together ends. Default 65,536.
    pub fn operations_max(mut self, operations: u32) -> Builder {
        self.operations_max = operations;
        self
    }

    /// Seeds the jitter of retries. Default 0.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.seed = seed;
        self
    }

    /// Whether procedures fetch what their arguments name into the processor's cache before they need it. Default yes; a
    /// session can change it for itself.
    pub fn prefetch(mut self, wanted: bool) -> Builder {
        self.prefetch = wanted;
        self
    }

    /// How registered procedures are run. Default [`Shape::Whole`].
    ///
    /// ```
    /// use seriatim::{Database, procedure::Shape};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::builder().shape(Shape::Pieces).check_plans(true).prefetch(false).open()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn shape(mut self, shape: Shape) -> Builder {
        self.shape = shape;
        self
    }

    /// Whether every access that a procedure makes is checked against its plan; one outside it panics. Slow, for tests. Columns
    /// read are checked in builds with debug assertions only. Executions in pieces and repairs are not checked. Default no.
    pub fn check_plans(mut self, wanted: bool) -> Builder {
        self.check_plans = wanted;
        self
    }

    /// Breaks the protocol deliberately, for tests that must notice.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub fn canary(mut self, fault: seriatim_txn::Fault) -> Builder {
        self.fault = fault;
        self
    }

    /// Opens the database.
    ///
    /// # Errors
    /// An unknown protocol, a back end that does not work here, limits out of range, no memory.
    pub fn open(self) -> Result<Database, OpenError> {
        let invalid = |what: &str| Err(OpenError::Invalid(what.to_owned()));
        if self.workers == 0 || self.workers > 4096 {
            return invalid("workers must be between 1 and 4096");
        }
        if self.retry.attempts_max == 0 || self.operations_max == 0 {
            return invalid("attempts_max and operations_max must be at least 1");
        }
        if self.epoch_interval.is_zero() || self.transaction_age_max < self.epoch_interval {
            return invalid("the epoch interval must be above zero and at most the transaction age");
        }
        let options = Options {
            workers_max: self.workers,
            huge_pages: self.huge_pages,
            prefault_bytes: self.prefault_bytes,
            limit_bytes: self.memory_limit,
        };
        let environment = Environment {
            htm: Htm::new(self.htm).map_err(OpenError::Htm)?,
            memory: Memory::new(options).map_err(|error| OpenError::Memory(error.to_string()))?,
            epochs: Arc::new(Epochs::default()),
            budget: self.budget,
            #[cfg(feature = "canary")]
            fault: self.fault,
        };
        Database::start(self, environment)
    }
}
