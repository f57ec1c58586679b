//! Canaries: deliberately broken variants of the protocols, built only in tests, each of which the suite must
//! catch. An alarm that stays silent here would stay silent for a real fault.

use std::process::ExitStatus;
use std::time::Duration;

use seriatim::htm::HtmMode;
use seriatim::rng::seed;
use seriatim::{Database, Fault, Reason, thread};
use seriatim_suite::balances::{self, Judge, audit_balances};
use seriatim_suite::clients::{self, DataModel, Route, interrogate_declared, interrogate_with};
use seriatim_suite::explore::{Cell, Program, Spec, Tables, explore_with, follow};
use seriatim_suite::model::Observed;
use seriatim_suite::model::Op::{self, Change, Get, If, Insert, Put, RollbackTo, Savepoint, Scan};
use seriatim_suite::stress::{Load, stress_with};
use seriatim_suite::{Setting, given, patience};
use seriatim_workload::five_five::{self, FiveFive};
use seriatim_workload::multi_key::{self, MultiKey};
use seriatim_workload::smallbank::{self, SmallBank};
use seriatim_workload::tpcc::{self, Scale, Tpcc};
use seriatim_workload::twelve_key::{self, Rounds, TwelveKey};
use seriatim_workload::{Loading, Workload};

/// A protocol with its promises. A protocol that is not strict is not convicted for its order.
fn setting(protocol: &str) -> Setting {
    let (name, hot) = protocol.strip_suffix(HOT).map_or((protocol, false), |name| (name, true));
    let known = seriatim::protocols().iter().find(|known| known.name == name).expect("a known protocol");
    let given = given().filter(|&htm| htm != HtmMode::Absent);
    let setting = given.map_or_else(|| Setting::without_regions(known), |htm| Setting::new(known, htm));
    if hot { setting.all_hot().expect("it has hot records") } else { setting }
}

/// The suffix of the name of a protocol all of whose records are hot.
const HOT: &str = "/hot";
const HTCC_HOT: &str = "htcc/hot";

/// The names of all protocols, and of htcc with all records hot, which runs other code.
fn protocols() -> impl Iterator<Item = &'static str> {
    seriatim::protocols().iter().map(|known| known.name).chain([HTCC_HOT])
}

/// The check that watches a broken protocol under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alarm {
    /// The checker of recorded histories.
    Histories,
    /// The checker of what clients saw.
    Clients(DataModel),
    /// Both, of registered procedures.
    Procedures(Route),
    /// Sums that belong together, and are published in several steps.
    Balances(Judge),
}

impl Alarm {
    const ALL: [Alarm; 12] = [
        Alarm::Histories,
        Alarm::Clients(DataModel::Registers),
        Alarm::Clients(DataModel::Lists),
        Alarm::Clients(DataModel::ListsInRows),
        Alarm::Clients(DataModel::ListsInRuns),
        Alarm::Clients(DataModel::ListsInColumns),
        Alarm::Procedures(Route::Called),
        Alarm::Procedures(Route::InPieces),
        Alarm::Procedures(Route::Interpreted),
        Alarm::Procedures(Route::Batched),
        Alarm::Balances(Judge::Auditors),
        Alarm::Balances(Judge::Checker),
    ];

    /// Loads the broken protocol once.
    fn listen(self, setting: &Setting, fault: Fault, seed: u64) -> Result<(), String> {
        match self {
            Alarm::Histories => {
                let load = Load { threads: 3, transactions: 300, keys: 6, operations: 5 };
                stress_with(setting, &load, seed, |builder| builder.canary(fault), |_| ()).map(drop)
            }
            Alarm::Clients(data_model) => {
                let load = clients::Load { clients: 3, transactions: 300, keys: 5, steps: 5 };
                interrogate_with(setting, data_model, &load, seed, |builder| builder.canary(fault)).map(drop)
            }
            Alarm::Procedures(route) => {
                let load = clients::Load { clients: 3, transactions: 300, keys: 5, steps: 5 };
                let declared = (DataModel::Registers, route);
                interrogate_declared(setting, declared, &load, seed, |builder| builder.canary(fault)).map(drop)
            }
            Alarm::Balances(judge) => {
                let load = balances::Load { callers: 2, calls: 500, writes: false, squeezes: false, judge };
                audit_balances(setting, &load, seed, |builder| builder.canary(fault))
            }
        }
    }
}

