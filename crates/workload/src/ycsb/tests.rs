//! Every mix keeps its counters and values whole; the check notices a lost write, a lost row and a torn value.

use super::chooser::Distribution;
use super::table::HashOne;
use super::*;
use crate::{Ending, Outcome};
use seriatim::{Text, protocols, thread};

const SEED: u64 = 31_337;

fn small(options: Options) -> Options {
    Options { records: 300, ..options }
}

fn run(protocol: &str, options: Options, terminals: u16, transactions: u32) -> (Database, Ycsb, Vec<u32>) {
    println!("{protocol} seed {SEED}");
    let db = Database::builder().protocol(protocol).open().expect("a database opens");
    let workload = Ycsb::new(options);
    workload.load(&db, &Loading { threads: 2, ..Loading::default() }).expect("loading succeeds");
    let work = |index| {
        let mut terminal = workload.terminal(&db, index, SEED).expect("the database is loaded");
        let (mut session, mut kinds) = (db.session(), vec![0; workload.kinds().len()]);
        for _ in 0..transactions {
            let Outcome { kind, ending } = terminal.run_one(&mut session);
            assert!(matches!(ending, Ending::Committed), "{ending:?}");
            kinds[kind] += 1;
        }
        kinds
    };
    let kinds = thread::scope(|scope| {
        let running: Vec<_> = (0..terminals).map(|index| scope.spawn(move || work(index))).collect();
        let all: Vec<Vec<u32>> = running.into_iter().map(|terminal| terminal.join().expect("no panic")).collect();
        (0..all[0].len()).map(|kind| all.iter().map(|kinds| kinds[kind]).sum()).collect()
    });
    (db, workload, kinds)
}

#[track_caller]
fn assert_consistent(db: &Database, workload: &Ycsb) {
    let report = workload.consistency(db).expect("the check runs");
    assert!(report.passed(), "{report}");
    ["writes", "rows", "values"].iter().for_each(|clause| assert!(report.checked(clause) > 0));
}

#[test]
fn core_workloads_run_their_mixes_and_stay_whole() {
    for (core, expected) in [
        (Core::A, [50, 50, 0, 0, 0]),
        (Core::B, [95, 5, 0, 0, 0]),
        (Core::C, [100, 0, 0, 0, 0]),
        (Core::D, [95, 0, 5, 0, 0]),
        (Core::E, [0, 0, 5, 95, 0]),
        (Core::F, [50, 0, 0, 0, 50]),
    ] {
        for protocol in protocols() {
            let (db, workload, kinds) = run(protocol.name, small(Options::core(core, 300, SEED)), 2, 2000);
            for (kind, percent) in kinds.iter().zip(expected) {
                let share = f64::from(*kind) / 40.0;
                assert!((share - f64::from(percent)).abs() < 4.0, "core {core:?}: {kinds:?}");
            }
            assert_consistent(&db, &workload);
        }
    }
}

#[test]
fn transactions_of_many_operations_stay_whole_under_contention_in_every_shape() {
    let shares = Shares { read: 40, read_modify_write: 30, ..Shares::default() };
    let free = Options { ops: 8, shares, distribution: Distribution::Zipfian, ..Options::core(Core::A, 50, SEED) };
    for (value_bytes, is_ordered) in [(100, false), (100, true), (1000, false), (1000, true)] {
        for protocol in protocols() {
            let (db, workload, kinds) = run(protocol.name, Options { value_bytes, is_ordered, ..free }, 3, 300);
            assert_eq!(kinds.len(), 2);
            assert_eq!(kinds.iter().sum::<u32>(), 900);
            assert_consistent(&db, &workload);
        }
    }
}

#[test]
fn the_check_notices_a_lost_write_a_lost_row_and_a_torn_value() {
    let options = Options { value_bytes: 100, ..small(Options::core(Core::A, 300, SEED)) };
    let canary = |clause: &str, corrupt: fn(&mut <HashOne as seriatim::Table>::Update<'_>)| {
        let (db, workload, _) = run("auto", options, 1, 50);
        let table = db.table::<HashOne>().expect("the table is there");
        db.session().transact(|tx| tx.update(&table, &17, corrupt)).expect("the corruption commits");
        let report = workload.consistency(&db).expect("the check runs");
        let violated: Vec<&str> =
            ["writes", "rows", "values"].into_iter().filter(|clause| report.is_violated(clause)).collect();
        assert_eq!(violated, [clause], "{report}");
    };
    canary("writes", |row| row.set_writes(row.writes() + 1));
    canary("values", |row| {
        let torn = format!("{}{}", "a".repeat(50), "b".repeat(50));
        row.set_field0(&Text::truncated(&torn));
    });
    let (db, workload, _) = run("auto", Options { shares: Core::C.shares(), ..options }, 1, 50);
    let table = db.table::<HashOne>().expect("the table is there");
    db.session().transact(|tx| tx.delete(&table, &17)).expect("the corruption commits");
    let report = workload.consistency(&db).expect("the check runs");
    assert!(report.is_violated("rows") && !report.is_violated("writes"), "{report}");
}

#[test]
fn knobs_that_contradict_each_other_are_refused_with_the_reason() {
    let open = |knobs: &[(&str, &str)]| {
        let mut values = ENTRY.values(1);
        knobs.iter().for_each(|(name, value)| values.set(name, value).expect("a knob of this workload"));
        (ENTRY.open)(&values).map(|_| ()).map_err(|misuse| misuse.to_string())
    };
    assert_eq!(open(&[("core", "e")]), Ok(()));
    assert_eq!(open(&[("reads", "80"), ("rmw", "20"), ("theta", "0"), ("keys", "zipfian")]), Ok(()));
    for (knobs, wants) in [
        (&[("core", "G")][..], "A to F"),
        (&[("core", "A"), ("reads", "80")], "left out with --core"),
        (&[("core", "E"), ("index", "hash")], "ordered"),
        (&[("reads", "80"), ("rmw", "30")], "from 0 to 20"),
        (&[("theta", "1")], "below 1"),
        (&[("value-bytes", "1001")], "1000"),
        (&[("ops", "0")], "from 1"),
    ] {
        let misuse = open(knobs).expect_err("these cannot be");
        assert!(misuse.contains(wants), "{misuse}");
    }
}
