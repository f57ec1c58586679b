//! A client of the PostgreSQL protocol that sends a transaction in one message and waits for its end.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::BytesMut;
use seriatim_wire::errors;
use seriatim_wire::frames::{Frames, Handling, Piece};
use seriatim_wire::message;
use seriatim_wire::messages::simplequery::Query;

/// The startup packet of the superuser, which needs no password.
const STARTUP: &[u8] = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";

/// The outcome of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It committed. The tags are the server's answers to its statements.
    Committed(Vec<String>),
    /// It was rolled back with a serialization failure or a deadlock.
    RolledBack,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    frames: Frames,
    buffer: BytesMut,
}

/// The answers up to the next `ReadyForQuery`.
#[derive(Debug, Default)]
struct Answer {
    tags: Vec<String>,
    error: Option<errors::SqlState>,
    /// Whether a failed transaction is still open.
    is_open: bool,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Client> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let length = (STARTUP.len() as u32 + 4).to_be_bytes();
        stream.write_all(&[&length[..], STARTUP].concat())?;
        let mut client = Client { stream, frames: Frames::default(), buffer: BytesMut::new() };
        match client.answer()?.error {
            None => Ok(client),
            Some(state) => Err(io::Error::other(format!("SQLSTATE {state}"))),
        }
    }

    /// Runs a transaction.
    ///
    /// # Errors
    /// The connection is lost, or the transaction failed with another error.
    pub(super) fn query(&mut self, text: &str) -> Result<Ended, String> {
        let Answer { tags, error, is_open } = self.ask(text).map_err(|error| format!("{text}: {error}"))?;
        if is_open {
            self.ask("ROLLBACK").map_err(|error| format!("ROLLBACK: {error}"))?;
        }
        match error {
            None if tags.last().is_some_and(|tag| tag == "COMMIT") => Ok(Ended::Committed(tags)),
            None => Err(format!("{text}: it did not commit: {tags:?}")),
            Some(state) if state.is_retryable() => Ok(Ended::RolledBack),
            Some(state) => Err(format!("{text}: SQLSTATE {state}")),
        }
    }

    fn ask(&mut self, text: &str) -> io::Result<Answer> {
        self.stream.write_all(&message::encode(&Query::new(text.into())))?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = Answer::default();
        let malformed = |error: seriatim_wire::Malformed| io::Error::new(io::ErrorKind::InvalidData, error.0);
        loop {
            while let Some(piece) = self.frames.next(&mut self.buffer, |_, _| Handling::Gather).map_err(malformed)? {
                let Piece::Whole(frame) = piece else { unreachable!("all are gathered") };
                match frame[0] {
                    b'C' => answer.tags.push(String::from_utf8_lossy(&frame[5..frame.len() - 1]).into_owned()),
                    b'E' => answer.error = Some(errors::read(&frame).map_err(malformed)?.1),
                    b'Z' => {
                        answer.is_open = frame.last() != Some(&b'I');
                        return Ok(answer);
                    }
                    _ => {}
                }
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.buffer.extend_from_slice(&chunk[..bytes]),
            }
        }
    }
}
