//! An open database without row types: memory, regions, epoch, protocol, tables, workers.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};
use std::time::Duration;

use seriatim_base::clock::{CoarseClock, Instant};
use seriatim_base::thread::{self, Periodic};
use seriatim_base::{Epoch, Process, TableId};
use seriatim_catalog::{ColumnSet, ColumnUse, Key, KeyClass, TableDef, Value};
use seriatim_history::{Columns, History, Recording};
use seriatim_procedure::analysis::{self, Schema};
use seriatim_procedure::plan::{Deferrable, Plan};
use seriatim_txn::{
    Capabilities, Core, Environment, Eventual, Freshness, Knob, Options, Partitions, ProtocolInfo, Reason, RowPtr,
};

use crate::access::AccessState;
use crate::changing::ChangeLock;
use crate::contention::{Contention, Tracker};
use crate::deferred::Publisher;
use crate::durability::{self, Checkpoint, OpenHandle, Opened, Persistence, Recovery, RecoveryPhase, TableChecked};
use crate::error::{CloseError, OpenError, SchemaError, StorageError};
use crate::evolution::TableChange;
use crate::held_back::Bound;
use crate::pool::Pool;
use crate::procedure::ExecutionMode;
use crate::procedure::gate::{Gate, WAIT_MAX};
use crate::protocol::{self, OpenProtocol};
use crate::queue::Queue;
use crate::record::Groups;
use crate::regulation::Regulation;
use crate::row_locks::RowLocks;
use crate::runtime::{DynHandle, DynRow};
use crate::sequences::Sequences;
use crate::settings::Settings;
use crate::snapshot_ages::SnapshotAges;
use crate::table::{Secondary, Shape, TableSet};
use crate::table_ids::{TABLES_MAX, TableIds};
use crate::{Advance, Receipt, Runner, Statistics, TableStatistics, TransactError};

/// An open database, on encoded keys. Clones share it; it ends with the last clone, runner and pending result.
#[derive(Clone)]
pub struct Engine {
    /// Dropped first: the last handle that is dropped waits until no thread uses the database.
    pub(crate) open: Arc<OpenHandle>,
    pub(crate) inner: Arc<Inner>,
}

/// The state of an open database.
pub(crate) struct Inner {
    /// Dropped first: stops the epoch ticker.
    _ticker: Option<Periodic>,
    /// Makes snapshots periodically, if the protocol's snapshots have an interval.
    _snapshots: Option<Periodic>,
    /// Gives memory back to the system.
    _returner: Option<Periodic>,
    /// The directory and the log, if the database has one. Dropped before the pool, to flush what the workers wrote.
    pub(crate) persistence: Option<Persistence>,
    /// The result of the recovery at opening; `None` in memory and where the directory was new.
    recovery: OnceLock<Recovery>,
    pub(crate) options: Settings,
    /// The clock for ages. The ticker advances it, or [`Engine::step`].
    pub(crate) clock: Arc<CoarseClock>,
    /// The most nanoseconds by which `clock` may lag.
    pub(crate) clock_resolution: u64,
    memory_limit: Option<usize>,
    pub(crate) pool: Arc<Pool>,
    /// The protocol's capabilities with the options in use.
    pub(crate) capabilities: Capabilities,
    /// Present if transactions defer. Declared after the fields that need it to close the log.
    _publisher: Option<Arc<Mutex<Publisher>>>,
    pub(crate) tables: RwLock<Tables>,
    /// The right to change the set of tables. Taken before `tables` is locked.
    pub(crate) changes: ChangeLock,
    /// Whether a transaction has the turn: it was refuted many times.
    pub(crate) is_turn_taken: AtomicBool,
    /// What a transaction looks for before it begins.
    pub(crate) attention: Attention,
    pub(crate) sequences: Sequences,
    pub(crate) access: AccessState,
    pub(crate) row_locks: Arc<RowLocks>,
    /// Held while helpers walk over tables: only one set of workers is reserved for them.
    checking: Mutex<()>,
    /// Present if the protocol has a validator, which orders decisions.
    pub(crate) queue: Option<Queue>,
    /// Present if procedures run in pieces.
    pub(crate) gate: Option<Arc<Gate>>,
    sessions: AtomicUsize,
    recording: Option<Recording>,
    pub(crate) groups: Groups,
    /// Present if conflicts are tracked.
    pub(crate) contention: Option<Tracker>,
    /// Present if pauses after conflicts are regulated.
    pub(crate) regulation: Option<Arc<Regulation>>,
    /// Dropped last: all fields above use its memory.
    foundation: Foundation,
}

/// What a transaction looks for before it begins: rare states, in one word. The bits above those of the states count
/// who waits for a moment without transactions.
#[derive(Default)]
pub(crate) struct Attention(AtomicU32);

impl Attention {
    /// A transaction that was refuted many times runs exclusively: no other one that may write begins.
    pub(crate) const EXCLUSIVE: u32 = 1;
    /// A sequence runs low.
    pub(crate) const SEQUENCES: u32 = 2;
    /// One waits for a moment without transactions.
    const QUIET: u32 = 4;

    #[inline(always)]
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    // ORDERING: the word publishes no memory; a transaction that begins sees a change sooner or later.

    pub(crate) fn is(&self, state: u32) -> bool {
        self.0.load(Ordering::Relaxed) & state != 0
    }

    pub(crate) fn ask(&self, state: u32) {
        self.0.fetch_or(state, Ordering::Relaxed);
    }

    /// Ends the state; whether it was one.
    pub(crate) fn end(&self, state: u32) -> bool {
        self.0.fetch_and(!state, Ordering::Relaxed) & state != 0
    }

    /// No transaction begins until the result is dropped, unless it has waited for long.
    fn ask_for_quiet(&self) -> AskedForQuiet<'_> {
        self.0.fetch_add(Attention::QUIET, Ordering::Relaxed);
        AskedForQuiet(self)
    }

    /// Whether somebody waits for a moment without transactions.
    pub(crate) fn wants_quiet(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= Attention::QUIET
    }
}

/// See [`Attention::ask_for_quiet`].
struct AskedForQuiet<'i>(&'i Attention);

impl Drop for AskedForQuiet<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(Attention::QUIET, Ordering::Relaxed);
    }
}

