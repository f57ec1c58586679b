//! `seriatim middle-tier`: a proxy for PostgreSQL that serializes transactions that would conflict.
//!
//! Standard output gets a line when the proxy listens, and the counts when it ends. A separate thread writes
//! the log to standard error, so no client waits for the reader of a pipe. SIGTERM and SIGINT end the proxy
//! after its clients' transactions; a second signal ends it at once.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};
use seriatim_base::{say, talk, thread};
use seriatim_middle_tier::{Acceptor, Batching, Counted, Counts, EXAMPLE, Log, Settings, Templates, Upstream};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

use crate::{Failure, args};

pub(crate) fn command() -> Command {
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    let number = |name: &'static str, value: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).default_value(default).help(help)
    };
    Command::new("middle-tier")
        .about(
            "A proxy for PostgreSQL. It batches and orders transactions that are declared in a file of templates: \
             those that \
             would conflict run one after another. Everything else is forwarded unchanged",
        )
        .after_help(format!(
            "Clients connect to it as to PostgreSQL, with the same users and databases. Each has its own connection \
             to the \
             server. docs/middle-tier.md has the details. A file of templates:\n\n{EXAMPLE}"
        ))
        .arg(Arg::new("upstream").long("upstream").value_name("URL").required_unless_present("check").help(
            "The PostgreSQL server: postgres://HOST:PORT, with ?sslmode=…&sslrootcert=…&connect_timeout=…. Clients \
             give \
             users and databases",
        ))
        .arg(file("templates", "Templates of transactions, TOML; without them everything is forwarded"))
        .arg(
            Arg::new("check")
                .long("check")
                .action(ArgAction::SetTrue)
                .requires("templates")
                .help("Only check the templates, and print their names"),
        )
        .arg(number("listen", "HOST:PORT", "127.0.0.1:6432", "The address for clients; port 0 is any free port"))
        .arg(
            number("batch", "off|N", "50", "The largest batch; off: transactions are forwarded as they come")
                .value_parser(|text: &str| match text {
                    "off" => Ok(None),
                    _ => {
                        text.parse::<NonZeroUsize>().map(Some).map_err(|_| "expected off or a number from 1".to_owned())
                    }
                }),
        )
        .arg(
            number("wait", "MS", "1", "How many milliseconds a transaction waits at most for its batch to fill")
                .value_parser(milliseconds),
        )
        .arg(
            number(
                "hold",
                "MS",
                "1000",
                "For how many milliseconds a transaction waits for those that it conflicts with, at most; then it is \
                 sent, and PostgreSQL decides",
            )
            .value_parser(milliseconds),
        )
        .arg(
            number("clients", "N", "1000", "The most clients at the same time; each needs up to four open files")
                .value_parser(value_parser!(NonZeroUsize)),
        )
        .arg(number("threads", "N", "1", "Threads that serve clients").value_parser(value_parser!(u16).range(1..=1024)))
        .arg(file("tls-cert", "The certificate chain for clients, PEM; without it, no TLS").requires("tls-key"))
        .arg(file("tls-key", "The key of that certificate, PEM").requires("tls-cert"))
        .arg(Arg::new("tls-require").long("tls-require").action(ArgAction::SetTrue).requires("tls-cert").help(
            "Refuse clients that do not use TLS. Needed with --tls-cert, unless the upstream has \
                     sslmode=disable: \
                     clients with sslmode=prefer would otherwise connect without TLS, unnoticed",
        ))
        .arg(
            Arg::new("metrics")
                .long("metrics")
                .value_name("HOST:PORT")
                .help("Serve the counts for Prometheus, at http://HOST:PORT/metrics"),
        )
        .arg(
            number("stats", "S", "60", "Seconds between log lines with the changed counts; 0: never")
                .value_parser(value_parser!(u64).range(0..=86_400)),
        )
        .arg(args::format())
}

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
    let counts = Arc::new(Counts::default());
    let lost = Arc::clone(&counts);
    let (log, writer) = start_log(move || lost.lost_line())?;
    let interval = *matches.get_one::<u64>("stats").expect("it has a default");
    let settings = Settings {
        templates,
        batching,
        tls,
        tls_required: matches.get_flag("tls-require"),
        clients_max,
        log,
        counts_interval: (interval > 0).then(|| Duration::from_secs(interval)),
        ..Settings::new(upstream)
    };
    settings.check().map_err(Failure::Usage)?;
    seriatim_middle_tier::reserve_files(clients_max).map_err(Failure::Usage)?;
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build().map_err(Failure::run)?;
    runtime.block_on(serve(matches, settings, Arc::clone(&counts)))?;
    drop(runtime);
    // The log may still have lines. They are lost without a reader.
    let _ = writer.recv_timeout(LOG_END_MAX);
    match args::is_json(matches) {
        true => say!("{}\n", serde_json::to_value(counts.counted()).map_err(Failure::run)?)?,
        false => say!("{}", listed(counts.counted())?)?,
    }
    Ok(())
}

