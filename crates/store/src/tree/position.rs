//! Where a scan goes on: owned bounds, so that a cursor survives the worker going offline.

use crate::cursor::Direction;
use seriatim_catalog::Key;
use std::ops::Bound;

/// One end of a range. Which field holds the key is the business of the index's kind.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    pub(crate) side: Side,
    pub(crate) word: u128,
    pub(crate) bytes: Vec<u8>,
}

impl Limit {
    /// Makes it this end of a range.
    pub(crate) fn set(&mut self, bound: Bound<Key<'_>>) {
        let (side, key) = match bound {
            Bound::Unbounded => (Side::Unbounded, None),
            Bound::Included(key) => (Side::Included, Some(key)),
            Bound::Excluded(key) => (Side::Excluded, Some(key)),
        };
        self.side = side;
        match key {
            None => {}
            Some(Key::Word8(word)) => self.word = u128::from(word),
            Some(Key::Word16(words)) => self.word = words,
            Some(Key::Bytes(bytes)) => {
                self.bytes.clear();
                self.bytes.extend_from_slice(bytes);
            }
        }
    }
}

/// Whether an end has a key, and whether the key is in the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Side {
    #[default]
    Unbounded,
    Included,
    Excluded,
}

/// What is left of a scan.
#[derive(Debug, Default)]
pub(crate) struct Position {
    pub(crate) direction: Direction,
    /// Where to go on: the low end of a forward scan, the high end of a backward one.
    pub(crate) near: Limit,
    /// Where to end.
    pub(crate) far: Limit,
    pub(crate) exhausted: bool,
}
