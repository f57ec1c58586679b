//! Which core wrote a cache line last, and which cores have read it since.
//!
//! Only lines that a simulated core has written are known; other lines cost no transfer. A line leaves a
//! core's caches when the core has brought in as many other lines as they hold. Then it is as far from that core as
//! from another. Lines are found by address, and nothing depends on the order of addresses.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use seriatim_base::CACHE_LINE;

/// The most cores of a machine.
pub(crate) const CORES_MAX: usize = 128;

/// A written line. It is kept small: there are millions, and looking one up is most of the cost of a step.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// The cores that have it: its last writer, and its readers since. Two words, because a `u128` would be
    /// aligned to 16 bytes.
    holders: [u64; 2],
    /// The number of first touches of its last toucher at that time; after 2^32 more it wraps around.
    at: u32,
    /// The core that touched it last.
    last: u8,
}

/// The set of this core alone.
fn only(core: usize) -> [u64; 2] {
    let mut holders = [0; 2];
    holders[core / 64] = 1 << (core % 64);
    holders
}

/// First touches after which a line is in none of the core's own caches. A second-level cache of 2 MiB
/// (Emerald Rapids), with two lines for each touch, since a header is followed by its row.
const NEAR: u64 = 16 << 10;

/// The lines that cores have written.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: HashMap<usize, Line, BuildHasherDefault<Multiply>>,
    /// First touches, by core.
    brought: Vec<u64>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { lines: HashMap::default(), brought: vec![0; CORES_MAX] }
    }
}

/// The line of an address.
pub(crate) const fn line_of(address: usize) -> usize {
    address / CACHE_LINE
}

impl Lines {
    /// A core touches a line that its attempt has not touched before.
    pub(crate) fn bring(&mut self, core: usize) {
        self.brought[core] += 1;
    }

    /// Whether the line may be in the caches of the core that touched it last.
    fn is_near(brought: &[u64], line: &Line) -> bool {
        u64::from((brought[usize::from(line.last)] as u32).wrapping_sub(line.at)) <= NEAR
    }

    /// A core reads the line. Returns whether the line has to be transferred from another core.
    pub(crate) fn read(&mut self, core: usize, line: usize) -> bool {
        let Some(found) = self.lines.get_mut(&line) else { return false };
        let own = only(core);
        let before = if Lines::is_near(&self.brought, found) { found.holders } else { own };
        let holders = [before[0] | own[0], before[1] | own[1]];
        *found = Line { holders, at: self.brought[core] as u32, last: core as u8 };
        holders != before
    }

    /// A core writes the line. Returns whether others have it.
    pub(crate) fn write(&mut self, core: usize, line: usize) -> bool {
        let now = Line { holders: only(core), at: self.brought[core] as u32, last: core as u8 };
        let before = self.lines.insert(line, now);
        before.is_some_and(|before| Lines::is_near(&self.brought, &before) && before.holders != now.holders)
    }
}

/// All lines that a core's attempt has touched. (A bounded set would depend on addresses, which differ between
/// processes.)
#[derive(Debug, Default)]
pub(crate) struct Touched(HashSet<usize, BuildHasherDefault<Multiply>>);

/// Capacity that is kept from one attempt to the next: clearing it takes time.
const ROOM: usize = 4096;

impl Touched {
    /// Another attempt begins.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
        self.0.shrink_to(ROOM);
    }

    /// The attempt touches a line. Returns whether it had touched it before.
    pub(crate) fn touch(&mut self, line: usize) -> bool {
        !self.0.insert(line)
    }
}

/// Spreads the bits of one word: addresses need no more, and every run has the same hashes.
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
        // No core of the machine has written it.
        assert!(!lines.read(0, 7) && !lines.write(0, 7));
        assert!(!lines.read(0, 7) && !lines.write(0, 7));
        assert!(lines.read(1, 7) && !lines.read(1, 7) && lines.read(2, 7));
        assert!(lines.write(0, 7), "others have read it");
        assert!(!lines.write(0, 7) && lines.write(1, 7) && !lines.write(1, 7));
        assert!(lines.read(0, 7) && !lines.read(0, 8));
    }

    #[test]
    fn a_line_that_has_left_the_caches_is_as_near_to_all() {
        for (touches, is_near) in [(NEAR, true), (NEAR + 1, false)] {
            let mut lines = Lines::default();
            for writes in [false, true] {
                assert_eq!(lines.write(0, 7), writes && is_near, "others have it as of the round before");
                (0..touches).for_each(|_| lines.bring(0));
                (0..2 * NEAR).for_each(|_| lines.bring(1));
                assert_eq!(if writes { lines.write(1, 7) } else { lines.read(1, 7) }, is_near);
                (0..touches).for_each(|_| lines.bring(1));
            }
        }
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
