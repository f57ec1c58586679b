//! The first packet of a connection, which has no tag: a request for encryption, a request to cancel, or the
//! start of a session.
//!
//! The source is the PostgreSQL 15 documentation, §55.2.1, §55.2.9 and §55.2.10.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::message::Body;
use crate::{Duplex, Malformed};

/// The code of a request to cancel. The start of a session has the protocol's version in its place.
const CANCEL_CODE: u32 = 80_877_102;
const SSL_CODE: u32 = 80_877_103;
const GSS_CODE: u32 = 80_877_104;
/// The longest first packet that the server accepts (`MAX_STARTUP_PACKET_LENGTH`).
const FIRST_BYTES_MAX: usize = 10_000;

/// A connection's first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// A request for TLS.
    Ssl,
    /// A request for GSSAPI encryption.
    Gss,
    /// A request to cancel: the packet for forwarding, and its key, which is the process and the secret from
    /// the server.
    Cancel(Bytes, Bytes),
    /// The start of a session: the packet for forwarding.
    Session(Bytes),
}

/// Reads the first packet, and later bytes only if they arrive with it. Returns `None` if the peer has gone.
///
/// # Errors
/// When the connection fails, or the bytes are not a first packet.
pub async fn read(stream: &mut (impl Duplex + ?Sized), buffer: &mut BytesMut) -> std::io::Result<Option<First>> {
    loop {
        if let Some(first) =
            take(buffer).map_err(|malformed| std::io::Error::new(std::io::ErrorKind::InvalidData, malformed))?
        {
            return Ok(Some(first));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn take(buffer: &mut BytesMut) -> Result<Option<First>, Malformed> {
    let Some([length, code]) = buffer.first_chunk::<8>().map(|head| {
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| head[at + i]));
        [word(0), word(4)]
    }) else {
        return Ok(None);
    };
    let bytes = length as usize;
    if !(8..=FIRST_BYTES_MAX).contains(&bytes) {
        return Err(Malformed("this is not a PostgreSQL client: the length of its first packet is invalid"));
    }
    if buffer.len() < bytes {
        return Ok(None);
    }
    let packet = buffer.split_to(bytes).freeze();
    match (code, bytes) {
        (SSL_CODE, 8) => Ok(Some(First::Ssl)),
        (GSS_CODE, 8) => Ok(Some(First::Gss)),
        (CANCEL_CODE, 16..) => Ok(Some(First::Cancel(packet.clone(), packet.slice(8..)))),
        (SSL_CODE | GSS_CODE | CANCEL_CODE, _) => Err(Malformed("a first packet of the wrong length")),
        _ => Ok(Some(First::Session(packet))),
    }
}

/// The value of a parameter in a session's first packet, or `None` if it is missing.
///
/// # Errors
/// As [`parameters`].
pub fn parameter<'a>(packet: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, Malformed> {
    // Of two equal names, the server takes the last one, too.
    let known = parameters(packet)?.into_iter().rfind(|(known, _)| *known == name.as_bytes());
    Ok(known.map(|(_, value)| value))
}

/// The name and the value of a parameter.
pub type Parameter<'a> = (&'a [u8], &'a [u8]);

/// The names and the values of the parameters in a session's first packet.
///
/// # Errors
/// The packet does not have version 3 of the protocol, or is not made of pairs of zero-terminated strings.
pub fn parameters(packet: &[u8]) -> Result<Vec<Parameter<'_>>, Malformed> {
    let malformed = Malformed("the first packet of the session is not laid out as the protocol requires");
    let (version, parameters) = packet.get(4..).and_then(<[u8]>::split_first_chunk::<4>).ok_or(malformed)?;
    if version[..2] != [0, 3] {
        return Err(malformed);
    }
    let (mut body, mut pairs) = (Body::from(parameters), Vec::new());
    loop {
        match body.string().ok_or(malformed)? {
            [] if body.rest().is_empty() => return Ok(pairs),
            [] => return Err(malformed),
            name => pairs.push((name, body.string().ok_or(malformed)?)),
        }
    }
}

/// Asks a server for TLS. Returns whether the server agrees.
///
/// # Errors
/// When the connection fails, or the answer is invalid.
pub async fn ask_for_tls(stream: &mut (impl Duplex + ?Sized)) -> std::io::Result<bool> {
    stream.write_all(&[8_u32.to_be_bytes(), SSL_CODE.to_be_bytes()].concat()).await?;
    stream.flush().await?;
    // Reads a single byte: unencrypted bytes behind it would be taken for encrypted ones (CVE-2021-23222).
    match stream.read_u8().await? {
        b'S' => Ok(true),
        b'N' => Ok(false),
        _ => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "the server does not answer like PostgreSQL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, body: &[u8]) -> BytesMut {
        let length = u32::try_from(body.len() + 8).expect("short");
        BytesMut::from(&[&length.to_be_bytes()[..], &code.to_be_bytes(), body].concat()[..])
    }

    #[test]
    fn first_packets_are_distinguished_and_forwarded_unchanged() {
        assert_eq!(take(&mut packet(SSL_CODE, b"")), Ok(Some(First::Ssl)));
        assert_eq!(take(&mut packet(GSS_CODE, b"")), Ok(Some(First::Gss)));
        let cancel = packet(CANCEL_CODE, b"\0\0\0\x07secr").freeze();
        let taken = take(&mut BytesMut::from(&cancel[..]));
        assert_eq!(taken, Ok(Some(First::Cancel(cancel.clone(), cancel.slice(8..)))));
        let session = packet(196_608, b"user\0me\0replication\0database\0\0").freeze();
        assert_eq!(take(&mut BytesMut::from(&session[..])), Ok(Some(First::Session(session.clone()))));
        assert_eq!(parameter(&session, "replication"), Ok(Some(&b"database"[..])));
        assert_eq!(parameter(&session, "options"), Ok(None));
        for end in 0..session.len() {
            assert_eq!(take(&mut BytesMut::from(&session[..end])), Ok(None), "cut at {end}");
        }
    }

    #[test]
    fn bytes_of_other_protocols_are_refused() {
        assert!(take(&mut BytesMut::from(&b"GET / HTTP/1.1\r\n"[..])).is_err());
        assert!(take(&mut packet(SSL_CODE, b"more")).is_err());
        assert!(take(&mut packet(CANCEL_CODE, b"short")).is_err());
    }

    /// Every prefix of a packet, and every packet with one byte changed, is refused or has parameters.
    #[test]
    fn parameters_of_malformed_packets_are_refused() {
        let whole = packet(196_608, b"user\0me\0database\0mine\0user\0you\0\0");
        assert_eq!(parameter(&whole, "user"), Ok(Some(&b"you"[..])), "the last value counts");
        for end in 0..whole.len() {
            assert!(parameter(&whole[..end], "user").is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            for value in 0..=u8::MAX {
                let mut changed = whole.clone();
                changed[at] = value;
                let _ = parameter(&changed, "user");
            }
        }
        assert!(parameter(&packet(196_608, b"user\0me\0\0more"), "user").is_err());
        assert!(parameter(&packet(131_072, b"user\0me\0\0"), "user").is_err(), "version 2");
    }
}
