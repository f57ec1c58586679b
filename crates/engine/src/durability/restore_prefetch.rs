//! Prefetches records whose versions are about to be restored, in waves: the fetches of one wave overlap.
//!
//! | wave | of a hash table | of an ordered one |
//! |---|---|---|
//! | 1st | the bucket | looks the record up, then the record |
//! | 2nd | the record, by the tag in the bucket | |
//!
//! A row is nearly always new, so an ordered table is not searched in advance. Nothing is unlinked while tables
//! are restored, so a record that was found stays valid until then. The caller checks that it has the key.

use seriatim_base::prefetch;
use seriatim_memory::Pinned;
use seriatim_redo::entry;
use seriatim_redo::replay::Version;
use seriatim_store::{HashHint, LeafHint, RecordPtr};
use seriatim_txn::Table;

use super::recover::slot;

/// Most bytes of a record that are prefetched: beyond, the processor's own prefetcher follows.
const BYTES_MAX: usize = 384;

/// Prefetches the probable record of each version, and reports each that was found. Leaf hints are by [`slot`].
pub(super) fn fetch<'v>(
    pin: Pinned<'_>,
    leaf_hints: &mut [LeafHint],
    versions: impl Iterator<Item = (&'v Table, &'v Version<'v>)> + Clone,
) -> Vec<Option<RecordPtr>> {
    let count = leaf_hints.len();
    let first = |(table, version): (&'v Table, &'v Version<'v>)| match table.index.prefetch_bucket(version.key) {
        Some(bucket) => Wave::Bucket(bucket),
        None if matches!(version.changes.first(), Some(entry::Change::Row(_))) => Wave::Done(None),
        None => {
            let found = table.index.get_near(version.key, &mut leaf_hints[slot(table.id, count)], pin);
            Wave::Done(found.ok().inspect(|&found| fetch_record(table, found)))
        }
    };
    let waves: Vec<Wave> = versions.clone().map(first).collect();
    let second = |((table, _), wave): ((&'v Table, _), Wave)| match wave {
        // SAFETY: the table's index gave the hint, and the table is there.
        Wave::Bucket(bucket) => unsafe { bucket.guess(pin) }.inspect(|&found| fetch_record(table, found)),
        Wave::Done(found) => found,
    };
    versions.zip(waves).map(second).collect()
}

/// The result of the first wave.
enum Wave {
    Bucket(HashHint),
    Done(Option<RecordPtr>),
}

fn fetch_record(table: &Table, record: RecordPtr) {
    prefetch::first_lines::<BYTES_MAX>(record.as_ptr(), table.record_layout.record);
}
