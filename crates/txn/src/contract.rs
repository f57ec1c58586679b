//! The contract: what a protocol must implement, and the promises that it makes.
//!
//! Promises; each is met at a place that repeats its letter:
//! - (a) after [`Outcome::Committed`] the writes are visible together, and their redo entries are in the
//!   worker's buffer;
//! - (b) after an abort nothing was visible to a committed transaction;
//! - (c) `commit` alone decides: a value read may later fail validation, but no committed transaction used one;
//! - (d) nothing blocks without a bound it can name;
//! - (e) removed memory goes through `memory`;
//! - (f) every abort carries a cause;
//! - (g) a user abort, a constraint failure or a panic is reported only after [`Worker::validate`] passes. All values
//!   on which it depends existed together at one place of the serial order, and no transaction that commits later comes
//!   before that place.
//!
//! Rules for rows. A [`RowPtr`] stays readable and unchanged until the transaction ends, whatever is written
//! after it, so callers never copy. The exception is a step of a [`Scan`] that is [`Scan::transient`]: its row
//! may be gone with the next step of that scan. A protocol that updates in place hands out copies of rows, or
//! of their hot columns. Copies of transient steps are in [`Scan::buffer`]. All others are in memory of the
//! attempt, which counts against the memory limit and is returned when the transaction ends. A row's fixed
//! part and its out-of-line values never change, and are not copied. A row that is read without a transaction
//! may be in a buffer of the caller ([`Protocol::peek_committed`]). Or it is in one that is gone after the call
//! ([`Redo::write`]). Decision record 12 has the alternatives.
//!
//! Rules for columns. A call names the columns whose values the transaction uses, or sets in an update; an
//! insertion or deletion uses all. A protocol may exclude changes of other columns from its validation. In the row
//! these may have any value that was ever committed to them. The existence of the row is always used, even where no
//! column is named. An update also names the other columns of each index that may have to follow it. Separately it
//! names the columns to which it only adds: a protocol may add to another sum than the one that it showed. In builds
//! with debug assertions the typed interface checks that no other column is read or set
//! (`seriatim_catalog::RowRef::only`).

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::clock::Instant;
use seriatim_base::{ColumnId, TableId, Tid};
use seriatim_catalog::{ColumnSet, ColumnUse, Key, KeyBuf};
use seriatim_htm::{Backend, Htm, HtmMode, Whole};
use seriatim_memory::{OutOfMemory, Pinned};
use seriatim_store::{Cursor, RecordPtr};

use crate::{
    Added, Addition, ConflictInfo, Core, Environment, Knob, OpError, Options, PartitionSet, Partitions, Priority, Redo,
    RowBuffer, Table,
};

/// A row version: readable, unchanging, until the transaction that was given it leaves, or as the rules for rows say.
pub type RowPtr = NonNull<u8>;

/// How fresh a protocol's read-only snapshots are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// No snapshots: read-only transactions validate and may abort.
    None,
    /// A snapshot sees every transaction that committed before it began.
    Latest,
    /// One is made every so often ([`Snapshots`](crate::Snapshots)), and when one is taken that is to show
    /// what the newest lacks. Under an option that makes each when it is taken, a snapshot is as under
    /// `Latest`.
    Eventual,
    /// A snapshot may lag by as long as the oldest transaction has been open that may write. Where that lacks what it
    /// is to show, a read-only transaction validates and may abort. A snapshot aborts only if it has waited too long
    /// for the end of a commit ([`Worker::wait_max`]).
    Past,
}

impl Freshness {
    /// Whether a snapshot may be older than the present. It is never older than earlier transactions of its
    /// session.
    pub fn is_bounded(self) -> bool {
        matches!(self, Freshness::Eventual | Freshness::Past)
    }
}

/// The requirements of a protocol on its database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Only procedures with a plan: closures and explicit transactions are refused, but for snapshots.
    pub plan: bool,
    /// Regions, in hardware or emulated: opening fails without.
    pub regions: bool,
}

