//! A session: messages of a client in, messages of the server out. It does no I/O.
//!
//! After an error in the extended protocol, messages are skipped until the client asks for the end (Sync). A statement
//! that a Sync follows at once is a transaction by itself, and is repeated after a conflict. Others of the same
//! sequence are one transaction.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use std::vec::IntoIter;

use bytes::{Bytes, BytesMut};
use seriatim::catalog::ColumnType;
use seriatim::catalog::expression::Datum;
use seriatim::{Canceller, Database, WaitEnd};
use seriatim_sql::{
    Answer, Column, Format, Prepared, Row, SqlError, SqlState, SqlType, Status, bytes_of_rows, read_value, write_value,
};
use seriatim_wire::message::{self, Body, decode};
use seriatim_wire::messages::Message;
use seriatim_wire::messages::copy::{CopyData, CopyDone, CopyInResponse, CopyOutResponse};
use seriatim_wire::messages::data::{DataRow, FieldDescription, NoData, ParameterDescription, RowDescription};
use seriatim_wire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete, PortalSuspended,
};
use seriatim_wire::messages::response::{
    CommandComplete, EmptyQueryResponse, ErrorResponse, NoticeResponse, ReadyForQuery, TransactionStatus,
};
use seriatim_wire::messages::simplequery::Query;
use seriatim_wire::messages::startup::ParameterStatus;

use crate::authentication::hinted;
/// Settings whose values a client is told, at the start and when they change.
const REPORTED: [(&str, &str); 13] = [
    ("server_version", "server_version"),
    ("server_encoding", "server_encoding"),
    ("client_encoding", "client_encoding"),
    ("DateStyle", "datestyle"),
    ("integer_datetimes", "integer_datetimes"),
    ("IntervalStyle", "intervalstyle"),
    ("TimeZone", "timezone"),
    ("standard_conforming_strings", "standard_conforming_strings"),
    ("is_superuser", "is_superuser"),
    ("session_authorization", "session_authorization"),
    ("application_name", "application_name"),
    ("default_transaction_read_only", "default_transaction_read_only"),
    ("in_hot_standby", "in_hot_standby"),
];

/// The most bytes of rows that all portals of a session keep.
const PORTAL_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// What comes after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Message,
    /// The same message once more, when the wait for a row has ended.
    Again,
    End,
}

/// A session of a client.
pub(crate) struct Session {
    sql: seriatim_sql::Session,
    /// A portal keeps its statement when another one gets the name.
    statements: HashMap<String, Arc<Mutex<Statement>>>,
    portals: HashMap<String, Portal>,
    /// Whether messages are skipped until the client asks for the end.
    is_skipping: bool,
    /// Whether the client sends rows of a COPY, and whether a simple query began it.
    copying: Option<Began>,
    reported: Vec<String>,
    /// For which settings and roles the client was told all, and the limits were read.
    told_at: (u64, u64),
    limits: Limits,
    /// Whether the timer has cancelled the statement that runs.
    is_timed_out: Arc<AtomicBool>,
    /// The last statement, if slow ones are logged.
    statement: Option<String>,
    failures: Failures,
    out: BytesMut,
}

/// How long things may take, by the session's settings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// A statement that is not logged as slow.
    pub(crate) slow: Option<Duration>,
    /// The client, between two transactions and in one.
    idle: Option<Duration>,
    idle_in_transaction: Option<Duration>,
}

/// What failed since it was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failures {
    pub(crate) errors: u64,
    /// Of these, how many took too long.
    pub(crate) timeouts: u64,
}

/// Cancels a statement that takes too long, unless it is dropped before.
struct Timer(tokio::task::AbortHandle);

