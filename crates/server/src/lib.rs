//! A server that speaks the protocol of PostgreSQL, version 3.
//!
//! [`serve`] accepts connections. Each has a session ([`session`]), a state machine of messages that does no I/O.
//! Before a client is known ([`authentication`]), nothing of it is decoded but its first packet and what proves who it
//! is. All lengths are checked before memory is reserved for what they announce.
//!
//! Clients of the same machine need no password if their role has none. Those of others need one, and TLS.

mod authentication;
mod connection;
mod counts;
mod session;

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

pub use counts::{Counts, serve_http};
pub use seriatim_sql::STACK_BYTES;
pub use seriatim_wire::log::Log;
pub use seriatim_wire::tls::Acceptor;

use seriatim::rng::entropy;
use seriatim::{Canceller, Database};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most connections with a session at a time.
    pub connections_max: usize,
    /// How long a client may take from its connection to its session.
    pub greeting_max: Duration,
    /// The most connections of one address that have not logged in.
    pub waiting_max: usize,
    /// How long a client whose log-in failed waits for the answer.
    pub failure_delay: Duration,
    /// Whether a role without a password cannot connect, even from this machine.
    pub passwords_always: bool,
    /// TLS, for clients that ask for it. Those of other machines must.
    pub tls: Option<Tls>,
    /// Settings of sessions that have other values than usual.
    pub defaults: Vec<(String, String)>,
    /// Where failures and slow statements are told.
    pub log: Log,
    /// Whether connections are told there, too.
    pub log_connections: bool,
    /// What is counted.
    pub counts: Arc<Counts>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            connections_max: 100,
            greeting_max: Duration::from_secs(10),
            waiting_max: 64,
            failure_delay: Duration::from_millis(200),
            passwords_always: false,
            tls: None,
            defaults: Vec::new(),
            log: Log::default(),
            log_connections: false,
            counts: Arc::default(),
        }
    }
}

/// Messages that are acted on at a time: each takes a thread, perhaps until the disk has written. So many are of
/// sessions whose transactions have begun, and as many are of others. The others may wait for the former.
const RUNNING_MAX: usize = 64;

/// The most threads that a runtime needs beside its workers (`max_blocking_threads`). One acts on each message, and as
/// many have just done so.
pub const THREADS_MAX: usize = 4 * RUNNING_MAX;

/// The server's certificate and key, which can be replaced while it runs.
#[derive(Clone, Debug)]
pub struct Tls(Arc<RwLock<Acceptor>>);

impl Tls {
    /// TLS with this certificate and key.
    pub fn new(acceptor: Acceptor) -> Tls {
        Tls(Arc::new(RwLock::new(acceptor)))
    }

    /// Replaces certificate and key for connections that begin from now on.
    pub fn replace(&self, acceptor: Acceptor) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
    }

    pub(crate) fn current(&self) -> Acceptor {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What connections share.
struct Shared {
    database: Database,
    settings: Settings,
    /// Whether only clients of this machine reach the server.
    is_loopback: bool,
    /// A permit for each session.
    sessions: Semaphore,
    /// A permit for each message that is acted on, of sessions whose transactions have begun.
    running_begun: Semaphore,
    /// The same, of other sessions.
    running: Semaphore,
    cancels: Cancels,
    /// Connections that have not logged in, by address.
    waiting: Places<IpAddr>,
    /// Sessions, by role.
    of_roles: Places<u32>,
    /// What salts of unknown users are made of, while there is no password.
    mock_secret: Vec<u8>,
}

/// How many have a place, by what they have in common.
struct Places<K>(Mutex<HashMap<K, usize>>);

impl<K> Default for Places<K> {
    fn default() -> Places<K> {
        Places(Mutex::default())
    }
}

/// A place, until it is dropped.
struct Place<'p, K: Copy + Eq + Hash>(&'p Places<K>, K);

