//! Follows the messages of a client and its upstream, and decides what is forwarded. It has no I/O, clock or
//! thread, so tests can simulate any network.
//!
//! Bytes arrive in two buffers and leave through two others; [`Session::advance`] moves them. A transaction of
//! a template can begin only where the upstream has answered everything and no transaction is open. A candidate
//! is held until it is complete or can no longer match. A complete transaction waits ([`Session::wants_place`])
//! until it may run ([`Session::go`]).
//!
//! Invariant: a transaction is sent again only after the upstream has reported its rollback for
//! serializability. The client must not have got any of its answers. If the client or the network interferes, the
//! client gets the upstream's last answer.

#[cfg(test)]
mod tests;
mod upstream_side;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use seriatim_wire::errors::{self, Severity, SqlState};
use seriatim_wire::frames::{Frames, Handling, Piece, client_length_max};
use seriatim_wire::message::{self, Layout};
use seriatim_wire::messages::extendedquery::{Bind, Close, Describe, Execute, Parse};
use seriatim_wire::messages::simplequery::Query;
use seriatim_wire::{Malformed, startup};

use crate::batches::{Footprint, Key};
use crate::counts::Counts;
use crate::templates::{Instance, Pipeline, Prepared, Templates};

/// The most bytes of a message that is decoded, and of a pipeline that is held.
const INSPECTED_MAX: usize = 64 << 10;
/// The most bytes of answers that are kept for a possible retry. A transaction with more is not retried.
const RETAINED_MAX: usize = 256 << 10;
/// At so many owed answers, nothing more is read from the client. At half of them, no more statement names are
/// recorded. So the other half is owed for messages whose answers the upstream sends without more input.
const OWED_MAX: usize = 4096;
/// The most statements prepared by name that are recorded. Later ones cannot belong to a template's transaction.
const STATEMENTS_MAX: usize = 1024;
/// The longest name of a statement, as in PostgreSQL (`NAMEDATALEN - 1`).
const NAME_MAX: usize = 63;
/// If more bytes than this wait to be written to a side, nothing more is read for it.
const BUFFERED_MAX: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Session {
    templates: Arc<Templates>,
    counts: Arc<Counts>,
    pub(crate) client_in: BytesMut,
    pub(crate) upstream_in: BytesMut,
    pub(crate) to_client: BytesMut,
    pub(crate) to_upstream: BytesMut,
    client_frames: Frames,
    upstream_frames: Frames,
    /// Whether both connections are encrypted.
    both_encrypted: bool,
    /// The upstream offered channel binding, which was removed from the offer.
    binding_withheld: bool,
    /// The upstream has sent `AuthenticationOk`. It executes nothing before.
    is_authenticated: bool,
    /// The key that cancels queries of this session: process and secret.
    pub(crate) key: Option<Bytes>,
    /// The database. It is part of every key, so keys of different databases differ.
    database: Vec<u8>,
    /// Answers that the upstream owes.
    owed: VecDeque<ExpectedAnswer>,
    /// The client has sent messages of the extended protocol without a following `Sync` or query: they are in
    /// an open transaction. After an error the upstream ignores everything up to a `Sync`.
    is_unsynced: bool,
    /// The number of queries after such messages. The upstream answers each with a `ReadyForQuery`, or ignores
    /// all of them after an error.
    unsynced_queries: usize,
    /// The upstream copies from the client, and ignores `Sync` until the client ends the COPY.
    ignores_sync: bool,
    /// Whether `owed` has every `ReadyForQuery` that the upstream owes. Otherwise it has only the certain ones.
    is_exact: bool,
    /// The tag of an incomplete message of the client. It counts when it is complete, since the upstream
    /// executes nothing of it before.
    incomplete: Option<u8>,
    /// The client has got part of a message, and its rest must come next.
    is_within: bool,
    /// The status in the last `ReadyForQuery`: `I` outside of a transaction, `T` in one, `E` in a failed one.
    status: Option<u8>,
    /// Whether `owed` is known. It is not in replication, nor after a COPY in the extended protocol, which
    /// ignores `Sync`.
    is_tracked: bool,
    /// The parameter `standard_conforming_strings`.
    conforming: bool,
    /// Whether `client_encoding` is UTF8.
    is_utf8: bool,
    /// Statements that the client has prepared by name, if a template has them: at most [`STATEMENTS_MAX`].
    statements: HashMap<String, Prepared>,
    /// The number of transactions of templates so far.
    transactions: u64,
    phase: Phase,
    /// The client has got its last message.
    pub(crate) is_closing: bool,
    /// Why the session failed, for the log.
    pub(crate) failure: Option<String>,
    /// The upstream has sent its last message.
    upstream_fatal: bool,
    /// The client has sent its last message.
    is_leaving: bool,
}

