//! A client of the protocol, version 3, that blocks: for tests of servers. Values are texts.

use std::collections::HashMap;
use std::fmt;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that is silent for this long has failed a test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A row: a text for each column, or NULL.
pub type Row = Vec<Option<String>>;

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// Prepared statements, with their names.
    prepared: HashMap<String, String>,
    /// Whether the last answer said that a transaction is open.
    is_open: bool,
}

/// Why there are no rows.
#[derive(Debug)]
pub enum Failure {
    /// The server's error.
    Error {
        /// Its SQLSTATE.
        state: String,
        /// Its text.
        message: String,
    },
    /// There is no connection any more.
    Lost(Error),
}

impl Failure {
    /// The SQLSTATE of the server's error.
    pub fn state(&self) -> Option<&str> {
        match self {
            Failure::Error { state, .. } => Some(state),
            Failure::Lost(_) => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Error { state, message } => write!(f, "{state}: {message}"),
            Failure::Lost(error) => write!(f, "the connection is lost: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Lost(error)
    }
}

/// A message with its length.
///
/// # Panics
/// If it is longer than the protocol allows.
pub fn message(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&[tag][..], &(length_of(&body) + 4).to_be_bytes(), &body].concat()
}

/// The first packet of a session, with names and values of its parameters.
///
/// # Panics
/// As [`message`].
pub fn startup(parameters: &[u8]) -> Vec<u8> {
    [&(length_of(parameters) + 8).to_be_bytes()[..], &[0, 3, 0, 0], parameters].concat()
}

fn length_of(bytes: &[u8]) -> i32 {
    i32::try_from(bytes.len()).expect("a message is shorter than 2 GiB")
}

fn malformed() -> Error {
    Error::new(ErrorKind::InvalidData, "the server's message is malformed")
}

/// A field of the body of an error; empty if it has none.
pub fn field(body: &[u8], code: u8) -> String {
    let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&code));
    found.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
}

/// The values in the body of a row. `None`: it is malformed.
pub fn values(body: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    let (count, mut body) = body.split_first_chunk::<2>()?;
    let mut values = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, rest) = body.split_first_chunk::<4>()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let (value, rest) = rest.split_at_checked(length.unwrap_or(0))?;
        values.push(length.map(|_| value));
        body = rest;
    }
    Some(values)
}

fn row(body: &[u8]) -> Option<Row> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    Some(values(body)?.into_iter().map(|value| value.map(text)).collect())
}

impl Client {
    /// Connects as a role that needs no password.
    ///
    /// # Errors
    /// Nobody listens, or the server refuses.
    pub fn connect(address: SocketAddr, role: &str) -> Result<Client, Failure> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&startup(format!("user\0{role}\0database\0postgres\0\0").as_bytes()))?;
        let mut client = Client { stream, prepared: HashMap::new(), is_open: false };
        client.answer()?;
        Ok(client)
    }

    /// Whether a transaction is open, failed or not.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Runs statements by the simple protocol. Returns the rows of all of them.
    ///
    /// # Errors
    /// The first one that fails.
    pub fn query(&mut self, text: &str) -> Result<Vec<Row>, Failure> {
        self.stream.write_all(&message(b'Q', &[text.as_bytes(), b"\0"]))?;
        self.answer()
    }

    /// Runs a statement that is prepared at its first run, with these parameters.
    ///
    /// # Errors
    /// It fails.
    pub fn execute(&mut self, text: &str, parameters: &[&str]) -> Result<Vec<Row>, Failure> {
        let name = match self.prepared.get(text) {
            Some(name) => name.clone(),
            None => {
                let name = format!("s{}", self.prepared.len());
                let parse = message(b'P', &[name.as_bytes(), b"\0", text.as_bytes(), b"\0\0\0"]);
                self.stream.write_all(&[parse, message(b'S', &[])].concat())?;
                self.answer()?;
                self.prepared.insert(text.to_owned(), name.clone());
                name
            }
        };
        let count = u16::try_from(parameters.len()).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
        let mut bind = [b"\0", name.as_bytes(), b"\0\0\0", &count.to_be_bytes()].concat();
        for value in parameters {
            bind.extend(length_of(value.as_bytes()).to_be_bytes());
            bind.extend(value.as_bytes());
        }
        bind.extend(b"\0\0");
        let [bind, execute, sync] = [message(b'B', &[&bind]), message(b'E', &[&[0; 5]]), message(b'S', &[])];
        self.stream.write_all(&[bind, execute, sync].concat())?;
        self.answer()
    }

    /// Reads up to the point at which the server is ready.
    fn answer(&mut self) -> Result<Vec<Row>, Failure> {
        let (mut rows, mut failure) = (Vec::new(), None);
        loop {
            let mut header = [0; 5];
            self.stream.read_exact(&mut header)?;
            let [tag, length @ ..] = header;
            let length = u32::from_be_bytes(length).checked_sub(4).ok_or_else(malformed)?;
            let mut body = vec![0; length as usize];
            self.stream.read_exact(&mut body)?;
            match tag {
                b'D' => rows.push(row(&body).ok_or_else(malformed)?),
                b'E' => {
                    let (state, message) = (field(&body, b'C'), field(&body, b'M'));
                    let is_fatal = field(&body, b'V') == "FATAL";
                    let error = Failure::Error { state, message };
                    if is_fatal {
                        return Err(error);
                    }
                    failure.get_or_insert(error);
                }
                b'Z' => {
                    self.is_open = body != b"I";
                    return failure.map_or(Ok(rows), Err);
                }
                _ => {}
            }
        }
    }
}
