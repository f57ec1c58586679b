//! A PostgreSQL server for tests, a middle tier in front of it, and clients.
//!
//! Without a server, tests that need one print `skipped`, and how to install it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use seriatim_base::talk;
use seriatim_middle_tier::{Acceptor, Batching, Counted, Counts, Settings, Templates, Upstream, serve};
use seriatim_postgres::Server;
use seriatim_wire::errors;
use seriatim_wire::frames::{Frames, Handling, Piece};
use seriatim_wire::message;
use seriatim_wire::messages::simplequery::Query;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// The most clients of a middle tier at the same time.
pub(crate) const CLIENTS_MAX: usize = 24;

/// A server, which ends when this is dropped.
pub(crate) struct Postgres {
    server: Server,
    pub(crate) port: u16,
}

impl Postgres {
    /// Starts a new server with these lines in its configuration. Its users `postgres` and `plain` need no
    /// password; `secret` has its name as password. Returns `None` and prints a line if no server is installed.
    pub(crate) fn start(name: &str, configuration: &str) -> Option<Postgres> {
        let Some(binaries) = seriatim_postgres::binaries() else {
            talk!("skipped: {name}: {}", seriatim_postgres::MISSING);
            return None;
        };
        let access = "host all secret 127.0.0.1/32 scram-sha-256\n";
        let server = Server::start(binaries, name, access, configuration).unwrap_or_else(|error| panic!("{error}"));
        let postgres = Postgres { port: server.port(), server };
        postgres.psql(
            "create role plain login; create role secret login password 'secret'; grant create on schema \
                       public to public",
        );
        Some(postgres)
    }