/// The state of a template's transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TemplateState {
    /// There is none.
    #[default]
    Elsewhere,
    /// It was sent.
    Runs,
    /// It waits, or will wait before it is sent again.
    Waits,
}

/// The side that violates the protocol.
#[derive(Debug)]
pub(crate) enum Violation {
    OfClient(Malformed),
    OfUpstream(Malformed),
}

/// An answer that the upstream owes.
#[derive(Debug)]
enum ExpectedAnswer {
    /// `ParseComplete`, for a statement with this name.
    Parse(Option<(String, Prepared)>),
    /// `CloseComplete`, for a statement with this name or for a portal.
    Close(Option<String>),
    /// `ReadyForQuery`, for a simple query or for a `Sync`.
    Ready { is_query: bool },
    /// No answer. The client has ended a COPY here. If the server was copying, it ignored an earlier `Sync`.
    CopyEnd,
}

#[derive(Debug)]
enum Phase {
    /// Messages are forwarded.
    Passing,
    /// A pipeline is held that may become a template's transaction.
    Gathering { held: Vec<Bytes>, bytes: usize, pipeline: Pipeline },
    /// A transaction waits until it may run.
    Queued { attempt: Attempt, is_entered: bool },
    /// A transaction was sent.
    Running(Attempt),
    /// A transaction failed and will be retried; ROLLBACK was sent.
    RollingBack(Attempt),
}

/// A transaction of a template.
#[derive(Debug)]
struct Attempt {
    instance: Instance,
    /// The bytes that the client sent.
    bytes: Bytes,
    is_query: bool,
    restarts: u32,
    replies: BytesMut,
    /// Where the last message in `replies` begins.
    last: usize,
    /// Whether the answers are kept back until it is known whether the transaction is retried.
    is_retained: bool,
    error: Option<SqlState>,
    is_committed: bool,
}

impl Session {
    /// A session that begins with the packet `start`. `is_tracked`: whether it may have transactions of templates.
    /// `both_encrypted`: whether both connections are encrypted.
    pub(crate) fn new(
        templates: Arc<Templates>,
        counts: Arc<Counts>,
        start: &[u8],
        is_tracked: bool,
        both_encrypted: bool,
    ) -> Session {
        let is_tracked = is_tracked && !templates.is_empty();
        Session {
            templates,
            counts,
            client_in: BytesMut::new(),
            upstream_in: BytesMut::new(),
            to_client: BytesMut::new(),
            to_upstream: BytesMut::from(start),
            client_frames: Frames::default(),
            upstream_frames: Frames::default(),
            both_encrypted,
            binding_withheld: false,
            is_authenticated: false,
            key: None,
            database: database(start),
            owed: VecDeque::from([ExpectedAnswer::Ready { is_query: true }]),
            is_unsynced: false,
            unsynced_queries: 0,
            ignores_sync: false,
            is_exact: true,
            incomplete: None,
            is_within: false,
            status: None,
            is_tracked,
            conforming: false,
            is_utf8: false,
            statements: HashMap::new(),
            transactions: 0,
            phase: Phase::Passing,
            is_closing: false,
            failure: None,
            upstream_fatal: false,
            is_leaving: false,
        }
    }

