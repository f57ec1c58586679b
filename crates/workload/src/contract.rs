//! The interface between runners and workloads: load a workload, run its terminals, check the consistency of its data.
//!
//! A terminal calls its procedures by a `CallMode`. `Now` waits for each result, `Later` leaves it outstanding
//! until it is durable, and `InExecutor` runs the call on a thread of an executor. The terminal's code is the
//! same; only outstanding results are on the heap. Calls for an executor can also be sent to owners of
//! partitions ([`ExecutorClient::of_owners`]).

use std::fmt;
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::Report;
use seriatim::procedure::divided::{self, Call, Divided};
use seriatim::procedure::{Declared, RegisterError};
use seriatim::{Committed, Database, Executor, Pending, SchemaError, Session, Timestamp, TransactError, clock};

/// A benchmark with its data, its transactions and its promises about the data.
pub trait Workload: Send + Sync {
    /// The name in the registry.
    fn name(&self) -> &'static str;

    /// Creates the workload's tables in `db` without rows, and registers its procedures; analysis needs no more.
    /// Existing tables with the same definition are kept, so a workload can also be declared in a recovered database.
    ///
    /// # Errors
    /// When a table has another definition, a procedure is registered already, or one is refused.
    fn declare(&self, db: &Database) -> Result<(), LoadError>;

    /// The kinds of transaction it runs; [`Outcome::kind`] is an index into this.
    fn kinds(&self) -> &'static [&'static str];

    /// Creates its tables in `db`, registers its procedures as one set, and fills the tables. The same options,
    /// seed and time give the same rows, for any thread count.
    ///
    /// # Errors
    /// When a table cannot be created, a procedure not registered, or a loading transaction fails.
    fn load(&self, db: &Database, loading: &Loading<'_>) -> Result<(), LoadError>;

    /// Checks the consistency conditions. No transaction may write meanwhile: the check reads in parts, so that
    /// a protocol without snapshots can validate each part.
    ///
    /// # Errors
    /// When tables are missing or a reading transaction fails. A violated condition is not an error; the report has it.
    fn consistency(&self, db: &Database) -> Result<Report, LoadError>;

    /// As [`Workload::consistency`], but only with conditions on the tables, without the terminals' ledgers.
    /// For a recovered database.
    ///
    /// # Errors
    /// As [`Workload::consistency`].
    fn audit(&self, db: &Database) -> Result<Report, LoadError>;

    /// How many terminals a run has at least, so that its load goes to all of the data; threads serve them in turn.
    fn terminals(&self) -> u16 {
        1
    }

    /// The `index`-th source of transactions, whose inputs `seed` determines. Terminals of one workload over
    /// one database must have different indexes while they run at the same time.
    ///
    /// # Errors
    /// When `db` lacks the tables: it was not loaded with this workload.
    fn terminal(&self, db: &Database, index: u16, seed: u64) -> Result<Box<dyn Terminal>, LoadError>;
}

/// A source of transactions: one client's inputs, in order.
pub trait Terminal: Send {
    /// Generates the next input and runs it to its end on `session`.
    fn run_one(&mut self, session: &mut Session) -> Outcome;

    /// As [`Terminal::run_one`], without waiting for durability: the next transaction can begin meanwhile.
    fn submit_one(&mut self, session: &mut Session) -> Submitted;

    /// As [`Terminal::run_one`], on a thread of an executor. The next one can begin when this one has ended,
    /// since a terminal has one transaction at a time.
    fn start_one(&mut self, client: &mut ExecutorClient) -> Started;
}

/// The handle through which terminals make calls that run elsewhere.
#[derive(Debug)]
pub struct ExecutorClient {
    runs: Runs,
    /// For reads of a terminal before its first transaction.
    session: Session,
}

/// The side that runs the calls.
#[derive(Debug)]
enum Runs {
    Executor(Arc<Executor>),
    /// Owners of partitions. The caller of [`ExecutorClient::carry`] sends them the call that is stored here.
    Owners(Arc<Divided>, Option<Carried>),
}

/// A call that is to be carried to owners of partitions.
#[derive(Debug)]
pub struct Carried {
    /// The call.
    pub call: Result<Call, TransactError>,
    /// Receives its result.
    pub ended: Arc<Awaited>,
}

/// The result of a carried call, as bytes, when it is there.
#[derive(Debug, Default)]
pub struct Awaited(Mutex<Option<Result<Vec<u8>, TransactError>>>);

