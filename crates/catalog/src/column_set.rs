//! Which columns an operation reads or writes, in one word.

use std::fmt;

use seriatim_base::ColumnId;

/// The bit that all columns from this one on have.
const SHARED: u16 = 63;

/// A set of columns of one table: bit `min(column, 63)`. Columns from the 64th on share a bit. So two sets may seem to
/// intersect when they do not, but never the other way round.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ColumnSet(u64);

impl ColumnSet {
    /// No column.
    pub const EMPTY: ColumnSet = ColumnSet(0);
    /// Every column, whatever the table.
    pub const ALL: ColumnSet = ColumnSet(u64::MAX);

    /// The set of one column.
    #[inline]
    pub const fn of(column: ColumnId) -> ColumnSet {
        ColumnSet(1 << if column.0 < SHARED { column.0 } else { SHARED })
    }

    /// Columns in either set.
    #[must_use]
    #[inline]
    pub const fn union(self, other: ColumnSet) -> ColumnSet {
        ColumnSet(self.0 | other.0)
    }

    /// Columns in both sets.
    #[must_use]
    #[inline]
    pub const fn intersection(self, other: ColumnSet) -> ColumnSet {
        ColumnSet(self.0 & other.0)
    }

    /// Columns that are not in the set; none that shares a bit with one in it.
    #[must_use]
    #[inline]
    pub const fn complement(self) -> ColumnSet {
        ColumnSet(!self.0)
    }

    /// Whether the sets may share a column.
    #[inline]
    pub const fn intersects(self, other: ColumnSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether `column` may be in the set.
    #[inline]
    pub const fn contains(self, column: ColumnId) -> bool {
        self.intersects(Self::of(column))
    }

    /// Whether every column of the set is in the other.
    #[inline]
    pub const fn is_subset(self, other: ColumnSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// Adds a column.
    #[inline]
    pub const fn insert(&mut self, column: ColumnId) {
        self.0 |= Self::of(column).0;
    }

    /// Whether no column is in the set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The columns; those that share a bit are one, the first of them.
    pub fn iter(self) -> impl Iterator<Item = ColumnId> {
        (0..=SHARED).map(ColumnId).filter(move |&column| self.contains(column))
    }

    /// The set as its bits.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The set that has these [bits](ColumnSet::bits).
    #[inline]
    pub const fn from_bits(bits: u64) -> ColumnSet {
        ColumnSet(bits)
    }
}

/// The use of columns by an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColumnUse {
    /// Columns whose values it may use.
    read: ColumnSet,
    /// Columns that it may set. The old value of one that is not in `read` is not used.
    written: ColumnSet,
    /// Those that it adds to and does nothing else with: neither the value before nor the sum is used.
    pub added: ColumnSet,
}

impl ColumnUse {
    /// Any use of every column.
    pub const ALL: ColumnUse = ColumnUse { read: ColumnSet::ALL, written: ColumnSet::ALL, added: ColumnSet::EMPTY };

    /// These columns are read, and neither set nor added to.
    #[inline]
    pub const fn reading(read: ColumnSet) -> ColumnUse {
        ColumnUse { read, written: ColumnSet::EMPTY, added: ColumnSet::EMPTY }
    }

    /// Additions to these columns, and no other use of any. Those that share a bit with others may be used in any way.
    pub fn adding(columns: impl IntoIterator<Item = ColumnId>) -> ColumnUse {
        ColumnUse::of_each(columns, |added| ColumnUse { added, ..ColumnUse::default() })
    }

    /// These columns are set, and neither read nor added to. Those that share a bit with others may be used in any way.
    pub fn setting(columns: impl IntoIterator<Item = ColumnId>) -> ColumnUse {
        ColumnUse::of_each(columns, |written| ColumnUse { written, ..ColumnUse::default() })
    }

    /// This use of each column, and any use of those that share a bit with others.
    fn of_each(columns: impl IntoIterator<Item = ColumnId>, one: impl Fn(ColumnSet) -> ColumnUse) -> ColumnUse {
        let one = |column: ColumnId| match ColumnSet::of(column) {
            shared if column.0 >= SHARED => shared.into(),
            alone => one(alone),
        };
        columns.into_iter().map(one).fold(ColumnUse::default(), ColumnUse::union)
    }

