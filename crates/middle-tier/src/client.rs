//! A client from its first packet to its last: the I/O of its session, and requests to cancel.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use seriatim_wire::errors::{self, Severity, SqlState};
use seriatim_wire::startup::{self, First};
use seriatim_wire::{Duplex, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, SemaphorePermit, watch};
use tokio::time::Instant;

use crate::session::{Session, Violation, Whereabouts};
use crate::{Shared, greetings};

/// The error for clients when the middle tier ends.
const STOPPING: &str = "terminating connection due to administrator command";
/// The size of a read.
const READ_BYTES: usize = 16 << 10;
/// How long a client may take to read the last message.
const LAST_WORD_MAX: Duration = Duration::from_secs(10);
/// How long an upstream may take to close the connection of a request to cancel.
const CANCEL_MAX: Duration = Duration::from_secs(10);

/// Waiting transactions, by the keys that cancel them.
#[derive(Debug, Default)]
pub(crate) struct Cancels(Mutex<HashMap<Bytes, Arc<Cancel>>>);

/// The state of a client's transaction, for requests to cancel.
#[derive(Debug, Default)]
struct Cancel {
    state: Mutex<Whose>,
    asked: Notify,
}

/// The state of one transaction.
#[derive(Debug, Default)]
struct Whose {
    transaction: u64,
    whereabouts: Whereabouts,
    /// Whether the transaction should be given up.
    is_asked: bool,
}

impl Cancels {
    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<Bytes, Arc<Cancel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels a waiting transaction. Returns whether there is one.
    fn cancel(&self, key: &[u8]) -> bool {
        let Some(cancel) = self.locked().get(key).cloned() else { return false };
        let mut state = cancel.locked();
        // A running transaction may fail by itself before the upstream gets the request. It must not be retried then.
        state.is_asked = state.whereabouts != Whereabouts::Elsewhere;
        let waits = state.whereabouts == Whereabouts::Waits;
        if waits {
            cancel.asked.notify_one();
        }
        waits
    }
}

impl Cancel {
    fn locked(&self) -> std::sync::MutexGuard<'_, Whose> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the state of this transaction. Returns whether it should be given up. A request that was meant
    /// for the former transaction and came late does not affect this one.
    fn set(&self, transaction: u64, whereabouts: Whereabouts) -> bool {
        let mut state = self.locked();
        let is_same = state.transaction == transaction && whereabouts != Whereabouts::Elsewhere;
        *state = Whose { transaction, whereabouts, is_asked: state.is_asked && is_same };
        state.is_asked
    }

    /// Records that the waiting transaction is sent. Returns `false` if it should be given up instead.
    fn sends(&self) -> bool {
        let mut state = self.locked();
        if !state.is_asked {
            state.whereabouts = Whereabouts::Runs;
        }
        !state.is_asked
    }
}

/// Removes the entry of a key when its session ends.
struct Registered<'a>(&'a Cancels, Bytes);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.0.locked().remove(&self.1);
    }
}

/// Serves a connection until it has ended.
pub(crate) async fn run(
    stream: TcpStream,
    address: SocketAddr,
    greeting: greetings::Greeting,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
) {
    // Relevant errors of the client's connection have been logged. The others are clients that have gone.
    let _ = serve(stream, address, greeting, &shared, stopped).await;
}

/// A client that has sent its first packet.
struct Greeted {
    stream: Stream,
    /// Bytes that it sent behind the packet.
    buffer: BytesMut,
    first: First,
    is_encrypted: bool,
}

