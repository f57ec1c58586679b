//! A client of the PostgreSQL protocol that sends a transaction in one message and waits for its end.

use std::io;
use std::net::SocketAddr;

use seriatim_wire::message;
use seriatim_wire::messages::simplequery::Query;

use crate::connection::{Connection, Ready};

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
pub(super) struct Client(Connection);

impl Client {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Client> {
        Connection::open(address).map(Client)
    }

    /// Runs a transaction.
    ///
    /// # Errors
    /// The connection is lost, or the transaction failed with another error.
    pub(super) fn query(&mut self, text: &str) -> Result<Ended, String> {
        let (tags, Ready { error, is_open }) = self.ask(text).map_err(|error| format!("{text}: {error}"))?;
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

    /// The tags of its answers, and how they end.
    fn ask(&mut self, text: &str) -> io::Result<(Vec<String>, Ready)> {
        let mut tags = Vec::new();
        let ready = self.0.ask(&message::encode(&Query::new(text.into())), |frame| {
            if frame[0] == b'C' {
                tags.push(String::from_utf8_lossy(&frame[5..frame.len() - 1]).into_owned());
            }
        })?;
        Ok((tags, ready))
    }
}
