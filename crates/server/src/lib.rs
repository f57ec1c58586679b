//! A server that speaks the protocol of PostgreSQL, version 3.
//!
//! [`serve`] accepts connections. Each has a session ([`session`]), a state machine of messages that does no I/O.
//! Before a client has sent its first packet whole and asks for a session, nothing of it is decoded. All lengths are
//! checked before memory is reserved for what they announce.
//!
//! Connections are those of the same machine: there are no passwords yet. An address that others can reach is refused.

mod connection;
mod session;
mod values;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use seriatim_sql::STACK_BYTES;

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
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { connections_max: 100, greeting_max: Duration::from_secs(10) }
    }
}

/// What connections share.
struct Shared {
    database: Database,
    settings: Settings,
    /// A permit for each session.
    sessions: Semaphore,
    cancels: Cancels,
}

/// The sessions that can be cancelled, by what their clients know.
#[derive(Default)]
struct Cancels {
    next: AtomicI32,
    known: Mutex<HashMap<(i32, i32), Canceller>>,
}

impl Cancels {
    /// Enters a session; the result is its process number and its secret.
    fn enter(&self, canceller: Canceller) -> (i32, i32) {
        let number = self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let key = (number, entropy() as i32);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, canceller);
        key
    }

    fn leave(&self, key: (i32, i32)) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// Cancels what a session runs. Nothing happens if nobody has the key.
    fn cancel(&self, key: (i32, i32)) {
        if let Some(canceller) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            canceller.cancel();
        }
    }
}

/// Whether a server may listen at an address: only clients of the same machine reach it.
///
/// # Errors
/// It may not; why.
pub fn check_address(address: SocketAddr) -> Result<(), String> {
    match address.ip().is_loopback() {
        true => Ok(()),
        false => Err(format!(
            "{address} can be reached from other machines, and there are no passwords yet: listen on 127.0.0.1, or let \
             a proxy or a tunnel with authentication connect to it"
        )),
    }
}

/// Serves clients of `listener`. The threads of the runtime need a stack of [`STACK_BYTES`].
///
/// When `stop` completes, clients without a transaction are disconnected at once
/// (57P01), the others after their transactions. When `abandon` completes, the remaining ones are disconnected, and
/// their transactions rolled back.
///
/// # Errors
/// Others can reach the listener's address.
pub async fn serve(
    listener: TcpListener,
    database: Database,
    settings: Settings,
    stop: impl Future<Output = ()>,
    abandon: impl Future<Output = ()>,
) -> Result<(), String> {
    check_address(listener.local_addr().map_err(|error| error.to_string())?)?;
    let sessions = Semaphore::new(settings.connections_max.min(Semaphore::MAX_PERMITS));
    let shared = Arc::new(Shared { database, settings, sessions, cancels: Cancels::default() });
    let run = |stream, _, stopped| connection::run(stream, Arc::clone(&shared), stopped);
    seriatim_wire::clients::serve(listener, run, drop, stop, abandon).await;
    Ok(())
}