impl Requirements {
    /// Whether the back end has regions if the protocol requires them.
    pub fn admit(self, backend: Backend) -> bool {
        !self.regions || backend != Backend::Absent
    }
}

/// The capabilities of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Transactions that are not declared beforehand.
    pub ad_hoc: bool,
    /// Read-only snapshots that never abort, and how fresh.
    pub snapshots: Freshness,
    /// The serial order agrees with real time between transactions that do not overlap.
    pub strict: bool,
    /// The order of epochs agrees with the serial order: if a transaction overwrites what another read, the
    /// other is of no later epoch. (Under every protocol a transaction's epoch is at least that of every
    /// version that it read or overwrote.)
    pub epoch_order: bool,
    /// The order of TIDs is a serial order, in which a transaction that wrote nothing comes after those with its TID.
    /// If a transaction overwrites a version that another read, its TID is above the reader's.
    pub tid_order: bool,
    /// Histories are judged by columns, one for each column that an update may change by itself, and not by whole rows.
    /// Transactions at different columns of one row may pass each other, unless one of them inserts or deletes it. They
    /// conflict nevertheless if conflicts have been rare, or if the protocol locks the row because it was contended.
    /// Except for sums, they also do if the row has no fixed part that identifies it.
    pub column_groups: bool,
    /// An attempt can lock each row that it accesses ([`Worker::reserve_next`]).
    pub reserves: bool,
    /// Favours the older of two transactions: it uses the priorities with which attempts begin.
    pub priorities: bool,
    /// Publishes transactions of registered procedures piece by piece ([`Pieces`]).
    pub pieces: bool,
    /// Holds executed transactions until they are decided ([`Detach`]): a protocol with a
    /// [validator](Protocol::validator).
    pub detach: bool,
    /// May answer [`Outcome::Repair`] to callers that use [`Repair`].
    pub repair: bool,
    /// Has partitions, and runs a procedure alone in its own ([`Protocol::partitions`]).
    pub partitions: bool,
    /// The pauses after its conflicts are regulated by throughput, unless the database is configured
    /// otherwise.
    pub regulated: bool,
    /// Locks contended rows, *hot* ones, at access, and takes all rows of the tables that
    /// [`Environment::hot_tables`] names for hot.
    pub hot_tables: bool,
    /// Publishes some additions later, by a worker that is set aside for that ([`Deferrals`](crate::Deferrals)).
    pub defers: bool,
    /// A commit enters a region, where there are regions.
    pub commits_in_regions: bool,
}

impl Capabilities {
    /// None of them.
    pub const NONE: Capabilities = Capabilities {
        ad_hoc: false,
        snapshots: Freshness::None,
        strict: false,
        epoch_order: false,
        tid_order: false,
        column_groups: false,
        reserves: false,
        priorities: false,
        pieces: false,
        detach: false,
        repair: false,
        partitions: false,
        regulated: false,
        hot_tables: false,
        defers: false,
        commits_in_regions: false,
    };
}

/// A change of capabilities by an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionEffect {
    /// The option.
    pub option: &'static Knob,
    /// Whether the option makes the change at zero. Otherwise it does at any other value.
    pub at_zero: bool,
    /// The change.
    pub change: CapabilityChange,
}

/// The change of the capabilities by an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapabilityChange {
    /// The serial order need not agree with real time: not [`Capabilities::strict`].
    GivesUpRealTime,
    /// [`Capabilities::defers`].
    Defers,
    /// [`Capabilities::snapshots`] are [`Freshness::Latest`].
    LatestSnapshots,
}

impl OptionEffect {
    /// Whether these options make the change.
    fn applies(&self, options: &Options) -> bool {
        (options.get(self.option) == 0) == self.at_zero
    }

    /// The values of the option that make the change, in words.
    pub fn condition(&self) -> String {
        let Knob { name, .. } = self.option;
        if self.at_zero { format!("with {name}=0") } else { format!("with {name} above 0") }
    }
}

