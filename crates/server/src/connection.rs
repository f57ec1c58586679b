//! A connection: it reads messages, has its session act on them, and writes what that says.
//!
//! Invariant: what a client sends before it is known has bounds. It is one packet of 10 kB, then messages of SCRAM,
//! within [`crate::Settings::greeting_max`]. So many connections from one address can be in this state.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use seriatim_sql::{SqlError, SqlState};
use seriatim_wire::Stream;
use seriatim_wire::frames::{Frames, Handling, Piece, client_length_max};
use seriatim_wire::message::{Body, encode};
use seriatim_wire::messages::Message;
use seriatim_wire::messages::startup::{Authentication, BackendKeyData, SecretKey};
use seriatim_wire::startup::{self, First};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::Shared;
use crate::authentication::{Failed, Protection, authenticate, refusal};
use crate::counts::{Present, count};
use crate::session::{Next, Session, fatal, violated};

/// So much output is written before the next message is looked at.
const OUTPUT_MAX: usize = 64 << 10;
/// The buffer for what an idle client sends next has at most so many bytes.
const IDLE_BYTES_MAX: usize = 4 << 10;
/// How long a client may take to read why it is refused.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// What a client of TLS sends first: the type of a record with a handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Serves a client until it leaves, or the server stops.
pub(crate) async fn run(stream: TcpStream, address: SocketAddr, shared: Arc<Shared>, stopped: watch::Receiver<bool>) {
    // What a client misses who has gone is nobody's loss.
    let _ = serve(stream, address, &shared, stopped).await;
}

async fn serve(
    tcp: TcpStream,
    address: SocketAddr,
    shared: &Shared,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    seriatim_wire::prepare(&tcp)?;
    let (settings, counts) = (&shared.settings, &*shared.settings.counts);
    count(&counts.connections);
    let Some(place) = shared.waiting.enter(address.ip(), settings.waiting_max) else {
        count(&counts.refused);
        let message = "sorry, too many connections from your address have not logged in yet";
        let mut stream: Stream = Box::new(tcp);
        return farewell(&mut stream, &fatal(SqlState::TOO_MANY_CONNECTIONS, message, None)).await;
    };
    let waiting = Present::enter(&counts.waiting);
    let is_loopback = address.ip().to_canonical().is_loopback();
    let mut client = Client {
        input: BytesMut::new(),
        protection: Protection { is_trusted: shared.is_loopback && is_loopback, is_encrypted: false, end_point: None },
        user: None,
        stream: Box::new(tokio::io::empty()),
    };
    let opened = tokio::select! {
        opened = tokio::time::timeout(settings.greeting_max, client.open(tcp, shared)) => opened,
        _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
    };
    let opened = match opened {
        Ok(opened) => opened,
        // Whoever has said nothing is told nothing.
        Err(_) if client.user.is_none() => return Ok(()),
        Err(_) => Err(SqlError::new(SqlState::QUERY_CANCELED, "canceling authentication due to timeout").into()),
    };
    let (mut session, role) = match opened {
        Ok(opened) => opened,
        Err(Failed::Gone) => return Ok(()),
        Err(Failed::Refused(error)) => {
            let user = client.user.as_deref().unwrap_or_default();
            settings.log.line(format_args!("{address} user \"{user}\": FATAL {}: {}", error.state, error.message));
            if error.state.0.starts_with("28") {
                count(&counts.authentication_failures);
                // So an address has few guesses in a second.
                tokio::time::sleep(settings.failure_delay).await;
            } else if error.state.0 == "08P01" {
                count(&counts.violations);
            }
            return farewell(&mut client.stream, &refusal(&error)).await;
        }
    };
    drop((waiting, place));
    let user = client.user.take().unwrap_or_default();
    let refused = |message: String, hint: Option<&str>| {
        count(&counts.refused);
        settings.log.line(format_args!("{address} user \"{user}\": FATAL 53300: {message}"));
        fatal(SqlState::TOO_MANY_CONNECTIONS, &message, hint)
    };
    let Ok(_permit) = shared.sessions.try_acquire() else {
        let most = settings.connections_max;
        let hint = format!("The server has at most {most} connections (max_connections).");
        let said = refused("sorry, too many clients already".to_owned(), Some(&hint));
        return farewell(&mut client.stream, &said).await;
    };
    let most = shared.database.access().role(role).and_then(|role| role.connections_max);
    let Some(_of_role) = shared.of_roles.enter(role, most.map_or(usize::MAX, |most| most as usize)) else {
        let said = refused(format!("too many connections for role \"{user}\""), None);
        return farewell(&mut client.stream, &said).await;
    };
    let _present = Present::enter(&counts.sessions);
    if settings.log_connections {
        let tls = if client.protection.is_encrypted { "with" } else { "without" };
        settings.log.line(format_args!("{address} user \"{user}\": connected {tls} TLS"));
    }
    let key = shared.cancels.enter(session.number(), session.canceller());
    let (stream, input) = (&mut client.stream, &mut client.input);
    let who = format_args!("{address} user \"{user}\"").to_string();
    let ended = converse(stream, input, &mut session, key, &mut stopped, shared, &who).await;
    shared.cancels.leave(key);
    if settings.log_connections {
        settings.log.line(format_args!("{who}: disconnected"));
    }
    ended
}

