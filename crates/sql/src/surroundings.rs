//! What a session's expressions ask: the time, the user, and numbers of sequences.
//!
//! No roll-back takes a number back. A call may wait for the disk. So a statement with one runs in an explicit
//! transaction: that holds nothing for which the disk could wait.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use seriatim::catalog::expression::{EvaluationError, SequenceCall, Surroundings};
use seriatim::catalog::{ColumnDef, Privileges, Timestamp};
use seriatim::{Database, DynHandle, OwnedTransaction, Sequence, TransactError, Tx};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use crate::error::{SqlError, SqlState};
use crate::expression::sequence_of_default;
use crate::names::{Names, SCHEMA, object};
use crate::roles;

/// What a session knows.
pub(crate) struct Around {
    database: Database,
    begun: Begun,
    state: Mutex<State>,
}

/// With what the statement began: one at a time, in one thread.
struct Begun {
    /// The role as which the session acts.
    role: AtomicU32,
    /// When its transaction began, in microseconds; [`UNKNOWN`] until somebody asks for it.
    now: AtomicI64,
    is_read_only: AtomicBool,
}

/// A time that no transaction begins at.
const UNKNOWN: i64 = i64::MIN;

/// What the expressions of a statement find around them.
pub(crate) struct Asking<'a> {
    pub(crate) around: &'a Around,
    pub(crate) tx: &'a Tx,
    /// The tables that the transaction sees, and itself, if it has changed some.
    pub(crate) own: Option<(&'a [DynHandle], &'a OwnedTransaction)>,
}

/// What it knows from statement to statement.
#[derive(Default)]
struct State {
    /// The last number that the session took of each sequence.
    taken: Vec<(Sequence, i64)>,
    /// The last sequence of which it took one.
    last: Option<Sequence>,
    /// The settings, for a statement that asks for them.
    settings: BTreeMap<String, String>,
    /// Those that it changes: name, value, and whether only for its transaction.
    changed: Vec<(String, String, bool)>,
}

