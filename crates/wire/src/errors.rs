//! SQLSTATEs and the messages that carry them.
//!
//! The source is the PostgreSQL 15 documentation: appendix A, "PostgreSQL Error Codes", and §55.8, "Error and Notice
//! Message Fields".

use bytes::Bytes;
use pgwire::messages::response::ErrorResponse;

use crate::Malformed;
use crate::message::{self, Body};

/// A code of five characters, of which the first two are the error's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlState(pub [u8; 5]);

impl SqlState {
    /// A connection could not be established.
    pub const UNABLE_TO_CONNECT: SqlState = SqlState(*b"08001");
    /// A connection was lost.
    pub const CONNECTION_FAILURE: SqlState = SqlState(*b"08006");
    /// A connection was lost, and whether the last statement has taken effect is unknown.
    pub const RESOLUTION_UNKNOWN: SqlState = SqlState(*b"08007");
    /// The other end violates the protocol.
    pub const PROTOCOL_VIOLATION: SqlState = SqlState(*b"08P01");
    /// The client may not connect in this way.
    pub const INVALID_AUTHORIZATION: SqlState = SqlState(*b"28000");
    /// The transaction would not be serializable.
    pub const SERIALIZATION_FAILURE: SqlState = SqlState(*b"40001");
    /// The transaction was part of a deadlock.
    pub const DEADLOCK_DETECTED: SqlState = SqlState(*b"40P01");
    /// A client asked to cancel the query.
    pub const QUERY_CANCELED: SqlState = SqlState(*b"57014");
    /// The server is being shut down.
    pub const ADMIN_SHUTDOWN: SqlState = SqlState(*b"57P01");
    /// There are as many connections as the server permits.
    pub const TOO_MANY_CONNECTIONS: SqlState = SqlState(*b"53300");
    /// The server does not support the feature.
    pub const FEATURE_NOT_SUPPORTED: SqlState = SqlState(*b"0A000");

    /// Whether the transaction was rolled back and may succeed when it is retried.
    pub fn is_retryable(self) -> bool {
        self == SqlState::SERIALIZATION_FAILURE || self == SqlState::DEADLOCK_DETECTED
    }
}

impl std::fmt::Display for SqlState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// The severity of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement or transaction has failed.
    Error,
    /// The session ends.
    Fatal,
}

/// Encodes an `ErrorResponse`.
pub fn response(severity: Severity, state: SqlState, text: &str, hint: Option<&str>) -> Bytes {
    let severity = if severity == Severity::Fatal { "FATAL" } else { "ERROR" };
    // A string of the protocol ends at its first zero byte.
    let clean = |text: &str| text.replace('\0', " ");
    let mut fields =
        vec![(b'S', severity.into()), (b'V', severity.into()), (b'C', state.to_string()), (b'M', clean(text))];
    fields.extend(hint.map(|hint| (b'H', clean(hint))));
    message::encode(&ErrorResponse::new(fields))
}

/// Reads the severity and the SQLSTATE of an `ErrorResponse`.
///
/// # Errors
/// The message is malformed or has no SQLSTATE.
pub fn read(bytes: &[u8]) -> Result<(Severity, SqlState), Malformed> {
    let response: ErrorResponse = message::decode(bytes)?;
    let field = |code| response.fields.iter().find(|(field, _)| *field == code).map(|(_, value)| value.as_str());
    // `V` is never translated; servers before 9.6 send only `S`.
    let is_fatal = matches!(field(b'V').or(field(b'S')), Some("FATAL" | "PANIC"));
    let state = field(b'C').and_then(|state| state.as_bytes().try_into().ok());
    let state = state.ok_or(Malformed("an error without an SQLSTATE"))?;
    Ok((if is_fatal { Severity::Fatal } else { Severity::Error }, SqlState(state)))
}

/// Adds a hint to an `ErrorResponse`, behind its other fields.
pub fn with_hint(response: &[u8], hint: &str) -> Bytes {
    let fields = Body::of(response).rest();
    let fields = fields.strip_suffix(&[0]).unwrap_or(fields);
    let body = [fields, b"H", hint.as_bytes(), b"\0\0"].concat();
    let length = u32::try_from(body.len() + 4).expect("an error is short").to_be_bytes();
    [&b"E"[..], &length, &body].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severity_and_state_are_read_back() {
        for (severity, state) in
            [(Severity::Error, SqlState::SERIALIZATION_FAILURE), (Severity::Fatal, SqlState::RESOLUTION_UNKNOWN)]
        {
            let bytes = response(severity, state, "why\0not", Some("because"));
            assert_eq!(read(&bytes), Ok((severity, state)));
        }
        assert!(read(b"E\0\0\0\x05\0").is_err());
        assert!(read(b"E\0\0\0\x0aC4000").is_err(), "a field without an end");
    }

    #[test]
    fn a_hint_is_added_behind_the_servers_fields() {
        let bytes = response(Severity::Fatal, SqlState::INVALID_AUTHORIZATION, "no", None);
        let hinted = with_hint(&bytes, "do so");
        assert_eq!(hinted, response(Severity::Fatal, SqlState::INVALID_AUTHORIZATION, "no", Some("do so")));
    }
}
