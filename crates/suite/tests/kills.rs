//! Real kills of real processes on real files. The long run is `cargo xtask soak`.

use std::path::Path;

use seriatim_suite::{kills, seed};

/// In each setting.
const KILLS: u64 = 3;

#[test]
fn what_was_acknowledged_survives_sigkill() {
    let seed = seed("what_was_acknowledged_survives_sigkill");
    let program = Path::new(env!("CARGO_BIN_EXE_soak"));
    let totals =
        kills::run(program, KILLS * kills::settings(), seed, &|_| ()).unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(totals.len() as u64, kills::settings(), "each is tried: {totals:?}");
    for (setting, tally) in &totals {
        eprintln!("{setting}: {tally:?}");
        assert_eq!(tally.kills, KILLS, "{setting}");
        assert!(tally.acknowledged > 0 && tally.recovered > 0, "{setting}: no child got anywhere");
    }
}

#[test]
fn canary_a_child_that_ends_by_itself_is_a_fault() {
    let seed = seed("canary_a_child_that_ends_by_itself_is_a_fault");
    for (program, ends) in [("false", "exit status: 1"), ("true", "exit status: 0")] {
        let problem = kills::run(Path::new(program), 1, seed, &|_| ()).expect_err(program);
        assert!(problem.contains(ends), "{program}: {problem}");
    }
}
