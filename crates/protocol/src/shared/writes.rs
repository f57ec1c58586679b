//! The write set: private row images until commit, with savepoints.
//!
//! An entry's image is never changed in place once handed out: every further update of the same row works on a new copy, so
//! rows a transaction holds stay as they were read, and a savepoint is a position in the list of replaced entries.

use std::ptr::NonNull;

use seriatim_base::Stamp;
use seriatim_memory::{CountedVec, Local, OutOfMemory};
use seriatim_store::{RecordPtr, read_key};
use seriatim_txn::{Before, Mark, Redo, Table};

use super::head::HeaderWord;
use super::own::OwnIndex;
use super::record;

/// One record this attempt writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) record: RecordPtr,
    pub(crate) table: NonNull<Table>,
    /// The header word the write builds on; commit fails if it changed.
    pub(crate) expected: HeaderWord,
    /// Address of the private image with its header; zero: the row is to be absent.
    pub(crate) image: usize,
    /// This attempt linked the record.
    pub(crate) linked: bool,
}

// SAFETY: tables are shared by all workers and live as long as the database; the record is followed while online only.
unsafe impl Send for Write {}

impl Write {
    #[inline]
    pub(crate) fn table<'t>(&self) -> &'t Table {
        // SAFETY: tables live as long as the database, which outlives its workers' open transactions.
        unsafe { self.table.as_ref() }
    }

    /// Neither before nor after this transaction is there a row: nothing to install.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        self.image == 0 && self.expected.is_absent()
    }
}

#[derive(Debug)]
struct Replaced {
    entry: u32,
    before: Write,
}

/// Memory that belongs to an image of this attempt but lies outside it: tails and fixed parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) struct WriteSet {
    pub(super) entries: CountedVec<Write>,
    own: OwnIndex,
    replaced: CountedVec<Replaced>,
    /// (entries, replaced) at each savepoint.
    marks: CountedVec<(usize, usize)>,
    /// Entries taken back by a rewind: their images are freed and their records unlinked at the end.
    pub(crate) undone: CountedVec<Write>,
    /// Tails and fixed parts made by this attempt.
    pub(crate) parts: CountedVec<Part>,
    /// Of use while `record::free_private` runs: the parts that committed images refer to.
    pub(super) kept: CountedVec<usize>,
}

impl WriteSet {
    pub(crate) fn new(local: &Local) -> WriteSet {
        WriteSet {
            entries: local.counted(64),
            own: OwnIndex::new(local),
            replaced: local.counted(0),
            marks: local.counted(0),
            undone: local.counted(0),
            parts: local.counted(0),
            kept: local.counted(0),
        }
    }

    /// Makes room for one write more. Before anything is linked or allocated for it: then [`WriteSet::push`] cannot fail.
    #[inline(always)]
    pub(crate) fn reserve(&mut self) -> Result<(), OutOfMemory> {
        self.entries.reserve_one()
    }

    #[inline]
    pub(crate) fn entries(&self) -> &[Write] {
        &self.entries
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(crate) fn find(&self, record: RecordPtr) -> Option<usize> {
        self.own.find(record.addr(), |e| self.entries[e].record.addr())
    }

    #[inline]
    pub(crate) fn push(&mut self, write: Write) {
        let entries = &self.entries;
        self.own.push(write.record.addr(), |e| entries[e].record.addr());
        self.entries.push(write);
    }

    /// Gives an entry a new image; the old one stays readable until the end.
    pub(crate) fn replace(&mut self, entry: usize, image: usize) {
        self.replaced.push(Replaced { entry: entry as u32, before: self.entries[entry] });
        self.entries[entry].image = image;
    }

    pub(crate) fn mark(&mut self) -> Mark {
        self.marks.push((self.entries.len(), self.replaced.len()));
        Mark(self.marks.len() - 1)
    }

    /// Takes back everything since the mark, which stays valid; later marks do not.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        let (entries, replaced) = self.marks[mark.0];
        self.marks.truncate(mark.0 + 1);
        while self.replaced.len() > replaced {
            if let Some(Replaced { entry, before }) = self.replaced.pop() {
                let undone = std::mem::replace(&mut self.entries[entry as usize], before);
                // The record stays linked through the entry that remains, or through that entry's own undoing.
                self.undone.push(Write { linked: false, ..undone });
            }
        }
        while self.entries.len() > entries {
            if let Some(undone) = self.entries.pop() {
                self.own.pop(undone.record.addr());
                self.undone.push(undone);
            }
        }
    }

    /// Images that will not be installed although the transaction commits.
    pub(crate) fn superseded(&self) -> impl Iterator<Item = Write> {
        self.replaced.iter().map(|r| r.before).chain(self.undone.iter().copied())
    }

    /// Promise (a): every write with its stamp. `before` names the image that the entry of this index replaced.
    #[inline(never)]
    pub(crate) fn report(&self, stamp: Stamp, redo: &mut dyn Redo, before: impl Fn(usize) -> usize) {
        for (entry, write) in self.entries.iter().enumerate().filter(|(_, write)| !write.is_nothing()) {
            let table = write.table();
            // SAFETY: key words of a linked record never change; we are online.
            let key = unsafe { read_key(write.record, table.class) };
            // What an absent record names is not its row any more.
            let before = (!write.expected.is_absent())
                .then(|| Before { stamp: write.expected.stamp(), row: record::row_of(table, before(entry)) });
            let after = (write.image != 0).then(|| record::row_of(table, write.image));
            redo.write(table, key, stamp, before, after);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.own.clear();
        self.replaced.clear();
        self.marks.clear();
        self.undone.clear();
        self.parts.clear();
        self.kept.clear();
    }

    /// Gives back what a large transaction made it take: the worker rests.
    pub(crate) fn rest(&mut self) {
        self.entries.rest();
        self.own.rest();
        self.replaced.rest();
        self.marks.rest();
        self.undone.rest();
        self.parts.rest();
        self.kept.rest();
    }
}
