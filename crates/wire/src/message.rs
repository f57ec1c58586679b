//! Decodes whole messages with the codecs of `pgwire`, after checking their bounds.
//!
//! A codec of `pgwire` panics on a body that is too short, and reserves memory for as many elements as a count
//! claims. So [`decode`] accepts only messages that implement [`Layout`]. That is a walk over the body that reads each
//! field within its bounds, and must end where the body ends. The codec runs only after the walk has succeeded.
//!
//! The source of the layouts is the PostgreSQL 15 documentation, §55.7, "Message Formats".

use bytes::{Bytes, BytesMut};
use pgwire::messages::extendedquery::{Bind, Close, Describe, Execute, Parse};
use pgwire::messages::response::{CommandComplete, ErrorResponse};
use pgwire::messages::simplequery::Query;
use pgwire::messages::startup::ParameterStatus;
use pgwire::messages::{DecodeContext, Message};

use crate::Malformed;
use crate::frames::HEADER_BYTES;

/// A message whose bounds can be checked before it is decoded.
pub trait Layout: Message {
    /// Takes the fields of this message off the front of a body. Returns `None` if the body is too short.
    fn walk(body: &mut Body<'_>) -> Option<()>;
}

/// Decodes a whole message with its header.
///
/// # Errors
/// The bytes are not exactly one message of this kind.
pub fn decode<M: Layout>(bytes: &[u8]) -> Result<M, Malformed> {
    let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Malformed("a message without a header"))?;
    let [tag, length @ ..] = *header;
    let mut rest = Body(body);
    let is_whole = M::message_type() == Some(tag) && u32::from_be_bytes(length) as usize == body.len() + 4;
    if !is_whole || M::walk(&mut rest).is_none() || !rest.0.is_empty() {
        return Err(Malformed("the message is not laid out as its type requires"));
    }
    let decoded = M::decode_body(&mut BytesMut::from(body), body.len() + 4, &DecodeContext::default());
    decoded.map_err(|_| Malformed("the message has a field with an invalid value"))
}

/// Encodes a message.
///
/// # Panics
/// If the message is longer than its type allows.
pub fn encode(message: &impl Message) -> Bytes {
    let mut buffer = BytesMut::new();
    message.encode(&mut buffer).expect("the message is within the limits of its type");
    buffer.freeze()
}

/// The rest of a message's body. Each method takes a field off its front, or returns `None` if the body is too short.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a>(&'a [u8]);

impl<'a> From<&'a [u8]> for Body<'a> {
    fn from(bytes: &'a [u8]) -> Body<'a> {
        Body(bytes)
    }
}

impl<'a> Body<'a> {
    /// The body of a message with a tag.
    pub fn of(message: &'a [u8]) -> Body<'a> {
        Body(message.get(HEADER_BYTES..).unwrap_or_default())
    }

    /// The rest of the body.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// The next `bytes` bytes.
    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// An `Int32`.
    pub fn int32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// An `Int16` that counts elements. It is unsigned, as in the server.
    fn count(&mut self) -> Option<usize> {
        self.array().map(u16::from_be_bytes).map(usize::from)
    }

    /// A `String`, without its terminating zero byte.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let string = self.take(end)?;
        self.take(1).map(|_| string)
    }
}

/// The mechanism and the first message of a client that logs in (`SASLInitialResponse`).
pub fn first_response(message: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let mut body = Body::of(message);
    let mechanism = body.string()?;
    let response = match body.int32()? {
        -1 => None,
        length => Some(body.take(usize::try_from(length).ok()?)?),
    };
    body.0.is_empty().then_some((mechanism, response))
}

impl Layout for Query {
    fn walk(body: &mut Body<'_>) -> Option<()> {
        body.string().map(drop)
    }
}

impl Layout for Parse {
    fn walk(body: &mut Body<'_>) -> Option<()> {
        body.string()?;
        body.string()?;
        let types = body.count()?;
        body.take(4 * types).map(drop)
    }
}

impl Layout for Bind {
    fn walk(body: &mut Body<'_>) -> Option<()> {
        body.string()?;
        body.string()?;
        let formats = body.count()?;
        body.take(2 * formats)?;
        for _ in 0..body.count()? {
            // -1 is NULL. The codec accepts any negative length as NULL, but the server refuses the others.
            match body.int32()? {
                -1 => {}
                length => drop(body.take(usize::try_from(length).ok()?)?),
            }
        }
        let formats = body.count()?;
        body.take(2 * formats).map(drop)
    }
}

