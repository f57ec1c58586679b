//! `seriatim serve`: a database for clients of PostgreSQL.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use serde_json::json;
use seriatim::{Builder, Database};
use seriatim_base::{say, talk};
use seriatim_server::{Acceptor, Counts, Settings, Tls, check_address, without_password};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::configuration::{Configuration, Key};
use crate::middle_tier::{listen, start_log};
use crate::{Failure, args, directories, interrupt, password};

/// What can be configured: by a file, the environment, or flags.
const KEYS: &[Key] = &[
    Key::new("listen", "HOST:PORT", "127.0.0.1:5432")
        .help("Where to listen. An address that other machines reach needs TLS, and a role with a password"),
    Key::new("protocol", "NAME", "auto").help("The concurrency-control protocol: see `seriatim protocols`"),
    Key::new("max-connections", "N", "100").help("The most sessions at a time"),
    Key::new("max-waiting", "N", "64").help("The most connections of one address that have not logged in yet"),
    Key::new("authentication-timeout", "TIME", "10s").help("How long a client may take to log in"),
    Key::new("require-password", "BOOL", "off")
        .help("Whether a role without a password cannot connect; otherwise it can from this machine"),
    Key::new("password-file", "FILE", "")
        .help("A file with a password, which the role postgres gets if it has none. Others should not read it"),
    Key::new("tls-cert", "FILE", "").help("The certificate chain, PEM; without it, no TLS. SIGHUP reads it again"),
    Key::new("tls-key", "FILE", "").help("The key of that certificate, PEM"),
    Key::new("http", "HOST:PORT", "").help("Where to serve /livez, /readyz and, for Prometheus, /metrics"),
    Key::new("http-token-file", "FILE", "")
        .help("A file with a token that /metrics needs (Authorization: Bearer TOKEN): off loopback there must be one"),
    Key::new("log-connections", "BOOL", "off").help("Whether the log has the begin and the end of each session"),
    Key::new("log-min-duration-statement", "TIME", "-1")
        .help("Statements that take as long are logged, without parameters; 0: all, -1: none"),
    Key::new("statement-timeout", "TIME", "0").help("Statements that take longer are cancelled (57014); 0: never"),
    Key::new("transaction-timeout", "TIME", "60s")
        .help("Transactions that are open for longer are rolled back, those of COPY too"),
    Key::new("lock-timeout", "TIME", "0").help("Statements that wait longer for a row fail (55P03); 0: never"),
    Key::new("max-transactions", "N", "100")
        .help("The most transactions at a time that have done something; another one fails (53300)"),
    Key::new("idle-in-transaction-session-timeout", "TIME", "0")
        .help("Sessions whose clients are silent for longer in a transaction end (25P03); 0: never"),
    Key::new("idle-session-timeout", "TIME", "0")
        .help("Sessions whose clients are silent for longer outside of transactions end (57P05); 0: never"),
];

/// Keys that are settings of sessions.
const OF_SESSIONS: [&str; 5] = [
    "log_min_duration_statement",
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
];

pub(crate) fn command() -> Command {
    let command = Command::new("serve")
        .about(
            "Serves a database by the protocol of PostgreSQL, version 3: `psql -h 127.0.0.1 -U postgres` connects. The \
             directory is created if it does not exist. Every transaction is serializable and durable",
        )
        .after_help(
            "Each option can also be a line of the configuration file, as `max_connections = 200`, or a variable of \
             the environment, as SERIATIM_MAX_CONNECTIONS=200. Flags count before the environment, and that before the \
             file. TIME is a number of milliseconds, or has a unit: ms, s, min, h, d. SIGTERM ends sessions without a \
             transaction at once, and others after their transactions.",
        )
        .arg(args::directory("DIR", "The database's directory, which no other process has open"));
    Configuration::arguments(command, KEYS).arg(args::format())
}

/// The protocol of a database that is opened.
pub(crate) fn protocol() -> Arg {
    Arg::new("protocol")
        .long("protocol")
        .value_name("NAME")
        .default_value("auto")
        .help("The concurrency-control protocol: see `seriatim protocols`")
}

/// The builder of the database that these arguments name.
pub(crate) fn builder(matches: &ArgMatches) -> Builder {
    let protocol = matches.get_one::<String>("protocol").map_or("auto", String::as_str);
    Database::builder().path(directories::directory(matches, "DIR")).protocol(protocol)
}

/// The certificate and the key of these files.
fn acceptor(certificate: &Path, key: &Path) -> Result<Acceptor, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let acceptor = Acceptor::new(&read(certificate)?, &read(key)?);
    acceptor.map_err(|error| format!("{}: {error}", certificate.display()))
}

/// Where TLS gets its certificate and key.
fn tls_files(configuration: &Configuration) -> Result<Option<(PathBuf, PathBuf)>, Failure> {
    match (configuration.path("tls_cert"), configuration.path("tls_key")) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        _ => Err(Failure::Usage("TLS needs both tls_cert and tls_key".to_owned())),
    }
}

