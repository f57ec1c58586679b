//! A session and a simulated upstream: every message is handmade, and the upstream dies after each.

mod failures;
mod hostile;

use std::sync::{Arc, LazyLock};

use bytes::{Bytes, BytesMut};
use seriatim_wire::errors::{self, Severity, SqlState};
use seriatim_wire::message::encode;
use seriatim_wire::messages::copy::CopyInResponse;
use seriatim_wire::messages::extendedquery::{Bind, BindComplete, Execute, Parse, ParseComplete, Sync};
use seriatim_wire::messages::response::{CommandComplete, NotificationResponse, ReadyForQuery, TransactionStatus};
use seriatim_wire::messages::simplequery::Query;
use seriatim_wire::messages::startup::{Authentication, BackendKeyData, ParameterStatus, SecretKey};

use super::*;
use crate::templates::EXAMPLE;

const TRANSFER: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE; \
    UPDATE accounts SET balance = balance - 5 WHERE id = 1; UPDATE accounts SET balance = balance + 5 WHERE id = 2; \
    COMMIT";
const START: &[u8] = b"\0\0\0\x1f\0\x03\0\0user\0me\0database\0mine\0\0";

fn query(text: &str) -> Bytes {
    encode(&Query::new(text.into()))
}

fn complete(tag: &str) -> Bytes {
    encode(&CommandComplete::new(tag.into()))
}

fn ready(status: TransactionStatus) -> Bytes {
    encode(&ReadyForQuery::new(status))
}

fn idle() -> Bytes {
    ready(TransactionStatus::Idle)
}

fn parameter(name: &str, value: &str) -> Bytes {
    encode(&ParameterStatus::new(name.into(), value.into()))
}

fn failure() -> Bytes {
    errors::response(Severity::Error, SqlState::SERIALIZATION_FAILURE, "could not serialize access", None)
}

/// The server's answers to a transfer that commits.
fn committed() -> Vec<Bytes> {
    let mut said: Vec<_> = ["BEGIN", "UPDATE 1", "UPDATE 1", "COMMIT"].map(complete).to_vec();
    said.push(idle());
    said
}

/// Parsed templates. Those of the example are parsed once.
fn parsed(templates: &str) -> Arc<Templates> {
    static EXAMPLES: LazyLock<Arc<Templates>> = LazyLock::new(|| Arc::new(Templates::parse(EXAMPLE).expect("right")));
    match templates {
        "" => Arc::default(),
        EXAMPLE => Arc::clone(&EXAMPLES),
        other => Arc::new(Templates::parse(other).expect("right")),
    }
}

/// A session with these templates, which has begun.
fn session(templates: &str) -> Session {
    let mut session = Session::new(parsed(templates), Arc::default(), START, true, false);
    let mut upstream = vec![encode(&Authentication::Ok), parameter("client_encoding", "UTF8")];
    upstream.push(parameter("standard_conforming_strings", "on"));
    upstream.push(encode(&BackendKeyData::new(7, SecretKey::I32(9))));
    upstream.push(idle());
    assert_eq!(session.to_upstream.split(), START);
    says(&mut session, &upstream);
    assert_eq!(session.to_client.split(), upstream.concat());
    assert_eq!(session.key.as_deref(), Some(&[0, 0, 0, 7, 0, 0, 0, 9][..]));
    session
}

fn says(session: &mut Session, messages: &[Bytes]) {
    session.upstream_in.extend_from_slice(&messages.concat());
    session.advance().expect("no violation of the protocol");
}

fn sends(session: &mut Session, messages: &[Bytes]) {
    session.client_in.extend_from_slice(&messages.concat());
    session.advance().expect("no violation of the protocol");
}

/// The SQLSTATEs that the client has got.
fn states(to_client: &[u8]) -> Vec<String> {
    let (mut frames, mut buffer, mut states) = (Frames::default(), BytesMut::from(to_client), Vec::new());
    while let Some(Piece::Whole(frame)) = frames.next(&mut buffer, |_, _| Handling::Gather).expect("messages") {
        if frame[0] == b'E' {
            states.push(errors::read(&frame).expect("an error").1.to_string());
        }
    }
    states
}

