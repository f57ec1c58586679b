//! How large nodes are. The feature `small` shrinks them, so that splits and unlinks are common in tests.

/// Records in a leaf: 512 bytes with one-word keys, 768 with two-word keys.
pub(crate) const LEAF: usize = if cfg!(feature = "small") { 4 } else { 29 };

/// Children of an interior node (DBX §4: 256 bytes with 8-byte keys).
pub(crate) const FAN: usize = if cfg!(feature = "small") { 4 } else { 15 };
