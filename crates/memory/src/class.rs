//! Size classes: the block sizes that small allocations are rounded up to.
//!
//! Steps of 16 bytes to 512, then eight steps to each doubling (at most 12.5 % waste) up to 32 KiB. Every multiple of
//! 64 up to 1 KiB is a class, and every class above 512 is a multiple of 64. So a block cut from line-aligned memory
//! has the alignment that [`Local::allocate`](crate::Local::allocate) promises.

/// Largest small allocation, bytes. Larger ones are mapped on their own.
pub(crate) const SMALL_MAX: usize = 32 << 10;
/// Number of classes.
pub(crate) const CLASSES: usize = FINE + 8 * 6;

const FINE_STEP_LOG: u32 = 4;
const FINE_MAX_LOG: u32 = 9;
/// Classes in steps of 16 bytes.
const FINE: usize = 1 << (FINE_MAX_LOG - FINE_STEP_LOG);

const _: () = assert!(Class(CLASSES as u8 - 1).bytes() == SMALL_MAX, "the last class is the largest small size");
const _: () = assert!(Class::of(SMALL_MAX).index() == CLASSES - 1, "and the largest small size falls into it");

/// One of the [`CLASSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u8);

impl Class {
    /// The smallest class that holds `bytes`, which are at most [`SMALL_MAX`].
    #[inline]
    pub(crate) const fn of(bytes: usize) -> Class {
        debug_assert!(bytes <= SMALL_MAX);
        let last = bytes.saturating_sub(1);
        if last < 1 << FINE_MAX_LOG {
            Class((last >> FINE_STEP_LOG) as u8)
        } else {
            let log = last.ilog2();
            Class((FINE + ((log - FINE_MAX_LOG) as usize) * 8 + ((last >> (log - 3)) & 7)) as u8)
        }
    }

    /// Bytes of a block.
    #[inline]
    pub(crate) const fn bytes(self) -> usize {
        let index = self.0 as usize;
        if index < FINE {
            (index + 1) << FINE_STEP_LOG
        } else {
            let (log, step) = ((index - FINE) / 8 + FINE_MAX_LOG as usize, (index - FINE) % 8);
            (8 + step + 1) << (log - 3)
        }
    }

    /// Its place in an array by class.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The largest class whose blocks fit into `bytes`; `None` below 16.
    pub(crate) fn within(bytes: usize) -> Option<Class> {
        let class = Class::of(bytes.min(SMALL_MAX));
        if class.bytes() <= bytes { Some(class) } else { class.0.checked_sub(1).map(Class) }
    }

    /// All of them, smallest first.
    pub(crate) fn all() -> impl Iterator<Item = Class> {
        (0..CLASSES as u8).map(Class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_smallest_that_fits() {
        let sizes: Vec<usize> = Class::all().map(Class::bytes).collect();
        assert!(sizes.is_sorted_by(|a, b| a < b));
        for bytes in 0..=SMALL_MAX {
            let class = Class::of(bytes);
            assert!(class.bytes() >= bytes);
            assert!(class.index() == 0 || sizes[class.index() - 1] < bytes, "{bytes} would fit a smaller class");
        }
    }

    #[test]
    fn waste_is_at_most_an_eighth_above_the_fine_steps() {
        for bytes in 513..=SMALL_MAX {
            assert!((Class::of(bytes).bytes() - bytes) * 8 <= bytes);
        }
    }

    #[test]
    fn multiples_of_a_line_stay_multiples_of_a_line() {
        for bytes in (64..=SMALL_MAX).step_by(64) {
            assert_eq!(Class::of(bytes).bytes() % 64, 0);
        }
        assert!(Class::all().all(|class| class.bytes() % 16 == 0));
    }

    #[test]
    fn within_is_the_largest_class_that_fits() {
        assert_eq!(Class::within(15), None);
        for bytes in 16..2 * SMALL_MAX {
            let class = Class::within(bytes).expect("16 bytes hold a block");
            assert!(class.bytes() <= bytes);
            assert!(Class::all().all(|other| other.bytes() > bytes || other.bytes() <= class.bytes()));
        }
    }
}