#[test]
fn other_messages_are_forwarded_unchanged_in_whatever_pieces_they_arrive() {
    let client = [
        query("select 1"),
        query(TRANSFER),
        Bytes::from_static(b"F\0\0\0\x0cwhatever"),
        encode(&Parse::new(Some("s".into()), "select $1".into(), vec![23])),
        encode(&Bind::new(None, Some("s".into()), vec![], vec![Some(Bytes::from(vec![7; 100_000]))], vec![])),
        encode(&Sync::new()),
        Bytes::from_static(b"Q\0\0\0\x0a\xff\xfe\xfd\xfc\xfb\0"),
    ]
    .concat();
    for step in [1, 7, 100, client.len()] {
        for templates in ["", EXAMPLE] {
            let mut session = session(templates);
            // A query is in progress, so the transfer behind it is forwarded as well.
            for chunk in client.chunks(step) {
                sends(&mut session, &[Bytes::copy_from_slice(chunk)]);
            }
            assert_eq!(session.to_upstream, client, "in steps of {step}");
            let upstream = [Bytes::from_static(b"D\0\0\0\x06\0\0"), complete("SELECT 1"), idle()].concat();
            for chunk in upstream.chunks(step) {
                says(&mut session, &[Bytes::copy_from_slice(chunk)]);
            }
            assert_eq!(session.to_client, upstream);
        }
    }
}

#[test]
fn a_transaction_of_a_template_waits_and_is_sent_unchanged() {
    let mut session = session(EXAMPLE);
    sends(&mut session, &[query(TRANSFER), query("select 1")]);
    assert!(session.is_queued() && session.to_upstream.is_empty());
    let footprint = session.wants_place().expect("it waits");
    assert!(footprint.writes.iter().all(|key| key.starts_with(b"mine\0accounts/")), "keys begin with the database");
    assert_eq!((footprint.reads.len(), footprint.writes.len(), footprint.restarts), (0, 2, 0));
    assert!(session.wants_place().is_none() && session.keeps_place());
    session.go();
    assert_eq!(session.to_upstream.split(), query(TRANSFER));
    let said = committed();
    says(&mut session, &said[..4]);
    assert!(session.to_client.is_empty(), "the transaction may be retried");
    says(&mut session, &said[4..]);
    assert_eq!(session.to_client.split(), said.concat());
    assert!(!session.keeps_place());
    assert_eq!(session.to_upstream.split(), query("select 1"), "the query behind it");
}

/// A request to cancel the first transaction does not affect the second, which waits when the first has just
/// ended. Their numbers differ.
#[test]
fn transactions_have_numbers_which_retries_keep() {
    let mut session = session(EXAMPLE);
    sends(&mut session, &[query(TRANSFER), query(TRANSFER)]);
    let first = session.transaction();
    session.go();
    says(&mut session, &[complete("BEGIN"), failure(), ready(TransactionStatus::Error)]);
    assert_eq!((session.whereabouts(), session.transaction()), (TemplateState::Waits, first));
    says(&mut session, &[complete("ROLLBACK"), idle()]);
    assert_eq!((session.whereabouts(), session.transaction()), (TemplateState::Waits, first));
    session.go();
    says(&mut session, &committed());
    assert_eq!(session.whereabouts(), TemplateState::Waits, "the second was there");
    assert_ne!(session.transaction(), first);
}

fn pipeline() -> Vec<Bytes> {
    let statement = |text: &str, values: &[&'static [u8]]| {
        let values = values.iter().map(|value| Some(Bytes::from_static(value))).collect();
        let parse = encode(&Parse::new(None, text.into(), vec![]));
        [parse, encode(&Bind::new(None, None, vec![], values, vec![])), encode(&Execute::new(None, 0))]
    };
    let mut messages = statement("BEGIN ISOLATION LEVEL SERIALIZABLE", &[]).to_vec();
    messages.extend(statement("UPDATE accounts SET balance = balance - $1 WHERE id = $2", &[b"5", b"1"]));
    messages.extend(statement("UPDATE accounts SET balance = balance + $1 WHERE id = $2", &[b"5", b"2"]));
    messages.extend(statement("COMMIT", &[]));
    messages.push(encode(&Sync::new()));
    messages
}

