//! Canaries: deliberately broken variants of the protocols, built only in tests, each of which the suite must catch. An alarm
//! that stays silent here would stay silent for a real fault.

use seriatim::htm::HtmMode;
use seriatim::{Fault, clock};
use seriatim_suite::explore::{Program, Spec, explore_with};
use seriatim_suite::model::Op::{self, Get, If, Put, Scan};
use seriatim_suite::stress::{Load, stress_with};
use seriatim_suite::{Setting, seed};

fn setting(protocol: &'static str) -> Setting {
    Setting { protocol, htm: HtmMode::Absent, strict: true }
}

/// Stresses a broken protocol until its history is refuted; fails if that takes a minute. A broken protocol may also break
/// memory, so it runs in a process of its own, whose crash counts as noticed.
fn caught_by_histories(protocol: &'static str, fault: Fault) {
    let name = format!("{protocol} with {fault:?}");
    let tests = std::env::current_exe().expect("the tests are a program");
    let child = std::process::Command::new(tests)
        .args(["--exact", "broken_protocol", "--ignored", "--nocapture"])
        .env(CHILD, format!("{protocol} {fault:?}"))
        .output()
        .expect("the tests start themselves");
    let said = String::from_utf8_lossy(&child.stderr);
    let caught = said.lines().find(|line| line.starts_with("caught"));
    match (child.status.success(), caught) {
        (_, Some(caught)) => eprintln!("{name}: {}", caught.chars().take(300).collect::<String>()),
        (false, None) => eprintln!("{name}: the process ended with {}", child.status),
        (true, None) => panic!("{name} passed: {said}"),
    }
}

/// Says what a child is to break.
const CHILD: &str = "SERIATIM_CANARY";

/// The child of `caught_by_histories`: ends well only if the fault stays unnoticed for a minute.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn broken_protocol() {
    let Ok(canary) = std::env::var(CHILD) else { return };
    let (protocol, fault) = canary.split_once(' ').expect("protocol and fault");
    let fault = Fault::ALL.into_iter().find(|known| format!("{known:?}") == fault).expect("a known fault");
    let protocols = seriatim::protocols().iter();
    let protocol = protocols.map(|known| known.name).find(|known| *known == protocol).expect("a known protocol");
    let seed = seed(&canary);
    let begin = clock::Instant::now();
    let load = Load { threads: 3, transactions: 300, keys: 6, operations: 5 };
    for round in 0.. {
        if let Err(found) = stress_with(&setting(protocol), &load, seed + round, |builder| builder.canary(fault)) {
            eprintln!("caught in round {round}: {}", found.replace('\n', " "));
            std::process::exit(3);
        }
        if begin.elapsed().as_secs() >= 60 {
            return;
        }
    }
}

/// Explores a specification that a sound protocol passes; the broken one must fail it.
fn caught_by_schedules(protocol: &'static str, fault: Fault, spec: &Spec) {
    explore_with(&setting(protocol), spec, |builder| builder).expect("the sound protocol passes");
    let found = explore_with(&setting(protocol), spec, |builder| builder.canary(fault));
    eprintln!("{protocol} with {fault:?}: {}", found.expect_err("every schedule of the broken protocol passed"));
}

fn write_skew() -> Spec {
    const BOTH: fn(&[seriatim_suite::model::Observed]) -> bool = |seen| seen[0].value() + seen[1].value() >= 2;
    let program = |op: &'static Op| Program::new([Get(1), Get(2), If(BOTH, op)]);
    const FIRST: Op = Put(1, |_| 0);
    const SECOND: Op = Put(2, |_| 0);
    Spec { initial: vec![(1, 1), (2, 1)], programs: vec![program(&FIRST), program(&SECOND)], ordered: false }
}

fn phantom() -> Spec {
    let program = |low, high, key| Program::new([Scan(low, high), Put(key, |seen| seen[0].value() + 1)]);
    Spec { initial: vec![], programs: vec![program(2, 4, 9), program(8, 9, 3)], ordered: true }
}

#[test]
fn skipped_validation_is_caught_by_schedules_and_histories() {
    for protocol in ["dbx", "silo"] {
        caught_by_schedules(protocol, Fault::SkipValidation, &write_skew());
        caught_by_histories(protocol, Fault::SkipValidation);
    }
}

#[test]
fn dropped_witnesses_are_caught_in_every_protocol() {
    for protocol in seriatim::protocols() {
        caught_by_schedules(protocol.name, Fault::DropWitness, &phantom());
    }
    caught_by_histories("dbx", Fault::DropWitness);
}

#[test]
fn reused_stamps_are_caught() {
    caught_by_histories("dbx", Fault::ReuseStamp);
}

#[test]
fn missing_subscription_is_caught() {
    caught_by_histories("dbx", Fault::NoSubscription);
}

#[test]
fn late_subscription_is_caught() {
    caught_by_histories("dbx", Fault::LateSubscription);
}

#[test]
fn early_publication_is_caught() {
    caught_by_histories("dbx", Fault::PublishEarly);
}
