//! A proxy for PostgreSQL that runs transactions one after another if they would conflict.
//!
//! Clients speak the PostgreSQL protocol to it. Each client has its own connection to the server behind it, the
//! *upstream*. A transaction that arrives as a whole, in one message or one pipeline, and matches a *template*,
//! is batched with those of other clients. A batch is ordered by the reads and writes of its transactions
//! before the upstream gets it. All other messages are forwarded unchanged.
//!
//! Invariant: **the upstream gets exactly the bytes that the client sent, in order**, and the client gets the
//! answers of the upstream. There are four exceptions:
//!
//! - Authentication mechanisms with channel binding are not offered to the client. If the upstream refuses the
//!   client because of that, its error gets a hint.
//! - The upstream may roll back a transaction with a serialization failure or a deadlock. It is sent again from its
//!   beginning, if its template permits that. The answers of the failed attempt are dropped.
//! - If the upstream is lost, the proxy reports that to the client.
//! - A message that violates the protocol's limits ends the session, and is not forwarded.
//!
//! The source is Ding, Kot, Gehrke, "Improving Optimistic Concurrency Control Through Transaction Batching and
//! Operation Reordering", PVLDB 12(2), 2018, §5.6. Record 18 in `docs/decisions` lists the differences.
//!
//! The modules in the order of a transaction: [`serve`] accepts a connection (`greetings`, `client`), which connects to
//! the upstream (`upstream`). A `session` follows the messages of both sides, without I/O. `templates` recognizes
//! transactions. `batches` decides when each is sent. `counts`, `log` and `metrics` report events.

mod batches;
mod client;
mod counts;
mod files;
mod greetings;
mod metrics;
mod session;
mod templates;
mod upstream;

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub use seriatim_wire::tls::Acceptor;

pub use counts::{Counted, Counts};
pub use files::reserve_files;
pub use metrics::serve_metrics;
pub use seriatim_wire::log::Log;
pub use templates::{EXAMPLE, Templates};
pub use upstream::{SslMode, Upstream};

use batches::Batches;
use client::Cancels;
use greetings::Greetings;

/// Settings of a middle tier.
#[derive(Debug)]
pub struct Settings {
    /// The PostgreSQL server.
    pub upstream: Upstream,
    /// The transactions that are batched.
    pub templates: Templates,
    /// How transactions are batched; `None`: those of templates are sent at once.
    pub batching: Option<Batching>,
    /// TLS for clients; `None`: their requests for TLS are refused.
    pub tls: Option<Acceptor>,
    /// Whether clients without TLS are refused.
    pub tls_required: bool,
    /// The most sessions at the same time. There may be as many connections without a session.
    pub clients_max: usize,
    /// How long a connection may take until its session begins.
    pub greeting_max: Duration,
    /// Receives failures and counts.
    pub log: Log,
    /// How often changed counts are reported; `None`: never.
    pub counts_interval: Option<Duration>,
}

impl Settings {
    /// Forwards everything, for up to 1,000 clients, and reports nothing.
    pub fn new(upstream: Upstream) -> Settings {
        Settings {
            upstream,
            templates: Templates::default(),
            batching: None,
            tls: None,
            tls_required: false,
            clients_max: 1000,
            // As `authentication_timeout` of PostgreSQL.
            greeting_max: Duration::from_secs(60),
            log: Log::default(),
            counts_interval: None,
        }
    }

    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// TLS on both sides without `tls_required`. A client with libpq's default settings would then silently get
    /// a connection without TLS. SCRAM fails over TLS because of channel binding, and `sslmode=prefer` retries without
    /// TLS.
    pub fn check(&self) -> Result<(), String> {
        if self.tls.is_none() || self.tls_required || !self.upstream.may_encrypt() {
            return Ok(());
        }
        let text = "with --tls-cert and an upstream that may use TLS, clients with sslmode=prefer (the default of \
                    libpq) \
            would silently connect without TLS: give --tls-require, or sslmode=disable in the URL of --upstream";
        Err(text.into())
    }
}

/// How transactions are batched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// The most transactions in a batch. The paper uses 50 (§5.6).
    pub size: NonZeroUsize,
    /// How long a transaction waits at most for its batch to fill.
    pub wait: Duration,
    /// How long a transaction waits at most in all; then it is sent.
    pub hold: Duration,
}

/// Batches of 50. A transaction waits at most a millisecond for its batch and a second for others. The second
/// is PostgreSQL's `deadlock_timeout`.
impl Default for Batching {
    fn default() -> Batching {
        Batching {
            size: NonZeroUsize::new(50).expect("not zero"),
            wait: Duration::from_millis(1),
            hold: Duration::from_secs(1),
        }
    }
}

#[derive(Debug)]
struct Shared {
    upstream: Upstream,
    templates: Arc<Templates>,
    batches: Option<Arc<Batches>>,
    tls: Option<Acceptor>,
    tls_required: bool,
    cancels: Cancels,
    greetings: Greetings,
    greeting_max: Duration,
    /// A permit for each session.
    sessions: Semaphore,
    clients_max: usize,
    counts: Arc<Counts>,
    log: Log,
}

/// Serves clients of `listener` until `stop` completes. Clients without a transaction are then disconnected at once
/// (57P01), the others after their transactions. When `abandon` completes, the remaining clients are disconnected.
///
/// # Errors
/// The settings are inconsistent ([`Settings::check`]).
pub async fn serve(
    listener: TcpListener,
    settings: Settings,
    counts: Arc<Counts>,
    stop: impl Future<Output = ()>,
    abandon: impl Future<Output = ()>,
) -> Result<(), String> {
    settings.check()?;
    let Settings { upstream, templates, batching, tls, tls_required, clients_max, .. } = settings;
    let Settings { greeting_max, log, counts_interval, .. } = settings;
    let shared = Arc::new(Shared {
        upstream,
        templates: Arc::new(templates),
        batches: batching.map(|batching| Arc::new(Batches::new(batching, Arc::clone(&counts)))),
        tls,
        tls_required,
        cancels: Cancels::default(),
        greetings: Greetings::new(clients_max),
        greeting_max,
        sessions: Semaphore::new(clients_max.min(Semaphore::MAX_PERMITS)),
        clients_max,
        counts,
        log,
    });
    let run = |stream, address, stopped| {
        // Registered here and not in the task, so that they are in order of arrival.
        let greeting = shared.greetings.enter();
        client::run(stream, address, greeting, Arc::clone(&shared), stopped)
    };
    let failed = |error| {
        shared.counts.accept_failures.add(1);
        shared.log.line(format_args!("a connection was not accepted: {error}"));
    };
    let drained = seriatim_wire::clients::serve(listener, run, failed, stop, abandon);
    tokio::select! {
        () = drained => {}
        () = counts::report(&shared.counts, &shared.log, counts_interval) => {}
    }
    Ok(())
}