#[test]
fn a_pipeline_is_held_until_it_is_complete_or_cannot_match() {
    let mut session = session(EXAMPLE);
    let messages = pipeline();
    for message in &messages {
        assert!(session.to_upstream.is_empty() && !session.is_queued());
        sends(&mut session, std::slice::from_ref(message));
    }
    assert!(session.is_queued());
    assert!(session.wants_place().is_some());
    session.go();
    assert_eq!(session.to_upstream.split(), messages.concat());
    let said: Vec<_> = ["BEGIN", "UPDATE 1", "UPDATE 1", "COMMIT"]
        .map(|tag| [encode(&ParseComplete::new()), encode(&BindComplete::new()), complete(tag)].concat().into())
        .to_vec();
    says(&mut session, &[&said[..], &[idle()]].concat());
    assert_eq!(session.to_client.split(), [&said[..], &[idle()]].concat().concat());
    // A flush requests answers, so the held messages are sent.
    sends(&mut session, &messages[..6]);
    assert!(session.to_upstream.is_empty());
    sends(&mut session, &[Bytes::from_static(b"H\0\0\0\x04")]);
    assert_eq!(session.to_upstream.split(), [&messages[..6], &[Bytes::from_static(b"H\0\0\0\x04")]].concat().concat());
    // Held messages are also sent when the client has gone.
    let mut left = self::session(EXAMPLE);
    sends(&mut left, &messages[..12]);
    left.client_gone();
    assert_eq!(left.to_upstream, messages[..12].concat());
}

#[test]
fn prepared_statements_are_those_that_the_server_has_confirmed() {
    let mut session = session(EXAMPLE);
    let named = |name: &str, text: &str| encode(&Parse::new(Some(name.into()), text.into(), vec![]));
    let begin = "BEGIN ISOLATION LEVEL SERIALIZABLE";
    let uses = |name: &str| {
        let mut messages = pipeline();
        let bind = encode(&Bind::new(None, Some(name.into()), vec![], vec![], vec![]));
        messages.splice(..2, [bind]);
        messages
    };
    let answers = |session: &mut Session, answers: &[Bytes]| {
        says(session, answers);
        session.to_upstream.clear();
        session.to_client.clear();
    };
    let sync = || encode(&Sync::new());
    sends(&mut session, &[named("b", begin), named("c", begin), sync()]);
    // The second one failed, so the name is unknown.
    answers(&mut session, &[encode(&ParseComplete::new()), failure(), idle()]);
    sends(&mut session, &uses("c"));
    assert!(!session.is_queued());
    answers(&mut session, &[failure(), idle()]);
    sends(&mut session, &uses("b"));
    assert!(session.is_queued());
    session.go();
    answers(&mut session, &[idle()]);
    let close = Bytes::from_static(b"C\0\0\0\x07Sb\0");
    sends(&mut session, &[close, sync()]);
    answers(&mut session, &[Bytes::from_static(b"3\0\0\0\x04"), idle()]);
    sends(&mut session, &uses("b"));
    assert!(!session.is_queued());
    // A statement that is prepared and closed at once stays closed.
    let mut session = self::session(EXAMPLE);
    let close = || Bytes::from_static(b"C\0\0\0\x07Sb\0");
    let closed = || Bytes::from_static(b"3\0\0\0\x04");
    sends(&mut session, &[named("b", begin), close(), sync()]);
    answers(&mut session, &[encode(&ParseComplete::new()), closed(), idle()]);
    sends(&mut session, &uses("b"));
    assert!(!session.is_queued());
    // A close that the server ignored closes nothing.
    let mut session = self::session(EXAMPLE);
    sends(&mut session, &[named("b", begin), named("bad", "no SQL"), close(), sync()]);
    answers(&mut session, &[encode(&ParseComplete::new()), failure(), idle()]);
    sends(&mut session, &uses("b"));
    assert!(session.is_queued());
    session.go();
    answers(&mut session, &committed());
    // Code in the server may prepare and close statements, too.
    sends(&mut session, &[query("do 'anything'")]);
    answers(&mut session, &[complete("DO"), idle()]);
    sends(&mut session, &uses("b"));
    assert!(!session.is_queued());
}

