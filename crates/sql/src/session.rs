//! Sessions: they run the statements of texts, alone or in transactions.
//!
//! A statement outside a transaction is one by itself, and is repeated after a conflict. Statements of one text are a
//! transaction together, unless the text begins or ends some itself. In an explicit transaction nothing is repeated:
//! after an error, all further statements fail until it is rolled back.

mod kept;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use seriatim::catalog::evolution::Change;
use seriatim::catalog::expression::{Datum, within};
use seriatim::catalog::{Access, Checked, ColumnDef, ColumnType, Object, Privileges, TableDef, Timestamp};
use seriatim::clock::Instant;
use seriatim::{
    Abort, Canceller, Constraints, Database, DynHandle, LockStrength, Migration, OwnedTransaction, RowWait, Savepoint,
    SchemaError, TransactError, Tx, Value, WaitEnd, WaitHandle, thread,
};
use sqlparser::ast::{
    ContextModifier, Declare, Expr, Ident, OnInsert, Set, Statement, TransactionAccessMode, TransactionIsolationLevel,
    TransactionMode, Value as Literal,
};

use crate::copy::{self, Copying, Decoder, What};
use crate::ddl::{self, Ddl, Step};
use crate::error::{SqlError, SqlState};
use crate::expression::{Context, VERSION};
use crate::from::Parameters;
use crate::names::{Names, SCHEMA, name, object};
use crate::roles::{self, Actor, Become, RoleName};
use crate::run::{Env, Run, bytes_of_rows, check_kept};
use crate::select::{Column, Row, Select};
use crate::sequence::SetConstraints;
use crate::subquery::{Queries, Subquery};
use crate::surroundings::{Around, Asking};
use crate::text::{Command, parse};
use crate::types::{SqlType, of_expressions};
use crate::write::{Deleting, Filling, Inserting, Updating, fill};

use self::kept::Kept;

/// What a statement gave.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Rows.
    Rows {
        /// Their columns.
        columns: Arc<[Column]>,
        /// The values of each.
        rows: Vec<Row>,
        /// What was done, as `SELECT 3`.
        tag: String,
    },
    /// What was done, as `UPDATE 3`.
    Done(String),
    /// Lines of COPY … TO STDOUT.
    CopyOut {
        /// How many columns they have.
        columns: usize,
        /// Whether their values have binary formats.
        is_binary: bool,
        /// Each with its end.
        lines: Vec<Vec<u8>>,
        /// What was done, as `COPY 3`.
        tag: String,
    },
    /// A COPY … FROM STDIN has begun: its bytes are for [`Session::copy_data`], and [`Session::copy_done`] or
    /// [`Session::copy_fail`] ends it. It is the last answer.
    CopyIn {
        /// How many columns a line has.
        columns: usize,
        /// Whether their values have binary formats.
        is_binary: bool,
    },
    /// Something worth knowing that is no error: a notice, or a warning.
    Notice(SqlError),
}

impl Answer {
    /// The bytes of its rows.
    fn bytes(&self) -> usize {
        match self {
            Answer::Rows { rows, .. } => bytes_of_rows(rows),
            Answer::CopyOut { lines, .. } => lines.iter().map(|line| line.len() + size_of::<Vec<u8>>()).sum(),
            Answer::Done(_) | Answer::CopyIn { .. } | Answer::Notice(_) => 0,
        }
    }
}

/// Whether a transaction is open, as the prompt of psql shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// None is.
    Idle,
    /// One is.
    Open,
    /// One is, and a statement of it has failed.
    Failed,
}

/// A session, which runs one statement at a time.
///
/// ```
/// use seriatim::Database;
/// use seriatim_sql::{Answer, Session};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut session = Session::new(Database::in_memory()?);
/// session.execute("create table account (id int primary key, balance numeric(12, 2) not null)")?;
/// session.execute("insert into account values (1, 100), (2, 20.50)")?;
/// let answers = session.execute(
///     "begin;
///      update account set balance = balance - 10 where id = 1;
///      update account set balance = balance + 10 where id = 2;
///      commit;
///      select sum(balance) as total, max(balance) from account",
/// )?;
/// let Some(Answer::Rows { columns, rows, tag }) = answers.last() else { panic!("rows were asked for") };
/// assert_eq!((&*columns[0].name, &**tag), ("total", "SELECT 1"));
/// assert_eq!((&*rows[0][0].to_text(None), &*rows[0][1].to_text(None)), ("120.50", "90.00"));
///
/// let failed = session.execute("insert into account values (1, 0)").unwrap_err();
/// assert_eq!(failed.error.state.0, "23505");
/// # Ok(())
/// # }
/// ```
pub struct Session {
    database: Database,
    /// What is told that a statement begins or ends, and whether the last one that began has not ended.
    on_statement: Option<OnStatement>,
    is_limited: bool,
    /// The wait of the statement that is to run again.
    waiting: Option<Waiting>,
    /// The text to which it belongs.
    script: Option<Script>,
    state: State,
    number: usize,
    canceller: Canceller,
    copying: Option<CopyIn>,
    /// What SET has changed.
    settings: Settings,
    /// What settings are unless SET changes them, if that is not what they usually are.
    defaults: Values,
    /// The role that the session began with.
    login: u32,
    /// As whom it acts, by what SET has changed so far.
    acting: Cell<Option<(u64, Actor)>>,
    around: Arc<Around>,
    kept: Kept,
}

/// Takes the time that a statement may take, when it begins, and none when it has ended.
type OnStatement = Box<dyn Fn(Option<Duration>) + Send + Sync>;

/// A statement waits for a row.
struct Waiting {
    wait: RowWait,
    /// Whether its transaction begins anew, so that nothing it has read is old.
    is_anew: bool,
}

/// A text whose statements run.
#[derive(Default)]
struct Script {
    /// None before it was parsed.
    commands: Option<Vec<Command>>,
    /// The statement that is next.
    at: usize,
    answers: Vec<Answer>,
    /// Of the answers, if there are several statements: all are kept until the end.
    bytes: usize,
}

/// Settings that say as whom the session acts: ids of roles. Nobody else can set them.
const SESSION_ROLE: &str = "\0session";
const CURRENT_ROLE: &str = "\0role";

/// Settings that do not have their usual values.
type Values = BTreeMap<String, String>;

/// What SET has changed, and how often.
#[derive(Default)]
struct Settings {
    values: Values,
    changes: u64,
}

impl Deref for Settings {
    type Target = Values;
    fn deref(&self) -> &Values {
        &self.values
    }
}

impl DerefMut for Settings {
    fn deref_mut(&mut self) -> &mut Values {
        self.changes += 1;
        &mut self.values
    }
}

/// A text failed: the answers of the statements before, and why the next one has none.
#[derive(Debug)]
pub struct Failure {
    /// Those of the statements before.
    pub answers: Vec<Answer>,
    /// Why the next one has none.
    pub error: SqlError,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

enum State {
    Idle(seriatim::Session),
    Open(Open),
    /// Between two of the others.
    Between,
}

/// A COPY that has begun.
struct CopyIn {
    filling: Filling,
    decoder: Decoder,
    count: usize,
}

/// An open transaction. That of the database begins with the first statement that needs it.
struct Open {
    transaction: OwnedTransaction,
    /// Whether the text began it, and not a statement.
    is_implicit: bool,
    /// Whether it ends with the statement that runs.
    is_of_statement: bool,
    /// Whether the client knows of nothing that it has done, so that it can be begun anew.
    is_new: bool,
    has_failed: bool,
    is_read_only: bool,
    savepoints: Vec<(String, Savepoint)>,
    began: Timestamp,
    /// The settings that a commit leaves, and those that a rollback does; none if the transaction has changed none.
    settings: Option<Box<[Values; 2]>>,
    /// The tables that it sees, if it has changed some: it knows no earlier plan.
    own: Option<Arc<[DynHandle]>>,
}

/// A statement that was prepared: it can run many times, with other values of its parameters.
#[derive(Debug)]
pub struct Prepared {
    /// None of an empty text.
    command: Option<Command>,
    parameters: Parameters,
    arrays: Vec<(usize, SqlType)>,
    columns: Option<Arc<[Column]>>,
    plan: Option<Planned>,
}

impl Prepared {
    /// The types of its parameters.
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = ColumnType> + '_ {
        self.parameters.iter().map(|ty| ty.unwrap_or(ColumnType::LongText))
    }

    /// The parameters that are arrays, and their types, where their places tell them. Their values are texts.
    pub fn array_parameters(&self) -> &[(usize, SqlType)] {
        &self.arrays
    }

    /// The columns of its rows; none if it gives none.
    pub fn columns(&self) -> Option<&[Column]> {
        self.columns.as_deref()
    }
}

/// A plan, and what it is for.
#[derive(Debug)]
struct Planned {
    plan: Plan,
    /// The queries in it.
    queries: Vec<Subquery>,
    /// How many parameters stand for columns, behind those of the statement.
    slots: usize,
    /// The tables whose declarations it knows.
    tables: Vec<Known>,
    /// Whether it must be made again before it runs. It has values or tables that another transaction would not have,
    /// or a table of it is gone.
    is_of_its_time: bool,
    /// The time that it has, if it has one.
    time: Option<Timestamp>,
    /// Whether it takes numbers of sequences, for which an attempt of a closure cannot wait.
    takes_numbers: bool,
    /// Whether queries in it lock rows.
    locks: bool,
    /// Whether it asks for settings, or changes some.
    asks_settings: bool,
    /// Parameters that are arrays, and their types.
    arrays: Vec<(usize, SqlType)>,
    /// What it does with which objects.
    needs: Vec<Need>,
    /// For which roles and rights it was found that the session may do that.
    is_permitted: Cell<Option<(u64, u64)>>,
}

/// What a statement does with a table.
#[derive(Debug)]
struct Need {
    object: Object,
    table: String,
    privileges: Privileges,
}

/// A table and the address of its declaration, which another one does not get while the handle exists.
#[derive(Debug)]
struct Known {
    table: DynHandle,
    declaration: usize,
}

impl Known {
    fn of(table: DynHandle) -> Known {
        let declaration = address(&table);
        Known { table, declaration }
    }

    fn is_as_it_was(&self) -> bool {
        address(&self.table) == self.declaration
    }
}

fn address(table: &DynHandle) -> usize {
    std::ptr::from_ref(table.definition()).addr()
}

