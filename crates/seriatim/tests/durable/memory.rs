//! The memory limit of a database that is opened again.

use seriatim::{Database, Durability, Handle, Session, Table, TransactError, protocols};
use seriatim_base::disk::FaultyDisk;
use seriatim_catalog::Text;

use crate::life::small;

const LIMIT: usize = 2 << 20;

/// A row that lies in its record.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "job", key(id), hash, index(name = "by_worker", columns(worker)))]
struct Job {
    id: u64,
    worker: u32,
    what: Text<500>,
}

fn job(id: u64) -> Job {
    Job { id, worker: id as u32 % 5, what: Text::new("something to do").expect("it fits") }
}

/// Inserts jobs until the limit is met; the first that was refused.
fn fill(session: &mut Session, jobs: &Handle<Job>, first: u64) -> u64 {
    for id in first.. {
        match session.transact(|tx| tx.insert(jobs, &job(id))) {
            Ok(_) => assert!(id < 100_000, "the limit must be met"),
            Err(TransactError::OutOfMemory) => return id,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("it returned")
}

/// Helpers' work, until what was deleted is unlinked and given back.
fn settle(db: &Database) {
    (0..400).for_each(|_| db.step());
}

fn ids(session: &mut Session, jobs: &Handle<Job>) -> Vec<u64> {
    let by_worker = jobs.index(Job::BY_WORKER);
    let read = session.transact(|tx| {
        let of = |worker| tx.find_by(&by_worker, &worker).map(|row| Ok(row?.id()));
        (0..5u32).flat_map(of).collect::<Result<Vec<_>, seriatim::Abort>>()
    });
    let mut ids = read.expect("reads go on").into_value();
    ids.sort_unstable();
    ids
}

#[test]
fn a_full_database_whose_log_needs_more_than_its_limit_opens_with_it_again() {
    for protocol in protocols() {
        for checkpointed in [false, true] {
            let disk = FaultyDisk::new(51);
            let open = || small(protocol.name, &disk).memory_limit(LIMIT).durability(Durability::Async).open();
            let db = open().expect("a new database opens");
            let jobs = db.create::<Job>().expect("the table is created");
            let mut session = db.session();
            // A queue: few rows at a time, and three times the limit one after another.
            let mut next = 0;
            while next < 12_000 {
                let batch = next..next + 400;
                let insert = session.transact(|tx| batch.clone().try_for_each(|id| tx.insert(&jobs, &job(id))));
                insert.expect("few are there");
                let delete = session.transact(|tx| {
                    batch.clone().try_for_each(|id| tx.delete(&jobs, &id).map(|deleted| assert!(deleted)))
                });
                delete.expect("few are there");
                next = batch.end;
                settle(&db);
            }
            if checkpointed {
                db.checkpoint().expect("the disk works");
            }
            let full = fill(&mut session, &jobs, next);
            assert!(full - next > 1000, "{} rows of about 600 bytes", full - next);
            db.flush().expect("the disk works");
            drop((session, jobs, db));

            let db = open().unwrap_or_else(|error| panic!("{} does not open again: {error}", protocol.name));
            let jobs = db.table::<Job>().expect("it is there");
            let mut session = db.session();
            assert_eq!(ids(&mut session, &jobs), (next..full).collect::<Vec<_>>());
            // The limit counts again: there is no more than what recovery left.
            let refused = fill(&mut session, &jobs, full);
            assert!(refused - full < 15_000, "{}: {} more rows", protocol.name, refused - full);
            for id in next..refused {
                assert!(*session.transact(|tx| tx.delete(&jobs, &id)).expect("deletes go on"));
                if id % 100 == 99 {
                    settle(&db);
                }
            }
            settle(&db);
            assert!(ids(&mut session, &jobs).is_empty());
            // What they had can be used again.
            let rows = refused - next;
            for id in 0..rows * 8 / 10 {
                let insert = session.transact(|tx| tx.insert(&jobs, &job(id)));
                insert.unwrap_or_else(|error| panic!("{}: row {id} of {rows}: {error}", protocol.name));
            }
            assert_eq!(db.check_structure(), Ok(()));
        }
    }
}
