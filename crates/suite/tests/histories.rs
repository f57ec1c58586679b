//! Recorded histories of random transactions, in every setting, pass the independent checker (X4).

use seriatim_suite::stress::{Load, stress};
use seriatim_suite::{matrix, seed};

#[test]
fn few_keys_many_conflicts() {
    let seed = seed("few keys");
    for setting in matrix(seed) {
        let load = Load { threads: 3, transactions: 400, keys: 8, operations: 6 };
        let stressed = stress(&setting, &load, seed).unwrap_or_else(|fault| panic!("{fault}"));
        eprintln!("{setting}: {stressed:?}");
    }
}

#[test]
fn many_keys_splits_and_unlinks() {
    let seed = seed("many keys");
    for setting in matrix(seed) {
        let load = Load { threads: 2, transactions: 600, keys: 400, operations: 20 };
        let stressed = stress(&setting, &load, seed).unwrap_or_else(|fault| panic!("{fault}"));
        eprintln!("{setting}: {stressed:?}");
    }
}