/// How many findings are searched for a verdict, as other checks may notice the fault first.
const CAUGHT_MAX: usize = 100;

/// Loads a broken protocol until its history is refuted.
fn caught_by_histories(protocol: &'static str, fault: Fault) {
    caught_under_load(Alarm::Histories, protocol, fault);
}

/// Only a verdict convicts. A crash says nothing about the checker, so the run is repeated after a crash.
fn convicted_by_clients(data_model: DataModel, protocol: &'static str, fault: Fault) {
    let mut said = (0..CAUGHT_MAX).map(|_| caught_under_load(Alarm::Clients(data_model), protocol, fault));
    assert!(said.any(|said| said.contains("False of ")), "{protocol} with {fault:?} was never convicted");
}

/// Loads a broken protocol until the alarm rings, and says what was found. It has no limit: threads have to meet, which
/// they do rarely where the machine is busy.
fn caught_under_load(alarm: Alarm, protocol: &'static str, fault: Fault) -> String {
    caught_by("broken_protocol", &format!("{protocol} {fault:?} {alarm:?}"))
}

/// Runs a workload under a broken protocol until its check finds the rule of this clause violated. The rule compares
/// the data with what the terminals committed.
fn caught_by_workload(protocol: &'static str, fault: Fault, workload: &str, clause: &str) {
    caught_by("broken_workload", &format!("{protocol} {fault:?} {workload} {clause}"));
}

/// Runs one of the tests that are children, and says what was found. A broken protocol may also break memory,
/// so it runs in a process of its own, whose crash counts as noticed.
fn caught_by(test: &str, canary: &str) -> String {
    let tests = std::env::current_exe().expect("the tests are a program");
    let child = std::process::Command::new(tests)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(CHILD, canary)
        .output()
        .expect("the tests start themselves");
    let said = String::from_utf8_lossy(&child.stderr);
    let caught = said.lines().find(|line| line.starts_with("caught"));
    let said = match (child.status.success(), caught) {
        (_, Some(caught)) => caught.chars().take(300).collect(),
        (false, None) => format!("the process ended with {}", child.status),
        (true, None) => panic!("{canary} passed: {said}"),
    };
    eprintln!("{canary}: {said}");
    said
}

/// The variable that names the task of a child: protocol, fault, and the check that must notice it.
const CHILD: &str = "SERIATIM_CANARY";

/// The fault of a child and the check that must notice it, from [`CHILD`]; nothing if this process is no child.
fn broken() -> Option<(String, Setting, Fault)> {
    let canary = std::env::var(CHILD).ok()?;
    let [protocol, fault, notice] = canary.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("what to break") };
    let fault = Fault::ALL.into_iter().find(|known| format!("{known:?}") == fault).expect("a known fault");
    let of_deferral = [Fault::PublishDeferredLate, Fault::ForgetDeferred].contains(&fault);
    let setting = setting(protocol);
    let deferring = setting.that_defers().filter(|_| of_deferral);
    Some((notice.to_owned(), deferring.unwrap_or(setting), fault))
}

/// A child of `caught_under_load`: ends when the fault is noticed.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn broken_protocol() {
    let Some((alarm, setting, fault)) = broken() else { return };
    let alarm = Alarm::ALL.into_iter().find(|known| format!("{known:?}") == alarm).expect("a known alarm");
    let seed = seed(&format!("{setting:?} {fault:?} {alarm:?}"));
    for round in 0.. {
        if let Err(found) = alarm.listen(&setting, fault, seed + round) {
            eprintln!("caught in round {round}: {}", found.replace('\n', " "));
            std::process::exit(3);
        }
    }
}

