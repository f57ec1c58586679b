//! The ids of tables and indexes.
//!
//! Protocols keep the id of a table and an address in one word, so ids have 14 bits. An index has an id like a table,
//! and those of a table's indexes follow its own. The catalogue's own table has the last id.
//!
//! Invariant: an id is given out only if neither a file nor a worker can refer to an earlier table of this id. So the
//! ids of a table that was replaced are free from the first opening on at which no file has its rows.

use std::ops::Range;

use seriatim_base::TableId;
use seriatim_redo::catalogue::{self, TableEntry};

/// Most tables and indexes of a database at a time.
pub(crate) const TABLES_MAX: usize = catalogue::TABLE.index();

/// A warning is given if fewer ids are left.
const LEFT_MIN: usize = TABLES_MAX / 8;

/// Which ids are free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableIds {
    /// Above every id in use.
    end: u32,
    /// Free ids below.
    gaps: Vec<Range<u32>>,
}

impl TableIds {
    /// All but those of these tables.
    pub(crate) fn of<'t>(tables: impl IntoIterator<Item = &'t TableEntry>) -> TableIds {
        let ids = |table: &'t TableEntry| std::iter::once(table.id.0).chain(table.indexes.iter().map(|id| id.0));
        let mut used: Vec<u32> = tables.into_iter().flat_map(ids).collect();
        used.sort_unstable();
        let mut free = TableIds::default();
        for id in used {
            if id > free.end {
                free.gaps.push(free.end..id);
            }
            free.end = id + 1;
        }
        free
    }

    /// The first of this many consecutive ids, which are no longer free. `None` if there are not so many.
    pub(crate) fn take(&mut self, count: usize) -> Option<TableId> {
        let count = u32::try_from(count).ok()?;
        if let Some(gap) = self.gaps.iter_mut().find(|gap| gap.len() >= count as usize) {
            let first = gap.start;
            gap.start += count;
            return Some(TableId(first));
        }
        let (first, end) = (self.end, self.end.checked_add(count)?);
        (end as usize <= TABLES_MAX).then(|| {
            self.end = end;
            TableId(first)
        })
    }

    /// Above every id that was given out.
    pub(crate) fn end(&self) -> usize {
        self.end as usize
    }

    /// How many ids are free.
    pub(crate) fn left(&self) -> usize {
        TABLES_MAX.saturating_sub(self.end()) + self.gaps.iter().map(Range::len).sum::<usize>()
    }

    /// The warning if few are free.
    pub(crate) fn warning(&self) -> Option<String> {
        let left = self.left();
        (left < LEFT_MIN).then(|| {
            format!(
                "{left} of {TABLES_MAX} tables and indexes can still be created, and those that conversions replace \
                 count until the database is opened after a checkpoint: put rows of several kinds into one table"
            )
        })
    }

    /// Gives out all ids below this one.
    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, end: u32) {
        *self = TableIds { end, gaps: Vec::new() };
    }
}

#[cfg(test)]
mod tests {
    use seriatim_catalog::{ColumnDef, ColumnType, TableDef};

    use super::*;

    fn table(id: u32, indexes: u32) -> TableEntry {
        let definition = TableDef::builder("some").column(ColumnDef::new("id", ColumnType::U8)).key(["id"]).finish();
        let indexes = (id + 1..=id + indexes).map(TableId).collect();
        let definition = definition.expect("a sound declaration");
        TableEntry { id: TableId(id), definition, indexes, position: 0, is_void: false }
    }

    #[test]
    fn a_warning_is_given_while_an_eighth_is_left() {
        let mut ids = TableIds::default();
        ids.skip_to((TABLES_MAX - LEFT_MIN) as u32);
        assert_eq!((ids.left(), ids.warning()), (LEFT_MIN, None));
        assert_eq!(ids.take(1), Some(TableId((TABLES_MAX - LEFT_MIN) as u32)));
        assert!(ids.warning().is_some_and(|warning| warning.starts_with("2046 of 16383 ")), "{:?}", ids.warning());
        assert_eq!(ids.take(LEFT_MIN), None);
        assert!(ids.take(LEFT_MIN - 1).is_some());
        assert_eq!((ids.take(1), ids.left()), (None, 0));
    }

    #[test]
    fn ids_of_tables_that_are_gone_are_given_out_again_where_they_suffice() {
        let mut ids = TableIds::of(&[table(9, 1), table(3, 0), table(5, 2)]);
        assert_eq!(ids.left(), TABLES_MAX - 6);
        assert_eq!([4, 1, 1, 3, 2, 1].map(|count| ids.take(count).map(|id| id.0)), [11, 0, 1, 15, 18, 2].map(Some));
        assert_eq!([1, 1, 1].map(|count| ids.take(count).map(|id| id.0)), [4, 8, 20].map(Some));
        assert_eq!(ids.end(), 21);
    }
}
