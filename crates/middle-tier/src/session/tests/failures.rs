//! Tests of an upstream that dies within a message, violates the protocol, or sends a last message.

use super::*;

/// The whole messages of a stream, and the rest of an incomplete one.
fn whole(stream: &[u8]) -> (Vec<Bytes>, BytesMut) {
    let (mut frames, mut buffer, mut whole) = (Frames::default(), BytesMut::from(stream), Vec::new());
    while let Some(Piece::Whole(frame)) = frames.next(&mut buffer, |_, _| Handling::Gather).expect("messages") {
        whole.push(frame);
    }
    (whole, buffer)
}

/// The upstream dies after each byte that it could send. The client gets these bytes and then the session's
/// error, or no error if it is within a message.
#[test]
fn no_message_is_inserted_into_one_that_the_upstream_left_incomplete() {
    let tagged = |tag: u8, body: &[u8]| {
        let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
        Bytes::from([&[tag][..], &length, body].concat())
    };
    let row = tagged(b'D', &[b"\0\x01\0\0\0\x28", &[b'x'; 40][..]].concat());
    let answer = [
        complete("BEGIN"),
        tagged(b'T', b"\0\x01name\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0"),
        row,
        tagged(b'N', b"SNOTICE\0C00000\0Mso\0\0"),
        complete("SELECT 1"),
        tagged(b'd', b"a line of a copy\n"),
        failure(),
        ready(TransactionStatus::Error),
    ];
    let said = answer.concat();
    let starts: Vec<usize> =
        answer.iter().scan(0, |end, message| Some(std::mem::replace(end, *end + message.len()))).collect();
    let never = EXAMPLE.replace("retry = 3", "retry = 0");
    type End = fn(&mut Session);
    let lose: End = |session| session.lost("localhost:5432", "it closed the connection");
    let violate: End = |session| session.violated(Malformed("of the client"));
    for (templates, text, is_kept) in
        [(EXAMPLE, TRANSFER, true), (&never, TRANSFER, false), (EXAMPLE, "select 1", false)]
    {
        for at in 0..said.len() {
            for end in [lose, violate] {
                let mut session = session(templates);
                sends(&mut session, &[query(text)]);
                if session.is_queued() {
                    go(&mut session);
                }
                for byte in &said[..at] {
                    says(&mut session, &[Bytes::copy_from_slice(&[*byte])]);
                }
                end(&mut session);
                assert!(session.is_closing);
                let (messages, rest) = whole(&session.to_client);
                let complete = starts.iter().rposition(|start| *start <= at).expect("it begins at 0");
                let has_word = messages
                    .last()
                    .is_some_and(|last| errors::read(last).is_ok_and(|(severity, _)| severity == Severity::Fatal));
                let theirs = &messages[..messages.len() - usize::from(has_word)];
                assert!(answer.starts_with(theirs), "{text} cut at {at}: {messages:?}");
                // A message that is decoded is not forwarded in parts.
                let is_within = !rest.is_empty();
                assert_eq!(has_word, !is_within, "{text} cut at {at}: {messages:?} and {rest:?}");
                assert!(!is_kept || !is_within, "kept answers end with a message");
                if end as usize == lose as usize {
                    assert_eq!(theirs.len(), complete, "{text} cut at {at}");
                    assert!(!is_within || answer[complete].starts_with(&rest));
                }
            }
        }
    }
}

#[test]
fn the_session_inserts_no_message_within_another() {
    let notice = Bytes::from_static(b"N\0\0\0\x18SNOTICE\0C00000\0Mso\0\0");
    let (first, rest) = (notice.slice(..9), notice.slice(9..));
    let mut waiting = session(EXAMPLE);
    sends(&mut waiting, &[query(TRANSFER)]);
    says(&mut waiting, std::slice::from_ref(&first));
    assert!(waiting.is_queued() && !waiting.is_between());
    says(&mut waiting, std::slice::from_ref(&rest));
    assert!(waiting.is_between());
    waiting.cancel();
    assert_eq!(waiting.to_client[..notice.len()], notice);
    assert_eq!(states(&waiting.to_client), ["57014"]);
    let mut idle = session(EXAMPLE);
    says(&mut idle, std::slice::from_ref(&first));
    assert!(!idle.is_idle());
    says(&mut idle, std::slice::from_ref(&rest));
    assert!(idle.is_idle());
    // The rest of a message follows its beginning.
    let mut gone = session(EXAMPLE);
    sends(&mut gone, &[query(TRANSFER)]);
    says(&mut gone, std::slice::from_ref(&first));
    go(&mut gone);
    says(&mut gone, std::slice::from_ref(&rest));
    assert_eq!(gone.to_client.split(), notice);
}

#[test]
fn an_upstream_that_violates_the_protocol_leaves_no_outcome_unreported() {
    let mut session = session(EXAMPLE);
    sends(&mut session, &[query(TRANSFER)]);
    go(&mut session);
    session.upstream_in.extend_from_slice(&[&committed()[..3].concat()[..], b"Z\0\0\0\0"].concat());
    let violation = session.advance().expect_err("an impossible length");
    assert!(matches!(violation, Violation::OfUpstream(_)));
    session.lost("localhost:5432", "protocol violation");
    assert_eq!(states(&session.to_client), ["08007"]);
    let mut ours = self::session(EXAMPLE);
    ours.client_in.extend_from_slice(b"Q\0\0\0\0");
    assert!(matches!(ours.advance(), Err(Violation::OfClient(_))));
}

/// The upstream's last message comes after its earlier ones.
#[test]
fn a_last_word_does_not_overtake_an_answer_that_was_kept() {
    for steps in 0..3 {
        let mut session = session(EXAMPLE);
        sends(&mut session, &[query(TRANSFER)]);
        go(&mut session);
        says(&mut session, &[complete("BEGIN"), failure(), ready(TransactionStatus::Error)]);
        says(&mut session, &[complete("ROLLBACK"), idle()][..steps]);
        says(&mut session, &[errors::response(Severity::Fatal, SqlState::ADMIN_SHUTDOWN, "terminating", None)]);
        session.lost("localhost:5432", "it closed the connection");
        assert_eq!(states(&session.to_client), ["40001", "57P01"], "after {steps} messages");
    }
}
