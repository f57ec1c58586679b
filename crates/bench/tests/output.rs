//! Whatever `seriatim-bench` prints: a reader that goes away ends it quietly, output that cannot be written is a failed run, and
//! arguments that cannot be are one line. Neither is ever a panic.

#![cfg(target_os = "linux")]

use std::fs::OpenOptions;
use std::process::{Command, Output, Stdio};

const PAIRS: [&str; 4] = ["--pairs", "1", "--seconds", "0.001"];
const SMALL: [&str; 6] = ["--scale", "small", "--records", "200", "--prefault", "0"];

/// Every measurement, as small as it goes.
fn measurements() -> Vec<Vec<&'static str>> {
    let with = |more: &[&[&'static str]]| more.concat();
    vec![
        vec!["--help"],
        with(&[&["raw-index", "--keys", "100"], &PAIRS]),
        with(&[&["dispatch", "--keys", "100"], &PAIRS]),
        with(&[&["embedded", "--entries", "100", "--accounts", "10"], &PAIRS]),
        with(&[&["procedures"], &PAIRS, &SMALL]),
        with(&[&["prefetch", "--warehouses", "1"], &PAIRS, &SMALL]),
        with(&[&["prefetch", "--warehouses", "1", "--format", "json"], &PAIRS, &SMALL]),
        with(&[&["reader", "--accounts", "10", "--held", "0.001"], &PAIRS, &SMALL]),
        with(&[&["busy", "--warehouses", "1", "--loops", "1"], &PAIRS, &SMALL]),
        vec!["churn", "--seconds", "10", "--rows", "50"],
        vec!["instructions", "--small", "--transactions", "100"],
        vec!["rtm", "--kind"],
        vec!["rtm", "--backend", "absent", "--small"],
    ]
}

fn run(arguments: &[&str], output: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim-bench"));
    command.args(arguments).stdout(output).stderr(Stdio::piped()).output().expect("the binary starts")
}

#[test]
fn a_reader_that_goes_away_ends_every_measurement_quietly() {
    for arguments in measurements() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let child = run(&arguments, writer);
        let talk = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(0), "{arguments:?}: {talk}");
        assert!(!talk.contains("panicked"), "{arguments:?}: {talk}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failed_run() {
    for arguments in measurements() {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let child = run(&arguments, full);
        let talk = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(1), "{arguments:?}: {talk}");
        let last = talk.lines().last().unwrap_or_default();
        assert!(last.starts_with("seriatim-bench: cannot write to standard output: "), "{arguments:?}: {talk}");
    }
}

#[test]
fn arguments_that_cannot_be_are_one_line() {
    for (arguments, wanted) in [
        (&["raw-index", "--seconds", "-1"][..], "from 0.001 to 86400"),
        (&["raw-index", "--keys", "0"], "--keys"),
        (&["rtm", "--backend", "tsx"], "auto, rtm, emulated or absent"),
        (&["rtm", "--kind", "--small"], "--small"),
        (&["instructions", "--transactions", "-1"], "--transactions"),
        (&["row-index"], "raw-index"),
    ] {
        let child = run(arguments, Stdio::piped());
        let talk = String::from_utf8_lossy(&child.stderr);
        assert_eq!((child.status.code(), talk.lines().count()), (Some(2), 1), "{arguments:?}: {talk}");
        assert!(talk.contains(wanted), "{arguments:?}: {talk}");
    }
}
