//! The contents of one file of the simulated disk: in the page cache, and on the disk.
//!
//! Invariant: reads see `sectors` and `bytes`. Where these are not durable, `unsynced` and `unsynced_bytes` have the
//! values that the disk may hold instead. These are the last durable value, and the values written between it and the
//! newest. A sector is never torn. before the newest. A sector is whole: it is never found half written.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::draw_survival;
use crate::Rng;

/// The unit of tearing and of space.
pub(super) const SECTOR_BYTES: usize = 512;

/// The largest file. The sector list of a larger one would use too much memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// How many values between the durable and the newest one are kept. Older ones are taken never to have reached
/// the disk.
const BETWEEN_MAX: usize = 4;

/// `None` is a hole: zeros that occupy no space.
type Sector = Option<Arc<[u8; SECTOR_BYTES]>>;

#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    /// Sectors behind the end of the list are holes.
    sectors: Vec<Sector>,
    bytes: u64,
    unsynced: BTreeMap<usize, Past<Sector>>,
    unsynced_bytes: Option<Past<u64>>,
}

/// The values that the disk may hold instead of the newest one.
#[derive(Clone, Debug)]
struct Past<T> {
    durable: T,
    between: Vec<T>,
    /// A failed sync dropped the newest value: reads see it, but no later sync writes it.
    dropped: bool,
}

impl<T: Clone> Past<T> {
    fn new(durable: T) -> Past<T> {
        Past { durable, between: Vec::new(), dropped: false }
    }

    /// Notes a value that is about to be replaced, unless it can never reach the disk.
    fn note(&mut self, replaced: T) {
        if !std::mem::take(&mut self.dropped) {
            if self.between.len() == BETWEEN_MAX {
                self.between.remove(0);
            }
            self.between.push(replaced);
        }
    }

    /// Decides whether the newest value reached the disk. If not, returns the value that did.
    fn settle(&mut self, rng: &mut Rng, survival: u64) -> Result<(), T> {
        if self.dropped {
            return Err(self.durable.clone());
        }
        if rng.percent(survival) {
            return Ok(());
        }
        let older = rng.below(1 + self.between.len() as u64) as usize;
        Err(if older == 0 { self.durable.clone() } else { self.between.swap_remove(older - 1) })
    }

    /// As [`Past::settle`], for a failed sync. Returns the remaining values if the newest one did not reach the disk.
    fn fail_sync(mut self, rng: &mut Rng, survival: u64) -> Option<Past<T>> {
        let durable = self.settle(rng, survival).err()?;
        Some(Past { durable, between: Vec::new(), dropped: true })
    }
}

impl Contents {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sectors that occupy space.
    pub(super) fn allocated(&self) -> u64 {
        self.sectors.iter().flatten().count() as u64
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let length = self.bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        for part in parts(offset, length) {
            let into = &mut buffer[part.buffer];
            match self.sectors.get(part.sector) {
                Some(Some(sector)) => into.copy_from_slice(&sector[part.within]),
                _ => into.fill(0),
            }
        }
        length
    }

    /// How much of a write fits into `free` sectors: the bytes, and the sectors that they take.
    pub(super) fn fitting(&self, offset: u64, length: usize, free: u64) -> (usize, u64) {
        let mut taken = 0;
        for part in parts(offset, length) {
            if !matches!(self.sectors.get(part.sector), Some(Some(_))) {
                if taken == free {
                    return (part.buffer.start, taken);
                }
                taken += 1;
            }
        }
        (length, taken)
    }

    /// Checks that a write does not make the file too long.
    pub(super) fn check_end(offset: u64, length: u64) -> io::Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= FILE_BYTES_MAX => Ok(()),
            _ => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    pub(super) fn write_at(&mut self, bytes: &[u8], offset: u64) {
        for part in parts(offset, bytes.len()) {
            self.change(part.sector)[part.within].copy_from_slice(&bytes[part.buffer]);
        }
        let end = offset + bytes.len() as u64;
        if !bytes.is_empty() && end > self.bytes {
            self.resize(end);
        }
    }

    /// Sets the length. Returns the number of sectors that this frees.
    pub(super) fn set_bytes(&mut self, bytes: u64) -> u64 {
        let whole = bytes.div_ceil(SECTOR_BYTES as u64) as usize;
        let mut freed = 0;
        for index in whole..self.sectors.len() {
            if self.sectors[index].is_some() {
                self.note(index);
                self.sectors[index] = None;
                freed += 1;
            }
        }
        self.sectors.truncate(whole);
        let rest = bytes as usize % SECTOR_BYTES;
        if bytes < self.bytes && rest > 0 && matches!(self.sectors.get(whole - 1), Some(Some(_))) {
            self.change(whole - 1)[rest..].fill(0);
        }
        if bytes != self.bytes {
            self.resize(bytes);
        }
        freed
    }

    pub(super) fn sync(&mut self) {
        self.unsynced.retain(|_, past| past.dropped);
        self.unsynced_bytes = self.unsynced_bytes.take().filter(|past| past.dropped);
    }

