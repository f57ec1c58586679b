//! How large nodes are. The feature `small` shrinks them, so that splits and unlinks are common in tests.

/// Records in a leaf: 512 bytes with one-word keys, 768 with two-word keys.
pub(crate) const LEAF: usize = if cfg!(feature = "small") { 4 } else { 29 };

/// Records that a scan shows at first. Scans that end after a few rows are common, and copy no leaf whole.
pub(crate) const FIRST: usize = if cfg!(feature = "small") { 2 } else { 8 };

/// Records of a range that are looked up without a scan.
pub(crate) const HEAD: usize = if cfg!(feature = "small") { 2 } else { 4 };

/// Children of an interior node: 512 bytes with one-word keys. DBX §4 has 15 in 256 bytes; see `README.md` for why not.
pub(crate) const FAN: usize = if cfg!(feature = "small") { 4 } else { 31 };