impl Around {
    pub(crate) fn new(database: Database, role: u32) -> Arc<Around> {
        let begun = Begun { role: role.into(), now: UNKNOWN.into(), is_read_only: false.into() };
        Arc::new(Around { database, begun, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The role as which the session acts.
    pub(crate) fn role(&self) -> u32 {
        self.begun.role.load(Ordering::Relaxed)
    }

    /// A statement of this role begins in a transaction that began then, or begins with it.
    pub(crate) fn begin(&self, now: Option<Timestamp>, is_read_only: bool, role: u32) {
        // ORDERING: the session's thread reads them, and whoever gets the session sees all that it has done.
        self.begun.now.store(now.map_or(UNKNOWN, Timestamp::microseconds), Ordering::Relaxed);
        self.begun.is_read_only.store(is_read_only, Ordering::Relaxed);
        self.begun.role.store(role, Ordering::Relaxed);
    }

    /// The next statement asks for settings, which are these.
    pub(crate) fn know_settings(&self, settings: BTreeMap<String, String>) {
        let mut state = self.state();
        (state.settings, state.changed) = (settings, Vec::new());
    }

    /// What the statement has changed of them.
    pub(crate) fn changed_settings(&self) -> Vec<(String, String, bool)> {
        let mut state = self.state();
        state.settings.clear();
        std::mem::take(&mut state.changed)
    }

    /// The value of a setting, if there is one of this name.
    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        self.state().settings.get(&name.to_lowercase()).cloned()
    }

    /// Changes a setting when the statement ends.
    pub(crate) fn change_setting(&self, name: &str, value: &str, is_local: bool) {
        let (mut state, name) = (self.state(), name.to_lowercase());
        state.settings.insert(name.clone(), value.to_owned());
        state.changed.push((name, value.to_owned(), is_local));
    }

    /// Forgets the numbers, as DISCARD does.
    pub(crate) fn forget(&self) {
        let mut state = self.state();
        state.taken.clear();
        state.last = None;
    }

    /// The session took a number of a sequence.
    pub(crate) fn note(&self, sequence: &Sequence, number: i64) {
        let mut state = self.state();
        state.keep(sequence, number);
        if state.last.as_ref() != Some(sequence) {
            state.last = Some(sequence.clone());
        }
    }
}

/// The name that a text is, as an argument of `nextval`.
pub(crate) fn name_in(text: &str) -> Result<String, SqlError> {
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(text).and_then(|mut parser| {
        let name = parser.parse_object_name(false)?;
        parser.expect_token(&Token::EOF).map(|_| name)
    });
    object(&parsed.map_err(|_| SqlError::new(SqlState::INVALID_NAME, "invalid name syntax"))?)
}

/// A name as a text that is one.
pub(crate) fn quoted(name: &str) -> String {
    let is_plain = |byte: (usize, u8)| match byte {
        (_, b'a'..=b'z' | b'_') => true,
        (at, b'0'..=b'9') => at > 0,
        _ => false,
    };
    match name.bytes().enumerate().all(is_plain) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Whether a column was declared as one of the types `serial`, so that its sequence is dropped with it.
pub(crate) fn is_serial(column: &ColumnDef) -> bool {
    column.declared.as_deref().is_some_and(|declared| declared.ends_with("serial"))
}

impl State {
    fn taken_of(&self, sequence: &Sequence) -> Option<i64> {
        self.taken.iter().find(|(known, _)| known == sequence).map(|(_, number)| *number)
    }

    fn keep(&mut self, sequence: &Sequence, number: i64) {
        match self.taken.iter_mut().find(|(known, _)| known == sequence) {
            Some((_, last)) => *last = number,
            None => self.taken.push((sequence.clone(), number)),
        }
    }
}

/// The error of PostgreSQL.
pub(crate) fn failed(sequence: &Sequence, error: TransactError) -> SqlError {
    let definition = sequence.definition();
    let (own, (low, high)) = (&definition.name, definition.range());
    match error {
        TransactError::SequenceExhausted { .. } => {
            let (which, bound) = if definition.step() < 0 { ("minimum", low) } else { ("maximum", high) };
            let message = format!("nextval: reached {which} value of sequence \"{own}\" ({bound})");
            SqlError::new(SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED, message)
        }
        TransactError::SequenceRange { number, .. } => {
            let message = format!("setval: value {number} is out of bounds for sequence \"{own}\" ({low}..{high})");
            SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
        }
        error => error.into(),
    }
}

impl fmt::Debug for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Around").finish_non_exhaustive()
    }
}

impl Asking<'_> {
    fn names(&self) -> Names<'_> {
        let (own, transaction) = self.own.unzip();
        Names { database: &self.around.database, own, transaction, used: None }
    }

    /// The sequence that a text names, as an argument of `nextval`.
    fn sequence_of(&self, text: &str) -> Result<Sequence, SqlError> {
        let own = name_in(text)?;
        let names = self.names();
        names.sequence(&own).ok_or_else(|| match names.is_taken(&own) {
            true => SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{own}\" is not a sequence")),
            false => SqlError::no_table(&own),
        })
    }

    /// The name of the sequence of a column, with its schema; none if it has none.
    fn sequence_of_column(&self, table: &str, column: &str) -> Result<Option<String>, SqlError> {
        let names = self.names();
        let own = name_in(table)?;
        let handle = names.table(&own)?;
        let definition = handle.definition();
        let Some(found) = definition.columns.iter().find(|known| known.name == column) else {
            let message = format!("column \"{column}\" of relation \"{own}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        };
        let name = match (found.identity.is_some(), &found.computed_default) {
            (true, _) => names.database.identity_of(&handle).map(|sequence| quoted(&sequence.definition().name)),
            (false, Some(default)) if is_serial(found) => sequence_of_default(default),
            _ => None,
        };
        Ok(name.map(|name| format!("{SCHEMA}.{name}")))
    }

    fn check_writable(&self, function: &str) -> Result<(), SqlError> {
        match self.around.begun.is_read_only.load(Ordering::Relaxed) {
            false => Ok(()),
            true => {
                let message = format!("cannot execute {function}() in a read-only transaction");
                Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message))
            }
        }
    }

    /// Refuses who has none of these rights to a sequence.
    fn check_permitted(&self, sequence: &Sequence, rights: &[Privileges]) -> Result<(), SqlError> {
        let (database, role) = (&self.around.database, self.around.role());
        let may = |one: &Privileges| database.access().may(role, database.object_of_sequence(sequence), *one);
        match rights.iter().any(may) || roles::owns_sequence(database, role, sequence) {
            true => Ok(()),
            false => Err(roles::denied(format!("for sequence {}", sequence.definition().name))),
        }
    }

    fn ask(&self, call: SequenceCall<'_>) -> Result<i64, SqlError> {
        let undefined = |message: String| SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
        match call {
            SequenceCall::Next(name) => {
                let sequence = self.sequence_of(name)?;
                self.check_permitted(&sequence, &[Privileges::USAGE, Privileges::UPDATE])?;
                self.check_writable("nextval")?;
                let number = self.tx.next(&sequence);
                let number = number.map_err(|abort| failed(&sequence, TransactError::from(abort)))?;
                self.around.note(&sequence, number);
                Ok(number)
            }
            SequenceCall::Current(name) => {
                let sequence = self.sequence_of(name)?;
                self.check_permitted(&sequence, &[Privileges::USAGE, Privileges::SELECT])?;
                self.around.state().taken_of(&sequence).ok_or_else(|| {
                    let own = sequence.definition().name;
                    undefined(format!("currval of sequence \"{own}\" is not yet defined in this session"))
                })
            }
            SequenceCall::Last => {
                let last = {
                    let state = self.around.state();
                    state.last.as_ref().and_then(|last| Some((last.clone(), state.taken_of(last)?)))
                };
                if let Some((sequence, _)) = &last {
                    self.check_permitted(sequence, &[Privileges::USAGE, Privileges::SELECT])?;
                }
                last.map(|(_, number)| number)
                    .ok_or_else(|| undefined("lastval is not yet defined in this session".to_owned()))
            }
            SequenceCall::Set(name, number, is_given) => {
                let sequence = self.sequence_of(name)?;
                self.check_permitted(&sequence, &[Privileges::UPDATE])?;
                self.check_writable("setval")?;
                let set = if is_given { sequence.set(number) } else { sequence.set_next(number) };
                set.map_err(|error| failed(&sequence, error))?;
                if is_given {
                    self.around.state().keep(&sequence, number);
                }
                Ok(number)
            }
        }
    }
}

