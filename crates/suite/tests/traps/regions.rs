//! Fallback locks, forced back ends, and what regions that abort all the time may change: nothing but the speed.

use seriatim::htm::{Backend, Budget, Emulation, HtmMode, detect};
use seriatim::rng::seed;
use seriatim::{Abort, Database, OpenError, Rng, Table, Tid, Tx, protocols, thread};
use seriatim_suite::explore::{BucketCell, Cell};
use seriatim_suite::stress::{Load, stress_with};
use seriatim_suite::{Setting, matrix};

fn emulated(seed: u64, abort_one_in: u32) -> HtmMode {
    HtmMode::Emulated(Emulation { seed, abort_one_in, yields: true })
}

fn settings(htm: HtmMode) -> impl Iterator<Item = Setting> {
    Setting::each_of(protocols(), htm)
}

/// From regions that all abort to some that do, with budgets from none to the default.
#[test]
fn histories_hold_however_often_regions_abort() {
    let seed = seed("region aborts");
    for abort_one_in in [1, 2, 3, 8] {
        for (name, budget) in [
            ("tiny", Budget::ONE),
            ("small", Budget { conflict: 3, divided: true, capacity: 2, system: 2, explicit: 3 }),
        ] {
            let mut fallbacks = 0;
            for setting in settings(emulated(seed, abort_one_in)) {
                let load = Load { threads: 3, transactions: 60, keys: 8, operations: 6 };
                let stressed = stress_with(&setting, &load, seed, |builder| builder.region_budget(budget), |_| ());
                let regions = stressed.unwrap_or_else(|fault| panic!("1 in {abort_one_in}: {fault}")).regions;
                let ended = regions.committed + regions.aborted.total();
                assert_eq!(regions.started, ended, "{setting}: every region ends, {regions:?}");
                assert_eq!(regions.begun_while_locked, 0, "{setting}: {regions:?}");
                assert!(abort_one_in > 1 || regions.committed == 0, "{setting}: all abort, {regions:?}");
                assert!(regions.started == 0 || regions.aborted.total() > 0, "{setting}: {regions:?}");
                fallbacks += regions.fallback;
            }
            assert!(fallbacks > 0, "1 in {abort_one_in}, {name} budget: nobody fell back");
        }
    }
}

/// No region begins while the fallback lock is held, however many threads want it.
#[test]
fn no_region_begins_under_a_held_lock() {
    let seed = seed("lemmings");
    let mut started = 0;
    for abort_one_in in [2, 8] {
        for setting in settings(emulated(seed, abort_one_in)) {
            let db = setting
                .builder()
                .workers(4)
                .retry(setting.patience())
                .region_budget(Budget::ONE)
                .open()
                .expect("a database");
            let (cells, buckets) = (db.create::<Cell>().expect("a table"), db.create::<BucketCell>().expect("a table"));
            thread::scope(|scope| {
                for at in 0..3u32 {
                    let (db, cells, buckets) = (&db, &cells, &buckets);
                    scope.spawn(move || {
                        let mut session = db.session();
                        for round in 0..150 {
                            // Inserts of new keys: the hash table's regions share a fallback lock.
                            let id = 1000 * at + round;
                            let body = |tx: &Tx| {
                                tx.insert(buckets, &BucketCell { id, value: 0 })?;
                                tx.put(cells, &Cell { id: round % 4, value: 0 })?;
                                tx.delete_if(buckets, &id.wrapping_sub(2)).map(drop)
                            };
                            session.transact(body).expect("attempts enough");
                        }
                    });
                }
            });
            let regions = db.statistics().regions;
            assert_eq!(regions.begun_while_locked, 0, "{setting}: {regions:?}");
            assert_eq!(regions.started, regions.committed + regions.aborted.total(), "{setting}: {regions:?}");
            assert!(regions.started == 0 || regions.fallback > 0, "{setting}: {regions:?}");
            started += regions.started;
        }
    }
    assert!(started > 1000, "only {started} regions began");
}

/// A row with everything that is stored apart: immutable columns, long text, indexes.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "thing", key(id))]
#[table(index(name = "by_color", columns(color), ordered))]
#[table(index(name = "by_name", columns(name), hash, unique))]
struct Thing {
    id: u32,
    #[column(immutable)]
    name: u64,
    color: u16,
    text: String,
}

/// The reads of one thread's program, with the TIDs of its commits.
#[derive(Debug, PartialEq)]
struct Outcome {
    seen: Vec<Option<u64>>,
    tids: Vec<Tid>,
    rows: Vec<Thing>,
}

