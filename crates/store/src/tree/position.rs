//! The position from which a scan continues: owned bounds, so that a cursor survives the worker going offline.

use crate::cursor::Direction;
use seriatim_catalog::{Key, KeyClass};
use std::cmp::Ordering;
use std::ops::Bound;

/// Bytes of a key for which a cursor keeps room.
const KEY_BYTES_KEPT: usize = 4 << 10;

/// One end of a range. Keys of words are in `word`, byte strings in `bytes`.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    pub(crate) side: Side,
    pub(crate) word: u128,
    pub(crate) bytes: Vec<u8>,
}

impl Limit {
    /// Makes it this end of a range.
    #[inline]
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
                // A key may be a long text.
                self.bytes.shrink_to(KEY_BYTES_KEPT);
                self.bytes.extend_from_slice(bytes);
            }
        }
    }

    /// Its key, of this class. Any key if it has none.
    #[inline(always)]
    pub(crate) fn key(&self, class: KeyClass) -> Key<'_> {
        match class {
            KeyClass::Word8 => Key::Word8(self.word as u64),
            KeyClass::Word16 => Key::Word16(self.word),
            KeyClass::Bytes => Key::Bytes(&self.bytes),
        }
    }

    /// As what it was set, by a key of this class.
    pub(crate) fn bound(&self, class: KeyClass) -> Bound<Key<'_>> {
        match self.side {
            Side::Unbounded => Bound::Unbounded,
            Side::Included => Bound::Included(self.key(class)),
            Side::Excluded => Bound::Excluded(self.key(class)),
        }
    }

    /// How `key` compares with the end, if the end has one.
    fn compare(&self, key: Key<'_>) -> Option<Ordering> {
        (self.side != Side::Unbounded).then(|| key.cmp(&self.key(key.class())))
    }

    /// Whether `key` is not beyond this end, where beyond is `outside`.
    fn admits(&self, key: Key<'_>, outside: Ordering) -> bool {
        match self.compare(key) {
            None => true,
            Some(Ordering::Equal) => self.side == Side::Included,
            Some(order) => order != outside,
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

/// The rest of a scan.
#[derive(Debug, Default)]
pub(crate) struct Position {
    pub(crate) direction: Direction,
    /// The end from which it continues: the low end of a forward scan, the high end of a backward one.
    pub(crate) near: Limit,
    /// Where to end.
    pub(crate) far: Limit,
    pub(crate) exhausted: bool,
}

impl Position {
    /// Whether the scan has passed `key`, which is of the index's class, since it was at `before`.
    pub(crate) fn has_passed(&self, before: &Limit, key: Key<'_>) -> bool {
        let (behind, beyond) = match self.direction {
            Direction::Forward => (Ordering::Less, Ordering::Greater),
            Direction::Backward => (Ordering::Greater, Ordering::Less),
        };
        let was_ahead = before.admits(key, behind) && self.far.admits(key, beyond);
        was_ahead && (self.exhausted || !self.near.admits(key, behind))
    }
}
