//! Which core wrote a cache line last, and which have read it since.
//!
//! Only lines that a simulated core has written are known; others were there before and cost nobody a transfer. Lines are found
//! by address, and nothing depends on the order of addresses.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use seriatim_base::CACHE_LINE;

/// Most cores of a machine.
pub(crate) const CORES_MAX: usize = 128;

#[derive(Clone, Copy, Debug)]
struct Line {
    /// The core that wrote it last.
    owner: u8,
    /// Those that have it: the owner, and who has read it since.
    holders: u128,
}

/// The lines that cores have written.
#[derive(Debug, Default)]
pub(crate) struct Lines(HashMap<usize, Line, BuildHasherDefault<Multiply>>);

/// The line of an address.
pub(crate) const fn line_of(address: usize) -> usize {
    address / CACHE_LINE
}

impl Lines {
    /// A core reads the line; whether it has to be brought to it.
    pub(crate) fn read(&mut self, core: usize, line: usize) -> bool {
        let Some(Line { holders, .. }) = self.0.get_mut(&line) else { return false };
        let has = *holders & 1 << core != 0;
        *holders |= 1 << core;
        !has
    }

    /// A core writes the line; whether others have it.
    pub(crate) fn write(&mut self, core: usize, line: usize) -> bool {
        let owned = Line { owner: core as u8, holders: 1 << core };
        let before = self.0.insert(line, owned);
        before.is_some_and(|before| usize::from(before.owner) != core || before.holders != 1 << core)
    }
}

/// The lines that a core's attempt has touched, all of them: which of two addresses a cache would keep differs between processes.
#[derive(Debug, Default)]
pub(crate) struct Touched(HashSet<usize, BuildHasherDefault<Multiply>>);

/// Room that is kept from one attempt to the next: clearing it takes time.
const ROOM: usize = 4096;

impl Touched {
    /// Another attempt begins.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
        self.0.shrink_to(ROOM);
    }

    /// The attempt touches a line; whether it has before.
    pub(crate) fn touch(&mut self, line: usize) -> bool {
        !self.0.insert(line)
    }
}

/// Spreads the bits of one word: addresses need no more, and every run has the same.
#[derive(Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(usize::from(byte)));
    }

    fn write_usize(&mut self, word: usize) {
        self.0 = (self.0 ^ word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_transferred_once_to_each_reader_and_back_to_its_writer() {
        let mut lines = Lines::default();
        // Nobody of the machine has written it.
        assert!(!lines.read(0, 7) && !lines.write(0, 7));
        assert!(!lines.read(0, 7) && !lines.write(0, 7));
        assert!(lines.read(1, 7) && !lines.read(1, 7) && lines.read(2, 7));
        assert!(lines.write(0, 7), "others have read it");
        assert!(!lines.write(0, 7) && lines.write(1, 7) && !lines.write(1, 7));
        assert!(lines.read(0, 7) && !lines.read(0, 8));
    }

    #[test]
    fn an_attempt_knows_the_lines_that_it_has_touched_until_the_next() {
        let mut touched = Touched::default();
        assert!(!touched.touch(0) && touched.touch(0));
        assert!((1..100).all(|line| !touched.touch(line)));
        assert!(touched.touch(0) && touched.touch(99));
        touched.clear();
        assert!(!touched.touch(0) && !touched.touch(99) && touched.touch(99));
    }
}
