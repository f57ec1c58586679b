//! Which lines the open regions have touched, and which regions are lost.
//!
//! As in Intel's processors, a core that requests a line gets it, and the region that had it is lost. A region
//! loses to any write of a line that it has read, and to any touch of one that it has written. It notices at
//! its next access. Lines are found by address, and the address also determines their set in the first-level
//! cache.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;

use seriatim_base::simulated::{Lost, WorkingSet};

use crate::lines::{CORES_MAX, Multiply};

/// Sets of the first-level cache, which holds the written lines of a region, and the lines of each set: 48
/// KiB. Of regions that write 512 scattered lines 1 % fit; of those that write 256 nearly all (measured on
/// Emerald Rapids; this model gives the same).
const SETS: usize = 64;
const WAYS: u8 = 12;

/// Lines that a region may read: 256 KiB, at which 41 % of regions commit (measured on Emerald Rapids).
const LINES_READ_MAX: usize = 4096;

/// A core's region.
#[derive(Debug)]
struct Open {
    lost: Option<Lost>,
    /// The lines that it has touched, each once.
    lines: Vec<usize>,
    reads: usize,
    /// Lines written, by set.
    sets: [u8; SETS],
}

/// The regions that have a line.
#[derive(Clone, Copy, Debug, Default)]
struct Holders {
    readers: u128,
    writers: u128,
}

/// The open regions of all cores.
#[derive(Debug)]
pub(crate) struct Regions {
    open: Vec<Option<Open>>,
    count: usize,
    lines: HashMap<usize, Holders, BuildHasherDefault<Multiply>>,
}

impl Default for Regions {
    fn default() -> Regions {
        Regions { open: (0..CORES_MAX).map(|_| None).collect(), count: 0, lines: HashMap::default() }
    }
}

impl Regions {
    /// # Panics
    /// If the core has an open region.
    pub(crate) fn begin(&mut self, core: usize) {
        let open = Open { lost: None, lines: Vec::new(), reads: 0, sets: [0; SETS] };
        assert!(self.open[core].replace(open).is_none(), "a region within a region");
        self.count += 1;
    }

    /// A core touches a line, in a region or not: regions of others that had the line are lost.
    pub(crate) fn touch(&mut self, core: usize, line: usize, writes: bool) {
        if self.count == 0 {
            return;
        }
        if let Some(holders) = self.lines.get(&line) {
            Regions::take(&mut self.open, core, holders, writes);
        }
    }

    /// Takes a line from the regions that have it.
    fn take(open: &mut [Option<Open>], core: usize, holders: &Holders, writes: bool) {
        let mut losers = (holders.writers | if writes { holders.readers } else { 0 }) & !(1 << core);
        while losers != 0 {
            let loser = losers.trailing_zeros() as usize;
            losers &= losers - 1;
            if let Some(open) = &mut open[loser] {
                open.lost.get_or_insert(Lost::Conflict);
            }
        }
    }

    /// A core touches a line in its region: as [`Regions::touch`], and then the region has the line.
    pub(crate) fn access(&mut self, core: usize, line: usize, writes: bool) -> Result<(), Lost> {
        let (holders, own) = (self.lines.entry(line).or_default(), 1 << core);
        Regions::take(&mut self.open, core, holders, writes);
        let open = self.open[core].as_mut().expect("the core has begun a region");
        if (holders.readers | holders.writers) & own == 0 {
            open.lines.push(line);
        }
        if writes && holders.writers & own == 0 {
            holders.writers |= own;
            let set = &mut open.sets[line % SETS];
            *set += 1;
            if *set > WAYS {
                open.lost.get_or_insert(Lost::Capacity);
            }
        } else if !writes && holders.readers & own == 0 {
            holders.readers |= own;
            open.reads += 1;
            if open.reads > LINES_READ_MAX {
                open.lost.get_or_insert(Lost::Capacity);
            }
        }
        open.lost.map_or(Ok(()), Err)
    }

    /// The lines that a core's region has touched.
    pub(crate) fn working_set(&self, core: usize, decides: bool) -> WorkingSet {
        let Some(open) = &self.open[core] else { return WorkingSet::default() };
        let written = open.sets.iter().map(|&lines| usize::from(lines)).sum();
        WorkingSet { read: open.reads, written, lines: open.lines.len(), decides }
    }

