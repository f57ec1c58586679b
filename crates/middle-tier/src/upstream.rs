//! The PostgreSQL server, and connections to it. Its URL is as in libpq, without the parts that clients send.
//!
//! `postgres://HOST[:PORT][/][?NAME=VALUE&…]`, with `sslmode` (`disable`, `prefer`, `require`, `verify-ca`,
//! `verify-full`), `sslrootcert`, `connect_timeout` in seconds, and `host` and `port`. A host that begins with
//! `/`, percent-encoded or as a parameter, is the directory of a Unix-domain socket. Clients give user,
//! password and database.

use std::time::Duration;

use seriatim_wire::tls::{Connector, Verify};
use seriatim_wire::{Stream, startup};
use tokio::net::{TcpStream, UnixStream};

/// The default of libpq.
const PORT: u16 = 5432;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PARAMETERS: &str = "sslmode, sslrootcert, connect_timeout, host, port";

/// The PostgreSQL server, and how to connect to it.
#[derive(Clone, Debug)]
pub struct Upstream {
    host: String,
    port: u16,
    mode: SslMode,
    root: Option<String>,
    connector: Option<Connector>,
    timeout: Duration,
}

/// The encryption of connections to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    /// Never.
    Disable,
    /// If the upstream supports it.
    Prefer,
    /// Always.
    Require,
    /// Always, with a certificate that a trusted root signed.
    VerifyCa,
    /// Always, with such a certificate that names the host.
    VerifyFull,
}

impl Upstream {
    /// Reads a URL. The caller reads the root certificates from [`Upstream::root`] and passes them to
    /// [`Upstream::verify`].
    ///
    /// # Errors
    /// When the URL is invalid or has unsupported parts. The text states the valid form.
    pub fn parse(url: &str) -> Result<Upstream, String> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| {
            format!(
                "the upstream `{url}` is not a PostgreSQL URL: it must begin with postgres://, as \
                 postgres://localhost:5432"
            )
        })?;
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        if !database.is_empty() || authority.contains('@') {
            let what = if database.is_empty() { "a user" } else { "a database" };
            return Err(format!(
                "the upstream's URL has {what}, which clients send themselves: give only postgres://HOST:PORT"
            ));
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, rest)) => (address.to_owned(), rest.strip_prefix(':')),
            None => match authority.split_once(':') {
                Some((host, port)) => (decoded(host)?, Some(port)),
                None => (decoded(authority)?, None),
            },
        };
        let mut upstream = Upstream {
            host,
            port: port.map_or(Ok(PORT), port_of)?,
            mode: SslMode::Prefer,
            root: None,
            connector: None,
            timeout: CONNECT_TIMEOUT,
        };
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            upstream.set(name, decoded(value)?)?;
        }
        if upstream.host.is_empty() {
            upstream.host = "localhost".into();
        }
        if matches!(upstream.mode, SslMode::Disable | SslMode::Prefer) && upstream.root.is_some() {
            // libpq accepts it, but verifies nothing with `disable`, and nothing useful with `prefer`.
            return Err(
                "sslrootcert verifies nothing with sslmode=disable or prefer (the default); sslmode=verify-full does"
                    .into(),
            );
        }
        if upstream.mode == SslMode::Require && upstream.root.is_some() {
            // As in libpq, for users that gave a root before there was `verify-ca`.
            upstream.mode = SslMode::VerifyCa;
        }
        if matches!(upstream.mode, SslMode::Prefer | SslMode::Require) {
            upstream.connector = Some(Connector::new(Verify::Nothing, None)?);
        }
        Ok(upstream)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "host" => self.host = value,
            "port" => self.port = port_of(&value)?,
            "sslrootcert" => self.root = Some(value),
            "connect_timeout" => {
                let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                let seconds =
                    seconds.ok_or_else(|| format!("connect_timeout must be at least 1 second, not `{value}`"))?;
                self.timeout = Duration::from_secs(seconds);
            }
            "sslmode" => {
                self.mode = match value.as_str() {
                    "disable" => SslMode::Disable,
                    "prefer" => SslMode::Prefer,
                    "require" => SslMode::Require,
                    "verify-ca" => SslMode::VerifyCa,
                    "verify-full" => SslMode::VerifyFull,
                    _ => {
                        return Err(format!(
                            "sslmode must be one of disable, prefer, require, verify-ca, verify-full, not `{value}`"
                        ));
                    }
                }
            }
            _ => {
                return Err(format!(
                    "the upstream's URL may have {PARAMETERS}, but not `{name}`: clients send other settings"
                ));
            }
        }
        Ok(())
    }

    /// The file with root certificates for [`Upstream::verify`], if certificates are verified.
    pub fn root(&self) -> Option<Result<&str, String>> {
        let verifies = matches!(self.mode, SslMode::VerifyCa | SslMode::VerifyFull);
        let missing =
            || "sslmode verify-ca and verify-full need sslrootcert=FILE, with the root certificates".to_owned();
        verifies.then(|| self.root.as_deref().ok_or_else(missing))
    }

    /// Verifies certificates with these root certificates (PEM).
    ///
    /// # Errors
    /// When they contain no certificate.
    pub fn verify(&mut self, roots: &[u8]) -> Result<(), String> {
        let verify = if self.mode == SslMode::VerifyFull { Verify::ChainAndName } else { Verify::Chain };
        self.connector = Some(Connector::new(verify, Some(roots))?);
        Ok(())
    }

    /// Whether a connection to the upstream may use TLS.
    pub(crate) fn may_encrypt(&self) -> bool {
        self.mode != SslMode::Disable && !self.is_socket()
    }

    /// Whether the upstream has a Unix-domain socket, on which libpq never uses TLS.
    fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }

    /// Connects, ready for the start of a session or for a request to cancel. Returns whether the connection is
    /// encrypted.
    ///
    /// # Errors
    /// When the server does not answer in time, or not as the mode requires.
    pub(crate) async fn connect(&self) -> std::io::Result<(Stream, bool)> {
        match tokio::time::timeout(self.timeout, self.try_connect()).await {
            Ok(connected) => connected,
            Err(_) => {
                let text = format!("no answer within {} s", self.timeout.as_secs());
                Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
            }
        }
    }

    async fn try_connect(&self) -> std::io::Result<(Stream, bool)> {
        if self.is_socket() {
            let path = format!("{}/.s.PGSQL.{}", self.host, self.port);
            return Ok((Box::new(UnixStream::connect(path).await?), false));
        }
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        seriatim_wire::prepare(&stream)?;
        let mut stream: Stream = Box::new(stream);
        if self.mode == SslMode::Disable {
            return Ok((stream, false));
        }
        if startup::ask_for_tls(&mut stream).await? {
            let connector = self.connector.as_ref().ok_or_else(|| std::io::Error::other("no roots were given"))?;
            return Ok((connector.connect(&self.host, stream).await?, true));
        }
        if self.mode != SslMode::Prefer {
            return Err(std::io::Error::other("the server has no TLS, which sslmode requires"));
        }
        Ok((stream, false))
    }
}

