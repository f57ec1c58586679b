//! How many tables and indexes a database can still have.
//!
//! Protocols keep the id of a table and an address in one word, so ids have 14 bits. An index has an id like a table. A
//! database never reuses an id, not even of a table that a conversion has replaced.

/// Most tables and indexes of a database, in its whole life.
pub(crate) const TABLES_MAX: usize = 1 << 14;

/// A warning is given if fewer ids are left.
const LEFT_MIN: usize = TABLES_MAX / 8;

/// The ids that are left, if the ids below this one have been given out.
pub(crate) fn left(ids: u32) -> usize {
    TABLES_MAX.saturating_sub(ids as usize)
}

/// The warning if few are left.
pub(crate) fn warning(ids: u32) -> Option<String> {
    let left = left(ids);
    (left < LEFT_MIN).then(|| {
        format!(
            "{left} of {TABLES_MAX} tables and indexes can still be created, and those that conversions replace count \
             again: put rows of several kinds into one table, or load the rows into a new database before"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_given_while_an_eighth_is_left() {
        let few = (TABLES_MAX - LEFT_MIN) as u32;
        assert_eq!((left(few), warning(few)), (LEFT_MIN, None));
        assert!(warning(few + 1).is_some_and(|warning| warning.starts_with("2047 of 16384 ")));
        assert!(warning(u32::MAX).is_some_and(|warning| warning.starts_with("0 of ")));
    }
}
