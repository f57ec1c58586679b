//! Properties of the memory as a whole. Bags, batches and spans are small here (`small`), so that bags fill, lists
//! overflow and spans end all the time.

mod counted;
mod fences;
mod heap;
mod kept;
mod objects;
mod reclaim;
mod stepped;
mod threads;

use crate::{Local, Memory, Options};
use seriatim_base::{Rng, rng};

/// Memory for so many workers.
pub(crate) fn memory(workers_max: usize) -> Memory {
    Memory::new(Options { workers_max, huge_pages: false, ..Options::default() }).expect("sane options")
}

pub(crate) fn register(memory: &Memory) -> Local {
    memory.register().expect("a free slot")
}

/// A generator by the seed of a test.
fn seeded(test: &str) -> Rng {
    Rng::from_seed(rng::seed(test))
}