impl Planned {
    /// Runs it, or gives the result that has these `chosen` rows. Also returns what became of row locks.
    fn run(
        &self,
        tx: &Tx,
        known: (Names<'_>, &Around),
        parameters: &[Datum<'_>],
        chosen: Option<&[Vec<Value>]>,
    ) -> (Result<Answer, Abort>, Locked) {
        let run = Run::new(tx, &self.queries, Some(known));
        let ran = if self.slots == 0 {
            self.plan.run(tx, Env { run: &run, parameters }, chosen)
        } else {
            let mut all: Vec<Datum<'_>> = parameters.iter().map(Datum::borrowed).collect();
            all.resize(parameters.len() + self.slots, Datum::Null);
            self.plan.run(tx, Env { run: &run, parameters: &all }, chosen)
        };
        let (is_taken, is_late, has_skipped) = (run.is_taken.get(), run.is_locked_late.get(), run.has_skipped.get());
        (ran, Locked { wait: run.wait.into_inner(), is_taken, is_late, has_skipped, chosen: run.chosen.into_inner() })
    }

    /// The steps in words, and those of the queries in it.
    fn explain(&self) -> Vec<String> {
        let mut lines = self.plan.explain();
        for (number, query) in self.queries.iter().enumerate() {
            lines.push(format!("Query {number}{}", query.words()));
            lines.extend(query.select.explain().into_iter().map(|line| format!("  {line}")));
        }
        lines
    }
}

/// What became of the row locks of a statement.
struct Locked {
    /// It has ended, and waits for one.
    wait: Option<RowWait>,
    /// Another transaction has one, and this one takes none.
    is_taken: bool,
    /// Rows were read before they were locked.
    is_late: bool,
    /// Rows were read that others have locked, and skipped.
    has_skipped: bool,
    /// The keys of the others.
    chosen: Vec<Vec<Value>>,
}

/// A statement that is ready to run.
#[derive(Debug)]
enum Plan {
    Select(Box<Select>),
    Insert(Box<Inserting>),
    Update(Box<Updating>),
    Delete(Box<Deleting>),
}

impl Plan {
    fn is_read(&self) -> bool {
        matches!(self, Plan::Select(_))
    }

    /// Whether it is a query that notes which rows it has locked among others.
    fn notes_chosen(&self) -> bool {
        matches!(self, Plan::Select(select) if select.notes_chosen)
    }

    /// Whether it takes more numbers of sequences than a transaction has at hand.
    fn takes_numbers(&self) -> bool {
        match self {
            Plan::Insert(insert) => insert.takes_numbers(),
            Plan::Update(update) => update.takes_numbers(),
            Plan::Select(_) | Plan::Delete(_) => false,
        }
    }

    /// The steps in words.
    fn explain(&self) -> Vec<String> {
        match self {
            Plan::Select(select) => select.explain(),
            Plan::Insert(insert) => insert.explain(),
            Plan::Update(update) => update.explain(),
            Plan::Delete(delete) => delete.explain(),
        }
    }

    /// The table that it changes, and what it does with it.
    fn changes(&self, statement: &Statement) -> Option<(&DynHandle, Privileges)> {
        let reads = |does: bool| if does { Privileges::SELECT } else { Privileges::NONE };
        Some(match (self, statement) {
            (Plan::Insert(insert), Statement::Insert(syntax)) => {
                let updates = if insert.updates() { Privileges::UPDATE } else { Privileges::NONE };
                // Without a target, a conflict tells nothing of a row but that there is one.
                let looks = matches!(&syntax.on, Some(OnInsert::OnConflict(on)) if on.conflict_target.is_some());
                let reads = reads(looks || syntax.returning.is_some());
                (insert.table(), Privileges::INSERT | updates | reads)
            }
            (Plan::Update(update), Statement::Update(syntax)) => {
                let computes = syntax.assignments.iter().any(|assignment| !is_constant(&assignment.value));
                let reads = reads(computes || syntax.selection.is_some() || syntax.returning.is_some());
                (update.table(), Privileges::UPDATE | reads)
            }
            (Plan::Delete(delete), Statement::Delete(syntax)) => {
                let reads = reads(syntax.selection.is_some() || syntax.returning.is_some());
                (delete.table(), Privileges::DELETE | reads)
            }
            _ => return None,
        })
    }

    /// The columns of its rows; none if it gives none.
    fn columns(&self) -> Option<&Arc<[Column]>> {
        let returning = match self {
            Plan::Select(select) => return Some(&select.columns),
            Plan::Insert(insert) => &insert.returning,
            Plan::Update(update) => &update.returning,
            Plan::Delete(delete) => &delete.returning,
        };
        returning.as_ref().map(|returning| &returning.columns)
    }

    fn run(&self, tx: &Tx, env: Env<'_>, chosen: Option<&[Vec<Value>]>) -> Result<Answer, Abort> {
        let (verb, written) = match self {
            Plan::Select(select) => {
                let rows = match chosen {
                    Some(chosen) => select.of_chosen(env, chosen)?,
                    None => select.run(env)?,
                };
                let tag = tag("SELECT ", rows.len());
                return Ok(Answer::Rows { columns: select.columns.clone(), rows, tag });
            }
            Plan::Insert(insert) => ("INSERT 0 ", tx.statement(|| insert.run(tx, env))?),
            Plan::Update(update) => ("UPDATE ", tx.statement(|| update.run(tx, env))?),
            Plan::Delete(delete) => ("DELETE ", tx.statement(|| delete.run(tx, env))?),
        };
        let tag = tag(verb, written.count);
        Ok(match self.columns() {
            None => Answer::Done(tag),
            Some(columns) => Answer::Rows { columns: columns.clone(), rows: written.rows, tag },
        })
    }
}

impl Session {
    /// A session of this database. It is one of the first superuser.
    pub fn new(database: Database) -> Session {
        let session = database.session();
        let (number, canceller, state) = (session.number(), session.canceller(), State::Idle(session));
        let (settings, defaults, kept) = (Settings::default(), Values::new(), Kept::default());
        let (copying, login, acting) = (None, Access::FIRST, Cell::new(None));
        let around = Around::new(database.clone(), login);
        let (waiting, script) = (None, None);
        Session {
            database,
            on_statement: None,
            is_limited: false,
            waiting,
            script,
            state,
            number,
            canceller,
            copying,
            settings,
            defaults,
            login,
            acting,
            around,
            kept,
        }
    }

    /// Makes it a session of the role with this id.
    #[must_use]
    pub fn of_role(mut self, role: u32) -> Session {
        self.login = role;
        self
    }

    /// Checks that a setting can have a value.
    ///
    /// # Errors
    /// As [`Session::set_setting`].
    pub fn check_setting(name: &str, value: &str) -> Result<(), SqlError> {
        Session::checked(&name.to_lowercase(), value.to_owned()).map(drop)
    }

    /// Gives a setting another value than it usually has, as if the server had it.
    ///
    /// # Errors
    /// As [`Session::set_setting`].
    pub fn set_default(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        let own = name.to_lowercase();
        let value = Session::checked(&own, value.to_owned())?;
        self.defaults.extend(value.map(|value| (own, value)));
        Ok(())
    }

    /// The number of the session, which errors call that of its process.
    pub fn number(&self) -> usize {
        self.number
    }

    /// A handle that cancels what the session runs, from any thread.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Numbers that are others after each change of settings, and of roles and rights.
    pub fn changes(&self) -> (u64, u64) {
        (self.settings.changes, self.database.access_generation())
    }

    /// Whether a transaction is open.
    pub fn status(&self) -> Status {
        match &self.state {
            State::Open(open) if open.has_failed => Status::Failed,
            State::Open(open) if open.is_of_statement => Status::Idle,
            State::Open(_) => Status::Open,
            State::Idle(_) | State::Between => Status::Idle,
        }
    }

    /// Whether the open transaction has begun in the database, and holds a worker: not before its first statement, nor
    /// while that waits.
    pub fn has_begun(&self) -> bool {
        matches!(&self.state, State::Open(open) if open.transaction.is_open())
    }

    /// Runs the statements of a text, one after the other. Blocks the thread while a statement waits for a row.
    ///
    /// # Errors
    /// The first statement that fails, with the answers of those before it. They are undone, too, unless the text ended
    /// their transaction itself.
    pub fn execute(&mut self, text: &str) -> Result<Vec<Answer>, Failure> {
        loop {
            match self.poll_execute(text) {
                Poll::Ready(ran) => return ran,
                Poll::Pending => self.block(),
            }
        }
    }

    /// As [`Session::execute`], without blocking. `Pending`: a statement waits for a row. When [`Session::waiting`] is
    /// ready, the same call continues with it. Nothing else is permitted before.
    pub fn poll_execute(&mut self, text: &str) -> Poll<Result<Vec<Answer>, Failure>> {
        if self.is_waiting() {
            return Poll::Pending;
        }
        let mut script = self.script.take().unwrap_or_default();
        let is_resumed = script.commands.is_some();
        let ran = self.run(text, &mut script, is_resumed);
        if self.waiting.is_some() {
            self.script = Some(script);
            return Poll::Pending;
        }
        self.end_statement();
        let mut answers = script.answers;
        self.keep_wanted(&mut answers);
        Poll::Ready(match ran {
            Ok(()) => Ok(answers),
            Err(error) => Err(Failure { answers, error }),
        })
    }

    /// Has each statement with a limit of time (`statement_timeout`) told to `tell`: the limit when it begins, and
    /// `None` when it has ended. A statement that waits goes on. Whoever is told may cancel it when the time is over.
    pub fn on_statement(&mut self, tell: impl Fn(Option<Duration>) + Send + Sync + 'static) {
        self.on_statement = Some(Box::new(tell));
    }

    fn begin_statement(&mut self) {
        match &self.state {
            State::Idle(session) => session.forget_cancellation(),
            State::Open(open) => open.transaction.forget_cancellation(),
            State::Between => {}
        }
        if let Some(tell) = &self.on_statement {
            let limit = self.time_setting("statement_timeout");
            if limit.is_some() || self.is_limited {
                tell(limit);
            }
            self.is_limited = limit.is_some();
        }
    }

    fn end_statement(&mut self) {
        if let (Some(tell), true) = (&self.on_statement, self.is_limited) {
            tell(None);
        }
        self.is_limited = false;
    }

    /// The wait of the statement that runs, and how long it may take (`lock_timeout`); none if it does not wait.
    pub fn waiting(&self) -> Option<(WaitHandle, Option<Duration>)> {
        self.waiting.as_ref().map(|waiting| (waiting.wait.handle(), self.time_setting("lock_timeout")))
    }

    fn is_waiting(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.wait.ended().is_none())
    }

    fn block(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.wait.block(self.time_setting("lock_timeout"));
        }
    }

