//! Log-ins, with a client that computes its own proof.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::verifier::{Verifier, hash, hmac};
use crate::{Exchange, Mechanism, Refusal, Step};

/// What a client sends last, with this password and channel binding.
fn last(password: &str, first: &str, header: &[u8], challenge: &[u8]) -> (String, String) {
    let challenge = std::str::from_utf8(challenge).expect("it is text");
    let field = |name: &str| challenge.split(',').find_map(|part| part.strip_prefix(name)).expect("it is there");
    let salt = STANDARD.decode(field("s=")).expect("Base64");
    let keys = Verifier::with_salt(password, salt.clone(), field("i=").parse().expect("a number"));
    let mut salted = [0; 32];
    let count = field("i=").parse().expect("a number");
    ring::pbkdf2::derive(ring::pbkdf2::PBKDF2_HMAC_SHA256, count, &salt, password.as_bytes(), &mut salted);
    let client_key = hmac(&salted, b"Client Key");
    assert_eq!(hash(&client_key), keys.stored_key);
    let without = format!("c={},r={}", STANDARD.encode(header), field("r="));
    let all = format!("{first},{challenge},{without}");
    let signature = hmac(&keys.stored_key, all.as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, byte)| key ^ byte).collect();
    let server = format!("v={}", STANDARD.encode(hmac(&keys.server_key, all.as_bytes())));
    (format!("{without},p={}", STANDARD.encode(proof)), server)
}

fn challenged(exchange: &mut Exchange, message: &str) -> Vec<u8> {
    match exchange.step(message.as_bytes()) {
        Ok(Step::Continue(challenge)) => challenge,
        other => panic!("{other:?}"),
    }
}

/// RFC 7677, §3.
#[test]
fn keys_are_those_of_the_standards_example() {
    let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("Base64");
    let verifier = Verifier::with_salt("pencil", salt, 4096);
    let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    assert_eq!(verifier.to_string(), text);
    assert_eq!(text.parse(), Ok(verifier.clone()));
    assert!(verifier.is_of("pencil") && !verifier.is_of("pen"));
    assert_eq!(format!("{verifier:?}"), "Verifier(..)");
    for wrong in [
        "",
        "pencil",
        "SCRAM-SHA-256$4096",
        "SCRAM-SHA-256$0:AAAA$AAAA:AAAA",
        "md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        &text[..text.len() - 4],
        &text.replace("4096", "-1"),
    ] {
        assert_eq!(wrong.parse::<Verifier>(), Err(()), "{wrong}");
    }
    // A soft hyphen does not count.
    assert!(Verifier::new("I\u{ad}X").is_of("IX"));
}

#[test]
fn the_right_password_proves_and_another_does_not() {
    for (mechanism, end_point, flag) in [
        (Mechanism::Plain, None, "n"),
        (Mechanism::Plain, None, "y"),
        (Mechanism::Plain, Some(b"hash".to_vec()), "n"),
        (Mechanism::Bound, Some(b"hash".to_vec()), "p=tls-server-end-point"),
    ] {
        for (password, is_right) in [("secret", true), ("Secret", false)] {
            let mut exchange = Exchange::new(Verifier::new("secret"), mechanism, end_point.clone());
            let first = "n=,r=abc";
            let challenge = challenged(&mut exchange, &format!("{flag},,{first}"));
            let mut header = format!("{flag},,").into_bytes();
            if mechanism == Mechanism::Bound {
                header.extend(b"hash");
            }
            let (message, answer) = last(password, first, &header, &challenge);
            let ended = exchange.step(message.as_bytes());
            let wanted = if is_right { Ok(Step::Done(answer.into_bytes())) } else { Err(Refusal::Password) };
            assert_eq!(ended, wanted, "{mechanism:?} {flag} {password}");
            assert!(matches!(exchange.step(b"again"), Err(Refusal::Malformed(_))));
        }
    }
}

#[test]
fn an_unknown_user_is_asked_as_others_are_and_always_with_the_same_salt() {
    let salt = |user: &str, secret: &[u8]| {
        let mut exchange = Exchange::new(Verifier::mock(user, secret), Mechanism::Plain, None);
        let challenge = challenged(&mut exchange, "n,,n=,r=abc");
        let (message, _) = last("secret", "n=,r=abc", b"n,,", &challenge);
        assert_eq!(exchange.step(message.as_bytes()), Err(Refusal::Password));
        let challenge = String::from_utf8(challenge).expect("text");
        challenge.split_once(",s=").expect("a salt").1.to_owned()
    };
    assert_eq!(salt("ann", b"1"), salt("ann", b"1"));
    assert_ne!(salt("ann", b"1"), salt("bob", b"1"));
    assert_ne!(salt("ann", b"1"), salt("ann", b"2"));
    let mut known = Exchange::new(Verifier::new("secret"), Mechanism::Plain, None);
    let challenge = String::from_utf8(challenged(&mut known, "n,,n=,r=abc")).expect("text");
    assert_eq!(challenge.split_once(",s=").expect("a salt").1.len(), salt("ann", b"1").len());
}

#[test]
fn a_hidden_channel_binding_is_noticed() {
    let exchange = |mechanism, end_point: Option<&[u8]>| {
        Exchange::new(Verifier::new("secret"), mechanism, end_point.map(<[u8]>::to_vec))
    };
    let refused = exchange(Mechanism::Plain, Some(b"hash")).step(b"y,,n=,r=abc");
    assert!(matches!(refused, Err(Refusal::Binding(_))), "{refused:?}");
    // The certificate of somebody else.
    let mut bound = exchange(Mechanism::Bound, Some(b"hash"));
    let challenge = challenged(&mut bound, "p=tls-server-end-point,,n=,r=abc");
    let (message, _) = last("secret", "n=,r=abc", b"p=tls-server-end-point,,other", &challenge);
    assert!(matches!(bound.step(message.as_bytes()), Err(Refusal::Binding(_))));
}

#[test]
fn malformed_messages_are_refused() {
    let begin = |message: &str| Exchange::new(Verifier::new("x"), Mechanism::Plain, None).step(message.as_bytes());
    for wrong in ["", "n", "n,", "n,,", "n,,n=", "n,,n=,r=", "n,,r=abc", "n,,n=,r=\u{e9}", "x,,n=,r=a", "p=x,,n=,r=a"] {
        assert!(matches!(begin(wrong), Err(Refusal::Malformed(_))), "{wrong}");
    }
    for other in ["n,a=ann,n=,r=a", "n,,m=x,n=,r=a"] {
        assert!(matches!(begin(other), Err(Refusal::Unsupported(_))), "{other}");
    }
    assert!(matches!(begin(&format!("n,,n=,r={}", "a".repeat(5000))), Err(Refusal::Malformed(_))));
    // Every prefix of the last message, and each with one byte changed.
    let length = "c=biws,r=abc,p=".len() + 24 + 44;
    let ends = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut exchange = Exchange::new(Verifier::new("secret"), Mechanism::Plain, None);
        let challenge = challenged(&mut exchange, "n,,n=,r=abc");
        let mut message = last("secret", "n=,r=abc", b"n,,", &challenge).0.into_bytes();
        assert_eq!(message.len(), length);
        change(&mut message);
        exchange.step(&message)
    };
    assert!(ends(&|_| {}).is_ok());
    for at in (0..length).step_by(9) {
        assert!(ends(&|message| message.truncate(at)).is_err(), "cut at {at}");
        assert!(ends(&|message| message[at] ^= 1).is_err(), "changed at {at}");
    }
}
