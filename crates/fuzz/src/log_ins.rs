//! Messages of clients that have not logged in: nothing panics, and nobody logs in who does not know the password.
//!
//! Input: whether there is channel binding; then messages, each behind its length in a byte.

use seriatim_scram::{Exchange, Mechanism, Step, Verifier};
use seriatim_wire::message::first_response;
use seriatim_wire::startup::parameters;

const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                        wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

pub(crate) fn run(data: &[u8]) {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let (mechanism, end_point) = match first % 3 {
        0 => (Mechanism::Plain, None),
        1 => (Mechanism::Plain, Some(vec![7; 32])),
        _ => (Mechanism::Bound, Some(vec![7; 32])),
    };
    let verifier = VERIFIER.parse::<Verifier>().expect("a verifier");
    let mut exchange = Exchange::new(verifier, mechanism, end_point);
    let mut ended = false;
    while let Some((&length, behind)) = rest.split_first() {
        let (message, behind) = behind.split_at(usize::from(length).min(behind.len()));
        rest = behind;
        let _ = parameters(message);
        if let Some((name, response)) = first_response(message) {
            assert!(name.len() + response.map_or(0, <[u8]>::len) < message.len(), "it is part of the message");
        }
        match exchange.step(message) {
            Ok(Step::Continue(challenge)) => {
                assert!(!ended && challenge.starts_with(b"r="), "a challenge has a nonce");
            }
            // The nonce is random, so no input has the proof.
            Ok(Step::Done(_)) => panic!("somebody logged in without the password"),
            Err(_) => ended = true,
        }
    }
    // What is stored is text that others may have written.
    let text = String::from_utf8_lossy(data);
    if let Ok(verifier) = text.parse::<Verifier>() {
        assert_eq!(verifier.to_string().parse(), Ok(verifier), "it is read back");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let messages = |first: u8, messages: &[&[u8]]| {
        let framed = messages.iter().flat_map(|message| [&[message.len() as u8], *message].concat());
        [first].into_iter().chain(framed).collect()
    };
    let last = b"c=biws,r=abc,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    vec![
        messages(0, &[b"n,,n=,r=abc", last]),
        messages(1, &[b"y,,n=,r=abc"]),
        messages(2, &[b"p=tls-server-end-point,,n=,r=abc", last]),
        messages(0, &[b"p\0\0\0\x1eSCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=abc"]),
        messages(0, &[b"\0\0\0\x17\0\x03\0\0user\0ann\0\0"]),
        VERIFIER.as_bytes().to_vec(),
    ]
}
