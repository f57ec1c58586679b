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
    /// Columns whose values it uses or sets.
    pub used: ColumnSet,
    /// Those that it adds to and does nothing else with: neither the value before nor the sum is used.
    pub added: ColumnSet,
    /// Columns of `used` that it sets blindly, if at all: the old value is not used.
    pub set: ColumnSet,
}

impl ColumnUse {
    /// Any use of every column.
    pub const ALL: ColumnUse = ColumnUse { used: ColumnSet::ALL, added: ColumnSet::EMPTY, set: ColumnSet::EMPTY };

    /// Additions to these columns, and no other use of any. Those that share a bit with others may be used in any way.
    pub fn adding(columns: impl IntoIterator<Item = ColumnId>) -> ColumnUse {
        let mut adding = ColumnUse::default();
        for column in columns {
            let kind = if column.0 < SHARED { &mut adding.added } else { &mut adding.used };
            kind.insert(column);
        }
        adding
    }

    /// These columns are set, and neither read nor added to. Those that share a bit with others may be used in any way.
    pub fn setting(columns: impl IntoIterator<Item = ColumnId>) -> ColumnUse {
        let mut setting = ColumnUse::default();
        for column in columns {
            setting.used.insert(column);
            if column.0 < SHARED {
                setting.set.insert(column);
            }
        }
        setting
    }

    /// The union of both uses. A column that one update sets, if at all, and that the other adds to may have
    /// been added to alone: it counts as read.
    #[must_use]
    #[inline]
    pub const fn union(self, other: ColumnUse) -> ColumnUse {
        let (read, added) = (self.read().union(other.read()), self.added.union(other.added));
        let set = self.set.union(other.set).intersection(read.union(added).complement());
        ColumnUse { used: self.used.union(other.used), added, set }
    }

    /// Columns whose values it may use.
    #[inline]
    pub const fn read(self) -> ColumnSet {
        self.used.intersection(self.set.complement())
    }

    /// The columns of either kind.
    #[inline]
    pub const fn either(self) -> ColumnSet {
        self.used.union(self.added)
    }
}

/// For columns that may be used in any way.
impl From<ColumnSet> for ColumnUse {
    #[inline]
    fn from(used: ColumnSet) -> ColumnUse {
        ColumnUse { used, ..ColumnUse::default() }
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
        let read = ColumnUse::from(ColumnSet::of(column));
        assert!(set.read().is_empty() && set.union(set).read().is_empty());
        for other in [added, read, added.union(read)] {
            for both in [set.union(other), other.union(set), set.union(other).union(set)] {
                assert!(both.read().contains(column) && both.set.is_empty(), "{both:?}");
            }
        }
        let apart = set.union(ColumnUse::adding([ColumnId(4)]));
        assert!(apart.read().is_empty() && apart.set.contains(column));
    }
}