async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    greeting: greetings::Greeting,
    shared: &Shared,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let present = shared.counts.connections.enter();
    let mut greeting = Greeting { shared, place: greeting };
    seriatim_wire::prepare(&stream)?;
    let fails = |why: std::fmt::Arguments<'_>| {
        shared.counts.ungreeted.add(1);
        shared.log.line(format_args!("client {address}: no session began: {why}"));
    };
    let greeted = tokio::select! {
        greeted = greet(Box::new(stream), shared, address) => greeted,
        () = tokio::time::sleep(shared.greeting_max) => {
            fails(format_args!("it has not sent a request for {} s", shared.greeting_max.as_secs_f64()));
            return Ok(());
        }
        () = greeting.place.pushed_out() => {
            fails(format_args!("{} newer connections are waiting for a session", shared.clients_max));
            return Ok(());
        }
        () = stops(&mut stopped) => return Ok(()),
    };
    let (client, start, place) = match greeted {
        Ok(Some(begun)) => begun,
        Ok(None) => return Ok(()),
        Err(error) => {
            fails(format_args!("{error}"));
            return Err(error);
        }
    };
    drop((greeting, present));
    let _present = shared.counts.sessions.enter();
    shared.counts.clients.add(1);
    let Greeted { stream: mut client, buffer, is_encrypted, .. } = client;
    let is_plain = startup::parameter(&start, "replication").is_ok_and(|value| value.is_none());
    let connected = tokio::select! {
        connected = shared.upstream.connect() => connected,
        () = stops(&mut stopped) => return say_last(&mut client, SqlState::ADMIN_SHUTDOWN, STOPPING).await,
    };
    let (upstream, upstream_encrypted) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            shared.counts.upstream_failures.add(1);
            let text = format!("connection to the server at {} failed: {error}", shared.upstream);
            shared.log.line(format_args!("client {address}: {text}"));
            return say_last(&mut client, SqlState::UNABLE_TO_CONNECT, &text).await;
        }
    };
    let (templates, counts) = (Arc::clone(&shared.templates), Arc::clone(&shared.counts));
    let mut session = Session::new(templates, counts, &start, is_plain, is_encrypted && upstream_encrypted);
    session.client_in = buffer;
    let ended = converse(client, upstream, session, address, shared, stopped).await;
    drop(place);
    ended
}

/// The registration of a connection without a session.
struct Greeting<'a> {
    shared: &'a Shared,
    place: greetings::Greeting,
}

impl Drop for Greeting<'_> {
    fn drop(&mut self) {
        self.shared.greetings.leave(&self.place);
    }
}

/// Completes when the middle tier should end.
async fn stops(stopped: &mut watch::Receiver<bool>) {
    // If the sender has gone, the middle tier has ended.
    let _ = stopped.wait_for(|stops| *stops).await;
}

/// Handles a client up to the beginning of its session: the first packet, and a place. Returns `None` if the
/// client asked to cancel a query, was refused, or has gone.
async fn greet<'a>(
    stream: Stream,
    shared: &'a Shared,
    address: SocketAddr,
) -> io::Result<Option<(Greeted, Bytes, SemaphorePermit<'a>)>> {
    let Some(mut greeted) = accept(stream, shared).await? else { return Ok(None) };
    let (state, text) = match &greeted.first {
        First::Cancel(packet, key) => {
            if !shared.cancels.cancel(key) {
                let _ = tokio::time::timeout(CANCEL_MAX, forward_cancel(shared, packet)).await;
            }
            greeted.stream.shutdown().await?;
            return Ok(None);
        }
        First::Session(_) if shared.tls_required && !greeted.is_encrypted => {
            let text = "the middle tier requires TLS: connect with sslmode=require or stricter";
            (SqlState::INVALID_AUTHORIZATION, text)
        }
        First::Session(start) => match shared.sessions.try_acquire() {
            Ok(place) => {
                let start = start.clone();
                return Ok(Some((greeted, start, place)));
            }
            Err(_) => (SqlState::TOO_MANY_CONNECTIONS, "sorry, the middle tier has too many clients already"),
        },
        First::Ssl | First::Gss => unreachable!("these are answered"),
    };
    shared.counts.refused.add(1);
    shared.log.line(format_args!("client {address}: refused ({state}): {text}"));
    say_last(&mut greeted.stream, state, text).await?;
    Ok(None)
}

