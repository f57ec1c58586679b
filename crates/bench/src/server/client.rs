//! A client with prepared statements, which waits for each answer, as pgbench does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::BytesMut;
use seriatim_wire::errors::{self, SqlState};
use seriatim_wire::frames::{Frames, Handling, Piece};
use seriatim_wire::message::encode;
use seriatim_wire::messages::Message;
use seriatim_wire::messages::extendedquery::{Bind, Describe, Execute, Parse, Sync, TARGET_TYPE_BYTE_PORTAL};
use seriatim_wire::messages::simplequery::Query;

/// The startup packet of the superuser, which needs no password.
const STARTUP: &[u8] = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";

/// The answers up to the next `ReadyForQuery`.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) rows: usize,
    pub(super) error: Option<SqlState>,
    /// The body of the last row.
    pub(super) row: Vec<u8>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    frames: Frames,
    input: BytesMut,
    output: BytesMut,
}

impl Client {
    /// Connects, and prepares these statements. Their names are their places.
    ///
    /// # Errors
    /// The connection fails, or a statement cannot be prepared.
    pub(super) fn connect(address: SocketAddr, statements: &[&str]) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let (frames, input, output) = (Frames::default(), BytesMut::new(), BytesMut::new());
        let mut client = Client { stream, frames, input, output };
        let length = (STARTUP.len() as u32 + 4).to_be_bytes();
        client.output.extend_from_slice(&[&length[..], STARTUP].concat());
        client.sound()?;
        for (name, text) in statements.iter().enumerate() {
            client.put(&Parse::new(Some(name.to_string()), (*text).to_owned(), Vec::new()))?;
            client.put(&Sync::new())?;
            client.sound()?;
        }
        Ok(client)
    }

    fn put(&mut self, message: &impl Message) -> io::Result<()> {
        message.encode(&mut self.output).map_err(io::Error::other)
    }

    /// An answer that is no error.
    fn sound(&mut self) -> io::Result<Answer> {
        let answer = self.answer()?;
        match answer.error {
            None => Ok(answer),
            Some(state) => Err(io::Error::other(format!("SQLSTATE {state}"))),
        }
    }

    /// Runs statements by the simple protocol.
    ///
    /// # Errors
    /// The connection fails, or a statement does.
    pub(super) fn query(&mut self, text: &str) -> io::Result<Answer> {
        self.output.extend_from_slice(&encode(&Query::new(text.to_owned())));
        self.sound()
    }

    /// Runs a prepared statement with these values, in text.
    ///
    /// # Errors
    /// The connection fails. A statement that fails has an answer.
    pub(super) fn run(&mut self, statement: usize, values: &[i64]) -> io::Result<Answer> {
        let values = values.iter().map(|value| Some(value.to_string().into())).collect();
        self.put(&Bind::new(None, Some(statement.to_string()), Vec::new(), values, Vec::new()))?;
        self.put(&Describe::new(TARGET_TYPE_BYTE_PORTAL, None))?;
        self.put(&Execute::new(None, 0))?;
        self.put(&Sync::new())?;
        self.answer()
    }

    /// Sends what was put, and reads what comes back.
    fn answer(&mut self) -> io::Result<Answer> {
        self.stream.write_all(&self.output.split())?;
        let mut answer = Answer::default();
        let malformed = |error: seriatim_wire::Malformed| io::Error::new(io::ErrorKind::InvalidData, error.0);
        loop {
            while let Some(piece) = self.frames.next(&mut self.input, |_, _| Handling::Gather).map_err(malformed)? {
                let Piece::Whole(frame) = piece else { unreachable!("all are gathered") };
                match frame[0] {
                    b'D' => {
                        answer.rows += 1;
                        answer.row = frame[5..].to_vec();
                    }
                    b'E' => answer.error = Some(errors::read(&frame).map_err(malformed)?.1),
                    b'Z' => return Ok(answer),
                    _ => {}
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
