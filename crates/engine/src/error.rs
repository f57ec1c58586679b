//! Errors, one type for each stage: opening, declaring, transacting. Each message says what was wrong and what
//! would be right.

use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::process::FORKED;
use seriatim_catalog::evolution::NotConverted;
use seriatim_catalog::expression::EvaluationError;
use seriatim_catalog::{BrokenCheck, ColumnType, TableDef};
use seriatim_procedure::checked::Overflow;
use seriatim_txn::{Cause, OptionError, Reason};

pub(crate) use seriatim_catalog::SchemaError as InvalidSchema;
pub use seriatim_redo::LogError as StorageError;

/// Why a database could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// No protocol of that name.
    UnknownProtocol {
        /// The name that was requested.
        name: String,
    },
    /// An option that the protocol does not have, or a value that it does not take.
    Option(OptionError),
    /// The protocol needs regions, and there are none.
    NeedsRegions {
        /// The protocol.
        protocol: &'static str,
    },
    /// The requested region back end does not work on this machine.
    Htm(seriatim_htm::Unavailable),
    /// The operating system did not provide the memory.
    Memory(String),
    /// A setting is out of its range.
    Setting {
        /// The method of `Builder` that sets it, with the field if it takes a struct.
        setting: &'static str,
        /// The value that was given.
        value: String,
        /// The permitted values, in words.
        permitted: String,
    },
    /// Settings contradict each other, or the database.
    Invalid(String),
    /// A helper thread could not be started.
    Thread(std::io::Error),
    /// The directory, which was to be opened for reading only, has no database.
    NoDatabase {
        /// The directory.
        directory: PathBuf,
    },
    /// Another process, or another `Database` of this one, has the directory open.
    Locked {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory could not be read or written, or is damaged.
    Storage(StorageError),
}

impl From<StorageError> for OpenError {
    fn from(error: StorageError) -> OpenError {
        OpenError::Storage(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::UnknownProtocol { name } => {
                write!(f, "there is no protocol {name:?}; it is one of auto")?;
                crate::protocols().iter().try_for_each(|protocol| write!(f, ", {}", protocol.name))
            }
            OpenError::Option(error) => error.fmt(f),
            OpenError::NeedsRegions { protocol } => {
                write!(
                    f,
                    "protocol {protocol} needs regions: choose those of the processor if it has them (`--htm rtm`), \
                     emulated ones, which are slow and work everywhere (`--htm emulated`), or another protocol"
                )
            }
            OpenError::Htm(error) => error.fmt(f),
            OpenError::Memory(error) => write!(f, "no memory: {error}"),
            OpenError::Setting { setting, value, permitted } => {
                write!(f, "the setting {setting} is {value}; it can be {permitted}")
            }
            OpenError::Invalid(what) => f.write_str(what),
            OpenError::Thread(error) => write!(f, "a helper thread could not be started: {error}"),
            OpenError::NoDatabase { directory } => write!(f, "there is no database in {}", directory.display()),
            OpenError::Locked { directory } => {
                write!(f, "the database in {} is open already, perhaps in another process", directory.display())
            }
            OpenError::Storage(error) => error.fmt(f),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OpenError::Htm(error) => Some(error),
            OpenError::Thread(error) => Some(error),
            OpenError::Storage(error) => Some(error),
            _ => None,
        }
    }
}

/// A database was closed, and not all committed transactions are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseError {
    /// Every transaction of an epoch up to this one is durable ([`Receipt::epoch`](crate::Receipt::epoch)).
    /// Writes of later epochs are lost, unless the next opening finds them on the disk.
    pub durable_epoch: seriatim_base::Epoch,
    /// Bytes of log that were not flushed.
    pub lost_bytes: u64,
    /// Why the rest is not durable.
    pub reason: String,
}

impl CloseError {
    pub(crate) fn new(durable_epoch: seriatim_base::Epoch, lost_bytes: u64, reason: &str) -> CloseError {
        CloseError { durable_epoch, lost_bytes, reason: reason.to_owned() }
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CloseError { durable_epoch, lost_bytes, reason } = self;
        write!(
            f,
            "commits after epoch {} are not durable, {lost_bytes} bytes of log are lost: {reason}",
            durable_epoch.0
        )
    }
}

impl Error for CloseError {}

