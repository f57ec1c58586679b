//! Handles the messages of the upstream, and its loss.

use bytes::{Bytes, BytesMut};
use seriatim_wire::errors::{self, Severity, SqlState};
use seriatim_wire::frames::Piece;
use seriatim_wire::message::{self, Body};
use seriatim_wire::messages::response::CommandComplete;
use seriatim_wire::messages::simplequery::Query;
use seriatim_wire::messages::startup::ParameterStatus;

use super::{Attempt, Owed, Phase, RETAINED_MAX, STATEMENTS_MAX, Session};

/// The suffix of mechanisms with channel binding, which a proxy between two channels cannot support.
const WITH_BINDING: &[u8] = b"-PLUS";
/// The hint for a client that supports channel binding, and so reports the changed offer to the server.
const BINDING_HINT: &str = "The middle tier has TLS on both sides, where SCRAM needs channel_binding=disable on the \
    client's side, or sslmode=disable in --upstream.";

impl Session {
    pub(super) fn hear_upstream(&mut self, piece: Piece) {
        let (tag, mut bytes, is_whole) = match piece {
            Piece::Whole(bytes) => (Some(bytes[0]), bytes, true),
            Piece::Fragment(tag, bytes) => (tag, bytes, false),
        };
        let is_ready = tag == Some(b'Z') && is_whole;
        match tag {
            Some(tag) if is_whole => bytes = self.follow(tag, bytes),
            // Copying in both directions is replication.
            Some(b'G' | b'W') => self.is_tracked = false,
            _ => {}
        }
        let passed = self.to_client.len();
        let is_fatal = tag == Some(b'E') && self.upstream_fatal;
        match &mut self.phase {
            // The rest of a message follows its beginning.
            _ if self.is_within => self.to_client.extend_from_slice(&bytes),
            Phase::Running(attempt) => {
                attempt.hear(tag, &bytes, is_whole, &mut self.to_client);
                if is_ready {
                    self.finish();
                }
            }
            // The upstream says nothing more about the transaction.
            Phase::Queued { attempt, .. } | Phase::RollingBack(attempt) if is_fatal => {
                self.to_client.extend_from_slice(&attempt.replies.split());
                self.to_client.extend_from_slice(&bytes);
            }
            // The session sent this ROLLBACK, not the client. Parameters that it restores are the client's.
            Phase::RollingBack(_) if !(is_whole && matches!(tag, Some(b'S' | b'A'))) => {
                if is_ready {
                    self.rolled_back();
                }
            }
            _ => self.to_client.extend_from_slice(&bytes),
        }
        if self.to_client.len() > passed {
            self.is_within = !self.upstream_frames.is_between();
        }
    }

    /// Records a message. Returns the bytes to forward.
    fn follow(&mut self, tag: u8, bytes: Bytes) -> Bytes {
        match tag {
            b'R' => {
                self.is_authenticated |= bytes.get(5..9) == Some(&[0; 4]);
                return self.without_binding(bytes);
            }
            b'K' if bytes.len() > 5 => self.key = Some(bytes.slice(5..)),
            b'S' => {
                if let Ok(ParameterStatus { name, value, .. }) = message::decode(&bytes) {
                    match name.as_str() {
                        "standard_conforming_strings" => self.conforming = value == "on",
                        "client_encoding" => self.is_utf8 = value == "UTF8",
                        _ => {}
                    }
                }
            }
            b'Z' => {
                self.status = bytes.get(5).copied();
                let ready = loop {
                    match self.owed.pop_front() {
                        Some(Owed::Ready { is_query }) => break Some(is_query),
                        Some(_) => {}
                        None => break None,
                    }
                };
                if ready.is_none() {
                    self.unsynced_queries = self.unsynced_queries.saturating_sub(1);
                }
                if std::mem::take(&mut self.ignores_sync) && ready != Some(true) {
                    // A COPY of the extended protocol failed: this answers a `Sync` that was thought to be ignored.
                    self.is_unsynced = false;
                }
                self.forget_copies();
            }
            b'1' => {
                if let Some(Owed::Parse(_)) = self.owed.front()
                    && let Some(Owed::Parse(Some((name, prepared)))) = self.owed.pop_front()
                {
                    self.statements.remove(&name);
                    if prepared.is_some() && self.statements.len() < STATEMENTS_MAX {
                        self.statements.insert(name, prepared);
                    }
                }
                self.forget_copies();
            }
            b'3' => {
                if let Some(Owed::Close(_)) = self.owed.front()
                    && let Some(Owed::Close(Some(name))) = self.owed.pop_front()
                {
                    self.statements.remove(&name);
                }
                self.forget_copies();
            }
            b'C' => {
                let tag = message::decode::<CommandComplete>(&bytes).map(|complete| complete.tag);
                // The statement does not tell which names are gone or changed. Code in the server may change them, too.
                let changes = ["DEALLOCATE", "DISCARD ALL", "PREPARE", "DO", "CALL"];
                if tag.is_ok_and(|tag| changes.iter().any(|change| tag.starts_with(change))) {
                    self.statements.clear();
                }
            }
            b'G' | b'W' => self.copying(tag == b'G'),
            b'E' => {
                let Ok((severity, state)) = errors::read(&bytes) else { return bytes };
                self.upstream_fatal |= severity == Severity::Fatal;
                let is_negotiating = self.binding_withheld && self.both_encrypted && !self.is_authenticated;
                if is_negotiating && state == SqlState::INVALID_AUTHORIZATION {
                    return errors::with_hint(&bytes, BINDING_HINT);
                }
            }
            _ => {}
        }
        bytes
    }