/// Settings of a database with which the options of its protocol have to agree.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatabaseSettings<'s> {
    /// [`Environment::hot_tables`].
    pub hot_tables: &'s [String],
    /// How often the epoch advances, if that was set.
    pub epoch_interval: Option<Duration>,
}

/// A protocol's line in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolInfo {
    /// The name users select it by.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its requirements on its database.
    pub requirements: Requirements,
    /// Its capabilities with the default options.
    pub capabilities: Capabilities,
    /// Its options.
    pub options: &'static [Knob],
    /// The changes of the capabilities by options.
    pub effects: &'static [OptionEffect],
}

impl ProtocolInfo {
    /// Its capabilities with these options.
    pub fn capabilities_with(&self, options: &Options) -> Capabilities {
        let mut capabilities = self.capabilities;
        for effect in self.effects.iter().filter(|effect| effect.applies(options)) {
            match effect.change {
                CapabilityChange::GivesUpRealTime => capabilities.strict = false,
                CapabilityChange::Defers => capabilities.defers = true,
                CapabilityChange::LatestSnapshots => capabilities.snapshots = Freshness::Latest,
            }
        }
        capabilities
    }

    /// Whether a database opens under this protocol with these regions, on this machine.
    pub fn opens_on(&self, mode: HtmMode) -> bool {
        let htm = Htm::new(mode);
        htm.is_ok_and(|htm| self.requirements.admit(htm.backend()))
    }
}

/// A concurrency-control protocol.
pub trait Protocol: Sized + Send + Sync + 'static {
    /// Its line in the registry.
    const INFO: ProtocolInfo;
    /// Bytes of the header it keeps beside each record; a multiple of 8.
    const HEADER_BYTES: usize;
    /// Bytes it keeps behind the row of each row version; a multiple of 8.
    const VERSION_HEADER_BYTES: usize;
    /// Per-worker state.
    type Worker: Worker;

    /// Whether the options agree with each other and with the settings of a database.
    ///
    /// # Errors
    /// The mismatch, and what would be valid.
    fn check(_options: &Options, _settings: &DatabaseSettings<'_>) -> Result<(), String> {
        Ok(())
    }

    /// The protocol's shared state for one database, whose settings have been checked.
    fn open(options: &Options, environment: &Environment) -> Self;

    /// A worker. Registered until dropped.
    fn worker(&self, core: Core) -> Self::Worker;

    /// For protocols that run procedures whole: each attempt runs from [`Worker::begin_whole`] to the end of
    /// its commit by [`Whole::run`]. One value for each thread. Other transactions, and procedures in pieces,
    /// run beside them as under any protocol, without this.
    fn whole(&self) -> Option<Whole> {
        None
    }

    /// For protocols that know the partitions of a procedure before it runs: the partitions' locks, and how
    /// long an attempt waits for one of them. Each attempt of a procedure owns its partitions from
    /// [`Worker::begin_whole`] to the end of its commit. Other transactions run beside them as under any
    /// protocol, without this.
    fn partitions(&self) -> Option<(Arc<Partitions>, Duration)> {
        None
    }

    /// For protocols that order executed transactions in batches, by [`Detach`]: the validator that orders
    /// them.
    fn validator(&self) -> Option<Box<dyn Validator>> {
        None
    }

    /// For reports: the records that are hot now, where the protocol finds out which to lock when they are
    /// accessed. `None` where it keeps no such set.
    fn hot_records(&self) -> Option<Vec<HotRecord>> {
        None
    }

    /// The newest committed version of a record, for readers without a transaction, such as a checkpoint. It
    /// does not wait. TIDs that one thread is shown of one record never go back; versions of several records
    /// need not belong together.
    ///
    /// The row is readable and does not change until the worker of `pin` goes offline. It may be copied to `buffer`,
    /// and is then readable until that is reused or dropped.
    ///
    /// # Safety
    /// `record` was found in the index of `table` after the worker of `pin` came online.
    unsafe fn peek_committed(
        &self,
        table: &Table,
        record: RecordPtr,
        pin: Pinned<'_>,
        buffer: &mut RowBuffer,
    ) -> Peeked;
}

