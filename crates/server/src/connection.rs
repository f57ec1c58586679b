//! A connection: it reads messages, has its session act on them, and writes what that says.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use seriatim_sql::SqlState;
use seriatim_wire::frames::{Frames, Handling, Piece, client_length_max};
use seriatim_wire::message::{Body, encode};
use seriatim_wire::messages::Message;
use seriatim_wire::messages::startup::{Authentication, BackendKeyData, SecretKey};
use seriatim_wire::startup::{self, First};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::Shared;
use crate::session::{Next, Session, fatal};

/// So much output is written before the next message is looked at.
const OUTPUT_MAX: usize = 64 << 10;

/// Serves a client until it leaves, or the server stops.
pub(crate) async fn run(stream: TcpStream, shared: Arc<Shared>, stopped: watch::Receiver<bool>) {
    // What a client misses who has gone is nobody's loss.
    let _ = serve(stream, &shared, stopped).await;
}

async fn serve(mut stream: TcpStream, shared: &Shared, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
    seriatim_wire::prepare(&stream)?;
    let mut input = BytesMut::new();
    let greeting = tokio::time::timeout(shared.settings.greeting_max, greet(&mut stream, &mut input, shared));
    let Ok(Some(packet)) = greeting.await.unwrap_or(Ok(None)) else { return Ok(()) };
    let Ok(_permit) = shared.sessions.try_acquire() else {
        let most = shared.settings.connections_max;
        let hint = format!("The server has at most {most} connections (--connections).");
        let refusal = fatal(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already", Some(&hint));
        return stream.write_all(&refusal).await;
    };
    let mut session = match begin(&packet, shared) {
        Ok(session) => session,
        Err(refusal) => return stream.write_all(&refusal).await,
    };
    let key = shared.cancels.enter(session.canceller());
    let ended = converse(&mut stream, &mut input, &mut session, key, &mut stopped).await;
    shared.cancels.leave(key);
    ended
}

/// The first packet of the session that a client wants; none if it wants something else.
async fn greet(stream: &mut TcpStream, input: &mut BytesMut, shared: &Shared) -> io::Result<Option<Bytes>> {
    loop {
        match startup::read(stream, input).await? {
            // Without encryption; the connection stays on the machine.
            Some(First::Ssl | First::Gss) => {
                // What was sent before the answer would be taken for what is encrypted.
                if !input.is_empty() {
                    return Ok(None);
                }
                stream.write_all(b"N").await?;
            }
            Some(First::Cancel(_, key)) => {
                let mut key = Body::from(&*key);
                if let (Some(number), Some(secret)) = (key.int32(), key.int32()) {
                    shared.cancels.cancel((number, secret));
                }
                return Ok(None);
            }
            Some(First::Session(packet)) => return Ok(Some(packet)),
            None => return Ok(None),
        }
    }
}

/// The session that a first packet asks for, or why there is none.
fn begin(packet: &Bytes, shared: &Shared) -> Result<Session, Bytes> {
    let malformed = |why: &dyn std::fmt::Display| fatal(SqlState("08P01"), &why.to_string(), None);
    let parameter = |name: &str| -> Result<Option<String>, Bytes> {
        let value = startup::parameter(packet, name).map_err(|error| malformed(&error))?;
        let text = value.map(|value| String::from_utf8(value.to_vec()));
        text.transpose().map_err(|_| malformed(&format_args!("the parameter {name} is not UTF-8")))
    };
    let Some(user) = parameter("user")?.filter(|user| !user.is_empty()) else {
        return Err(fatal(SqlState("28000"), "no PostgreSQL user name specified in startup packet", None));
    };
    if user != "postgres" {
        let message = format!("role \"{user}\" does not exist");
        return Err(fatal(
            SqlState("28000"),
            &message,
            Some("The one role is \"postgres\": connect with -U postgres."),
        ));
    }
    let database = parameter("database")?.unwrap_or_else(|| user.clone());
    if database != "postgres" {
        let message = format!("database \"{database}\" does not exist");
        return Err(fatal(SqlState("3D000"), &message, Some("The one database is \"postgres\".")));
    }
    let mut settings = Vec::new();
    for (name, value) in startup::parameters(packet).map_err(|error| malformed(&error))? {
        let [name, value] = [name, value].map(|text| String::from_utf8_lossy(text).into_owned());
        match &*name {
            "user" | "database" => {}
            "options" => settings.extend(options(&value)?),
            // Extensions of the protocol, of which there are none.
            name if name.starts_with("_pq_.") => {}
            "replication" if ["false", "off", "no", "0"].contains(&&*value) => {}
            "replication" => {
                return Err(fatal(SqlState::FEATURE_NOT_SUPPORTED, "replication is not supported", None));
            }
            _ => settings.push((name, value.trim_matches('\'').to_owned())),
        }
    }
    Session::new(shared.database.clone(), &user, &settings)
        .map_err(|error| fatal(error.state, &error.message, error.hint.as_deref()))
}

/// The settings in options of a command line: `-c name=value` or `--name=value`.
fn options(text: &str) -> Result<Vec<(String, String)>, Bytes> {
    let (mut words, mut settings) = (text.split_ascii_whitespace(), Vec::new());
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next(),
            Some(setting) => Some(setting),
            None => word.strip_prefix("--"),
        };
        let Some((name, value)) = setting.and_then(|setting| setting.split_once('=')) else {
            let message = format!("invalid command-line argument for server process: {word}");
            return Err(fatal(SqlState::SYNTAX_ERROR, &message, Some("Write -c name=value.")));
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

/// Messages, until the client leaves or the server stops.
async fn converse(
    stream: &mut TcpStream,
    input: &mut BytesMut,
    session: &mut Session,
    key: (i32, i32),
    stopped: &mut watch::Receiver<bool>,
) -> io::Result<()> {
    let mut greeting = BytesMut::from(&encode(&Authentication::Ok)[..]);
    greeting.unsplit(session.output().split());
    let secret = BackendKeyData::new(key.0, SecretKey::I32(key.1));
    secret.encode(&mut greeting).map_err(io::Error::other)?;
    *session.output() = greeting;
    session.ready();
    let mut frames = Frames::default();
    let handling = |tag, length| match length <= client_length_max(tag, true) {
        true => Handling::Gather,
        false => Handling::Refuse,
    };
    loop {
        match frames.next(input, handling) {
            Ok(Some(Piece::Whole(message) | Piece::Fragment(_, message))) => {
                let before_sync = input.first() == Some(&b'S');
                // A statement may wait for others, or for the disk.
                let next = tokio::task::block_in_place(|| session.message(&message, before_sync));
                if next == Next::End {
                    return stream.write_all(&session.output().split()).await;
                }
                if session.output().len() > OUTPUT_MAX {
                    stream.write_all(&session.output().split()).await?;
                }
            }
            Ok(None) => {
                let output = session.output().split();
                if !output.is_empty() {
                    stream.write_all(&output).await?;
                }
                if *stopped.borrow() && session.is_idle() {
                    let message = "terminating connection due to administrator command";
                    return stream.write_all(&fatal(SqlState::ADMIN_SHUTDOWN, message, None)).await;
                }
                tokio::select! {
                    read = stream.read_buf(input) => {
                        if read? == 0 {
                            return Ok(());
                        }
                    }
                    // Looked at above.
                    _ = stopped.changed() => {}
                }
            }
            Err(malformed) => {
                let refusal = fatal(SqlState("08P01"), &malformed.to_string(), None);
                return stream.write_all(&refusal).await;
            }
        }
    }
}
