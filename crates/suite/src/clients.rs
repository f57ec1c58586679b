//! Clients of a database that record their requests and answers, and nothing else: the black box that
//! [`checker`](crate::checker) judges. The database's own recorder is off, except where the transactions are
//! registered procedures.
//!
//! Every attempt is an operation of its own, because an aborted attempt must leave nothing that another sees. The retry
//! loop is here and not the session's. Values are unique in a history, so that a read identifies the transaction that
//! wrote its value. Invocations and answers draw tickets from one counter, the former before the transaction begins,
//! the latter after it ended. An answer with a lower ticket than an invocation came before it in real time. Keys are
//! few and skewed; lists are abandoned for fresh keys as they grow, so that absent keys are as common as long lists.
//!
//! Some reads are made by a write that is undone at once, in a savepoint: its old value counts as read.
//!
//! Source: Kingsbury and Alvaro, *Elle: Inferring Isolation Anomalies from Experimental Observations*, VLDB 2020, for
//! list-append and register workloads; the rows of [`DataModel::ListsInRows`] are ours, for phantoms.

mod declared;

pub use declared::Route;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim::history::{Promises, check};
use seriatim::{
    Abort, Batch, BatchStatistics, Builder, Database, Executor, Handle, MissingRow, ReadTx, Receipt, RetryPolicy, Rng,
    Session, Table, TransactError, Tx, thread,
};

use crate::Setting;
use crate::checker::{Promised, check_history};

/// A register: one value, overwritten blindly.
#[derive(Table, Clone, Debug)]
#[table(name = "register", key(id), hash)]
struct Register {
    id: u32,
    value: u64,
}

/// A list in one row: its elements in decimal, each followed by a space.
#[derive(Table, Clone, Debug)]
#[table(name = "list", key(id), hash)]
struct List {
    id: u32,
    elements: String,
}

/// Two lists in one row, as in [`List`]. To the checker they are two keys, as if in two rows.
#[derive(Table, Clone, Debug)]
#[table(name = "two_lists", key(id), hash)]
struct TwoLists {
    id: u32,
    left: String,
    right: String,
    /// It distinguishes a row from another that was inserted after its deletion.
    #[column(immutable)]
    since: u8,
}

impl TwoLists {
    /// The row of a key, and whether the list is the right one.
    fn place(key: u32) -> (u32, bool) {
        (key / 2, key % 2 == 1)
    }

    /// The column of a list.
    fn column(is_right: bool) -> seriatim::catalog::TableColumns<TwoLists> {
        if is_right { TwoListsRow::RIGHT.into() } else { TwoListsRow::LEFT.into() }
    }

    /// A row with one list.
    fn of(key: u32, list: String) -> TwoLists {
        let (id, is_right) = TwoLists::place(key);
        let (left, right) = if is_right { (String::new(), list) } else { (list, String::new()) };
        TwoLists { id, left, right, since: 0 }
    }

    /// Changes one list of a row, if there is one. Returns the old list.
    fn change(
        tx: &Tx,
        lists: &Handle<TwoLists>,
        key: u32,
        to: impl FnOnce(&str) -> String,
    ) -> Result<Option<String>, Abort> {
        let (id, is_right) = TwoLists::place(key);
        let changed = tx.update_columns_if(lists, &id, TwoLists::column(is_right), |row| {
            let old = if is_right { row.right() } else { row.left() }.to_owned();
            let new = to(&old);
            (old, if is_right { row.set_right(&new) } else { row.set_left(&new) })
        })?;
        let Ok((old, set)) = changed else { return Ok(None) };
        set?;
        Ok(Some(old))
    }
}

/// An element of a list in rows: reading the list is a scan, appending to it an insert.
#[derive(Table, Clone, Debug)]
#[table(name = "element", key(list, position))]
struct Element {
    list: u32,
    position: u32,
    value: u64,
}

/// An element of a list in a run: reading the list is a scan of one record or a few, appending to it changes one.
#[derive(Table, Clone, Debug)]
#[table(name = "run_element", key(list, position), cluster(list))]
struct RunElement {
    list: u32,
    position: u32,
    value: u64,
}

/// The kind of object of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataModel {
    /// A value; writing replaces it. Hash table.
    Registers,
    /// A list; writing appends. A list is a row of a hash table.
    Lists,
    /// A list; writing appends. A list is a range of rows of an ordered table, so what it lacks is a gap.
    ListsInRows,
    /// A list; writing appends. As [`DataModel::ListsInRows`], of a clustered table: elements of a list share records.
    ListsInRuns,
    /// A list; writing appends. A list is a column of a row of a hash table, with another list in the next column. An
    /// anomaly of columns is one of keys here.
    ListsInColumns,
}

