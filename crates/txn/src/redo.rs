//! Where a commit reports what it wrote: the log, and in tests the history recorder.

use seriatim_base::Stamp;
use seriatim_catalog::Key;

use crate::{RowPtr, Table};

/// Receives the writes of a commit, each with the stamp that orders it among all versions of its key. Called between the
/// serialization point and the answer, never inside a region.
pub trait Redo {
    /// `row` is the new row image; `None` is a delete.
    fn write(&mut self, table: &Table, key: Key<'_>, stamp: Stamp, row: Option<RowPtr>);

    /// Whether anybody listens; protocols skip the calls where not.
    fn listens(&self) -> bool {
        true
    }
}

/// Nobody listens.
#[derive(Debug)]
pub struct NoRedo;

impl Redo for NoRedo {
    fn write(&mut self, _: &Table, _: Key<'_>, _: Stamp, _: Option<RowPtr>) {}

    fn listens(&self) -> bool {
        false
    }
}
