//! Rows that belong together are seen together by every reader: [`seriatim_suite::balances`].

use seriatim::rng::seed;
use seriatim::{Durability, Fault};
use seriatim_base::disk::FaultyDisk;
use seriatim_suite::balances::{Judge, Load, audit_balances, cut_before_publication, cut_power_amid_deposits};
use seriatim_suite::matrix;

#[test]
fn rows_that_procedures_publish_are_consistent_for_every_reader() {
    let (seed, load) =
        (seed("balances"), Load { callers: 2, calls: 120, writes: true, squeezes: true, judge: Judge::Auditors });
    for setting in matrix(seed) {
        audit_balances(&setting, &load, seed, |builder| builder).unwrap_or_else(|found| panic!("{setting}: {found}"));
    }
}

/// Of protocols that publish late, and of one that does not.
#[test]
fn reads_writes_and_additions_of_procedures_have_a_serial_order() {
    let (seed, load) =
        (seed("balances"), Load { callers: 3, calls: 300, writes: true, squeezes: true, judge: Judge::Checker });
    let settings = matrix(seed).into_iter().filter(|setting| setting.gives_pieces() || setting.protocol == "dbx");
    for setting in settings {
        audit_balances(&setting, &load, seed, |builder| builder).unwrap_or_else(|found| panic!("{setting}: {found}"));
    }
}

#[test]
fn a_power_cut_within_a_procedure_leaves_all_of_it_or_nothing() {
    let seed = seed("power cuts amid deposits");
    // Always late.
    let settings = matrix(seed).into_iter().filter(|setting| !setting.adapts);
    for setting in settings.filter(|setting| setting.gives_pieces() || setting.protocol == "dbx") {
        let waited = cut_power_amid_deposits(&setting, seed).unwrap_or_else(|found| panic!("{setting}: {found}"));
        assert!(waited > 0 || !setting.gives_pieces(), "{setting}: no epoch ends amid what is published in steps");
    }
}

#[test]
#[ignore = "nightly: in settings that defer"]
fn pending_additions_are_lost_with_their_transaction_at_a_power_cut() {
    let seed = seed("power cuts before publication");
    for setting in matrix(seed).into_iter().filter(|setting| setting.defers) {
        for mode in [Durability::Async, Durability::Group] {
            for (how, ends) in [("cut off", FaultyDisk::power_off as fn(&FaultyDisk)), ("killed", FaultyDisk::kill)] {
                let cut = cut_before_publication(&setting, mode, ends, (seed, |builder| builder));
                cut.unwrap_or_else(|found| panic!("{setting}, {mode}, {how}: {found}"));
            }
        }
    }
}

#[test]
#[ignore = "nightly: in settings that defer"]
fn canary_additions_published_late_or_never_are_recovered_by_halves() {
    let seed = seed("publications that fail");
    for setting in matrix(seed).into_iter().filter(|setting| setting.defers) {
        for fault in [Fault::PublishDeferredLate, Fault::ForgetDeferred] {
            let broken = (seed, |builder: seriatim::Builder| builder.canary(fault));
            let found = cut_before_publication(&setting, Durability::Group, FaultyDisk::power_off, broken);
            let found = found.expect_err("half of it is there");
            assert!(found.contains("a recovery: branch 0 says"), "{fault:?}: {found}");
        }
    }
}
