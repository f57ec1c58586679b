//! Decodes messages that were gathered, by the codecs of `pgwire`.
//!
//! A codec may panic on a body that ends too early: what a peer sends must not end more than its own session, so a panic is taken for
//! what it is, a malformed message.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::{Bytes, BytesMut};
use pgwire::messages::startup::{PasswordMessageFamily, SASLInitialResponse};
use pgwire::messages::{DecodeContext, Message};

use crate::Malformed;
use crate::frames::HEADER_BYTES;

const TOO_EARLY: Malformed = Malformed("a message that ends too early");

/// The message that these bytes are, header included.
///
/// # Errors
/// When they are none of this kind.
pub fn decode<M: Message>(bytes: &[u8]) -> Result<M, Malformed> {
    decode_then(bytes, Some)
}

/// The choice of a way to authenticate that these bytes are, header included, where the server has offered some by SASL.
///
/// # Errors
/// When they are none.
pub fn sasl_initial_response(bytes: &[u8]) -> Result<SASLInitialResponse, Malformed> {
    // The mechanism's name, a length or -1, and so many bytes.
    let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let rest = body.iter().position(|&byte| byte == 0).map_or(&[][..], |end| &body[end + 1..]);
    let is_sound = rest.split_first_chunk().is_some_and(|(length, data)| {
        let length = i32::from_be_bytes(*length);
        length == -1 && data.is_empty() || usize::try_from(length) == Ok(data.len())
    });
    if !is_sound {
        return Err(TOO_EARLY);
    }
    decode_then(bytes, |family: PasswordMessageFamily| family.into_sasl_initial_response().ok())
}

/// The one place where codecs run on what a peer sent.
fn decode_then<M: Message, T>(bytes: &[u8], then: impl FnOnce(M) -> Option<T>) -> Result<T, Malformed> {
    let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed("a message without a header"))?;
    let [tag, length @ ..] = *header;
    if u32::from_be_bytes(length) as usize != body.len() + 4 || !is_sound(tag, body) {
        return Err(TOO_EARLY);
    }
    let mut buffer = BytesMut::from(body);
    let decode = || M::decode_body(&mut buffer, body.len() + 4, &DecodeContext::default()).ok().and_then(then);
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    decoded.ok().flatten().ok_or(Malformed("a message whose body cannot be decoded"))
}

/// The bytes of a message.
///
/// # Panics
/// If the message is longer than its kind can be.
pub fn encode(message: &impl Message) -> Bytes {
    let mut buffer = BytesMut::new();
    message.encode(&mut buffer).expect("messages of ours have lengths that can be");
    buffer.freeze()
}

/// Whether strings of the body end: the commonest mistake, and one that must not print a panic.
fn is_sound(tag: u8, body: &[u8]) -> bool {
    let strings = match tag {
        b'Q' => 1,
        b'P' | b'B' => 2,
        _ => return true,
    };
    body.iter().filter(|&&byte| byte == 0).count() >= strings
}

#[cfg(test)]
mod tests {
    use pgwire::messages::extendedquery::{Bind, Parse};
    use pgwire::messages::simplequery::Query;

    use super::*;

    #[test]
    fn messages_survive_and_cut_ones_are_refused() {
        let bind =
            Bind::new(None, Some("s".into()), vec![1], vec![Some(Bytes::from_static(b"\0\0\0\x05")), None], vec![]);
        let bytes = encode(&bind);
        assert_eq!(decode::<Bind>(&bytes), Ok(bind));
        for end in 0..bytes.len() - 2 {
            assert!(decode::<Bind>(&bytes[..end]).is_err(), "cut at {end}");
            assert!(end < HEADER_BYTES || decode::<Bind>(&cut(&bytes, end)).is_err(), "a body that ends at {end}");
        }
        let parse = encode(&Parse::new(None, "select $1".into(), vec![23]));
        assert!(decode::<Parse>(&parse[..parse.len() - 1]).is_err());
        assert!(decode::<Query>(b"Q\0\0\0\x06xy").is_err());
        assert!(decode::<Query>(b"Q").is_err());
    }

    /// A message that says itself that it ends here.
    fn cut(bytes: &[u8], end: usize) -> Vec<u8> {
        let length = u32::try_from(end - 1).expect("short").to_be_bytes();
        [&bytes[..1], &length, &bytes[HEADER_BYTES..end]].concat()
    }

    /// Who sends them has not authenticated yet.
    #[test]
    fn choices_of_a_mechanism_are_read_or_refused() {
        let choice = SASLInitialResponse::new("SCRAM-SHA-256".into(), Some(Bytes::from_static(b"y,,n=,r=x")));
        let bytes = encode(&choice);
        assert_eq!(sasl_initial_response(&bytes), Ok(choice));
        let none = SASLInitialResponse::new("OTHER".into(), None);
        assert_eq!(sasl_initial_response(&encode(&none)), Ok(none));
        for end in HEADER_BYTES..bytes.len() {
            assert_eq!(sasl_initial_response(&cut(&bytes, end)), Err(TOO_EARLY), "a body that ends at {end}");
        }
        for length in [-2, 10_000, i32::MIN, i32::MAX] {
            let body = [&b"SCRAM-SHA-256\0"[..], &length.to_be_bytes(), b"y,,"].concat();
            let bytes = [&b"p\0\0\0\0"[..], &body].concat();
            let end = bytes.len();
            assert_eq!(sasl_initial_response(&cut(&bytes, end)), Err(TOO_EARLY), "{length}");
        }
    }
}
