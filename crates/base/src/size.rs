//! Sizes that shrink in builds for tests, so that rare paths are common there.
//!
//! Cargo builds a crate once for all tests of a run. So if one test crate needs small sizes, all get them. A
//! test that measures the shipped program switches to the shipped sizes at run time.

use std::sync::atomic::{AtomicBool, Ordering};

static AS_SHIPPED: AtomicBool = AtomicBool::new(false);

/// Switches all sizes of this process to the shipped ones. For tests that measure, before they open a database.
pub fn as_shipped() {
    AS_SHIPPED.store(true, Ordering::Relaxed);
}

/// A size with a shipped value and a value for tests. If both are equal, it is a constant.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    shipped: usize,
    in_tests: usize,
}

impl Size {
    /// A size with these two values.
    pub const fn new(shipped: usize, in_tests: usize) -> Size {
        Size { shipped, in_tests }
    }

    /// The current value.
    #[inline(always)]
    pub fn get(self) -> usize {
        // ORDERING: the flag is set before any size is used.
        if self.shipped == self.in_tests || AS_SHIPPED.load(Ordering::Relaxed) { self.shipped } else { self.in_tests }
    }

    /// `n` times this size.
    pub const fn times(self, n: usize) -> Size {
        Size { shipped: n * self.shipped, in_tests: n * self.in_tests }
    }

    /// Whether both values are at most those of another size.
    pub const fn is_within(self, other: Size) -> bool {
        self.shipped <= other.shipped && self.in_tests <= other.in_tests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_small_unless_the_shipped_one_is_requested() {
        let size = Size::new(64, 2).times(3);
        assert!(
            size.is_within(Size::new(192, 6))
                && !size.is_within(Size::new(192, 5))
                && !size.is_within(Size::new(191, 6))
        );
        assert_eq!((size.get(), Size::new(64, 64).get()), (6, 64));
        as_shipped();
        assert_eq!((size.get(), Size::new(64, 64).get()), (192, 64));
    }
}