/// Why a table could not be declared or found.
#[derive(Debug)]
#[non_exhaustive]
pub enum SchemaError {
    /// The definition contradicts itself.
    Invalid(InvalidSchema),
    /// A table of that name exists already.
    Exists(String),
    /// No table of that name.
    Unknown(String),
    /// A sequence of that name exists already.
    SequenceExists(String),
    /// No sequence of that name.
    UnknownSequence(String),
    /// The sequence belongs to an identity column, and is dropped with it.
    SequenceOwned {
        /// The sequence.
        sequence: String,
        /// The table.
        table: String,
    },
    /// The table exists with another definition than the type declares.
    Mismatch {
        /// The table.
        table: String,
        /// What differs, in words.
        difference: String,
    },
    /// The memory limit leaves no room for the table.
    OutOfMemory {
        /// A transaction that keeps memory from being used again, as in [`TransactError::OutOfMemory`].
        held: Option<MemoryHeld>,
    },
    /// The database has as many tables and indexes as it can have.
    TooMany {
        /// How many that is.
        most: usize,
    },
    /// All workers are busy.
    WorkersBusy,
    /// The rows of the table, other tables, or the state of the transaction do not allow the change. Nothing was
    /// changed.
    Refused {
        /// The table.
        table: String,
        /// What does not allow it.
        reason: Box<Refusal>,
        /// The reason in words.
        problem: String,
    },
    /// A registered procedure uses the table in a way that the change ends. Nothing was changed.
    InUse {
        /// The table.
        table: String,
        /// The procedure.
        procedure: String,
        /// What it would lack.
        problem: String,
    },
    /// A transaction stayed open for longer than 10 s. Nothing was changed.
    Busy,
    /// An operation of the change failed. In an explicit transaction it met a conflict, for example. Then the
    /// transaction must be rolled back, and can begin again if the error [is retryable](TransactError::is_retryable).
    Transact(Box<TransactError>),
    /// The tables were changed, but the registered procedures could not be analysed again.
    Analysis(String),
    /// The declaration could not be written to the database's directory. If the disk became full meanwhile, the table
    /// exists, and becomes durable when there is space.
    Storage(Box<StorageError>),
}

/// What does not allow a change of a table: see [`SchemaError::Refused`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Two rows have one key of a unique index.
    Duplicate {
        /// The index, or the table's name and `_pkey`.
        constraint: String,
    },
    /// A row does not meet a condition.
    Check {
        /// The condition.
        constraint: String,
    },
    /// A row would refer to a row that does not exist.
    ForeignKey {
        /// The foreign key.
        constraint: String,
        /// The table to which it refers.
        referenced: String,
    },
    /// A row has NULL in a column that may not be NULL afterwards.
    Null {
        /// The column.
        column: String,
    },
    /// A row has a value that is none of its column afterwards.
    Value {
        /// The column.
        column: String,
        /// Its type afterwards.
        ty: ColumnType,
    },
    /// Rows of another table refer to the table, or can.
    Referenced {
        /// The foreign key.
        constraint: String,
        /// The table that has it.
        by: String,
    },
    /// The transaction has put off checks of rows of the table.
    Deferred,
    /// The transaction may come before others that have used the table since it began.
    Late,
    /// Another call has changed the table meanwhile.
    Changed,
    /// A row has no room in what the change builds: no memory, or none in the log.
    NoRoom,
}

/// What does not allow a change of a table, and in words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    reason: Refusal,
    says: String,
}

impl Problem {
    pub(crate) fn new(reason: Refusal, says: impl Into<String>) -> Problem {
        Problem { reason, says: says.into() }
    }

    /// Of a row that was not written.
    pub(crate) fn of_row(error: &TransactError) -> Option<Problem> {
        let reason = match error {
            TransactError::Duplicate { constraint, .. } => Refusal::Duplicate { constraint: constraint.to_string() },
            TransactError::Check { constraint, .. } => Refusal::Check { constraint: constraint.to_string() },
            _ => return None,
        };
        Some(Problem::new(reason, error.to_string()))
    }

    /// The error of a change of this table.
    pub(crate) fn of(self, table: &str) -> SchemaError {
        SchemaError::Refused { table: table.to_owned(), reason: Box::new(self.reason), problem: self.says }
    }
}

impl From<NotConverted> for Problem {
    fn from(error: NotConverted) -> Problem {
        let (says, NotConverted { column, ty, is_null, .. }) = (error.to_string(), error);
        Problem::new(if is_null { Refusal::Null { column } } else { Refusal::Value { column, ty } }, says)
    }
}

impl From<BrokenCheck> for Problem {
    fn from(BrokenCheck { constraint, row, error }: BrokenCheck) -> Problem {
        let says = format!("a row violates condition `{constraint}`: {}", ViolatingRow { values: row, error });
        Problem::new(Refusal::Check { constraint }, says)
    }
}

