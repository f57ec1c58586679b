//! Support for the tests of workloads: load, run a few terminals under a protocol, run the check, corrupt the
//! data on purpose.

use crate::{Ending, Entry, Loading, Outcome, Report, Workload};
use seriatim::procedure::{plan, show};
use seriatim::{Abort, Builder, Database, Tx, thread};

/// The outcomes of the transactions of one kind, of all terminals together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) committed: u32,
    pub(crate) rolled_back: u32,
}

impl Tally {
    pub(crate) fn all(self) -> u32 {
        self.committed + self.rolled_back
    }
}

/// A database under a protocol, loaded by two threads.
pub(crate) fn loaded(protocol: &str, workload: &dyn Workload) -> Database {
    open_and_load(Database::builder().protocol(protocol), workload)
}

fn open_and_load(builder: Builder, workload: &dyn Workload) -> Database {
    let db = builder.open().expect("a database opens");
    workload.load(&db, &Loading { threads: 2, ..Loading::default() }).expect("loading succeeds");
    db
}

/// Runs terminals concurrently, none of whose transactions may fail. Returns a tally of each kind.
#[track_caller]
pub(crate) fn run(db: &Database, workload: &dyn Workload, terminals: u16, transactions: u32, seed: u64) -> Vec<Tally> {
    let protocol = db.protocol().name;
    println!("{protocol} seed {seed}");
    let work = |index| {
        let mut terminal = workload.terminal(db, index, seed).expect("the database is loaded");
        let (mut session, mut tallies) = (db.session(), vec![Tally::default(); workload.kinds().len()]);
        for _ in 0..transactions {
            let Outcome { kind, ending } = terminal.run_one(&mut session);
            match ending {
                Ending::Committed => tallies[kind].committed += 1,
                Ending::UserAborted => tallies[kind].rolled_back += 1,
                Ending::Failed(error) => panic!("{protocol}, {}: {error}", workload.kinds()[kind]),
            }
        }
        tallies
    };
    let mut sums = vec![Tally::default(); workload.kinds().len()];
    thread::scope(|scope| {
        let running: Vec<_> = (0..terminals).map(|index| scope.spawn(move || work(index))).collect();
        for tallies in running.into_iter().map(|terminal| terminal.join().expect("no panic")) {
            for (sum, tally) in sums.iter_mut().zip(tallies) {
                sum.committed += tally.committed;
                sum.rolled_back += tally.rolled_back;
            }
        }
    });
    sums
}

/// Runs a workload while every access is compared with the plan of its procedure, and checks the data.
#[track_caller]
pub(crate) fn assert_runs_as_planned(workload: &dyn Workload) {
    let db = open_and_load(Database::builder().check_plans(true), workload);
    run(&db, workload, 2, 300, 7);
    assert_consistent(&db, workload);
}

/// The check runs, checks every rule, and finds nothing.
#[track_caller]
pub(crate) fn assert_consistent(db: &Database, workload: &dyn Workload) {
    let report = report(db, workload);
    assert!(report.passed(), "{}: {report}", db.protocol().name);
    report.rules().for_each(|rule| assert!(report.checked(rule.clause) > 0, "{} is never asked", rule.clause));
}

/// Corrupts consistent data with `corrupt`, and requires that the check finds exactly `clauses` violated.
#[track_caller]
pub(crate) fn canary(
    db: &Database,
    workload: &dyn Workload,
    clauses: &[&str],
    corrupt: impl Fn(&Tx) -> Result<(), Abort>,
) {
    assert_consistent(db, workload);
    db.session().transact(|tx| corrupt(tx)).expect("the corruption commits, so it met its row");
    let report = report(db, workload);
    let violated: Vec<&str> = report.rules().map(|rule| rule.clause).filter(|rule| report.is_violated(rule)).collect();
    assert_eq!(violated, clauses, "{report}");
    assert!(report.violations().iter().all(|violation| violation.left != violation.right));
}

#[track_caller]
fn report(db: &Database, workload: &dyn Workload) -> Report {
    workload.consistency(db).expect("the check runs")
}

/// The plans of a workload's procedures and their set, as registering derives them.
pub(crate) struct Plans(Database);

impl Plans {
    /// The plans in a database loaded with the workload.
    pub(crate) fn of(workload: &dyn Workload) -> Plans {
        Plans(loaded("auto", workload))
    }

    /// A procedure's plan as text.
    pub(crate) fn plan(&self, procedure: &str) -> String {
        without_places(&self.0.plan(procedure).expect("it is registered").to_string())
    }

    /// The set cut into pieces, as text.
    pub(crate) fn chopping(&self, options: plan::Options) -> String {
        without_places(&show::text(&self.0.chopping(options).expect("the set can be chopped")))
    }
}

/// A text without the places in the source that it names, which change with every line.
fn without_places(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rsplit_once(" (") {
        Some((before, place)) if place.contains(".rs:") => before,
        _ => line,
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Opens a workload with these knobs; or says what is wrong with them.
pub(crate) fn open(entry: &Entry, knobs: &[(&str, &str)]) -> Result<(), String> {
    let mut values = entry.values(1);
    knobs.iter().for_each(|(name, value)| values.set(name, value).expect("a knob of this workload"));
    (entry.open)(&values).map(|_| ()).map_err(|misuse| misuse.to_string())
}
