//! Who a client is: SCRAM-SHA-256, or nothing for a role without a password on a trusted connection.
//!
//! Invariant: nothing of a client is decoded before this but its first packet, and here only messages of SCRAM. A role
//! that has no password, one that may not log in, and one that there is not are asked alike, and fail alike.

use bytes::{Bytes, BytesMut};
use seriatim::catalog::Access;
use seriatim_scram::{Exchange, Mechanism, Refusal, Step, Verifier};
use seriatim_sql::{SqlError, SqlState};
use seriatim_wire::Stream;
use seriatim_wire::frames::{Frames, Handling, Piece};
use seriatim_wire::message::{Body, encode, first_response};
use seriatim_wire::messages::startup::Authentication;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Shared;
use crate::session::fatal_error;

/// The longest message of SCRAM.
const MESSAGE_MAX: usize = 8192;

/// How a connection is protected.
pub(crate) struct Protection {
    /// Whether it comes from this machine, and only such can come.
    pub(crate) is_trusted: bool,
    /// Whether it has TLS.
    pub(crate) is_encrypted: bool,
    /// The hash of the server's certificate, to which the log-in is bound.
    pub(crate) end_point: Option<Vec<u8>>,
}

/// Why there is no session.
pub(crate) enum Failed {
    /// The client is told, and the log.
    Refused(SqlError),
    /// The client has gone.
    Gone,
}

impl From<std::io::Error> for Failed {
    fn from(_: std::io::Error) -> Failed {
        Failed::Gone
    }
}

impl From<SqlError> for Failed {
    fn from(error: SqlError) -> Failed {
        Failed::Refused(error)
    }
}

/// How a role proves itself.
enum Proof {
    /// Not at all.
    None(u32),
    /// By its password. There is no id if none is right.
    Password(Option<u32>, Verifier),
}

/// Asks a client for its password, if it needs one. Returns the id of its role.
pub(crate) async fn authenticate(
    stream: &mut Stream,
    input: &mut BytesMut,
    user: &str,
    protection: &Protection,
    shared: &Shared,
) -> Result<u32, Failed> {
    if !protection.is_trusted && !protection.is_encrypted {
        let message = format!("connections of user \"{user}\" from other machines need encryption");
        return Err(Failed::Refused(hinted(
            SqlError::new(SqlState("28000"), message),
            "Connect with sslmode=require, or better verify-full.",
        )));
    }
    let access = shared.database.access();
    let is_trusted = protection.is_trusted && !shared.settings.passwords_always;
    let id = match proof(&access, user, is_trusted, &shared.mock_secret)? {
        Proof::None(id) => id,
        Proof::Password(id, verifier) => {
            let proved = exchange(stream, input, verifier, protection, user).await;
            match (proved, id) {
                (Ok(()), Some(id)) => id,
                (Ok(()), None) => return Err(wrong_password(user).into()),
                (Err(failed), _) => return Err(failed),
            }
        }
    };
    // The role may have changed while the client took its time.
    match shared.database.access().role(id) {
        Some(role) if role.login => Ok(id),
        _ => {
            let message = format!("role \"{user}\" is not permitted to log in");
            Err(Failed::Refused(SqlError::new(SqlState("28000"), message)))
        }
    }
}

fn proof(access: &Access, user: &str, is_trusted: bool, secret: &[u8]) -> Result<Proof, SqlError> {
    let has_passwords = access.roles().any(|(_, role)| role.password.is_some());
    let found = access.named(user);
    let verifier = found.and_then(|(_, role)| role.password.as_ref()?.0.parse::<Verifier>().ok());
    match (found, verifier) {
        (Some((id, _)), Some(verifier)) => Ok(Proof::Password(Some(id), verifier)),
        (Some((id, role)), None) if is_trusted && role.password.is_none() => Ok(Proof::None(id)),
        // There is nothing to guess.
        (None, _) if is_trusted && !has_passwords => {
            let error = SqlError::new(SqlState("28000"), format!("role \"{user}\" does not exist"));
            let names: Vec<_> = access.roles().map(|(_, role)| format!("\"{}\"", role.name)).collect();
            Err(hinted(error, &format!("The roles are {}; -U of psql names one.", names.join(", "))))
        }
        _ => {
            let secret = access.secret().map_or(secret, |secret| secret.0.as_bytes());
            Ok(Proof::Password(None, Verifier::mock(user, secret)))
        }
    }
}