impl Awaited {
    /// Ends the call. The waiting terminal is not woken: the carrier polls it.
    pub fn end(&self, result: Result<Vec<u8>, TransactError>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    fn take(&self) -> Poll<Result<Vec<u8>, TransactError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl ExecutorClient {
    /// Has an executor run them.
    pub fn new(executor: Arc<Executor>, session: Session) -> ExecutorClient {
        ExecutorClient { runs: Runs::Executor(executor), session }
    }

    /// Makes owners of partitions run the calls: [`ExecutorClient::carry`] returns each started call for
    /// sending. The session belongs to a database without rows.
    pub fn of_owners(divided: Arc<Divided>, session: Session) -> ExecutorClient {
        ExecutorClient { runs: Runs::Owners(divided, None), session }
    }

    /// Takes the call that was started last, if it was not taken before.
    pub fn carry(&mut self) -> Option<Carried> {
        match &mut self.runs {
            Runs::Executor(_) => None,
            Runs::Owners(_, carried) => carried.take(),
        }
    }
}

/// How a terminal calls a procedure.
pub(crate) trait CallMode {
    /// The handle for calls.
    type Caller;
    /// The result for the runner.
    type Answer;

    /// Makes a call. `end` classifies its result, and records commits in `books`.
    fn call<P: Declared<Arguments: Clone>, B: Send + Sync + 'static>(
        caller: &mut Self::Caller,
        kind: usize,
        procedure: P,
        arguments: &P::Arguments,
        books: &Arc<B>,
        end: impl FnOnce(&B, Result<Committed<P::Output>, TransactError>) -> Ending + Send + 'static,
    ) -> Self::Answer;

    /// The session for reads that are not calls.
    fn session(caller: &mut Self::Caller) -> &mut Session;

    /// The answer if no call was made.
    fn failed(kind: usize, error: TransactError) -> Self::Answer;
}

/// A terminal whose transactions are calls of procedures.
pub(crate) trait Calls: Send {
    /// Generates the next input and makes the call.
    fn one<W: CallMode>(&mut self, caller: &mut W::Caller) -> W::Answer;
}

impl<T: Calls> Terminal for T {
    fn run_one(&mut self, session: &mut Session) -> Outcome {
        self.one::<Now>(session)
    }

    fn submit_one(&mut self, session: &mut Session) -> Submitted {
        self.one::<Later>(session)
    }

    fn start_one(&mut self, client: &mut ExecutorClient) -> Started {
        self.one::<InExecutor>(client)
    }
}

/// Waits for the result.
enum Now {}

impl CallMode for Now {
    type Caller = Session;
    type Answer = Outcome;

    #[inline]
    fn call<P: Declared<Arguments: Clone>, B: Send + Sync + 'static>(
        session: &mut Session,
        kind: usize,
        procedure: P,
        arguments: &P::Arguments,
        books: &Arc<B>,
        end: impl FnOnce(&B, Result<Committed<P::Output>, TransactError>) -> Ending + Send + 'static,
    ) -> Outcome {
        Outcome { kind, ending: end(books, session.call(procedure, arguments)) }
    }

    fn session(session: &mut Session) -> &mut Session {
        session
    }

    fn failed(kind: usize, error: TransactError) -> Outcome {
        Outcome { kind, ending: Ending::Failed(error) }
    }
}

/// Leaves the result outstanding.
enum Later {}

impl CallMode for Later {
    type Caller = Session;
    type Answer = Submitted;

    #[inline]
    fn call<P: Declared<Arguments: Clone>, B: Send + Sync + 'static>(
        session: &mut Session,
        kind: usize,
        procedure: P,
        arguments: &P::Arguments,
        books: &Arc<B>,
        end: impl FnOnce(&B, Result<Committed<P::Output>, TransactError>) -> Ending + Send + 'static,
    ) -> Submitted {
        let pending = session.submit_call(procedure, arguments);
        let books = Arc::clone(books);
        let end = move |result| end(&books, result);
        Submitted { kind, waiting: Box::new(Outstanding { pending, end }) }
    }

    fn session(session: &mut Session) -> &mut Session {
        session
    }

    fn failed(kind: usize, error: TransactError) -> Submitted {
        Submitted { kind, waiting: Box::new(error) }
    }
}

/// Has a thread of an executor run it, or owners of partitions.
enum InExecutor {}

impl CallMode for InExecutor {
    type Caller = ExecutorClient;
    type Answer = Started;

    fn call<P: Declared<Arguments: Clone>, B: Send + Sync + 'static>(
        client: &mut ExecutorClient,
        kind: usize,
        procedure: P,
        arguments: &P::Arguments,
        books: &Arc<B>,
        end: impl FnOnce(&B, Result<Committed<P::Output>, TransactError>) -> Ending + Send + 'static,
    ) -> Started {
        let books = Arc::clone(books);
        let (divided, carried) = match &mut client.runs {
            Runs::Owners(divided, carried) => (divided, carried),
            Runs::Executor(executor) => {
                let running = executor.call(procedure, arguments.clone());
                return Started { kind, ending: Box::pin(async move { end(&books, running.await) }) };
            }
        };
        let ended = Arc::new(Awaited::default());
        *carried = Some(Carried { call: divided.call(procedure, arguments), ended: Arc::clone(&ended) });
        let ending = async move {
            let result = std::future::poll_fn(|_| ended.take()).await;
            end(&books, result.and_then(|bytes| divided::output(procedure, &bytes)).map(Committed::elsewhere))
        };
        Started { kind, ending: Box::pin(ending) }
    }

    fn session(client: &mut ExecutorClient) -> &mut Session {
        &mut client.session
    }

    fn failed(kind: usize, error: TransactError) -> Started {
        Started { kind, ending: Box::pin(std::future::ready(Ending::Failed(error))) }
    }
}