/// Writes last words.
async fn farewell(stream: &mut Stream, words: &[u8]) -> io::Result<()> {
    let said = async {
        stream.write_all(words).await?;
        stream.shutdown().await
    };
    tokio::time::timeout(FAREWELL_MAX, said).await.unwrap_or(Ok(()))
}

/// A client that has no session yet.
struct Client {
    stream: Stream,
    input: BytesMut,
    protection: Protection,
    /// Who it says that it is.
    user: Option<String>,
}

impl Client {
    /// Lets a client log in. Returns its session, and the id of its role.
    async fn open(&mut self, tcp: TcpStream, shared: &Shared) -> Result<(Session, u32), Failed> {
        let mut first = [0];
        let is_direct = tcp.peek(&mut first).await? == 1 && first == [TLS_HANDSHAKE];
        self.stream = Box::new(tcp);
        if is_direct {
            self.encrypt(shared, true).await?;
        }
        let packet = self.greet(shared).await?.ok_or(Failed::Gone)?;
        let malformed = |why: &dyn std::fmt::Display| SqlError::new(SqlState("08P01"), why.to_string());
        let parameter = |name: &str| -> Result<Option<String>, SqlError> {
            let value = startup::parameter(&packet, name).map_err(|error| malformed(&error))?;
            let text = value.map(|value| String::from_utf8(value.to_vec()));
            text.transpose().map_err(|_| malformed(&format_args!("the parameter {name} is not UTF-8")))
        };
        let Some(user) = parameter("user")?.filter(|user| !user.is_empty()) else {
            let message = "no PostgreSQL user name specified in startup packet";
            return Err(SqlError::new(SqlState("28000"), message).into());
        };
        self.user = Some(user.clone());
        let role = authenticate(&mut self.stream, &mut self.input, &user, &self.protection, shared).await?;
        let database = parameter("database")?.unwrap_or(user);
        if database != "postgres" {
            let mut error = SqlError::new(SqlState("3D000"), format!("database \"{database}\" does not exist"));
            error.hint = Some("The one database is \"postgres\".".to_owned());
            return Err(error.into());
        }
        Ok((begin(&packet, role, shared)?, role))
    }

