//! A connection to a server of the PostgreSQL protocol, whose client waits for each answer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::BytesMut;
use seriatim_wire::errors::{self, SqlState};
use seriatim_wire::frames::{Frames, Handling, Piece};

/// The startup packet of the superuser, which needs no password.
const STARTUP: &[u8] = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";

/// How an answer ends, at the next `ReadyForQuery`.
#[derive(Debug)]
pub(crate) struct Ready {
    /// The last error.
    pub(crate) error: Option<SqlState>,
    /// Whether a transaction is open.
    pub(crate) is_open: bool,
}

/// Nothing, unless the server has reported an error.
///
/// # Errors
/// That one.
pub(crate) fn sound(error: Option<SqlState>) -> io::Result<()> {
    error.map_or(Ok(()), |state| Err(io::Error::other(format!("SQLSTATE {state}"))))
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    frames: Frames,
    input: BytesMut,
}

impl Connection {
    /// Connects as the superuser.
    ///
    /// # Errors
    /// The connection fails, or the server refuses.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut connection = Connection { stream, frames: Frames::default(), input: BytesMut::new() };
        let length = (STARTUP.len() as u32 + 4).to_be_bytes();
        sound(connection.ask(&[&length[..], STARTUP].concat(), |_| {})?.error)?;
        Ok(connection)
    }

    /// Sends messages, and has `see` look at those that come back.
    ///
    /// # Errors
    /// The connection fails.
    pub(crate) fn ask(&mut self, messages: &[u8], mut see: impl FnMut(&[u8])) -> io::Result<Ready> {
        self.stream.write_all(messages)?;
        let mut error = None;
        let malformed = |error: seriatim_wire::Malformed| io::Error::new(io::ErrorKind::InvalidData, error.0);
        loop {
            while let Some(piece) = self.frames.next(&mut self.input, |_, _| Handling::Gather).map_err(malformed)? {
                let Piece::Whole(frame) = piece else { unreachable!("all are gathered") };
                match frame[0] {
                    b'E' => error = Some(errors::read(&frame).map_err(malformed)?.1),
                    b'Z' => return Ok(Ready { error, is_open: frame.last() != Some(&b'I') }),
                    _ => see(&frame),
                }
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.input.extend_from_slice(&chunk[..bytes]),
            }
        }
    }
}