impl Timer {
    fn start(after: Duration, canceller: Canceller, is_timed_out: Arc<AtomicBool>) -> Timer {
        is_timed_out.store(false, Ordering::SeqCst);
        let waits = tokio::spawn(async move {
            tokio::time::sleep(after).await;
            is_timed_out.store(true, Ordering::SeqCst);
            canceller.cancel();
        });
        Timer(waits.abort_handle())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What began a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Began {
    Simple,
    Extended,
}

/// A statement that the client prepared.
struct Statement {
    /// As it was written.
    text: String,
    prepared: Prepared,
    /// The types of parameters that the client gave.
    given: Vec<Option<SqlType>>,
}

/// A statement with values, and what is left of its result.
struct Portal {
    /// The name of the statement, with which the portal is closed.
    name: String,
    statement: Arc<Mutex<Statement>>,
    values: Vec<Datum<'static>>,
    formats: Vec<i16>,
    result: Option<Rest>,
}

/// The rows that are left, and what was done.
struct Rest {
    /// None of a statement without rows.
    columns: Option<Arc<[Column]>>,
    rows: IntoIter<Row>,
    /// The bytes of all rows, if some are left.
    bytes: usize,
    tag: String,
}

impl Session {
    /// A session of this role, with these settings, and with these defaults of settings. `out` will have what the
    /// client is told of it.
    ///
    /// # Errors
    /// A setting cannot have its value.
    pub(crate) fn new(
        database: Database,
        role: u32,
        defaults: &[(String, String)],
        settings: &[(String, String)],
    ) -> Result<Session, SqlError> {
        let mut sql = seriatim_sql::Session::new(database).of_role(role);
        for (name, value) in defaults {
            sql.set_default(name, value)?;
        }
        for (name, value) in settings {
            sql.set_setting(name, value)?;
        }
        let (is_timed_out, canceller) = (Arc::<AtomicBool>::default(), sql.canceller());
        let (timer, flag) = (Mutex::new(None), Arc::clone(&is_timed_out));
        sql.on_statement(move |limit| {
            let timer = &mut *timer.lock().unwrap_or_else(PoisonError::into_inner);
            *timer = limit.map(|after| Timer::start(after, canceller.clone(), Arc::clone(&flag)));
        });
        let mut session = Session {
            sql,
            statements: HashMap::new(),
            portals: HashMap::new(),
            is_skipping: false,
            copying: None,
            reported: vec![String::new(); REPORTED.len()],
            told_at: (0, 0),
            limits: Limits::default(),
            is_timed_out,
            statement: None,
            failures: Failures::default(),
            out: BytesMut::new(),
        };
        session.report(true);
        Ok(session)
    }

    /// What the client knows as the number of its process.
    pub(crate) fn number(&self) -> i32 {
        (self.sql.number() & i32::MAX as usize) as i32
    }

    pub(crate) fn canceller(&self) -> Canceller {
        self.sql.canceller()
    }

    /// Whether no transaction is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.sql.status() == Status::Idle
    }

    /// Whether it has a transaction for which others may wait.
    pub(crate) fn has_begun(&self) -> bool {
        self.sql.has_begun()
    }

    /// Ends when the statement no longer waits for a row: it has the lock, was cancelled, or has waited for too long.
    pub(crate) fn waited(&self) -> impl Future<Output = ()> + use<> {
        let waiting = self.sql.waiting();
        async move {
            let Some((wait, limit)) = waiting else { return };
            match limit {
                None => wait.await,
                Some(limit) => {
                    if tokio::time::timeout(limit, wait.clone()).await.is_err() {
                        wait.end(WaitEnd::TimedOut);
                    }
                }
            }
        }
    }

    /// What the client is told so far.
    pub(crate) fn output(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    fn send(&mut self, message: &impl Message) {
        // Names and messages have bounds, and rows are written apart.
        let start = self.out.len();
        if message.encode(&mut self.out).is_err() {
            self.out.truncate(start);
        }
    }

    /// How long things may take.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How long the client may be silent now, and the error of one that is silent for longer.
    pub(crate) fn idle_limit(&self) -> Option<(Duration, SqlState, &'static str)> {
        let (limit, state, message) = match (self.is_idle(), self.copying) {
            (_, Some(_)) => return None,
            (true, None) => (self.limits.idle, "57P05", "terminating connection due to idle-session timeout"),
            (false, None) => {
                let message = "terminating connection due to idle-in-transaction timeout";
                (self.limits.idle_in_transaction, "25P03", message)
            }
        };
        limit.map(|limit| (limit, SqlState(state), message))
    }

    /// The statement that ran last, without passwords.
    pub(crate) fn take_statement(&mut self) -> Option<String> {
        self.statement.take().map(|text| seriatim_sql::without_password(&text).into_owned())
    }

    /// What failed since the last call.
    pub(crate) fn take_failures(&mut self) -> Failures {
        std::mem::take(&mut self.failures)
    }

    /// Notes the statement that runs, if slow ones are logged.
    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.limits.slow.is_some() {
            self.statement = Some(text());
        }
    }

    /// Tells the client of settings that have other values than it knows.
    fn report(&mut self, all: bool) {
        let now = self.sql.changes();
        if !all && self.told_at == now {
            return;
        }
        self.told_at = now;
        let time = |name| self.sql.time_setting(name);
        self.limits = Limits {
            slow: time("log_min_duration_statement"),
            idle: time("idle_session_timeout"),
            idle_in_transaction: time("idle_in_transaction_session_timeout"),
        };
        for (at, (name, setting)) in REPORTED.into_iter().enumerate() {
            let value = self.sql.show_setting(setting).unwrap_or_default();
            if all || self.reported[at] != value {
                self.send(&ParameterStatus::new(name.to_owned(), value.clone()));
                self.reported[at] = value;
            }
        }
    }

    /// Says that the next statement may come.
    pub(crate) fn ready(&mut self) {
        self.report(false);
        let status = match self.sql.status() {
            Status::Idle => TransactionStatus::Idle,
            Status::Open => TransactionStatus::Transaction,
            Status::Failed => TransactionStatus::Error,
        };
        self.send(&ReadyForQuery::new(status));
    }

    /// Acts on a message. `before_sync` says whether a Sync has arrived behind it.
    pub(crate) fn message(&mut self, bytes: &Bytes, before_sync: bool) -> Next {
        let tag = bytes.first().copied().unwrap_or_default();
        if let Some(began) = self.copying {
            return self.copy(tag, bytes, began);
        }
        match tag {
            b'X' => return Next::End,
            b'S' => {
                self.is_skipping = false;
                if let Err(error) = self.sql.sync() {
                    self.error(&error);
                }
                self.end_portals();
                self.ready();
            }
            _ if self.is_skipping => {}
            b'Q' => {
                self.statements.remove("");
                self.portals.remove("");
                self.query(bytes);
                if self.sql.waiting().is_some() {
                    return Next::Again;
                }
                self.end_portals();
                if self.copying.is_none() {
                    self.ready();
                }
            }
            // The connection writes what there is.
            b'H' => {}
            // Rests of a COPY that has failed.
            b'd' | b'c' | b'f' => {}
            _ => {
                let done = match tag {
                    b'P' => self.parse(bytes),
                    b'B' => self.bind(bytes),
                    b'D' => self.describe(bytes),
                    b'E' => self.execute(bytes, before_sync),
                    b'C' => self.close(bytes),
                    other => {
                        let message = format!("invalid frontend message type {other}");
                        self.out.extend_from_slice(&fatal(SqlState("08P01"), &message, None));
                        return Next::End;
                    }
                };
                if self.sql.waiting().is_some() {
                    return Next::Again;
                }
                if let Err(error) = done {
                    self.is_skipping = true;
                    self.sql.fail();
                    self.error(&error);
                }
            }
        }
        Next::Message
    }

    /// Portals end with their transaction.
    fn end_portals(&mut self) {
        if self.is_idle() {
            self.portals.clear();
        }
    }

    pub(crate) fn error(&mut self, error: &SqlError) {
        self.failures.errors += 1;
        let mut fields = fields(error, "ERROR");
        if error.state == SqlState::QUERY_CANCELED && self.is_timed_out.swap(false, Ordering::SeqCst) {
            self.failures.timeouts += 1;
            for (code, text) in &mut fields {
                if *code == b'M' {
                    *text = "canceling statement due to statement timeout".to_owned();
                }
            }
        }
        self.send(&ErrorResponse::new(fields));
    }

    fn query(&mut self, bytes: &Bytes) {
        let answers = match decode::<Query>(bytes) {
            Err(malformed) => return self.error(&violation(malformed)),
            Ok(query) => {
                self.note(|| query.query.clone());
                match self.sql.poll_execute(&query.query) {
                    Poll::Ready(answers) => answers,
                    Poll::Pending => return,
                }
            }
        };
        let (answers, failure) = match answers {
            Ok(answers) => (answers, None),
            Err(failure) => (failure.answers, Some(failure.error)),
        };
        if answers.is_empty() && failure.is_none() {
            self.send(&EmptyQueryResponse::new());
        }
        for answer in answers {
            match answer {
                Answer::Rows { columns, rows, tag } => {
                    self.describe_columns(&columns, &[]);
                    for row in &rows {
                        self.row(row, &columns, &[]);
                    }
                    self.send(&CommandComplete::new(tag));
                }
                Answer::Done(tag) => self.send(&CommandComplete::new(tag)),
                Answer::CopyOut { columns, is_binary, lines, tag } => {
                    self.copy_out(columns, is_binary, lines);
                    self.send(&CommandComplete::new(tag));
                }
                Answer::CopyIn { columns, is_binary } => self.copy_in(columns, is_binary, Began::Simple),
                Answer::Notice(notice) => self.notice(&notice),
            }
        }
        if let Some(error) = failure {
            self.error(&error);
        }
    }

    fn copy_out(&mut self, columns: usize, is_binary: bool, lines: Vec<Vec<u8>>) {
        let format = i8::from(is_binary);
        self.send(&CopyOutResponse::new(format, columns as i16, vec![format.into(); columns]));
        for line in lines {
            self.send(&CopyData::new(line.into()));
        }
        self.send(&CopyDone::new());
    }

    fn copy_in(&mut self, columns: usize, is_binary: bool, began: Began) {
        let format = i8::from(is_binary);
        self.send(&CopyInResponse::new(format, columns as i16, vec![format.into(); columns]));
        self.copying = Some(began);
    }

    /// Acts on a message of a client that sends rows.
    fn copy(&mut self, tag: u8, bytes: &Bytes, began: Began) -> Next {
        let body = Body::of(bytes).rest();
        let ended = match tag {
            b'd' => match self.sql.copy_data(body) {
                Ok(()) => return Next::Message,
                Err(error) => Err(error),
            },
            b'c' => self.sql.copy_done(),
            b'f' => {
                let why = String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(body)).into_owned();
                Err(self.sql.copy_fail(&why))
            }
            // Clients may ask for the end of what they are still sending.
            b'H' | b'S' => return Next::Message,
            b'X' => {
                self.sql.copy_fail("the client has gone");
                return Next::End;
            }
            other => Err(self.sql.copy_fail(&format!("unexpected message type 0x{other:02X}"))),
        };
        self.copying = None;
        match ended {
            Ok(Answer::Done(tag)) => self.send(&CommandComplete::new(tag)),
            Ok(_) => {}
            Err(error) => {
                self.is_skipping = began == Began::Extended;
                self.error(&error);
            }
        }
        if began == Began::Simple {
            self.ready();
        }
        Next::Message
    }

