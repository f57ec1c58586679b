//! Decodes messages that were gathered, by the codecs of `pgwire`.
//!
//! A codec may panic on a body that ends too early: what a peer sends must not end more than its own session, so a panic is taken for
//! what it is, a malformed message.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::{Bytes, BytesMut};
use pgwire::messages::{DecodeContext, Message};

use crate::Malformed;
use crate::frames::HEADER_BYTES;

/// The message that these bytes are, header included.
///
/// # Errors
/// When they are none of this kind.
pub fn decode<M: Message>(bytes: &[u8]) -> Result<M, Malformed> {
    let body = bytes.get(HEADER_BYTES..).ok_or(Malformed("a message without a header"))?;
    if body.len() != bytes.len() - HEADER_BYTES || !is_sound(bytes[0], body) {
        return Err(Malformed("a message that ends too early"));
    }
    let mut buffer = BytesMut::from(body);
    let decoded =
        catch_unwind(AssertUnwindSafe(|| M::decode_body(&mut buffer, body.len() + 4, &DecodeContext::default())));
    decoded.ok().and_then(Result::ok).ok_or(Malformed("a message whose body cannot be decoded"))
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
        for end in HEADER_BYTES..bytes.len() - 2 {
            assert!(decode::<Bind>(&bytes[..end]).is_err(), "cut at {end}");
        }
        let parse = encode(&Parse::new(None, "select $1".into(), vec![23]));
        assert!(decode::<Parse>(&parse[..parse.len() - 1]).is_err());
        assert!(decode::<Query>(b"Q\0\0\0\x06xy").is_err());
        assert!(decode::<Query>(b"Q").is_err());
    }
}
