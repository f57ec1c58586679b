//! The cache lines that regions of transactions touched, by kind of transaction, as simulated cores report them.
//!
//! For a committed transaction these are the region of its last attempt that decided it, and the regions of
//! pieces that were published later. Regions of indexes are those of all its attempts.

use serde_json::{Value, json};

/// A region: lines read, lines written, lines touched; and whether it decided a transaction or published a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) lines: [usize; 3],
    pub(crate) decides: bool,
}

/// The names of [`Region::lines`].
const NAMES: [&str; 3] = ["read", "written", "lines"];

/// Statistics of the lines touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sizes {
    count: u64,
    sums: [u64; 3],
    most: [u64; 3],
}

impl Sizes {
    fn count(&mut self, lines: [usize; 3]) {
        self.count += 1;
        for ((sum, most), lines) in self.sums.iter_mut().zip(&mut self.most).zip(lines) {
            *sum += lines as u64;
            *most = (*most).max(lines as u64);
        }
    }

    fn add(&mut self, other: &Sizes) {
        self.count += other.count;
        for at in 0..NAMES.len() {
            self.sums[at] += other.sums[at];
            self.most[at] = self.most[at].max(other.most[at]);
        }
    }

    fn mean(&self, at: usize) -> f64 {
        self.sums[at] as f64 / self.count.max(1) as f64
    }

    /// Null if there are none.
    fn json(&self) -> Value {
        let sizes = NAMES
            .iter()
            .enumerate()
            .map(|(at, name)| ((*name).to_owned(), json!({ "mean": self.mean(at), "max": self.most[at] })));
        let mut report: serde_json::Map<String, Value> = sizes.collect();
        report.insert("count".to_owned(), json!(self.count));
        if self.count > 0 { Value::Object(report) } else { Value::Null }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkingSets {
    /// Regions that decided a transaction: all of it, or its first piece.
    first: Sizes,
    /// Pieces published later, each separately.
    late: Sizes,
    /// For each transaction, the sum of these two.
    all: Sizes,
    /// For each transaction, the sum of its other regions, which are those of indexes.
    indexes: Sizes,
}

/// The sum of the lines of these regions. A line of several regions counts for each.
fn sum(regions: impl Iterator<Item = Region>) -> Option<[usize; 3]> {
    regions.map(|region| region.lines).reduce(|sum, lines| std::array::from_fn(|at| sum[at] + lines[at]))
}

impl WorkingSets {
    /// Counts a committed transaction with these regions.
    pub(crate) fn count(&mut self, regions: &[Region]) {
        let mut deciding = regions.iter().filter(|region| region.decides);
        if let Some(first) = deciding.next() {
            self.first.count(first.lines);
            deciding.for_each(|late| self.late.count(late.lines));
        }
        for (sizes, decides) in [(&mut self.all, true), (&mut self.indexes, false)] {
            if let Some(lines) = sum(regions.iter().copied().filter(|region| region.decides == decides)) {
                sizes.count(lines);
            }
        }
    }

    pub(crate) fn add(&mut self, other: &WorkingSets) {
        self.first.add(&other.first);
        self.late.add(&other.late);
        self.all.add(&other.all);
        self.indexes.add(&other.indexes);
    }

    fn parts(&self) -> [(&'static str, &Sizes); 4] {
        [("first", &self.first), ("late", &self.late), ("all", &self.all), ("indexes", &self.indexes)]
    }

    /// Null if there are no regions.
    pub(crate) fn json(&self) -> Value {
        if *self == WorkingSets::default() {
            return Value::Null;
        }
        Value::Object(self.parts().map(|(name, sizes)| (name.to_owned(), sizes.json())).into_iter().collect())
    }

    /// A line of text for each part that has regions.
    pub(crate) fn lines(&self, kind: &str) -> Vec<String> {
        let parts = self.parts().into_iter().filter(|(_, sizes)| sizes.count > 0);
        let line = |(part, sizes): (&str, &Sizes)| {
            let of = |at: usize| format!("{:.1} {}, at most {}", sizes.mean(at), NAMES[at], sizes.most[at]);
            format!("{kind}, {part}: {}; {}; {}", of(0), of(1), of(2))
        };
        parts.map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_distinguished_by_their_order_and_regions_of_indexes_from_both() {
        let region = |size: usize, decides| Region { lines: [size, 1, size + 1], decides };
        let mut sets = WorkingSets::default();
        assert!(sets.json().is_null() && sets.lines("pay").is_empty());
        sets.count(&[region(9, false), region(10, true), region(2, true), region(4, true)]);
        let mut other = WorkingSets::default();
        other.count(&[region(20, true)]);
        sets.add(&other);
        let report = sets.json();
        let mean = |part: &str, of: &str| report[part][of]["mean"].as_f64();
        assert_eq!((mean("first", "read"), report["first"]["read"]["max"].as_u64()), (Some(15.0), Some(20)));
        assert_eq!((mean("late", "read"), report["late"]["count"].as_u64()), (Some(3.0), Some(2)));
        assert_eq!((mean("all", "read"), mean("all", "written")), (Some(18.0), Some(2.0)));
        assert_eq!((mean("indexes", "lines"), report["indexes"]["count"].as_u64()), (Some(10.0), Some(1)));
        let said = sets.lines("pay");
        assert_eq!(said.len(), 4);
        assert_eq!(said[1], "pay, late: 3.0 read, at most 4; 1.0 written, at most 1; 4.0 lines, at most 5");
        // A transaction that only read has no working set.
        let mut reader = WorkingSets::default();
        reader.count(&[]);
        assert!(reader.json().is_null());
    }
}