    fn notice(&mut self, notice: &SqlError) {
        let severity = if notice.state == SqlState("00000") { "NOTICE" } else { "WARNING" };
        self.send(&NoticeResponse::new(fields(notice, severity)));
    }

    fn describe_columns(&mut self, columns: &[Column], formats: &[i16]) {
        let describe = |(at, column): (usize, &Column)| {
            let format = Format::of(formats, at, columns.len()).map_or(0, Format::code);
            let ty = column.ty;
            FieldDescription::new(column.name.clone(), 0, 0, ty.oid(), ty.width(), ty.modifier(), format)
        };
        let fields = columns.iter().enumerate().map(describe).collect();
        self.send(&RowDescription::new(fields));
    }

    fn row(&mut self, row: &Row, columns: &[Column], formats: &[i16]) {
        let mut data = BytesMut::new();
        for (at, (value, column)) in row.iter().zip(columns).enumerate() {
            let format = Format::of(formats, at, columns.len()).unwrap_or(Format::Text);
            write_value(value, column, format, &mut data);
        }
        self.send(&DataRow::new(data, row.len() as i16));
    }

    fn parse(&mut self, bytes: &Bytes) -> Result<(), SqlError> {
        let parse: Parse = decode(bytes).map_err(violation)?;
        let name = parse.name.unwrap_or_default();
        if name.is_empty() {
            self.statements.remove(&name);
        }
        if !name.is_empty() && self.statements.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState("42P05"), message));
        }
        let given = parse.type_oids.iter().map(|oid| match oid {
            // Types that are not known are told by their places.
            0 | 705 => Ok(None),
            oid => SqlType::of_oid(*oid).map(Some).ok_or_else(|| {
                let message = format!("parameters of the type with OID {oid} are not supported");
                SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            }),
        });
        let mut given = given.collect::<Result<Vec<_>, _>>()?;
        let prepared = self.sql.prepare(&parse.query, &given)?;
        given.resize(prepared.parameters().len(), None);
        for (at, ty) in prepared.array_parameters() {
            given[*at].get_or_insert(*ty);
        }
        self.statements.insert(name, Arc::new(Mutex::new(Statement { text: parse.query, prepared, given })));
        self.send(&ParseComplete::new());
        Ok(())
    }

    fn bind(&mut self, bytes: &Bytes) -> Result<(), SqlError> {
        let bind: Bind = decode(bytes).map_err(violation)?;
        let (portal, name) = (bind.portal_name.unwrap_or_default(), bind.statement_name.unwrap_or_default());
        let shared = Arc::clone(self.statements.get(&name).ok_or_else(|| no_statement(&name))?);
        let statement = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let types: Vec<_> = statement.prepared.parameters().collect();
        if bind.parameters.len() != types.len() {
            let (given, wanted) = (bind.parameters.len(), types.len());
            let message = format!(
                "bind message supplies {given} parameters, but prepared statement \"{name}\" requires {wanted}"
            );
            return Err(SqlError::new(SqlState("08P01"), message));
        }
        let mut values = Vec::with_capacity(types.len());
        for (at, (value, ty)) in bind.parameters.iter().zip(types.iter().copied()).enumerate() {
            let format = Format::of(&bind.parameter_format_codes, at, types.len())?;
            let sent = statement.given.get(at).copied().flatten();
            values.push(match value {
                None => Datum::Null,
                Some(bytes) => read_value(bytes, format, sent, ty)?,
            });
        }
        let formats = bind.result_column_format_codes;
        let columns = statement.prepared.columns().map_or(0, <[Column]>::len);
        (0..columns).try_for_each(|at| Format::of(&formats, at, columns).map(drop))?;
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(SqlError::new(SqlState("42P03"), format!("cursor \"{portal}\" already exists")));
        }
        drop(statement);
        self.portals.insert(portal, Portal { name, statement: shared, values, formats, result: None });
        self.send(&BindComplete::new());
        Ok(())
    }

    fn describe(&mut self, bytes: &Bytes) -> Result<(), SqlError> {
        let describe: Describe = decode(bytes).map_err(violation)?;
        let name = describe.name.unwrap_or_default();
        let (columns, formats) = match describe.target_type {
            b'S' => {
                let shared = Arc::clone(self.statements.get(&name).ok_or_else(|| no_statement(&name))?);
                let statement = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let given = |(at, ty): (usize, ColumnType)| match statement.given.get(at) {
                    Some(Some(given)) => given.oid(),
                    _ => SqlType::of_stored(ty).oid(),
                };
                let types = statement.prepared.parameters().enumerate().map(given).collect();
                let columns = statement.prepared.columns().map(<[Column]>::to_vec);
                self.send(&ParameterDescription::new(types));
                (columns, Vec::new())
            }
            // A cursor that DECLARE has made is a portal, too.
            b'P' if let (None, Some(columns)) = (self.portals.get(&name), self.sql.cursor_columns(&name)) => {
                (Some(columns.to_vec()), Vec::new())
            }
            b'P' => {
                let portal = self.portals.get(&name).ok_or_else(|| no_portal(&name))?;
                let statement = portal.statement.lock().unwrap_or_else(PoisonError::into_inner);
                (statement.prepared.columns().map(<[Column]>::to_vec), portal.formats.clone())
            }
            other => return Err(violation(format_args!("{other} is neither a statement nor a portal"))),
        };
        match columns {
            Some(columns) => self.describe_columns(&columns, &formats),
            None => self.send(&NoData::new()),
        }
        Ok(())
    }

    fn execute(&mut self, bytes: &Bytes, before_sync: bool) -> Result<(), SqlError> {
        let execute: Execute = decode(bytes).map_err(violation)?;
        let name = execute.name.unwrap_or_default();
        let most = usize::try_from(execute.max_rows).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let mut rest = match portal.result.take() {
            Some(rest) if rest.columns.is_some() => rest,
            Some(_) => {
                let message = format!("portal \"{name}\" cannot be run");
                return Err(SqlError::new(SqlState("55000"), message));
            }
            None => {
                let mut statement = portal.statement.lock().unwrap_or_else(PoisonError::into_inner);
                self.note(|| statement.text.clone());
                let was_idle = self.is_idle();
                let alone = before_sync && self.sql.status() == Status::Idle;
                let ran = self.sql.poll_execute_prepared(&mut statement.prepared, &portal.values, alone);
                drop(statement);
                let Poll::Ready(ran) = ran else {
                    self.portals.insert(name, portal);
                    return Ok(());
                };
                if !was_idle {
                    self.end_portals();
                }
                let (answers, failure) = match ran {
                    Ok(answers) => (answers, None),
                    Err(failure) => (failure.answers, Some(failure.error)),
                };
                let mut rest = None;
                for answer in answers {
                    match answer {
                        Answer::Notice(notice) => self.notice(&notice),
                        Answer::Done(tag) => {
                            rest = Some(Rest { columns: None, rows: Vec::new().into_iter(), bytes: 0, tag })
                        }
                        Answer::Rows { columns, rows, tag } => {
                            let (columns, bytes) = (Some(columns), 0);
                            rest = Some(Rest { columns, rows: rows.into_iter(), bytes, tag });
                        }
                        Answer::CopyOut { columns, is_binary, lines, tag } => {
                            self.copy_out(columns, is_binary, lines);
                            rest = Some(Rest { columns: None, rows: Vec::new().into_iter(), bytes: 0, tag });
                        }
                        Answer::CopyIn { columns, is_binary } => {
                            self.copy_in(columns, is_binary, Began::Extended);
                            return Ok(());
                        }
                    }
                }
                match (failure, rest) {
                    (Some(error), _) => return Err(error),
                    (None, Some(mut rest)) => {
                        if rest.rows.len() > most {
                            // The portal keeps rows until its transaction ends, beside those of others.
                            let kept = |portal: &Portal| portal.result.as_ref().map_or(0, |rest| rest.bytes);
                            rest.bytes = bytes_of_rows(rest.rows.as_slice());
                            if self.portals.values().map(kept).sum::<usize>() + rest.bytes > PORTAL_BYTES_MAX {
                                let message = "the portals of the session keep too many rows";
                                let error = SqlError::new(SqlState::OUT_OF_MEMORY, message);
                                return Err(hinted(error, "Ask a portal for all rows, or close it."));
                            }
                        }
                        rest
                    }
                    (None, None) => {
                        self.send(&EmptyQueryResponse::new());
                        return Ok(());
                    }
                }
            }
        };
        match &rest.columns {
            // Such a statement is done once.
            None => self.send(&CommandComplete::new(rest.tag.clone())),
            Some(columns) => {
                let mut count = 0;
                for row in rest.rows.by_ref().take(most) {
                    self.row(&row, columns, &portal.formats);
                    count += 1;
                }
                // A portal that has given as many rows as were asked for may have more.
                match count == most {
                    true => self.send(&PortalSuspended::new()),
                    false => {
                        let verb = rest.tag.trim_end_matches(|character: char| character.is_ascii_digit());
                        let counts = verb.len() < rest.tag.len();
                        self.send(&CommandComplete::new(if counts {
                            format!("{verb}{count}")
                        } else {
                            rest.tag.clone()
                        }));
                    }
                }
            }
        }
        if rest.rows.len() == 0 {
            (rest.rows, rest.bytes) = (Vec::new().into_iter(), 0);
        }
        portal.result = Some(rest);
        self.portals.insert(name, portal);
        Ok(())
    }

    fn close(&mut self, bytes: &Bytes) -> Result<(), SqlError> {
        let close: Close = decode(bytes).map_err(violation)?;
        let name = close.name.unwrap_or_default();
        match close.target_type {
            b'S' => {
                self.statements.remove(&name);
                self.portals.retain(|_, portal| portal.name != name);
            }
            b'P' if self.portals.contains_key(&name) => drop(self.portals.remove(&name)),
            b'P' => self.sql.close_cursor(&name),
            other => return Err(violation(format_args!("{other} is neither a statement nor a portal"))),
        }
        self.send(&CloseComplete::new());
        Ok(())
    }
}

