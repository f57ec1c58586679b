//! What belongs together is seen together, by whoever looks: [`seriatim_suite::books`].

use seriatim_suite::books::{Judge, Load, keep_books};
use seriatim_suite::{matrix, seed};

#[test]
fn what_procedures_publish_belongs_together_for_all_who_look() {
    let (seed, load) = (seed("books"), Load { callers: 2, calls: 120, writes: true, judge: Judge::Auditors });
    for setting in matrix(seed) {
        keep_books(&setting, &load, seed, |builder| builder).unwrap_or_else(|found| panic!("{setting}: {found}"));
    }
}

/// Of protocols that publish late, and of one that does not.
#[test]
fn what_procedures_read_wrote_and_added_has_a_serial_order() {
    let (seed, load) = (seed("books"), Load { callers: 3, calls: 300, writes: true, judge: Judge::Checker });
    let settings = matrix(seed).into_iter().filter(|setting| setting.gives_pieces() || setting.protocol == "dbx");
    for setting in settings {
        keep_books(&setting, &load, seed, |builder| builder).unwrap_or_else(|found| panic!("{setting}: {found}"));
    }
}