impl SchemaError {
    pub(crate) fn storage(error: StorageError) -> SchemaError {
        SchemaError::Storage(Box::new(error))
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaError::Invalid(error) => error.fmt(f),
            SchemaError::Exists(name) => write!(f, "table {name:?} exists already; use `table` to open it"),
            SchemaError::Unknown(name) => write!(f, "there is no table {name:?}; `create` or `declare` makes it"),
            SchemaError::SequenceExists(name) => {
                write!(f, "sequence {name:?} exists already; `sequence` opens it, and `alter_sequence` changes it")
            }
            SchemaError::UnknownSequence(name) => {
                write!(f, "there is no sequence {name:?}; `create_sequence` of a migration makes it")
            }
            SchemaError::SequenceOwned { sequence, table } => write!(
                f,
                "sequence {sequence:?} was not dropped: it gives the numbers of an identity column of table {table:?}, \
                 with which it is dropped"
            ),
            SchemaError::Mismatch { table, difference } => {
                write!(f, "table {table:?} is not the one this type declares: {difference}")
            }
            SchemaError::TooMany { most } => {
                write!(
                    f,
                    "a database has at most {most} tables and indexes, with those that conversions have replaced until \
                     it is opened after a checkpoint: put rows of several kinds into one table"
                )
            }
            SchemaError::OutOfMemory { held: None } => {
                f.write_str("the memory limit leaves no room for the table; delete rows or raise the limit")
            }
            SchemaError::OutOfMemory { held: Some(held) } => {
                write!(f, "the memory limit leaves no room for the table, and {held}")
            }
            SchemaError::Refused { table, problem, .. } => {
                write!(f, "table {table:?} was not changed: {problem}")
            }
            SchemaError::InUse { table, procedure, problem } => {
                write!(f, "table {table:?} was not changed: procedure {procedure} uses it, and {problem}")
            }
            SchemaError::Analysis(problem) => {
                write!(f, "the tables were changed, and the procedures could not be analysed again: {problem}")
            }
            SchemaError::Busy => f.write_str(
                "nothing was changed: a transaction stayed open for longer than 10 s, or another change waits for \
                     this one to end; end it, or try again",
            ),
            SchemaError::Transact(error) => write!(f, "nothing was changed: {error}"),
            SchemaError::WorkersBusy => f.write_str("every worker has an open transaction; allow more workers"),
            SchemaError::Storage(error) => error.fmt(f),
        }
    }
}

impl Error for SchemaError {}

/// Why a transaction's body must stop. Pass it on with `?`: the session of a closure turns it into a retry or a
/// [`TransactError`]. An abort keeps its own cause, whatever the transaction does afterwards. An abort of an
/// explicit transaction carries the complete error, and `?` converts it to a [`TransactError`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Abort(AbortDetail);

/// It is as large as its kind alone, since most operations return it.
#[derive(Debug, Clone)]
enum AbortDetail {
    /// The kind says all, or the session knows the rest.
    Kind(AbortKind),
    /// The complete error.
    Error(Arc<(AbortKind, TransactError)>),
}

const _: () = assert!(size_of::<Abort>() == size_of::<AbortKind>());

impl PartialEq for Abort {
    fn eq(&self, other: &Abort) -> bool {
        self.kind() == other.kind()
    }
}

impl Eq for Abort {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbortKind {
    /// The protocol ended the attempt.
    Stopped(Cause),
    /// The key exists.
    Duplicate,
    /// The row does not meet a condition.
    Check,
    /// A row that must exist does not.
    Missing,
    /// A row refers to none, or is referred to.
    ForeignKey,
    /// A number left the range of its type, at this place if it is known.
    Overflow(Option<&'static Location<'static>>),
    /// The body's own error.
    User,
}

impl Abort {
    pub(crate) fn new(kind: AbortKind) -> Abort {
        Abort(AbortDetail::Kind(kind))
    }

    /// An abort of this kind that carries this error.
    pub(crate) fn explained(kind: AbortKind, error: TransactError) -> Abort {
        Abort(AbortDetail::Error(Arc::new((kind, error))))
    }

    pub(crate) fn kind(&self) -> AbortKind {
        match &self.0 {
            AbortDetail::Kind(kind) => *kind,
            AbortDetail::Error(detail) => detail.0,
        }
    }

    /// Whether it carries the complete error.
    pub(crate) fn is_explained(&self) -> bool {
        matches!(self.0, AbortDetail::Error(_))
    }

    /// Phase and reason, if the protocol ended the attempt.
    pub fn cause(&self) -> Option<Cause> {
        match self.kind() {
            AbortKind::Stopped(cause) => Some(cause),
            _ => None,
        }
    }

    /// Whether running the transaction again can help.
    pub fn is_retryable(&self) -> bool {
        self.cause().is_some_and(|cause| cause.reason.is_conflict())
    }

    /// An abort for arithmetic that left the range of its type.
    #[cold]
    pub(crate) fn overflow(place: Option<&'static Location<'static>>) -> Abort {
        Abort::new(AbortKind::Overflow(place))
    }