/// Reads the first packet, and answers preceding requests for encryption. Returns `None` if the client has gone.
async fn accept(mut stream: Stream, shared: &Shared) -> io::Result<Option<Greeted>> {
    let invalid = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidData, text));
    let (mut buffer, mut is_encrypted, mut asked) = (BytesMut::new(), false, Vec::new());
    loop {
        let first = match startup::read(&mut stream, &mut buffer).await? {
            Some(first @ (First::Ssl | First::Gss)) => first,
            Some(first) => return Ok(Some(Greeted { stream, buffer, first, is_encrypted })),
            None => return Ok(None),
        };
        if asked.contains(&first) {
            return invalid("it requests the same encryption twice");
        }
        match &shared.tls {
            Some(tls) if first == First::Ssl => {
                // Unencrypted bytes behind the request would be taken for encrypted ones (CVE-2021-23214).
                if !buffer.is_empty() {
                    return invalid("it sent data behind its request for TLS, before TLS began");
                }
                stream.write_all(b"S").await?;
                stream.flush().await?;
                stream = tls.accept(stream).await?;
                is_encrypted = true;
            }
            _ => {
                stream.write_all(b"N").await?;
                stream.flush().await?;
            }
        }
        asked.push(first);
    }
}

/// Forwards a request to cancel, and waits until the server has handled it: then the server closes the connection.
async fn forward_cancel(shared: &Shared, packet: &[u8]) -> io::Result<()> {
    let (mut upstream, _) = shared.upstream.connect().await?;
    upstream.write_all(packet).await?;
    upstream.flush().await?;
    upstream.read(&mut [0]).await.map(|_| ())
}

/// Refuses a client, which has limited time to read the error.
async fn say_last(client: &mut Stream, state: SqlState, text: &str) -> io::Result<()> {
    let say = async {
        client.write_all(&errors::response(Severity::Fatal, state, text, None)).await?;
        client.flush().await?;
        client.shutdown().await
    };
    tokio::time::timeout(LAST_WORD_MAX, say).await?
}

/// One end of a connection, which is read and written at the same time.
struct End {
    reader: ReadHalf<Stream>,
    writer: WriteHalf<Stream>,
    /// Written bytes may not have been flushed.
    is_dirty: bool,
    /// The peer sends nothing more.
    has_ended: bool,
    /// The peer accepts nothing more.
    is_deaf: bool,
}

impl End {
    fn new(stream: impl Duplex + 'static) -> End {
        let (reader, writer) = tokio::io::split(Box::new(stream) as Stream);
        End { reader, writer, is_dirty: false, has_ended: false, is_deaf: false }
    }
}

/// Writes part of a buffer, and flushes when it is empty. Dropping the future is safe.
async fn write(writer: &mut WriteHalf<Stream>, is_dirty: &mut bool, buffer: &mut BytesMut) -> io::Result<()> {
    if buffer.is_empty() {
        writer.flush().await?;
        *is_dirty = false;
        return Ok(());
    }
    let written = writer.write_buf(buffer).await?;
    *is_dirty = true;
    if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
}