fn program(db: &Database, seed: u64) -> Outcome {
    let things = db.create::<Thing>().expect("a table");
    let (by_color, by_name) = (things.index(Thing::BY_COLOR), things.index(Thing::BY_NAME));
    let mut rng = Rng::from_seed(seed);
    let (mut seen, mut tids) = (Vec::new(), Vec::new());
    let mut session = db.session();
    for round in 0..150u64 {
        let draws = rng.next_u64();
        let body = |tx: &Tx| -> Result<Vec<Option<u64>>, Abort> {
            let mut rng = Rng::from_seed(draws);
            let mut seen = Vec::new();
            for step in 0..rng.range(1, 8) {
                let id = rng.below(60) as u32;
                let thing = Thing {
                    id,
                    name: round << 8 | step,
                    color: rng.below(5) as u16,
                    text: "t".repeat(rng.below(300) as usize),
                };
                seen.push(match rng.below(8) {
                    0..3 => Some(u64::from(tx.try_insert(&things, &thing)?)),
                    3 => Some(u64::from(tx.delete_if(&things, &id)?.is_ok())),
                    4 => tx.put(&things, &thing).map(|()| None)?,
                    5 => tx
                        .update_if(&things, &id, |row| {
                            row.set_color(thing.color);
                            row.set_text(&thing.text).expect("no memory limit");
                            u64::from(thing.color)
                        })?
                        .ok(),
                    6 => Some(tx.find_by(&by_color, &thing.color).count() as u64),
                    _ => tx.get_by(&by_name, &(round << 8))?.map(|row| u64::from(row.id())),
                });
            }
            Ok(seen)
        };
        let done = session.transact(body).expect("alone");
        tids.push(done.receipt.tid);
        seen.extend(done.into_value());
        if rng.below(3) == 0 {
            db.step();
        }
    }
    let rows = session.transact(|tx| -> Result<Vec<Thing>, Abort> {
        let own = |row: <Thing as Table>::Row<'_>| Thing {
            id: row.id(),
            name: row.name(),
            color: row.color(),
            text: row.text().to_owned(),
        };
        tx.scan(&things, ..).map(|row| row.map(own)).collect()
    });
    db.check_structure().expect("sound");
    Outcome { seen, tids, rows: rows.expect("alone").into_value() }
}

/// Whatever back end was forced, the same program has the same outcome, to the last TID.
#[test]
fn forced_modes_give_the_same_results() {
    let seed = seed("forced modes");
    let modes = [HtmMode::Absent, HtmMode::Auto, emulated(seed, 0), emulated(seed, 1), emulated(seed, 3)];
    let modes = modes.into_iter().chain(detect().probe_commits.then_some(HtmMode::Rtm));
    let mut outcomes: Vec<(Setting, Outcome)> = Vec::new();
    for setting in modes.flat_map(settings) {
        for budget in [Budget::default(), Budget::ONE] {
            let builder = setting.builder().step_helpers(true).workers(2).region_budget(budget);
            let db = builder.open().unwrap_or_else(|error| panic!("{setting}: {error}"));
            let outcome = program(&db, seed);
            if let Some((first, expected)) = outcomes.first() {
                assert_eq!(expected.seen, outcome.seen, "{first} and {setting} saw different things");
                assert!(expected.rows == outcome.rows, "{first} and {setting} ended with different rows");
            }
            let same = outcomes.iter().find(|(other, _)| other.protocol == setting.protocol);
            if let Some((first, expected)) = same {
                assert_eq!(expected.tids, outcome.tids, "{first} and {setting} got different TIDs");
            }
            outcomes.push((setting.clone(), outcome));
        }
    }
}

/// A back end that does not work here is refused, with the reason; `auto` takes one that does.
#[test]
fn a_mode_that_does_not_work_is_refused_with_the_reason() {
    let forced = Database::builder().htm(HtmMode::Rtm).open();
    match (detect().probe_commits, forced) {
        (true, forced) => assert_eq!(forced.expect("it works").backend(), Backend::Rtm),
        (false, Err(OpenError::Htm(unavailable))) => assert!(!unavailable.reason.is_empty()),
        (false, forced) => panic!("{forced:?}"),
    }
    let auto = Database::in_memory().expect("a database").backend();
    assert_eq!(auto, if detect().probe_commits { Backend::Rtm } else { Backend::Absent });
}

/// Two threads count: no increment is lost, whatever the back end.
#[test]
fn counters_lose_nothing() {
    let seed = seed("counters");
    let tiny = settings(emulated(seed, 2)).chain(settings(emulated(seed, 1))).map(|setting| (setting, Budget::ONE));
    for (setting, budget) in matrix(seed).into_iter().map(|setting| (setting, Budget::default())).chain(tiny) {
        let db =
            setting.builder().workers(3).retry(setting.patience()).region_budget(budget).open().expect("a database");
        let (cells, buckets) = (db.create::<Cell>().expect("a table"), db.create::<BucketCell>().expect("a table"));
        let load = |tx: &Tx| {
            tx.insert(&cells, &Cell { id: 1, value: 0 })?;
            tx.insert(&buckets, &BucketCell { id: 1, value: 0 })
        };
        db.session().transact(load).expect("loading");
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut session = db.session();
                    for _ in 0..400 {
                        let body = |tx: &Tx| {
                            tx.update(&cells, &1, |cell| cell.set_value(cell.value() + 1))?;
                            let value = tx.get(&buckets, &1)?.map_or(0, |cell| cell.value());
                            tx.put(&buckets, &BucketCell { id: 1, value: value + 1 })
                        };
                        session.transact(body).expect("attempts enough");
                    }
                });
            }
        });
        let read = |tx: &Tx| {
            let first = tx.get(&cells, &1)?.map(|cell| cell.value());
            Ok((first, tx.get(&buckets, &1)?.map(|cell| cell.value())))
        };
        assert_eq!(*db.session().transact(read).expect("alone"), (Some(800), Some(800)), "{setting}");
    }
}