    pub(crate) fn stopped(reason: Reason) -> Abort {
        Abort::new(AbortKind::Stopped(Cause { phase: seriatim_txn::Phase::Execute, reason }))
    }
}

/// A setter found no memory for a long text. Pass it on with `?`: the transaction ends with
/// [`TransactError::OutOfMemory`].
///
/// ```
/// # use seriatim::{Abort, Database, Table};
/// # #[derive(Table)] #[table(name = "note", key(id), hash)] struct Note { id: u32, text: String }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = Database::in_memory()?;
/// # let notes = db.create::<Note>()?;
/// # let mut session = db.session();
/// # session.transact(|tx| tx.insert(&notes, &Note { id: 7, text: String::new() }))?;
/// session.transact(|tx| {
///     tx.update(&notes, &7, |note| note.set_text("a long text"))??;
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
impl From<seriatim_catalog::OutOfMemory> for Abort {
    fn from(_: seriatim_catalog::OutOfMemory) -> Abort {
        Abort::stopped(Reason::OutOfMemory)
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            AbortDetail::Error(detail) => return detail.1.fmt(f),
            AbortDetail::Kind(kind) => kind,
        };
        match kind {
            AbortKind::Stopped(cause) => cause.fmt(f),
            AbortKind::Duplicate => f.write_str("the key exists already"),
            AbortKind::Check => f.write_str("the row violates a check constraint"),
            AbortKind::Missing => f.write_str("a row that must exist does not"),
            AbortKind::ForeignKey => f.write_str("a row refers to one that does not exist, or is still referred to"),
            AbortKind::Overflow(Some(place)) => write!(f, "{place}: a number leaves the range of its type"),
            AbortKind::Overflow(None) => f.write_str("a number leaves the range of its type"),
            AbortKind::User => f.write_str("the transaction was aborted by its body"),
        }
    }
}

impl Error for Abort {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            AbortDetail::Error(detail) => detail.1.source(),
            AbortDetail::Kind(_) => None,
        }
    }
}

/// For `?` in functions that use an explicit transaction.
///
/// ```
/// # use seriatim::{Database, Session, Table, TransactError};
/// # #[derive(Table)] #[table(name = "seat", key(row, number))] struct Seat { row: u8, number: u8 }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let db = Database::in_memory()?;
/// # let seats = db.create::<Seat>()?;
/// # let mut session = db.session();
/// let mut reserve = |row, number| -> Result<(), TransactError> {
///     let tx = session.begin()?;
///     tx.insert(&seats, &Seat { row, number })?;
///     tx.commit()?;
///     Ok(())
/// };
/// reserve(1, 2)?;
/// assert_eq!(reserve(1, 2).unwrap_err().to_string(), "duplicate key row 1, number 2 in seat");
/// # Ok(())
/// # }
/// ```
impl From<Abort> for TransactError {
    fn from(abort: Abort) -> TransactError {
        match abort.0 {
            AbortDetail::Error(detail) => Arc::unwrap_or_clone(detail).1,
            AbortDetail::Kind(kind) => TransactError::of(kind),
        }
    }
}

/// The place is the `?` that converts the error.
impl From<Overflow> for Abort {
    #[track_caller]
    fn from(_: Overflow) -> Abort {
        Abort::overflow(Some(Location::caller()))
    }
}

/// One conflict: its cause, and its table and key where they are known.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// Phase and reason.
    pub cause: Cause,
    /// The table's name, where known.
    pub table: Option<String>,
    /// The key as its columns read, where known.
    pub key: Option<String>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)?;
        if let Some(table) = &self.table {
            write!(f, " (table {table}")?;
            if let Some(key) = &self.key {
                write!(f, ", key {key}")?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

/// A row that does not meet a condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViolatingRow {
    /// As its columns read: all of a new row, of others those of its key and of the condition.
    pub values: String,
    /// Why the condition has no value, if it has none.
    pub error: Option<EvaluationError>,
}

impl fmt::Display for ViolatingRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.values)?;
        self.error.as_ref().map_or(Ok(()), |error| write!(f, "; the condition has no value: {error}"))
    }
}