    /// Starts the server after [`Postgres::kill`].
    pub(crate) fn run(&mut self) {
        self.server.run().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Kills the server, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Gives a file to the server's user, and makes it private.
    pub(crate) fn adopt(&self, file: &Path) {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(file, permissions).expect("it is ours");
        self.server.own(file).unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) fn folder(&self) -> &Path {
        self.server.folder()
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// The output of `psql` for a statement, unaligned, as the superuser and without the middle tier.
    pub(crate) fn psql(&self, text: &str) -> String {
        self.server.psql(text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A client program of the server, for this port.
    pub(crate) fn program(&self, name: &str, port: u16, user: &str, settings: &str) -> Command {
        let mut command = self.server.command(name);
        command.env("PGPASSWORD", "secret").env("PGCONNECT_TIMEOUT", "120");
        let database = format!("host=127.0.0.1 port={port} user={user} dbname=postgres {settings}");
        match name {
            "pgbench" => {
                command.env("PGHOST", "127.0.0.1").env("PGPORT", port.to_string()).env("PGUSER", user).arg("postgres")
            }
            _ => command.args(["-X", "-d", &database]),
        };
        command
    }
}

pub(crate) fn succeed(command: &mut Command) -> Output {
    seriatim_postgres::output(command).unwrap_or_else(|error| panic!("{error}"))
}

/// A middle tier, which ends when this is dropped.
pub(crate) struct MiddleTier {
    _runtime: Runtime,
    counts: Arc<Counts>,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    ended: std::sync::mpsc::Receiver<()>,
}

impl MiddleTier {
    pub(crate) fn start(
        upstream: &str,
        templates: &str,
        batching: Option<Batching>,
        tls: Option<Acceptor>,
    ) -> MiddleTier {
        let upstream = Upstream::parse(upstream).unwrap_or_else(|error| panic!("{error}"));
        MiddleTier::of(upstream, templates, batching, tls, false)
    }

    pub(crate) fn of(
        upstream: Upstream,
        templates: &str,
        batching: Option<Batching>,
        tls: Option<Acceptor>,
        tls_required: bool,
    ) -> MiddleTier {
        let templates = match templates {
            "" => Templates::default(),
            text => Templates::parse(text).unwrap_or_else(|error| panic!("{error}")),
        };
        let settings =
            Settings { templates, batching, tls, tls_required, clients_max: CLIENTS_MAX, ..Settings::new(upstream) };
        MiddleTier::with(settings)
    }

    pub(crate) fn with(settings: Settings) -> MiddleTier {
        let runtime = Runtime::new().expect("a runtime");
        let counts = Arc::new(Counts::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let (end, ended) = std::sync::mpsc::channel();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let counting = Arc::clone(&counts);
        runtime.spawn(async move {
            let stop = async { _ = stopped.await };
            serve(listener, settings, counting, stop, std::future::pending()).await.expect("settings that agree");
            let _ = end.send(());
        });
        MiddleTier { _runtime: runtime, counts, address, stop: Some(stop), ended }
    }

    pub(crate) fn counted(&self) -> Counted {
        self.counts.counted()
    }

    pub(crate) fn stop(&mut self) {
        self.stop.take();
    }

    /// Whether it ends soon or has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.recv_timeout(Duration::from_secs(120)).is_ok()
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) tags: Vec<String>,
    pub(crate) errors: Vec<String>,
    /// Whether `ReadyForQuery` came. Otherwise the connection was lost.
    pub(crate) is_complete: bool,
}

impl Answer {
    pub(crate) fn is_committed(&self) -> bool {
        self.tags.last().is_some_and(|tag| tag == "COMMIT") && self.errors.is_empty()
    }

    /// Whether the outcome is unknown. The server's own last error (57P02: crash shutdown) leaves it unknown,
    /// as the middle tier's does.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(&self.errors[..], [one] if ["08007", "57P01", "57P02"].contains(&one.as_str()))
    }
}

/// A client that sees every message.
pub(crate) struct Client {
    stream: TcpStream,
    frames: Frames,
    buffer: BytesMut,
    /// The key of the session: process and secret.
    pub(crate) key: Bytes,
}

impl Client {
    pub(crate) fn connect(address: impl std::net::ToSocketAddrs) -> Result<Client, Answer> {
        let lost = |_| Answer::default();
        let stream = TcpStream::connect(address).map_err(lost)?;
        stream.set_read_timeout(Some(Duration::from_secs(120))).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        let mut client = Client { stream, frames: Frames::default(), buffer: BytesMut::new(), key: Bytes::new() };
        let parameters = b"\0\x03\0\0user\0plain\0database\0postgres\0\0";
        let length = u32::try_from(parameters.len() + 4).expect("short").to_be_bytes();
        client.stream.write_all(&[&length[..], parameters].concat()).map_err(lost)?;
        let answer = client.answer();
        if answer.is_complete && answer.errors.is_empty() { Ok(client) } else { Err(answer) }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // The reader notices the end of the connection.
        let _ = self.stream.write_all(bytes);
    }

    pub(crate) fn query(&mut self, text: &str) -> Answer {
        self.send(&message::encode(&Query::new(text.into())));
        self.answer()
    }

    /// Reads up to the next `ReadyForQuery` or the end.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = Answer::default();
        loop {
            while let Some(piece) = self.frames.next(&mut self.buffer, |_, _| Handling::Gather).expect("messages") {
                let Piece::Whole(frame) = piece else { unreachable!("all are gathered") };
                match frame[0] {
                    b'C' => answer.tags.push(String::from_utf8_lossy(&frame[5..frame.len() - 1]).into_owned()),
                    b'E' => answer.errors.push(errors::read(&frame).expect("an error").1.to_string()),
                    b'K' => self.key = frame.slice(5..),
                    b'Z' => {
                        answer.is_complete = true;
                        return answer;
                    }
                    _ => {}
                }
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) | Err(_) => return answer,
                Ok(bytes) => self.buffer.extend_from_slice(&chunk[..bytes]),
            }
        }
    }
}

/// Requests the cancellation of the session with this key, and waits until the request was handled.
pub(crate) fn cancel(address: SocketAddr, key: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let length = u32::try_from(key.len() + 8).expect("short").to_be_bytes();
    stream.write_all(&[&length[..], &80_877_102_u32.to_be_bytes(), key].concat()).expect("it takes it");
    let _ = stream.read(&mut [0]);
}
