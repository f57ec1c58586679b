//! Real kills of real processes on real files. The long run is `cargo xtask soak`.

use std::path::Path;

use seriatim_suite::{kills, seed};

#[test]
fn what_was_acknowledged_survives_sigkill() {
    let seed = seed("what_was_acknowledged_survives_sigkill");
    let program = Path::new(env!("CARGO_BIN_EXE_soak"));
    let totals = kills::run(program, 24, seed, &|_| ()).unwrap_or_else(|problem| panic!("{problem}"));
    for (setting, tally) in &totals {
        eprintln!("{setting}: {tally:?}");
    }
    assert!(totals.values().any(|tally| tally.acknowledged > 0), "no child got anywhere");
}