/// Why a transaction did not commit.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TransactError {
    /// The body called `Tx::abort`. Its reads were consistent at that moment. The message is that of the body's
    /// error; [`TransactError::user`] returns that error with its type.
    User(Arc<dyn Error + Send + Sync>),
    /// An insert found its key taken. The transaction's reads were consistent at that moment.
    Duplicate {
        /// The table.
        table: String,
        /// The unique index, or the table's name and `_pkey` for its primary key.
        constraint: Box<str>,
        /// The key as its columns read.
        key: String,
    },
    /// A row did not meet a condition of its table. The transaction's reads were consistent at that moment.
    Check {
        /// The table.
        table: String,
        /// The condition.
        constraint: Box<str>,
        /// The row.
        row: Box<ViolatingRow>,
    },
    /// A row that had to exist did not (`ReadTx::require`). The transaction's reads were consistent at that moment.
    MissingRow {
        /// The table, or the index.
        table: String,
        /// The key as its columns read.
        key: String,
    },
    /// A row refers to a row that does not exist, or a row that others refer to was deleted or got another key. The
    /// transaction's reads were consistent at that moment. If the constraint is deferred, the commit reports it.
    ForeignKey {
        /// The constraint.
        constraint: Box<str>,
        /// The table that has it, whose rows refer to others.
        table: Box<str>,
        /// The table to which they refer.
        referenced: Box<str>,
        /// The key as its columns read.
        key: Box<str>,
        /// Whether no row has the key to which a row refers. Otherwise rows still refer to the key.
        is_missing: bool,
    },
    /// A number left the range of its type. The transaction's reads were consistent at that moment.
    Overflow {
        /// The procedure; empty in a transaction that is not one.
        procedure: String,
        /// File, line and column of the arithmetic; empty where they are not known.
        place: String,
    },
    /// No procedure of that name is registered with this database.
    UnknownProcedure {
        /// The name that was called.
        name: String,
        /// The registered names.
        known: Vec<String>,
    },
    /// The arguments of a call by name are not those that the procedure takes.
    Arguments {
        /// The procedure.
        procedure: String,
        /// The given value, and what would be valid.
        problem: String,
    },
    /// Every attempt met a conflict with other transactions.
    Conflict {
        /// The last conflict.
        last: Conflict,
        /// Attempts made.
        attempts: u32,
    },
    /// A wait for a row lock would have closed a cycle of transactions that wait for each other.
    Deadlock {
        /// Who waits for whom.
        detail: String,
    },
    /// The memory limit is reached. Reads and deletes still work.
    OutOfMemory {
        /// A transaction that has been open for more than a tenth of a second. Memory of rows that were replaced or
        /// deleted since it began cannot be reused.
        held: Option<MemoryHeld>,
        /// Bytes that are free, but only for rows of about the sizes that were deleted; 0 if that is less than a
        /// sixteenth of the limit.
        free: usize,
    },
    /// The transaction stayed open for longer than the configured age.
    TooOld,
    /// The snapshot, or the explicit transaction between two calls, was ended: it kept more replaced and deleted rows
    /// in memory than the settings permit
    /// ([`Settings::snapshot_bytes_max`](crate::Settings::snapshot_bytes_max)).
    HoldsMemory,
    /// Another thread cancelled the transaction: [`Canceller::cancel`](crate::Canceller::cancel).
    Cancelled,
    /// The request itself cannot work: a scan of a hash table, or use of a transaction inside its own update closure.
    Unsupported(Cause),
    /// The protocol runs only registered procedures and snapshots; this was a closure or an explicit transaction.
    NeedsPlan {
        /// The protocol.
        protocol: &'static str,
    },
    /// The table handle belongs to another database.
    ForeignHandle,
    /// The table was dropped, or replaced by one with other columns, after the handle was opened.
    TableGone,
    /// A key lies outside the partitions that the procedure or closure named, or a write needs all partitions.
    /// Such a write is to a replicated table, or to an index without the column by which its table is
    /// partitioned. Nothing was written.
    OtherPartition {
        /// The table or index.
        table: String,
        /// The key as its columns read; empty for a range of keys.
        key: String,
    },
    /// The partition function ([`Builder::partition_by`]) panicked on a value, or returned a partition that
    /// does not exist. Nothing was written.
    ///
    /// [`Builder::partition_by`]: https://docs.rs/seriatim/latest/seriatim/struct.Builder.html#method.partition_by
    NoPartition {
        /// The table or index; empty for a value among the arguments of a call.
        table: String,
        /// The key as its columns read, or the value.
        key: String,
    },
    /// There is no partition of that number.
    UnknownPartition {
        /// The number that was requested.
        partition: usize,
        /// The number of partitions, which are numbered from 0; 0 in a database without partitions.
        partitions: usize,
    },
    /// The receipt belongs to another database, or to this one before it was opened again.
    ForeignReceipt,
    /// The receipt is of a future epoch, so it is of no commit of this database.
    FutureReceipt {
        /// The receipt's epoch.
        epoch: seriatim_base::Epoch,
        /// The current epoch.
        now: seriatim_base::Epoch,
    },
    /// Every worker has an open transaction.
    WorkersBusy,
    /// The database was closed (`Database::close`) before the transaction ran, or while it ran. Nothing was written.
    Closed,
    /// The log has failed for good and takes no commits. Nothing was written. Transactions that write nothing
    /// and read only durable data still work.
    LogStopped {
        /// The failure, and the remedy.
        reason: String,
    },
    /// The disk of the log is full. Nothing was written, nothing is lost, and commits continue when there is
    /// space again. Transactions that write nothing and read only durable data still work.
    DiskFull {
        /// Where space is needed.
        directory: PathBuf,
    },
    /// More is committed than the disk takes, and that did not change within a second. Nothing was written.
    /// Where durability is by snapshot: a new snapshot would be too far ahead of the durable epoch.
    DiskBehind {
        /// Bytes of log of this session's worker that wait for the disk.
        backlog_bytes: u64,
    },
    /// A text is larger than a log entry can hold. Nothing was written.
    TooLarge {
        /// The table.
        table: String,
        /// Bytes of the text.
        bytes: usize,
        /// The most bytes that a text of this table may have.
        most: usize,
    },
    /// The process was forked from the one that opened the database, and lacks its threads. Nothing was written.
    Forked,
    /// The log stopped before this result was durable. The transaction's writes, and the writes that it read, may be
    /// missing after the database is opened again. Snapshots that begin afterwards show the durable epoch, if the
    /// protocol supports that.
    NotDurable {
        /// The failure of the log, and the remedy.
        reason: String,
    },
    /// The call waited for the disk as long as it may (`Builder::wait_max`), and its result is not durable yet.
    /// The transaction is committed in memory, and other transactions see it. It becomes durable if the disk
    /// recovers; otherwise its writes may or may not be there after the next opening.
    NotDurableYet {
        /// How long the call waited.
        waited: Duration,
        /// Whether the transaction wrote something. If not, running it again is safe.
        wrote: bool,
        /// A known fault of the disk, for instance that it is full.
        reason: Option<String>,
    },
    /// Procedures that run in pieces and other transactions exclude each other
    /// ([`ExecutionMode::Pieces`](crate::procedure::ExecutionMode)), and the other side stayed open for longer than the
    /// bound of 1 s. Or transactions were open when rows were to be listed (`Database::each_row`), or a commit did not
    /// end (`Database::each_committed_row`). Or another transaction was refuted many times, and runs while no other
    /// begins that may write, for longer than that bound.
    Excluded {
        /// The kind of transactions that excluded this one.
        by: &'static str,
    },
    /// A procedure that ran in pieces ([`ExecutionMode::Pieces`](crate::procedure::ExecutionMode)) is committed with
    /// all its effects, but could not read all of its result.
    Unfinished {
        /// Why.
        cause: Cause,
    },
    /// The sequence has given its last number, and does not cycle.
    SequenceExhausted {
        /// The sequence.
        sequence: String,
        /// Its greatest number, or the least if it descends.
        limit: i64,
    },
    /// The sequence was dropped after the handle was opened.
    SequenceGone {
        /// The sequence.
        sequence: String,
    },
    /// The sequence has no such number.
    SequenceRange {
        /// The sequence.
        sequence: String,
        /// The number.
        number: i64,
        /// Its least number.
        low: i64,
        /// Its greatest number.
        high: i64,
    },
    /// No number was given, since none could be made durable as given first.
    SequenceNotReserved {
        /// The sequence.
        sequence: String,
        /// Why not.
        reason: String,
    },
}