fn no_statement(name: &str) -> SqlError {
    SqlError::new(SqlState("26000"), format!("prepared statement \"{name}\" does not exist"))
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(SqlState("34000"), format!("portal \"{name}\" does not exist"))
}

/// A message that is not of the protocol.
fn violation(why: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState("08P01"), format!("invalid message: {why}"))
}

/// The fields of an error or a notice.
fn fields(error: &SqlError, severity: &str) -> Vec<(u8, String)> {
    let mut fields = vec![
        (b'S', severity.to_owned()),
        (b'V', severity.to_owned()),
        (b'C', error.state.to_string()),
        (b'M', error.message.clone()),
    ];
    let others = [
        (b'D', error.detail.clone()),
        (b'H', error.hint.clone()),
        (b'P', error.position.map(|position| position.to_string())),
        (b't', error.table.clone()),
        (b'c', error.column.clone()),
        (b'n', error.constraint.clone()),
    ];
    fields.extend(others.into_iter().filter_map(|(code, text)| Some((code, text?))));
    // The protocol ends texts with NUL.
    fields.iter_mut().for_each(|(_, text)| text.retain(|character| character != '\0'));
    fields
}

/// An error that ends a connection before there is a session, or with it.
pub(crate) fn fatal(state: SqlState, message: &str, hint: Option<&str>) -> Bytes {
    let mut error = SqlError::new(state, message);
    error.hint = hint.map(str::to_owned);
    fatal_error(&error)
}