    /// Ends the wait of a statement, which runs again.
    fn end_wait(&mut self) -> Result<(), SqlError> {
        let Some(Waiting { wait, is_anew }) = self.waiting.take() else { return Ok(()) };
        let canceled = |state, why: &str| Err(SqlError::new(state, format!("canceling statement due to {why}")));
        let ended = match (wait.ended(), &self.state) {
            (Some(WaitEnd::Cancelled), _) => canceled(SqlState::QUERY_CANCELED, "user request"),
            (Some(WaitEnd::TimedOut), _) => canceled(SqlState::LOCK_NOT_AVAILABLE, "lock timeout"),
            (Some(WaitEnd::Granted), State::Open(open)) if !is_anew => {
                open.transaction.check_reads().map_err(|abort| {
                    let mut error = SqlError::from(open.transaction.explain(&abort));
                    let waited = format!("The statement had waited for process {}.", wait.blocker());
                    error.detail = error.detail.take().map(|detail| format!("{detail}\n{waited}"));
                    error
                })
            }
            // If the transaction was ended, its next operation says why.
            _ => Ok(()),
        };
        if ended.is_err() && matches!(&self.state, State::Open(open) if open.is_of_statement) {
            self.roll_back();
        }
        ended
    }

    /// Leaves out the notices that `client_min_messages` excludes.
    fn keep_wanted(&self, answers: &mut Vec<Answer>) {
        let level = |own: &str| LEVELS.iter().position(|level| *level == own);
        let least = self.settings.get("client_min_messages").and_then(|least| level(&least.to_lowercase()));
        let Some(least) = least else { return };
        answers.retain(|answer| match answer {
            Answer::Notice(notice) => {
                level(if notice.state.0 == "00000" { "notice" } else { "warning" }) >= Some(least)
            }
            _ => true,
        });
    }

    fn run(&mut self, text: &str, script: &mut Script, is_resumed: bool) -> Result<(), SqlError> {
        let ran = self.end_wait().and_then(|()| self.run_on(text, script, is_resumed));
        match ran {
            Err(error) if self.waiting.is_some() => Err(error),
            Ok(()) if self.copying.is_some() => Ok(()),
            Ok(()) => self.end_implicit(true),
            Err(error) => {
                self.fail();
                self.end_implicit(false)?;
                Err(error)
            }
        }
    }

    /// Runs the rest of a text.
    fn run_on(&mut self, text: &str, script: &mut Script, is_resumed: bool) -> Result<(), SqlError> {
        let first = is_resumed.then_some(script.at);
        let Script { commands, at, answers, bytes } = script;
        let commands = match commands {
            Some(commands) => commands,
            None => commands.insert(parse(text)?),
        };
        while let Some(command) = commands.get(*at) {
            if first != Some(*at) {
                self.begin_statement();
            }
            if commands.len() > 1 && !is_of_transactions(command) {
                self.begin(true, None);
            }
            let before = answers.len();
            self.command(command, answers)?;
            if commands.len() > 1 {
                *bytes += answers[before..].iter().map(Answer::bytes).sum::<usize>();
                check_kept(*bytes, "a text of several statements")?;
            }
            *at += 1;
            if self.copying.is_some() && *at < commands.len() {
                self.copying = None;
                let instead = "Send it as the last statement of a text.";
                return Err(SqlError::unsupported("COPY FROM STDIN before other statements", instead));
            }
        }
        Ok(())
    }

    /// Takes bytes for the COPY that has begun.
    ///
    /// # Errors
    /// No COPY has begun, a line is not of the format, or a row cannot be inserted. The COPY has ended then, and
    /// nothing of it is left.
    pub fn copy_data(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        self.copied(bytes, false).map_err(|error| self.end_copy(error))
    }

    /// Ends the COPY that has begun: its rows are committed, unless it is part of a transaction. Returns what was done.
    ///
    /// # Errors
    /// As [`Session::copy_data`]; a conflict of the commit.
    pub fn copy_done(&mut self) -> Result<Answer, SqlError> {
        self.copied(&[], true).map_err(|error| self.end_copy(error))?;
        let count = self.copying.take().map_or(0, |copying| copying.count);
        self.end_implicit(true)?;
        Ok(Answer::Done(tag("COPY ", count)))
    }

    /// Ends the COPY that has begun, as the client could not send all of it: nothing of it is left. Returns the error.
    pub fn copy_fail(&mut self, why: &str) -> SqlError {
        self.end_copy(SqlError::new(SqlState::QUERY_CANCELED, format!("COPY from stdin failed: {why}")))
    }

    fn end_copy(&mut self, error: SqlError) -> SqlError {
        let error = self.without_values(error);
        self.copying = None;
        self.fail();
        if matches!(&self.state, State::Open(open) if open.is_implicit) {
            self.roll_back();
        }
        error
    }

    fn copied(&mut self, bytes: &[u8], is_last: bool) -> Result<(), SqlError> {
        let (Some(copying), State::Open(open)) = (&mut self.copying, &self.state) else {
            return Err(SqlError::new(SqlState("08P01"), "there is no COPY to which these data belong"));
        };
        let records = copying.decoder.records(bytes, is_last)?;
        within(&open.asking(&self.around), || {
            records.iter().try_for_each(|fields| {
                copying.count += 1;
                let inserted = copying.filling.insert(&open.transaction, fields);
                inserted.map_err(|abort| SqlError::from(open.transaction.explain(&abort)))
            })
        })
    }

    fn copy(&mut self, copying: Copying, answers: &mut Vec<Answer>) -> Result<(), SqlError> {
        match copying.what {
            What::Of(query) => {
                let planned = self.plan(&Statement::Query(query), &mut Vec::new())?;
                self.check_permitted(&planned)?;
                let Answer::Rows { columns, rows, .. } = self.run_plan(&planned, &[])? else { return Ok(()) };
                let format = copying.format;
                let lines = format.lines(&rows, &columns);
                let (columns, is_binary, tag) = (columns.len(), format.is_binary(), tag("COPY ", rows.len()));
                answers.push(Answer::CopyOut { columns, is_binary, lines, tag });
            }
            What::Into { table, columns } => {
                let filling = Filling::bind(&table, &columns, self.names(None), &self.around)?;
                if let Some(need) = self.need(filling.table(), Privileges::INSERT) {
                    self.check_need(&need)?;
                }
                self.check_writable()?;
                self.begin(true, None);
                self.reopen()?.is_new = false;
                self.surround(None);
                let (columns, is_binary) = (filling.width(), copying.format.is_binary());
                answers.push(Answer::CopyIn { columns, is_binary });
                self.copying = Some(CopyIn { filling, decoder: Decoder::new(copying.format, columns), count: 0 });
            }
        }
        Ok(())
    }

    /// Prepares the statement of a text. `given` has the types of its first parameters, as far as they are known.
    ///
    /// # Errors
    /// The text is not one statement, it makes no sense, or the type of a parameter cannot be told.
    pub fn prepare(&mut self, text: &str, given: &[Option<SqlType>]) -> Result<Prepared, SqlError> {
        self.prepared(text, given).inspect_err(|_| self.fail())
    }

    fn prepared(&mut self, text: &str, given: &[Option<SqlType>]) -> Result<Prepared, SqlError> {
        let mut commands = parse(text)?;
        let command = commands.pop();
        if !commands.is_empty() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        self.prepared_of(command, given, crate::text::parameters(text))
    }

    /// The statement with at least so many parameters.
    fn prepared_of(
        &mut self,
        command: Option<Command>,
        given: &[Option<SqlType>],
        most: usize,
    ) -> Result<Prepared, SqlError> {
        if command.as_ref().is_some_and(|command| !is_of_transactions(command)) {
            self.check_alive()?;
        }
        let of = |ty: &Option<SqlType>| ty.map(|ty| of_expressions(ty.column(String::new()).ty));
        let mut parameters: Parameters = given.iter().map(of).collect();
        parameters.resize(parameters.len().max(most), None);
        let mut arrays = Vec::new();
        let plan = match &command {
            Some(Command::Statement(statement)) if is_planned(statement) => {
                Some(self.plan(statement, &mut parameters)?)
            }
            Some(command) if let Some(Declare { for_query: Some(query), .. }) = declared(command) => {
                // Its rows are found when it runs.
                arrays = self.plan(&Statement::Query(query.clone()), &mut parameters)?.arrays;
                None
            }
            _ => None,
        };
        arrays.extend(plan.iter().flat_map(|planned| &planned.arrays));
        let has_parameters = plan.is_some() || command.as_ref().is_some_and(|command| declared(command).is_some());
        if let Some(unknown) = parameters.iter().position(Option::is_none)
            && has_parameters
        {
            let message = format!("could not determine data type of parameter ${}", unknown + 1);
            return Err(SqlError::new(SqlState::INDETERMINATE_DATATYPE, message));
        }
        let columns = match (&plan, &command) {
            (Some(planned), _) => planned.plan.columns().cloned(),
            (None, Some(Command::Statement(statement))) => {
                let own = match &**statement {
                    Statement::Explain { .. } => Some("QUERY PLAN".to_owned()),
                    statement => shown(statement),
                };
                own.map(|own| Arc::from([Column::text_named(own)])).or_else(|| self.kept.columns(statement))
            }
            _ => None,
        };
        Ok(Prepared { command, parameters, arrays, columns, plan })
    }

