//! What belongs together is seen together, by whoever looks: [`seriatim_suite::books`].

use seriatim_suite::books::{Judge, Load, cut_power_amid_deposits, keep_books};
use seriatim_suite::{matrix, matrix_of_threads, seed};

#[test]
fn what_procedures_publish_belongs_together_for_all_who_look() {
    let (seed, load) =
        (seed("books"), Load { callers: 2, calls: 120, writes: true, squeezes: true, judge: Judge::Auditors });
    for setting in matrix_of_threads(seed) {
        keep_books(&setting, &load, seed, |builder| builder).unwrap_or_else(|found| panic!("{setting}: {found}"));
    }
}

/// Of protocols that publish late, and of one that does not.
#[test]
fn what_procedures_read_wrote_and_added_has_a_serial_order() {
    let (seed, load) =
        (seed("books"), Load { callers: 3, calls: 300, writes: true, squeezes: true, judge: Judge::Checker });
    let settings =
        matrix_of_threads(seed).into_iter().filter(|setting| setting.gives_pieces() || setting.protocol == "dbx");
    for setting in settings {
        keep_books(&setting, &load, seed, |builder| builder).unwrap_or_else(|found| panic!("{setting}: {found}"));
    }
}

#[test]
fn what_a_power_cut_amid_a_procedure_leaves_is_all_of_it_or_nothing() {
    let seed = seed("power cuts amid deposits");
    // Always late.
    let settings = matrix(seed).into_iter().filter(|setting| !setting.queued && !setting.adapts);
    for setting in settings.filter(|setting| setting.gives_pieces() || setting.protocol == "dbx") {
        let waited = cut_power_amid_deposits(&setting, seed).unwrap_or_else(|found| panic!("{setting}: {found}"));
        assert!(waited > 0 || !setting.gives_pieces(), "{setting}: no epoch ends amid what is published in steps");
    }
}