/// A record that a protocol has found contended, and so has locked when it is accessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRecord {
    /// The table or index.
    pub table: TableId,
    /// Its key.
    pub key: KeyBuf,
    /// Failures that were counted at it, in the period for which that was last looked at.
    pub failures: u64,
    /// When it became hot.
    pub since: Instant,
}

/// The accesses that a transaction declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Read and write.
    ReadWrite,
    /// Read only: from a snapshot where the protocol has them, else validated.
    ReadOnly,
}

/// A new row being written, not yet linked: the caller fills row and fixed part, then inserts or discards it,
/// once. (It is `Copy` so that a call that answered [`OpError::Wait`] can be made again.)
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Staged {
    /// The record that will hold it.
    pub record: RecordPtr,
    /// Where the row version goes. Its first word already points to `fixed` where the table has a fixed part;
    /// all other bytes are zero.
    pub row: RowPtr,
    /// Where the fixed part goes; dangling where the table has none. Zeroed.
    pub fixed: NonNull<u8>,
}

/// How an insert handles an existing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExists {
    /// Leave it and say so.
    Refuse,
    /// Replace the whole row.
    Replace,
}

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Inserted {
    /// The key was absent.
    New,
    /// The key exists and was left as it is; the staged row was discarded.
    Exists(RowPtr),
    /// The key existed with this row, which was replaced.
    Replaced(RowPtr),
}

/// A row being updated.
#[derive(Clone, Copy, Debug)]
pub struct Updating {
    /// The row before this update.
    pub before: RowPtr,
    /// A private row version that starts as a copy of `before`; visible to the transaction itself, to others on commit.
    pub after: RowPtr,
}

/// Which version the last operation saw: for recorders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The record, where there is one.
    pub record: Option<RecordPtr>,
    /// TID of the committed version seen: zero where the key was never committed, or is not linked.
    pub tid: Tid,
    /// The version is a deletion, or the key is not there.
    pub absent: bool,
    /// The transaction saw its own write.
    pub own: bool,
}

/// A record's newest committed version, as [`Protocol::peek_committed`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Peeked {
    /// This row, with the TID of the transaction that wrote it.
    Row(Tid, RowPtr),
    /// No row: the transaction with this TID deleted it.
    Deleted(Tid),
    /// No transaction that wrote the key has committed.
    NeverCommitted,
    /// A commit is at work on the record: try again.
    Busy,
}

/// A position in the write set of an attempt, to roll back to. A rollback to an earlier one makes it invalid. So does
/// a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Savepoint {
    /// The number of records written.
    pub writes: u32,
    /// How often a row that the attempt had written was written again.
    pub replaced: u32,
}

/// A scan in progress; reusable.
#[derive(Default)]
pub struct Scan {
    /// The leaf cursor.
    pub cursor: Cursor,
    /// Next record of the leaf the cursor holds.
    pub next: usize,
    /// The range is exhausted.
    pub done: bool,
    /// Which of the worker's notes is of the leaf that the cursor holds, from 1. 0: none.
    pub note: u32,
    /// The caller uses the row of each step only until the next step of this scan, which may overwrite it.
    /// May be set and cleared between steps: it holds for the rows of steps made while it is set.
    pub transient: bool,
    /// Where such rows are copied to, by a protocol that copies. Room for one row; like the cursor it is kept
    /// for reuse and does not count against the memory limit.
    pub buffer: RowBuffer,
}

impl Scan {
    /// Prepares the buffer for another scan: drops the rows of the last one, and keeps the memory.
    #[inline]
    pub fn restart(&mut self) {
        (self.next, self.done, self.note) = (0, false, 0);
    }
}

/// The outcome of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Committed. The TID orders the transaction after the versions that it read or overwrote. If another
    /// transaction overwrote what this one read, their epochs are ordered only under
    /// [`Capabilities::epoch_order`], and their TIDs only under [`Capabilities::tid_order`]. A transaction
    /// that wrote nothing gets the TID of [`Worker::newest`].
    Committed(Tid),
    /// These runs of operations read stale values; re-run at least them and commit again.
    Repair(Vec<Runs>),
}