#[test]
fn memory_for_a_client_is_bounded() {
    let mut session = session(EXAMPLE);
    let sync = || encode(&Sync::new());
    let named = |name: &str, text: &str| encode(&Parse::new(Some(name.into()), text.into(), vec![]));
    sends(&mut session, &[named("other", "select 1"), named(&"n".repeat(64), "commit"), sync()]);
    says(&mut session, &[encode(&ParseComplete::new()), encode(&ParseComplete::new()), idle()]);
    assert!(session.statements.is_empty(), "no template has these");
    for (name, text) in [
        ("positive", "update accounts set balance = balance - $1 where id = $2"),
        ("negative", "update accounts set balance = balance + -1 where id = '7'"),
        ("commit", "end;"),
    ] {
        sends(&mut session, &[named(name, text), sync()]);
        says(&mut session, &[encode(&ParseComplete::new()), idle()]);
        assert!(session.statements.contains_key(name), "{name}");
    }
    for at in 0..STATEMENTS_MAX {
        sends(&mut session, &[named(&at.to_string(), "commit"), sync()]);
        says(&mut session, &[encode(&ParseComplete::new()), idle()]);
    }
    assert_eq!(session.statements.len(), STATEMENTS_MAX);
    for _ in 0..OWED_MAX {
        session.to_upstream.clear();
        assert!(session.reads_client());
        sends(&mut session, &[sync()]);
    }
    assert!(!session.reads_client());
    says(&mut session, &[idle()]);
    assert!(session.reads_client());
    // A server may answer a Parse only after a Sync or Flush. A client that sends many continues without
    // transactions of templates.
    let mut many = self::session(EXAMPLE);
    for _ in 0..2 * OWED_MAX {
        sends(&mut many, &[named("s", "commit")]);
        many.to_upstream.clear();
    }
    assert!(many.reads_client() && !many.is_tracked);
}

/// Lets each waiting transaction run at once. Returns what the upstream got.
fn go(session: &mut Session) -> Bytes {
    assert!(session.wants_place().is_some());
    session.go();
    session.to_upstream.split().freeze()
}

#[test]
fn a_serialization_failure_is_retried_as_often_as_the_template_permits() {
    let mut session = session(EXAMPLE);
    sends(&mut session, &[query(TRANSFER)]);
    let failed = || vec![complete("BEGIN"), failure(), ready(TransactionStatus::Error)];
    for restarts in 0..3 {
        assert_eq!(go(&mut session), query(TRANSFER));
        let notification = encode(&NotificationResponse::new(1, "news".into(), String::new()));
        says(&mut session, &[&failed()[..2], std::slice::from_ref(&notification), &failed()[2..]].concat());
        assert_eq!(
            session.to_client.split(),
            notification,
            "a notification is not dropped with the transaction's answers"
        );
        assert_eq!(session.to_upstream.split(), query("ROLLBACK"), "after {restarts} restarts");
        assert_eq!((session.whereabouts(), session.keeps_place()), (TemplateState::Waits, true));
        says(&mut session, &[complete("ROLLBACK"), idle()]);
        assert!(session.is_queued() && !session.keeps_place());
    }
    assert_eq!(go(&mut session), query(TRANSFER));
    says(&mut session, &failed());
    assert_eq!(session.to_client.split(), failed().concat(), "the client gets the last answer");
    assert!(session.to_upstream.is_empty() && !session.keeps_place());
    let counted = session.counts.counted();
    assert_eq!((counted.matched, counted.retried, counted.serialization_failures, counted.unknown), (1, 3, 4, 0));
}