impl std::fmt::Display for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

fn port_of(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| format!("the upstream's port must be a number from 1 to 65535, not `{text}`"))
}

/// Removes percent-encoding.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` in the upstream's URL is not percent-encoded text");
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digits =
            std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        bytes.push(u8::from_str_radix(digits.ok_or_else(wrong)?, 16).map_err(|_| wrong())?);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_libpq_does() {
        let read = |url: &str| Upstream::parse(url).map(|upstream| (upstream.to_string(), upstream.mode));
        assert_eq!(read("postgres://db.example:6000"), Ok(("db.example:6000".into(), SslMode::Prefer)));
        assert_eq!(read("postgresql://"), Ok(("localhost:5432".into(), SslMode::Prefer)));
        assert_eq!(read("postgres://[::1]:7/?sslmode=disable"), Ok(("[::1]:7".into(), SslMode::Disable)));
        let socket = Ok(("/run/pg:5433".to_owned(), SslMode::Prefer));
        assert_eq!(read("postgres://%2Frun%2Fpg:5433"), socket);
        assert_eq!(read("postgres:///?host=/run/pg&port=5433"), socket);
        assert_eq!(read("postgres://h?sslmode=require&sslrootcert=r.pem"), Ok(("h:5432".into(), SslMode::VerifyCa)));
        let upstream = Upstream::parse("postgres://h?sslmode=verify-full&sslrootcert=r.pem").expect("it is one");
        assert_eq!(upstream.root(), Some(Ok("r.pem")));
        assert!(
            Upstream::parse("postgres://h?sslmode=verify-full").expect("it is one").root().is_some_and(|r| r.is_err())
        );
    }

    #[test]
    fn invalid_arguments_are_refused_with_the_valid_ones() {
        for (url, words) in [
            ("localhost:5432", "postgres://localhost:5432"),
            ("postgres://me@h", "has a user"),
            ("postgres://h/db", "has a database"),
            ("postgres://h:0", "1 to 65535"),
            ("postgres://h:x", "1 to 65535"),
            ("postgres://%2", "percent-encoded"),
            ("postgres://h?sslmode=allow", "one of disable"),
            ("postgres://h?connect_timeout=0", "at least 1"),
            ("postgres://h?sslrootcert=r.pem", "sslmode=verify-full"),
            ("postgres://h?sslmode=disable&sslrootcert=r.pem", "sslmode=verify-full"),
            ("postgres://h?options=x", "connect_timeout"),
        ] {
            let error = Upstream::parse(url).expect_err(url);
            assert!(error.contains(words), "{url}: {error}");
        }
    }
}