/// The name of a statement or a portal.
fn walk_target(body: &mut Body<'_>) -> Option<()> {
    body.take(1)?;
    body.string().map(drop)
}

impl Layout for Describe {
    fn walk(body: &mut Body<'_>) -> Option<()> {
        walk_target(body)
    }
}

impl Layout for Close {
    fn walk(body: &mut Body<'_>) -> Option<()> {
        walk_target(body)
    }
}

impl Layout for Execute {
    fn walk(body: &mut Body<'_>) -> Option<()> {
        body.string()?;
        body.int32().map(drop)
    }
}

impl Layout for CommandComplete {
    fn walk(body: &mut Body<'_>) -> Option<()> {
        body.string().map(drop)
    }
}

impl Layout for ParameterStatus {
    fn walk(body: &mut Body<'_>) -> Option<()> {
        body.string()?;
        body.string().map(drop)
    }
}

impl Layout for ErrorResponse {
    fn walk(body: &mut Body<'_>) -> Option<()> {
        while body.take(1)? != [0] {
            body.string()?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    /// Decodes a message, every prefix of its body, its body with one more byte, and its body with each byte
    /// changed. Any result must encode to the same length. `pgwire` panics on bodies that are too short.
    fn survives<M: Layout + PartialEq + std::fmt::Debug>(message: &M) {
        let bytes = encode(message);
        assert_eq!(decode::<M>(&bytes).as_ref(), Ok(message));
        let (tag, body) = (bytes[0], &bytes[HEADER_BYTES..]);
        for end in 0..bytes.len() {
            assert!(decode::<M>(&bytes[..end]).is_err(), "{message:?} cut at {end}");
        }
        for end in 0..body.len() {
            assert!(decode::<M>(&framed(tag, &body[..end])).is_err(), "{message:?} with a body of {end} bytes");
        }
        assert!(decode::<M>(&framed(tag, &[body, &[0]].concat())).is_err(), "{message:?} with a byte more");
        assert!(decode::<M>(&framed(tag ^ 1, body)).is_err(), "{message:?} with another tag");
        for at in 0..body.len() {
            for value in 0..=u8::MAX {
                let mut changed = body.to_vec();
                changed[at] = value;
                // The codec converts bytes that are not UTF-8 to text with three bytes for each.
                if let Ok(decoded) = decode::<M>(&framed(tag, &changed))
                    && changed.is_ascii()
                {
                    assert_eq!(encode(&decoded).len(), bytes.len(), "byte {at} of {message:?} is {value}");
                }
            }
        }
    }

    #[test]
    fn messages_decode_and_cut_or_changed_ones_are_refused_without_a_panic() {
        survives(&Query::new("select 1".into()));
        survives(&Parse::new(Some("s".into()), "select $1, $2".into(), vec![23, 25]));
        let values = vec![Some(Bytes::from_static(b"\0\0\0\x05")), None, Some(Bytes::new())];
        survives(&Bind::new(Some("p".into()), Some("s".into()), vec![1, 0, 1], values, vec![0, 1]));
        survives(&Bind::new(None, None, vec![], vec![], vec![]));
        survives(&Describe::new(b'S', Some("s".into())));
        survives(&Close::new(b'P', None));
        survives(&Execute::new(Some("p".into()), 7));
        survives(&CommandComplete::new("INSERT 0 1".into()));
        survives(&ParameterStatus::new("client_encoding".into(), "UTF8".into()));
        survives(&ErrorResponse::new(vec![(b'S', "ERROR".into()), (b'C', "40001".into())]));
    }

    #[test]
    fn lengths_and_counts_beyond_the_message_are_refused() {
        // 65,535 types, parameters or formats, and a value of 2 GiB or of a negative length.
        assert!(decode::<Parse>(&framed(b'P', b"\0\0\xff\xff")).is_err());
        assert!(decode::<Bind>(&framed(b'B', b"\0\0\xff\xff")).is_err());
        assert!(decode::<Bind>(&framed(b'B', b"\0\0\0\0\xff\xff\0\0")).is_err());
        assert!(decode::<Bind>(&framed(b'B', b"\0\0\0\0\0\0\xff\xff")).is_err());
        for length in [i32::MAX, i32::MIN, -2, 1] {
            let body = [&b"\0\0\0\0\0\x01"[..], &length.to_be_bytes(), b"\0\0"].concat();
            assert!(decode::<Bind>(&framed(b'B', &body)).is_err(), "{length}");
        }
        assert!(decode::<Bind>(&framed(b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xff\0\0")).is_ok(), "NULL");
    }
}