/// An error that ends a connection.
pub(crate) fn fatal_error(error: &SqlError) -> Bytes {
    message::encode(&ErrorResponse::new(fields(error, "FATAL")))
}

/// The end of a connection whose client violates the protocol.
pub(crate) fn violated(why: &dyn std::fmt::Display) -> Bytes {
    fatal(SqlState("08P01"), &why.to_string(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(tag: u8, parts: &[&[u8]]) -> Bytes {
        let body = parts.concat();
        let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
        [&[tag][..], &length, &body].concat().into()
    }

    /// Portals that are asked for one row keep the others.
    #[test]
    fn the_rows_of_all_portals_are_counted() {
        let database = Database::in_memory().expect("there is memory");
        let role = seriatim::catalog::Access::FIRST;
        let mut session = Session::new(database, role, &[], &[]).expect("no settings");
        let text = b"select n from generate_series(1, 3000) as n\0";
        session.message(&said(b'Q', &[b"begin\0"]), false);
        session.message(&said(b'P', &[b"s\0", text, &[0, 0]]), false);
        let mut portals = 0;
        while !session.is_skipping {
            assert!(portals < 10, "each has more than a tenth of what may be kept");
            let name = format!("p{portals}\0");
            session.message(&said(b'B', &[name.as_bytes(), b"s\0", &[0; 6]]), false);
            session.message(&said(b'E', &[name.as_bytes(), &[0, 0, 0, 1]]), false);
            portals += 1;
        }
        assert!(portals > 2, "{portals} portals");
        let output = session.output().split();
        assert!(output.windows(6).any(|bytes| bytes == b"C53200"), "{}", String::from_utf8_lossy(&output));
    }
}