#[test]
fn a_failure_of_the_commit_is_retried_without_a_rollback() {
    let mut session = session(EXAMPLE);
    sends(&mut session, &[query(TRANSFER)]);
    go(&mut session);
    says(&mut session, &[&committed()[..3], &[failure(), idle()]].concat());
    assert!(session.to_client.is_empty());
    assert_eq!(go(&mut session), query(TRANSFER));
    says(&mut session, &committed());
    assert_eq!(session.to_client.split(), committed().concat());
}

#[test]
fn other_errors_are_not_retried() {
    let with = |code: &[u8; 5]| errors::response(Severity::Error, SqlState(*code), "", None);
    let error = |code: &[u8; 5]| [complete("BEGIN"), with(code), ready(TransactionStatus::Error)];
    let never = EXAMPLE.replace("retry = 3", "retry = 0");
    for (templates, said) in [(EXAMPLE, error(b"23505")), (EXAMPLE, error(b"57014")), (&never, error(b"40001"))] {
        let mut session = session(templates);
        sends(&mut session, &[query(TRANSFER)]);
        go(&mut session);
        says(&mut session, &said);
        assert_eq!(session.to_client.split(), said.concat());
        assert!(!session.keeps_place() && session.to_upstream.is_empty());
    }
    // If another error precedes one of serializability, the first one counts.
    let mut session = session(EXAMPLE);
    sends(&mut session, &[query(TRANSFER)]);
    go(&mut session);
    says(&mut session, &[with(b"23505"), failure(), ready(TransactionStatus::Error)]);
    assert_eq!(session.whereabouts(), TemplateState::Elsewhere);
    // Too many answers to keep are forwarded, and then a retry is impossible.
    let mut session = self::session(EXAMPLE);
    sends(&mut session, &[query(TRANSFER)]);
    go(&mut session);
    let row = [&b"D"[..], &(RETAINED_MAX as u32 + 4).to_be_bytes(), &vec![0; RETAINED_MAX]].concat();
    says(&mut session, &[row.into(), failure(), ready(TransactionStatus::Error)]);
    assert!(session.whereabouts() == TemplateState::Elsewhere && session.to_client.len() > RETAINED_MAX);
}

/// The upstream dies after each message that it could send. The client learns everything that is known.
#[test]
fn an_upstream_that_dies_leaves_no_outcome_unreported() {
    let lost = |session: &mut Session| {
        session.lost("localhost:5432", "it closed the connection");
        assert!(session.is_closing);
        states(&session.to_client.split())
    };
    for templates in [EXAMPLE.to_owned(), EXAMPLE.replace("retry = 3", "retry = 0")] {
        // Before it was sent.
        let mut waiting = session(&templates);
        sends(&mut waiting, &[query(TRANSFER)]);
        assert_eq!(lost(&mut waiting), ["08006"]);
        for said in 0..5 {
            let mut session = session(&templates);
            sends(&mut session, &[query(TRANSFER)]);
            go(&mut session);
            says(&mut session, &committed()[..said]);
            // Even after the answer to the COMMIT: a client takes 08006 for a rollback.
            assert_eq!(lost(&mut session), ["08007"], "after {said} messages");
            assert_eq!(session.counts.counted().unknown, 1);
        }
        let mut failed = session(&templates);
        sends(&mut failed, &[query(TRANSFER)]);
        go(&mut failed);
        says(&mut failed, &[complete("BEGIN"), failure()]);
        assert_eq!(lost(&mut failed), ["40001", "08006"], "the transaction was rolled back");
    }
    // While it is rolled back, and while it waits for a retry.
    for steps in 0..3 {
        let mut session = session(EXAMPLE);
        sends(&mut session, &[query(TRANSFER)]);
        go(&mut session);
        says(&mut session, &[complete("BEGIN"), failure(), ready(TransactionStatus::Error)]);
        says(&mut session, &[complete("ROLLBACK"), idle()][..steps]);
        assert_eq!(lost(&mut session), ["40001", "08006"]);
    }
    let mut session = session(EXAMPLE);
    assert_eq!(lost(&mut session), ["08006"]);
    let mut open = self::session(EXAMPLE);
    sends(&mut open, &[query("begin")]);
    says(&mut open, &[complete("BEGIN"), ready(TransactionStatus::Transaction)]);
    assert_eq!(lost(&mut open), ["08006"]);
    let mut under_way = self::session("");
    sends(&mut under_way, &[query("insert into t values (1)")]);
    assert_eq!(lost(&mut under_way), ["08007"]);
    // The upstream has sent the reason itself. A client that has said goodbye gets no error.
    let mut told = self::session(EXAMPLE);
    sends(&mut told, &[query("select 1")]);
    says(&mut told, &[errors::response(Severity::Fatal, SqlState::ADMIN_SHUTDOWN, "terminating", None)]);
    assert_eq!(lost(&mut told), ["57P01"]);
    let mut leaving = self::session(EXAMPLE);
    sends(&mut leaving, &[Bytes::from_static(b"X\0\0\0\x04")]);
    assert_eq!(lost(&mut leaving), [""; 0]);
}