/// A child of `caught_by_workload`: ends when the fault is noticed.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn broken_workload() {
    let Some((notice, setting, fault)) = broken() else { return };
    let (name, clause) = notice.split_once(' ').expect("a workload and a rule of its check");
    let seed = seed(&format!("{setting:?} {fault:?} {notice}"));
    loop {
        let workload: Box<dyn Workload> = match name {
            "smallbank" => Box::new(SmallBank::new(smallbank::Options::new(2, seed))),
            "twelve-key" => {
                let one_client = twelve_key::Options { clients: 1, multi: 100, ..twelve_key::Options::default() };
                Box::new(TwelveKey::new(twelve_key::Options { rounds: Rounds::Two, ..one_client }))
            }
            "tpcc" => Box::new(Tpcc::new(tpcc::Options::new(Scale::small(1), seed))),
            "five-five" => Box::new(FiveFive::new(five_five::Options { objects: 9, theta: 0.0 })),
            _ => Box::new(MultiKey::new(multi_key::Options { records: 10, theta: 0.0 })),
        };
        let db = setting.builder().canary(fault).open().expect("a database");
        workload.load(&db, &Loading::default()).expect("a load alone meets no other transaction");
        thread::scope(|scope| {
            let (db, workload) = (&db, &workload);
            for index in 0..3 {
                scope.spawn(move || {
                    let mut terminal = workload.terminal(db, index, seed).expect("loading made the tables");
                    let mut session = db.session();
                    (0..3000).for_each(|_| drop(terminal.run_one(&mut session)));
                });
            }
        });
        let report = workload.consistency(&db).expect("the check runs");
        if let Some(violation) = report.violations().iter().find(|violation| violation.rule.clause == clause) {
            eprintln!("caught: {violation}");
            std::process::exit(3);
        }
    }
}

/// Two transactions write two cells in opposite orders, and each has written its first before the other continues.
/// Returns how many waits ended by their bound and not by the holder's end.
fn crossed(builder: seriatim::Builder) -> u64 {
    let db = builder.workers(2).retry(patience()).open().expect("a database");
    let cells = db.create::<Cell>().expect("a valid table");
    let load = db.session().transact(|tx| (0..2).try_for_each(|id| tx.put(&cells, &Cell { id, value: 0 })));
    load.expect("it runs alone");
    let both_have_written = std::sync::Barrier::new(2);
    thread::scope(|scope| {
        let (db, cells, both_have_written) = (&db, &cells, &both_have_written);
        for keys in [[0, 1], [1, 0]] {
            scope.spawn(move || {
                let add = |cell: &mut <Cell as seriatim::Table>::Update<'_>| cell.set_value(cell.value() + 1);
                let result = db.session().transact(|tx| {
                    tx.update(cells, &keys[0], add)?;
                    if tx.attempt() == 1 {
                        both_have_written.wait();
                    }
                    tx.update(cells, &keys[1], add)
                });
                result.expect("attempts enough");
            });
        }
    });
    let aborts = db.statistics().aborts;
    aborts.iter().filter(|(cause, _)| cause.reason == Reason::WaitTimeout).map(|(_, count)| *count).sum()
}

#[test]
fn a_younger_transaction_that_waits_for_an_older_deadlocks() {
    for protocol in seriatim::available_protocols() {
        // As long as possible: the awaited thread may not run for a while.
        let mut patient = Database::builder().protocol(protocol.name);
        for knob in protocol.options.iter().filter(|knob| ["wait_max_us", "commit_wait_us"].contains(&knob.name)) {
            patient = patient.protocol_option(knob.name, knob.max.min(60_000_000));
        }
        assert_eq!(crossed(patient), 0, "{}", protocol.name);
    }
    let broken = Database::builder().protocol("wait-die").protocol_option("wait_max_us", 50_000);
    assert!(crossed(broken.canary(Fault::YoungerWaits)) > 0, "nobody waited for somebody who waited");
}

/// Explores a specification that a sound protocol passes; the broken one must fail it.
fn caught_by_schedules(protocol: &'static str, fault: Fault, spec: &Spec) {
    explore_with(&setting(protocol), spec, |builder| builder).expect("the sound protocol passes");
    let found = explore_with(&setting(protocol), spec, |builder| builder.canary(fault));
    eprintln!("{protocol} with {fault:?}: {}", found.expect_err("every schedule of the broken protocol passed"));
}

fn write_skew() -> Spec {
    const BOTH: fn(&[Observed]) -> bool = |seen| seen[0].value() + seen[1].value() >= 2;
    let program = |op: &'static Op| Program::new([Get(1), Get(2), If(BOTH, op)]);
    const FIRST: Op = Put(1, |_| 0);
    const SECOND: Op = Put(2, |_| 0);
    Spec { initial: vec![(1, 1), (2, 1)], programs: vec![program(&FIRST), program(&SECOND)], tables: Tables::Any }
}

fn phantom() -> Spec {
    let program = |low, high, key| Program::new([Scan(low, high), Put(key, |seen| seen[0].value() + 1)]);
    Spec { initial: vec![], programs: vec![program(2, 4, 9), program(8, 9, 3)], tables: Tables::Ordered }
}