/// Without a transaction there are no numbers.
impl Surroundings for Around {
    fn now(&self) -> Timestamp {
        match self.begun.now.load(Ordering::Relaxed) {
            UNKNOWN => {
                let now = Timestamp::now();
                self.begun.now.store(now.microseconds(), Ordering::Relaxed);
                now
            }
            known => Timestamp::from_microseconds(known),
        }
    }

    fn user(&self) -> String {
        let role = self.role();
        self.database.access().role(role).map_or_else(String::new, |role| role.name.clone())
    }

    fn sequence(&self, _: SequenceCall<'_>) -> Result<i64, EvaluationError> {
        Err(told(SqlError::unsupported("a number of a sequence at this place", "")))
    }

    fn sequence_of(&self, _: &str, _: &str) -> Result<Option<String>, EvaluationError> {
        Err(told(SqlError::unsupported("a sequence at this place", "")))
    }
}

impl Surroundings for Asking<'_> {
    fn now(&self) -> Timestamp {
        self.around.now()
    }

    fn user(&self) -> String {
        self.around.user()
    }

    fn sequence(&self, call: SequenceCall<'_>) -> Result<i64, EvaluationError> {
        self.ask(call).map_err(told)
    }

    fn sequence_of(&self, table: &str, column: &str) -> Result<Option<String>, EvaluationError> {
        self.sequence_of_column(table, column).map_err(told)
    }
}

fn told(error: SqlError) -> EvaluationError {
    EvaluationError::of_surroundings(error.state.0, error.message.clone())
}