/// Runs of an operation of a procedure's plan, as [`Repair::operation`] named them: one of them, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Runs {
    /// The operation, by its index in the plan.
    pub operation: u16,
    /// The iteration; none: all.
    pub iteration: Option<u32>,
}

impl Runs {
    /// All runs of an operation.
    pub const fn all(operation: u16) -> Runs {
        Runs { operation, iteration: None }
    }

    /// One run of an operation.
    pub const fn one(operation: u16, iteration: u32) -> Runs {
        Runs { operation, iteration: Some(iteration) }
    }
}

/// One worker: the state on which an open transaction runs. Methods are called in the order `begin (operation
/// | read | stage insert | update | delete | scan_next | savepoint | rollback_to | validate)* (commit |
/// abort)`. A commit that returned [`Outcome::Repair`] is followed by [`Repair::forget`], further operations
/// and another commit. Features of some protocols only are behind an accessor ([`Worker::repair`],
/// [`Worker::detach`], [`Worker::pieces`]). After an [`OpError::Abort`] only `abort` follows; or, if its reason is not
/// a conflict, `validate` and then `abort`.
pub trait Worker: Send {
    /// Opens an attempt of a transaction. `priority` is the same in all its attempts, for protocols that
    /// favour the older transaction.
    fn begin(&mut self, mode: Mode, priority: Priority);

    /// Where snapshots are of the past ([`Freshness::Past`]): the next transaction, if it only reads, comes
    /// after those at this place ([`Worker::place`]) and before. It does so at any cost. With `u64::MAX` it comes after
    /// all that have ended. It need not be called.
    fn come_after(&mut self, _place: u64) {}

    /// The next attempt locks each row before it reads or writes it, and holds the locks. It releases them when it
    /// ends, or when its first piece is published. So changes by others to rows cannot refute it; insertions where it
    /// found no row still can. At most one attempt of a database does this at a time. For protocols that can
    /// ([`Capabilities::reserves`]); others do nothing.
    fn reserve_next(&mut self) {}

    /// For protocols whose snapshots are of the past: the position of the transaction that is open, or ended
    /// last, in the order of conflicting transactions. The transaction has committed, or its
    /// reads may be reported.
    fn place(&self) -> u64 {
        0
    }

    /// The attempt that has just begun runs whole ([`Protocol::whole`], [`Protocol::partitions`]). No write to
    /// these partitions by others commits between its first operation and the end of its commit. It must not
    /// touch other partitions.
    fn begin_whole(&mut self, _partitions: PartitionSet) {}