fn settings(configuration: &Configuration) -> Result<Settings, Failure> {
    let tls = match tls_files(configuration)? {
        None => None,
        Some((certificate, key)) => Some(Tls::new(acceptor(&certificate, &key).map_err(Failure::Usage)?)),
    };
    let defaults = OF_SESSIONS.map(|key| (key.to_owned(), configuration.text(key).to_owned()));
    for (key, value) in &defaults {
        seriatim_sql::Session::check_setting(key, value).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    Ok(Settings {
        connections_max: configuration.number("max_connections")?,
        waiting_max: configuration.number("max_waiting")?,
        greeting_max: configuration.time("authentication_timeout")?,
        passwords_always: configuration.is_on("require_password")?,
        log_connections: configuration.is_on("log_connections")?,
        tls,
        defaults: defaults.into(),
        ..Settings::default()
    })
}

/// The address of the HTTP server and its token.
fn http(configuration: &Configuration) -> Result<Option<(String, Option<String>)>, Failure> {
    let token = configuration.path("http_token_file").map(|path| password::of_file(&path)).transpose()?;
    let address = configuration.text("http");
    if let (Ok(parsed), None) = (address.parse::<SocketAddr>(), &token)
        && !parsed.ip().is_loopback()
    {
        let message = format!("{address} can be reached from other machines: give http_token_file, or use 127.0.0.1");
        return Err(Failure::Usage(message));
    }
    Ok((!address.is_empty()).then(|| (address.to_owned(), token)))
}

pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let configuration = Configuration::read(matches, KEYS)?;
    let mut settings = settings(&configuration)?;
    let http = http(&configuration)?;
    let first_password = configuration.path("password_file").map(|path| password::of_file(&path)).transpose()?;
    let builder = Database::builder().path(directories::directory(matches, "DIR"));
    let builder = builder.transaction_age_max(configuration.time("transaction_timeout")?);
    let builder = builder.workers(configuration.number("max_transactions")?);
    let database = directories::load(builder.protocol(configuration.text("protocol")))?;
    if let Some(first) = first_password {
        password::set_first(&database, &first)?;
    }
    let (counts, lost) = (Arc::clone(&settings.counts), Arc::clone(&settings.counts));
    let (log, writer) = start_log(move || lost.lost_line())?;
    settings.log = log;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().thread_stack_size(seriatim_server::STACK_BYTES);
    runtime.max_blocking_threads(seriatim_server::THREADS_MAX);
    let runtime = runtime.build().map_err(Failure::run)?;
    let served = runtime.block_on(serve(matches, &configuration, &database, settings, http, counts));
    drop(runtime);
    // The log may still have lines. They are lost without a reader.
    let _ = writer.recv_timeout(Duration::from_secs(1));
    served?;
    database.close().map_err(Failure::run)
}

async fn serve(
    matches: &ArgMatches,
    configuration: &Configuration,
    database: &Database,
    settings: Settings,
    http: Option<(String, Option<String>)>,
    counts: Arc<Counts>,
) -> Result<(), Failure> {
    let listener = listen("listen", configuration.text("listen")).await?;
    let bound = listener.local_addr().map_err(Failure::run)?;
    check_address(bound, database, &settings).map_err(Failure::Usage)?;
    let at_http = match http {
        None => None,
        Some((address, token)) => {
            let listener = listen("http", &address).await?;
            let bound = listener.local_addr().map_err(Failure::run)?;
            serve_http(listener, database.clone(), counts, token, bound)?;
            Some(bound.to_string())
        }
    };
    let log = settings.log.clone();
    reload(settings.tls.clone().zip(tls_files(configuration)?), settings.log.clone())?;
    let (stop, abandon) = interrupt::twice(move || log.line(format_args!("{}", interrupt::DRAINS)))?;
    match args::is_json(matches) {
        true => {
            let protocol = database.protocol().name;
            say!("{}\n", json!({ "listening": bound.to_string(), "protocol": protocol, "http": at_http }))?;
        }
        false => {
            let (protocol, port) = (database.protocol().name, bound.port());
            say!("listening at {bound} under {protocol}; psql -h {} -p {port} -U postgres\n", bound.ip())?;
            if let Some(at) = at_http {
                say!("metrics at http://{at}/metrics\n")?;
            }
        }
    }
    let open = without_password(database);
    if bound.ip().is_loopback() && !settings.passwords_always && !open.is_empty() {
        talk!("clients of this machine need no password for {}", open.join(", "));
    }
    seriatim_server::serve(listener, database.clone(), settings, stop, abandon).await.map_err(Failure::Usage)
}

fn serve_http(
    listener: TcpListener,
    database: Database,
    counts: Arc<Counts>,
    token: Option<String>,
    bound: SocketAddr,
) -> Result<(), Failure> {
    if token.is_none() && !bound.ip().is_loopback() {
        let message = format!("{bound} can be reached from other machines: give http_token_file, or use 127.0.0.1");
        return Err(Failure::Usage(message));
    }
    tokio::spawn(seriatim_server::serve_http(listener, database, counts, token));
    Ok(())
}

/// Reads certificate and key again at each SIGHUP. Those that are wrong leave the old ones. Without TLS, SIGHUP does
/// nothing.
fn reload(tls: Option<(Tls, (PathBuf, PathBuf))>, log: seriatim_server::Log) -> Result<(), Failure> {
    let mut hangups = signal(SignalKind::hangup()).map_err(Failure::run)?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let Some((tls, (certificate, key))) = &tls else {
                log.line(format_args!("SIGHUP: there is nothing to read again without TLS"));
                continue;
            };
            match acceptor(certificate, key) {
                Ok(acceptor) => {
                    tls.replace(acceptor);
                    log.line(format_args!("the certificate was read again"));
                }
                Err(error) => log.line(format_args!("the certificate was not read again: {error}")),
            }
        }
    });
    Ok(())
}