/// A transaction that an executor was given: ready when it has ended.
#[must_use = "a commit is recorded when its result is awaited"]
pub struct Started {
    kind: usize,
    ending: Pin<Box<dyn Future<Output = Ending> + Send>>,
}

impl Future for Started {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let kind = self.kind;
        self.ending.as_mut().poll(context).map(|ending| Outcome { kind, ending })
    }
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A transaction whose result may have to wait until it is durable.
pub struct Submitted {
    kind: usize,
    waiting: Box<dyn Waiting>,
}

impl Submitted {
    /// Whether [`Submitted::wait`] would return at once.
    pub fn is_ready(&self) -> bool {
        self.waiting.is_ready()
    }

    /// Waits until the result is durable.
    pub fn wait(self) -> Outcome {
        Outcome { kind: self.kind, ending: self.waiting.wait() }
    }
}

impl fmt::Debug for Submitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitted").field("kind", &self.kind).field("ready", &self.is_ready()).finish()
    }
}

/// A result of some procedure.
trait Waiting: Send {
    fn is_ready(&self) -> bool;
    fn wait(self: Box<Self>) -> Ending;
}

struct Outstanding<R, E> {
    pending: Pending<R>,
    end: E,
}

impl<R: Send, E: FnOnce(Result<Committed<R>, TransactError>) -> Ending + Send> Waiting for Outstanding<R, E> {
    fn is_ready(&self) -> bool {
        self.pending.is_ready()
    }

    fn wait(self: Box<Self>) -> Ending {
        (self.end)(self.pending.wait())
    }
}

/// An error before the call.
impl Waiting for TransactError {
    fn is_ready(&self) -> bool {
        true
    }

    fn wait(self: Box<Self>) -> Ending {
        Ending::Failed(*self)
    }
}

/// The outcome of one transaction.
#[derive(Debug)]
pub struct Outcome {
    /// Index into [`Workload::kinds`].
    pub kind: usize,
    /// How it ended.
    pub ending: Ending,
}

/// How a transaction ended.
#[derive(Debug)]
pub enum Ending {
    /// It committed.
    Committed,
    /// It rolled back as the workload requires (TPC-C clause 2.4.1.4), which counts as success.
    UserAborted,
    /// It did not commit although it should have.
    Failed(TransactError),
}

impl Ending {
    /// The outcome of a call; `record` gets the result of a commit. The workload requests rollbacks by errors of type
    /// `E`.
    #[inline]
    pub(crate) fn after<E: std::error::Error + 'static, R>(
        result: Result<R, TransactError>,
        record: impl FnOnce(&R),
    ) -> Ending {
        match result {
            // A large result stays where it is.
            Ok(ref output) => {
                record(black_box(output));
                Ending::Committed
            }
            Err(error) => Ending::of::<E>(error),
        }
    }

    /// The outcome of a transaction that returned `error`. The workload requests rollbacks by errors of type `E`.
    #[inline]
    pub fn of<E: std::error::Error + 'static>(error: TransactError) -> Ending {
        if error.user::<E>().is_some() { Ending::UserAborted } else { Ending::Failed(error) }
    }
}

/// How to load.
pub struct Loading<'a> {
    /// Threads that insert, at least 1.
    pub threads: usize,
    /// Called now and then from any of them with rows inserted so far and rows in all.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
    /// Asked now and then by each of them: whether to give up.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
    /// The time at which rows say that they were made.
    pub now: Timestamp,
}

impl Default for Loading<'_> {
    /// One thread, no progress reports, never given up, the time it is.
    fn default() -> Self {
        let now = Timestamp::from_microseconds(clock::unix_microseconds());
        Loading { threads: 1, progress: &|_, _| {}, is_stopped: &|| false, now }
    }
}

/// Why loading or checking stopped.
#[derive(Debug)]
pub enum LoadError {
    /// A table could not be created or is not there.
    Schema(SchemaError),
    /// Its procedures were not registered.
    Register(RegisterError),
    /// A loading or checking transaction failed.
    Transact(TransactError),
    /// It was given up ([`Loading::is_stopped`]).
    Stopped,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Schema(error) => write!(f, "the workload's tables: {error}"),
            LoadError::Register(error) => write!(f, "the workload's procedures: {error}"),
            LoadError::Transact(error) => write!(f, "a loading or checking transaction: {error}"),
            LoadError::Stopped => f.write_str("loading was given up"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Schema(error) => Some(error),
            LoadError::Register(error) => Some(error),
            LoadError::Transact(error) => Some(error),
            LoadError::Stopped => None,
        }
    }
}

impl From<SchemaError> for LoadError {
    fn from(error: SchemaError) -> LoadError {
        LoadError::Schema(error)
    }
}

impl From<RegisterError> for LoadError {
    fn from(error: RegisterError) -> LoadError {
        LoadError::Register(error)
    }
}

impl From<TransactError> for LoadError {
    fn from(error: TransactError) -> LoadError {
        LoadError::Transact(error)
    }
}
