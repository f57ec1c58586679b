//! Clients that violate the protocol, or use it as no driver does. A message may end only its own session.

use seriatim_wire::messages::copy::{CopyData, CopyDone, CopyFail};
use seriatim_wire::messages::extendedquery::{Close, Describe, Flush};
use seriatim_wire::messages::startup::Password;
use seriatim_wire::messages::terminate::Terminate;

use super::*;

/// A message of each type that a client can send.
fn messages() -> Vec<Bytes> {
    let values = vec![Some(Bytes::from_static(b"5")), None];
    vec![
        query("select 1"),
        query(TRANSFER),
        encode(&Parse::new(Some("s".into()), "select $1, $2".into(), vec![23, 25])),
        encode(&Parse::new(None, "BEGIN ISOLATION LEVEL SERIALIZABLE".into(), vec![])),
        encode(&Bind::new(None, Some("s".into()), vec![0, 1], values, vec![1])),
        encode(&Bind::new(None, None, vec![], vec![], vec![])),
        encode(&Describe::new(b'S', Some("s".into()))),
        encode(&Execute::new(None, 0)),
        encode(&Close::new(b'S', Some("s".into()))),
        encode(&Sync::new()),
        encode(&Flush::new()),
        encode(&CopyData::new(Bytes::from_static(b"1\n"))),
        encode(&CopyDone::new()),
        encode(&CopyFail::new("no".into())),
        encode(&Password::new("secret".into())),
        encode(&Terminate::new()),
        Bytes::from_static(b"F\0\0\0\x0e\0\0\0\x07\0\0\0\0\0\0"),
        Bytes::from_static(b"?\0\0\0\x05x"),
    ]
}

fn unready(templates: &str) -> Session {
    let mut session = Session::new(parsed(templates), Arc::default(), START, true, true);
    session.to_upstream.clear();
    session
}