fn phantom_in_a_whole_table() -> Spec {
    Spec {
        initial: vec![(1, 1)],
        programs: vec![Program::new([Op::Count, Op::Insert(3, 1)]), Program::new([Op::All, Op::Insert(4, 1)])],
        tables: Tables::Hash,
    }
}

/// Write skew through an update that is rolled back.
fn rolled_back_update() -> Spec {
    let rollbacks = [Savepoint, Change(1, |_, value| value + 10), RollbackTo(0), Put(2, |seen| -seen[1].value())];
    let other = Program::new([Get(2), Change(1, |seen, _| seen[0].value() - 1)]);
    Spec { initial: vec![(1, 1), (2, 1)], programs: vec![Program::new(rollbacks), other], tables: Tables::Any }
}

/// Write skew through an insert that finds a duplicate, which is ignored: the absence of its own key was read.
fn ignored_duplicate() -> Spec {
    let ignores = [Insert(1, 3), Put(2, |seen| if matches!(seen[0], Observed::Duplicate(_)) { 20 } else { 30 })];
    let other = Program::new([Get(2), Insert(1, 10)]);
    Spec { initial: vec![(2, 2), (3, 3)], programs: vec![Program::new(ignores), other], tables: Tables::Unique }
}

/// A run that is read again after another transaction inserted into it.
fn grown_run() -> Spec {
    let (reader, other) = (Program::new([Scan(0, 7), Scan(0, 7)]), Program::new([Insert(5, 1)]));
    Spec { initial: vec![(1, 1)], programs: vec![reader, other], tables: Tables::Ordered }
}

#[test]
fn runs_that_grow_under_their_readers_are_caught_by_schedules() {
    for protocol in protocols() {
        caught_by_schedules(protocol, Fault::GrowSharedRuns, &grown_run());
    }
}

#[test]
fn rollbacks_that_forget_are_caught_by_schedules_and_histories() {
    for protocol in ["dbx", "silo", "tictoc", "htcc", "occ", "occ-batch", "cicada"] {
        caught_by_schedules(protocol, Fault::ForgetRolledBack, &rolled_back_update());
        caught_by_schedules(protocol, Fault::ForgetRolledBack, &ignored_duplicate());
        caught_by_histories(protocol, Fault::ForgetRolledBack);
    }
    // Locks outlast a rollback; an absence is noted where nothing is locked.
    caught_by_schedules(HTCC_HOT, Fault::ForgetRolledBack, &ignored_duplicate());
}

#[test]
fn rollbacks_that_forget_reads_are_detected_from_answers_to_clients() {
    for protocol in ["dbx", "silo", "htcc"] {
        for data_model in [DataModel::Registers, DataModel::Lists] {
            convicted_by_clients(data_model, protocol, Fault::ForgetRolledBack);
        }
    }
}

#[test]
fn skipped_validation_is_caught_by_schedules_and_histories() {
    for protocol in ["dbx", "silo", "tictoc", "htcc", "occ", "cicada"] {
        caught_by_schedules(protocol, Fault::SkipValidation, &write_skew());
        caught_by_histories(protocol, Fault::SkipValidation);
    }
    // An absent record is not hot, and has no timestamps.
    for protocol in [HTCC_HOT, "hto"] {
        caught_by_schedules(protocol, Fault::SkipValidation, &phantom());
        caught_by_histories(protocol, Fault::SkipValidation);
    }
}

#[test]
fn snapshots_that_are_not_whole_are_caught_by_balances_and_by_their_histories() {
    for fault in [Fault::SnapshotAmidWindows, Fault::UnwholeSnapshot] {
        for (judge, verdict) in [(Judge::Auditors, "its accounts"), (Judge::Checker, " (G")] {
            let mut said = (0..CAUGHT_MAX).map(|_| caught_under_load(Alarm::Balances(judge), "dbx-tc", fault));
            assert!(said.any(|said| said.contains(verdict)), "{judge:?} did not notice {fault:?}");
        }
    }
}

#[test]
fn chains_of_which_others_see_half_are_caught_by_balances_and_by_their_histories() {
    // Only a verdict convicts.
    for (judge, verdict) in [(Judge::Auditors, "its accounts"), (Judge::Checker, " (G")] {
        let mut said = (0..CAUGHT_MAX).map(|_| caught_under_load(Alarm::Balances(judge), "dbx-tc", Fault::NoWindows));
        assert!(said.any(|said| said.contains(verdict)), "{judge:?} did not notice");
    }
}

