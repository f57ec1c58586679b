//! A proxy before PostgreSQL that runs transactions which would conflict one after another.
//!
//! Clients speak the PostgreSQL protocol to it, and each has a connection of its own to the server behind it (the *upstream*). A
//! transaction that comes whole, in one message or one pipeline, and is an instance of a *template*, is batched with those of other
//! clients and ordered by what it reads and writes, before the upstream sees it. All else is passed on as it came.
//!
//! Invariant: **what the upstream gets is what the client sent, to the byte and in its order**, and the client gets what the upstream
//! answered. There are three exceptions: of the ways to authenticate, those with channel binding are not offered; a transaction that the
//! upstream has rolled back for its serializability is sent again, from its beginning, if its template says so, and what it answered the first time
//! is dropped; and what the upstream can no longer say, because it has gone, the proxy says.
//!
//! The source is Ding, Kot, Gehrke, "Improving Optimistic Concurrency Control Through Transaction Batching and Operation
//! Reordering", PVLDB 12(2), 2018, §5.6. What differs: record 18 in `docs/decisions`.
//!
//! In the order of a transaction: [`serve`] accepts a client (`client`), which connects to the upstream (`upstream`); a `session`
//! follows what both say, without doing any I/O; `templates` tells it what a transaction is; `batches` says when it may go.

mod batches;
mod client;
mod counts;
mod session;
mod templates;
mod upstream;

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

pub use seriatim_wire::tls::Acceptor;

pub use counts::{Counted, Counts};
pub use templates::{EXAMPLE, Templates};
pub use upstream::{SslMode, Upstream};

use batches::Batches;
use client::Cancels;

/// How a middle tier runs.
#[derive(Debug)]
pub struct Settings {
    /// Where PostgreSQL is.
    pub upstream: Upstream,
    /// What is batched.
    pub templates: Templates,
    /// How it is batched; none: transactions of templates go at once.
    pub batching: Option<Batching>,
    /// TLS for clients; none: it is refused to them.
    pub tls: Option<Acceptor>,
    /// Sessions without TLS are refused.
    pub tls_required: bool,
    /// Clients at the same time, at most.
    pub clients_max: usize,
}

/// How transactions are batched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Transactions of a batch, at most. The paper's is 50 (§5.6).
    pub size: NonZeroUsize,
    /// For how long a transaction waits for company, at most.
    pub wait: Duration,
    /// For how long a transaction waits for others, its batch's forming included, at most; then it goes.
    pub hold: Duration,
}

/// Batches of 50, for which nobody waits longer than a millisecond, nor for others longer than a second: PostgreSQL's own
/// `deadlock_timeout`, after which it looks whether a wait can end.
impl Default for Batching {
    fn default() -> Batching {
        Batching {
            size: NonZeroUsize::new(50).expect("not zero"),
            wait: Duration::from_millis(1),
            hold: Duration::from_secs(1),
        }
    }
}

/// What all clients share.
#[derive(Debug)]
struct Shared {
    upstream: Upstream,
    templates: Arc<Templates>,
    batches: Option<Arc<Batches>>,
    tls: Option<Acceptor>,
    tls_required: bool,
    cancels: Cancels,
    counts: Arc<Counts>,
}

/// Serves clients of `listener` until `stop` completes; then those without a transaction are sent away at once (57P01), the others
/// when they have ended theirs, and those that are left when `abandon` completes are cut off. Counts what happens in `counts`.
pub async fn serve(
    listener: TcpListener,
    settings: Settings,
    counts: Arc<Counts>,
    stop: impl Future<Output = ()>,
    abandon: impl Future<Output = ()>,
) {
    let Settings { upstream, templates, batching, tls, tls_required, clients_max } = settings;
    let batches = batching.map(|batching| Arc::new(Batches::new(batching, Arc::clone(&counts))));
    let (cancels, templates) = (Cancels::default(), Arc::new(templates));
    let shared = Arc::new(Shared { upstream, templates, batches, tls, tls_required, cancels, counts });
    let (stopping, stopped) = watch::channel(false);
    let mut clients = tokio::task::JoinSet::new();
    tokio::pin!(stop, abandon);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = clients.join_next() => continue,
            () = &mut stop => break,
        };
        match accepted {
            // Those that are being told that there is no room take some, too.
            Ok(_) if clients.len() >= clients_max.saturating_mul(2) => {}
            Ok((stream, _)) => {
                let has_room = clients.len() < clients_max;
                clients.spawn(client::run(stream, Arc::clone(&shared), stopped.clone(), has_room));
            }
            // Of this connection, or of too many open files: others may do.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    drop(listener);
    stopping.send_replace(true);
    tokio::select! {
        () = async { while clients.join_next().await.is_some() {} } => {}
        () = &mut abandon => clients.shutdown().await,
    }
}
