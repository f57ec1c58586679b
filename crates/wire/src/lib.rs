//! Both ends of a PostgreSQL connection: frames, the start of a session, TLS, errors.
//!
//! Invariant: the crate knows no database and no SQL, and forwards exactly the bytes that it received. [`frames`] cuts
//! a stream into messages without decoding them. If a program needs the contents, [`message`] decodes a copy with the
//! crate `pgwire`. So a message that `pgwire` does not know, or would encode differently, is forwarded unchanged.
//!
//! The source is the PostgreSQL 15 documentation, chapter 55, "Frontend/Backend Protocol".

pub mod clients;
pub mod errors;
pub mod frames;
pub mod http;
pub mod log;
pub mod message;
pub mod startup;
pub mod tls;

pub use pgwire::messages;

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection, with TLS or without.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// How long a connection is silent before the first keepalive probe, and the interval between probes. The
/// default of Linux is two hours.
const KEEPALIVE: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(10)];

/// Disables Nagle's algorithm and enables keepalive, so that a vanished peer is noticed.
///
/// # Errors
/// When the system refuses these options.
pub fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let [silence, interval] = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(silence).with_interval(interval);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Any connection.
pub type Stream = Box<dyn Duplex>;

/// Bytes that are not a message of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_vanished_peer_is_probed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("it is bound")).await.expect("it listens");
        assert!(!SockRef::from(&stream).keepalive().expect("a socket"));
        prepare(&stream).expect("it may");
        assert!(SockRef::from(&stream).keepalive().expect("a socket") && stream.nodelay().expect("a socket"));
    }
}