/// Moves bytes between client, session and upstream until one of them has ended.
async fn converse(
    client: Stream,
    upstream: Stream,
    mut session: Session,
    address: SocketAddr,
    shared: &Shared,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let (mut client, mut upstream) = (End::new(client), End::new(upstream));
    let cancel = Arc::new(Cancel::default());
    let mut registered = None;
    // Declared before its admission, so that it is dropped after the admission.
    let mut participant = None;
    let mut admission = None;
    let mut is_stopping = false;
    let mut is_shut = false;
    let mut closes = Instant::now();
    let mut why = String::from("it closed the connection");
    loop {
        match session.advance() {
            Ok(()) => {}
            Err(Violation::OfClient(malformed)) => session.violated(malformed),
            Err(Violation::OfUpstream(malformed)) => {
                session.lost(&shared.upstream.to_string(), &format!("protocol violation: {malformed}"));
            }
        }
        if client.is_deaf {
            session.to_client.clear();
            session.unheard();
            client.is_dirty = false;
        }
        if registered.is_none()
            && let Some(key) = session.key.clone()
        {
            shared.cancels.locked().insert(key.clone(), Arc::clone(&cancel));
            registered = Some(Registered(&shared.cancels, key));
        }
        if upstream.has_ended && !session.is_closing {
            session.lost(&shared.upstream.to_string(), &why);
        }
        if is_stopping && session.is_idle() && !session.is_closing {
            session.stop(STOPPING);
        }
        if let Some(failure) = session.failure.take() {
            shared.log.line(format_args!("client {address}: {failure}"));
        }
        if cancel.set(session.transaction(), session.whereabouts()) && session.may_go() {
            session.cancel();
            cancel.set(session.transaction(), Whereabouts::Elsewhere);
            continue;
        }
        if !session.keeps_place() {
            admission = None;
        }
        if let Some(footprint) = session.wants_place() {
            admission = shared.batches.as_ref().map(|batches| {
                let participant = participant.get_or_insert_with(|| batches.join());
                participant.enter(footprint)
            });
        }
        if client.has_ended {
            session.client_gone();
            if session.has_passed() && !upstream.is_dirty && !is_shut {
                // The upstream still handles what it has, and then sees the end.
                is_shut = true;
                upstream.writer.shutdown().await?;
            }
        }
        if !session.is_closing {
            closes = Instant::now() + LAST_WORD_MAX;
        } else if session.to_client.is_empty() && !client.is_dirty {
            return tokio::time::timeout_at(closes, client.writer.shutdown()).await?;
        }
        for buffer in [&mut session.client_in, &mut session.upstream_in] {
            if buffer.capacity() - buffer.len() < READ_BYTES / 4 {
                buffer.reserve(READ_BYTES);
            }
        }
        let may_write = !upstream.is_deaf && (!session.to_upstream.is_empty() || upstream.is_dirty);
        tokio::select! {
            read = client.reader.read_buf(&mut session.client_in), if session.reads_client() && !client.has_ended => {
                client.has_ended = !matches!(read, Ok(1..));
                client.is_deaf |= read.is_err();
            }
            read = upstream.reader.read_buf(&mut session.upstream_in),
            if session.reads_upstream() && !upstream.has_ended => {
                upstream.has_ended = !matches!(read, Ok(1..));
                if let Err(error) = read {
                    why = error.to_string();
                }
            }
            written = write(&mut client.writer, &mut client.is_dirty, &mut session.to_client),
                if !session.to_client.is_empty() || client.is_dirty =>
            {
                client.is_deaf |= written.is_err();
            }
            written = write(&mut upstream.writer, &mut upstream.is_dirty, &mut session.to_upstream), if may_write => {
                // Its last message is still to be read.
                upstream.is_deaf = written.is_err();
            }
            () = may_go(admission.as_mut()), if session.may_go() => {
                if cancel.sends() {
                    session.go();
                }
            }
            () = cancel.asked.notified(), if session.whereabouts() == Whereabouts::Waits => {}
            () = tokio::time::sleep_until(closes), if session.is_closing => return Err(io::ErrorKind::TimedOut.into()),
            () = stops(&mut stopped), if !is_stopping => is_stopping = true,
        }
    }
}

/// Waits until the transaction may run. Without batches it may run at once.
async fn may_go(admission: Option<&mut crate::batches::Admission>) {
    if let Some(admission) = admission {
        admission.go().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_to_cancel_is_remembered_if_the_transaction_is_retried() {
        let (cancels, cancel) = (Cancels::default(), Arc::new(Cancel::default()));
        let key = Bytes::from_static(b"key");
        assert!(!cancels.cancel(&key));
        cancels.locked().insert(key.clone(), Arc::clone(&cancel));
        assert!(
            !cancels.cancel(&key) && !cancel.set(1, Whereabouts::Waits),
            "an earlier request does not affect the transaction"
        );
        assert!(cancel.sends());
        // The upstream gets the request as well, but the transaction may fail before.
        assert!(!cancels.cancel(&key));
        assert!(cancel.set(1, Whereabouts::Runs) && cancel.set(1, Whereabouts::Waits));
        assert!(
            !cancel.set(1, Whereabouts::Elsewhere) && !cancel.set(2, Whereabouts::Waits),
            "the request was for the former transaction"
        );
        assert!(cancels.cancel(&key) && !cancel.sends() && cancel.set(2, Whereabouts::Waits));
        // The next transaction may wait as soon as this one has ended.
        assert!(!cancel.set(3, Whereabouts::Waits) && cancel.sends());
        assert!(
            !cancels.cancel(&key) && !cancel.set(4, Whereabouts::Waits),
            "the former transaction committed in spite of the request"
        );
    }
}