impl Foundation {
    /// Whether additions of transactions may be published later.
    pub(crate) fn defers(&self) -> bool {
        self.environment.epochs.windows().deferrals().are_allowed()
    }
}

/// The parts from which tables and workers are made.
pub(crate) struct Foundation {
    pub(crate) protocol: Box<dyn OpenProtocol>,
    pub(crate) environment: Environment,
    /// Unique among the open databases of this process.
    pub(crate) number: u64,
    /// The process that has the database's threads.
    pub(crate) process: Process,
}

impl Deref for Inner {
    type Target = Foundation;

    fn deref(&self) -> &Foundation {
        &self.foundation
    }
}

/// Ends a period of the regulation of pauses.
fn regulate(regulation: &Regulation, pool: &Pool, now: Instant) {
    let (commits, conflicts) = pool.decided();
    regulation.climb(commits, conflicts, now.nanoseconds());
}

/// Epochs between two collections of idle workers' garbage.
const TICKS_A_COLLECTION: u32 = 8;

/// Epochs between two checks of the memory that snapshots keep. A check sums up the tables' sizes if a snapshot
/// is open.
const TICKS_A_LOOK: u32 = 4;

/// `clock` advances by at most this many intervals at once, however late the ticker runs. An attempt that began
/// while the ticker was late is then not taken for an old one.
const TICK_INTERVALS_MAX: u32 = 4;

/// The error at the limit names free memory of no use for other sizes if it is at least the limit divided by this.
const UNUSABLE_PART: usize = 16;

/// The interval between checks whether free memory can be returned to the system.
const MEMORY_LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Tables {
    /// In the order of their positions.
    pub(crate) sets: Vec<Arc<TableSet>>,
    /// Tables that were replaced or dropped. Workers may still refer to them.
    pub(crate) replaced: Vec<Arc<TableSet>>,
    /// Tables that nobody has used, whose memory is to be freed.
    pub(crate) unused: Vec<Arc<TableSet>>,
    /// The catalogue's own table, if the database is on disk.
    pub(crate) catalogue: Option<Arc<TableSet>>,
    /// The ids that are free. An index is a table and has an id too.
    pub(crate) ids: TableIds,
}

impl Tables {
    /// The position of the next table.
    pub(crate) fn next_position(&self) -> u64 {
        self.sets.last().map_or(0, |set| set.position + 1)
    }
}