#[test]
fn additions_published_late_or_in_part_are_caught_by_balances() {
    for fault in [Fault::PublishDeferredLate, Fault::ForgetDeferred] {
        let mut said = (0..CAUGHT_MAX).map(|_| caught_under_load(Alarm::Balances(Judge::Auditors), "dbx-tc", fault));
        let is_verdict = |said: String| said.contains("its accounts") || said.contains(" is not ");
        assert!(said.any(is_verdict), "nobody noticed {fault:?}");
    }
    let mut said = (0..CAUGHT_MAX)
        .map(|_| caught_under_load(Alarm::Balances(Judge::Checker), "dbx-tc", Fault::PublishDeferredLate));
    assert!(said.any(|said| said.contains(" (G")), "its histories are serializable");
}

/// Whole execution validates nothing.
#[test]
fn whole_procedures_that_do_not_share_a_lock_are_detected_from_answers_to_clients() {
    let alarm = Alarm::Procedures(Route::Called);
    let mut said = (0..CAUGHT_MAX).map(|_| caught_under_load(alarm, "naive", Fault::UnsharedLock));
    assert!(said.any(|said| said.contains("False of ")), "it was never convicted");
}

/// A transaction that owns its partitions validates nothing.
#[test]
fn partitions_with_several_owners_are_detected_from_answers_to_clients() {
    let alarm = Alarm::Procedures(Route::Called);
    for fault in [Fault::UnsharedLock, Fault::FewPartitions] {
        let mut said = (0..CAUGHT_MAX).map(|_| caught_under_load(alarm, "partitioned", fault));
        assert!(said.any(|said| said.contains("False of ")), "{fault:?} was never convicted");
    }
}

/// An owner of a partition reads a row twice, and another transaction commits in between.
#[test]
fn commits_in_partitions_of_others_are_seen_by_their_owners() {
    for (fault, expected) in [(Fault::None, [1, 1]), (Fault::CommitUnowned, [1, 2])] {
        let builder = Database::builder().partitions(2).canary(fault).protocol_option("commit_wait_us", 0);
        let builder = builder.retry(seriatim::RetryPolicy { attempts_max: 1, ..seriatim::RetryPolicy::default() });
        let db = builder.open().expect("a database");
        let cells = db.create::<Cell>().expect("a table");
        let (mut owner, mut other) = (db.session(), db.session());
        owner.transact(|tx| tx.insert(&cells, &Cell { id: 1, value: 1 })).expect("it runs alone");
        let seen = owner.at(1).transact(|tx| {
            let read = || tx.require(&cells, &1).map(|cell| cell.value());
            let first = read()?;
            let committed = other.transact(|tx| tx.update(&cells, &1, |cell| cell.set_value(2)));
            assert_eq!(committed.is_ok(), fault != Fault::None, "{committed:?}");
            Ok([first, read()?])
        });
        assert_eq!(seen.expect("it owns them").into_value(), expected, "{fault:?}");
    }
}

#[test]
fn hot_records_read_without_a_lock_are_caught_by_schedules_and_histories() {
    caught_by_schedules(HTCC_HOT, Fault::ReadHotUnlocked, &write_skew());
    caught_by_histories(HTCC_HOT, Fault::ReadHotUnlocked);
}

#[test]
fn write_timestamps_below_those_of_readers_are_caught_by_schedules_and_histories() {
    for protocol in ["hto", "cicada"] {
        caught_by_schedules(protocol, Fault::OverwriteReaders, &write_skew());
        caught_by_histories(protocol, Fault::OverwriteReaders);
    }
}

#[test]
fn hot_records_read_without_a_lock_are_detected_from_answers_to_clients() {
    // Rows that are never changed reveal nothing.
    for data_model in [DataModel::Registers, DataModel::Lists, DataModel::ListsInColumns] {
        convicted_by_clients(data_model, HTCC_HOT, Fault::ReadHotUnlocked);
    }
}

#[test]
fn commits_rebased_regardless_of_changes_are_caught_by_clients_and_sums() {
    for protocol in ["dbx", "silo", "htcc"] {
        convicted_by_clients(DataModel::ListsInColumns, protocol, Fault::RebaseRegardless);
        caught_by_workload(protocol, Fault::RebaseRegardless, "tpcc", "3.3.2.1");
    }
}