impl DataModel {
    /// All of them.
    pub const ALL: [DataModel; 5] = [
        DataModel::Registers,
        DataModel::Lists,
        DataModel::ListsInRows,
        DataModel::ListsInRuns,
        DataModel::ListsInColumns,
    ];
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads the object.
    Read {
        /// The key.
        key: u32,
        /// Whether it is read by a write, which is then undone.
        by_rolled_back_write: bool,
        /// The list, or the value of the register if there is one. Means nothing in an attempt that failed.
        saw: Vec<u64>,
    },
    /// Appends to the list or replaces the register's value.
    Write {
        /// The key.
        key: u32,
        /// Unique in the history.
        value: u64,
    },
}

/// One attempt at a transaction: an invocation and its answer. An answer always comes, and always says what
/// happened: a commit in memory cannot be left in doubt.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The thread that made it; it makes one at a time.
    pub process: usize,
    /// Ticket drawn before it began.
    pub invoked: u64,
    /// Ticket drawn after it ended.
    pub answered: u64,
    /// Whether it is a read-only transaction.
    pub is_read_only: bool,
    /// Whether it committed; if not, it must have had no effect.
    pub is_committed: bool,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

/// How much to run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Clients, one a thread.
    pub clients: usize,
    /// Transactions a client.
    pub transactions: u32,
    /// Keys in use at a time.
    pub keys: u32,
    /// Most steps a transaction.
    pub steps: u64,
}

/// Attempts at one transaction before a client turns to the next.
const ATTEMPTS_MAX: u32 = 50;
/// Transactions of a client after which the oldest list is abandoned for a fresh key. Lists reach a few dozen elements.
const TRANSACTIONS_PER_LIST: u32 = 8;

/// Threads that run what is batched, and calls of a batch.
const EXECUTOR_THREADS: usize = 2;
const BATCH_SIZE: usize = 8;

/// A value that is written only to be undone.
const JUNK: u64 = u64::MAX;

/// Runs the load in a setting and has the checker look at what the clients saw.
///
/// # Errors
/// A description of the violated property.
pub fn interrogate(setting: &Setting, data_model: DataModel, load: &Load, seed: u64) -> Result<Seen, String> {
    interrogate_with(setting, data_model, load, seed, |builder| builder)
}

/// As [`interrogate`], with further options.
///
/// # Errors
/// As [`interrogate`].
pub fn interrogate_with(
    setting: &Setting,
    data_model: DataModel,
    load: &Load,
    seed: u64,
    options: impl Fn(Builder) -> Builder,
) -> Result<Seen, String> {
    interrogate_by(setting, (data_model, None), load, seed, options)
}

/// As [`interrogate_with`], for clients whose transactions are registered procedures. The database records
/// them too, and its history goes to the checker of histories.
///
/// # Errors
/// As [`interrogate`].
pub fn interrogate_declared(
    setting: &Setting,
    (data_model, route): (DataModel, Route),
    load: &Load,
    seed: u64,
    options: impl Fn(Builder) -> Builder,
) -> Result<Seen, String> {
    let pieces = |builder: Builder| match route {
        Route::InPieces => builder.execution_mode(seriatim::procedure::ExecutionMode::Pieces),
        Route::Batched => builder.batch(Batch::Size(BATCH_SIZE)),
        Route::Called | Route::Interpreted => builder,
    };
    let options = |builder: Builder| options(pieces(builder).record_history(true));
    interrogate_by(setting, (data_model, Some(route)), load, seed, options)
}

fn interrogate_by(
    setting: &Setting,
    (data_model, route): (DataModel, Option<Route>),
    load: &Load,
    seed: u64,
    options: impl Fn(Builder) -> Builder,
) -> Result<Seen, String> {
    let builder = setting.builder().workers(load.clients + 1).retry(RetryPolicy::never()).seed(seed);
    let examine = || {
        let db = options(builder).open().map_err(|error| error.to_string())?;
        let (attempts, batched) = run(&db, (data_model, route), load, seed)?;
        let is_fresh = !db.protocol().capabilities.snapshots.is_bounded();
        check_history(data_model, &attempts, Promised { is_strict: setting.strict, is_fresh })?;
        if let Some(history) = db.take_history() {
            let promises = if setting.strict { Promises::STRICT } else { Promises::SERIALIZABLE };
            check(&history, &promises).map_err(|violation| violation.to_string())?;
        }
        let seen = Seen { batched: batched.calls - batched.batches, ..Seen::count(&attempts) };
        let wanted = load.clients as u64 * u64::from(load.transactions);
        if seen.committed < wanted / 2 {
            return Err(format!("only {} of {wanted} transactions committed", seen.committed));
        }
        Ok(seen)
    };
    examine().map_err(|fault| format!("{setting}, {data_model:?}, {route:?}, {load:?}, seed {seed}: {fault}"))
}

