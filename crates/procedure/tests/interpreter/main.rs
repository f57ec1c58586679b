//! The interpreter: what procedures mean, shown on procedures built by hand; what no front end makes, which must not panic.

#[path = "../support/mod.rs"]
mod support;

mod arithmetic;
mod build;
mod meaning;
mod programs;
mod robust;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// Values are drawn by `SERIATIM_SEED` where it is set.
fn config() -> ProptestConfig {
    let given: Option<u64> = std::env::var("SERIATIM_SEED").ok().and_then(|seed| seed.parse().ok());
    ProptestConfig { rng_seed: given.map_or(RngSeed::Random, RngSeed::Fixed), ..ProptestConfig::default() }
}
