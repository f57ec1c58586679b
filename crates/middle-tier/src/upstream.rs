//! Where PostgreSQL is, and a connection to it: a URL as libpq has it, without what clients bring themselves.
//!
//! `postgres://HOST[:PORT][/][?NAME=VALUE&…]`, with `sslmode` (`disable`, `prefer`, `require`, `verify-ca`,
//! `verify-full`), `sslrootcert`, `connect_timeout` in seconds, and `host` and `port`; a host that begins with
//! `/`, percent-encoded or as a parameter, is the directory of a Unix-domain socket. User, password and
//! database are the clients'.

use std::time::Duration;

use seriatim_wire::tls::{Connector, Verify};
use seriatim_wire::{Stream, startup};
use tokio::net::{TcpStream, UnixStream};

/// As `libpq` has it.
const PORT: u16 = 5432;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PARAMETERS: &str = "sslmode, sslrootcert, connect_timeout, host, port";

/// Where PostgreSQL is, and how it is connected to.
#[derive(Clone, Debug)]
pub struct Upstream {
    host: String,
    port: u16,
    mode: SslMode,
    root: Option<String>,
    connector: Option<Connector>,
    timeout: Duration,
}

/// How a connection to the upstream is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    /// Not at all.
    Disable,
    /// If the upstream has it.
    Prefer,
    /// Always.
    Require,
    /// Always, with a certificate that one of the roots signed.
    VerifyCa,
    /// Always, with such a certificate that names the host.
    VerifyFull,
}

impl Upstream {
    /// Reads a URL. Roots of certificates are read by the caller, from [`Upstream::root`], and given by
    /// [`Upstream::verify`].
    ///
    /// # Errors
    /// When it is no URL of PostgreSQL, or has what cannot be here; the text says what would be right.
    pub fn parse(url: &str) -> Result<Upstream, String> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| {
            format!(
                "the upstream `{url}` is no URL of PostgreSQL: it begins with postgres://, as postgres://localhost:5432"
            )
        })?;
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        if !database.is_empty() || authority.contains('@') {
            let what = if database.is_empty() { "a user" } else { "a database" };
            return Err(format!(
                "the upstream names {what}, which its clients bring themselves: leave postgres://HOST:PORT of it"
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
            // libpq takes it and verifies nothing with `disable`, and nothing that matters with `prefer`.
            return Err(
                "sslrootcert verifies nothing with sslmode=disable or prefer (the default); sslmode=verify-full does"
                    .into(),
            );
        }
        if upstream.mode == SslMode::Require && upstream.root.is_some() {
            // As libpq has it, for those who gave a root before there was `verify-ca`.
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
                    seconds.ok_or_else(|| format!("connect_timeout is seconds, at least 1, and not `{value}`"))?;
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
                            "sslmode is one of disable, prefer, require, verify-ca, verify-full, and not `{value}`"
                        ));
                    }
                }
            }
            _ => {
                return Err(format!(
                    "the upstream's URL may have {PARAMETERS}, and not `{name}`: settings are the clients'"
                ));
            }
        }
        Ok(())
    }

    /// The file with the roots that [`Upstream::verify`] has to be given, if certificates are to be verified.
    pub fn root(&self) -> Option<Result<&str, String>> {
        let verifies = matches!(self.mode, SslMode::VerifyCa | SslMode::VerifyFull);
        let missing =
            || "sslmode verify-ca and verify-full need sslrootcert=FILE, with the root certificates".to_owned();
        verifies.then(|| self.root.as_deref().ok_or_else(missing))
    }

    /// Verifies certificates against these roots, PEM.
    ///
    /// # Errors
    /// When there is none among them.
    pub fn verify(&mut self, roots: &[u8]) -> Result<(), String> {
        let verify = if self.mode == SslMode::VerifyFull { Verify::ChainAndName } else { Verify::Chain };
        self.connector = Some(Connector::new(verify, Some(roots))?);
        Ok(())
    }

    /// Whether a connection to it may use TLS.
    pub(crate) fn may_encrypt(&self) -> bool {
        self.mode != SslMode::Disable && !self.is_socket()
    }

    /// Whether it is reached by a Unix-domain socket, which never uses TLS (libpq).
    fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }

    /// Connects, up to where a session's start or a request to cancel is sent; whether the connection is encrypted.
    ///
    /// # Errors
    /// When nobody answers in time, or not as the mode has it.
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
            return Err(std::io::Error::other("it has no TLS, which sslmode asks for"));
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
    port.ok_or_else(|| format!("the upstream's port is a number from 1 to 65535, and not `{text}`"))
}

/// Without percent-encoding.
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
    fn what_cannot_be_is_refused_with_what_would_be_right() {
        for (url, words) in [
            ("localhost:5432", "postgres://localhost:5432"),
            ("postgres://me@h", "names a user"),
            ("postgres://h/db", "names a database"),
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
