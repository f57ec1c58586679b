//! The tables of the catalogue.
use super::Table;
/// All tables.
pub(super) const TABLES: &[Table] = &[];