pub(crate) fn hinted(mut error: SqlError, hint: &str) -> SqlError {
    error.hint = Some(hint.to_owned());
    error
}

fn wrong_password(user: &str) -> SqlError {
    SqlError::new(SqlState("28P01"), format!("password authentication failed for user \"{user}\""))
}

fn violation(message: &str, detail: &str) -> SqlError {
    let mut error = SqlError::new(SqlState("08P01"), message);
    error.detail = (!detail.is_empty()).then(|| detail.to_owned());
    error
}

/// SCRAM with a client.
async fn exchange(
    stream: &mut Stream,
    input: &mut BytesMut,
    verifier: Verifier,
    protection: &Protection,
    user: &str,
) -> Result<(), Failed> {
    let mut mechanisms = vec![Mechanism::Plain];
    if protection.end_point.is_some() {
        mechanisms.insert(0, Mechanism::Bound);
    }
    let names = mechanisms.iter().map(|mechanism| mechanism.name().to_owned()).collect();
    say(stream, &Authentication::SASL(names)).await?;
    let message = next(stream, input).await?;
    let malformed = || violation("malformed SCRAM message", "the first response is not laid out as the protocol says");
    let (name, first) = first_response(&message).ok_or_else(malformed)?;
    let chosen = mechanisms.iter().find(|mechanism| mechanism.name().as_bytes() == name);
    let chosen = chosen.ok_or_else(|| violation("client selected an invalid SASL authentication mechanism", ""))?;
    let mut exchange = Exchange::new(verifier, *chosen, protection.end_point.clone());
    let mut response = match first {
        Some(first) => Bytes::copy_from_slice(first),
        // The client waits to be asked.
        None => {
            say(stream, &Authentication::SASLContinue(Bytes::new())).await?;
            Bytes::copy_from_slice(Body::of(&next(stream, input).await?).rest())
        }
    };
    loop {
        match exchange.step(&response) {
            Ok(Step::Continue(challenge)) => say(stream, &Authentication::SASLContinue(challenge.into())).await?,
            Ok(Step::Done(answer)) => {
                say(stream, &Authentication::SASLFinal(answer.into())).await?;
                return Ok(());
            }
            Err(refusal) => {
                return Err(Failed::Refused(match refusal {
                    Refusal::Password => wrong_password(user),
                    Refusal::Malformed(detail) => violation("malformed SCRAM message", detail),
                    Refusal::Unsupported(what) => SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, what),
                    Refusal::Binding(detail) => {
                        let mut error = SqlError::new(SqlState("28000"), "SCRAM channel binding negotiation error");
                        error.detail = Some(detail.to_owned());
                        error
                    }
                }));
            }
        }
        response = Bytes::copy_from_slice(Body::of(&next(stream, input).await?).rest());
    }
}

async fn say(stream: &mut Stream, message: &Authentication) -> std::io::Result<()> {
    stream.write_all(&encode(message)).await?;
    stream.flush().await
}

/// The next message of the log-in.
async fn next(stream: &mut Stream, input: &mut BytesMut) -> Result<Bytes, Failed> {
    let handling = |tag, length| if tag == b'p' && length <= MESSAGE_MAX { Handling::Gather } else { Handling::Refuse };
    let mut frames = Frames::default();
    loop {
        match frames.next(input, handling) {
            Ok(Some(Piece::Whole(message) | Piece::Fragment(_, message))) => return Ok(message),
            Ok(None) if stream.read_buf(input).await? == 0 => return Err(Failed::Gone),
            Ok(None) => {}
            Err(_) => {
                let tag = input.first().copied().unwrap_or_default();
                let message = match tag {
                    b'p' => "invalid length of a SASL response".to_owned(),
                    tag => format!("expected SASL response, got message type {tag}"),
                };
                return Err(Failed::Refused(violation(&message, "")));
            }
        }
    }
}

/// The message by which a client learns why it has no session.
pub(crate) fn refusal(error: &SqlError) -> Bytes {
    fatal_error(error)
}