    /// Moves bytes to their targets as far as possible.
    ///
    /// # Errors
    /// When a side violates the protocol. [`Session::violated`] or [`Session::lost`] then ends the session.
    pub(crate) fn advance(&mut self) -> Result<(), Violation> {
        while !self.is_closing {
            let handling = |tag: u8, length: usize| match length < INSPECTED_MAX && b"RSKEZ13CGWA".contains(&tag) {
                true => Handling::Gather,
                false => Handling::Pass,
            };
            let next = self.upstream_frames.next(&mut self.upstream_in, handling).map_err(Violation::OfUpstream)?;
            if let Some(piece) = next {
                self.hear_upstream(piece);
                continue;
            }
            let gathers = matches!(self.phase, Phase::Gathering { .. });
            if !gathers && !matches!(self.phase, Phase::Passing) {
                break;
            }
            let (is_ready, is_boundary, is_tracked) = (self.is_ready(), self.is_boundary(), self.is_tracked);
            let handling = |tag: u8, length: usize| {
                let inspects = gathers || is_boundary && b"QPB".contains(&tag) || is_tracked && b"PC".contains(&tag);
                match length {
                    _ if length > client_length_max(tag, is_ready) => Handling::Refuse,
                    ..INSPECTED_MAX if is_ready && inspects => Handling::Gather,
                    _ => Handling::Pass,
                }
            };
            let next = self.client_frames.next(&mut self.client_in, handling).map_err(Violation::OfClient)?;
            let Some(piece) = next else { break };
            self.hear_client(piece);
        }
        Ok(())
    }

    /// Whether the upstream has sent the first `ReadyForQuery`. Before that, messages of the client are not
    /// decoded, since it may not have authenticated.
    fn is_ready(&self) -> bool {
        self.status.is_some()
    }

    /// Whether a template's transaction may begin here: nothing is in progress.
    fn is_boundary(&self) -> bool {
        self.is_tracked
            && self.status == Some(b'I')
            && self.owed.is_empty()
            && !self.is_unsynced
            && self.client_frames.is_between()
    }

    /// Decodes a message of the client. Returns `None` if it is malformed or the session is not ready.
    fn decode<M: Layout>(&self, frame: &[u8]) -> Option<M> {
        message::decode(frame).ok().filter(|_| self.is_ready())
    }

    fn hear_client(&mut self, piece: Piece) {
        let frame = match piece {
            Piece::Fragment(tag, bytes) => {
                self.release_held();
                self.to_upstream.extend_from_slice(&bytes);
                let tag = tag.or(self.incomplete.take());
                return match (self.client_frames.is_between(), tag) {
                    (true, Some(tag)) => self.note(tag, None),
                    (_, tag) => self.incomplete = tag,
                };
            }
            Piece::Whole(frame) => frame,
        };
        let tag = frame[0];
        if matches!(self.phase, Phase::Passing) {
            if !self.is_boundary() {
                return self.pass(&frame);
            }
            match tag {
                b'Q' => return self.query(frame),
                b'P' | b'B' => {
                    let pipeline = Pipeline::new(&self.templates);
                    self.phase = Phase::Gathering { held: Vec::new(), bytes: 0, pipeline };
                }
                _ => return self.pass(&frame),
            }
        }
        self.gather(frame);
    }

    fn query(&mut self, frame: Bytes) {
        let query = self.decode::<Query>(&frame).filter(|_| self.is_readable(&frame));
        match query.and_then(|query| self.templates.in_message(&query.query, self.conforming)) {
            Some(instance) => self.queue(instance, frame, true),
            None => self.pass(&frame),
        }
    }

