//! The long run says what it could not do: a soak that found nothing because it did nothing does not pass.

use std::process::{Command, Output};

fn soak(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } =
        Command::new(env!("CARGO_BIN_EXE_soak")).args(arguments).output().expect("the binary starts");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn minutes_that_are_over_too_early_are_reported_and_fail() {
    let wanted = ["--cuts", "1000", "--kills", "3", "--minutes", "0", "--seed", "1"];
    let (code, talk) = soak(&wanted);
    assert_eq!(code, Some(1), "{talk}");
    for short in ["Cuts: 0 of 800", "Faults: 0 of 200", "0 of 2 directories", "0 of 3 kills"] {
        assert!(talk.contains(short), "{short}: {talk}");
    }
}

#[test]
fn cuts_too_few_to_test_anything_are_reported_and_fail() {
    let (code, talk) = soak(&["--cuts", "1", "--kills", "0", "--threads", "1", "--seed", "1"]);
    assert_eq!(code, Some(1), "{talk}");
    assert!(talk.contains("Cuts tested too little") && talk.contains("no checkpoint"), "{talk}");
}

#[test]
fn a_soak_that_did_all_requested_work_succeeds() {
    let (code, talk) = soak(&["--cuts", "0", "--kills", "1", "--seed", "1"]);
    assert_eq!(code, Some(0), "{talk}");
}