    /// Forgets ends of COPY before which no `Sync` can be ignored any more.
    fn forget_copies(&mut self) {
        while self.owed.pop_front_if(|owed| matches!(owed, Owed::CopyEnd)).is_some() {}
    }

    /// The upstream begins a COPY: from the client, or in both directions.
    fn copying(&mut self, is_from_client: bool) {
        let is_query = |owed: &Owed| match owed {
            Owed::Ready { is_query } => Some(*is_query),
            Owed::Parse(_) | Owed::Close(_) | Owed::CopyEnd => None,
        };
        let is_of_query = self.owed.iter().find_map(is_query) == Some(true);
        let end = self.owed.iter().position(|owed| matches!(owed, Owed::CopyEnd));
        self.ignores_sync = is_from_client && end.is_none();
        if is_from_client && is_of_query {
            // A `Sync` between the query and the end of its COPY is ignored, and the end belongs to this COPY.
            let (mut at, owed) = (0, self.owed.len());
            self.owed.retain(|owed| {
                let is_within = at < end.unwrap_or(usize::MAX) && is_query(owed) == Some(false);
                let is_kept = !is_within && Some(at) != end;
                at += 1;
                is_kept
            });
            if self.owed.len() + usize::from(end.is_some()) < owed {
                // If the COPY fails before its end, the upstream does not ignore them.
                self.is_tracked = false;
                self.is_exact = false;
            }
            return;
        }
        // It is unknown whether the COPY fails before the next `Sync`.
        self.is_tracked = false;
        self.owed.drain(..end.map_or(self.owed.len(), |end| end + 1));
        // The COPY may be running until a later `Sync` is answered.
        let is_synced = self.owed.iter().any(|owed| matches!(owed, Owed::Ready { .. }));
        self.is_unsynced |= is_from_client && !is_synced;
    }

    /// Removes mechanisms with channel binding from an offer of SASL mechanisms. Other messages of
    /// authentication are unchanged.
    fn without_binding(&mut self, bytes: Bytes) -> Bytes {
        let (mut body, mut kept, mut withheld) = (Body::of(&bytes), Vec::new(), false);
        // 10 is AuthenticationSASL.
        if body.int32() != Some(10) {
            return bytes;
        }
        while let Some(mechanism @ [_, ..]) = body.string() {
            if mechanism.ends_with(WITH_BINDING) {
                withheld = true;
                continue;
            }
            kept.extend_from_slice(mechanism);
            kept.push(0);
        }
        if !withheld {
            return bytes;
        }
        self.binding_withheld = true;
        let length = u32::try_from(kept.len() + 9).expect("the offer became shorter").to_be_bytes();
        [&b"R"[..], &length, &[0, 0, 0, 10], &kept, &[0]].concat().into()
    }

