//! Both ends of a PostgreSQL connection, below what a program does with it: frames, the start of a session, TLS, errors.
//!
//! Invariant: it knows no database and no SQL, and what it passes on are the bytes that came. [`frames`] cuts a stream into
//! messages without looking into them; what a program wants to look into, [`message`] decodes from a copy, by the crate `pgwire`. So
//! a message that `pgwire` does not know, or would encode otherwise, gets through as it came.
//!
//! The source is the PostgreSQL 15 documentation, chapter 55, "Frontend/Backend Protocol".

pub mod errors;
pub mod frames;
pub mod message;
pub mod startup;
pub mod tls;

pub use pgwire::messages;

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection, with TLS or without.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Any connection.
pub type Stream = Box<dyn Duplex>;

/// Bytes that are no message of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}