#[test]
fn a_waiting_transaction_can_be_cancelled() {
    let mut session = session(EXAMPLE);
    sends(&mut session, &[query(TRANSFER), query("select 1")]);
    session.cancel();
    session.advance().expect("no violation of the protocol");
    assert_eq!(states(&session.to_client), ["57014"]);
    assert!(session.to_client.ends_with(&idle()));
    assert_eq!(session.to_upstream, query("select 1"), "the cancelled transaction was not sent");
}

#[test]
fn copying_and_replication_do_not_confuse_the_owed_answers() {
    let copy = encode(&CopyInResponse::new(0, 1, vec![0]));
    let mut simple = session(EXAMPLE);
    sends(&mut simple, &[query("copy t from stdin")]);
    says(&mut simple, std::slice::from_ref(&copy));
    sends(&mut simple, &[Bytes::from_static(b"d\0\0\0\x061\n"), Bytes::from_static(b"c\0\0\0\x04")]);
    says(&mut simple, &[complete("COPY 1"), idle()]);
    sends(&mut simple, &[query(TRANSFER)]);
    assert!(simple.is_queued());
    // In the extended protocol a server ignores Sync while it copies: from then on no transaction is recognized.
    let mut extended = session(EXAMPLE);
    sends(&mut extended, &[encode(&Parse::new(None, "copy t from stdin".into(), vec![])), encode(&Sync::new())]);
    says(&mut extended, &[encode(&ParseComplete::new()), copy.clone()]);
    assert!(!extended.is_idle(), "it copies");
    sends(&mut extended, &[Bytes::from_static(b"c\0\0\0\x04"), encode(&Sync::new())]);
    says(&mut extended, &[complete("COPY 0"), idle()]);
    sends(&mut extended, &[query(TRANSFER)]);
    assert!(!extended.is_queued());
    assert!(extended.to_upstream.ends_with(&query(TRANSFER)));
    // But a session becomes idle again after its next query has ended, whichever came first: the server's
    // request for data, or the client's data.
    says(&mut extended, &[complete("COMMIT"), idle()]);
    assert!(extended.is_idle());
    let mut several = session(EXAMPLE);
    sends(&mut several, &[encode(&Parse::new(None, "copy t from stdin".into(), vec![])), encode(&Sync::new())]);
    says(&mut several, &[encode(&ParseComplete::new()), encode(&CopyInResponse::new(0, 1, vec![0]))]);
    sends(&mut several, &[encode(&Sync::new()), Bytes::from_static(b"c\0\0\0\x04"), encode(&Sync::new())]);
    says(&mut several, &[complete("COPY 0"), idle()]);
    assert!(several.is_idle());
    let mut early = session(EXAMPLE);
    let [parse, sync] = [encode(&Parse::new(None, "copy t from stdin".into(), vec![])), encode(&Sync::new())];
    sends(&mut early, &[parse, sync.clone(), Bytes::from_static(b"c\0\0\0\x04"), sync]);
    says(&mut early, &[encode(&ParseComplete::new()), encode(&CopyInResponse::new(0, 1, vec![0]))]);
    assert!(!early.is_idle());
    says(&mut early, &[complete("COPY 0"), idle()]);
    assert!(early.is_idle());
}