    /// Whether the lexer can read the client's text.
    fn is_readable(&self, bytes: &[u8]) -> bool {
        bytes[5..].is_ascii() || self.is_utf8 && std::str::from_utf8(&bytes[5..]).is_ok()
    }

    fn gather(&mut self, frame: Bytes) {
        let (readable, conforming) = (self.is_readable(&frame), self.conforming);
        let Phase::Gathering { held, bytes, pipeline } = &mut self.phase else { return };
        let tag = frame[0];
        let (templates, statements) = (&*self.templates, &self.statements);
        let named = |name: &str| statements.get(name).cloned().flatten();
        let may_become = match tag {
            b'P' => {
                let parse = message::decode::<Parse>(&frame).ok().filter(|_| readable);
                parse.is_some_and(|parse| pipeline.parse(templates, &parse, conforming))
            }
            b'B' => message::decode::<Bind>(&frame).is_ok_and(|bind| pipeline.bind(templates, &bind, named)),
            b'D' => message::decode::<Describe>(&frame).is_ok_and(|describe| pipeline.describe(&describe)),
            b'E' => message::decode::<Execute>(&frame).is_ok_and(|execute| pipeline.execute(&execute)),
            b'S' => true,
            _ => false,
        };
        *bytes += frame.len();
        held.push(frame);
        if !may_become || *bytes > INSPECTED_MAX {
            return self.release_held();
        }
        if tag != b'S' {
            return;
        }
        let Phase::Gathering { held, pipeline, .. } = std::mem::replace(&mut self.phase, Phase::Passing) else {
            return;
        };
        match pipeline.sync(&self.templates) {
            Some(instance) => self.queue(instance, held.concat().into(), false),
            None => held.iter().for_each(|frame| self.pass(frame)),
        }
    }

    /// Forwards the held messages, since they do not match a template.
    fn release_held(&mut self) {
        if let Phase::Gathering { .. } = self.phase
            && let Phase::Gathering { held, .. } = std::mem::replace(&mut self.phase, Phase::Passing)
        {
            held.iter().for_each(|frame| self.pass(frame));
        }
    }

    fn pass(&mut self, frame: &[u8]) {
        self.to_upstream.extend_from_slice(frame);
        self.note(frame[0], Some(frame));
    }

    /// Records what the upstream owes for a forwarded message. `frame`: the message, unless it came in parts.
    fn note(&mut self, tag: u8, frame: Option<&[u8]>) {
        match tag {
            b'Q' | b'F' if self.is_unsynced || self.unsynced_queries > 0 => {
                // It is unknown whether the upstream ignores it.
                self.is_unsynced = false;
                self.unsynced_queries += 1;
                self.is_tracked = false;
                self.is_exact = false;
            }
            b'Q' | b'F' => self.owed.push_back(ExpectedAnswer::Ready { is_query: true }),
            b'S' if self.ignores_sync => {
                // If the COPY has failed, the upstream does not ignore it. It is unknown whether it has failed.
                self.is_tracked = false;
                self.is_exact = false;
            }
            b'S' => {
                self.is_unsynced = false;
                self.unsynced_queries = 0;
                self.owed.push_back(ExpectedAnswer::Ready { is_query: false });
            }
            b'c' | b'f' if std::mem::take(&mut self.ignores_sync) => {}
            b'c' | b'f' if matches!(self.owed.back(), None | Some(ExpectedAnswer::CopyEnd)) => {}
            b'c' | b'f' => self.owed.push_back(ExpectedAnswer::CopyEnd),
            // A `Flush` alone begins nothing.
            b'B' | b'D' | b'E' => self.is_unsynced = true,
            b'P' | b'C' => {
                self.is_unsynced = true;
                if self.owed.len() >= OWED_MAX / 2 {
                    self.is_tracked = false;
                    self.statements.clear();
                } else if self.is_tracked {
                    let owed = if tag == b'P' { self.owed_for_parse(frame) } else { self.owed_for_close(frame) };
                    self.owed.push_back(owed);
                }
            }
            b'X' => self.is_leaving = true,
            _ => {}
        }
    }

