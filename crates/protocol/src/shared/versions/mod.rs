//! Chains of versions: each row version ends with a header that has its TID, the protocol's data for a version, and
//! the previous row version. The version word of a record (`shared::record_header`) names the newest.
//!
//! Access rules:
//! 1. A header is written while its row version is private. Once that is published the TID and the previous
//!    row version do not change while any thread can reach it. The protocol's data do not change either, or
//!    consist of atomic words.
//! 2. A version is followed while its protocol says that online workers can reach it. It is then retired, not freed, or
//!    its place is overwritten once the horizon has passed.
//!
//! A protocol chooses its data ([`Version`]'s parameter) and the view of a reader ([`View`]). `read.rs` reads
//! through a view.

pub mod read;

use std::convert::Infallible;

use seriatim_base::{Epoch, Tid};
use seriatim_store::RecordPtr;
use seriatim_txn::{OpError, Table};

use super::record_header::TidWord;

/// The header of a row version: `K` is what the protocol keeps with it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Version<K> {
    pub tid: Tid,
    pub kept: K,
    /// The row version before it; zero for none.
    pub previous: usize,
}

impl<K> Version<K> {
    /// Bytes behind the row.
    pub const BYTES: usize = {
        assert!(size_of::<Version<K>>().is_multiple_of(8) && align_of::<Version<K>>() == 8, "a header is whole words");
        size_of::<Version<K>>()
    };

    /// The header of a row version whose row has `row` bytes.
    ///
    /// # Safety
    /// `row_version` is a row version this worker may read, for `'v`.
    #[inline]
    pub unsafe fn of<'v>(row: usize, row_version: usize) -> &'v Version<K> {
        // SAFETY: rule 1; the header of a private row version is only ours.
        unsafe { &*((row_version + row) as *const Version<K>) }
    }

    /// Writes it as the header of a row version whose row has `row` bytes.
    ///
    /// # Safety
    /// `row_version` is private to this worker.
    #[inline]
    pub unsafe fn write(self, row: usize, row_version: usize) {
        // SAFETY: the caller promises that no other thread can reach it.
        unsafe { ((row_version + row) as *mut Version<K>).write(self) }
    }
}

/// The newest row version from `row_version` on whose header `fits`; their rows have `row` bytes.
///
/// # Safety
/// This worker may read `row_version`, and those before it up to the first that fits.
#[inline]
pub unsafe fn find<'v, K: 'v>(
    row: usize,
    mut row_version: usize,
    mut fits: impl FnMut(&Version<K>) -> bool,
) -> Option<(usize, &'v Version<K>)> {
    while row_version != 0 {
        // SAFETY: the caller's promise.
        let version = unsafe { Version::of(row, row_version) };
        if fits(version) {
            return Some((row_version, version));
        }
        row_version = version.previous;
    }
    None
}

/// The view of a read-only transaction.
pub trait View: Copy {
    /// The protocol's data for a version.
    type Kept: 'static;

    /// Whether it is shown this version, or what came after it.
    fn shows(self, version: &Version<Self::Kept>) -> bool;

    /// The newest row version of a record with its TID, if the view shows that and nothing is unusual about the record.
    #[inline(always)]
    fn shows_newest(self, _: &Table, _: RecordPtr) -> Option<(usize, Tid)> {
        None
    }

    /// Whether this version is a deletion.
    fn is_deletion(version: &Version<Self::Kept>) -> bool;

    /// The TID word of a record, and whether that speaks of a deletion which it is shown. Every version of the record
    /// that it must see has been installed. If it must not see such a deletion, it begins at the version word, which is
    /// loaded afterwards.
    ///
    /// # Errors
    /// [`OpError::Wait`]: what it may be shown is still being decided, and the caller is to look again.
    fn look(self, table: &Table, record: RecordPtr) -> Result<(TidWord, bool), OpError>;

    /// The epoch whose end the view shows, if that is not the present: rows that were deleted later are looked
    /// up among the undurable deletions.
    fn epoch(self) -> Option<Epoch>;

    /// Set if the reader may see rows that were deleted before it began: those of epochs after this one. They are
    /// looked up among the deletions kept for such readers.
    fn whole(self) -> Option<Epoch> {
        None
    }
}

/// The view of protocols without snapshots.
impl View for Infallible {
    type Kept = Infallible;

    fn shows(self, _: &Version<Infallible>) -> bool {
        match self {}
    }

    fn is_deletion(version: &Version<Infallible>) -> bool {
        match version.kept {}
    }

    fn look(self, _: &Table, _: RecordPtr) -> Result<(TidWord, bool), OpError> {
        match self {}
    }

    fn epoch(self) -> Option<Epoch> {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_followed_to_the_first_that_fits() {
        let tid = |epoch| Tid::first_of(Epoch(epoch));
        let mut row_versions: Vec<Version<u64>> = Vec::with_capacity(5);
        for at in 0..5u64 {
            let previous = row_versions.last().map_or(0, |last| (&raw const *last).expose_provenance());
            row_versions.push(Version { tid: tid(at + 1), kept: 10 * at, previous });
        }
        let newest = (&raw const row_versions[4]).expose_provenance();
        // SAFETY: the row versions live to the end of the test.
        let found =
            |fits: &dyn Fn(&Version<u64>) -> bool| unsafe { find(0, newest, fits) }.map(|(_, found)| found.kept);
        assert_eq!(found(&|_| true), Some(40));
        assert_eq!(found(&|version| version.kept <= 25), Some(20));
        assert_eq!(found(&|version| version.tid <= tid(1)), Some(0));
        assert_eq!(found(&|_| false), None);
        assert_eq!((Version::<u64>::BYTES, Version::<[u64; 3]>::BYTES), (24, 40));
    }
}