type State = (&'static str, fn() -> Session);

/// A session in every state that a client can bring it to.
fn states_of_sessions() -> Vec<State> {
    fn having_sent(messages: &[Bytes]) -> Session {
        let mut session = session(EXAMPLE);
        sends(&mut session, messages);
        session
    }
    fn having_heard(sent: &[Bytes], said: &[Bytes]) -> Session {
        let mut session = having_sent(sent);
        if session.is_queued() {
            session.go();
        }
        says(&mut session, said);
        session
    }
    fn copy() -> Bytes {
        encode(&CopyInResponse::new(0, 1, vec![0]))
    }
    vec![
        ("nothing said", || unready(EXAMPLE)),
        ("at its password", || {
            let mut session = unready(EXAMPLE);
            says(&mut session, &[offer(&["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"])]);
            session
        }),
        ("authenticated", || {
            let mut session = unready(EXAMPLE);
            says(&mut session, &[encode(&Authentication::Ok)]);
            session
        }),
        ("idle", || session(EXAMPLE)),
        ("idle, without templates", || session("")),
        ("a query under way", || having_sent(&[query("select 1")])),
        ("in a transaction", || having_heard(&[query("begin")], &[ready(TransactionStatus::Transaction)])),
        ("in a failed transaction", || having_heard(&[query("begin")], &[ready(TransactionStatus::Error)])),
        ("unsynced", || having_sent(&execute_named("s"))),
        ("a pipeline held after its Parse", || having_sent(&pipeline()[..1])),
        ("a pipeline held after its Bind", || having_sent(&pipeline()[..5])),
        ("a pipeline held before its Sync", || having_sent(&pipeline()[..12])),
        ("a transaction queued", || having_sent(&[query(TRANSFER)])),
        ("a transaction running", || having_heard(&[query(TRANSFER)], &[])),
        ("a transaction rolling back", || {
            having_heard(&[query(TRANSFER)], &[failure(), ready(TransactionStatus::Error)])
        }),
        ("a simple COPY", || having_heard(&[query("copy t from stdin")], &[copy()])),
        ("an extended COPY", || having_heard(&[execute_named("s")[1].clone()], &[copy()])),
        ("within a message", || having_sent(&[Bytes::from_static(b"d\0\0\0\x40")])),
    ]
}

/// Every prefix of a message, with its length and with a matching length, and the message with each byte changed.
fn mutations(message: &Bytes) -> Vec<Bytes> {
    let mut mutations = vec![message.clone()];
    for end in 0..message.len() {
        mutations.push(message.slice(..end));
        if end >= 5 {
            let length = u32::try_from(end - 1).expect("short").to_be_bytes();
            mutations.push([&message[..1], &length, &message[5..end]].concat().into());
        }
    }
    for at in 0..message.len() {
        for change in [|_| 0, |_| 0xFF, |byte| byte ^ 1, |byte| byte ^ 0x80] as [fn(u8) -> u8; 4] {
            let mut changed = message.to_vec();
            changed[at] = change(changed[at]);
            mutations.push(changed.into());
        }
    }
    mutations
}

/// Bytes that were forwarded to the upstream, and bytes that were not.
fn kept_and_passed(session: &Session) -> Vec<u8> {
    let kept = match &session.phase {
        Phase::Gathering { held, .. } => held.concat(),
        Phase::Queued { attempt, .. } => attempt.bytes.to_vec(),
        Phase::Passing | Phase::Running(_) | Phase::RollingBack(_) => Vec::new(),
    };
    [&session.to_upstream[..], &kept, &session.client_in].concat()
}

/// For any bytes of a client in any state, nothing panics, and no byte is lost or changed. A violation ends the session
/// with 08P01 before later bytes are forwarded.
#[test]
fn every_cut_or_changed_message_at_every_state_is_passed_on_or_refused() {
    let sync = encode(&Sync::new());
    for (name, state) in states_of_sessions() {
        for message in messages() {
            for mutation in mutations(&message) {
                let mut session = state();
                let mut sent = kept_and_passed(&session);
                let mut is_refused = false;
                for bytes in [&mutation, &sync] {
                    session.client_in.extend_from_slice(bytes);
                    sent.extend_from_slice(bytes);
                    match session.advance() {
                        Ok(()) => {}
                        Err(Violation::OfClient(malformed)) => {
                            session.violated(malformed);
                            is_refused = true;
                            break;
                        }
                        Err(Violation::OfUpstream(malformed)) => panic!("{name}: {malformed}"),
                    }
                }
                let context = || format!("{name}: {}", mutation.escape_ascii());
                assert_eq!(kept_and_passed(&session), sent, "{}", context());
                if is_refused {
                    assert!(
                        session.is_closing && states(&session.to_client).ends_with(&["08P01".into()]),
                        "{}",
                        context()
                    );
                }
            }
        }
    }
}

/// A forwarded message leaves as it arrives. A decoded one leaves when it is complete.
#[test]
fn nothing_is_inspected_before_the_session_is_ready() {
    for message in messages() {
        let header = message.slice(..5);
        let mut session = unready(EXAMPLE);
        sends(&mut session, std::slice::from_ref(&header));
        assert_eq!(session.to_upstream, header, "{}", message.escape_ascii());
    }
    // Statements that are prepared before are not recorded either.
    let mut session = unready(EXAMPLE);
    let begin = "BEGIN ISOLATION LEVEL SERIALIZABLE";
    sends(&mut session, &[encode(&Parse::new(Some("b".into()), begin.into(), vec![])), encode(&Sync::new())]);
    says(&mut session, &[encode(&Authentication::Ok), idle(), encode(&ParseComplete::new()), idle()]);
    assert!(session.is_idle() && session.statements.is_empty());
}

#[test]
fn messages_longer_than_the_server_takes_are_refused() {
    let announced = |tag: u8, length: u32| Bytes::from([&[tag][..], &length.to_be_bytes()].concat());
    for (is_ready, tag, most) in
        [(false, b'p', 65_535), (false, b'Q', 65_535), (true, b'Q', 0x3fff_fffe), (true, b'S', 10_000)]
    {
        for (length, is_taken) in [(most, true), (most + 1, false)] {
            let mut session = if is_ready { session(EXAMPLE) } else { unready(EXAMPLE) };
            session.client_in.extend_from_slice(&announced(tag, length));
            assert_eq!(session.advance().is_ok(), is_taken, "{} of {length}", char::from(tag));
            assert_eq!(session.to_upstream.len(), if is_taken { 5 } else { 0 });
        }
    }
}

/// If the upstream ignores messages of the client, no answer is expected. Each case has the client's and then
/// the upstream's messages.
#[test]
fn a_session_is_idle_again_after_what_the_server_ignores() {
    let copy = encode(&CopyInResponse::new(0, 1, vec![0]));
    let (sync, done) = (encode(&Sync::new()), encode(&CopyDone::new()));
    let copied = [complete("COPY 0"), idle()];
    let [bind, execute] = execute_named("s");
    type Step<'a> = (&'a [Bytes], &'a [Bytes]);
    let cases: &[(&str, bool, &[Step<'_>])] = &[
        (
            "a Sync within a COPY",
            true,
            &[(&[query("copy t from stdin")], std::slice::from_ref(&copy)), (&[sync.clone(), done.clone()], &copied)],
        ),
        (
            "a Sync sent before the COPY began",
            true,
            &[
                (&[query("copy t from stdin"), sync.clone()], std::slice::from_ref(&copy)),
                (std::slice::from_ref(&done), &copied),
            ],
        ),
        (
            "a Sync and the end sent before the COPY began",
            true,
            &[(&[query("copy t from stdin"), sync.clone(), done.clone()], &[copy.clone(), copied.concat().into()])],
        ),
        (
            "two COPYs of a query",
            false,
            &[
                (&[query("copy t from stdin; copy t from stdin")], std::slice::from_ref(&copy)),
                (std::slice::from_ref(&done), &[complete("COPY 0"), copy.clone()]),
                (std::slice::from_ref(&done), &copied),
            ],
        ),
        (
            "a query behind an unended pipeline",
            true,
            &[(
                &[bind.clone(), execute.clone(), query("select 1")],
                &[complete("SELECT 1"), complete("SELECT 1"), idle()],
            )],
        ),
        (
            "two queries behind an unended pipeline",
            true,
            &[
                (
                    &[bind.clone(), execute.clone(), query("select 1"), query("select 2")],
                    &[complete("SELECT 1"), idle()],
                ),
                (&[], &[complete("SELECT 1"), idle()]),
            ],
        ),
        (
            "a query that is ignored, and the Sync behind it",
            true,
            &[(&[bind.clone(), execute.clone(), query("select 1"), sync.clone()], &[failure(), idle()])],
        ),
    ];
    for templates in ["", EXAMPLE] {
        for (name, is_uncertain, steps) in cases {
            let mut session = session(templates);
            for (sent, said) in *steps {
                sends(&mut session, sent);
                assert!(!session.is_idle(), "{name}");
                says(&mut session, said);
            }
            assert!(session.is_idle(), "{name}: {session:?}");
            // If the upstream may owe unknown answers, its loss leaves an outcome unknown.
            session.to_client.clear();
            session.lost("localhost:5432", "it closed the connection");
            assert_eq!(states(&session.to_client), [if *is_uncertain { "08007" } else { "08006" }], "{name}");
        }
    }
    // After an error the query is ignored, and it is unknown whether it will be answered.
    let mut ignored = session(EXAMPLE);
    sends(&mut ignored, &[bind, execute, query("select 1")]);
    says(&mut ignored, &[failure()]);
    assert!(!ignored.is_idle());
}

/// Incomplete messages are not executed, so a client that does not complete one does not delay the end of the
/// middle tier.
#[test]
fn an_incomplete_message_or_pipeline_does_not_keep_a_session() {
    for templates in ["", EXAMPLE] {
        for message in messages().iter().filter(|message| message.len() > 6) {
            for end in 1..message.len() {
                let mut session = session(templates);
                sends(&mut session, &[message.slice(..end)]);
                assert!(session.is_idle(), "{}", message[..end].escape_ascii());
                // Nor is the outcome unknown if the upstream is lost.
                session.lost("localhost:5432", "it closed the connection");
                assert_eq!(states(&session.to_client), ["08006"]);
            }
        }
    }
    let mut held = session(EXAMPLE);
    sends(&mut held, &pipeline()[..12]);
    assert!(held.is_idle() && held.to_upstream.is_empty());
}

#[test]
fn a_client_that_has_not_authenticated_does_not_keep_a_session() {
    let mut session = unready(EXAMPLE);
    assert!(session.is_idle());
    says(&mut session, &[offer(&["SCRAM-SHA-256"])]);
    sends(&mut session, &[query("select 1")]);
    assert!(session.is_idle(), "the upstream does not execute it before it knows the client");
    says(&mut session, &[encode(&Authentication::Ok)]);
    assert!(!session.is_idle());
    says(&mut session, &[idle()]);
    assert!(!session.is_idle());
    says(&mut session, &[complete("SELECT 1"), idle()]);
    assert!(session.is_idle());
}

#[test]
fn hints_of_violations_say_what_was_executed() {
    let hint = |sent: &[Bytes]| {
        let mut session = session(EXAMPLE);
        sends(&mut session, sent);
        session.client_in.extend_from_slice(b"Q\0\0\0\0");
        let Err(Violation::OfClient(malformed)) = session.advance() else { panic!("it is a violation") };
        session.violated(malformed);
        (String::from_utf8_lossy(&session.to_client).into_owned(), session.to_upstream.is_empty())
    };
    let is = |(said, is_empty): (String, bool), words: &str, nothing_sent: bool| {
        assert!(said.contains(words) && is_empty == nothing_sent, "{said}");
    };
    is(hint(&[]), "nothing else was in progress", true);
    is(hint(&pipeline()[..6]), "Neither the message nor its pipeline", true);
    is(hint(&execute_named("s")), "Whether earlier messages have taken effect is unknown", false);
    is(hint(&[query("insert into t values (1)")]), "Whether earlier messages", false);
}