    /// Runs a prepared statement with these values of its parameters, which are of their types. If it is not `alone`,
    /// it is one transaction with those that follow until [`Session::sync`].
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub fn execute_prepared(
        &mut self,
        prepared: &mut Prepared,
        values: &[Datum<'static>],
        alone: bool,
    ) -> Result<Vec<Answer>, Failure> {
        loop {
            match self.poll_execute_prepared(prepared, values, alone) {
                Poll::Ready(ran) => return ran,
                Poll::Pending => self.block(),
            }
        }
    }

    /// As [`Session::execute_prepared`], without blocking: see [`Session::poll_execute`].
    pub fn poll_execute_prepared(
        &mut self,
        prepared: &mut Prepared,
        values: &[Datum<'static>],
        alone: bool,
    ) -> Poll<Result<Vec<Answer>, Failure>> {
        if self.is_waiting() {
            return Poll::Pending;
        }
        let mut answers = Vec::new();
        if self.waiting.is_none() {
            self.begin_statement();
        }
        let ended = self.end_wait();
        let ran = ended.and_then(|()| self.run_prepared(prepared, values, alone, &mut answers));
        if self.waiting.is_some() {
            return Poll::Pending;
        }
        self.end_statement();
        self.keep_wanted(&mut answers);
        Poll::Ready(match ran {
            Ok(()) => Ok(answers),
            Err(error) => {
                self.fail();
                Err(Failure { answers, error })
            }
        })
    }

    fn run_prepared(
        &mut self,
        prepared: &mut Prepared,
        values: &[Datum<'static>],
        alone: bool,
        answers: &mut Vec<Answer>,
    ) -> Result<(), SqlError> {
        let Some(command) = &prepared.command else { return Ok(()) };
        // A change of tables that comes first is a transaction of its own, which keeps no others out.
        let is_apart = matches!(self.state, State::Idle(_)) && ddl::is_change(command);
        if !(alone || is_apart || is_of_transactions(command)) {
            self.begin(true, None);
        }
        if let (Some(declare), false) = (declared(command), values.is_empty()) {
            self.check_alive()?;
            self.declare(declare, &mut prepared.parameters, values)?;
            answers.push(Answer::Done("DECLARE CURSOR".to_owned()));
            return Ok(());
        }
        let (Some(planned), Command::Statement(statement)) = (&mut prepared.plan, command) else {
            return self.command(command, answers);
        };
        self.check_alive()?;
        let mut is_new = false;
        loop {
            let sees_others = matches!(&self.state, State::Open(open) if open.own.is_some());
            if planned.is_of_its_time || sees_others || !planned.tables.iter().all(Known::is_as_it_was) {
                let again = self.plan(statement, &mut prepared.parameters)?;
                if again.plan.columns().cloned() != prepared.columns {
                    let message = "cached plan must not change result type";
                    return Err(SqlError::unsupported(message, "Prepare the statement again."));
                }
                (*planned, is_new) = (again, true);
            }
            self.check_permitted(planned)?;
            match self.run_plan(planned, values) {
                // Its table is gone, and another one may have the name.
                Err(error) if error.state == SqlState::UNDEFINED_TABLE && !is_new => {
                    planned.is_of_its_time = true;
                    if matches!(self.state, State::Open(_)) {
                        return Err(error);
                    }
                }
                ran => return ran.map(|answer| answers.push(answer)),
            }
        }
    }

    /// Ends the transaction of statements that were executed one after the other: commits it, unless one has failed.
    ///
    /// # Errors
    /// It could not be committed.
    pub fn sync(&mut self) -> Result<(), SqlError> {
        self.end_implicit(self.status() != Status::Failed)
    }

    /// Marks the open transaction as failed: for errors of a client that no statement has seen.
    pub fn fail(&mut self) {
        if matches!(&self.state, State::Open(open) if open.is_of_statement) {
            return self.roll_back();
        }
        if let State::Open(open) = &mut self.state {
            open.has_failed = true;
            // Nothing of it can be kept, so nobody waits for it.
            if open.savepoints.is_empty() {
                open.transaction.abandon();
            }
        }
    }

    fn end_implicit(&mut self, commits: bool) -> Result<(), SqlError> {
        match &self.state {
            State::Open(open) if open.is_implicit && commits => self.commit().map(drop),
            State::Open(open) if open.is_implicit => {
                self.roll_back();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether transactions only read that do not say it.
    fn reads_only(&self) -> bool {
        let own = "default_transaction_read_only";
        self.settings.get(own).or_else(|| self.defaults.get(own)).is_some_and(|value| value == "on")
    }

    /// Opens a transaction, if none is.
    fn begin(&mut self, is_implicit: bool, is_read_only: Option<bool>) {
        let is_read_only = is_read_only.unwrap_or_else(|| self.reads_only());
        let session = match std::mem::replace(&mut self.state, State::Between) {
            State::Idle(session) => session,
            other => {
                self.state = other;
                return;
            }
        };
        self.state = State::Open(Open {
            transaction: OwnedTransaction::suspended(session),
            is_implicit,
            is_of_statement: false,
            is_new: true,
            has_failed: false,
            is_read_only,
            savepoints: Vec::new(),
            began: Timestamp::now(),
            settings: None,
            own: None,
        });
    }

    /// The open transaction, which has begun in the database.
    ///
    /// # Errors
    /// There are too many; none is open.
    fn reopen(&mut self) -> Result<&mut Open, SqlError> {
        let State::Open(open) = &mut self.state else {
            return Err(SqlError::new(SqlState::INTERNAL_ERROR, "no transaction is open"));
        };
        match open.transaction.resume() {
            Ok(()) => Ok(open),
            Err(error) => Err(error.into()),
        }
    }

    /// Commits the open transaction. Returns whether it was committed: one that has failed is rolled back.
    fn commit(&mut self) -> Result<bool, SqlError> {
        let open = match std::mem::replace(&mut self.state, State::Between) {
            State::Open(open) => open,
            other => {
                self.state = other;
                return Ok(false);
            }
        };
        if open.has_failed {
            self.state = State::Open(open);
            self.roll_back();
            return Ok(false);
        }
        let is_open = open.transaction.is_open();
        let (session, committed) = match is_open {
            true => {
                let (session, committed) = open.transaction.commit();
                (session, committed.map(drop))
            }
            // It has done nothing.
            false => (open.transaction.rollback(), Ok(())),
        };
        self.kept.end_transaction(committed.is_ok());
        self.state = State::Idle(session);
        if let Some(settings) = open.settings {
            let [of_commit, of_rollback] = *settings;
            *self.settings = if committed.is_ok() { of_commit } else { of_rollback };
        }
        committed.map(|_| true).map_err(|error| self.without_values(error.into()))
    }

    fn roll_back(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Between) {
            State::Open(open) => {
                if let Some(settings) = open.settings {
                    [_, *self.settings] = *settings;
                }
                self.kept.end_transaction(false);
                State::Idle(open.transaction.rollback())
            }
            other => other,
        };
    }

    fn command(&mut self, command: &Command, answers: &mut Vec<Answer>) -> Result<(), SqlError> {
        let statement = match command {
            Command::Maintenance(tag) => {
                self.check_alive()?;
                answers.push(Answer::Done((*tag).to_owned()));
                return Ok(());
            }
            Command::Roles(statement) => {
                self.check_alive()?;
                return self.roles_statement(statement, answers);
            }
            Command::AlterSequence(alter) => {
                self.check_alive()?;
                let ddl = ddl::alter_sequence(alter, self.names(None))?;
                return self.change_tables(ddl, answers);
            }
            Command::AlterIdentity(alter) => {
                self.check_alive()?;
                let ddl = ddl::alter_identity(alter, self.names(None))?;
                return self.change_tables(ddl, answers);
            }
            Command::Constraints(set) => {
                self.check_alive()?;
                return self.set_constraints(set, answers);
            }
            Command::Statement(statement) => &**statement,
        };
        if self.transaction_statement(statement, answers)? {
            return Ok(());
        }
        self.check_alive()?;
        if self.setting_statement(statement, answers)? || self.kept_statement(statement, answers)? {
            return Ok(());
        }
        if let Statement::Explain { analyze, statement, format, options, .. } = statement {
            if *analyze || format.is_some() || options.is_some() || !is_planned(statement) {
                return Err(SqlError::unsupported("this EXPLAIN", "EXPLAIN takes a query, INSERT, UPDATE or DELETE."));
            }
            let planned = self.plan(statement, &mut Vec::new())?;
            self.check_permitted(&planned)?;
            let rows = planned.explain().into_iter().map(|line| vec![Datum::Text(line.into())]).collect();
            let columns = Arc::from([Column::text_named("QUERY PLAN".to_owned())]);
            answers.push(Answer::Rows { columns, rows, tag: "EXPLAIN".to_owned() });
            return Ok(());
        }
        if let Some(copying) = copy::bind(statement) {
            return self.copy(copying?, answers);
        }
        self.surround(None);
        if let Some(ddl) = ddl::bind(statement, self.names(None), &self.around) {
            return self.change_tables(ddl?, answers);
        }
        let planned = self.plan(statement, &mut Vec::new())?;
        self.check_permitted(&planned)?;
        answers.push(self.run_plan(&planned, &[])?);
        Ok(())
    }

    /// The tables that names stand for, as the open transaction sees them.
    fn names<'s>(&'s self, used: Option<&'s RefCell<Vec<DynHandle>>>) -> Names<'s> {
        let (own, transaction) = match &self.state {
            State::Open(open) => open.own().unzip(),
            _ => (None, None),
        };
        Names { database: &self.database, own, transaction, used }
    }

    /// When the transaction of the next statement began, or begins.
    fn now(&self) -> Timestamp {
        match &self.state {
            State::Open(open) => open.began,
            _ => Timestamp::now(),
        }
    }

    /// Says what expressions find around them, at this time if they have been told one.
    fn surround(&self, time: Option<Timestamp>) {
        let began = || match &self.state {
            State::Open(open) if !open.is_of_statement => Some(open.began),
            _ => None,
        };
        self.around.begin(time.or_else(began), self.is_read_only(), self.actor().current);
    }

    /// Refuses statements in a transaction that has failed.
    fn check_alive(&self) -> Result<(), SqlError> {
        match self.status() {
            Status::Failed => {
                let message = "current transaction is aborted, commands ignored until end of transaction block";
                Err(SqlError::new(SqlState::IN_FAILED_SQL_TRANSACTION, message))
            }
            _ => Ok(()),
        }
    }

    /// What the expressions of a statement with these queries may ask for.
    fn context(&self, queries: Queries) -> Context {
        let actor = self.actor();
        Context {
            now: self.now(),
            user: self.role_name(actor.current),
            session_user: self.role_name(actor.session),
            asked_for_user: Cell::new(false),
            asked_for_time: Cell::new(false),
            takes_numbers: Cell::new(false),
            is_volatile: Cell::new(false),
            asked_for_settings: Cell::new(false),
            arrays: RefCell::default(),
            around: Arc::clone(&self.around),
            tables: RefCell::default(),
            locked: RefCell::default(),
            queries,
        }
    }

    fn plan(&self, statement: &Statement, parameters: &mut Parameters) -> Result<Planned, SqlError> {
        let own = match &self.state {
            State::Open(open) => open.own.clone(),
            _ => None,
        };
        let context = self.context(Queries::new(self.database.clone(), own, parameters.len()));
        let given = parameters.len();
        let names = self.names(Some(&context.tables));
        let plan = match statement {
            Statement::Query(query) => {
                let mut select = Select::bind(query, names, &context, parameters)?;
                select.notes_chosen = select.skips();
                Plan::Select(Box::new(select))
            }
            Statement::Insert(insert) => Plan::Insert(Box::new(Inserting::bind(insert, names, &context, parameters)?)),
            Statement::Update(update) => Plan::Update(Box::new(Updating::bind(update, names, &context, parameters)?)),
            Statement::Delete(delete) => Plan::Delete(Box::new(Deleting::bind(delete, names, &context, parameters)?)),
            other => {
                let words = other.to_string();
                let verb = words.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
                let instead = "Statements are SELECT, VALUES, INSERT, UPDATE, DELETE, CREATE, ALTER and DROP of tables \
                               and indexes, TRUNCATE, BEGIN, COMMIT, ROLLBACK, SAVEPOINT, SET and SHOW.";
                return Err(SqlError::unsupported(verb, instead));
            }
        };
        parameters.truncate(given);
        let sees_others = names.transaction.is_some();
        let tables: Vec<Known> = context.tables.take().into_iter().map(Known::of).collect();
        let takes_numbers = context.takes_numbers.get() || plan.takes_numbers();
        let time = context.asked_for_time.get().then_some(context.now);
        let is_of_its_time = time.is_some() || sees_others || context.asked_for_user.get();
        let slots = context.queries.slots();
        let (asks_settings, arrays) = (context.asked_for_settings.get(), context.arrays.take());
        let queries = context.queries.into_all();
        let locked = context.locked.take();
        let (needs, is_permitted) = (self.needs(&plan, statement, &tables, &locked), Cell::new(None));
        Ok(Planned {
            plan,
            queries,
            slots,
            tables,
            is_of_its_time,
            time,
            takes_numbers,
            locks: !locked.is_empty(),
            asks_settings,
            arrays,
            needs,
            is_permitted,
        })
    }

    /// What a plan does with which tables, of which queries in it have some locked.
    fn needs(&self, plan: &Plan, statement: &Statement, tables: &[Known], locked: &[DynHandle]) -> Vec<Need> {
        let locked: Vec<Object> = locked.iter().map(|table| self.database.object_of(table)).collect();
        let mut changed = plan.changes(statement);
        let need = |Known { table, .. }: &Known| {
            let object = self.database.object_of(table);
            // The table that is changed is read only where it is named again.
            let is_changed = changed.filter(|(target, _)| self.database.object_of(target) == object);
            let locks = if locked.contains(&object) { Privileges::UPDATE } else { Privileges::NONE };
            let privileges = is_changed.map_or(Privileges::SELECT | locks, |(_, privileges)| privileges);
            if is_changed.is_some() {
                changed = None;
            }
            self.need(table, privileges)
        };
        tables.iter().filter_map(need).collect()
    }

    /// That a table is used so; none if the open transaction has made the table, which nobody else sees yet.
    fn need(&self, table: &DynHandle, privileges: Privileges) -> Option<Need> {
        let object = self.database.object_of(table);
        let is_known = !matches!(&self.state, State::Open(open) if open.own().is_some())
            || self.database.table_names().iter().any(|name| self.object_named(name) == Some(object));
        is_known.then(|| Need { object, table: table.definition().name.to_string(), privileges })
    }

    fn object_named(&self, table: &str) -> Option<Object> {
        self.database.open_dyn(table).ok().map(|table| self.database.object_of(&table))
    }

    /// Refuses a plan that the session may not run.
    #[inline]
    fn check_permitted(&self, planned: &Planned) -> Result<(), SqlError> {
        let now = Some((self.database.access_generation(), self.settings.changes));
        if planned.is_permitted.get() != now {
            planned.needs.iter().try_for_each(|need| self.check_need(need))?;
            planned.is_permitted.set(now);
        }
        Ok(())
    }

    #[cold]
    fn check_need(&self, need: &Need) -> Result<(), SqlError> {
        let (access, role) = (self.database.access(), self.actor().current);
        if !access.may(role, Object::Schema, Privileges::USAGE) {
            return Err(roles::denied(format!("for schema {SCHEMA}")));
        }
        match access.may(role, need.object, need.privileges) {
            true => Ok(()),
            false => Err(roles::denied(format!("for table {}", need.table))),
        }
    }

    /// The same error, without the values in it if the session may not read the table that it is about.
    #[cold]
    fn without_values(&self, mut error: SqlError) -> SqlError {
        let is_told = |table: &String| {
            let table = self.names(None).table(table).ok();
            table.and_then(|table| self.need(&table, Privileges::SELECT)).is_none_or(|need| {
                let access = self.database.access();
                access.may(self.actor().current, need.object, need.privileges)
            })
        };
        // Errors of integrity show rows and keys.
        if error.state.0.starts_with("23") && !error.table.as_ref().is_none_or(is_told) {
            error.detail = None;
        }
        error
    }

    /// The roles of the session.
    fn actor(&self) -> Actor {
        if let Some((changes, actor)) = self.acting.get()
            && changes == self.settings.changes
        {
            return actor;
        }
        let of = |own: &str| self.settings.get(own).and_then(|id| id.parse().ok());
        let session = of(SESSION_ROLE).unwrap_or(self.login);
        let actor = Actor { session, current: of(CURRENT_ROLE).unwrap_or(session) };
        self.acting.set(Some((self.settings.changes, actor)));
        actor
    }

    fn role_name(&self, id: u32) -> String {
        self.database.access().role(id).map_or_else(|| format!("unknown (OID={id})"), |role| role.name.clone())
    }

    fn roles_statement(&mut self, statement: &roles::Statement, answers: &mut Vec<Answer>) -> Result<(), SqlError> {
        let tag = statement.tag();
        if let roles::Statement::Become { what, role, is_local, .. } = statement {
            self.act_as(*what, role.as_ref(), *is_local, answers)?;
            answers.push(Answer::Done(tag.to_owned()));
            return Ok(());
        }
        self.check_writable()?;
        if matches!(self.state, State::Open(_)) {
            return Err(SqlError::unsupported(
                format!("{tag} in a transaction"),
                "Run it by itself: a change of roles is a transaction of its own.",
            ));
        }
        let (actor, database) = (self.actor(), self.database.clone());
        let names = Names { database: &database, own: None, transaction: None, used: None };
        let (statement, mut notices) = roles::with_verifiers(statement.clone())?;
        database.change_access(|access| {
            notices.extend(roles::apply(&statement, access, actor, names)?);
            Ok::<(), SqlError>(())
        })?;
        answers.extend(notices.into_iter().map(Answer::Notice));
        answers.push(Answer::Done(tag.to_owned()));
        Ok(())
    }

    /// Lets the session act as another role: SET ROLE and SET SESSION AUTHORIZATION.
    fn act_as(
        &mut self,
        what: Become,
        role: Option<&RoleName>,
        is_local: bool,
        answers: &mut Vec<Answer>,
    ) -> Result<(), SqlError> {
        let (actor, access) = (self.actor(), self.database.access());
        let id = role.map(|role| role.find(&access, actor)).transpose().map_err(|mut unknown| {
            // As a setting it has a value that it cannot have.
            unknown.state = SqlState::INVALID_PARAMETER_VALUE;
            unknown
        })?;
        let name = id.map(|id| self.role_name(id)).unwrap_or_default();
        let (own, is_permitted) = match what {
            Become::Role => (CURRENT_ROLE, id.is_none_or(|id| access.is_member(actor.session, id))),
            Become::Session => (SESSION_ROLE, id.is_none_or(|id| id == self.login || access.is_superuser(self.login))),
        };
        if !is_permitted {
            return Err(match what {
                Become::Role => roles::denied(format!("to set role \"{name}\"")),
                Become::Session => roles::denied("to set session authorization"),
            });
        }
        let change = |settings: &mut Values| {
            if what == Become::Session {
                settings.remove(CURRENT_ROLE);
            }
            match id {
                Some(id) => drop(settings.insert(own.to_owned(), id.to_string())),
                None => drop(settings.remove(own)),
            }
        };
        self.change_settings(&change, is_local, answers);
        Ok(())
    }

    /// Refuses changes of tables that the session may not make.
    fn check_changes(&self, steps: &[Step]) -> Result<(), SqlError> {
        let (access, role) = (self.database.access(), self.actor().current);
        if access.is_superuser(role) {
            return Ok(());
        }
        if access.role(role).is_none() {
            let message = format!("role with OID {role} does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        }
        if !access.may(role, Object::Schema, Privileges::USAGE) {
            return Err(roles::denied(format!("for schema {SCHEMA}")));
        }
        let names = self.names(None);
        // A table that the transaction has made is its own.
        let object = |table: &str| {
            let table = names.table(table).ok()?;
            self.need(&table, Privileges::NONE).map(|need| need.object)
        };
        let may = |table: &str, privileges| match object(table).is_none_or(|of| access.may(role, of, privileges)) {
            true => Ok(()),
            false => Err(roles::denied(format!("for table {table}"))),
        };
        let owns = |table: &str| match object(table) {
            Some(object) => roles::check_owner(&access, role, object, table),
            None => Ok(()),
        };
        steps.iter().try_for_each(|step| match step {
            Step::Create(table) => {
                if !access.may(role, Object::Schema, Privileges::CREATE) {
                    return Err(roles::denied(format!("for schema {SCHEMA}")));
                }
                let mut others = table.references.iter().filter(|reference| reference.table != table.name);
                others.try_for_each(|reference| may(&reference.table, Privileges::REFERENCES))
            }
            Step::Truncate(table) => may(table, Privileges::TRUNCATE),
            Step::Drop(table) => owns(table),
            Step::CreateSequence(_) if access.may(role, Object::Schema, Privileges::CREATE) => Ok(()),
            Step::CreateSequence(_) => Err(roles::denied(format!("for schema {SCHEMA}"))),
            Step::AlterSequence(sequence, _) | Step::DropSequence(sequence) => {
                let known = names.sequence(sequence);
                match known.is_some_and(|known| roles::owns_sequence(&self.database, role, &known)) {
                    true => Ok(()),
                    false => Err(roles::must(format!("be owner of sequence {sequence}"))),
                }
            }
            Step::Fill { table, .. } => owns(table),
            Step::Change { table, changes } => {
                owns(table)?;
                changes.iter().try_for_each(|change| match change {
                    Change::AddReference { reference } => may(&reference.table, Privileges::REFERENCES),
                    _ => Ok(()),
                })
            }
        })
    }

    fn run_plan(&mut self, planned: &Planned, parameters: &[Datum<'_>]) -> Result<Answer, SqlError> {
        if !planned.asks_settings {
            return self.run_planned(planned, parameters);
        }
        let custom: Vec<String> = self.settings.keys().filter(|own| !own.starts_with('\0')).cloned().collect();
        let all = SETTINGS.iter().map(|(own, ..)| (*own).to_owned()).chain(custom);
        let known = all.filter_map(|own| self.setting(&own).ok().map(|value| (own, value))).collect();
        self.around.know_settings(known);
        let ran = self.run_planned(planned, parameters);
        for (own, value, is_local) in self.around.changed_settings() {
            if ran.is_ok() {
                self.set_in_transaction(own, value, is_local, &mut Vec::new())?;
            }
        }
        ran
    }

    fn run_planned(&mut self, planned: &Planned, parameters: &[Datum<'_>]) -> Result<Answer, SqlError> {
        if !planned.plan.is_read() || planned.locks {
            self.check_writable()?;
        }
        let is_alone = !planned.takes_numbers && !matches!(&self.state, State::Open(open) if !open.is_of_statement);
        if is_alone && let Some(ran) = self.run_closure(planned, parameters, false) {
            return ran;
        }
        match self.run_open(planned, parameters) {
            // Others change what it reads, again and again. A closure excludes them at last.
            Err(error) if is_alone && error.state == SqlState::SERIALIZATION_FAILURE => {
                self.run_closure(planned, parameters, true).unwrap_or(Err(error))
            }
            ran => ran,
        }
    }

    /// Runs a statement as a closure, which takes no locks of rows. None if a transaction is open, if a row that it
    /// wants is locked, or after conflicts. While rows are locked, one conflict is enough unless it `insists`.
    fn run_closure(
        &mut self,
        planned: &Planned,
        parameters: &[Datum<'_>],
        insists: bool,
    ) -> Option<Result<Answer, SqlError>> {
        self.surround(planned.time);
        let State::Idle(session) = &mut self.state else { return None };
        let (around, is_taken) = (&self.around, Cell::new(false));
        let names = Names { database: &self.database, own: None, transaction: None, used: None };
        let ran = session.transact(|tx| {
            // It met a conflict, perhaps with one that holds a row for long.
            if !insists && tx.attempt() > 1 && tx.minds_locks() {
                is_taken.set(true);
                return Err(tx.unwind());
            }
            let (ran, locked) =
                within(&Asking { around, tx, own: None }, || planned.run(tx, (names, around), parameters, None));
            is_taken.set(locked.is_taken);
            ran
        });
        match ran {
            Err(_) if is_taken.get() => None,
            Err(TransactError::Conflict { .. }) => None,
            ran => Some(ran.map(|done| done.into_value()).map_err(|error| self.without_values(error.into()))),
        }
    }

    /// Runs a statement in the open transaction, or in one of its own. There it locks rows, and can wait for them and
    /// for numbers. It is repeated after a conflict if the client knows of nothing that the transaction has done.
    fn run_open(&mut self, planned: &Planned, parameters: &[Datum<'_>]) -> Result<Answer, SqlError> {
        let (mut chosen, began) = (None, Instant::now());
        let strength = match planned.plan.is_read() && !planned.locks {
            true => LockStrength::Shared,
            false => LockStrength::Exclusive,
        };
        for attempt in 1.. {
            let is_of_statement = !matches!(&self.state, State::Open(open) if !open.is_of_statement);
            if is_of_statement {
                self.begin(true, None);
            }
            let opened = self.reopen().map(|open| open.is_of_statement = is_of_statement);
            self.surround(planned.time);
            let State::Open(open) = &self.state else { return Err(ended()) };
            let (names, around, mut wait) = (self.names(None), &self.around, None);
            let mut chooses = false;
            let ran = opened.and_then(|()| {
                let run = || planned.run(&open.transaction, (names, around), parameters, chosen.as_deref());
                let (ran, locked) = within(&open.asking(around), run);
                wait = locked.wait;
                if locked.has_skipped && ran.is_ok() && planned.plan.notes_chosen() && open.can_begin_anew() {
                    chosen = Some(locked.chosen);
                    chooses = true;
                }
                // Others may have changed rows before they were locked. Now they cannot.
                let is_certain = !locked.is_late || wait.is_some() || chooses || !open.can_begin_anew();
                let ran =
                    ran.and_then(|ran| if is_certain { Ok(ran) } else { open.transaction.check_reads().map(|()| ran) });
                ran.map_err(|abort| {
                    if wait.is_none() && abort.is_retryable() && open.can_begin_anew() {
                        wait = open.transaction.wait_for_conflict(strength);
                    }
                    self.without_values(open.transaction.explain(&abort).into())
                })
            });
            if let Some(wait) = wait {
                return Err(self.begin_wait(wait));
            }
            if chooses && let State::Open(open) = &mut self.state {
                // It forgets the rows of others, whose changes would be conflicts.
                open.transaction.suspend();
                continue;
            }
            let ran = match ran {
                ran if !is_of_statement => ran,
                Ok(answer) => self.commit().map(|_| answer),
                Err(error) => {
                    self.roll_back();
                    Err(error)
                }
            };
            let is_conflict = |error: &SqlError| error.state == SqlState::SERIALIZATION_FAILURE;
            let has_time = attempt < ATTEMPTS_MAX && began.elapsed() < ATTEMPTS_TIME;
            let repeats = has_time && ran.as_ref().is_err_and(is_conflict);
            match &mut self.state {
                State::Open(open) if repeats && open.can_begin_anew() => open.transaction.suspend(),
                State::Open(open) => {
                    open.is_new = false;
                    return ran;
                }
                _ if repeats => {}
                _ => return ran,
            }
            thread::sleep(ATTEMPT_PAUSE * attempt);
        }
        Err(ended())
    }

    /// The statement that runs waits for a row, and will run again. If its transaction can begin anew, it does so then:
    /// what it read meanwhile is old. Until then it holds nothing but locks.
    fn begin_wait(&mut self, wait: RowWait) -> SqlError {
        let mut is_anew = false;
        if let State::Open(open) = &mut self.state
            && open.can_begin_anew()
        {
            open.transaction.suspend();
            is_anew = true;
        }
        self.waiting = Some(Waiting { wait, is_anew });
        SqlError::new(SqlState::LOCK_NOT_AVAILABLE, "the statement waits for a row")
    }

    fn is_read_only(&self) -> bool {
        match &self.state {
            State::Open(open) => open.is_read_only,
            _ => self.reads_only(),
        }
    }

    /// Refuses changes where the transaction only reads.
    fn check_writable(&self) -> Result<(), SqlError> {
        if self.is_read_only() { Err(read_only()) } else { Ok(()) }
    }

    /// Runs a statement that begins or ends transactions. Returns whether it is one.
    fn transaction_statement(&mut self, statement: &Statement, answers: &mut Vec<Answer>) -> Result<bool, SqlError> {
        let warning = |state, message: &str| Answer::Notice(SqlError::new(state, message));
        let done = |tag: &str| Answer::Done(tag.to_owned());
        match statement {
            Statement::StartTransaction { modes, begin, modifier: None, statements, exception: None, .. }
                if statements.is_empty() =>
            {
                self.check_alive()?;
                let is_read_only = self.modes(modes, answers)?;
                match &mut self.state {
                    State::Open(open) if open.is_implicit => {
                        open.is_implicit = false;
                        open.is_read_only = is_read_only.unwrap_or(open.is_read_only);
                    }
                    State::Open(_) => {
                        let message = "there is already a transaction in progress";
                        answers.push(warning(SqlState::ACTIVE_SQL_TRANSACTION, message));
                    }
                    _ => self.begin(false, is_read_only),
                }
                answers.push(done(if *begin { "BEGIN" } else { "START TRANSACTION" }));
            }
            Statement::Commit { chain, modifier: None, .. } => {
                let next = self.chained(*chain, "COMMIT AND CHAIN")?;
                let was_open = matches!(self.state, State::Open(_));
                let committed = self.commit()?;
                if !was_open {
                    let message = "there is no transaction in progress";
                    answers.push(warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
                }
                if let Some(is_read_only) = next {
                    self.begin(false, Some(is_read_only));
                }
                answers.push(done(if was_open && !committed { "ROLLBACK" } else { "COMMIT" }));
            }
            Statement::Rollback { chain, savepoint: None } => {
                let next = self.chained(*chain, "ROLLBACK AND CHAIN")?;
                if !matches!(self.state, State::Open(_)) {
                    let message = "there is no transaction in progress";
                    answers.push(warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
                }
                self.roll_back();
                if let Some(is_read_only) = next {
                    self.begin(false, Some(is_read_only));
                }
                answers.push(done("ROLLBACK"));
            }
            Statement::Savepoint { name: ident } => {
                self.check_alive()?;
                let own = name(ident)?;
                self.open_block("SAVEPOINT")?;
                let open = self.reopen()?;
                let savepoint = open.transaction.savepoint().map_err(|abort| open.transaction.explain(&abort))?;
                open.savepoints.push((own, savepoint));
                answers.push(done("SAVEPOINT"));
            }
            Statement::Rollback { savepoint: Some(ident), .. } => {
                let open = self.open_block("ROLLBACK TO SAVEPOINT")?;
                let at = open.savepoint(ident)?;
                let (_, savepoint) = open.savepoints[at];
                open.transaction.rollback_to(savepoint).map_err(|abort| open.transaction.explain(&abort))?;
                open.savepoints.truncate(at + 1);
                open.has_failed = false;
                if open.own.is_some() {
                    open.look_again();
                }
                self.kept.roll_back_to(at);
                answers.push(done("ROLLBACK"));
            }
            Statement::ReleaseSavepoint { name: ident } => {
                self.check_alive()?;
                let open = self.open_block("RELEASE SAVEPOINT")?;
                let at = open.savepoint(ident)?;
                open.savepoints.truncate(at);
                answers.push(done("RELEASE"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the transaction that follows only reads, if one follows at once.
    fn chained(&mut self, chain: bool, what: &str) -> Result<Option<bool>, SqlError> {
        if chain { self.open_block(what).map(|open| Some(open.is_read_only)) } else { Ok(None) }
    }

    /// The explicit transaction.
    fn open_block(&mut self, what: &str) -> Result<&mut Open, SqlError> {
        match &mut self.state {
            State::Open(open) if !open.is_implicit => Ok(open),
            _ => {
                let message = format!("{what} can only be used in transaction blocks");
                Err(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message))
            }
        }
    }

    /// Whether a transaction with these modes only reads, if they say it.
    fn modes(&mut self, modes: &[TransactionMode], answers: &mut Vec<Answer>) -> Result<Option<bool>, SqlError> {
        let mut is_read_only = None;
        for mode in modes {
            match mode {
                TransactionMode::AccessMode(mode) => is_read_only = Some(*mode == TransactionAccessMode::ReadOnly),
                TransactionMode::IsolationLevel(TransactionIsolationLevel::Serializable) => {}
                TransactionMode::IsolationLevel(level) => {
                    if !self.settings.contains_key("\0isolation") {
                        self.settings.insert("\0isolation".to_owned(), String::new());
                        let message = format!("transactions are serializable, which {level} permits");
                        answers.push(Answer::Notice(SqlError::new(SqlState("00000"), message)));
                    }
                }
            }
        }
        Ok(is_read_only)
    }

    /// Says when constraints are checked.
    fn set_constraints(&mut self, set: &SetConstraints, answers: &mut Vec<Answer>) -> Result<(), SqlError> {
        let names =
            set.names.as_ref().map(|names| names.iter().map(object).collect::<Result<Vec<_>, _>>()).transpose()?;
        for own in names.iter().flatten() {
            let mut found =
                self.names(None).tables().flat_map(|table| constraint_checks(table.definition(), own)).peekable();
            if found.peek().is_none() {
                let message = format!("constraint \"{own}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
            if found.any(|checked| checked == Checked::Immediately) {
                let message = format!("constraint \"{own}\" is not deferrable");
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
        }
        match &self.state {
            State::Open(open) if !open.is_implicit => {
                let open = self.reopen()?;
                // Begun anew, it would have forgotten them.
                open.is_new = false;
                let names: Option<Vec<&str>> = names.as_ref().map(|names| names.iter().map(|own| &**own).collect());
                let checked = if set.is_deferred { Constraints::Deferred } else { Constraints::Immediate };
                let done = match &names {
                    None => open.transaction.set_constraints(checked),
                    Some(names) => open.transaction.set_constraints_of(names, checked),
                };
                done.map_err(|abort| open.transaction.explain(&abort))?;
            }
            _ => {
                let message = "SET CONSTRAINTS can only be used in transaction blocks";
                answers.push(Answer::Notice(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message)));
            }
        }
        answers.push(Answer::Done("SET CONSTRAINTS".to_owned()));
        Ok(())
    }

    /// Runs SET, RESET or SHOW. Returns whether it is one of them.
    fn setting_statement(&mut self, statement: &Statement, answers: &mut Vec<Answer>) -> Result<bool, SqlError> {
        match statement {
            Statement::Set(set) => self.set(set, answers)?,
            _ => match shown(statement) {
                None => return Ok(false),
                Some(own) => {
                    let rows = vec![vec![Datum::Text(self.setting(&own)?.into())]];
                    let columns = Arc::from([Column::text_named(own)]);
                    answers.push(Answer::Rows { columns, rows, tag: "SHOW".to_owned() });
                }
            },
        }
        Ok(true)
    }

    fn set(&mut self, set: &Set, answers: &mut Vec<Answer>) -> Result<(), SqlError> {
        match set {
            Set::SingleAssignment { scope, hivevar: false, variable, values }
                if *scope != Some(ContextModifier::Global) =>
            {
                let own = variable.to_string().to_lowercase();
                let value = values.iter().map(setting_value).collect::<Vec<_>>().join(", ");
                self.set_in_transaction(own, value, *scope == Some(ContextModifier::Local), answers)?;
            }
            Set::SetTimeZone { local, value } => {
                self.set_in_transaction("timezone".to_owned(), setting_value(value), *local, answers)?;
            }
            Set::SetNames { charset_name, collation_name: None } => {
                let encoding = charset_name.value.clone();
                self.set_in_transaction("client_encoding".to_owned(), encoding, false, answers)?;
            }
            Set::SetTransaction { modes, snapshot: None, session } => {
                let is_read_only = self.modes(modes, answers)?;
                match &mut self.state {
                    State::Open(open) if !session => {
                        if open.is_read_only && is_read_only == Some(false) {
                            let message = "cannot set transaction read-write mode inside a read-only transaction";
                            return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
                        }
                        open.is_read_only = is_read_only.unwrap_or(open.is_read_only);
                    }
                    _ if *session => {
                        if let Some(is_read_only) = is_read_only {
                            let value = if is_read_only { "on" } else { "off" }.to_owned();
                            self.set_in_transaction("default_transaction_read_only".to_owned(), value, false, answers)?;
                        }
                    }
                    _ => {
                        let message = "SET TRANSACTION can only be used in transaction blocks";
                        answers.push(Answer::Notice(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message)));
                    }
                }
            }
            other => return Err(SqlError::unsupported(other, "SET name = value is there.")),
        }
        answers.push(Answer::Done("SET".to_owned()));
        Ok(())
    }

    /// Sets a setting until the end of the session, or of the transaction. A rollback undoes both.
    fn set_in_transaction(
        &mut self,
        own: String,
        value: String,
        is_local: bool,
        answers: &mut Vec<Answer>,
    ) -> Result<(), SqlError> {
        self.check_may_set(&own)?;
        let value = Session::checked(&own, value)?;
        let change = |settings: &mut Values| match &value {
            Some(value) => drop(settings.insert(own.clone(), value.clone())),
            None => drop(settings.remove(&own)),
        };
        self.change_settings(&change, is_local, answers);
        Ok(())
    }

    /// Refuses changes of what only superusers set.
    fn check_may_set(&self, own: &str) -> Result<(), SqlError> {
        match FOR_SUPERUSERS.contains(&own) && !self.database.access().is_superuser(self.actor().current) {
            true => Err(roles::denied(format!("to set parameter \"{own}\""))),
            false => Ok(()),
        }
    }

    /// Changes settings until the end of the session, or of the transaction. A rollback undoes both.
    fn change_settings(&mut self, change: &dyn Fn(&mut Values), is_local: bool, answers: &mut Vec<Answer>) {
        let is_block = matches!(&self.state, State::Open(open) if !open.is_implicit);
        if is_local && !is_block {
            let message = "SET LOCAL can only be used in transaction blocks";
            answers.push(Answer::Notice(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message)));
            return;
        }
        if let State::Open(open) = &mut self.state {
            let before = &self.settings.values;
            let settings = open.settings.get_or_insert_with(|| Box::new([before.clone(), before.clone()]));
            if !is_local {
                change(&mut settings[0]);
            }
        }
        change(&mut self.settings);
    }

    /// Sets a setting, as SET does.
    ///
    /// # Errors
    /// There is no such setting, or it cannot have this value.
    pub fn set_setting(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        let own = name.to_lowercase();
        self.check_may_set(&own)?;
        match Session::checked(&own, value.to_owned())? {
            Some(value) => drop(self.settings.insert(own, value)),
            None => drop(self.settings.remove(&own)),
        }
        Ok(())
    }

    /// The value of a setting, as SHOW gives it.
    ///
    /// # Errors
    /// There is no such setting.
    pub fn show_setting(&self, name: &str) -> Result<String, SqlError> {
        self.setting(&name.to_lowercase())
    }

    /// The value of a setting as it is kept; none for its default.
    fn checked(own: &str, value: String) -> Result<Option<String>, SqlError> {
        if TIMES.contains(&own) && !value.eq_ignore_ascii_case("default") {
            return milliseconds(own, &value).map(|time| Some(time.to_string()));
        }
        let Some((_, fixed, permitted)) = SETTINGS.iter().find(|(name, ..)| *name == own) else {
            // Settings with a point belong to others, and can have any value.
            if own.contains('.') {
                return Ok(Some(value));
            }
            let message = format!("unrecognized configuration parameter \"{own}\"");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        let lower = match &*value.to_lowercase() {
            "true" | "yes" | "1" if fixed == &"on" || fixed == &"off" => "on".to_owned(),
            "false" | "no" | "0" if fixed == &"on" || fixed == &"off" => "off".to_owned(),
            lower => lower.to_owned(),
        };
        let value = if lower == "on" || lower == "off" { lower.clone() } else { value };
        let is_permitted = match permitted {
            None => true,
            Some(permitted) => lower == "default" || lower == fixed.to_lowercase() || permitted.contains(&&*lower),
        };
        if !is_permitted && *permitted == Some(&[]) {
            let message = format!("parameter \"{own}\" cannot be changed");
            let hint = match own {
                "transaction_read_only" => "Write SET TRANSACTION READ ONLY.".to_owned(),
                _ => format!("It is always \"{fixed}\"."),
            };
            return Err(SqlError::new(SqlState("55P02"), message).hint(hint));
        }
        if !is_permitted {
            let message = format!("invalid value for parameter \"{own}\": \"{value}\"");
            let mut known: Vec<&str> = permitted.unwrap_or_default().to_vec();
            known.push(fixed);
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .hint(format!("Available values: {}.", known.join(", "))));
        }
        Ok((lower != "default").then_some(value))
    }

    /// A setting that is a time; none if it is off.
    pub fn time_setting(&self, name: &str) -> Option<Duration> {
        let value = self.settings.get(name).or_else(|| self.defaults.get(name))?;
        let milliseconds: i64 = value.parse().ok()?;
        let is_off = if name == LOG_MIN_DURATION { -1 } else { 0 };
        u64::try_from(milliseconds).ok().filter(|_| milliseconds != is_off).map(Duration::from_millis)
    }

    fn setting(&self, own: &str) -> Result<String, SqlError> {
        if let ("transaction_read_only", State::Open(open)) = (own, &self.state) {
            return Ok(if open.is_read_only { "on" } else { "off" }.to_owned());
        }
        let actor = self.actor();
        match own {
            "session_authorization" => return Ok(self.role_name(actor.session)),
            "role" if actor.current == actor.session => return Ok("none".to_owned()),
            "role" => return Ok(self.role_name(actor.current)),
            "is_superuser" => {
                let is = self.database.access().is_superuser(actor.current);
                return Ok(if is { "on" } else { "off" }.to_owned());
            }
            own if TIMES.contains(&own) => {
                let value = self.settings.get(own).or_else(|| self.defaults.get(own));
                return Ok(value.map_or_else(|| usual(own), |value| in_words(value)));
            }
            _ => {}
        }
        let own = if own == "transaction_read_only" { "default_transaction_read_only" } else { own };
        if let Some(value) = self.settings.get(own).or_else(|| self.defaults.get(own)) {
            return Ok(value.clone());
        }
        let known = SETTINGS.iter().find(|(name, ..)| *name == own).map(|(_, value, _)| (*value).to_owned());
        known.ok_or_else(|| {
            let message = format!("unrecognized configuration parameter \"{own}\"");
            SqlError::new(SqlState::UNDEFINED_OBJECT, message)
        })
    }

    /// Changes tables.
    fn change_tables(&mut self, ddl: Ddl, answers: &mut Vec<Answer>) -> Result<(), SqlError> {
        let needs_transaction = ddl.needs_transaction();
        let notices = ddl.notices.into_iter().map(|notice| SqlError::new(SqlState("00000"), notice));
        answers.extend(notices.map(Answer::Notice));
        self.check_writable()?;
        self.check_changes(&ddl.steps)?;
        let begins = needs_transaction && matches!(self.state, State::Idle(_));
        if begins {
            self.begin(true, None);
        }
        if matches!(self.state, State::Open(_)) {
            self.reopen()?.is_new = false;
        }
        match self.make_changes(ddl.steps) {
            Ok(()) if begins => drop(self.commit()?),
            Ok(()) => {}
            Err(error) => {
                if begins {
                    self.roll_back();
                }
                return Err(error.into());
            }
        }
        answers.push(Answer::Done(ddl.tag.to_owned()));
        Ok(())
    }

    fn make_changes(&mut self, steps: Vec<Step>) -> Result<(), SchemaError> {
        let owner = Some(self.actor().current).filter(|role| *role != Access::FIRST);
        let mut steps = steps.into_iter().peekable();
        while steps.peek().is_some() {
            let mut together = Vec::new();
            while let Some(step) = steps.next_if(|step| !matches!(step, Step::Fill { .. })) {
                together.push(step);
            }
            match &mut self.state {
                State::Open(open) => {
                    let migrated =
                        open.transaction.lend(|transaction| migrate(transaction.migration(), together, owner));
                    open.look_again();
                    migrated?;
                }
                _ => migrate(self.database.migration(), together, owner)?,
            }
            if let Some(Step::Fill { table, column }) = steps.next() {
                let numbered = self.fill(&table, &column)?;
                // The sequence of an identity column begins behind the numbers that rows have.
                if let (Some(start), Some(Step::Change { changes, .. })) = (numbered, steps.peek_mut()) {
                    changes.iter_mut().for_each(|change| {
                        if let Change::SetIdentity { identity: Some(identity), .. } = change {
                            *identity = identity.start(start);
                        }
                    });
                }
            }
        }
        Ok(())
    }

    /// Gives each row of a table the default of a column. Returns the number behind those of an identity column.
    fn fill(&mut self, table: &str, column: &ColumnDef) -> Result<Option<i64>, SchemaError> {
        let State::Open(open) = &self.state else { return Err(SchemaError::Busy) };
        let tx = &open.transaction;
        let handle = tx.open_dyn(table)?;
        let filled = within(&open.asking(&self.around), || fill(tx, &handle, column));
        filled.map_err(|abort| SchemaError::Transact(Box::new(tx.explain(&abort))))
    }
}

/// Makes these changes together.
fn migrate(migration: Migration<'_>, steps: Vec<Step>, owner: Option<u32>) -> Result<(), SchemaError> {
    let mut migration = migration;
    for step in steps {
        migration = match step {
            Step::Create(table) => {
                let name = table.name.to_string();
                let migration = migration.create(table);
                match owner {
                    Some(owner) => migration.own(name, owner),
                    None => migration,
                }
            }
            Step::Change { table, changes } => migration.change(&table, changes),
            Step::Truncate(table) => migration.truncate(table),
            Step::Drop(table) => migration.drop_table(table),
            Step::CreateSequence(sequence) => {
                let name = sequence.name.to_string();
                let migration = migration.create_sequence(sequence);
                match owner {
                    Some(owner) => migration.own(name, owner),
                    None => migration,
                }
            }
            Step::AlterSequence(sequence, changes) => migration.alter_sequence(sequence, changes),
            Step::DropSequence(sequence) => migration.drop_sequence(sequence),
            Step::Fill { .. } => migration,
        };
    }
    migration.run().map(drop)
}

impl Open {
    /// Whether it can be rolled back and begun anew, and nobody would know.
    fn can_begin_anew(&self) -> bool {
        self.is_new && self.savepoints.is_empty() && self.own.is_none()
    }

    /// What expressions find around them.
    fn asking<'a>(&'a self, around: &'a Around) -> Asking<'a> {
        Asking { around, tx: &self.transaction, own: self.own() }
    }

    /// The tables that it sees, and itself, if it has changed some.
    fn own(&self) -> Option<(&[DynHandle], &OwnedTransaction)> {
        self.own.as_deref().map(|own| (own, &self.transaction))
    }

    /// The tables that it sees may be others.
    fn look_again(&mut self) {
        let names = self.transaction.table_names();
        self.own = Some(names.iter().filter_map(|name| self.transaction.open_dyn(name).ok()).collect());
    }

    fn savepoint(&self, ident: &Ident) -> Result<usize, SqlError> {
        let own = name(ident)?;
        self.savepoints.iter().rposition(|(known, _)| *known == own).ok_or_else(|| {
            let message = format!("savepoint \"{own}\" does not exist");
            SqlError::new(SqlState::INVALID_SAVEPOINT_SPECIFICATION, message)
        })
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// What was done with so many rows.
fn tag(verb: &str, count: usize) -> String {
    let mut tag = String::with_capacity(verb.len() + 8);
    tag.push_str(verb);
    tag.push_str(&count.to_string());
    tag
}

/// Whether an expression certainly reads no column.
fn is_constant(of: &Expr) -> bool {
    match of {
        Expr::Value(_) => true,
        Expr::Identifier(ident) => ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"),
        Expr::Cast { expr, .. } | Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => is_constant(expr),
        Expr::BinaryOp { left, right, .. } => is_constant(left) && is_constant(right),
        _ => false,
    }
}

fn ended() -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, "the session has ended")
}

fn read_only() -> SqlError {
    SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, "cannot write in a read-only transaction")
}

/// The setting that a SHOW names.
fn shown(statement: &Statement) -> Option<String> {
    let Statement::ShowVariable { variable } = statement else { return None };
    let words: Vec<String> = variable.iter().map(|ident| ident.value.to_lowercase()).collect();
    Some(match &*words.join(" ") {
        "transaction isolation level" => "transaction_isolation".to_owned(),
        "time zone" => "timezone".to_owned(),
        other => other.replace(' ', "."),
    })
}

/// The cursor that a statement declares.
fn declared(command: &Command) -> Option<&Declare> {
    match command {
        Command::Statement(statement) => match &**statement {
            Statement::Declare { stmts, .. } => stmts.first(),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a statement reads or writes rows.
fn is_planned(statement: &Statement) -> bool {
    matches!(statement, Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_))
}

/// When the constraints of this name are checked that a table has.
fn constraint_checks(table: &TableDef, own: &str) -> Vec<Checked> {
    let unique = table.indexes.iter().filter(|index| index.unique && index.name == own).map(|index| index.checked);
    let references = table.references.iter().filter(|reference| reference.name == own).map(|found| found.checked);
    let others = table.checks.iter().map(|check| &*check.name).filter(|name| *name == own);
    let key = (!table.is_without_key() && own == table.key_constraint_name()).then_some(Checked::Immediately);
    unique.chain(references).chain(others.map(|_| Checked::Immediately)).chain(key).collect()
}

/// Whether a statement begins or ends a transaction, so that the text needs none.
fn is_of_transactions(command: &Command) -> bool {
    match command {
        Command::Maintenance(_) => true,
        Command::AlterSequence(_) | Command::AlterIdentity(_) | Command::Roles(_) | Command::Constraints(_) => false,
        Command::Statement(statement) => matches!(
            &**statement,
            Statement::StartTransaction { .. } | Statement::Commit { .. } | Statement::Rollback { .. }
        ),
    }
}

/// The value of a setting as text.
fn setting_value(of: &Expr) -> String {
    match of {
        Expr::Value(value) => match &value.value {
            Literal::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

/// So often a statement of an explicit transaction is tried.
const ATTEMPTS_MAX: u32 = 100;

/// No later attempt begins after so long.
const ATTEMPTS_TIME: Duration = Duration::from_secs(1);

/// The pause after its first conflict; later ones are longer.
const ATTEMPT_PAUSE: Duration = Duration::from_micros(50);

/// Settings, their values, and what else they can be; anything if there is no list.
const SETTINGS: &[(&str, &str, Option<&[&str]>)] = &[
    ("application_name", "", None),
    ("client_encoding", "UTF8", Some(&["utf-8", "unicode"])),
    ("client_min_messages", "notice", Some(LEVELS)),
    ("datestyle", "ISO, MDY", Some(&["iso"])),
    ("default_transaction_isolation", "serializable", Some(LEVELS_OF_ISOLATION)),
    ("default_transaction_read_only", "off", Some(&["on"])),
    ("extra_float_digits", "1", Some(&["0", "2", "3"])),
    ("integer_datetimes", "on", Some(&[])),
    ("intervalstyle", "postgres", Some(&[])),
    ("jit", "off", Some(&["on"])),
    ("is_superuser", "on", Some(&[])),
    ("in_hot_standby", "off", Some(&[])),
    ("search_path", "public", Some(&["\"$user\", public", "pg_catalog", "public, pg_catalog"])),
    ("server_encoding", "UTF8", Some(&[])),
    ("server_version", VERSION, Some(&[])),
    ("server_version_num", "150008", Some(&[])),
    ("password_encryption", "scram-sha-256", Some(&[])),
    ("role", "none", Some(&[])),
    ("session_authorization", "postgres", Some(&[])),
    ("idle_in_transaction_session_timeout", "0", None),
    ("idle_session_timeout", "0", None),
    ("lock_timeout", "0", None),
    (LOG_MIN_DURATION, "-1", None),
    ("statement_timeout", "0", None),
    ("standard_conforming_strings", "on", Some(&[])),
    ("timezone", "UTC", Some(&["gmt", "etc/utc"])),
    ("transaction_isolation", "serializable", Some(LEVELS_OF_ISOLATION)),
    ("transaction_read_only", "off", Some(&[])),
];

/// All settings with their usual values.
pub(crate) fn defaults() -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS.iter().map(|(name, value, _)| (*name, *value))
}

/// Settings that are times.
const TIMES: &[&str] = &[
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    LOG_MIN_DURATION,
    "statement_timeout",
];

/// The setting that says from which time on a statement is slow.
const LOG_MIN_DURATION: &str = "log_min_duration_statement";

/// Settings that only superusers change.
const FOR_SUPERUSERS: &[&str] = &[LOG_MIN_DURATION];

/// The units of times, in milliseconds.
const UNITS: &[(&str, i64)] = &[("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

/// The milliseconds of a time: a number, with a unit or without.
fn milliseconds(own: &str, value: &str) -> Result<i64, SqlError> {
    let text = value.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = text[digits.len()..].trim();
    let unit = if unit.is_empty() { Some(1) } else { UNITS.iter().find(|(name, _)| *name == unit).map(|(_, of)| *of) };
    let time = digits.parse::<i64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    let least = if own == LOG_MIN_DURATION { -1 } else { 0 };
    time.filter(|time| (least..=i64::from(i32::MAX)).contains(time)).ok_or_else(|| {
        let message = format!("invalid value for parameter \"{own}\": \"{value}\"");
        let hint =
            format!("It is a number of milliseconds from {least} to {}, or has a unit: ms, s, min, h, d.", i32::MAX);
        SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).hint(hint)
    })
}

/// Milliseconds in the greatest unit that has no remainder.
fn in_words(value: &str) -> String {
    let Ok(number) = value.parse::<i64>() else { return value.to_owned() };
    let unit = UNITS.iter().find(|(_, of)| number % of == 0).filter(|_| number > 0);
    unit.map_or_else(|| value.to_owned(), |(name, of)| format!("{}{name}", number / of))
}

/// What a setting usually is.
fn usual(own: &str) -> String {
    SETTINGS.iter().find(|(name, ..)| *name == own).map(|(_, value, _)| (*value).to_owned()).unwrap_or_default()
}

/// The levels of isolation that clients may ask for, beside the one that there is.
const LEVELS_OF_ISOLATION: &[&str] = &["read uncommitted", "read committed", "repeatable read"];

/// The least kind of message that clients are told of, in this order.
const LEVELS: &[&str] = &["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"];