    /// Encrypts the connection.
    async fn encrypt(&mut self, shared: &Shared, is_direct: bool) -> Result<(), Failed> {
        let Some(tls) = &shared.settings.tls else { return Err(Failed::Gone) };
        let acceptor = tls.current();
        let stream = std::mem::replace(&mut self.stream, Box::new(tokio::io::empty()));
        self.stream = match is_direct {
            true => acceptor.accept_direct(stream).await?,
            false => acceptor.accept(stream).await?,
        };
        self.protection.is_encrypted = true;
        self.protection.end_point = acceptor.end_point().map(<[u8]>::to_vec);
        Ok(())
    }

    /// The first packet of the session that the client wants; none if it wants something else.
    async fn greet(&mut self, shared: &Shared) -> Result<Option<Bytes>, Failed> {
        // A client asks for each kind of encryption once.
        for _ in 0..4 {
            match startup::read(&mut self.stream, &mut self.input).await? {
                // What was sent before the answer would be taken for what is encrypted.
                Some(First::Ssl | First::Gss) if !self.input.is_empty() => return Ok(None),
                Some(First::Ssl) if shared.settings.tls.is_some() && !self.protection.is_encrypted => {
                    self.stream.write_all(b"S").await?;
                    self.stream.flush().await?;
                    self.encrypt(shared, false).await?;
                }
                Some(First::Ssl | First::Gss) => {
                    self.stream.write_all(b"N").await?;
                    self.stream.flush().await?;
                }
                Some(First::Cancel(_, key)) => {
                    count(&shared.settings.counts.cancel_requests);
                    let mut key = Body::from(&*key);
                    if let (Some(number), Some(secret)) = (key.int32(), key.int32()) {
                        shared.cancels.cancel((number, secret));
                    }
                    // A client of TLS takes an end without this for an attack.
                    self.stream.shutdown().await?;
                    return Ok(None);
                }
                Some(First::Session(packet)) => return Ok(Some(packet)),
                None => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// The session that a first packet asks for.
///
/// # Errors
/// A setting is unknown, or cannot have its value.
fn begin(packet: &Bytes, role: u32, shared: &Shared) -> Result<Session, SqlError> {
    let mut settings = Vec::new();
    let parameters = startup::parameters(packet);
    for (name, value) in parameters.map_err(|error| SqlError::new(SqlState("08P01"), error.to_string()))? {
        let [name, value] = [name, value].map(|text| String::from_utf8_lossy(text).into_owned());
        match &*name {
            "user" | "database" => {}
            "options" => settings.extend(options(&value)?),
            // Extensions of the protocol, of which there are none.
            name if name.starts_with("_pq_.") => {}
            "replication" if ["false", "off", "no", "0"].contains(&&*value) => {}
            "replication" => {
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "replication is not supported"));
            }
            _ => settings.push((name, value.trim_matches('\'').to_owned())),
        }
    }
    Session::new(shared.database.clone(), role, &shared.settings.defaults, &settings)
}

/// The settings in options of a command line: `-c name=value` or `--name=value`.
fn options(text: &str) -> Result<Vec<(String, String)>, SqlError> {
    let (mut words, mut settings) = (text.split_ascii_whitespace(), Vec::new());
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next(),
            Some(setting) => Some(setting),
            None => word.strip_prefix("--"),
        };
        let Some((name, value)) = setting.and_then(|setting| setting.split_once('=')) else {
            let message = format!("invalid command-line argument for server process: {word}");
            let mut error = SqlError::new(SqlState::SYNTAX_ERROR, message);
            error.hint = Some("Write -c name=value.".to_owned());
            return Err(error);
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

/// Waits for the row for which the statement waits, without a thread. Returns whether the client is still there.
async fn wait(stream: &mut Stream, input: &mut BytesMut, session: &mut Session) -> io::Result<bool> {
    let output = session.output().split();
    if !output.is_empty() {
        stream.write_all(&output).await?;
        stream.flush().await?;
    }
    let waited = session.waited();
    tokio::pin!(waited);
    loop {
        tokio::select! {
            () = &mut waited => return Ok(true),
            // What a client sends meanwhile has a bound; one that has sent more is not watched.
            read = stream.read_buf(input), if input.len() < OUTPUT_MAX => {
                if read? == 0 {
                    return Ok(false);
                }
            }
        }
    }
}

/// Messages, until the client leaves or the server stops.
async fn converse(
    stream: &mut Stream,
    input: &mut BytesMut,
    session: &mut Session,
    key: (i32, i32),
    stopped: &mut watch::Receiver<bool>,
    shared: &Shared,
    who: &str,
) -> io::Result<()> {
    let mut greeting = BytesMut::from(&encode(&Authentication::Ok)[..]);
    greeting.unsplit(session.output().split());
    let secret = BackendKeyData::new(key.0, SecretKey::I32(key.1));
    secret.encode(&mut greeting).map_err(io::Error::other)?;
    *session.output() = greeting;
    session.ready();
    let (settings, counts) = (&shared.settings, &*shared.settings.counts);
    let mut frames = Frames::default();
    let handling = |tag, length| match length <= client_length_max(tag, true) {
        true => Handling::Gather,
        false => Handling::Refuse,
    };
    loop {
        match frames.next(input, handling) {
            Ok(Some(Piece::Whole(message) | Piece::Fragment(_, message))) => {
                let before_sync = input.first() == Some(&b'S');
                let began = session.limits().slow.map(|_| tokio::time::Instant::now());
                let next = loop {
                    // A statement may wait for the disk.
                    let running = if session.has_begun() { &shared.running_begun } else { &shared.running };
                    let permit = running.acquire().await;
                    let next = tokio::task::block_in_place(|| session.message(&message, before_sync));
                    drop(permit);
                    if next != Next::Again {
                        break next;
                    }
                    if !wait(stream, input, session).await? {
                        return Ok(());
                    }
                };
                if let (Some(began), Some(slow)) = (began, session.limits().slow)
                    && let Some(text) = session.take_statement()
                    && began.elapsed() >= slow
                {
                    count(&counts.slow_statements);
                    let took = began.elapsed().as_secs_f64() * 1000.0;
                    settings.log.line(format_args!("{who}: duration: {took:.3} ms  statement: {text}"));
                }
                let failed = session.take_failures();
                counts.errors.fetch_add(failed.errors, Ordering::Relaxed);
                counts.timeouts.fetch_add(failed.timeouts, Ordering::Relaxed);
                if next == Next::End {
                    return farewell(stream, &session.output().split()).await;
                }
                if session.output().len() > OUTPUT_MAX {
                    stream.write_all(&session.output().split()).await?;
                }
            }
            Ok(None) => {
                let output = session.output().split();
                if !output.is_empty() {
                    stream.write_all(&output).await?;
                    stream.flush().await?;
                }
                drop(output);
                if *stopped.borrow() && session.is_idle() {
                    let message = "terminating connection due to administrator command";
                    return farewell(stream, &fatal(SqlState::ADMIN_SHUTDOWN, message, None)).await;
                }
                // What is left of a buffer keeps all of it.
                *session.output() = BytesMut::new();
                if input.is_empty() && input.capacity() > IDLE_BYTES_MAX {
                    *input = BytesMut::new();
                }
                let limit = session.idle_limit();
                let idle = async {
                    match limit {
                        Some((after, ..)) => tokio::time::sleep(after).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    read = stream.read_buf(input) => {
                        if read? == 0 {
                            return Ok(());
                        }
                    }
                    // Looked at above.
                    _ = stopped.changed() => {}
                    () = idle => {
                        let (_, state, message) = limit.expect("only a limit ends");
                        count(&counts.timeouts);
                        settings.log.line(format_args!("{who}: FATAL {state}: {message}"));
                        return farewell(stream, &fatal(state, message, None)).await;
                    }
                }
            }
            Err(malformed) => {
                count(&counts.violations);
                return farewell(stream, &violated(&malformed)).await;
            }
        }
    }
}
