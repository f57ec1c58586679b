//! Chains of versions: each row image begins with a header that names its stamp, what the protocol keeps with a version, and the
//! image before it. The image word of a record (`shared::head`) names the newest.
//!
//! Access rules:
//! 1. A header is written while its image is private. Once that is published the stamp and the previous image never change; what the
//!    protocol keeps does not either, or is made of atomic words.
//! 2. A version is followed as long as its protocol says that it is reachable for who is online; it is retired, not freed.
//!
//! A protocol chooses what it keeps ([`Version`]'s parameter) and what a reader is shown ([`View`]). `read.rs` reads what a view shows.

pub(crate) mod read;

use seriatim_base::{Epoch, Stamp};
use seriatim_store::RecordPtr;
use seriatim_txn::RecordShape;

/// The header of an image: `K` is what the protocol keeps with it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Version<K> {
    pub(crate) stamp: Stamp,
    pub(crate) kept: K,
    /// The image before it; zero for none.
    pub(crate) previous: usize,
}

impl<K> Version<K> {
    /// Bytes before the row.
    pub(crate) const BYTES: usize = {
        assert!(size_of::<Version<K>>().is_multiple_of(8) && align_of::<Version<K>>() == 8, "a header is whole words");
        size_of::<Version<K>>()
    };

    /// # Safety
    /// `image` is an image this worker may read, for `'v`.
    #[inline]
    pub(crate) unsafe fn of<'v>(image: usize) -> &'v Version<K> {
        // SAFETY: rule 1; the header of a private image is only ours.
        unsafe { &*(image as *const Version<K>) }
    }

    /// # Safety
    /// `image` is private to this worker.
    #[inline]
    pub(crate) unsafe fn write(self, image: usize) {
        // SAFETY: the caller says that nobody else can reach it.
        unsafe { (image as *mut Version<K>).write(self) }
    }
}

/// The newest image from `image` on whose header `fits`.
///
/// # Safety
/// This worker may read `image`, and those before it up to the first that fits.
#[inline]
pub(crate) unsafe fn find<'v, K: 'v>(
    mut image: usize,
    mut fits: impl FnMut(&Version<K>) -> bool,
) -> Option<(usize, &'v Version<K>)> {
    while image != 0 {
        // SAFETY: the caller's promise.
        let version = unsafe { Version::of(image) };
        if fits(version) {
            return Some((image, version));
        }
        image = version.previous;
    }
    None
}

/// What a read-only transaction is shown.
pub(crate) trait View: Copy {
    /// What the protocol keeps with a version.
    type Kept: 'static;

    /// Whether it is shown this version, or what came after it.
    fn shows(self, version: &Version<Self::Kept>) -> bool;

    /// Whether this version is a deletion.
    fn is_deletion(version: &Version<Self::Kept>) -> bool;

    /// Whether it is shown the deletion that the header word of a record speaks of, with this stamp.
    fn shows_deletion(self, shape: &RecordShape, record: RecordPtr, stamp: Stamp) -> bool;

    /// The epoch whose end it is shown, if that is not the present: what was deleted later is looked for where it is buried.
    fn epoch(self) -> Option<Epoch>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_followed_to_the_first_that_fits() {
        let stamp = |epoch| Stamp::first_of(Epoch(epoch));
        let mut images: Vec<Version<u64>> = Vec::with_capacity(5);
        for at in 0..5u64 {
            let previous = images.last().map_or(0, |last| (&raw const *last).expose_provenance());
            images.push(Version { stamp: stamp(at + 1), kept: 10 * at, previous });
        }
        let newest = (&raw const images[4]).expose_provenance();
        // SAFETY: the images live to the end of the test.
        let found = |fits: &dyn Fn(&Version<u64>) -> bool| unsafe { find(newest, fits) }.map(|(_, found)| found.kept);
        assert_eq!(found(&|_| true), Some(40));
        assert_eq!(found(&|version| version.kept <= 25), Some(20));
        assert_eq!(found(&|version| version.stamp <= stamp(1)), Some(0));
        assert_eq!(found(&|_| false), None);
        assert_eq!((Version::<u64>::BYTES, Version::<[u64; 3]>::BYTES), (24, 40));
    }
}
