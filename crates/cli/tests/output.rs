//! The output of every command. It ends quietly when its reader goes away. Output that cannot be written is a failed
//! run with one line. Neither is ever a panic.

#![cfg(target_os = "linux")]

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use seriatim::rng;

/// A directory that is removed at the end.
struct Home(PathBuf);

impl Home {
    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SHORT: [&str; 8] = ["--scale", "small", "--seconds", "0.05", "--warmup", "0", "--prefault", "0"];

/// Every measurement below the workloads that prints by itself, as small as possible.
const MEASUREMENTS: [&str; 13] = [
    "raw-index --keys 100 --pairs 1 --seconds 0.001",
    "dispatch --keys 100 --pairs 1 --seconds 0.001",
    "embedded --entries 100 --accounts 10 --pairs 1 --seconds 0.001",
    "procedures --pairs 1 --seconds 0.001 --scale small --records 200 --prefault 0",
    "prefetch --warehouses 1 --pairs 1 --seconds 0.001 --scale small --records 200 --prefault 0",
    "prefetch --warehouses 1 --pairs 1 --seconds 0.001 --scale small --records 200 --prefault 0 --format json",
    "reader --accounts 10 --held 0.001 --pairs 1 --seconds 0.001 --scale small --records 200 --prefault 0",
    "busy --warehouses 1 --loops 1 --pairs 1 --seconds 0.001 --scale small --records 200 --prefault 0",
    "churn --seconds 10 --rows 50",
    "footprint --rows 50",
    "instructions --small --transactions 100",
    "rtm --kind",
    "rtm --backend absent --small",
];

/// A directory with a database, and every command that prints. Their outputs go to new directories named after
/// the test.
fn commands(test: &str) -> (Home, Vec<Vec<String>>) {
    let home = Home(std::env::temp_dir().join(format!("seriatim-output-{test}-{:016x}", rng::entropy())));
    std::fs::create_dir(&home.0).expect("a directory");
    let db = home.at("db");
    let made = Command::new(env!("CARGO_BIN_EXE_seriatim"))
        .args(["bench", "tpcc", "--data", &db])
        .args(SHORT)
        .output()
        .expect("the binary starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut all: Vec<Vec<String>> = [
        "--help",
        "--version",
        "bench --help",
        "protocols",
        "protocols --format json",
        "plan tpcc",
        "plan tpcc payment",
        "graph tpcc",
        "graph tpcc --format svg",
        "graph tpcc --format dot",
        "bench roofline --seconds 0.05",
        "bench roofline --seconds 0.05 --format json",
    ]
    .map(words)
    .into();
    for format in ["text", "json"] {
        all.push(words(&format!("bench tpcc --format {format} {}", SHORT.join(" "))));
        all.push(words(&format!("check {db} --format {format}")));
        all.push(words(&format!("recover {db} --format {format}")));
        all.push(words(&format!("backup {db} {} --format {format}", home.at(&format!("backup-{format}")))));
        let (from, to) = (home.at(&format!("backup-{format}")), home.at(&format!("restored-{format}")));
        all.push(words(&format!("restore {from} {to} --format {format}")));
    }
    all.extend(MEASUREMENTS.map(|line| words(&format!("bench {line}"))));
    (home, all)
}

#[test]
#[ignore = "nightly: every command runs"]
fn a_reader_that_goes_away_ends_every_command_quietly() {
    let (_home, commands) = commands("closed");
    for arguments in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let child = Command::new(env!("CARGO_BIN_EXE_seriatim"))
            .args(&arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .expect("the binary starts");
        let talk = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(0), "{arguments:?}: {talk}");
        assert!(!talk.contains("panicked") && !talk.contains("standard output"), "{arguments:?}: {talk}");
    }
}

#[test]
#[ignore = "nightly: every command runs"]
fn output_that_cannot_be_written_is_a_failed_run_in_one_line() {
    let (_home, commands) = commands("full");
    for arguments in commands {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let child = Command::new(env!("CARGO_BIN_EXE_seriatim"))
            .args(&arguments)
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .expect("the binary starts");
        let talk = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(1), "{arguments:?}: {talk}");
        let last = talk.lines().last().unwrap_or_default();
        assert!(last.starts_with("seriatim: cannot write to standard output: "), "{arguments:?}: {talk}");
    }
}

/// Standard error need not have a reader.
#[test]
fn standard_error_without_a_reader_changes_nothing() {
    let tpcc = [&["bench", "tpcc"][..], &SHORT].concat();
    for (arguments, code) in
        [(&["protocols"][..], 0), (&tpcc, 0), (&["plan", "nothing"], 2), (&["check", "/nowhere"], 2)]
    {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        for talk in [Stdio::from(full), Stdio::from(writer)] {
            let child = Command::new(env!("CARGO_BIN_EXE_seriatim")).args(arguments).stderr(talk).output();
            assert_eq!(child.expect("the binary starts").status.code(), Some(code), "{arguments:?}");
        }
    }
}

