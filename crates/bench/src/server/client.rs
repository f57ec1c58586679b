//! A client with prepared statements, which waits for each answer, as pgbench does.

use std::io;
use std::net::SocketAddr;

use bytes::BytesMut;
use seriatim_wire::errors::SqlState;
use seriatim_wire::message::encode;
use seriatim_wire::messages::Message;
use seriatim_wire::messages::extendedquery::{Bind, Describe, Execute, Parse, Sync, TARGET_TYPE_BYTE_PORTAL};
use seriatim_wire::messages::simplequery::Query;

use crate::connection::{Connection, sound};

/// The answers up to the next `ReadyForQuery`.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) rows: usize,
    pub(super) error: Option<SqlState>,
    /// The body of the last row.
    pub(super) row: Vec<u8>,
}

/// A connection with prepared statements.
#[derive(Debug)]
pub(super) struct Client {
    connection: Connection,
    output: BytesMut,
}

impl Client {
    /// Connects, and prepares these statements. Their names are their places.
    ///
    /// # Errors
    /// The connection fails, or a statement cannot be prepared.
    pub(super) fn connect(address: SocketAddr, statements: &[&str]) -> io::Result<Client> {
        let mut client = Client { connection: Connection::open(address)?, output: BytesMut::new() };
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
        sound(answer.error)?;
        Ok(answer)
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
        let mut answer = Answer::default();
        let ready = self.connection.ask(&self.output.split(), |frame| {
            if frame[0] == b'D' {
                answer.rows += 1;
                answer.row = frame[5..].to_vec();
            }
        })?;
        Ok(Answer { error: ready.error, ..answer })
    }
}
