//! Canaries: deliberately broken variants of the protocols, built only in tests, each of which the suite must catch. An alarm
//! that stays silent here would stay silent for a real fault.

use seriatim::htm::HtmMode;
use seriatim::{Fault, clock};
use seriatim_suite::clients::{self, Shape, interrogate_with};
use seriatim_suite::explore::{Program, Spec, explore_with};
use seriatim_suite::model::Op::{self, Get, If, Put, Scan};
use seriatim_suite::stress::{Load, stress_with};
use seriatim_suite::{Setting, seed};

fn setting(protocol: &'static str) -> Setting {
    Setting { protocol, htm: HtmMode::Absent, strict: true }
}

/// What looks at a broken protocol under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alarm {
    /// The checker of recorded histories.
    Histories,
    /// The judge of what clients saw.
    Clients(Shape),
}

impl Alarm {
    const ALL: [Alarm; 4] = [
        Alarm::Histories,
        Alarm::Clients(Shape::Registers),
        Alarm::Clients(Shape::Lists),
        Alarm::Clients(Shape::ListsInRows),
    ];

    /// Loads the broken protocol once.
    fn listen(self, setting: &Setting, fault: Fault, seed: u64) -> Result<(), String> {
        match self {
            Alarm::Histories => {
                let load = Load { threads: 3, transactions: 300, keys: 6, operations: 5 };
                stress_with(setting, &load, seed, |builder| builder.canary(fault)).map(drop)
            }
            Alarm::Clients(shape) => {
                let load = clients::Load { clients: 3, transactions: 300, keys: 5, steps: 5 };
                interrogate_with(setting, shape, &load, seed, |builder| builder.canary(fault)).map(drop)
            }
        }
    }
}

/// A broken protocol may also break memory, so it runs in a process of its own, whose crash counts as noticed.
fn caught_by_histories(protocol: &'static str, fault: Fault) {
    caught_under_load(Alarm::Histories, protocol, fault);
}

/// Only a verdict convicts: a crash says nothing about the judge, so what crashes is loaded again.
fn convicted_by_clients(shape: Shape, protocol: &'static str, fault: Fault) {
    let mut said = (0..10).map(|_| caught_under_load(Alarm::Clients(shape), protocol, fault));
    assert!(said.any(|said| said.contains("False of ")), "{protocol} with {fault:?} was never convicted");
}

/// Loads a broken protocol until the alarm rings and says what was found; fails if that takes a minute.
fn caught_under_load(alarm: Alarm, protocol: &'static str, fault: Fault) -> String {
    let name = format!("{protocol} with {fault:?}, {alarm:?}");
    let tests = std::env::current_exe().expect("the tests are a program");
    let child = std::process::Command::new(tests)
        .args(["--exact", "broken_protocol", "--ignored", "--nocapture"])
        .env(CHILD, format!("{protocol} {fault:?} {alarm:?}"))
        .output()
        .expect("the tests start themselves");
    let said = String::from_utf8_lossy(&child.stderr);
    let caught = said.lines().find(|line| line.starts_with("caught"));
    let said = match (child.status.success(), caught) {
        (_, Some(caught)) => caught.chars().take(300).collect(),
        (false, None) => format!("the process ended with {}", child.status),
        (true, None) => panic!("{name} passed: {said}"),
    };
    eprintln!("{name}: {said}");
    said
}

/// Says what a child is to break, and who is to notice.
const CHILD: &str = "SERIATIM_CANARY";

/// The child of `caught_under_load`: ends well only if the fault stays unnoticed for a minute.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn broken_protocol() {
    let Ok(canary) = std::env::var(CHILD) else { return };
    let [protocol, fault, alarm] = canary.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("what to break") };
    let alarm = Alarm::ALL.into_iter().find(|known| format!("{known:?}") == alarm).expect("a known alarm");
    let fault = Fault::ALL.into_iter().find(|known| format!("{known:?}") == fault).expect("a known fault");
    let protocols = seriatim::protocols().iter();
    let protocol = protocols.map(|known| known.name).find(|known| *known == protocol).expect("a known protocol");
    let seed = seed(&canary);
    let begin = clock::Instant::now();
    for round in 0.. {
        if let Err(found) = alarm.listen(&setting(protocol), fault, seed + round) {
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

#[test]
fn what_clients_see_of_skipped_validation_convicts_it() {
    for protocol in ["dbx", "silo"] {
        for shape in Shape::ALL {
            convicted_by_clients(shape, protocol, Fault::SkipValidation);
        }
    }
}

#[test]
fn what_clients_see_of_dropped_witnesses_convicts_them_in_every_protocol() {
    for protocol in seriatim::protocols() {
        convicted_by_clients(Shape::ListsInRows, protocol.name, Fault::DropWitness);
    }
}

#[test]
fn what_clients_see_of_reused_stamps_convicts_them() {
    convicted_by_clients(Shape::Registers, "dbx", Fault::ReuseStamp);
}

#[test]
fn what_clients_see_of_missing_and_late_subscription_convicts_it() {
    for fault in [Fault::NoSubscription, Fault::LateSubscription] {
        convicted_by_clients(Shape::Registers, "dbx", fault);
    }
}

#[test]
fn what_clients_see_of_early_publication_convicts_it() {
    convicted_by_clients(Shape::Registers, "dbx", Fault::PublishEarly);
}