    fn owed_for_parse(&self, frame: Option<&[u8]>) -> ExpectedAnswer {
        let parse = frame.filter(|frame| self.is_readable(frame)).and_then(|frame| self.decode::<Parse>(frame));
        ExpectedAnswer::Parse(parse.and_then(|parse| {
            let name = parse.name.filter(|name| name.len() <= NAME_MAX)?;
            Some((name, self.templates.prepare_named(&parse.query, self.conforming)))
        }))
    }

    fn owed_for_close(&self, frame: Option<&[u8]>) -> ExpectedAnswer {
        let close = frame.and_then(|frame| self.decode::<Close>(frame)).filter(|close| close.target_type == b'S');
        ExpectedAnswer::Close(close.and_then(|close| close.name))
    }

    fn queue(&mut self, instance: Instance, bytes: Bytes, is_query: bool) {
        self.counts.matched.add(1);
        self.transactions += 1;
        let attempt = Attempt {
            instance,
            bytes,
            is_query,
            restarts: 0,
            replies: BytesMut::new(),
            last: 0,
            is_retained: false,
            error: None,
            is_committed: false,
        };
        self.phase = Phase::Queued { attempt, is_entered: false };
    }

    /// The footprint of the waiting transaction, returned once.
    pub(crate) fn wants_place(&mut self) -> Option<Footprint> {
        let Phase::Queued { attempt, is_entered } = &mut self.phase else { return None };
        let Instance { reads, writes, weight, .. } = &attempt.instance;
        let here = |keys: &[Key]| keys.iter().map(|key| [&self.database, &b"\0"[..], key].concat()).collect();
        let footprint =
            Footprint { reads: here(reads), writes: here(writes), restarts: attempt.restarts, weight: *weight };
        (!std::mem::replace(is_entered, true)).then_some(footprint)
    }

    /// Whether the transaction that has a place has not ended.
    pub(crate) fn keeps_place(&self) -> bool {
        match self.phase {
            Phase::Queued { is_entered, .. } => is_entered,
            Phase::Running(_) | Phase::RollingBack(_) => true,
            Phase::Passing | Phase::Gathering { .. } => false,
        }
    }