impl TransactError {
    /// Whether the same transaction may succeed if it runs again unchanged, now or, if the disk is full, later.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            TransactError::Conflict { .. }
                | TransactError::Deadlock { .. }
                | TransactError::WorkersBusy
                | TransactError::DiskFull { .. }
                | TransactError::DiskBehind { .. }
                | TransactError::TooOld
                | TransactError::HoldsMemory
                | TransactError::Excluded { .. }
                | TransactError::NotDurableYet { wrote: false, .. }
                | TransactError::SequenceNotReserved { .. }
        )
    }

    /// Whether the transaction may have committed although this error was returned. After
    /// [`TransactError::Unfinished`] it has committed. After [`TransactError::NotDurable`], and after
    /// [`TransactError::NotDurableYet`] if it wrote something, the next opening may find it. In memory: no
    /// other.
    pub fn is_maybe_committed(&self) -> bool {
        matches!(
            self,
            TransactError::NotDurable { .. }
                | TransactError::NotDurableYet { wrote: true, .. }
                | TransactError::Unfinished { .. }
        )
    }

    /// The error of an attempt that violated its partitions.
    #[cold]
    pub(crate) fn partition(conflict: Conflict) -> TransactError {
        let Conflict { cause, table, key } = conflict;
        let (table, key) = (table.unwrap_or_default(), key.unwrap_or_default());
        match cause.reason {
            Reason::OtherPartition => TransactError::OtherPartition { table, key },
            _ => TransactError::NoPartition { table, key },
        }
    }

    /// The error of an abort of this kind, without further knowledge.
    pub(crate) fn of(kind: AbortKind) -> TransactError {
        let (table, key) = (String::new(), String::new());
        match kind {
            AbortKind::Duplicate => TransactError::Duplicate { table, constraint: Box::default(), key },
            AbortKind::Check => TransactError::Check { table, constraint: Box::default(), row: Box::default() },
            AbortKind::Missing => TransactError::MissingRow { table, key },
            AbortKind::ForeignKey => TransactError::ForeignKey {
                constraint: Box::default(),
                table: Box::default(),
                referenced: Box::default(),
                key: Box::default(),
                is_missing: true,
            },
            AbortKind::Overflow(place) => {
                let place = place.map(ToString::to_string).unwrap_or_default();
                TransactError::Overflow { procedure: String::new(), place }
            }
            AbortKind::User => TransactError::User(Arc::new(Abort::new(kind))),
            AbortKind::Stopped(cause) => match cause.reason {
                Reason::Forked => TransactError::Forked,
                Reason::ForeignHandle => TransactError::ForeignHandle,
                Reason::TableGone => TransactError::TableGone,
                Reason::OutOfMemory => TransactError::OutOfMemory { held: None, free: 0 },
                Reason::TooOld => TransactError::TooOld,
                Reason::HoldsMemory => TransactError::HoldsMemory,
                Reason::Cancelled => TransactError::Cancelled,
                Reason::OtherPartition | Reason::NoPartition => {
                    TransactError::partition(Conflict { cause, table: None, key: None })
                }
                Reason::LogStopped => TransactError::LogStopped { reason: "the log takes no commits".to_owned() },
                reason if reason.is_conflict() => {
                    TransactError::Conflict { last: Conflict { cause, table: None, key: None }, attempts: 1 }
                }
                _ => TransactError::Unsupported(cause),
            },
        }
    }

    /// The body's own error, if it was one of type `E`.
    pub fn user<E: Error + 'static>(&self) -> Option<&E> {
        match self {
            TransactError::User(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for TransactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransactError::User(error) => error.fmt(f),
            TransactError::Duplicate { table, constraint, key } => {
                write!(f, "duplicate key {key} in {table}")?;
                if **constraint == *TableDef::key_constraint(table) { Ok(()) } else { write!(f, ".{constraint}") }
            }
            TransactError::Check { table, constraint, row } => {
                write!(f, "a row of {table} violates check constraint {constraint}: {row}")
            }
            TransactError::MissingRow { table, key } => write!(f, "there is no row with key {key} in {table}"),
            TransactError::ForeignKey { constraint, table, referenced, key, is_missing: true } => {
                write!(f, "{key} of {table} refers to no row of {referenced} (foreign key {constraint})")
            }
            TransactError::ForeignKey { constraint, table, referenced, key, is_missing: false } => {
                write!(f, "rows of {table} still refer to {key} of {referenced} (foreign key {constraint})")
            }
            TransactError::Overflow { procedure, place } => {
                f.write_str("a number leaves the range of its type")?;
                if !procedure.is_empty() {
                    write!(f, " in procedure {procedure}")?;
                }
                if place.is_empty() { Ok(()) } else { write!(f, ", at {place}") }
            }
            TransactError::UnknownProcedure { name, known } if known.is_empty() => {
                write!(f, "procedure {name:?} is not registered; no procedure is: call `Database::register` first")
            }
            TransactError::UnknownProcedure { name, known } => {
                write!(f, "procedure {name:?} is not registered; registered are {}", known.join(", "))
            }
            TransactError::Arguments { procedure, problem } => {
                write!(f, "wrong arguments for procedure {procedure}: {problem}")
            }
            TransactError::Conflict { last, attempts: 0 | 1 } => {
                write!(f, "the transaction stopped {last}; run it again")
            }
            TransactError::Conflict { last, attempts } => {
                write!(f, "gave up after {attempts} attempts; the last stopped {last}")
            }
            TransactError::Deadlock { detail } => {
                write!(f, "the transaction would wait for one that waits for it; run it again: {detail}")
            }
            TransactError::OutOfMemory { held, free } => {
                match held {
                    None => f.write_str("the memory limit is reached; delete rows or raise the limit")?,
                    Some(held) => write!(f, "the memory limit is reached, and {held}")?,
                }
                match free >> 10 {
                    0 => Ok(()),
                    free => write!(f, "; {free} KiB are free, but only for rows of about the sizes that were deleted"),
                }
            }
            TransactError::TooOld => f.write_str("the transaction was open for longer than the configured age"),
            TransactError::HoldsMemory => f.write_str(
                "the transaction was ended: it kept more replaced and deleted rows in memory than \
                 `snapshot_bytes_max` permits; end snapshots and explicit transactions sooner, or permit more",
            ),
            TransactError::Cancelled => f.write_str("the transaction was cancelled"),
            TransactError::Closed => f.write_str("nothing was written: the database was closed; open it again"),
            TransactError::Unsupported(cause) => cause.fmt(f),
            TransactError::NeedsPlan { protocol } => {
                write!(
                    f,
                    "protocol {protocol} needs a plan: register a procedure and call it, or choose another protocol"
                )
            }
            TransactError::ForeignHandle => {
                f.write_str("the table handle belongs to another database; get one from this database")
            }
            TransactError::TableGone => f.write_str(
                "the table was dropped, or replaced by one with other columns, after the handle was opened; open it \
                 again",
            ),
            TransactError::OtherPartition { table, key } => {
                let (of, key) = if key.is_empty() { ("a range of keys", "") } else { ("key ", key.as_str()) };
                write!(
                    f,
                    "{of}{key} of {table} is not in the partitions of the transaction: run it in all partitions, or \
                     partition the table by another column"
                )
            }
            TransactError::UnknownPartition { partition, partitions: 0 } => {
                write!(f, "there is no partition {partition}: the database has none; open it with some")
            }
            TransactError::UnknownPartition { partition, partitions } => {
                write!(f, "there is no partition {partition}: they are numbered from 0 to {}", partitions - 1)
            }
            TransactError::NoPartition { table, key } => {
                let of = if table.is_empty() { String::new() } else { format!(" of {table}") };
                write!(f, "the partition function panicked on {key}{of}, or named a partition that is not there")
            }
            TransactError::Excluded { by } => {
                write!(f, "{by} are running and exclude this transaction; try again later")
            }
            TransactError::Unfinished { cause } => {
                write!(f, "the procedure is committed, but its result could not be read to the end: {cause}")
            }
            TransactError::SequenceExhausted { sequence, limit } => write!(
                f,
                "sequence {sequence:?} is exhausted: {limit} was its last number; alter it to have more, or to cycle"
            ),
            TransactError::SequenceGone { sequence } => {
                write!(f, "sequence {sequence:?} was dropped after the handle was opened")
            }
            TransactError::SequenceRange { sequence, number, low, high } => {
                write!(f, "sequence {sequence:?} has no number {number}; its numbers are {low} to {high}")
            }
            TransactError::SequenceNotReserved { sequence, reason } => {
                write!(f, "sequence {sequence:?} gave no number, as it could not be made durable first: {reason}")
            }
            TransactError::ForeignReceipt => f.write_str(
                "the receipt belongs to another database, or to this one before it was opened again: use a \
                 receipt of a commit since then",
            ),
            TransactError::FutureReceipt { epoch, now } => write!(
                f,
                "the receipt is of epoch {}, and the database is in epoch {}: use the receipt that the commit gave",
                epoch.0, now.0
            ),
            TransactError::WorkersBusy => {
                f.write_str("every worker has an open transaction; allow more workers or end some transactions")
            }
            TransactError::Forked => write!(f, "nothing was written: {FORKED}"),
            TransactError::LogStopped { reason } => write!(f, "nothing was written: {reason}"),
            TransactError::DiskFull { directory } => write!(
                f,
                "nothing was written: the disk of {} is full; make space, and writes continue",
                directory.display()
            ),
            TransactError::DiskBehind { backlog_bytes } => write!(
                f,
                "nothing was written: the disk is behind, and {backlog_bytes} bytes of log wait for it; try again"
            ),
            TransactError::TooLarge { table, bytes, most } => {
                write!(f, "a text of {bytes} bytes for table {table}, whose texts have at most {most}")
            }
            TransactError::NotDurable { reason } => {
                write!(f, "the transaction may or may not survive: {reason}")
            }
            TransactError::NotDurableYet { waited, wrote, reason } => {
                let what = match wrote {
                    true => "the transaction is committed, but a power cut may still take it back: it",
                    false => "the transaction wrote nothing, and a power cut may still take back what it read: that",
                };
                write!(f, "{what} was not durable within {waited:?}")?;
                reason.as_ref().map_or(Ok(()), |reason| write!(f, "; {reason}"))
            }
        }
    }
}

impl Error for TransactError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // Its message is that of the body's error.
            TransactError::User(error) => error.source(),
            _ => None,
        }
    }
}

/// A transaction that keeps memory from being reused: it may still read rows that were replaced or deleted
/// since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryHeld {
    /// Whether it is an explicit snapshot (`Session::begin_snapshot`).
    pub snapshot: bool,
    /// The number of its worker, from 0.
    pub worker: usize,
    /// How long it has been open, at least.
    pub age: Duration,
}

impl MemoryHeld {
    /// A younger transaction is not reported: it is not why the memory limit is reached.
    pub(crate) const AGE_MIN: Duration = Duration::from_millis(100);
}

impl fmt::Display for MemoryHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryHeld { snapshot, worker, age } = self;
        let (what, setting) =
            if *snapshot { ("snapshot", "snapshot_age_max") } else { ("transaction", "transaction_age_max") };
        write!(
            f,
            "the {what} of worker {worker} has been open for {age:.1?}: what was replaced and deleted since cannot be \
             used again; end it, or set `{setting}` so that it is ended"
        )
    }
}
