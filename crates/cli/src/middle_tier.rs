//! `seriatim middle-tier`: a proxy before PostgreSQL that runs transactions which would conflict one after another.
//!
//! Standard output: a line when it listens, and what was counted when it ends. SIGTERM and SIGINT end it when its clients have ended
//! their transactions, a second one at once.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};
use seriatim_base::{say, talk};
use seriatim_middle_tier::{Acceptor, Batching, Counted, Counts, EXAMPLE, Settings, Templates, Upstream};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Failure, args};

/// Its arguments.
pub(crate) fn command() -> Command {
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    let number = |name: &'static str, value: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).default_value(default).help(help)
    };
    Command::new("middle-tier")
        .about(
            "A proxy before PostgreSQL: transactions that are declared in a file of templates are batched and ordered, so that \
             those that would conflict run one after another; all else is passed on as it came",
        )
        .after_help(format!(
            "Clients connect to it as to PostgreSQL, with the same users and databases; each has a connection of its own \
             behind it. docs/middle-tier.md says more. A file of templates:\n\n{EXAMPLE}"
        ))
        .arg(Arg::new("upstream").long("upstream").value_name("URL").required_unless_present("check").help(
            "Where PostgreSQL is: postgres://HOST:PORT, with ?sslmode=…&sslrootcert=…&connect_timeout=…; users and databases are \
             the clients'",
        ))
        .arg(file("templates", "Templates of transactions, TOML; without any, all is passed on"))
        .arg(
            Arg::new("check")
                .long("check")
                .action(ArgAction::SetTrue)
                .requires("templates")
                .help("Only read the templates, and print their names"),
        )
        .arg(number("listen", "HOST:PORT", "127.0.0.1:6432", "Where clients connect to; port 0 is any that is free"))
        .arg(
            number("batch", "off|N", "50", "Transactions of a batch, at most; off: they go as they come")
                .value_parser(|text: &str| match text {
                    "off" => Ok(None),
                    _ => text.parse::<NonZeroUsize>().map(Some).map_err(|_| "it is off or a number from 1".to_owned()),
                }),
        )
        .arg(
            number("wait", "MS", "1", "For how many milliseconds a transaction waits for a batch to fill, at most")
                .value_parser(milliseconds),
        )
        .arg(
            number(
                "hold",
                "MS",
                "1000",
                "For how many milliseconds a transaction waits for those that it conflicts with, at most; then it is sent, and PostgreSQL decides",
            )
            .value_parser(milliseconds),
        )
        .arg(number("clients", "N", "1000", "Clients at the same time, at most").value_parser(value_parser!(NonZeroUsize)))
        .arg(number("threads", "N", "1", "Threads that serve clients").value_parser(value_parser!(u16).range(1..=1024)))
        .arg(file("tls-cert", "The certificate that clients see, and those that signed it, PEM; without it, no TLS").requires("tls-key"))
        .arg(file("tls-key", "The key of that certificate, PEM").requires("tls-cert"))
        .arg(
            Arg::new("tls-require")
                .long("tls-require")
                .action(ArgAction::SetTrue)
                .requires("tls-cert")
                .help("Refuse clients that do not use TLS; without it, they are taken"),
        )
        .arg(args::format())
}

/// `seriatim middle-tier`.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let templates = match matches.get_one::<PathBuf>("templates") {
        Some(path) => parse(path)?,
        None => Templates::default(),
    };
    if matches.get_flag("check") {
        let names: Vec<_> = templates.names().collect();
        match args::is_json(matches) {
            true => say!("{}\n", json!({ "templates": names }))?,
            false => say!("{}\n", names.join("\n"))?,
        }
        return Ok(());
    }
    let mut upstream = Upstream::parse(text(matches, "upstream")).map_err(Failure::Usage)?;
    if let Some(root) = upstream.root() {
        let path = PathBuf::from(root.map_err(Failure::Usage)?);
        upstream.verify(&read(&path)?).map_err(|error| of(&path, error))?;
    }
    let tls = match (matches.get_one::<PathBuf>("tls-cert"), matches.get_one::<PathBuf>("tls-key")) {
        (Some(certificate), Some(key)) => {
            Some(Acceptor::new(&read(certificate)?, &read(key)?).map_err(|error| of(certificate, error))?)
        }
        _ => None,
    };
    let size: Option<NonZeroUsize> = *matches.get_one("batch").expect("it has a default");
    let time = |name| Duration::from_secs_f64(matches.get_one::<f64>(name).expect("it has a default") / 1000.0);
    let batching = size.map(|size| Batching { size, wait: time("wait"), hold: time("hold") });
    let clients_max = matches.get_one::<NonZeroUsize>("clients").expect("it has a default").get();
    let threads = usize::from(*matches.get_one::<u16>("threads").expect("it has a default"));
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build().map_err(Failure::run)?;
    let tls_required = matches.get_flag("tls-require");
    let settings = Settings { upstream, templates, batching, tls, tls_required, clients_max };
    let counts = Arc::new(Counts::default());
    runtime.block_on(serve(matches, settings, Arc::clone(&counts)))?;
    match args::is_json(matches) {
        true => say!("{}\n", serde_json::to_value(counts.counted()).map_err(Failure::run)?)?,
        false => say!("{}", listed(counts.counted())?)?,
    }
    Ok(())
}

async fn serve(matches: &ArgMatches, settings: Settings, counts: Arc<Counts>) -> Result<(), Failure> {
    let address = text(matches, "listen");
    let cannot =
        |error| Failure::Usage(format!("cannot listen at {address}: {error}; give another --listen HOST:PORT"));
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(Failure::run)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(Failure::run)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(Failure::run)?;
    match args::is_json(matches) {
        true => say!("{}\n", json!({ "listening": bound.to_string(), "upstream": settings.upstream.to_string() }))?,
        false => say!("listening at {bound}, before {}\n", settings.upstream)?,
    }
    let (told, mut again) = tokio::sync::mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
            if told.send(()).await.is_err() {
                return;
            }
        }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (abandon, abandoned) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        again.recv().await;
        talk!("ending when transactions have; a second signal ends at once");
        let _ = stop.send(());
        again.recv().await;
        let _ = abandon.send(());
    });
    let (stop, abandon) = (async { _ = stopped.await }, async { _ = abandoned.await });
    seriatim_middle_tier::serve(listener, settings, counts, stop, abandon).await;
    Ok(())
}

/// A time that somebody waits.
fn milliseconds(text: &str) -> Result<f64, String> {
    let most = 60_000.0;
    let wait = text.parse::<f64>().ok().filter(|wait| (0.0..=most).contains(wait));
    wait.ok_or_else(|| format!("it is a number from 0 to {most}"))
}

fn text<'m>(matches: &'m ArgMatches, name: &str) -> &'m str {
    matches.get_one::<String>(name).expect("clap requires it")
}

fn of(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| of(path, error))
}

fn parse(path: &Path) -> Result<Templates, Failure> {
    let text = String::from_utf8(read(path)?).map_err(|error| of(path, error))?;
    Templates::parse(&text).map_err(|error| of(path, error))
}

/// A line for each count.
fn listed(counted: Counted) -> Result<String, Failure> {
    let Value::Object(counts) = serde_json::to_value(counted).map_err(Failure::run)? else {
        unreachable!("counts have names")
    };
    Ok(counts.iter().map(|(name, count)| format!("{:<24}{count:>12}\n", name.replace('_', " "))).collect())
}