impl<K: Copy + Eq + Hash> Places<K> {
    /// Takes a place, if fewer than `most` are taken.
    fn enter(&self, of: K, most: usize) -> Option<Place<'_, K>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(of).or_insert(0);
        if *count < most {
            *count += 1;
            return Some(Place(self, of));
        }
        if *count == 0 {
            taken.remove(&of);
        }
        None
    }
}

impl<K: Copy + Eq + Hash> Drop for Place<'_, K> {
    fn drop(&mut self) {
        let mut taken = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.1);
            }
        }
    }
}

/// The sessions that can be cancelled, by what their clients know.
#[derive(Default)]
struct Cancels(Mutex<HashMap<(i32, i32), Canceller>>);

impl Cancels {
    /// Enters the session with this number; the result is its process number and its secret.
    fn enter(&self, number: i32, canceller: Canceller) -> (i32, i32) {
        let key = (number, entropy() as i32);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, canceller);
        key
    }

    fn leave(&self, key: (i32, i32)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// Cancels what a session runs. Nothing happens if nobody has the key.
    fn cancel(&self, key: (i32, i32)) {
        if let Some(canceller) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            canceller.cancel();
        }
    }
}

/// Whether a server with these settings may listen at an address. Clients of other machines need TLS and a password.
///
/// # Errors
/// It may not; why, and what would be right.
pub fn check_address(address: SocketAddr, database: &Database, settings: &Settings) -> Result<(), String> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let reached = format!("{address} can be reached from other machines");
    if settings.tls.is_none() {
        return Err(format!(
            "{reached}: give a certificate and its key (--tls-cert, --tls-key), or listen on 127.0.0.1"
        ));
    }
    match database.access().roles().any(|(_, role)| role.login && role.password.is_some()) {
        true => Ok(()),
        false => Err(format!(
            "{reached}, and no role has a password, so nobody could connect: `seriatim password DIR ROLE` sets one"
        )),
    }
}

/// The roles that can connect without a password from this machine.
pub fn without_password(database: &Database) -> Vec<String> {
    let access = database.access();
    let open = access.roles().filter(|(_, role)| role.login && role.password.is_none());
    open.map(|(_, role)| role.name.clone()).collect()
}

/// Serves clients of `listener`. The threads of the runtime need a stack of [`STACK_BYTES`]. There need to be no more
/// than [`THREADS_MAX`] beside its workers.
///
/// When `stop` completes, clients without a transaction are disconnected at once
/// (57P01), the others after their transactions. When `abandon` completes, the remaining ones are disconnected, and
/// their transactions rolled back.
///
/// # Errors
/// Others can reach the listener's address, and need neither TLS nor passwords.
pub async fn serve(
    listener: TcpListener,
    database: Database,
    settings: Settings,
    stop: impl Future<Output = ()>,
    abandon: impl Future<Output = ()>,
) -> Result<(), String> {
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    check_address(address, &database, &settings)?;
    let sessions = Semaphore::new(settings.connections_max.min(Semaphore::MAX_PERMITS));
    let (counts, log) = (Arc::clone(&settings.counts), settings.log.clone());
    let stop = async {
        stop.await;
        counts.is_stopping.store(true, Ordering::Relaxed);
    };
    let shared = Arc::new(Shared {
        database,
        settings,
        is_loopback: address.ip().is_loopback(),
        sessions,
        running_begun: Semaphore::new(RUNNING_MAX),
        running: Semaphore::new(RUNNING_MAX),
        cancels: Cancels::default(),
        waiting: Places::default(),
        of_roles: Places::default(),
        mock_secret: seriatim_scram::secret().into_bytes(),
    });
    let run = |stream, address, stopped| connection::run(stream, address, Arc::clone(&shared), stopped);
    let failed = |error| log.line(format_args!("a connection could not be accepted: {error}"));
    seriatim_wire::clients::serve(listener, run, failed, stop, abandon).await;
    Ok(())
}