#[test]
fn updates_lost_are_caught_by_the_checks_of_workloads() {
    for protocol in ["dbx", "silo"] {
        for (workload, clause) in [("smallbank", "total"), ("twelve-key", "own"), ("five-five", "steps")] {
            caught_by_workload(protocol, Fault::SkipValidation, workload, clause);
        }
    }
    // Its updates read what they lock, so they are only lost where locks are not looked at.
    caught_by_workload("dbx", Fault::NoSubscription, "multi-key", "updates");
}

#[test]
fn dropped_node_versions_are_caught_in_every_protocol() {
    for protocol in protocols() {
        caught_by_schedules(protocol, Fault::DropNodeVersion, &phantom());
        caught_by_schedules(protocol, Fault::DropNodeVersion, &phantom_in_a_whole_table());
    }
    caught_by_histories("dbx", Fault::DropNodeVersion);
}

#[test]
fn an_epoch_read_at_begin_is_caught_in_every_protocol() {
    for protocol in protocols() {
        let setting = setting(protocol);
        let broken = |builder: seriatim::Builder| builder.canary(Fault::EpochAtBegin);
        let assigned = seriatim_suite::epochs::belong_to_their_commits(&setting, broken).expect_err("the TIDs tell");
        eprintln!("{setting}: {assigned}");
        let audited = seriatim_suite::epochs::follow_what_was_read(&setting, broken);
        // Whatever epoch it read, its TIDs lie above those of the readers of what it overwrites.
        if seriatim::protocols().iter().any(|known| known.name == protocol && known.capabilities.tid_order) {
            assert!(audited.is_ok(), "{audited:?}");
            continue;
        }
        eprintln!("{setting}: {}", audited.expect_err("the auditor notices"));
    }
}

/// Runs a test in a process of its own, which a panic with all of these words must end. Returns how it ended.
fn ended_by_panic(test: &str, protocol: &str, fault: Fault, wanted: &[&str]) -> ExitStatus {
    let tests = std::env::current_exe().expect("the tests are a program");
    let canary = format!("{protocol} {fault:?} -");
    let child = std::process::Command::new(tests)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(CHILD, &canary)
        .output()
        .expect("the tests start themselves");
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success(), "{canary}: {}: {said}", child.status);
    for wanted in wanted {
        assert!(said.contains(wanted), "{canary}: it says {wanted:?}: {said}");
    }
    child.status
}

/// A panic in the middle of a commit would leave records locked for ever, so the process ends and says why.
#[test]
fn a_panic_during_a_commit_aborts_the_process_in_every_protocol() {
    for protocol in protocols() {
        let wanted = ["a deliberate panic with locks held", "a panic during a commit", "is aborted"];
        let status = ended_by_panic("panic_amid_a_commit", protocol, Fault::PanicInCommit, &wanted);
        assert_eq!(status.code(), None, "{protocol}: a signal ends it");
    }
}

/// A child of the test above: ends well if the panic can be caught.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn panic_amid_a_commit() {
    let Some((_, setting, fault)) = broken() else { return };
    let db = setting.builder().canary(fault).open().expect("a database");
    let cells = db.create::<Cell>().expect("a table");
    let insert = || db.session().transact(|tx| tx.insert(&cells, &Cell { id: 1, value: 1 })).map(drop);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(insert));
    eprintln!("it went on: {}", caught.is_err());
}

/// A reaper that does not check whether a transaction is in a call ends it during the call.
#[test]
fn a_transaction_ended_in_a_call_is_noticed_in_every_protocol() {
    for protocol in protocols() {
        ended_by_panic("ended_in_a_call", protocol, Fault::ReapInCall, &["was ended in the middle of a call"]);
    }
}

/// A child of the test above: it succeeds if the fault is not noticed.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn ended_in_a_call() {
    let Some((_, setting, fault)) = broken() else { return };
    let aged = setting.builder().step_helpers(true).transaction_age_max(Duration::from_millis(50));
    let db = aged.canary(fault).open().expect("a database");
    let cells = db.create::<Cell>().expect("a table");
    let mut session = db.session();
    session.transact(|tx| tx.insert(&cells, &Cell { id: 1, value: 1 })).expect("alone");
    let tx = session.begin().expect("a worker");
    drop(tx.update_if(&cells, &1, |_| (0..30).for_each(|_| db.step())));
}

#[test]
fn reused_tids_are_caught() {
    caught_by_histories("dbx", Fault::ReuseTid);
    caught_by_histories("htcc", Fault::ReuseTid);
}