    /// The union of both uses. A column that one update sets, if at all, and that the other adds to may have
    /// been added to alone: it counts as read.
    #[must_use]
    #[inline]
    pub const fn union(self, other: ColumnUse) -> ColumnUse {
        let (written, added) = (self.written.union(other.written), self.added.union(other.added));
        ColumnUse { read: self.read.union(other.read).union(written.intersection(added)), written, added }
    }

    /// Columns whose values it may use.
    #[inline]
    pub const fn read(self) -> ColumnSet {
        self.read
    }

    /// Columns that it sets blindly, if at all: the old value is not used.
    #[inline]
    pub const fn set(self) -> ColumnSet {
        self.written.intersection(self.read.complement())
    }

    /// Columns whose values it uses or sets.
    #[inline]
    pub const fn used(self) -> ColumnSet {
        self.read.union(self.written)
    }

    /// Columns that it may change.
    #[inline]
    pub const fn changed(self) -> ColumnSet {
        self.written.union(self.added)
    }

    /// The columns of any kind.
    #[inline]
    pub const fn either(self) -> ColumnSet {
        self.used().union(self.added)
    }
}

/// For columns that may be used in any way.
impl From<ColumnSet> for ColumnUse {
    #[inline]
    fn from(columns: ColumnSet) -> ColumnUse {
        ColumnUse { written: columns, ..ColumnUse::reading(columns) }
    }
}

impl FromIterator<ColumnId> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = ColumnId>>(columns: I) -> ColumnSet {
        columns.into_iter().fold(ColumnSet::EMPTY, |set, column| set.union(ColumnSet::of(column)))
    }
}

impl fmt::Debug for ColumnSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|column| column.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_columns_share_a_bit_and_near_ones_do_not() {
        let set: ColumnSet = [ColumnId(0), ColumnId(200)].into_iter().collect();
        assert!(set.contains(ColumnId(0)) && !set.contains(ColumnId(1)) && set.contains(ColumnId(99)));
        assert!(!set.intersects(ColumnSet::of(ColumnId(62))));
        assert!(ColumnSet::ALL.contains(ColumnId(7)) && ColumnSet::EMPTY.is_empty());
    }

    #[test]
    fn a_column_that_is_set_and_read_or_added_to_is_not_set_blindly() {
        let column = ColumnId(3);
        let [set, added] = [ColumnUse::setting([column]), ColumnUse::adding([column])];
        let read = ColumnUse::reading(ColumnSet::of(column));
        let used = ColumnUse::from(ColumnSet::of(column));
        assert!(set.read().is_empty() && set.union(set).read().is_empty());
        for other in [added, read, added.union(read), used] {
            for both in [set.union(other), other.union(set), set.union(other).union(set)] {
                assert!(both.read().contains(column) && both.set().is_empty(), "{both:?}");
            }
        }
        let apart = set.union(ColumnUse::adding([ColumnId(4)]));
        assert!(apart.read().is_empty() && apart.set().contains(column));
    }

    #[test]
    fn a_column_that_is_only_read_is_not_changed() {
        let [one, other] = [3, 100].map(|column| ColumnSet::of(ColumnId(column)));
        let read = ColumnUse::reading(one.union(other));
        assert!(read.changed().is_empty() && read.used() == read.either());
        for change in [ColumnUse::setting, ColumnUse::adding] {
            let both = read.union(change([ColumnId(4)]));
            assert_eq!((both.changed(), both.read()), (ColumnSet::of(ColumnId(4)), read.read()));
            assert_eq!(read.union(change([ColumnId(100)])).changed(), other);
            assert_eq!(change([ColumnId(100)]), other.into(), "it shares a bit");
        }
        assert_eq!(ColumnUse::from(one).changed(), one);
        assert_eq!(ColumnUse::ALL.changed(), ColumnSet::ALL);
    }
}