    /// Ends a core's region. Returns whether it may commit.
    pub(crate) fn end(&mut self, core: usize) -> Result<(), Lost> {
        let Some(open) = self.open[core].take() else { return Ok(()) };
        self.count -= 1;
        for line in open.lines {
            if let Entry::Occupied(mut entry) = self.lines.entry(line) {
                let holders = entry.get_mut();
                holders.readers &= !(1 << core);
                holders.writers &= !(1 << core);
                if holders.readers | holders.writers == 0 {
                    entry.remove();
                }
            }
        }
        open.lost.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of core 0's region, which reads line 1 and writes line 2.
    fn after(touch: impl FnOnce(&mut Regions)) -> Result<(), Lost> {
        let mut regions = Regions::default();
        regions.begin(0);
        regions.access(0, 1, false).expect("nobody is there");
        regions.access(0, 2, true).expect("nobody is there");
        touch(&mut regions);
        let ended = regions.end(0);
        // It has none of the lines any more.
        regions.touch(1, 2, true);
        assert!(regions.lines.is_empty());
        ended
    }

    #[test]
    fn a_region_loses_to_any_touch_of_what_it_wrote_and_to_writes_of_what_it_read() {
        assert_eq!(after(|_| {}), Ok(()));
        assert_eq!(after(|regions| regions.touch(1, 1, false)), Ok(()));
        assert_eq!(after(|regions| regions.touch(1, 3, true)), Ok(()));
        assert_eq!(after(|regions| regions.touch(1, 1, true)), Err(Lost::Conflict));
        assert_eq!(after(|regions| regions.touch(1, 2, false)), Err(Lost::Conflict));
        assert_eq!(after(|regions| regions.touch(1, 2, true)), Err(Lost::Conflict));
        // Its own touches outside of the region.
        assert_eq!(after(|regions| regions.touch(0, 2, true)), Ok(()));
    }

    #[test]
    fn of_two_regions_the_one_that_comes_later_gets_the_line() {
        for writes in [false, true] {
            let later = |regions: &mut Regions| {
                regions.begin(1);
                regions.access(1, 2, writes).expect("it takes the line");
                regions.end(1).expect("it has it");
            };
            assert_eq!(after(later), Err(Lost::Conflict));
        }
        let reads_too = |regions: &mut Regions| {
            regions.begin(1);
            regions.access(1, 1, false).expect("lines are read together");
            assert_eq!(regions.access(0, 1, false), Ok(()));
            regions.end(1).expect("nobody wrote it");
        };
        assert_eq!(after(reads_too), Ok(()));
    }

    #[test]
    fn a_lost_region_aborts_at_its_next_access() {
        let told = |regions: &mut Regions| {
            regions.touch(1, 1, true);
            assert_eq!(regions.access(0, 9, false), Err(Lost::Conflict));
        };
        assert_eq!(after(told), Err(Lost::Conflict));
    }

    #[test]
    fn a_region_writes_as_much_as_the_first_cache_keeps_and_reads_more() {
        // The number of lines at which a region is full.
        let full = |stride: usize, writes| {
            let mut regions = Regions::default();
            regions.begin(0);
            (0..10_000).find(|at| regions.access(0, at * stride, writes).is_err())
        };
        assert_eq!(full(1, true), Some(SETS * usize::from(WAYS)));
        assert_eq!(full(SETS, true), Some(usize::from(WAYS)), "lines of one set");
        assert_eq!(full(1, false), Some(LINES_READ_MAX));
    }

    #[test]
    fn a_line_counts_once_however_often_it_is_touched() {
        let mut regions = Regions::default();
        regions.begin(0);
        for _ in 0..10_000 {
            assert_eq!((regions.access(0, 5, true), regions.access(0, 5, false)), (Ok(()), Ok(())));
        }
        assert_eq!(regions.working_set(0, true), WorkingSet { read: 1, written: 1, lines: 1, decides: true });
        regions.access(0, 6, false).expect("nobody is there");
        assert_eq!(regions.working_set(0, false), WorkingSet { read: 2, written: 1, lines: 2, decides: false });
        assert_eq!(regions.end(0), Ok(()));
        assert_eq!(regions.working_set(0, false), WorkingSet::default(), "there is none");
    }
}
