//! SQLSTATEs and the messages that carry them.
//!
//! The source is the PostgreSQL 15 documentation, appendix A, "PostgreSQL Error Codes", and §55.8, "Error and Notice Message Fields".

use bytes::Bytes;
use pgwire::messages::response::ErrorResponse;

use crate::Malformed;
use crate::message;

/// Five characters that say what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlState(pub [u8; 5]);

impl SqlState {
    /// A connection could not be established.
    pub const UNABLE_TO_CONNECT: SqlState = SqlState(*b"08001");
    /// A connection was lost.
    pub const CONNECTION_FAILURE: SqlState = SqlState(*b"08006");
    /// A connection was lost, and nobody knows whether what was sent has taken effect.
    pub const RESOLUTION_UNKNOWN: SqlState = SqlState(*b"08007");
    /// The other end does not keep to the protocol.
    pub const PROTOCOL_VIOLATION: SqlState = SqlState(*b"08P01");
    /// Who asks cannot be let in so.
    pub const INVALID_AUTHORIZATION: SqlState = SqlState(*b"28000");
    /// The transaction would not be serializable.
    pub const SERIALIZATION_FAILURE: SqlState = SqlState(*b"40001");
    /// The transaction waited for itself.
    pub const DEADLOCK_DETECTED: SqlState = SqlState(*b"40P01");
    /// Somebody asked for its end.
    pub const QUERY_CANCELED: SqlState = SqlState(*b"57014");
    /// The server is being shut down.
    pub const ADMIN_SHUTDOWN: SqlState = SqlState(*b"57P01");
    /// More connections than there may be.
    pub const TOO_MANY_CONNECTIONS: SqlState = SqlState(*b"53300");
    /// What is asked for does not exist here.
    pub const FEATURE_NOT_SUPPORTED: SqlState = SqlState(*b"0A000");

    /// Whether the transaction is gone without a trace, and may succeed when it is run again.
    pub fn is_retryable(self) -> bool {
        self == SqlState::SERIALIZATION_FAILURE || self == SqlState::DEADLOCK_DETECTED
    }
}

impl std::fmt::Display for SqlState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// How bad an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement or transaction has failed.
    Error,
    /// The session ends.
    Fatal,
}

/// The bytes of an `ErrorResponse`.
pub fn response(severity: Severity, state: SqlState, text: &str, hint: Option<&str>) -> Bytes {
    let severity = if severity == Severity::Fatal { "FATAL" } else { "ERROR" };
    // A string of the protocol ends at its first zero.
    let clean = |text: &str| text.replace('\0', " ");
    let mut fields =
        vec![(b'S', severity.into()), (b'V', severity.into()), (b'C', state.to_string()), (b'M', clean(text))];
    fields.extend(hint.map(|hint| (b'H', clean(hint))));
    message::encode(&ErrorResponse::new(fields))
}

/// What an `ErrorResponse` says: how bad it is, and its SQLSTATE.
///
/// # Errors
/// When it has none.
pub fn read(bytes: &[u8]) -> Result<(Severity, SqlState), Malformed> {
    let response: ErrorResponse = message::decode(bytes)?;
    let field = |code| response.fields.iter().find(|(field, _)| *field == code).map(|(_, value)| value.as_str());
    // `V` is never translated; servers before 9.6 have `S` alone.
    let is_fatal = matches!(field(b'V').or(field(b'S')), Some("FATAL" | "PANIC"));
    let state = field(b'C').and_then(|state| state.as_bytes().try_into().ok());
    let state = state.ok_or(Malformed("an error without an SQLSTATE"))?;
    Ok((if is_fatal { Severity::Fatal } else { Severity::Error }, SqlState(state)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_back() {
        for (severity, state) in
            [(Severity::Error, SqlState::SERIALIZATION_FAILURE), (Severity::Fatal, SqlState::RESOLUTION_UNKNOWN)]
        {
            let bytes = response(severity, state, "why\0not", Some("because"));
            assert_eq!(read(&bytes), Ok((severity, state)));
        }
        assert!(read(b"E\0\0\0\x05\0").is_err());
    }
}
