//! Cuts a stream of bytes into messages: a tag, a length that counts itself, and what that length says.
//!
//! A message is gathered if its reader wants to look into it, and passed on in parts otherwise, so that a row of a gigabyte takes no
//! more memory than a buffer.

use bytes::{Bytes, BytesMut};

use crate::Malformed;

/// Bytes of a tag and a length.
pub const HEADER_BYTES: usize = 5;

/// What comes next of a stream of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A message, its header included.
    Whole(Bytes),
    /// Bytes of a message that is not gathered; of the first, with its header, the tag is told.
    Part(Option<u8>, Bytes),
}

/// Where a stream is: in a message, or between two.
#[derive(Debug, Default)]
pub struct Frames {
    /// Bytes of a message begun that are still to come.
    left: usize,
}

impl Frames {
    /// Whether the last message is complete.
    pub fn is_between(&self) -> bool {
        self.left == 0
    }

    /// Takes the next piece from the front of `buffer`; none: more bytes are needed. `gather` is told tag and length, header included,
    /// of each message, and whether it is to be gathered.
    ///
    /// # Errors
    /// When a length cannot be.
    pub fn next(
        &mut self,
        buffer: &mut BytesMut,
        gather: impl FnOnce(u8, usize) -> bool,
    ) -> Result<Option<Piece>, Malformed> {
        if buffer.is_empty() {
            return Ok(None);
        }
        if self.left > 0 {
            return Ok(Some(Piece::Part(None, self.part(buffer))));
        }
        let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [tag, length @ ..] = *header;
        let length = u32::from_be_bytes(length);
        if !(4..=i32::MAX as u32).contains(&length) {
            return Err(Malformed("the length of a message cannot be"));
        }
        let bytes = length as usize + 1;
        if gather(tag, bytes) {
            return Ok((buffer.len() >= bytes).then(|| Piece::Whole(buffer.split_to(bytes).freeze())));
        }
        self.left = bytes;
        Ok(Some(Piece::Part(Some(tag), self.part(buffer))))
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
    fn however_a_stream_arrives_its_bytes_leave_in_order() {
        let stream =
            [message(b'Q', b"select 1\0"), message(b'd', &[7; 300]), message(b'S', b""), message(b'd', b"x")].concat();
        for step in 1..=stream.len() {
            let (mut frames, mut buffer, mut left, mut whole) = (Frames::default(), BytesMut::new(), Vec::new(), 0);
            for chunk in stream.chunks(step) {
                buffer.extend_from_slice(chunk);
                while let Some(piece) = frames.next(&mut buffer, |tag, _| tag != b'd').expect("well formed") {
                    match piece {
                        Piece::Whole(bytes) => {
                            whole += 1;
                            left.extend_from_slice(&bytes);
                        }
                        Piece::Part(tag, bytes) => {
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
    fn lengths_that_cannot_be_are_refused() {
        for length in [0, 3, u32::MAX, 1 << 31] {
            let mut buffer = BytesMut::from(&[&b"Q"[..], &length.to_be_bytes()].concat()[..]);
            assert!(Frames::default().next(&mut buffer, |_, _| true).is_err(), "{length}");
        }
    }
}
