//! SCRAM-SHA-256: what a server stores of a password, and how a client proves that it knows it (RFC 5802, RFC 7677).
//!
//! A [`Verifier`] is what is stored, in PostgreSQL's format. With it a server can check a proof, but cannot log in
//! elsewhere. An [`Exchange`] is the server's side of one log-in, a state machine of messages that does no I/O.
//!
//! Invariant: for a user without a verifier the exchange does the same work and sends the same messages. Its salt
//! depends on the name and on a secret of the server ([`Verifier::mock`]), so that it is the same each time.
//!
//! Neither passwords nor verifiers appear in what `Debug` prints.

mod exchange;
mod verifier;

pub use exchange::{Exchange, Mechanism, Refusal, Step};
pub use verifier::{ITERATIONS, Verifier};

use base64::Engine as _;

/// A random text for [`Verifier::mock`].
///
/// # Panics
/// The system has no random numbers.
pub fn secret() -> String {
    base64::engine::general_purpose::STANDARD.encode(verifier::random::<32>())
}

#[cfg(test)]
mod tests;