impl Engine {
    pub(crate) fn start(mut options: Settings, environment: Environment) -> Result<Engine, OpenError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let protocol = protocol::open(&options, &environment)?;
        options.settle_epoch_interval(environment.epochs.snapshots())?;
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let foundation = Foundation { protocol, environment, number, process: Process::current() };
        let environment = &foundation.environment;
        let began = Instant::now();
        let validator = foundation.protocol.validator();
        if let Some(validator) = &validator {
            Queue::check_wait(&**validator, options.transaction_age_max)?;
        }
        // Recovery may need more memory than was in use: rows that the log deletes later exist for a while.
        environment.memory.set_limit(None);
        let opened = match &options.location {
            Some(place) => durability::open(&options, place, &foundation)?,
            None => durability::Opened::in_memory(),
        };
        let Opened { tables, recovery, catalogue, log } = opened;
        let (persistence, mut writers) = match log {
            Some(log) => {
                let read = recovery.as_ref().map_or(0, |recovery| recovery.log_bytes);
                let (persistence, writers) = Persistence::start(&options, &foundation, log, read)?;
                (Some(persistence), Some(writers))
            }
            None => (None, None),
        };
        let recording = options.record_history.then(Recording::new);
        // The log has one writer more than the pool has workers.
        let writer = if foundation.defers() { writers.as_mut().and_then(Vec::pop) } else { None };
        let own = writer.zip(persistence.as_ref().map(|persistence| Arc::clone(&persistence.whole_before)));
        let publisher = Publisher::start(&foundation, own, recording.clone(), options.limit_bytes())?;
        let pool = Arc::new(Pool::new(options.workers, writers));
        let queue = validator.map(|validator| Queue::new(validator, Some(Arc::clone(&pool))));
        let clock = Arc::new(CoarseClock::default());
        let gate = (options.execution_mode == ExecutionMode::Pieces).then(|| Arc::new(Gate::default()));
        let info = foundation.protocol.info();
        let capabilities = info.capabilities_with(&protocol::options(info, &options).unwrap_or_default());
        let is_regulated = options.regulate_pauses.unwrap_or(capabilities.regulated);
        let regulation = is_regulated.then(|| Arc::new(Regulation::new(options.retry.pause_max)));
        let ticker = if options.step_helpers {
            None
        } else {
            let (time, mut last) = (Arc::clone(&clock), Instant::now());
            let interval = options.epoch_interval();
            let most = interval.saturating_mul(TICK_INTERVALS_MAX);
            let (environment, epochs) = (environment.clone(), Arc::clone(&environment.epochs));
            let (idle, mut leases, mut ticks) = (Arc::clone(&pool), Vec::new(), 0u32);
            let mut log = persistence.as_ref().map(|log| (log.log(), Arc::clone(&log.behind).watch(interval)));
            let undurable_deletions = Arc::clone(&environment.undurable_deletions);
            let regulation = regulation.clone();
            let (age, gate) = (nanoseconds(options.transaction_age_max), gate.clone());
            let (bound, limit) = (Bound::new(&options), options.limit_bytes());
            let tick = move || {
                let now = Instant::now();
                time.advance(now.since(last).min(most));
                last = now;
                reap(&idle, time.now(), age, gate.as_deref());
                if ticks.is_multiple_of(TICKS_A_LOOK) {
                    end_holders(&idle, bound, &environment, limit);
                }
                environment.end_epoch();
                if let Some(regulation) = &regulation {
                    regulate(regulation, &idle, now);
                }
                if let Some((log, look_behind)) = &mut log {
                    look_behind(epochs.current(), log.durable().epoch());
                    if durability::is_at_limit(epochs.current()) {
                        durability::stop_at_limit(log);
                    }
                    log.wake();
                }
                ticks = ticks.wrapping_add(1);
                if ticks.is_multiple_of(TICKS_A_COLLECTION) {
                    idle.collect_idle_garbage(&mut leases);
                    if log.as_ref().is_some_and(|(log, _)| !log.refuses()) {
                        undurable_deletions.forget_keys();
                    }
                }
            };
            let ticker = Periodic::spawn("seriatim-epoch", interval, tick);
            Some(ticker.map_err(OpenError::Thread)?)
        };
        // The first snapshot shows the restored rows.
        environment.advance_snapshot();
        // Snapshots that end epochs are made by the ticker.
        let snapshots = environment.epochs.snapshots();
        let interval = snapshots.eventual().filter(|_| !snapshots.end_epochs()).map(Eventual::interval);
        let snapshots = match interval.filter(|_| !options.step_helpers) {
            None => None,
            Some(interval) => {
                let environment = environment.clone();
                let maker = Periodic::spawn("seriatim-snapshot", interval, move || environment.advance_snapshot());
                Some(maker.map_err(OpenError::Thread)?)
            }
        };
        let resolution = options.epoch_interval().saturating_mul(TICK_INTERVALS_MAX);
        let returner = match options.step_helpers {
            true => None,
            false => {
                let memory = environment.memory.clone();
                let returner = Periodic::spawn("seriatim-memory", MEMORY_LOOK, move || {
                    memory.give_back();
                });
                Some(returner.map_err(OpenError::Thread)?)
            }
        };
        let memory_limit = options.limit_bytes();
        let inner = Inner {
            _ticker: ticker,
            _snapshots: snapshots,
            _returner: returner,
            memory_limit,
            clock,
            clock_resolution: if options.step_helpers { 0 } else { nanoseconds(resolution) },
            pool,
            capabilities,
            _publisher: publisher,
            persistence,
            recovery: OnceLock::new(),
            tables: RwLock::new(tables),
            changes: ChangeLock::default(),
            is_turn_taken: AtomicBool::default(),
            attention: Attention::default(),
            sequences: Sequences::default(),
            access: AccessState::default(),
            row_locks: Arc::default(),
            checking: Mutex::default(),
            queue,
            gate,
            sessions: AtomicUsize::new(0),
            recording,
            groups: Groups::default(),
            contention: options.track_contention.then(Tracker::new),
            regulation,
            foundation,
            options,
        };
        let inner = Arc::new(inner);
        let database = Engine { open: Arc::new(OpenHandle::new(&inner)), inner };
        let indexed_rows = database.rebuild_indexes()?;
        let inner = &database.inner;
        if let Some(persistence) = &inner.persistence {
            persistence.skip_unlogged();
            durability::settle_catalogue(inner, &database.open, persistence, &catalogue)?;
        }
        inner.link();
        inner.restore_sequences(&database.open, &catalogue.catalogue.sequences);
        inner.access.publish(catalogue.catalogue.access.clone());
        inner.environment.memory.set_limit(inner.memory_limit);
        // Checkpoints start only now: one beside the rebuild would slow it down, and no caller waits for it.
        database.open.start_checkpoints().map_err(OpenError::Thread)?;
        if let Some(recovery) = recovery {
            let duration = began.elapsed();
            database.inner.recovery.get_or_init(|| Recovery { indexed_rows, duration, ..recovery });
        }
        Ok(database)
    }

    /// The table of this name, if there is one.
    pub fn find(&self, name: &str) -> Option<Arc<TableSet>> {
        self.inner.find(name)
    }

    /// Whether this is a fork of the process that opened the database.
    pub fn is_forked(&self) -> bool {
        self.inner.check_process().is_err()
    }

    /// The tables, for analysis; none in a fork.
    pub fn schema(&self) -> Schema {
        Schema::new(self.inner.sets().iter().map(|set| TableDef::clone(&set.definition)))
    }

    /// Tells each table which columns all procedures with these plans only add to or leave alone. `plans` are
    /// all registered procedures that do not run on snapshots. Only protocols that publish in pieces use this;
    /// their transactions read it again in their windows.
    pub fn agree<'p>(&self, plans: impl IntoIterator<Item = &'p Plan>) {
        if !self.inner.protocol.info().capabilities.pieces {
            return;
        }
        // A thread that closes windows must hold no lock: the holder may itself wait to close them.
        let (plans, sets): (Vec<&Plan>, _) = (plans.into_iter().collect(), self.inner.sets());
        let is_clustered = |table: &str| {
            let set = sets.iter().find(|set| &*set.definition.name == table);
            set.is_some_and(|set| set.primary.has_runs)
        };
        // A chain of pieces would be in several intervals between two publications of deferred additions.
        let later = match self.inner.defers() && self.inner.gate.is_none() {
            true => analysis::deferrable(&plans, |_| false, is_clustered),
            false => Deferrable::default(),
        };
        let agreements = analysis::agreements(plans.iter().copied());
        let windows = self.inner.environment.epochs.windows();
        let _closed = windows.close();
        for set in &sets {
            let name = &*set.definition.name;
            // Rows of a run are one record.
            let agreed = agreements.get(name).filter(|_| !set.primary.has_runs);
            let sums = agreed.map_or(ColumnSet::EMPTY, |agreed| ColumnUse::adding(agreed.sums.iter()).added);
            let changed = agreed.map(|agreed| &agreed.changed).or_else(|| later.changed.get(name));
            let steady = changed.map_or(ColumnSet::EMPTY, |changed| changed.iter().collect::<ColumnSet>().complement());
            let deferrable = later.columns.get(name);
            let deferrable = deferrable.map_or(ColumnSet::EMPTY, |sums| ColumnUse::adding(sums.iter()).added);
            set.primary.commuting.set(sums, steady, deferrable);
        }
        self.inner.groups.set(plans.iter().map(|plan| &*plan.procedure).zip(later.groups));
        windows.deferrals().note_change();
    }

    /// The options with which the database was opened.
    pub fn settings(&self) -> &Settings {
        &self.inner.options
    }

    /// The gate that excludes chains of pieces and other transactions from each other, if procedures run in pieces.
    pub fn gate(&self) -> Option<&Gate> {
        self.inner.gate.as_deref()
    }

    /// Announces chains of pieces, of which open transactions do not know: waits until these have ended.
    /// `false` if some stay open for longer than the bound of 1 s.
    #[must_use]
    pub fn arm_gate(&self) -> bool {
        let Some(gate) = self.inner.gate.as_deref().filter(|gate| !gate.is_armed()) else { return true };
        self.while_idle(&|| gate.arm())
    }

    /// Runs `act` if others rely on the set of procedures, at a moment at which no transaction is open; otherwise at
    /// once. `false` if transactions stay open for longer than the bound of 1 s.
    #[must_use]
    pub fn between_calls(&self, act: &dyn Fn()) -> bool {
        let relies = self.inner.protocol.info().capabilities.pieces || self.inner.gate.is_some();
        if relies {
            return self.while_idle(act);
        }
        act();
        true
    }

    /// Runs `act` at a moment at which no transaction is open. `false` if some stay open for longer than 1 s.
    fn while_idle(&self, act: &dyn Fn()) -> bool {
        let begun = Instant::now();
        while self.inner.quietly(WAIT_MAX, act).is_none() {
            if begun.elapsed() > WAIT_MAX {
                return false;
            }
        }
        true
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Creates a table for access by values known at run time.
    ///
    /// # Errors
    /// As [`Engine::create`].
    pub fn declare(&self, definition: TableDef) -> Result<DynHandle, SchemaError> {
        self.create(definition).map(DynHandle::new)
    }

    /// Creates tables declared at run time, all of them or none: durable when this returns.
    ///
    /// # Errors
    /// As [`Engine::create`].
    pub fn declare_all(&self, definitions: Vec<TableDef>) -> Result<Vec<DynHandle>, SchemaError> {
        Ok(self.create_all(definitions)?.into_iter().map(DynHandle::new).collect())
    }

    /// An existing table, by name, for access by values known at run time.
    ///
    /// # Errors
    /// There is no such table.
    pub fn open_dyn(&self, name: &str) -> Result<DynHandle, SchemaError> {
        self.inner.table(name).map(DynHandle::new)
    }

    /// Names of the tables, in order of creation; none in a fork.
    pub fn table_names(&self) -> Vec<String> {
        self.inner.sets().iter().map(|set| set.definition.name.to_string()).collect()
    }

    /// Creates a table: durable when this returns.
    ///
    /// # Errors
    /// A definition that contradicts itself, a name that is taken, no memory, an error of the file system.
    pub fn create(&self, definition: TableDef) -> Result<Arc<TableSet>, SchemaError> {
        Ok(self.create_all(vec![definition])?.remove(0))
    }

    /// Creates tables, all of them or none.
    fn create_all(&self, definitions: Vec<TableDef>) -> Result<Vec<Arc<TableSet>>, SchemaError> {
        self.change_tables(&self.changing()?, definitions.into_iter().map(TableChange::Create).collect())
    }

    /// A runner of transactions. Runners are cheap; each thread has its own.
    pub fn runner(&self) -> Runner {
        let number = self.inner.sessions.fetch_add(1, Ordering::Relaxed);
        Runner::new(Arc::clone(&self.inner), Arc::clone(&self.open), number)
    }

    /// For a thread that has submitted decisions ([`Runner::queue`]) and has no other work: see [`Advance`].
    pub fn advance_queue(&self, gather: bool) -> Advance {
        self.inner.queue.as_ref().map_or(Advance::Decided, |queue| queue.advance(gather))
    }

    /// As [`Queue::end_wait`].
    pub(crate) fn end_queue_wait(&self) {
        if let Some(queue) = &self.inner.queue {
            queue.end_wait();
        }
    }

    /// As [`Queue::has_wait`].
    pub(crate) fn queue_has_wait(&self) -> bool {
        self.inner.queue.as_ref().is_some_and(Queue::has_wait)
    }

    /// As [`Queue::look_again`].
    pub(crate) fn look_at_queue_again(&self, at_latest: Duration) -> Option<Duration> {
        self.inner.queue.as_ref().and_then(|queue| queue.look_again(at_latest))
    }

    /// The most transactions that each of `threads` threads may hold executed and undecided: a batch, within
    /// the thread's share of the workers. One if decisions are not queued. One too where chains of pieces wait
    /// for other transactions: these must not wait for each other then.
    pub fn held_max(&self, threads: usize) -> usize {
        let queue = self.inner.queue.as_ref().filter(|_| self.inner.gate.is_none());
        let batch_max = queue.map_or(1, Queue::batch_max);
        batch_max.min(self.inner.options.workers / threads).max(1)
    }

    /// Gives all rows of a table to `see`, some dozens at a time. No transaction may change the table meanwhile.
    ///
    /// # Errors
    /// Errors of `see`; no free worker.
    pub fn each_row(
        &self,
        table: &DynHandle,
        see: &mut dyn FnMut(Vec<Vec<Value>>) -> Result<(), TransactError>,
    ) -> Result<(), TransactError> {
        durability::copy_rows(&self.inner, &table.set, see)
    }

    /// Calls `see` with each row of a table of any organization at a moment at which no transaction is open. Returns
    /// their number. New transactions wait meanwhile, as for a worker.
    ///
    /// # Errors
    /// [`TransactError::Excluded`] if a transaction stays open; no worker; a table of another database.
    pub fn each_row_at_rest(&self, set: &TableSet, see: &mut dyn FnMut(RowPtr)) -> Result<usize, TransactError> {
        self.at_rest(&[set], &mut |_, row| see(row))
    }

    /// Calls `see` with each row of several tables, as they all are at one moment. It also gets the position of the
    /// row's table in `sets`.
    fn at_rest(&self, sets: &[&TableSet], see: &mut dyn FnMut(usize, RowPtr)) -> Result<usize, TransactError> {
        sets.iter().try_for_each(|set| self.check_listed(set))?;
        // Between two pieces of a chain no transaction is open, and half of it is there.
        let gate = self.gate().filter(|gate| gate.is_armed());
        let _alone = gate.map(Gate::other).transpose()?;
        let began = Instant::now();
        loop {
            // Before transactions are kept out: another list may take long.
            let helping = self.inner.helping();
            let listed = self.inner.quietly(WAIT_MAX, || {
                // They may have changed since. A table is closed while its change has committed and is not there yet.
                sets.iter().try_for_each(|set| self.check_listed(set))?;
                if sets.iter().any(|set| set.is_closed()) {
                    return Ok(None);
                }
                let each = |(at, set): (usize, &&TableSet)| self.list(set, &helping, &mut |row| see(at, row));
                sets.iter().enumerate().map(each).sum::<Result<usize, _>>().map(Some)
            });
            match listed.ok_or(TransactError::Excluded { by: "open transactions" })?? {
                Some(rows) => return Ok(rows),
                None if began.elapsed() >= WAIT_MAX => {
                    return Err(TransactError::Excluded { by: "changes of its tables" });
                }
                None => drop(helping),
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Calls `see` with each committed row of a table of any organization while transactions run. Returns their number.
    ///
    /// # Errors
    /// [`TransactError::Excluded`] if a commit does not end for a second. Also if no worker is free, or if the table
    /// belongs to another database.
    pub fn each_committed_row(&self, set: &TableSet, see: &mut dyn FnMut(RowPtr)) -> Result<usize, TransactError> {
        self.check_listed(set)?;
        self.list(set, &self.inner.helping(), see)
    }

    fn check_listed(&self, set: &TableSet) -> Result<(), TransactError> {
        self.inner.check_process().map_err(|_| TransactError::Forked)?;
        match set.refusal() {
            _ if set.database != self.inner.number => Err(TransactError::ForeignHandle),
            Some(Reason::TableGone) => Err(TransactError::TableGone),
            _ => Ok(()),
        }
    }

    fn list(
        &self,
        set: &TableSet,
        helping: &MutexGuard<'_, ()>,
        see: &mut dyn FnMut(RowPtr),
    ) -> Result<usize, TransactError> {
        // Publishes deferred additions. No transaction is open, so none defers further additions.
        drop(self.inner.environment.epochs.windows().close());
        durability::each_row(&self.inner, set, helping, see)
    }

    /// As [`Engine::each_committed_row`], by values.
    ///
    /// # Errors
    /// The errors of [`Engine::each_committed_row`].
    pub fn each_committed_row_dyn(
        &self,
        table: &DynHandle,
        see: &mut dyn FnMut(DynRow<'_>),
    ) -> Result<usize, TransactError> {
        self.each_committed_row(&table.set, &mut |row| see(DynRow::new(&table.set, row)))
    }

    /// As [`Engine::each_row_at_rest`], by values, for several tables as they all are at one moment. `see` also gets
    /// the position of the row's table in `tables`.
    ///
    /// # Errors
    /// The errors of [`Engine::each_row_at_rest`].
    pub fn each_row_at_rest_dyn(
        &self,
        tables: &[&DynHandle],
        see: &mut dyn FnMut(usize, DynRow<'_>),
    ) -> Result<usize, TransactError> {
        let sets: Vec<&TableSet> = tables.iter().map(|table| &*table.set).collect();
        self.at_rest(&sets, &mut |at, row| see(at, DynRow::new(sets[at], row)))
    }

    /// The partitions of the database, if its protocol has any.
    pub fn partitions(&self) -> Option<Arc<Partitions>> {
        self.inner.protocol.partitions().map(|(partitions, _)| partitions)
    }

    /// Rebuilds the secondary indexes of recovered tables; returns the number of rows entered.
    fn rebuild_indexes(&self) -> Result<u64, OpenError> {
        let options = &self.inner.options;
        let entered = AtomicU64::new(0);
        let done = |rows| {
            let entered = entered.fetch_add(rows, Ordering::Relaxed) + rows;
            options.on_recovery.report(RecoveryPhase::Indexes, entered, None);
        };
        let sets = self.inner.sets();
        sets.iter().try_for_each(|set| durability::rebuild(&self.inner, &self.open, set, &done))?;
        Ok(entered.into_inner())
    }

    /// The result of the recovery at opening; `None` in memory and where the directory was new.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.inner.recovery.get()
    }

    /// Takes a checkpoint now. `None` in memory.
    ///
    /// # Errors
    /// An error of the file system, or a log that has stopped. The previous checkpoint stays valid.
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>, StorageError> {
        self.inner.check_process()?;
        let persistence = self.inner.persistence.as_ref();
        persistence.map(|persistence| durability::take_checkpoint(&self.inner, persistence)).transpose()
    }

    /// Makes everything committed so far durable. At once in memory.
    ///
    /// # Errors
    /// The log has stopped, the disk is full, or the flush took too long.
    pub fn flush(&self) -> Result<(), TransactError> {
        self.inner.flush(self.inner.options.wait_max)
    }

    /// Closes the database, and reports whether all committed transactions are durable. In a forked process it
    /// does nothing.
    ///
    /// # Errors
    /// Some committed transactions are not durable and are lost.
    pub fn close(self) -> Result<(), CloseError> {
        if self.inner.check_process().is_err() {
            return Ok(());
        }
        self.open.end_checkpoints();
        self.inner.persistence.as_ref().map_or(Ok(()), Persistence::close)
    }

    /// The durable epoch: every transaction of an epoch up to it survives a power cut. It never decreases.
    /// `None` in memory, where nothing survives.
    pub fn durable_epoch(&self) -> Option<Epoch> {
        self.inner.persistence.as_ref().map(Persistence::durable_epoch)
    }

    /// Asks for an epoch to become durable: it ends, and is flushed, as soon as the disk is free. Never waits;
    /// does nothing in memory.
    ///
    /// # Errors
    /// [`TransactError::LogStopped`]: nothing more becomes durable.
    pub fn request_durable(&self, epoch: Epoch) -> Result<(), TransactError> {
        let Some(persistence) = &self.inner.persistence else { return Ok(()) };
        self.inner.check_process().map_err(|_| TransactError::Forked)?;
        let log = persistence.log();
        if log.durable().is_stopped() {
            return Err(self.inner.log_stopped());
        }
        if persistence.durable_epoch() < epoch {
            log.request(epoch);
        }
        Ok(())
    }

    /// Whether both the transaction and what it read survive a power cut.
    pub fn is_durable(&self, receipt: &Receipt) -> bool {
        self.durable_epoch().is_some_and(|durable| receipt.epoch() <= durable)
    }

    /// The protocol in use, with its capabilities under the options in use.
    pub fn protocol(&self) -> ProtocolInfo {
        ProtocolInfo { capabilities: self.inner.capabilities, ..*self.inner.protocol.info() }
    }

    fn options_in_use(&self) -> Options {
        protocol::options(self.inner.protocol.info(), &self.inner.options).unwrap_or_default()
    }

    /// The options of the protocol in use, each with its value.
    pub fn protocol_options(&self) -> impl Iterator<Item = (&'static Knob, u64)> + '_ {
        let options = self.options_in_use();
        self.inner.protocol.info().options.iter().map(move |knob| (knob, options.get(knob)))
    }

    /// How regions run.
    pub fn backend(&self) -> seriatim_htm::Backend {
        self.inner.environment.htm.backend()
    }

    /// Counts since the database was opened; in a fork, none.
    pub fn statistics(&self) -> Statistics {
        if self.inner.check_process().is_err() {
            return Statistics::default();
        }
        let (memory, sets) = (&self.inner.environment.memory, self.inner.sets());
        let ids = self.inner.tables.read().unwrap_or_else(PoisonError::into_inner).ids.clone();
        let is_missing = |name: &&String| !sets.iter().flat_map(|set| set.physical()).any(|table| table.name == **name);
        let mut statistics = Statistics {
            memory_bytes: memory.in_use_bytes(),
            transaction_bytes: memory.noted_bytes(),
            reserved_bytes: memory.reserved_bytes(),
            memory_limit: self.inner.memory_limit,
            tables: sets.iter().map(|set| self.inner.table_statistics(set)).collect(),
            tables_left: ids.left(),
            tables_warning: ids.warning(),
            hot_tables_missing: self.inner.options.hot_tables.iter().filter(is_missing).cloned().collect(),
            log: self.inner.persistence.as_ref().map(Persistence::statistics),
            queue: self.inner.queue.as_ref().map(Queue::statistics),
            snapshot_ages: self.inner.environment.epochs.snapshots().eventual().map(|_| SnapshotAges::default()),
            partitions: self.inner.protocol.partitions().map_or(0, |(partitions, _)| partitions.count()),
            pause_max: self.inner.regulation.as_ref().map(|regulation| regulation.pause_max()),
            ..Statistics::default()
        };
        self.inner.pool.add_to(&mut statistics);
        statistics
    }

    /// Maps and touches this many bytes now, so that no transaction waits for fresh pages.
    ///
    /// # Errors
    /// The operating system does not provide them.
    pub fn prefault(&self, bytes: usize) -> Result<(), OpenError> {
        self.inner.environment.memory.prefault(bytes).map_err(|error| OpenError::Memory(error.to_string()))
    }

    /// How fresh snapshots of this database are: no less than the protocol's entry in the registry says.
    pub fn freshness(&self) -> Freshness {
        self.inner.freshness()
    }

    /// Does the work of the helper threads, once.
    pub fn step(&self) {
        if self.inner.check_process().is_err() {
            return;
        }
        let environment = &self.inner.environment;
        self.inner.clock.advance(self.inner.options.epoch_interval());
        environment.advance_epoch();
        if let Some(regulation) = &self.inner.regulation {
            regulate(regulation, &self.inner.pool, Instant::now());
        }
        let age = nanoseconds(self.inner.options.transaction_age_max);
        reap(&self.inner.pool, self.inner.clock.now(), age, self.inner.gate.as_deref());
        end_holders(&self.inner.pool, Bound::new(&self.inner.options), environment, self.inner.memory_limit);
        if let Some(persistence) = &self.inner.persistence {
            persistence.step();
            durability::look_for_checkpoint(&self.inner, persistence);
        }
        self.inner.convert_rows(Duration::ZERO);
        self.inner.pool.collect_garbage();
        environment.memory.give_back();
    }

    /// The conflicts since the database was opened, if they are tracked; in a fork they are not.
    pub fn contention(&self) -> Option<Contention> {
        self.inner.check_process().ok()?;
        let tracker = self.inner.contention.as_ref()?;
        Some(tracker.contention(self.inner.protocol.hot_records(), |id, key| self.inner.describe(id, key)))
    }

    /// The history since the last call, if the database records one.
    pub fn take_history(&self) -> Option<History> {
        self.inner.check_process().ok()?;
        // Deferred additions belong to the transactions that deferred them, so they are published first.
        drop(self.inner.environment.epochs.windows().close());
        let transactions = self.inner.recording.as_ref()?.take();
        let tables = self.inner.tables.read().unwrap_or_else(PoisonError::into_inner);
        let has_groups = self.inner.protocol.info().capabilities.column_groups;
        let mut names = vec![String::new(); tables.ids.end()];
        let mut groups = vec![Vec::new(); if has_groups { names.len() } else { 0 }];
        for set in tables.sets.iter().chain(&tables.replaced) {
            set.each_table(|table| names[table.id.index()].clone_from(&table.name));
            // Entries of indexes are inserted and deleted, and have no columns of their own. Rows of a run are
            // one record.
            set.each_layout(|id, definition| {
                if has_groups && !definition.is_clustered() {
                    let columns = definition.updatable();
                    groups[id.index()] = columns.iter().map(|column| Columns(ColumnSet::of(column).bits())).collect();
                }
            });
        }
        Some(History { tables: names, groups, transactions, ..History::default() })
    }

    /// Checks the structure of every table and index against itself. New transactions wait meanwhile.
    ///
    /// # Errors
    /// The first fault found, in words; or a transaction that is open.
    pub fn check_structure(&self) -> Result<(), String> {
        self.inner.check_process().map_err(|error| error.to_string())?;
        let tables = self.inner.tables.read().unwrap_or_else(PoisonError::into_inner);
        let check = |table: &seriatim_txn::Table| {
            // SAFETY: no transaction is open, so no worker uses an index.
            unsafe { table.index.check() }.map_err(|fault| format!("{}: {fault}", table.name))
        };
        let sets = || tables.sets.iter().chain(&tables.catalogue);
        let earlier = || sets().flat_map(|set| &set.earlier.layouts).map(|layout| &*layout.set.primary);
        let all = || sets().flat_map(|set| set.physical()).chain(earlier()).try_for_each(check);
        let busy = || Err("a transaction is open: end it before the structure is checked".to_owned());
        self.inner.quietly(WAIT_MAX, all).unwrap_or_else(busy)
    }

    /// Compares every secondary index with its table, both ways, and counts the rows. Writing transactions
    /// should have ended: a commit during the comparison may look like a fault.
    ///
    /// # Errors
    /// The first fault found, in words; or why the rows could not be read.
    pub fn check_indexes(&self) -> Result<Vec<TableChecked>, String> {
        self.inner.check_process().map_err(|error| error.to_string())?;
        durability::check_indexes(&self.inner, &self.open)
    }
}

/// Ends snapshots and parked transactions that keep too much memory from being used again.
fn end_holders(pool: &Pool, bound: Bound, environment: &Environment, limit: Option<usize>) {
    pool.end_holders(bound, || {
        let memory = &environment.memory;
        let (in_use, noted) = (memory.in_use_bytes(), memory.noted_bytes());
        let needed = usize::try_from(environment.census.bytes()).unwrap_or(0);
        (in_use.saturating_sub(needed + noted), limit.unwrap_or(usize::MAX).saturating_sub(in_use))
    });
}

/// Ends parked transactions that are too old.
fn reap(pool: &Pool, now: u64, age: u64, gate: Option<&Gate>) {
    pool.reap(now, age, || gate.into_iter().for_each(Gate::leave_other));
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Inner {
    /// Makes a table that is not published yet, and takes its ids.
    pub(crate) fn make_table(
        &self,
        definition: TableDef,
        ids: &mut TableIds,
        position: u64,
    ) -> Result<Arc<TableSet>, SchemaError> {
        let id = ids.take(1 + definition.indexes.len()).ok_or(SchemaError::TooMany { most: TABLES_MAX })?;
        let indexes: Vec<TableId> = (1..).map(|at| TableId(id.0 + at)).take(definition.indexes.len()).collect();
        self.with_core(|core| TableSet::new(&self.foundation, definition, id, &indexes, position, core)).map(Arc::new)
    }

    /// Makes the links between tables. No transaction of an application has begun.
    fn link(&self) {
        let all: Vec<(Arc<TableSet>, Shape)> =
            self.sets().into_iter().map(|set| (Arc::clone(&set), set.shape())).collect();
        let links = crate::link::links(&all, |_, _| false);
        for ((set, _), links) in all.iter().zip(links).filter(|(_, links)| !links.is_empty()) {
            set.set_shape(Shape { links: Arc::new(links), ..set.shape() });
        }
    }

    /// Makes the index at a position of a declaration, of a table with keys of this class, and takes its id.
    pub(crate) fn make_index(
        &self,
        definition: &TableDef,
        at: usize,
        class: KeyClass,
        ids: &mut TableIds,
    ) -> Result<Secondary, SchemaError> {
        let id = ids.take(1).ok_or(SchemaError::TooMany { most: TABLES_MAX })?;
        self.with_core(|core| Secondary::new(&self.foundation, definition, at, id, class, core))
    }

    /// Makes something with a worker's core.
    fn with_core<R>(&self, make: impl FnOnce(&mut Core) -> Result<R, SchemaError>) -> Result<R, SchemaError> {
        let lease = self.pool.lease(0, self.protocol.as_ref(), &self.environment, true);
        let lease = lease.ok_or(SchemaError::WorkersBusy)?;
        // SAFETY: the lease is ours until it is given back below.
        let core = unsafe { self.pool.worker(lease).as_mut() }.core();
        let made = make(core);
        self.pool.give_back_unused(lease);
        made.map_err(|error| match error {
            SchemaError::OutOfMemory { .. } => {
                SchemaError::OutOfMemory { held: self.pool.holds_memory(self.clock.now(), None) }
            }
            error => error,
        })
    }

    /// Gives the memory of tables back that were not published.
    pub(crate) fn dispose(&self, sets: Vec<Arc<TableSet>>) {
        let _one_at_a_time = self.helping();
        // Helpers have a core of their own; without it the memory stays until the database is closed.
        let Some(mut core) = self.environment.core() else { return };
        for set in sets.into_iter().filter_map(Arc::into_inner) {
            // SAFETY: this was the only reference.
            unsafe { set.dispose(&mut core) };
        }
    }

    /// The tables, to change them.
    pub(crate) fn tables_mut(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The catalogue's own table, if the database is on disk.
    pub(crate) fn catalogue(&self) -> Option<DynHandle> {
        self.tables()?.catalogue.clone().map(DynHandle::new)
    }

    /// Runs `f` while no transaction is open and none can be opened. `None` if one stays open for so long. A session
    /// whose transactions follow each other at once waits meanwhile: its worker is free only for a moment between them.
    pub(crate) fn quietly<R>(&self, wait: Duration, f: impl FnOnce() -> R) -> Option<R> {
        let asked = self.attention.ask_for_quiet();
        self.pool.quietly(wait, || {
            // From here on they wait for workers.
            drop(asked);
            f()
        })
    }

    /// Held while helpers walk over tables: only one set of workers is reserved for them.
    pub(crate) fn helping(&self) -> MutexGuard<'_, ()> {
        self.checking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Inner::helping`], if no helper walks.
    pub(crate) fn try_helping(&self) -> Option<MutexGuard<'_, ()>> {
        match self.checking.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The tables; none in a fork.
    pub(crate) fn sets(&self) -> Vec<Arc<TableSet>> {
        self.tables().map_or_else(Vec::new, |tables| tables.sets.clone())
    }

    /// Bytes at the memory limit that are free and serve only objects of about the same size, if there are many.
    pub(crate) fn unusable_bytes(&self) -> usize {
        let (free, limit) = (self.environment.memory.free_bytes(), self.memory_limit.unwrap_or(usize::MAX));
        if free >= limit / UNUSABLE_PART { free } else { 0 }
    }

    fn table_statistics(&self, set: &TableSet) -> TableStatistics {
        let census = &self.environment.census;
        let count = |table: &seriatim_txn::Table| census.of(table.id);
        let natural = |number: i64| u64::try_from(number).unwrap_or(0);
        let primary = count(&set.primary);
        let earlier = set.earlier.layouts.iter().map(|layout| count(&layout.set.primary));
        let earlier = earlier.fold((0, 0), |(rows, bytes), earlier| (rows + earlier.rows, bytes + earlier.bytes));
        let index_bytes = set.indexes.iter().map(|index| count(&index.table).bytes).sum();
        TableStatistics {
            name: set.definition.name.to_string(),
            rows: natural(primary.rows + earlier.0),
            bytes: natural(primary.bytes + earlier.1),
            index_bytes: natural(index_bytes),
            earlier_rows: natural(earlier.0),
        }
    }

    /// The table of this name, if there is one; none in a fork.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<TableSet>> {
        self.check_process().ok()?;
        let tables = self.tables()?;
        tables.sets.iter().find(|set| set.definition.name == name).cloned()
    }

    /// As [`Inner::find`].
    ///
    /// # Errors
    /// No such table; that this is a fork.
    pub(crate) fn table(&self, name: &str) -> Result<Arc<TableSet>, SchemaError> {
        self.check_process().map_err(SchemaError::storage)?;
        self.find(name).ok_or_else(|| SchemaError::Unknown(name.to_owned()))
    }

    /// The tables. `None` in a fork, where another thread may have the lock for ever.
    fn tables(&self) -> Option<RwLockReadGuard<'_, Tables>> {
        self.check_process().ok()?;
        Some(self.tables.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn recording(&self) -> Option<&Recording> {
        self.recording.as_ref()
    }

    /// The name of the table that has this id, or an index with it, and the name of that key as a constraint.
    pub(crate) fn constraint(&self, id: TableId) -> Option<(String, String)> {
        self.tables()?.sets.iter().find_map(|set| {
            let of_copy = || set.followers.iter().find_map(|follower| follower.copy()?.constraint(id));
            set.constraint(id).or_else(of_copy)
        })
    }

    /// The name of the table or index with this id, and the key in words.
    pub(crate) fn describe(&self, id: TableId, key: Option<Key<'_>>) -> (Option<String>, Option<String>) {
        let Some(tables) = self.tables() else { return (None, None) };
        let found = tables.sets.iter().find_map(|set| {
            let (at, table) = set.physical().enumerate().find(|(_, table)| table.id == id)?;
            Some((set.name_of(at), table))
        });
        found.map_or((None, None), |(name, table)| (Some(name), key.map(|key| table.codec.describe(key))))
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("protocol", &self.protocol().name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use seriatim_base::WorkerId;
    use seriatim_base::process::in_fork;
    use seriatim_catalog::{ColumnDef, ColumnType};
    use seriatim_txn::Mode;

    use crate::{Settings, protocols};

    use super::*;

    #[test]
    fn a_fork_waits_for_no_lock_of_the_tables() {
        let settings = Settings { track_contention: true, step_helpers: true, ..Settings::default() };
        let engine = settings.open().expect("in memory");
        let columns = |name: &'static str| {
            let table = TableDef::builder(name).column(ColumnDef::new("id", ColumnType::U64)).key(["id"]);
            table.finish().expect("a valid table")
        };
        engine.create(columns("note")).expect("a valid table");
        let inner = Arc::clone(engine.inner());
        let tables = inner.tables.write().expect("no panic");
        let mut all = Some(engine.clone());
        let is_forked = |error: &SchemaError| {
            assert!(matches!(error, SchemaError::Storage(error) if matches!(**error, StorageError::Forked)), "{error}");
        };
        in_fork(|| {
            is_forked(&engine.open_dyn("note").map(drop).expect_err("nothing is opened in a fork"));
            is_forked(&engine.create(columns("other")).map(drop).expect_err("nothing is created in a fork"));
            assert!(engine.table_names().is_empty() && engine.find("note").is_none());
            assert!(engine.statistics().tables.is_empty() && engine.contention().is_none());
            assert!(engine.take_history().is_none() && engine.runner().begin(Mode::ReadWrite).is_err());
            drop(all.take());
        });
        drop(tables);
    }

    /// Between two pieces no transaction is open.
    #[test]
    fn rows_are_not_listed_between_two_pieces_of_a_chain() {
        let settings = Settings { execution_mode: ExecutionMode::Pieces, step_helpers: true, ..Settings::default() };
        let engine = settings.open().expect("in memory");
        let table = TableDef::builder("note").column(ColumnDef::new("id", ColumnType::U64)).key(["id"]);
        let set = engine.create(table.finish().expect("a valid table")).expect("a new name");
        let list = || engine.each_row_at_rest(&set, &mut |_| {});
        assert!(engine.arm_gate() && list().is_ok());
        let gate = engine.gate().expect("procedures run in pieces");
        let chain = gate.chain().expect("nothing else runs");
        let refused = list().expect_err("half of the chain may be there");
        assert!(matches!(refused, TransactError::Excluded { by: "procedures that run in pieces" }), "{refused}");
        drop(chain);
        list().expect("the chain has ended");
        gate.chain().map(drop).expect("the list has ended");
    }

    #[test]
    fn a_list_that_waits_finds_the_table_as_it_is_by_then() {
        let engine = Settings { step_helpers: true, ..Settings::default() }.open().expect("in memory");
        let table = TableDef::builder("note").column(ColumnDef::new("id", ColumnType::U64)).key(["id"]);
        let set = engine.create(table.finish().expect("a valid table")).expect("a new name");
        let list = || engine.each_row_at_rest(&set, &mut |_| {});
        thread::scope(|scope| {
            // As in a commit that changes the table, before the change is there.
            set.close();
            let waits = scope.spawn(list);
            thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished());
            set.reopen();
            assert_eq!(waits.join().expect("no panic").expect("it is open"), 0);
            // As in a migration that drops it.
            let helping = engine.inner().helping();
            let waits = scope.spawn(list);
            thread::sleep(Duration::from_millis(20));
            set.end();
            drop(helping);
            assert!(matches!(waits.join().expect("no panic"), Err(TransactError::TableGone)));
        });
    }

    #[test]
    fn the_agreement_of_procedures_changes_while_no_window_is_open() {
        for info in protocols().iter().filter(|info| info.capabilities.pieces) {
            let engine = Settings { protocol: info.name.to_owned(), step_helpers: true, ..Settings::default() }.open();
            let (engine, has_agreed) = (engine.expect("a protocol of this name"), AtomicBool::new(false));
            let window = engine.inner().environment.epochs.windows().open(WorkerId(0));
            thread::scope(|scope| {
                scope.spawn(|| {
                    engine.agree([]);
                    has_agreed.store(true, Ordering::Release);
                });
                thread::sleep(Duration::from_millis(20));
                assert!(!has_agreed.load(Ordering::Acquire), "a chain is half published");
                drop(window);
            });
            assert!(has_agreed.into_inner());
        }
    }

    #[test]
    fn a_worker_is_set_aside_where_a_thread_publishes_deferred_additions() {
        let workers = |value| {
            let protocol_options = vec![("defer".to_owned(), value)];
            let settings =
                Settings { protocol: "dbx-tc".to_owned(), protocol_options, step_helpers: true, ..Settings::default() };
            settings.open().expect("a database").inner().environment.memory.workers_max()
        };
        assert_eq!(workers(1), workers(0) + 1);
    }
}