/// Runs a measurement in both formats, and checks what all have in common.
fn conditions_and_verdict(line: &str) {
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
        let output = command.arg("bench").args(line.split(' ')).args(more).output().expect("the binary starts");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let (text, name) = (run(&[]), line.split(' ').next().expect("a name"));
    let first = text.lines().next().unwrap_or_default();
    assert!(first.starts_with(&format!("conditions     {name}")), "{text}");
    assert!([" thread", ", durability off", "; revision "].iter().all(|part| first.contains(part)), "{text}");
    assert_eq!(text.lines().last(), Some("verdict        passed: no operation failed"), "{text}");
    assert!(text.lines().count() > 3, "{text}");
    if name != "rtm" {
        let json = run(&["--format", "json"]);
        let report: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
        assert_eq!((&report["measurement"], &report["interrupted"]), (&name.into(), &false.into()), "{report}");
        assert!(report["machine"]["cores"].is_u64() && report["revision"].is_string(), "{report}");
        let rows = report["rows"].as_array().or(report["comparisons"].as_array()).expect("a list");
        assert!(!rows.is_empty() && rows.iter().all(Value::is_object), "{report}");
    }
}

/// The measurements whose output is for people, and whether they take seconds.
fn for_people() -> impl Iterator<Item = (&'static str, bool)> {
    let is_for_people = |line: &&str| !["instructions", "rtm --kind"].iter().any(|start| line.starts_with(start));
    let all = MEASUREMENTS.into_iter().filter(is_for_people).filter(|line| !line.contains("--format"));
    all.map(|line| (line, ["churn", "footprint", "rtm"].iter().any(|start| line.starts_with(start))))
}

#[test]
fn measurements_begin_with_their_conditions_and_end_with_their_verdict() {
    for_people().filter(|(_, is_long)| !is_long).for_each(|(line, _)| conditions_and_verdict(line));
    let short = ["bench", "reader", "--seconds", "0.5", "--held", "1"];
    let failed = Command::new(env!("CARGO_BIN_EXE_seriatim")).args(short).output().expect("the binary starts");
    let last = String::from_utf8_lossy(&failed.stdout).lines().last().map(str::to_owned).unwrap_or_default();
    assert!(failed.status.code() == Some(1) && last.starts_with("verdict        failed: a round must"), "{failed:?}");
}

#[test]
#[ignore = "nightly: tens of seconds"]
fn long_measurements_begin_with_their_conditions_and_end_with_their_verdict() {
    for_people().filter(|(_, is_long)| *is_long).for_each(|(line, _)| conditions_and_verdict(line));
}

#[test]
fn copies_with_a_missing_source_or_a_full_target_are_refused_with_advice() {
    let (home, _) = commands("copies");
    let refused = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_seriatim")).args(arguments).output().expect("the binary starts");
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), line.lines().count()), (Some(2), 1), "{line}");
        line
    };
    let (db, nowhere, empty, taken) = (home.at("db"), home.at("nowhere"), home.at("empty"), home.at("taken"));
    std::fs::create_dir(&empty).expect("a directory");
    std::fs::create_dir_all(format!("{taken}/by-others")).expect("a directory");
    for command in ["backup", "restore"] {
        let from_nowhere = refused(&[command, &nowhere, &db]);
        assert!(from_nowhere.contains(&format!("{nowhere}: there is no such directory")), "{from_nowhere}");
        let full = refused(&[command, &db, &taken]);
        assert!(
            full.contains(&format!("cannot use {taken}: it is not empty")) && full.contains("name a new or empty"),
            "{full}"
        );
        for inside in [db.clone(), format!("{db}/copy")] {
            let own = refused(&[command, &db, &inside]);
            assert!(own.contains(&format!("cannot use {inside}: it is in the database's own directory")), "{own}");
        }
        let hollow = refused(&[command, &empty, &home.at("copy")]);
        assert!(hollow.contains(&format!("cannot use {empty}: it holds no database")), "{hollow}");
    }
}

#[test]
fn invalid_arguments_of_measurements_are_refused_in_one_line() {
    for (arguments, wanted) in [
        (&["raw-index", "--seconds", "-1"][..], "from 0.001 to 86400"),
        (&["raw-index", "--keys", "0"], "--keys"),
        (&["rtm", "--backend", "tsx"], "auto, rtm, emulated or absent"),
        (&["rtm", "--kind", "--small"], "--small"),
        (&["instructions", "--transactions", "-1"], "--transactions"),
        (&["row-index"], "raw-index"),
    ] {
        let child = Command::new(env!("CARGO_BIN_EXE_seriatim")).arg("bench").args(arguments).output();
        let child = child.expect("the binary starts");
        let talk = String::from_utf8_lossy(&child.stderr);
        assert_eq!((child.status.code(), talk.lines().count()), (Some(2), 1), "{arguments:?}: {talk}");
        assert!(talk.contains(wanted), "{arguments:?}: {talk}");
    }
}
