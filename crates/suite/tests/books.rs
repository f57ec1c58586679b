//! What belongs together is seen together, by whoever looks: [`seriatim_suite::books`].

use seriatim_suite::books::{Load, keep_books};
use seriatim_suite::{matrix, seed};

#[test]
fn what_procedures_publish_belongs_together_for_all_who_look() {
    let (seed, load) = (seed("books"), Load { callers: 2, calls: 120, writes: true });
    for setting in matrix(seed) {
        keep_books(&setting, &load, seed, |builder| builder).unwrap_or_else(|found| panic!("{setting}: {found}"));
    }
}