    /// A failed sync: changes that have not reached the disk now never will.
    pub(super) fn fail_sync(&mut self, rng: &mut Rng) {
        let survival = draw_survival(rng);
        let unsynced = std::mem::take(&mut self.unsynced).into_iter();
        self.unsynced = unsynced.filter_map(|(index, past)| Some((index, past.fail_sync(rng, survival)?))).collect();
        self.unsynced_bytes = self.unsynced_bytes.take().and_then(|past| past.fail_sync(rng, survival));
    }

    /// A power cut: some unsynced changes survive, the others are lost.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        if self.unsynced.is_empty() && self.unsynced_bytes.is_none() {
            return;
        }
        let survival = draw_survival(rng);
        for (index, mut past) in std::mem::take(&mut self.unsynced) {
            if let Err(sector) = past.settle(rng, survival) {
                self.put(index, sector);
            }
        }
        if let Some(Err(bytes)) = self.unsynced_bytes.take().map(|mut past| past.settle(rng, survival)) {
            self.bytes = bytes;
        }
        self.cut();
    }

    /// The file as if no unsynced change had survived.
    pub(super) fn durable(&self) -> Contents {
        let mut durable = Contents { sectors: self.sectors.clone(), bytes: self.bytes, ..Contents::default() };
        for (&index, past) in &self.unsynced {
            durable.put(index, past.durable.clone());
        }
        if let Some(past) = &self.unsynced_bytes {
            durable.bytes = past.durable;
        }
        durable.cut();
        durable
    }

    /// Inverts a bit of a byte within the file, in all values that the disk may hold.
    pub(super) fn flip_bit(&mut self, offset: u64, bit: u8) {
        let index = (offset / SECTOR_BYTES as u64) as usize;
        if self.sectors.len() <= index {
            self.sectors.resize(index + 1, None);
        }
        self.for_each_value(index, |sector| {
            let sector = sector.get_or_insert_with(zeros);
            Arc::make_mut(sector)[offset as usize % SECTOR_BYTES] ^= 1 << (bit % 8);
        });
    }

    /// Zeroes a range within the file, in all values that the disk may hold.
    pub(super) fn zero(&mut self, offset: u64, length: usize) {
        for part in parts(offset, length) {
            self.for_each_value(part.sector, |sector| {
                if let Some(sector) = sector {
                    Arc::make_mut(sector)[part.within.clone()].fill(0);
                }
            });
        }
    }

    fn for_each_value(&mut self, index: usize, call: impl FnMut(&mut Sector)) {
        let past = self.unsynced.get_mut(&index).into_iter();
        let past = past.flat_map(|past| std::iter::once(&mut past.durable).chain(&mut past.between));
        past.chain(self.sectors.get_mut(index)).for_each(call);
    }

    /// Notes the value of a sector that is about to change.
    fn note(&mut self, index: usize) {
        let current = &self.sectors[index];
        match self.unsynced.get_mut(&index) {
            Some(past) => past.note(current.clone()),
            None => {
                self.unsynced.insert(index, Past::new(current.clone()));
            }
        }
    }

    /// Returns a sector for writing.
    fn change(&mut self, index: usize) -> &mut [u8; SECTOR_BYTES] {
        if self.sectors.len() <= index {
            self.sectors.resize(index + 1, None);
        }
        self.note(index);
        Arc::make_mut(self.sectors[index].get_or_insert_with(zeros))
    }

    fn resize(&mut self, bytes: u64) {
        let current = std::mem::replace(&mut self.bytes, bytes);
        match &mut self.unsynced_bytes {
            Some(past) => past.note(current),
            None => self.unsynced_bytes = Some(Past::new(current)),
        }
    }

    fn put(&mut self, index: usize, sector: Sector) {
        if self.sectors.len() <= index {
            self.sectors.resize(index + 1, None);
        }
        self.sectors[index] = sector;
    }

    /// Drops everything after the end.
    fn cut(&mut self) {
        self.sectors.truncate(self.bytes.div_ceil(SECTOR_BYTES as u64) as usize);
        let last = (self.bytes / SECTOR_BYTES as u64) as usize;
        if let Some(Some(sector)) = self.sectors.get_mut(last) {
            Arc::make_mut(sector)[self.bytes as usize % SECTOR_BYTES..].fill(0);
        }
    }
}

fn zeros() -> Arc<[u8; SECTOR_BYTES]> {
    Arc::new([0; SECTOR_BYTES])
}

/// The part of a range of bytes that lies in one sector.
struct SectorRange {
    sector: usize,
    within: Range<usize>,
    buffer: Range<usize>,
}

fn parts(offset: u64, length: usize) -> impl Iterator<Item = SectorRange> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let position = offset + done as u64;
        let start = position as usize % SECTOR_BYTES;
        let count = (length - done).min(SECTOR_BYTES - start);
        let buffer = done..done + count;
        done += count;
        let sector = (position / SECTOR_BYTES as u64) as usize;
        (count > 0).then_some(SectorRange { sector, within: start..start + count, buffer })
    })
}
