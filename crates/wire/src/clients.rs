//! Connections of a listener: accepted, and ended with the server.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a task for each connection of `listener` until `stop` completes. `run` makes the task; its receiver becomes
/// true then. When `abandon` completes, the remaining tasks are dropped. `failed` is called for each connection that
/// could not be accepted.
pub async fn serve<T: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    mut run: impl FnMut(TcpStream, SocketAddr, watch::Receiver<bool>) -> T,
    mut failed: impl FnMut(io::Error),
    stop: impl Future<Output = ()>,
    abandon: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    let mut clients = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = clients.join_next() => continue,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, address)) => drop(clients.spawn(run(stream, address, stopped.clone()))),
            // An error of this connection, or too many open files: another connection may succeed.
            Err(error) => {
                failed(error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    tokio::select! {
        () = async { while clients.join_next().await.is_some() {} } => {}
        () = abandon => clients.shutdown().await,
    }
}