    /// Starts to fetch what [`Worker::read`] of these columns at this key will touch first. Only a hint, which
    /// conflicts with nothing.
    fn prefetch(&mut self, table: &Table, key: Key<'_>, columns: ColumnSet);

    /// Issues the next wave of prefetches for the keys that were prefetched in this transaction: it follows
    /// the addresses that the previous wave fetched. Two waves after the first, everything that
    /// [`Worker::read`] of these keys will touch is requested.
    fn advance_prefetch(&mut self);

    /// As [`Worker::read`], of a prefetched row that no other transaction has locked, and this one has not written.
    /// `None` says nothing: the caller reads the row.
    #[inline(always)]
    fn read_prefetched(&mut self, _: &Table, _: Key<'_>) -> Option<RowPtr> {
        None
    }

    /// The row at `key`, if there is one, of which `columns` are read.
    ///
    /// # Errors
    /// A conflict, or the lock to wait for.
    fn read(&mut self, table: &Table, key: Key<'_>, columns: ColumnSet) -> Result<Option<RowPtr>, OpError>;

    /// Memory for a new row.
    ///
    /// # Errors
    /// The memory limit.
    fn stage(&mut self, table: &Table) -> Result<Staged, OpError>;

    /// Gives a staged row back.
    fn discard(&mut self, table: &Table, staged: Staged);

    /// An out-of-line block for a long column, freed should the attempt abort. Zero for no bytes.
    ///
    /// # Errors
    /// The memory limit.
    fn out_of_line(&mut self, bytes: &[u8]) -> Result<u64, OutOfMemory>;

    /// As [`Worker::out_of_line`], for `bytes` bytes, at least one, which the caller writes. They are private
    /// to the caller until the row that refers to them commits.
    ///
    /// # Errors
    /// The memory limit.
    fn out_of_line_room(&mut self, bytes: usize) -> Result<u64, OutOfMemory>;

    /// Inserts a staged row.
    ///
    /// # Errors
    /// A conflict: the staged row is gone. Or the lock to wait for: the caller still has the staged row, to
    /// insert it again or to discard it.
    fn insert(&mut self, table: &Table, key: Key<'_>, staged: Staged, exists: OnExists) -> Result<Inserted, OpError>;

    /// Opens the row at `key` for update; `columns` are those that may be read or changed, and how.
    ///
    /// # Errors
    /// A conflict, or the lock to wait for.
    fn update(&mut self, table: &Table, key: Key<'_>, columns: ColumnUse) -> Result<Option<Updating>, OpError>;

    /// Adds to one column of the row at `key`, blindly. The transaction learns whether the row exists and whether the
    /// sum fits, and uses neither the old nor the new value. By default it is an update of that column. Indexes of the
    /// column are not updated.
    ///
    /// # Errors
    /// A conflict, or the lock to wait for.
    fn add(&mut self, table: &Table, key: Key<'_>, addition: Addition) -> Result<Added, OpError> {
        let Some(rows) = self.update(table, key, addition.columns())? else { return Ok(Added::Missing) };
        // SAFETY: a private row version of the table's layout, until this returns.
        Ok(unsafe { addition.apply(table, rows.after) })
    }

    /// Deletes the row at `key`; the row it was.
    ///
    /// # Errors
    /// A conflict, or the lock to wait for.
    fn delete(&mut self, table: &Table, key: Key<'_>) -> Result<Option<RowPtr>, OpError>;

    /// The next row, of which `columns` are read, of a scan begun with [`seriatim_store::Index::scan`]. How
    /// long the row lives, [`Scan::transient`] says.
    ///
    /// # Errors
    /// A conflict, or the lock to wait for.
    fn scan_next(&mut self, table: &Table, scan: &mut Scan, columns: ColumnSet) -> Result<Option<RowPtr>, OpError>;

    /// The first row with a key between two keys, both included, as a scan would find it. `None` if there is no row, or
    /// it takes a scan to find it.
    ///
    /// # Errors
    /// A conflict, or the lock to wait for.
    fn first(&mut self, _table: &Table, _range: (Key<'_>, Key<'_>)) -> Result<Option<RowPtr>, OpError> {
        Ok(None)
    }

    /// Which version the last operation saw.
    fn seen(&self) -> Seen;

    /// No version that the open attempt has seen has a newer TID, the deletions to which it owes the absences
    /// it saw included. (What it saw is durable when this is.) Of the last attempt, where none is open.
    fn newest(&self) -> Tid;

    /// A savepoint. It only names a position, and needs not be given back.
    fn savepoint(&self) -> Savepoint;

    /// Undoes the writes since the savepoint. Reads stay in the read set and are still validated.
    fn rollback_to(&mut self, savepoint: Savepoint);

    /// Whether everything read, and all that writes build on, existed together (promise g). A successful validation
    /// stays true, whatever commits afterwards. If a place in the serial order is not an instant, the attempt announces
    /// its own as a commit does.
    ///
    /// # Errors
    /// A conflict.
    fn validate(&mut self) -> Result<(), OpError>;

    /// Decides. On [`Outcome::Committed`] the transaction has ended; on [`Outcome::Repair`] it is still open.
    ///
    /// # Errors
    /// A conflict: `abort` follows. Or the order to wait for.
    fn commit(&mut self, redo: &mut dyn Redo) -> Result<Outcome, OpError>;

    /// Ends the attempt; nothing of it was visible. The transaction has ended.
    fn abort(&mut self);

    /// Whether [`Worker::commit`] may report a write. If not, the transaction needs no log.
    fn writes(&self) -> bool {
        true
    }

    /// Where the last abort happened (promise f).
    fn conflict_info(&self) -> Option<&ConflictInfo>;

    /// Unlinks deleted records whose grace period has passed: about `most` of them, and more only if the last
    /// transaction deleted more. Called offline, after a transaction.
    fn collect_garbage(&mut self, most: usize);

    /// Gives back what large transactions made its lists take. Called offline, of a worker that has had no
    /// transaction for a while.
    fn rest(&mut self) {}

    /// The worker's memory, regions and epoch.
    fn core(&mut self) -> &mut Core;

    /// How long a call that answers [`OpError::Wait`] is to be made again at most (promise d).
    fn wait_max(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Repairs, where [`Capabilities::repair`] says so.
    fn repair(&mut self) -> Option<&mut dyn Repair> {
        None
    }

    /// Held transactions, where [`Capabilities::detach`] says so.
    fn detach(&mut self) -> Option<&mut dyn Detach> {
        None
    }

    /// Pieces, where [`Capabilities::pieces`] says so.
    fn pieces(&mut self) -> Option<&mut dyn Pieces> {
        None
    }
}

/// Repairs: after [`Outcome::Repair`] some operations run again, and the reads and writes of the others stay
/// (HTCC §4).
pub trait Repair {
    /// The calls that follow belong to this operation of the procedure's plan. An operation in a loop is named
    /// once an iteration. `iteration` is the number of its earlier runs since the transaction, or its last
    /// repair, began. If all iterations are repaired together, those of an unchanged loop have their old
    /// numbers. A caller that runs one of them again names it by its old number. A scan whose rows are visited
    /// one by one is named again, by the same numbers, before each further row.
    fn operation(&mut self, index: u16, iteration: u32);

    /// Drops the reads and writes of these runs, after [`Outcome::Repair`]. They run `again` (and may keep their
    /// locks), or no more, because a branch went the other way.
    fn forget(&mut self, runs: Runs, again: bool);

    /// Lists the records that the runs of an operation touched, each as a unique number with the iteration. Two runs
    /// without a common record do not depend on each other's writes. `None` in place of a record: one that is not known
    /// by its record, as there was none, or a range.
    fn touched(&self, operation: u16, visit: &mut dyn FnMut(u32, Option<usize>)) {
        let _ = operation;
        visit(0, None);
    }

    /// The number of index lookups that repeated runs saved, because their keys had not changed; since the
    /// last call.
    fn lookups_saved(&mut self) -> u64 {
        0
    }
}

/// The accesses of an executed transaction, by which it is ordered among others of its batch. If one
/// transaction reads what another writes, the reader can go first and both commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Records read, by address, with the TID of the version seen; those that a write builds on among them.
    pub reads: Vec<(usize, Tid)>,
    /// For each of `reads`, the columns that were used; for reads beyond the end of this list, all of them.
    pub read_columns: Vec<ColumnSet>,
    /// Records to be written, by address.
    pub writes: Vec<usize>,
    /// For each of `writes`, the columns that change; for writes beyond the end of this list, all of them.
    pub write_columns: Vec<ColumnSet>,
    /// Leaves and buckets in which absences or ranges were seen, by the address of their version.
    pub nodes: Vec<usize>,
    /// Leaves and buckets in which rows are to be linked. Splits move keys, so they may be others when the
    /// rows are linked.
    pub inserts: Vec<usize>,
    /// How often the transaction was aborted and executed again. The caller that queues it sets this, not its
    /// worker.
    pub restarts: u32,
    /// Whether one of its reads waited for a transaction that was to overwrite the row ([`Detach::may_wait`]).
    pub waited: bool,
    /// The value of the commit to the user, set by the same caller. Of conflicting transactions a policy may
    /// leave out the one of less value.
    pub weight: u64,
}

impl Prepared {
    /// The part of a row that is in no column that updates change: above all its existence.
    pub const REST: ColumnSet = ColumnSet::of(ColumnId(u16::MAX));

    /// `reads`, each with the columns that were used.
    pub fn reads(&self) -> impl Iterator<Item = (usize, Tid, ColumnSet)> {
        let columns = self.read_columns.iter().copied().chain(std::iter::repeat(ColumnSet::ALL));
        self.reads.iter().zip(columns).map(|(&(record, tid), columns)| (record, tid, columns))
    }

    /// `writes`, each with the columns that change.
    pub fn writes(&self) -> impl Iterator<Item = (usize, ColumnSet)> {
        self.writes.iter().copied().zip(self.write_columns.iter().copied().chain(std::iter::repeat(ColumnSet::ALL)))
    }
}

/// Orders the decisions of batches of executed transactions.
pub trait Validator: Send + Sync + std::fmt::Debug {
    /// How batches are made.
    fn batching(&self) -> Batching;

    /// In which order the transactions of a batch are to be decided, and which of them are not to commit. It
    /// executes nothing, and any answer is safe: a decision validates.
    fn order(&self, batch: &[Prepared]) -> Ordered;
}

/// How batches of decisions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Transactions of a batch, at most.
    pub batch_max: usize,
    /// How long a batch that is smaller waits for more, at most.
    pub wait: Duration,
    /// Batches that are ordered at the same time, at most.
    pub workers: usize,
    /// Whether the threads that wait for a batch share its work. Each checks whether its transaction is stale, and
    /// decides it when its predecessors by [`Ordered::edges`] are decided.
    pub parallel: bool,
    /// Restarts after which a transaction is executed and decided by itself, while nothing else is decided.
    pub patience: u32,
}

/// The decision about a batch. Transactions are named by their index in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ordered {
    /// Those that are to commit, in this order.
    pub order: Vec<usize>,
    /// Of `order`, pairs of which the first is to be decided before the second: others may be decided at the
    /// same time. `None`: one by one.
    pub edges: Option<Vec<(usize, usize)>>,
    /// Those that are in conflict with others of the batch in every order.
    pub left_out: Vec<usize>,
}

/// Holds executed transactions until the caller, which orders them, decides them. Between [`Detach::prepare`]
/// and the decision, which is [`Worker::commit`] or [`Worker::abort`], the worker does nothing; another
/// thread may make the decision.
pub trait Detach {
    /// The transaction that has just begun will be held. Until the decision none of its changes moves the
    /// version of a leaf or bucket. So a transaction that read there can still commit before it.
    fn hold(&mut self);

    /// Its reads may wait, within a bound, for held transactions that will write the same rows. This thread holds none
    /// of them, and their decisions do not need it.
    fn may_wait(&mut self) {}

    /// Ends execution; the transaction waits for its decision.
    ///
    /// # Errors
    /// A conflict that is already certain.
    fn prepare(&mut self) -> Result<Prepared, OpError>;

    /// Checks again, before the decision, whether the transaction can still commit. Returns the prepared
    /// accesses if they have changed.
    ///
    /// # Errors
    /// A conflict that is certain by now.
    fn recheck(&mut self) -> Result<Option<Prepared>, OpError> {
        self.prepare().map(Some)
    }

    /// The decision will be to abort, and comes later: no other transaction needs to wait for this one.
    fn refuse(&mut self) {}
}

/// Publishes what registered procedures write in several steps.
pub trait Pieces {
    /// The transaction that has just begun runs a registered procedure. So its additions to columns that
    /// [commute](crate::Commuting) may be published after the rest. Without this call all of them are
    /// published at once, and the transaction sees no half of another.
    fn follow(&mut self);

    /// The transaction that has just begun publishes the [deferred](crate::Deferrals) additions of others, for
    /// a thread that has closed the windows.
    fn publish_deferred(&mut self);
}