/// The outcomes of the clients' attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Attempts that committed.
    pub committed: u64,
    /// The read-only ones of them.
    pub read_only: u64,
    /// Attempts without effect, conflicts and rollbacks.
    pub failed: u64,
    /// Reads of committed attempts that found something.
    pub informed_reads: u64,
    /// Calls that came in a batch with others, but for one of each batch.
    pub batched: u64,
}

impl Seen {
    fn count(attempts: &[Attempt]) -> Seen {
        let mut seen = Seen::default();
        for attempt in attempts {
            if !attempt.is_committed {
                seen.failed += 1;
                continue;
            }
            seen.committed += 1;
            seen.read_only += u64::from(attempt.is_read_only);
            let informed = |step: &&Step| matches!(step, Step::Read { saw, .. } if !saw.is_empty());
            seen.informed_reads += attempt.steps.iter().filter(informed).count() as u64;
        }
        seen
    }
}

enum Cells {
    Registers(Handle<Register>),
    Lists(Handle<List>),
    ListsInRows(Handle<Element>),
    ListsInRuns(Handle<RunElement>),
    ListsInColumns(Handle<TwoLists>),
}

impl Cells {
    fn create(db: &Database, data_model: DataModel) -> Result<Cells, seriatim::SchemaError> {
        Ok(match data_model {
            DataModel::Registers => Cells::Registers(db.create()?),
            DataModel::Lists => Cells::Lists(db.create()?),
            DataModel::ListsInRows => Cells::ListsInRows(db.create()?),
            DataModel::ListsInRuns => Cells::ListsInRuns(db.create()?),
            DataModel::ListsInColumns => Cells::ListsInColumns(db.create()?),
        })
    }

    fn read(&self, tx: &ReadTx, key: u32) -> Result<Vec<u64>, Abort> {
        match self {
            Cells::Registers(registers) => Ok(tx.get(registers, &key)?.map(|row| row.value()).into_iter().collect()),
            Cells::Lists(lists) => {
                let Some(list) = tx.get(lists, &key)? else { return Ok(Vec::new()) };
                elements_of(list.elements()).map_err(|error| tx.abort(error))
            }
            Cells::ListsInColumns(lists) => {
                let (id, is_right) = TwoLists::place(key);
                let Some(row) = tx.get_columns(lists, &id, TwoLists::column(is_right))? else { return Ok(Vec::new()) };
                elements_of(if is_right { row.right() } else { row.left() }).map_err(|error| tx.abort(error))
            }
            Cells::ListsInRows(elements) => {
                tx.prefix(elements, &(key,)).map(|element| element.map(|element| element.value())).collect()
            }
            Cells::ListsInRuns(elements) => {
                tx.prefix(elements, &(key,)).map(|element| element.map(|element| element.value())).collect()
            }
        }
    }