/// A session in a COPY of the extended protocol, for both orders of the two sides' messages.
#[test]
fn a_copy_of_the_extended_protocol_runs_until_a_later_sync_of_the_client() {
    let (done, sync) = (Bytes::from_static(b"c\0\0\0\x04"), encode(&Sync::new()));
    for is_early in [false, true] {
        let copies = || {
            let mut session = session(EXAMPLE);
            sends(&mut session, &[encode(&Parse::new(None, "copy t from stdin".into(), vec![])), sync.clone()]);
            let said = [encode(&ParseComplete::new()), encode(&CopyInResponse::new(0, 1, vec![0]))];
            if is_early {
                sends(&mut session, std::slice::from_ref(&done));
                says(&mut session, &said);
            } else {
                says(&mut session, &said);
                assert!(!session.is_idle());
                sends(&mut session, std::slice::from_ref(&done));
            }
            assert!(!session.is_idle());
            session.to_client.clear();
            session
        };
        let mut ends = copies();
        sends(&mut ends, std::slice::from_ref(&sync));
        assert!(!ends.is_idle());
        says(&mut ends, &[complete("COPY 1"), idle()]);
        assert!(ends.is_idle());
        let mut lost = copies();
        lost.lost("localhost:5432", "it closed the connection");
        assert_eq!(states(&lost.to_client), ["08007"]);
    }
    // It fails, and the client, which has got the error, does not end it.
    let mut fails = session(EXAMPLE);
    sends(&mut fails, &[encode(&Parse::new(None, "copy t from stdin".into(), vec![])), sync.clone()]);
    says(&mut fails, &[encode(&ParseComplete::new()), encode(&CopyInResponse::new(0, 1, vec![0])), failure()]);
    assert!(!fails.is_idle());
    sends(&mut fails, &[sync]);
    says(&mut fails, &[idle()]);
    assert!(fails.is_idle());
}

#[test]
fn a_transaction_whose_client_has_gone_is_not_sent() {
    let mut session = session(EXAMPLE);
    sends(&mut session, &[query(TRANSFER)]);
    assert!(session.reads_client(), "a waiting client may leave");
    session.client_in.extend_from_slice(&vec![0; BUFFERED_MAX]);
    assert!(!session.reads_client(), "a waiting client may not send without bound");
    session.unheard();
    session.client_gone();
    session.advance().expect("no violation of the protocol");
    assert!(session.has_passed() && !session.keeps_place() && session.to_upstream.is_empty());
    // A transaction that was sent is left to the upstream.
    let mut running = self::session(EXAMPLE);
    sends(&mut running, &[query(TRANSFER)]);
    go(&mut running);
    running.unheard();
    assert!(running.keeps_place());
}

fn offer(mechanisms: &[&str]) -> Bytes {
    encode(&Authentication::SASL(mechanisms.iter().map(|&mechanism| mechanism.to_owned()).collect()))
}