/// How long the program waits at its end for the reader of the log.
const LOG_END_MAX: Duration = Duration::from_secs(1);

/// Starts the thread that writes the log, panics included. `lost` is called for each line that is dropped. The receiver
/// is notified of its end.
pub(crate) fn start_log(
    lost: impl Fn() + Send + Sync + 'static,
) -> Result<(Log, std::sync::mpsc::Receiver<()>), Failure> {
    let (log, lines) = Log::new(lost);
    let (ended, writer) = std::sync::mpsc::channel();
    let write = move || {
        lines.into_iter().for_each(|line| talk!("{line}"));
        let _ = ended.send(());
    };
    thread::spawn("log", write).map_err(Failure::run)?;
    let panics = log.clone();
    std::panic::set_hook(Box::new(move |panic| panics.line(format_args!("{panic}"))));
    Ok((log, writer))
}

async fn serve(matches: &ArgMatches, settings: Settings, counts: Arc<Counts>) -> Result<(), Failure> {
    let address = text(matches, "listen");
    let listener = listen("listen", address).await?;
    let bound = listener.local_addr().map_err(Failure::run)?;
    let metrics = match matches.get_one::<String>("metrics") {
        Some(address) => Some(listen("metrics", address).await?),
        None => None,
    };
    let metrics_bound = metrics.as_ref().map(TcpListener::local_addr).transpose().map_err(Failure::run)?;
    match args::is_json(matches) {
        true => {
            let metrics = metrics_bound.map(|address| address.to_string());
            let upstream = settings.upstream.to_string();
            say!("{}\n", json!({ "listening": bound.to_string(), "upstream": upstream, "metrics": metrics }))?;
        }
        false => {
            let metrics =
                metrics_bound.map_or(String::new(), |address| format!(", metrics at http://{address}/metrics"));
            say!("listening at {bound}, upstream {}{metrics}\n", settings.upstream)?;
        }
    }
    if let Some(listener) = metrics {
        tokio::spawn(seriatim_middle_tier::serve_metrics(listener, Arc::clone(&counts)));
    }
    let log = settings.log.clone();
    let (stop, abandon) = crate::interrupt::twice(move || log.line(format_args!("{}", crate::interrupt::DRAINS)))?;
    seriatim_middle_tier::serve(listener, settings, counts, stop, abandon).await.map_err(Failure::Usage)
}

pub(crate) async fn listen(option: &str, address: &str) -> Result<TcpListener, Failure> {
    let cannot = |error| format!("cannot listen at {address}: {error}; give another --{option} HOST:PORT");
    TcpListener::bind(address).await.map_err(|error| Failure::Usage(cannot(error)))
}

/// Parses the time that a transaction waits.
fn milliseconds(text: &str) -> Result<f64, String> {
    let most = 60_000.0;
    let wait = text.parse::<f64>().ok().filter(|wait| (0.0..=most).contains(wait));
    wait.ok_or_else(|| format!("expected a number from 0 to {most}"))
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

fn listed(counted: Counted) -> Result<String, Failure> {
    let Value::Object(counts) = serde_json::to_value(counted).map_err(Failure::run)? else {
        unreachable!("counts have names")
    };
    Ok(counts.iter().map(|(name, count)| format!("{:<24}{count:>12}\n", name.replace('_', " "))).collect())
}