#[test]
fn missing_subscription_is_caught() {
    caught_by_histories("dbx", Fault::NoSubscription);
    caught_by_histories("htcc", Fault::NoSubscription);
}

/// A validator's mistakes are caught by `batches`: a decision validates.
#[test]
fn decisions_that_are_made_twice_are_caught() {
    caught_by_histories("occ-batch", Fault::DecideTwice);
}

#[test]
fn late_subscription_is_caught() {
    caught_by_histories("dbx", Fault::LateSubscription);
    caught_by_histories("htcc", Fault::LateSubscription);
}

#[test]
fn early_publication_is_caught() {
    caught_by_histories("dbx", Fault::PublishEarly);
    caught_by_histories("htcc", Fault::PublishEarly);
}

#[test]
fn an_extension_of_what_was_overwritten_is_caught_by_schedules_and_histories() {
    caught_by_schedules("tictoc", Fault::ExtendOverwritten, &write_skew());
    caught_by_histories("tictoc", Fault::ExtendOverwritten);
}

/// The fourth reads X, which the first has made valid for longer. The second overwrites X and ends. The third begins,
/// reads Y and ends, and the fourth overwrites Y. It may come before the second, and so the third before both. Then the
/// order is not that of real time.
fn overwritten_in_the_past() -> (Spec, [usize; 11]) {
    // In separate runs.
    const OTHER: u32 = 1;
    const X: u32 = 9;
    const Y: u32 = 17;
    const ONE_MORE: fn(&[Observed], i64) -> i64 = |_, value| value + 1;
    let first = Program::new([Get(X), Change(OTHER, ONE_MORE)]);
    let (second, third) = (Program::new([Change(X, ONE_MORE)]), Program::new([Get(Y)]));
    // It takes its worker before the first, so that they differ.
    let fourth = Program::new([Get(Y), Get(X), Change(Y, ONE_MORE)]);
    let initial = vec![(OTHER, 0), (X, 0), (Y, 0)];
    let programs = vec![first, second, third, fourth];
    (Spec { initial, programs, tables: Tables::Any }, [3, 0, 0, 0, 3, 1, 1, 2, 2, 3, 3])
}

#[test]
fn an_order_that_is_not_that_of_time_is_caught_where_it_is_promised() {
    let (spec, schedule) = overwritten_in_the_past();
    let serializable = |protocol| Setting { strict: false, ..Setting::without_regions(protocol) };
    for protocol in seriatim::protocols() {
        let any_order = serializable(protocol);
        let in_time = Setting { strict: true, ..any_order.clone() };
        let committed = follow(&any_order, &spec, &schedule).expect("it is serializable");
        let judged = follow(&in_time, &spec, &schedule);
        if protocol.capabilities.strict {
            assert_eq!(judged, Ok(false), "{}: two of them are in each other's way", protocol.name);
            continue;
        }
        assert!(committed, "{}: all commit", protocol.name);
        let found = judged.expect_err("the third began when the second had ended");
        eprintln!("{in_time}: {found}");
    }
}

#[test]
fn skipped_validation_is_detected_from_answers_to_clients() {
    for protocol in ["dbx", "silo", "htcc"] {
        for data_model in DataModel::ALL {
            convicted_by_clients(data_model, protocol, Fault::SkipValidation);
        }
    }
}

#[test]
fn dropped_node_versions_are_detected_from_answers_to_clients_in_every_protocol() {
    for protocol in protocols() {
        convicted_by_clients(DataModel::ListsInRows, protocol, Fault::DropNodeVersion);
    }
}

#[test]
fn reused_tids_are_detected_from_answers_to_clients() {
    convicted_by_clients(DataModel::Registers, "dbx", Fault::ReuseTid);
}

#[test]
fn missing_and_late_subscription_is_detected_from_answers_to_clients() {
    for fault in [Fault::NoSubscription, Fault::LateSubscription] {
        convicted_by_clients(DataModel::Registers, "dbx", fault);
    }
}

#[test]
fn early_publication_is_detected_from_answers_to_clients() {
    convicted_by_clients(DataModel::Registers, "dbx", Fault::PublishEarly);
}

#[test]
fn skipped_validation_of_procedures_is_caught_however_they_run() {
    for route in Route::ALL {
        caught_under_load(Alarm::Procedures(route), "dbx", Fault::SkipValidation);
        caught_under_load(Alarm::Procedures(route), "silo", Fault::SkipValidation);
    }
}
