//! Every workload in a database on disk: many results outstanding, closed, recovered, recognized by its
//! tables, declared again.

use std::collections::VecDeque;

use seriatim::Database;
use seriatim_workload::{Ending, Entry, Loading, Submitted, WORKLOADS, Workload};

/// A small size of a workload.
fn small(entry: &Entry) -> Box<dyn Workload> {
    let knob = match entry.name {
        "tpcc" => ("scale", "small"),
        "ycsb" | "multi-key" => ("records", "500"),
        "smallbank" => ("accounts", "300"),
        "tatp" => ("subscribers", "200"),
        "articles" => ("articles", "50"),
        "twelve-key" => ("clients", "3"),
        "five-five" => ("objects", "100"),
        name => panic!("{name} has no small size here"),
    };
    let mut values = entry.values(7);
    values.set(knob.0, knob.1).expect("a knob of this workload");
    (entry.open)(&values).unwrap_or_else(|misuse| panic!("{}: {misuse}", entry.name))
}

/// Most results outstanding at a time.
const OUTSTANDING: usize = 100;

fn run(db: &Database, workload: &dyn Workload, transactions: usize) {
    let mut terminal = workload.terminal(db, 0, 7).expect("it is loaded");
    let (mut session, mut outstanding) = (db.session(), VecDeque::<Submitted>::new());
    let end = |submitted: Submitted| match submitted.wait().ending {
        Ending::Committed | Ending::UserAborted => {}
        Ending::Failed(error) => panic!("{}: {error}", workload.name()),
    };
    for _ in 0..transactions {
        if outstanding.len() == OUTSTANDING {
            outstanding.pop_front().map(end);
        }
        outstanding.push_back(terminal.submit_one(&mut session));
    }
    outstanding.into_iter().for_each(end);
}

#[test]
fn a_recovered_database_is_recognized_consistent_and_usable() {
    for entry in WORKLOADS {
        let home = std::env::temp_dir().join(format!("seriatim-recovered-{}-{}", entry.name, std::process::id()));
        let _ = std::fs::remove_dir_all(&home);
        let options = || Database::builder().path(&home).segment_bytes(1 << 20);
        let workload = small(entry);
        {
            let db = options().open().expect("the database opens");
            workload.load(&db, &Loading::default()).expect("loading succeeds");
            run(&db, workload.as_ref(), 500);
            let report = workload.consistency(&db).expect("the check runs");
            assert!(report.passed(), "{}: {report}", entry.name);
        }
        let db = options().open().expect("it recovers");
        let checked = db.check_indexes().expect("indexes agree with their tables");
        let sizes = |name: &str| checked.iter().find(|table| table.name == name).map_or(0, |table| table.rows);
        let recognized = Entry::recognize(&db, &sizes);
        let names: Vec<&str> = recognized.iter().map(|workload| workload.name()).collect();
        assert_eq!(names, [entry.name]);
        let report = recognized[0].audit(&db).expect("the check runs");
        assert!(report.passed() && report.rules().all(|rule| report.checked(rule.clause) > 0), "{report}");
        // TPC-C has no ledgers except its tables, and its terminals continue where they were.
        if entry.name == "tpcc" {
            workload.declare(&db).expect("its tables are there");
            run(&db, workload.as_ref(), 200);
            let report = workload.consistency(&db).expect("the check runs");
            assert!(report.passed(), "{report}");
        }
        drop(db);
        let _ = std::fs::remove_dir_all(&home);
    }
}