    /// Handles the last answer of the transaction that was sent.
    fn finish(&mut self) {
        let Phase::Running(mut attempt) = std::mem::replace(&mut self.phase, Phase::Passing) else { return };
        let is_retryable = attempt.error.is_some_and(SqlState::is_retryable) && !attempt.is_committed;
        self.counts.serialization_failures.add(usize::from(is_retryable));
        // Within a transaction the outcome is still open.
        let has_ended = matches!(self.status, Some(b'I' | b'E'));
        if !is_retryable || !attempt.is_retained || !has_ended {
            self.to_client.extend_from_slice(&attempt.replies);
            return;
        }
        self.counts.retried.add(1);
        attempt.restarts += 1;
        if self.status == Some(b'I') {
            self.phase = Phase::Queued { attempt, is_entered: false };
            return;
        }
        self.to_upstream.extend_from_slice(&message::encode(&Query::new("ROLLBACK".into())));
        self.owed.push_back(Owed::Ready { is_query: true });
        self.phase = Phase::RollingBack(attempt);
    }

    fn rolled_back(&mut self) {
        let Phase::RollingBack(attempt) = std::mem::replace(&mut self.phase, Phase::Passing) else { return };
        if self.status == Some(b'I') {
            self.phase = Phase::Queued { attempt, is_entered: false };
            return;
        }
        // The upstream is still in the failed transaction, and so is the client, which got its answers.
        self.to_client.extend_from_slice(&attempt.replies);
    }

    /// Gives the client whole messages that were kept back, unless it is within another one.
    fn give(&mut self, replies: &[u8]) {
        if self.is_between() {
            self.to_client.extend_from_slice(replies);
        }
    }

    /// Handles the loss of the upstream, or its violation of the protocol. Outcomes that it has not reported
    /// are unknown.
    pub(crate) fn lost(&mut self, upstream: &str, why: &str) {
        if self.is_leaving && matches!(self.phase, Phase::Passing) {
            // The upstream was asked to end.
            self.is_closing = true;
            return;
        }
        self.counts.upstream_failures.add(1);
        let (is_known, text) = match std::mem::replace(&mut self.phase, Phase::Passing) {
            Phase::Queued { attempt, .. } | Phase::RollingBack(attempt) => {
                // Answers to the last attempt, which was rolled back.
                self.give(&attempt.replies);
                (true, "the waiting transaction was not sent")
            }
            Phase::Running(mut attempt) => {
                if !self.upstream_frames.is_between() {
                    attempt.replies.truncate(attempt.last);
                }
                self.give(&attempt.replies);
                match (attempt.error, attempt.is_committed) {
                    // A client that gets an error takes the transaction for rolled back, whatever came before.
                    (_, true) => (false, "the answer to its COMMIT was incomplete"),
                    (Some(_), _) => (true, "the transaction was rolled back"),
                    (None, false) => (false, "whether the transaction was committed is unknown"),
                }
            }
            Phase::Passing | Phase::Gathering { .. } => match self.status {
                None => (true, "the session had not begun"),
                Some(_) if self.is_under_way() || !self.is_exact => {
                    (false, "whether the last messages have taken effect is unknown")
                }
                Some(b'I') => (true, "nothing was in progress"),
                Some(_) => (true, "the transaction was rolled back"),
            },
        };
        if self.upstream_fatal {
            // The upstream has sent the reason, and the client has got it.
            self.is_closing = true;
            return;
        }
        self.counts.unknown.add(usize::from(!is_known));
        let state = if is_known { SqlState::CONNECTION_FAILURE } else { SqlState::RESOLUTION_UNKNOWN };
        self.fail(state, format!("connection to the server at {upstream} was lost ({why}); {text}"), None);
    }
}

impl Attempt {
    /// Records an answer of the transaction, and keeps it back or forwards it.
    fn hear(&mut self, tag: Option<u8>, bytes: &[u8], is_whole: bool, to_client: &mut BytesMut) {
        match tag {
            Some(b'E') => {
                // A message that is too long to decode is not an error that is retried.
                let state =
                    errors::read(bytes).ok().filter(|_| is_whole).map_or(SqlState(*b"XX000"), |(_, state)| state);
                self.error = Some(self.error.unwrap_or(state));
            }
            Some(b'C') if is_whole => {
                let complete = message::decode::<CommandComplete>(bytes);
                self.is_committed |= complete.is_ok_and(|complete| complete.tag == "COMMIT");
            }
            _ => {}
        }
        if !self.is_retained || is_whole && matches!(tag, Some(b'S' | b'A')) {
            to_client.extend_from_slice(bytes);
            return;
        }
        if tag.is_some() {
            self.last = self.replies.len();
        }
        self.replies.extend_from_slice(bytes);
        if self.replies.len() > RETAINED_MAX {
            self.is_retained = false;
            to_client.extend_from_slice(&self.replies.split());
        }
    }
}
