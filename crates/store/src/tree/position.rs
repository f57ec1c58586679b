//! Where a scan goes on: owned bounds, so that a cursor survives the worker going offline.

use crate::cursor::Direction;

/// One end of a range. Which field holds the key is the business of the index's kind.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    pub(crate) side: Side,
    pub(crate) word: u128,
    pub(crate) bytes: Vec<u8>,
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
