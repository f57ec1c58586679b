//! Isolation specifications: one file an anomaly; sessions and steps run in every interleaving, under every
//! protocol, and if they are not many in every setting.

#[path = "isolation/absent_read_skew.rs"]
mod absent_read_skew;
#[path = "isolation/calls.rs"]
mod calls;
#[path = "isolation/delete_reinsert.rs"]
mod delete_reinsert;
#[path = "isolation/dirty_read.rs"]
mod dirty_read;
#[path = "isolation/dirty_write.rs"]
mod dirty_write;
#[path = "isolation/fuzzy_read.rs"]
mod fuzzy_read;
#[path = "isolation/lost_update.rs"]
mod lost_update;
#[path = "isolation/phantom.rs"]
mod phantom;
#[path = "isolation/read_only_anomaly.rs"]
mod read_only_anomaly;
#[path = "isolation/reported_errors.rs"]
mod reported_errors;
#[path = "isolation/rolled_back_reads.rs"]
mod rolled_back_reads;
#[path = "isolation/write_skew.rs"]
mod write_skew;

use seriatim::rng::seed;
use seriatim_suite::explore::{Explored, Spec, explore};
use seriatim_suite::matrix_of_steps;

/// Explores a specification in every setting. Some schedule must let all programs commit: a protocol that
/// aborts everything would forbid every anomaly.
fn forbid(anomaly: &str, spec: &Spec) {
    let seed = seed(anomaly);
    // Each anomaly draws other protocols, also where one seed is given for all.
    let drawn = anomaly.bytes().fold(seed, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let explored = explore(&matrix_of_steps(drawn), spec, seed, |setting, Explored { schedules, all_committed }| {
        assert!(schedules > 1 && all_committed > 0, "{setting}: {all_committed} of {schedules} committed");
    });
    explored.unwrap_or_else(|fault| panic!("{anomaly}: {fault}"));
}