    /// As [`Cells::read`], by an update or insert whose write is undone: its old value counts as read all the
    /// same. A list in rows is read by a scan, and the write is one more row.
    fn read_by_rolled_back_write(&self, tx: &Tx, key: u32) -> Result<Vec<u64>, Abort> {
        let savepoint = tx.savepoint()?;
        let saw = match self {
            Cells::Registers(registers) => {
                let look = |register: &mut RegisterUpdate<'_>| {
                    let saw = register.value();
                    register.set_value(JUNK);
                    saw
                };
                match tx.update_if(registers, &key, look)? {
                    Ok(saw) => vec![saw],
                    Err(MissingRow) => {
                        tx.insert(registers, &Register { id: key, value: JUNK })?;
                        Vec::new()
                    }
                }
            }
            Cells::Lists(lists) => {
                let junk = format!("{JUNK} ");
                let look = |list: &mut ListUpdate<'_>| (elements_of(list.elements()), list.set_elements(&junk));
                match tx.update_if(lists, &key, look)? {
                    Ok((saw, set)) => {
                        set?;
                        saw.map_err(|error| tx.abort(error))?
                    }
                    Err(MissingRow) => {
                        tx.insert(lists, &List { id: key, elements: junk })?;
                        Vec::new()
                    }
                }
            }
            Cells::ListsInColumns(lists) => match TwoLists::change(tx, lists, key, |_| format!("{JUNK} "))? {
                Some(saw) => elements_of(&saw).map_err(|error| tx.abort(error))?,
                None => {
                    tx.insert(lists, &TwoLists::of(key, format!("{JUNK} ")))?;
                    Vec::new()
                }
            },
            Cells::ListsInRows(_) | Cells::ListsInRuns(_) => {
                let saw = self.read(tx, key)?;
                self.write(tx, key, JUNK)?;
                saw
            }
        };
        tx.rollback_to(savepoint)?;
        Ok(saw)
    }

    /// Whether the row found its place; if not, another transaction has taken it and this one must be rolled back.
    fn write(&self, tx: &Tx, key: u32, value: u64) -> Result<bool, Abort> {
        match self {
            Cells::Registers(registers) => tx.put(registers, &Register { id: key, value }).map(|()| true),
            Cells::Lists(lists) => {
                let append = |list: &mut ListUpdate<'_>| {
                    let longer = format!("{}{value} ", list.elements());
                    list.set_elements(&longer)
                };
                match tx.update_if(lists, &key, append)? {
                    Ok(set) => Ok(set.map(|()| true)?),
                    Err(MissingRow) => tx.try_insert(lists, &List { id: key, elements: format!("{value} ") }),
                }
            }
            Cells::ListsInColumns(lists) => match TwoLists::change(tx, lists, key, |list| format!("{list}{value} "))? {
                Some(_) => Ok(true),
                None => tx.try_insert(lists, &TwoLists::of(key, format!("{value} "))),
            },
            Cells::ListsInRows(elements) => {
                let last = tx.prefix_rev(elements, &(key,)).next().transpose()?;
                let position = last.map_or(0, |last| last.position() + 1);
                tx.try_insert(elements, &Element { list: key, position, value })
            }
            Cells::ListsInRuns(elements) => {
                let last = tx.prefix_rev(elements, &(key,)).next().transpose()?;
                let position = last.map_or(0, |last| last.position() + 1);
                tx.try_insert(elements, &RunElement { list: key, position, value })
            }
        }
    }
}

fn elements_of(text: &str) -> Result<Vec<u64>, std::num::ParseIntError> {
    text.split_whitespace().map(str::parse).collect()
}

fn run(
    db: &Database,
    (data_model, route): (DataModel, Option<Route>),
    load: &Load,
    seed: u64,
) -> Result<(Vec<Attempt>, BatchStatistics), String> {
    let cells = Cells::create(db, data_model).map_err(|error| error.to_string())?;
    if route.is_some() {
        db.register(declared::procedures(data_model)).map_err(|error| error.to_string())?;
    }
    let declared = route.map(|route| (data_model, route));
    let executor = db.executor(EXECUTOR_THREADS).map_err(|error| error.to_string())?;
    let tickets = AtomicU64::new(0);
    let answers = thread::scope(|scope| {
        let start = |process| {
            let mut rng = Rng::from_seed(seed ^ (process as u64 + 1) << 20);
            let pauses = rng.fork();
            let session = db.session();
            let (cells, tickets, executor) = (&cells, &tickets, &executor);
            let client = Client { process, load, cells, declared, executor, tickets, session, rng, pauses, values: 0 };
            scope.spawn(move || client.run())
        };
        let clients: Vec<_> = (0..load.clients).map(start).collect();
        clients.into_iter().map(|client| client.join()).collect::<Vec<_>>()
    });
    let mut attempts = Vec::new();
    for answer in answers {
        attempts.extend(answer.map_err(|_| "a client panicked")??);
    }
    Ok((attempts, executor.batch_statistics()))
}

struct Client<'r> {
    process: usize,
    load: &'r Load,
    cells: &'r Cells,
    /// Its transactions are procedures, and run so.
    declared: Option<(DataModel, Route)>,
    /// Where calls are batched, if they are.
    executor: &'r Executor,
    tickets: &'r AtomicU64,
    session: Session,
    /// Chooses the requests, and serves for nothing else: the seed determines it.
    rng: Rng,
    pauses: Rng,
    /// Values made so far.
    values: u64,
}

