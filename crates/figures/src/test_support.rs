//! Settings for tests.

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
