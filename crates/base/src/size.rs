//! Sizes that shrink in builds for tests, so that rare paths are common there.
//!
//! Cargo builds a crate once for all tests of a run: one that asks for small sizes gives them to all. A test
//! that measures what is shipped asks for the sizes as shipped, as it runs.

use std::sync::atomic::{AtomicBool, Ordering};

static AS_SHIPPED: AtomicBool = AtomicBool::new(false);

/// From now on all sizes of this process are as shipped. For tests that measure; before the first database is opened.
pub fn as_shipped() {
    AS_SHIPPED.store(true, Ordering::Relaxed);
}

/// A size, as shipped and in tests. Where both are the same it is a constant.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    shipped: usize,
    in_tests: usize,
}

impl Size {
    /// So much as shipped, and so much in tests.
    pub const fn new(shipped: usize, in_tests: usize) -> Size {
        Size { shipped, in_tests }
    }

    /// The size.
    #[inline(always)]
    pub fn get(self) -> usize {
        // ORDERING: set before anything is sized.
        if self.shipped == self.in_tests || AS_SHIPPED.load(Ordering::Relaxed) { self.shipped } else { self.in_tests }
    }

    /// So many times this size.
    pub const fn times(self, n: usize) -> Size {
        Size { shipped: n * self.shipped, in_tests: n * self.in_tests }
    }

    /// Whether it is no more than another, as shipped and in tests.
    pub const fn is_within(self, other: Size) -> bool {
        self.shipped <= other.shipped && self.in_tests <= other.in_tests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_small_until_it_is_asked_for_as_shipped() {
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