impl Client<'_> {
    fn run(mut self) -> Result<Vec<Attempt>, String> {
        let mut attempts = Vec::new();
        for at in 0..self.load.transactions {
            let mut steps = self.draw(at);
            let is_read_only = steps.iter().all(|step| matches!(step, Step::Read { by_rolled_back_write: false, .. }));
            let rolls_back = !is_read_only && self.rng.percent(5);
            for again in 0..ATTEMPTS_MAX {
                steps.iter_mut().for_each(|step| self.renew(step));
                let attempt = self.attempt(steps.clone(), is_read_only, rolls_back)?;
                let is_over = attempt.is_committed || rolls_back;
                attempts.push(attempt);
                if is_over {
                    break;
                }
                self.pause(again);
            }
        }
        Ok(attempts)
    }

    /// The steps of the next transaction: one in four reads only.
    fn draw(&mut self, at: u32) -> Vec<Step> {
        let first = match self.cells {
            Cells::Registers(_) => 0,
            _ => at / TRANSACTIONS_PER_LIST,
        };
        let only_reads = self.rng.percent(25);
        (0..self.rng.range(2, self.load.steps))
            .map(|_| {
                let skewed = self.rng.below(u64::from(self.load.keys)) + 1;
                let key = first + self.rng.below(skewed) as u32;
                match only_reads || self.rng.percent(50) {
                    true => {
                        let by_rolled_back_write = !only_reads && self.rng.percent(30);
                        Step::Read { key, by_rolled_back_write, saw: Vec::new() }
                    }
                    false => Step::Write { key, value: 0 },
                }
            })
            .collect()
    }

    /// An attempt repeats the keys of the one before with values of its own.
    fn renew(&mut self, step: &mut Step) {
        if let Step::Write { value, .. } = step {
            *value = self.values * self.load.clients as u64 + self.process as u64;
            self.values += 1;
        }
    }

    /// Lets others finish: after a few attempts for a random time, the longer the more often it failed, at most half a
    /// millisecond.
    fn pause(&mut self, failed_before: u32) {
        match failed_before {
            0..3 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(self.pauses.below(1 << failed_before.min(9)))),
        }
    }

    fn attempt(&mut self, mut steps: Vec<Step>, is_read_only: bool, rolls_back: bool) -> Result<Attempt, String> {
        // ORDERING: pairs with itself: a client that was answered before another invoked happens before it.
        let invoked = self.tickets.fetch_add(1, Ordering::AcqRel);
        let is_committed = match (self.declared, is_read_only) {
            (Some(declared), _) => {
                let Client { session, executor, .. } = self;
                declared::run(session, executor, declared, &mut steps, is_read_only, rolls_back)
            }
            (None, true) => self.read_only(&mut steps),
            (None, false) => self.read_write(&mut steps, rolls_back),
        }?;
        let answered = self.tickets.fetch_add(1, Ordering::AcqRel);
        Ok(Attempt { process: self.process, invoked, answered, is_read_only, is_committed, steps })
    }

    /// Whether it committed.
    fn read_only(&mut self, steps: &mut [Step]) -> Result<bool, String> {
        let tx = self.session.begin_snapshot().map_err(|error| error.to_string())?;
        match take(steps, |key, _| self.cells.read(&tx, key), |_, _| unreachable!("it has no writes")) {
            Ok(_) => is_committed(tx.finish()),
            Err(abort) => is_conflict(&abort),
        }
    }

    /// Whether it committed.
    fn read_write(&mut self, steps: &mut [Step], rolls_back: bool) -> Result<bool, String> {
        let tx = self.session.begin().map_err(|error| error.to_string())?;
        let read = |key, by_rolled_back_write| match by_rolled_back_write {
            true => self.cells.read_by_rolled_back_write(&tx, key),
            false => self.cells.read(&tx, key),
        };
        match take(steps, read, |key, value| self.cells.write(&tx, key, value)) {
            Ok(true) if !rolls_back => is_committed(tx.commit()),
            Ok(_) => {
                tx.rollback();
                Ok(false)
            }
            Err(abort) => is_conflict(&abort),
        }
    }
}

/// Takes the steps in order; false at the first write that finds its place taken. Yields now and then, so
/// that transactions overlap on few processors too.
fn take(
    steps: &mut [Step],
    read: impl Fn(u32, bool) -> Result<Vec<u64>, Abort>,
    write: impl Fn(u32, u64) -> Result<bool, Abort>,
) -> Result<bool, Abort> {
    for (at, step) in steps.iter_mut().enumerate() {
        match step {
            Step::Read { key, by_rolled_back_write, saw } => *saw = read(*key, *by_rolled_back_write)?,
            Step::Write { key, value } => {
                if !write(*key, *value)? {
                    return Ok(false);
                }
            }
        }
        if at % 2 == 0 {
            thread::yield_now();
        }
    }
    Ok(true)
}

/// Only a conflict is an answer; any other error is a finding.
fn is_committed(ended: Result<Receipt, TransactError>) -> Result<bool, String> {
    match ended {
        Ok(_) => Ok(true),
        Err(TransactError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// As [`is_committed`]: an attempt with a conflict did not commit.
fn is_conflict(abort: &Abort) -> Result<bool, String> {
    if abort.is_retryable() { Ok(false) } else { Err(abort.to_string()) }
}
