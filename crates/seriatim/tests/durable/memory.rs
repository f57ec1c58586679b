//! The memory limit of a database that is opened again.

use seriatim::rng::{sample, seed};
use seriatim::{Durability, Handle, Session, Table, TransactError, available_protocols};
use seriatim_base::disk::FaultyDisk;
use seriatim_catalog::Text;

use crate::accounts::small;
use crate::settle::settle;

const LIMIT: usize = 2 << 20;

/// A row that is stored in its record.
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

/// Inserts jobs until the limit is reached; returns the id that was refused.
fn fill(session: &mut Session, jobs: &Handle<Job>, first: u64) -> u64 {
    for id in first.. {
        match session.transact(|tx| tx.insert(jobs, &job(id))) {
            Ok(_) => assert!(id < 100_000, "the limit must be met"),
            Err(TransactError::OutOfMemory { .. }) => return id,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("it returned")
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
    let seed = seed("a_full_database_whose_log_needs_more_than_its_limit_opens_with_it_again");
    for (at, protocol) in sample(available_protocols().iter().enumerate(), 2, seed) {
        // With each change, one of both for each protocol.
        for checkpointed in sample([true, false], 2, at as u64 / 2) {
            let disk = FaultyDisk::new(51);
            let open = || small(protocol.name, &disk).memory_limit(LIMIT).durability(Durability::Async).open();
            let db = open().expect("a new database opens");
            let jobs = db.create::<Job>().expect("the table is created");
            let mut session = db.session();
            // A queue: few rows at a time, in total three times as many as the limit allows.
            let mut next = 0;
            while next < 12_000 {
                let batch = next..next + 400;
                let insert = session.transact(|tx| batch.clone().try_for_each(|id| tx.insert(&jobs, &job(id))));
                insert.expect("few are there");
                let delete = session.transact(|tx| batch.clone().try_for_each(|id| tx.delete(&jobs, &id)));
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
            // The limit applies again: only memory that recovery left free can be used.
            let refused = fill(&mut session, &jobs, full);
            assert!(refused - full < 15_000, "{}: {} more rows", protocol.name, refused - full);
            for id in next..refused {
                session.transact(|tx| tx.delete(&jobs, &id)).expect("deletes go on");
                if id % 100 == 99 {
                    settle(&db);
                }
            }
            settle(&db);
            assert!(ids(&mut session, &jobs).is_empty());
            // Nearly all memory can be reused after recovery. Bucket arrays do not shrink.
            let (rows, kept) = (full - next, db.statistics().memory_bytes);
            assert!(kept < LIMIT / 5, "{}: {kept} bytes are kept", protocol.name);
            let fit = rows * (LIMIT - kept) as u64 / LIMIT as u64;
            let again =
                (0..rows).find(|&id| session.transact(|tx| tx.insert(&jobs, &job(id))).is_err()).unwrap_or(rows);
            assert!(again > fit * 19 / 20, "{}: {again} of {rows} rows fit again", protocol.name);
            assert_eq!(db.check_structure(), Ok(()));
        }
    }
}

/// A row with a long text.
#[derive(Table, Clone, Debug, PartialEq)]
#[table(name = "page", key(id), index(name = "by_title", columns(title), unique))]
struct Page {
    id: u64,
    title: String,
    text: String,
}

fn page(id: u64) -> Page {
    Page { id, title: format!("page {id} of a book"), text: "once upon a time ".repeat(id as usize % 40) }
}

/// A database that was filled to the limit is closed or killed, with or without a checkpoint. It opens with the same
/// limit, and everything permitted at the limit still works.
#[test]
#[ignore = "nightly: ten seconds"]
fn a_database_filled_to_its_limit_opens_again_with_that_limit() {
    const LIMIT: usize = 3 << 20;
    for protocol in available_protocols() {
        for (checkpointed, killed) in [(false, false), (false, true), (true, false), (true, true)] {
            let case = format!("{}, checkpointed {checkpointed}, killed {killed}", protocol.name);
            let disk = FaultyDisk::new(52);
            let open = || small(protocol.name, &disk).memory_limit(LIMIT).durability(Durability::Async).open();
            let db = open().expect("a new database opens");
            assert_eq!(db.statistics().memory_limit, Some(LIMIT));
            let pages = db.create::<Page>().expect("the table is created");
            let mut session = db.session();
            let insert =
                |session: &mut Session, pages: &Handle<Page>, id| session.transact(|tx| tx.insert(pages, &page(id)));
            let refused = |result| matches!(result, Err(TransactError::OutOfMemory { .. }));
            let mut full = 0;
            while insert(&mut session, &pages, full)
                .map(drop)
                .map_err(|error| assert!(refused(Err::<(), _>(error))))
                .is_ok()
            {
                full += 1;
                assert!(full < 100_000, "the limit must be met");
            }
            assert!(full > 1000, "{case}: {full} rows of about 500 bytes");
            if checkpointed {
                db.checkpoint().unwrap_or_else(|error| panic!("{case}: a full database takes a checkpoint: {error}"));
            }
            db.flush().expect("the disk works");
            let before = db.statistics();
            if killed {
                disk.crash();
            }
            drop((session, pages, db));

            let db = open().unwrap_or_else(|error| panic!("{case}: it does not open again: {error}"));
            let after = db.statistics();
            assert_eq!((&*after.tables[0].name, after.tables[0].rows), ("page", full), "{case}");
            // Recovery needs little more than what was in use.
            let most = LIMIT + LIMIT / 8;
            assert!(after.memory_bytes <= most, "{case}: {} bytes, before {}", after.memory_bytes, before.memory_bytes);
            let pages = db.table::<Page>().expect("it is there");
            let mut session = db.session();
            let by_title = pages.index(Page::BY_TITLE);
            let read = session.transact(|tx| {
                (0..full).try_for_each(|id| {
                    assert_eq!(tx.get(&pages, &id)?.map(|row| row.to_owned()), Some(page(id)), "{case}");
                    assert_eq!(tx.get_by(&by_title, &page(id).title)?.map(|row| row.id()), Some(id), "{case}");
                    Ok(())
                })
            });
            read.unwrap_or_else(|error| panic!("{case}: reads go on: {error}"));
            db.checkpoint().unwrap_or_else(|error| panic!("{case}: a checkpoint is taken: {error}"));
            for id in 0..full {
                let deleted = session.transact(|tx| tx.delete(&pages, &id));
                deleted.unwrap_or_else(|error| panic!("{case}: deletes go on: {error}"));
                if id % 100 == 99 {
                    settle(&db);
                }
            }
            settle(&db);
            for id in 0..full * 8 / 10 {
                insert(&mut session, &pages, id).unwrap_or_else(|error| panic!("{case}: row {id} of {full}: {error}"));
            }
            assert_eq!(db.statistics().tables[0].rows, full * 8 / 10, "{case}");
        }
    }
}
