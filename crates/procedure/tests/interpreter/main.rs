//! The interpreter: what procedures mean, shown on procedures built by hand; what no front end makes, which
//! must not panic.

#[path = "../support/mod.rs"]
mod support;

mod arithmetic;
mod build;
mod footprints;
mod meaning;
mod programs;
mod robust;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;
use seriatim_base::rng;

/// Values are drawn by `SERIATIM_SEED` where it is set.
fn config() -> ProptestConfig {
    ProptestConfig { rng_seed: rng::given_seed().map_or(RngSeed::Random, RngSeed::Fixed), ..ProptestConfig::default() }
}
