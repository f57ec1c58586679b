//! Rows that belong together are seen together by every reader: [`seriatim_suite::books`].

use seriatim::rng::seed;
use seriatim::{Durability, Fault};
use seriatim_base::disk::FaultyDisk;
use seriatim_suite::books::{Judge, Load, cut_before_publication, cut_power_amid_deposits, keep_books};
use seriatim_suite::matrix;

#[test]
fn what_procedures_publish_belongs_together_for_all_who_look() {
    let (seed, load) =
        (seed("books"), Load { callers: 2, calls: 120, writes: true, squeezes: true, judge: Judge::Auditors });
    for setting in matrix(seed) {
        keep_books(&setting, &load, seed, |builder| builder).unwrap_or_else(|found| panic!("{setting}: {found}"));
    }
}

/// Of protocols that publish late, and of one that does not.
#[test]
fn what_procedures_read_wrote_and_added_has_a_serial_order() {
    let (seed, load) =
        (seed("books"), Load { callers: 3, calls: 300, writes: true, squeezes: true, judge: Judge::Checker });
    let settings = matrix(seed).into_iter().filter(|setting| setting.gives_pieces() || setting.protocol == "dbx");
    for setting in settings {
        keep_books(&setting, &load, seed, |builder| builder).unwrap_or_else(|found| panic!("{setting}: {found}"));
    }
}

#[test]
fn what_a_power_cut_amid_a_procedure_leaves_is_all_of_it_or_nothing() {
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
fn what_is_pending_when_the_power_goes_is_lost_with_who_deferred_it() {
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
fn canary_what_is_published_late_or_never_is_recovered_by_halves() {
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