#[test]
fn channel_binding_is_not_offered_and_its_refusal_gets_a_hint() {
    let refusal = |state| errors::response(Severity::Fatal, state, "SCRAM channel binding negotiation error", None);
    let hint_of = |both_encrypted, offered: &[&str], state| {
        let mut session = Session::new(Arc::default(), Arc::default(), START, true, both_encrypted);
        says(&mut session, &[offer(offered)]);
        assert_eq!(session.to_client.split(), offer(&["SCRAM-SHA-256"]));
        says(&mut session, &[refusal(state)]);
        let said = session.to_client.split();
        if said == refusal(state) { None } else { Some(String::from_utf8_lossy(&said).into_owned()) }
    };
    let both = ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"];
    let hint = hint_of(true, &both, SqlState::INVALID_AUTHORIZATION);
    assert!(hint.is_some_and(|hint| hint.contains("channel_binding=disable")));
    // Another error, an upstream without channel binding, or one without TLS.
    assert_eq!(hint_of(true, &both, SqlState(*b"28P01")), None);
    assert_eq!(hint_of(true, &both[1..], SqlState::INVALID_AUTHORIZATION), None);
    assert_eq!(hint_of(false, &both, SqlState::INVALID_AUTHORIZATION), None);
    // A role that may not log in has authenticated before.
    let mut session = Session::new(Arc::default(), Arc::default(), START, true, true);
    says(&mut session, &[offer(&both), encode(&Authentication::Ok)]);
    session.to_client.clear();
    says(&mut session, &[refusal(SqlState::INVALID_AUTHORIZATION)]);
    assert_eq!(session.to_client, refusal(SqlState::INVALID_AUTHORIZATION));
}

#[test]
fn clients_are_disconnected_only_between_transactions() {
    let mut session = session(EXAMPLE);
    assert!(session.is_idle());
    sends(&mut session, &[query(TRANSFER)]);
    assert!(!session.is_idle());
    go(&mut session);
    assert!(!session.is_idle());
    says(&mut session, &committed());
    assert!(session.is_idle());
    sends(&mut session, &[query("begin")]);
    says(&mut session, &[complete("BEGIN"), ready(TransactionStatus::Transaction)]);
    assert!(!session.is_idle());
    session.stop("terminating");
    assert!(states(&session.to_client).ends_with(&["57P01".to_owned()]));
}

fn flush() -> Bytes {
    Bytes::from_static(b"H\0\0\0\x04")
}

fn execute_named(name: &str) -> [Bytes; 2] {
    [encode(&Bind::new(None, Some(name.into()), vec![], vec![], vec![])), encode(&Execute::new(None, 0))]
}

/// Executed messages without a Sync are in a transaction that the server has not ended.
#[test]
fn no_transaction_begins_before_the_sync_of_earlier_messages() {
    let lost = |session: &mut Session| {
        session.lost("localhost:5432", "it closed the connection");
        states(&session.to_client.split())
    };
    // An answer may come before the Sync, if the client requests it.
    let mut open = session(EXAMPLE);
    sends(&mut open, &[&execute_named("s")[..], &[flush()]].concat());
    says(&mut open, &[encode(&BindComplete::new()), complete("INSERT 0 1")]);
    assert!(!open.is_idle());
    sends(&mut open, &pipeline());
    assert!(!open.is_queued(), "the INSERT would become part of its transaction");
    // After the Sync nothing is open, and a Flush behind it requests nothing.
    sends(&mut open, &[flush()]);
    says(&mut open, &committed());
    assert!(open.is_idle());
    sends(&mut open, &pipeline());
    assert!(open.is_queued());
    // A COMMIT may have been executed.
    let mut unknown = session(EXAMPLE);
    sends(&mut unknown, &[query("begin")]);
    says(&mut unknown, &[complete("BEGIN"), ready(TransactionStatus::Transaction)]);
    unknown.to_client.clear();
    sends(&mut unknown, &[&execute_named("commit")[..], &[flush()]].concat());
    assert_eq!(lost(&mut unknown), ["08007"]);
    // After an error a server ignores everything up to the Sync, including a query, which then gets no answer.
    let mut skipping = session(EXAMPLE);
    sends(&mut skipping, &[&execute_named("none")[..1], &[flush()]].concat());
    says(&mut skipping, &[failure()]);
    sends(&mut skipping, &[query(TRANSFER)]);
    assert!(!skipping.is_queued() && skipping.to_upstream.ends_with(&query(TRANSFER)));
    sends(&mut skipping, &[encode(&Sync::new())]);
    says(&mut skipping, &[idle()]);
    assert!(skipping.is_idle());
}
