//! Settings and figures for tests.

use crate::data::FIGURES;
use crate::figure::Figure;
use crate::measured::Size;
use crate::setting::Setting;

/// The large size on a machine with two processors and regions.
pub(crate) fn large() -> Setting {
    Setting { size: Size::Large, processors: 2, has_regions: true, seconds: None, rounds: None, seed: 1 }
}

/// The small size on the same.
pub(crate) fn small() -> Setting {
    Setting { size: Size::Small, ..large() }
}

/// The figure of this name.
pub(crate) fn figure(id: &str) -> &'static Figure {
    FIGURES.iter().find(|figure| figure.id() == id).unwrap_or_else(|| panic!("there is no figure {id}"))
}
