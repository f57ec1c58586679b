//! Cuts a stream of bytes into messages: a tag, a length that counts itself, and a body.
//!
//! The caller decides for each message whether it is gathered, forwarded in parts, or refused. A message is
//! gathered if the caller wants to decode it. Parts of other messages are forwarded as they arrive, so a row of
//! a gigabyte takes no more memory than a buffer.

use bytes::{Bytes, BytesMut};

use crate::Malformed;

/// Bytes of a tag and a length.
pub const HEADER_BYTES: usize = 5;

/// The longest message that a client may send before its session is ready (`PG_MAX_AUTH_TOKEN_LENGTH`).
const UNREADY_LENGTH_MAX: usize = 65_535;
/// The longest of the messages that have no long fields (`PQ_SMALL_MESSAGE_LIMIT`).
const SMALL_LENGTH_MAX: usize = 10_000;
/// The longest message of all (`PQ_LARGE_MESSAGE_LIMIT`).
const LARGE_LENGTH_MAX: usize = 0x3fff_fffe;

/// The largest length that the server accepts from a client for this tag. `is_ready`: the server has sent the
/// session's first `ReadyForQuery`.
pub fn client_length_max(tag: u8, is_ready: bool) -> usize {
    match tag {
        _ if !is_ready => UNREADY_LENGTH_MAX,
        b'Q' | b'F' | b'B' | b'P' | b'd' => LARGE_LENGTH_MAX,
        _ => SMALL_LENGTH_MAX,
    }
}

/// How a message is handled whose header has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The whole message is returned once it has arrived.
    Gather,
    /// Its bytes are returned as they arrive.
    Pass,
    /// The message is too long, which is an error.
    Refuse,
}

/// A piece of a stream of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A message with its header.
    Whole(Bytes),
    /// Bytes of a message that is not gathered. The first part begins with the header, and has the tag.
    Fragment(Option<u8>, Bytes),
}

/// The position in a stream: within a message, or between two.
#[derive(Debug, Default)]
pub struct Frames {
    /// Bytes that are missing of the message that is forwarded in parts.
    left: usize,
}

impl Frames {
    /// Whether the last message that was forwarded in parts is complete.
    pub fn is_between(&self) -> bool {
        self.left == 0
    }

    /// Takes the next piece off the front of `buffer`. Returns `None` if it needs more bytes. `handling` gets
    /// the tag and the length of each message. The length counts its own four bytes, but not the tag.
    ///
    /// # Errors
    /// The length is less than 4 or more than 2³¹ − 1, or `handling` refuses the message.
    pub fn next(
        &mut self,
        buffer: &mut BytesMut,
        handling: impl FnOnce(u8, usize) -> Handling,
    ) -> Result<Option<Piece>, Malformed> {
        if buffer.is_empty() {
            return Ok(None);
        }
        if self.left > 0 {
            return Ok(Some(Piece::Fragment(None, self.part(buffer))));
        }
        let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [tag, length @ ..] = *header;
        let length = u32::from_be_bytes(length);
        if !(4..=i32::MAX as u32).contains(&length) {
            return Err(Malformed("the length of a message is less than 4 or more than 2147483647"));
        }
        let bytes = length as usize + 1;
        match handling(tag, length as usize) {
            Handling::Gather => Ok((buffer.len() >= bytes).then(|| Piece::Whole(buffer.split_to(bytes).freeze()))),
            Handling::Pass => {
                self.left = bytes;
                Ok(Some(Piece::Fragment(Some(tag), self.part(buffer))))
            }
            Handling::Refuse => Err(Malformed("a message is longer than its type allows")),
        }
    }

    fn part(&mut self, buffer: &mut BytesMut) -> Bytes {
        let bytes = self.left.min(buffer.len());
        self.left -= bytes;
        buffer.split_to(bytes).freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short");
        [&[tag][..], &length.to_be_bytes(), body].concat()
    }

    #[test]
    fn a_stream_leaves_in_order_in_whatever_pieces_it_arrives() {
        let stream =
            [message(b'Q', b"select 1\0"), message(b'd', &[7; 300]), message(b'S', b""), message(b'd', b"x")].concat();
        let handling = |tag, _| if tag == b'd' { Handling::Pass } else { Handling::Gather };
        for step in 1..=stream.len() {
            let (mut frames, mut buffer, mut left, mut whole) = (Frames::default(), BytesMut::new(), Vec::new(), 0);
            for chunk in stream.chunks(step) {
                buffer.extend_from_slice(chunk);
                while let Some(piece) = frames.next(&mut buffer, handling).expect("well formed") {
                    match piece {
                        Piece::Whole(bytes) => {
                            whole += 1;
                            left.extend_from_slice(&bytes);
                        }
                        Piece::Fragment(tag, bytes) => {
                            assert!(tag.is_none_or(|tag| tag == b'd' && bytes[0] == tag));
                            left.extend_from_slice(&bytes);
                        }
                    }
                }
            }
            assert_eq!((left, whole, frames.is_between()), (stream.clone(), 2, true), "in steps of {step}");
        }
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for length in [0, 3, u32::MAX, 1 << 31] {
            let mut buffer = BytesMut::from(&[&b"Q"[..], &length.to_be_bytes()].concat()[..]);
            assert!(Frames::default().next(&mut buffer, |_, _| Handling::Gather).is_err(), "{length}");
        }
    }

    /// A message is refused when its header arrives, before its body.
    #[test]
    fn clients_may_send_messages_as_long_as_the_server_accepts() {
        for (tag, is_ready, most) in [
            (b'Q', true, 0x3fff_fffe),
            (b'B', true, 0x3fff_fffe),
            (b'd', true, 0x3fff_fffe),
            (b'S', true, 10_000),
            (b'E', true, 10_000),
            (b'p', false, 65_535),
            (b'P', false, 65_535),
        ] {
            let handling = |tag, length| match length <= client_length_max(tag, is_ready) {
                true => Handling::Pass,
                false => Handling::Refuse,
            };
            for (length, is_taken) in [(most, true), (most + 1, false)] {
                let length = u32::try_from(length).expect("short").to_be_bytes();
                let mut header = BytesMut::from(&[&[tag][..], &length].concat()[..]);
                assert_eq!(Frames::default().next(&mut header, handling).is_ok(), is_taken, "{}", char::from(tag));
            }
        }
    }
}