    /// Whether a transaction waits until it may run.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued { .. })
    }

    /// Whether the waiting transaction may be sent or cancelled: not while the client has part of a message.
    pub(crate) fn may_go(&self) -> bool {
        self.is_queued() && self.is_between()
    }

    pub(crate) fn go(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Passing);
        let Phase::Queued { mut attempt, .. } = phase else { unreachable!("a transaction is sent once") };
        attempt.replies.clear();
        attempt.error = None;
        attempt.is_retained = attempt.restarts < attempt.instance.retry;
        self.to_upstream.extend_from_slice(&attempt.bytes);
        self.owed.push_back(ExpectedAnswer::Ready { is_query: attempt.is_query });
        self.phase = Phase::Running(attempt);
    }

    /// The number of the last transaction, which is the current one if there is one. A retry keeps the number.
    pub(crate) fn transaction(&self) -> u64 {
        self.transactions
    }

    pub(crate) fn whereabouts(&self) -> TemplateState {
        match self.phase {
            Phase::Passing | Phase::Gathering { .. } => TemplateState::Elsewhere,
            Phase::Running(_) => TemplateState::Runs,
            Phase::Queued { .. } | Phase::RollingBack(_) => TemplateState::Waits,
        }
    }

    /// Gives up the waiting transaction, because the client cancelled it.
    pub(crate) fn cancel(&mut self) {
        assert!(self.may_go(), "the transaction waits here, and the client is between messages");
        self.phase = Phase::Passing;
        self.counts.cancelled.add(1);
        let text = "canceling statement due to user request";
        self.to_client.extend_from_slice(&errors::response(Severity::Error, SqlState::QUERY_CANCELED, text, None));
        self.to_client.extend_from_slice(b"Z\0\0\0\x05I");
    }

    /// Whether the upstream has something to execute, or has not answered it.
    fn is_under_way(&self) -> bool {
        self.is_unsynced || self.unsynced_queries > 0 || !self.owed.is_empty()
    }

    /// Whether the session may be ended: the upstream has executed and answered everything, and no transaction
    /// is open. An incomplete message or pipeline is not sent or not executed, so it does not count.
    pub(crate) fn is_idle(&self) -> bool {
        let has_sent = matches!(self.phase, Phase::Passing | Phase::Gathering { .. });
        let is_outside = self.status == Some(b'I') && !self.is_under_way() && has_sent;
        self.is_between() && (is_outside || !self.is_authenticated)
    }

    /// Ends the session because the middle tier ends.
    pub(crate) fn stop(&mut self, text: &str) {
        self.end(SqlState::ADMIN_SHUTDOWN, text, None);
    }

    /// Ends the session because the client violates the protocol.
    pub(crate) fn violated(&mut self, malformed: Malformed) {
        let hint = match self.phase {
            Phase::Gathering { .. } => "Neither the message nor its pipeline was executed.",
            _ if self.is_exact && !self.is_under_way() => {
                "The message was not executed, and nothing else was in progress."
            }
            _ => "The message was not executed. Whether earlier messages have taken effect is unknown.",
        };
        self.counts.violations.add(1);
        self.fail(SqlState::PROTOCOL_VIOLATION, format!("protocol violation: {malformed}"), Some(hint));
    }

    /// Handles the end of the client's messages. A held pipeline is forwarded, since the upstream executes what
    /// it gets.
    pub(crate) fn client_gone(&mut self) {
        self.is_leaving = true;
        self.release_held();
    }

    /// Whether all bytes of the client have been forwarded.
    pub(crate) fn has_passed(&self) -> bool {
        matches!(self.phase, Phase::Passing) && self.to_upstream.is_empty()
    }

    /// Whether more should be read from the client. Also while its transaction waits or runs, so that its end
    /// is noticed.
    pub(crate) fn reads_client(&self) -> bool {
        let has_room = self.client_in.len() < BUFFERED_MAX && self.to_upstream.len() < BUFFERED_MAX;
        !self.is_closing && has_room && self.owed.len() < OWED_MAX
    }

    /// Handles a client that reads no answers any more: gives up what the upstream has not got.
    pub(crate) fn unheard(&mut self) {
        if self.is_queued() {
            self.counts.cancelled.add(1);
            self.phase = Phase::Passing;
            self.client_in.clear();
        }
    }

    pub(crate) fn reads_upstream(&self) -> bool {
        !self.is_closing && self.to_client.len() < BUFFERED_MAX
    }

    /// Whether the client's bytes end with a complete message. The session inserts no message within another.
    pub(crate) fn is_between(&self) -> bool {
        !self.is_within
    }

    /// Ends the session by a failure, and logs it.
    fn fail(&mut self, state: SqlState, text: String, hint: Option<&str>) {
        self.end(state, &text, hint);
        self.failure = Some(format!("{text} ({state})"));
    }

    /// Ends the session with a last message, or without one if the client is within a message.
    fn end(&mut self, state: SqlState, text: &str, hint: Option<&str>) {
        if self.is_between() {
            self.to_client.extend_from_slice(&errors::response(Severity::Fatal, state, text, hint));
        }
        self.is_closing = true;
    }
}

/// The database in a session's first packet. By default it has the name of the user.
fn database(start: &[u8]) -> Vec<u8> {
    let named = |name| startup::parameter(start, name).ok().flatten();
    named("database").or_else(|| named("user")).unwrap_or_default().to_vec()
}
