//! A protocol that repairs has the same results and effects as full executions. A repair runs no more operations
//! again than necessary.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread;

use seriatim::htm::{Emulation, HtmMode};
use seriatim::{
    Abort, Builder, Committed, Database, Rng, Session, Table, TransactError, Tx, procedure, procedures, rng,
};
use seriatim_engine::test_support::protocols::disturbing::{NAME, REPAIRS, before_accesses};
use seriatim_engine::test_support::protocols::repairing::MEANWHILE;
use seriatim_history::{Promises, check};

#[derive(Table)]
#[table(name = "cell", key(id))]
struct Cells {
    id: u32,
    n: u64,
}

#[derive(Table)]
#[table(name = "entry", key(id), hash, index(name = "by_n", columns(n), ordered))]
struct Entry {
    id: u32,
    n: u64,
}

#[derive(Table)]
#[table(name = "line", key(number, at), cluster(number))]
struct Line {
    number: u64,
    at: u32,
    left: u64,
}

#[derive(Table)]
#[table(name = "mark", key(id), hash)]
struct Mark {
    id: u32,
    left: u64,
}

#[derive(Table)]
#[table(name = "sum", key(id), hash)]
struct Sum {
    id: u32,
    n: u64,
}

#[derive(Table)]
#[table(name = "link", key(id), hash)]
struct Link {
    id: u32,
    to: u32,
}

/// A row whose columns are used by different transactions.
#[derive(Table)]
#[table(name = "account", key(id), hash)]
struct Account {
    id: u32,
    #[column(immutable)]
    opened: u64,
    rate: u64,
    turnover: u64,
    visits: u64,
}

/// Follows links to cells, and subtracts from each.
#[procedure]
fn chase(tx: &Tx, ids: &[u32]) -> Result<Vec<u64>, Abort> {
    let mut all = Vec::new();
    for id in ids {
        let link = tx.require::<Link>(*id)?;
        let linked = tx.get::<Cells>(link.to)?;
        if let Some(cell) = linked {
            all.push(cell.n);
        }
        let left = tx.update_if::<Cells>(*id, |cell| {
            cell.n = (cell.n * 3 + 1) % 1000;
            cell.n
        })?;
        if let Some(left) = left {
            all.push(left);
        }
    }
    Ok(all)
}

/// Adds up the cells, and stores each partial sum.
#[procedure]
fn add_up(tx: &Tx, ids: &[u32]) -> Result<Vec<u64>, Abort> {
    let mut sum = 0u64;
    let mut all = Vec::new();
    for id in ids {
        let cell = tx.get::<Cells>(*id)?;
        if let Some(cell) = cell {
            sum += cell.n;
        }
        let before = tx.update_if::<Sum>(*id, |noted| {
            let before = noted.n;
            noted.n = sum;
            before
        })?;
        if let Some(before) = before {
            all.push(before);
        }
    }
    Ok(all)
}

/// Subtracts from each of the cells, and returns the sum of the rest.
#[procedure]
fn mark(tx: &Tx, ids: &[u32]) -> Result<u64, Abort> {
    let mut sum = 0u64;
    for id in ids {
        let left = tx.update::<Cells>(*id, |cell| {
            cell.n = (cell.n * 3 + 1) % 1000;
            cell.n
        })?;
        sum += left;
        tx.insert(Mark { id: *id, left })?;
    }
    Ok(sum)
}

/// As an order: gets the number of the next line, and subtracts from each of the cells.
#[procedure]
fn order(tx: &Tx, ids: &[u32]) -> Result<Vec<u64>, Abort> {
    let number = tx.update::<Entry>(0, |entry| {
        let number = entry.n;
        entry.n = number + 1;
        number
    })?;
    let mut all = Vec::new();
    let mut at = 0u32;
    for id in ids {
        let left = tx.update::<Cells>(*id, |cell| {
            cell.n = (cell.n * 3 + 1) % 1000;
            cell.n
        })?;
        at += 1;
        tx.insert(Line { number, at, left })?;
        all.push(left);
    }
    Ok(all)
}

/// Makes steps in which the row at one place determines what is put, changed or deleted at another. A step is a
/// number that encodes two places and an action.
#[procedure]
fn walk(tx: &Tx, steps: &[u32]) -> Result<Vec<u64>, Abort> {
    let mut all = Vec::new();
    for step in steps {
        let (from, to, what) = (*step % 6, *step / 6 % 6, *step / 36);
        let mut seen = 7u64;
        if let Some(cell) = tx.get::<Cells>(from)? {
            seen = cell.n;
        }
        let was = tx.update_if::<Cells>(to, |cell| {
            let was = cell.n;
            cell.n = (was * 3 + seen) % 1000;
            was
        })?;
        if what == 1 {
            if was.is_none() {
                tx.insert(Cells { id: to, n: seen })?;
            }
        }
        if what == 2 {
            let gone = tx.delete_if::<Cells>(from)?;
            if gone {
                all.push(1);
            }
        }
        if let Some(was) = was {
            all.push(was);
        }
        all.push(seen);
    }
    Ok(all)
}

/// As [`walk`], with keys from rows, ranges, an index, and a value carried from step to step.
#[procedure]
fn wander(tx: &Tx, steps: &[u32]) -> Result<Vec<u64>, Abort> {
    // A transaction that writes nothing and reads one row could be ordered before later commits.
    tx.update::<Sum>(0, |noted| noted.n = (noted.n + 1) % 1000)?;
    let mut all = Vec::new();
    let mut carried = 0u64;
    for step in steps {
        let (place, what) = (*step % 6, *step / 6);
        if what == 0 {
            for cell in tx.scan::<Cells>(place..place + 3)? {
                carried += cell.n;
                let found = tx.get::<Entry>(cell.id)?;
                if let Some(entry) = found {
                    all.push(entry.n);
                }
            }
        }
        if what == 1 {
            let found = tx.update_if::<Entry>(place, |entry| {
                entry.n = (entry.n + carried) % 50;
                entry.n
            })?;
            if let Some(n) = found {
                all.push(n);
                let _ = tx.update_if::<Cells>(place, |cell| cell.n = n)?;
            } else {
                tx.insert(Entry { id: place, n: carried % 50 })?;
            }
        }
        if what == 2 {
            let mut last = 0u32;
            for entry in tx.scan_by::<Entry>(Entry::BY_N, carried % 50..)? {
                last = entry.id;
                break;
            }
            let found = tx.delete_if::<Entry>(last)?;
            if found {
                all.push(99);
            }
        }
        if what == 3 {
            let last = tx.prefix::<Line>(u64::from(place)).rev().first()?;
            let mut at = 0u32;
            if let Some(line) = last {
                at = line.at + 1;
                all.push(line.left);
            }
            tx.insert(Line { number: u64::from(place), at, left: carried })?;
        }
    }
    Ok(all)
}

/// Inserts marks, deletes them and inserts them again, without reading them before. A step encodes a place and an
/// action.
#[procedure]
fn renew(tx: &Tx, steps: &[u32]) -> Result<Vec<u64>, Abort> {
    tx.update::<Sum>(0, |noted| noted.n = (noted.n + 1) % 1000)?;
    let mut all = Vec::new();
    for step in steps {
        let (place, what) = (*step % 6, *step / 6);
        if what != 0 {
            let gone = tx.delete_if::<Mark>(place)?;
            if gone {
                all.push(1);
            }
        }
        if what != 1 {
            tx.insert(Mark { id: place, left: 1 })?;
            tx.delete::<Mark>(place)?;
            tx.insert(Mark { id: place, left: 2 })?;
        }
    }
    Ok(all)
}

/// Each run of the inner loop stores what the previous one found.
#[procedure]
fn carry(tx: &Tx, ids: &[u32]) -> Result<Vec<u64>, Abort> {
    tx.update::<Sum>(0, |noted| noted.n = (noted.n + 1) % 1000)?;
    let mut all = Vec::new();
    let mut carried = 0u64;
    for round in ids {
        let mut sum = 0u64;
        for id in ids {
            let link = tx.require::<Link>(*id)?;
            sum += u64::from(link.to);
            let _ = tx.update_if::<Cells>((*id + *round) % 6, |cell| cell.n = (cell.n + carried) % 1000)?;
        }
        all.push(carried);
        carried = sum;
    }
    Ok(all)
}

/// Adds to one column of accounts, sets another, reads a third, and counts the cells of a range. A step encodes two
/// accounts and an action.
#[procedure]
fn book(tx: &Tx, steps: &[u32]) -> Result<Vec<u64>, Abort> {
    tx.update::<Sum>(0, |noted| noted.n = (noted.n + 1) % 1000)?;
    let mut all = Vec::new();
    for step in steps {
        let (from, to, what) = (*step % 3, *step / 3 % 3, *step / 9);
        let account = tx.require::<Account>(from)?;
        let rate = account.rate;
        tx.update::<Account>(to, |account| account.turnover += rate)?;
        if what == 1 {
            let visits = tx.update::<Account>(from, |account| {
                account.visits += 1;
                account.visits
            })?;
            all.push(visits);
        }
        if what == 2 {
            tx.update::<Account>(to, |account| account.rate = rate + 1)?;
        }
        if what == 3 {
            let first = tx.prefix::<Line>(u64::from(from)).first()?;
            if let Some(line) = first {
                all.push(line.left);
            }
            let mut cells = 0u64;
            for cell in tx.scan::<Cells>(from..from + 2)? {
                cells += cell.n;
            }
            all.push(cells);
        }
        all.push(rate);
    }
    Ok(all)
}

/// Scans rows that the loop itself changes, by values from other rows.
#[procedure]
fn push_on(tx: &Tx, from: u32) -> Result<Vec<u64>, Abort> {
    tx.update::<Sum>(0, |noted| noted.n = (noted.n + 1) % 1000)?;
    let mut all = Vec::new();
    for cell in tx.scan::<Cells>(from..6)? {
        let link = tx.require::<Link>(cell.id)?;
        let to = u64::from(link.to);
        let _ = tx.update_if::<Cells>(cell.id + 1, |next| next.n = (next.n + to) % 1000)?;
        all.push(cell.n);
    }
    Ok(all)
}

/// A link determines to which of two sums it adds.
#[procedure]
fn choose(tx: &Tx, id: u32) -> Result<u64, Abort> {
    let link = tx.require::<Link>(id)?;
    let mut n = u64::from(link.to);
    if link.to == 1 {
        let left = tx.update::<Sum>(1, |noted| {
            noted.n = (noted.n + 1) % 1000;
            noted.n
        })?;
        n += left;
    } else {
        let left = tx.update::<Sum>(2, |noted| {
            noted.n = (noted.n + 1) % 1000;
            noted.n
        })?;
        n += left;
    }
    Ok(n)
}

/// Adds up the cells, and stores the sum with the row that a link leads to.
#[procedure]
fn total(tx: &Tx, id: u32) -> Result<u64, Abort> {
    let mut sum = 0u64;
    for cell in tx.scan::<Cells>(0..6)? {
        sum += cell.n;
    }
    let link = tx.require::<Link>(id)?;
    sum += u64::from(link.to);
    tx.update::<Sum>(id, |noted| noted.n = sum)?;
    Ok(sum)
}

fn open(builder: Builder) -> (Database, Session) {
    open_unchecked(builder.check_plans(true))
}

/// As [`open`], without the check of every access.
fn open_unchecked(builder: Builder) -> (Database, Session) {
    let db = builder.workers(4).open().expect("a valid setting");
    let cells = db.create::<Cells>().expect("a valid table");
    let entries = db.create::<Entry>().expect("a valid table");
    db.create::<Line>().expect("a valid table");
    db.create::<Mark>().expect("a valid table");
    let links = db.create::<Link>().expect("a valid table");
    let sums = db.create::<Sum>().expect("a valid table");
    let accounts = db.create::<Account>().expect("a valid table");
    db.register(procedures![chase, mark, add_up, order, walk, wander, renew, carry, push_on, book, choose, total])
        .expect("sound procedures");
    let mut session = db.session();
    let load = session.transact(|tx| {
        (0..6).try_for_each(|id| tx.insert(&cells, &Cells { id, n: u64::from(id) }))?;
        (0..6).try_for_each(|id| tx.insert(&links, &Link { id, to: (id + 3) % 6 }))?;
        (0..5).try_for_each(|id| tx.insert(&sums, &Sum { id, n: 0 }))?;
        let account = |id| Account { id, opened: 7, rate: u64::from(id), turnover: 0, visits: 0 };
        (0..3).try_for_each(|id| tx.insert(&accounts, &account(id)))?;
        (0..3).try_for_each(|id| tx.insert(&entries, &Entry { id, n: u64::from(id) }))
    });
    load.expect("empty tables");
    (db, session)
}

/// All rows.
fn contents(db: &Database) -> Vec<(u64, u64, u64)> {
    let (cells, entries, lines) = (db.table::<Cells>(), db.table::<Entry>(), db.table::<Line>());
    let (cells, entries) = (cells.expect("it is there"), entries.expect("it is there"));
    let (lines, sums) = (lines.expect("it is there"), db.table::<Sum>().expect("it is there"));
    let (accounts, marks) = (db.table::<Account>().expect("it is there"), db.table::<Mark>().expect("it is there"));
    let read = db.session().transact(|tx| {
        let mut all = Vec::new();
        for row in tx.scan(&cells, ..) {
            let row = row?;
            all.push((0, u64::from(row.id()), row.n()));
        }
        for row in tx.scan_by(&entries.index(Entry::BY_N), ..) {
            let row = row?;
            all.push((1, u64::from(row.id()), row.n()));
        }
        for id in 0..5 {
            all.push((2, u64::from(id), tx.require(&sums, &id)?.n()));
        }
        for id in 0..6 {
            all.extend(tx.get(&marks, &id)?.map(|marked| (1 << 33, u64::from(id), marked.left())));
        }
        for id in 0..3 {
            let account = tx.require(&accounts, &id)?;
            let columns = [account.rate(), account.turnover(), account.visits()];
            all.extend(columns.into_iter().map(|column| (1 << 32, u64::from(id), column)));
        }
        for row in tx.scan(&lines, ..) {
            let row = row?;
            all.push((3 + row.number(), u64::from(row.at()), row.left()));
        }
        Ok(all)
    });
    read.expect("no conflict").into_value()
}

/// Makes a change that depends on the seed only, or advances time: records become hot or cold, and deleted rows leave
/// their indexes. Returns `false` if a lock prevented the change.
fn disturb(db: &Database, seed: u64) -> bool {
    let mut rng = Rng::from_seed(seed);
    let (cells, entries, lines) = (db.table::<Cells>(), db.table::<Entry>(), db.table::<Line>());
    let (cells, entries) = (cells.expect("it is there"), entries.expect("it is there"));
    let (lines, links) = (lines.expect("it is there"), db.table::<Link>().expect("it is there"));
    let (id, n) = (rng.below(6) as u32, rng.below(50));
    let (accounts, marks) = (db.table::<Account>().expect("it is there"), db.table::<Mark>().expect("it is there"));
    let what = rng.below(18);
    if what > 14 {
        db.step();
        return true;
    }
    let change = |tx: &Tx| {
        if tx.attempt() > 1 {
            return Err(tx.abort("a lock is held"));
        }
        let account = id % 3;
        match what {
            12 => tx.put(&marks, &Mark { id, left: n })?,
            13 | 14 => drop(tx.delete(&marks, &id)?),
            8 => tx.add(&accounts, &account, AccountRow::TURNOVER, n).map(|_| ())?,
            9 => tx.update(&accounts, &account, |row| row.set_visits(n)).map(drop)?,
            10 => tx.update(&accounts, &account, |row| row.set_rate(n % 4)).map(drop)?,
            11 => tx.put(&cells, &Cells { id: 60 + id, n })?,
            0 => drop(tx.delete(&cells, &id)?),
            1 => tx.put(&entries, &Entry { id, n })?,
            2 => drop(tx.delete(&entries, &id)?),
            3 => {
                let last = tx.prefix_rev(&lines, &(u64::from(id),)).next().transpose()?;
                let at = last.map_or(0, |line| line.at() + 1);
                tx.insert(&lines, &Line { number: u64::from(id), at, left: n })?;
            }
            4 | 5 => tx.put(&links, &Link { id, to: n as u32 % 6 })?,
            _ => tx.put(&cells, &Cells { id, n })?,
        }
        Ok(())
    };
    db.session().transact(change).is_ok()
}

type Call = fn(&mut Session, &Vec<u32>) -> Result<Vec<u64>, String>;

fn value(result: Result<Committed<Vec<u64>>, TransactError>) -> Result<Vec<u64>, String> {
    result.map(Committed::into_value).map_err(|error| error.to_string())
}

/// The calls, each with the number of its different steps.
const CALLS: [(Call, u64); 9] = [
    (|session, ids| value(session.call(chase, ids)), 6),
    (|session, steps| value(session.call(add_up, steps)), 6),
    (|session, steps| value(session.call(order, steps)), 6),
    (|session, steps| value(session.call(walk, steps)), 108),
    (|session, steps| value(session.call(wander, steps)), 24),
    (|session, steps| value(session.call(renew, steps)), 18),
    (|session, ids| value(session.call(carry, ids)), 6),
    (|session, ids| value(session.call(push_on, &ids[0])), 6),
    (|session, steps| value(session.call(book, steps)), 36),
];

/// A database that repairs any number of operations.
fn whatever_it_takes() -> Builder {
    Database::builder().protocol(NAME).protocol_option("repair_share_max", 100)
}

/// Calls procedures while other transactions change rows before their accesses and commits. Compares them with serial
/// calls. Returns the number of repairs, and of rows that were hot after a call: for 1,000 calls, of which a quarter
/// are made with each change.
fn compare(builder: Builder, seed: u64) -> (u32, usize) {
    let rounds = rng::tries(250, 1000) as u32;
    let mut rng = Rng::from_seed(seed);
    let builder = builder.step_helpers(true).track_contention(true);
    let (repaired, mut session) = open(builder.record_history(true));
    let (serial, mut other) = open(Database::builder().step_helpers(true));
    let mut hot = 0;
    REPAIRS.set(0);
    for round in 0..rounds {
        let (call, range) = CALLS[rng.below(CALLS.len() as u64) as usize];
        let steps: Vec<u32> = (0..1 + rng.below(6)).map(|_| rng.below(range) as u32).collect();
        if rng.percent(50) {
            // Rows that are deleted now may leave their indexes at any moment of the call.
            let online = repaired.session().transact(|_| {
                repaired.step();
                Ok(())
            });
            online.expect("it does nothing");
        }
        let done = Rc::new(RefCell::new(Vec::new()));
        let disturbance = |seed: u64| {
            let (db, done) = (repaired.clone(), Rc::clone(&done));
            move || {
                // On another thread: nothing disturbs the changes, and their accesses are not counted as the call's.
                let disturbed = thread::scope(|scope| scope.spawn(|| disturb(&db, seed)).join());
                done.borrow_mut().extend(disturbed.expect("it ends").then_some(seed));
            }
        };
        let at_commits = (0..rng.below(4)).map(|_| Box::new(disturbance(rng.next_u64())) as Box<dyn FnOnce()>);
        MEANWHILE.set(at_commits.collect());
        let at_accesses: Vec<_> = (0..rng.below(4)).map(|_| (rng.below(50), disturbance(rng.next_u64()))).collect();
        let mut accesses = 0..;
        let others = move || {
            let access = accesses.next();
            at_accesses.iter().filter(|(at, _)| access == Some(*at)).for_each(|(_, disturb)| disturb());
        };
        let got = before_accesses(others, || call(&mut session, &steps));
        MEANWHILE.take();
        for &seed in done.borrow().iter() {
            assert!(disturb(&serial, seed), "no lock is held");
        }
        let wanted = call(&mut other, &steps);
        assert_eq!(got, wanted, "seed {seed}, round {round}, {steps:?}");
        assert_eq!(contents(&repaired), contents(&serial), "seed {seed}, round {round}, {steps:?}");
        hot += repaired.contention().and_then(|contention| contention.hot).map_or(0, |rows| rows.len());
    }
    // Reads that a repair discarded are not in the history.
    let history = repaired.take_history().expect("it is recorded");
    check(&history, &Promises::STRICT).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    (REPAIRS.get() * 1000 / rounds, hot * 1000 / rounds as usize)
}

#[test]
fn repairs_give_and_leave_what_full_executions_do() {
    let seed = rng::seed("repairs_give_and_leave_what_full_executions_do");
    for mode in [HtmMode::Absent, HtmMode::Emulated(Emulation { seed, abort_one_in: 5, yields: false })] {
        for builder in [whatever_it_takes(), Database::builder().protocol(NAME).protocol_option("repair_all", 1)] {
            let (repairs, _) = compare(builder.htm(mode), seed);
            assert!(repairs > 40, "{repairs} repairs");
        }
        let (repairs, _) = compare(Database::builder().protocol(NAME).htm(mode), seed);
        assert!(repairs > 5, "{repairs} repairs");
    }
}

/// Repairs hold locks of hot records. All records are hot, or they become hot and cold at any moment.
#[test]
fn repairs_under_locks_give_and_leave_what_full_executions_do() {
    let seed = rng::seed("repairs_under_locks_give_and_leave_what_full_executions_do");
    for mode in [HtmMode::Absent, HtmMode::Emulated(Emulation { seed, abort_one_in: 5, yields: false })] {
        let (repairs, _) = compare(whatever_it_takes().protocol_option("hot", 2).htm(mode), seed);
        assert!(repairs > 5, "{repairs} repairs");
        // One conflict makes a record hot, and an epoch without conflicts makes it cold.
        let soon = [("hot_period", 1), ("hot_failures", 1)];
        let builder =
            soon.iter().fold(whatever_it_takes(), |builder, &(name, value)| builder.protocol_option(name, value));
        let (repairs, hot) = compare(builder.htm(mode), seed);
        assert!(repairs > 40 && hot > 40, "{repairs} repairs, {hot} hot rows");
        // Links and entries are cold.
        let builder = whatever_it_takes().hot_tables(["cell", "sum", "mark", "line"]);
        let (repairs, _) = compare(builder.htm(mode), seed);
        assert!(repairs > 20, "{repairs} repairs");
    }
}

/// The first two operations on a place write its tombstone. Before the third one the garbage collector unlinks it,
/// and the key gets another record.
#[test]
fn an_insertion_over_a_tombstone_is_followed_by_all_operations_on_its_key() {
    let (db, mut session) = open(whatever_it_takes().htm(HtmMode::Absent).step_helpers(true));
    let marks = db.table::<Mark>().expect("it is there");
    session.transact(|tx| tx.insert(&marks, &Mark { id: 3, left: 0 })).expect("it is empty");
    let (mut deleting, mut online) = (db.session(), db.session());
    let deleted = online.transact(|_| {
        deleting.transact(|tx| tx.delete(&marks, &3)).expect("no conflict");
        db.step();
        Ok(())
    });
    deleted.expect("it does nothing");
    let (other, mut accesses) = (db.clone(), 0..);
    let others = move || {
        if accesses.next() == Some(3) {
            other.step();
        }
    };
    let committed = before_accesses(others, || session.call(renew, &vec![3]));
    assert!(committed.expect("the key is free").value.is_empty());
    assert_eq!(db.statistics().repairs, 1);
}

/// A branch that no longer runs leaves no write, and its lock is released before the next commit.
#[test]
fn a_branch_that_a_repair_leaves_gives_back_its_lock_at_once() {
    let (db, mut session) = open(whatever_it_takes().htm(HtmMode::Absent).hot_tables(["sum"]));
    let (links, sums) = (db.table::<Link>().expect("it is there"), db.table::<Sum>().expect("it is there"));
    let added = Rc::new(RefCell::new(Vec::new()));
    let (relinking, adding, noted) = (db.clone(), db.clone(), Rc::clone(&added));
    let relink = move || {
        let relink = |tx: &Tx| tx.put(&links, &Link { id: 4, to: 2 });
        relinking.session().transact(relink).expect("no lock is held");
    };
    let add = move || {
        for id in [1, 2] {
            let add = |tx: &Tx| match tx.attempt() {
                1 => tx.update(&sums, &id, |sum| sum.set_n(100)).map(drop),
                _ => Err(tx.abort("a lock is held")),
            };
            noted.borrow_mut().push(adding.session().transact(add).is_ok());
        }
    };
    MEANWHILE.set([Box::new(relink) as Box<dyn FnOnce()>, Box::new(add)].into());
    let committed = session.call(choose, &4).expect("it is repaired");
    assert_eq!(*added.borrow(), [true, false]);
    assert_eq!((committed.value, committed.attempts, db.statistics().repairs), (2 + 1, 1, 1));
    let left: Vec<_> = contents(&db).into_iter().filter(|row| row.0 == 2 && row.2 > 0).collect();
    assert_eq!(left, [(2, 1, 100), (2, 2, 1)]);
}

/// Changes these rows of the cells before a call commits. Returns how often, and how many runs, the call repairs.
fn repaired(changed: &[u32], call: impl FnOnce(&mut Session)) -> (u64, u64) {
    let (db, mut session) = open(whatever_it_takes().htm(HtmMode::Absent));
    let (cells, other) = (db.table::<Cells>().expect("it is there"), db.clone());
    let changed = changed.to_vec();
    let change = move || {
        let change = |tx: &Tx| changed.iter().try_for_each(|&id| tx.put(&cells, &Cells { id, n: 100 }));
        other.session().transact(change).expect("no lock is held");
    };
    MEANWHILE.set([Box::new(change) as Box<dyn FnOnce()>].into());
    call(&mut session);
    let statistics = db.statistics();
    (statistics.repairs, statistics.runs_repaired)
}

#[test]
fn of_a_loop_the_iterations_run_again_that_are_stale() {
    let marks = |changed: &[u32]| {
        repaired(changed, |session| {
            let sum = session.call(mark, &vec![1, 2, 3, 4, 5]).expect("it is repaired").value;
            let of = |id: u32| if changed.contains(&id) { 301 } else { u64::from(id) * 3 + 1 };
            assert_eq!(sum, (1..6).map(of).sum::<u64>());
        })
    };
    assert_eq!(marks(&[0]), (0, 0));
    assert_eq!(marks(&[3]), (1, 2));
    assert_eq!(marks(&[5, 1]), (1, 4));
    // The lines of an order are in one record; each run counts.
    let orders = |ids: &[u32], changed: &[u32]| {
        repaired(changed, |session| drop(session.call(order, &ids.to_vec()).expect("it is repaired")))
    };
    assert_eq!(orders(&[1, 2, 3, 4, 5], &[3]), (1, 1 + 5));
    // Iterations that access the same row.
    assert_eq!(orders(&[1, 2, 3, 2, 5], &[2]), (1, 2 + 5));
}

#[test]
fn an_operation_that_reaches_a_row_in_a_repair_sees_it_before_later_writes() {
    let (db, mut session) = open(whatever_it_takes().htm(HtmMode::Absent));
    let (links, other) = (db.table::<Link>().expect("it is there"), db.clone());
    let change = move || {
        let relink = |tx: &Tx| tx.put(&links, &Link { id: 1, to: 2 });
        other.session().transact(relink).expect("no lock is held");
    };
    MEANWHILE.set([Box::new(change) as Box<dyn FnOnce()>].into());
    let committed = session.call(chase, &vec![1, 2]).expect("it is repaired");
    assert_eq!(committed.value, [2, 4, 5, 7]);
    assert_eq!((committed.attempts, db.statistics().repairs), (1, 1));
}

#[test]
fn attempts_are_repaired_so_often_and_then_run_again_as_a_whole() {
    for max in [0, 1, 3] {
        let (db, mut session) = open(whatever_it_takes().htm(HtmMode::Absent).protocol_option("repairs_max", max));
        let change = |seed: u64| {
            let (db, cells) = (db.clone(), db.table::<Cells>().expect("it is there"));
            Box::new(move || {
                let change = |tx: &Tx| tx.put(&cells, &Cells { id: 1, n: seed });
                db.session().transact(change).expect("no lock is held");
            }) as Box<dyn FnOnce()>
        };
        MEANWHILE.set((10..15).map(change).collect());
        let committed = session.call(order, &vec![1, 2]).expect("the sixth commit is not disturbed");
        let statistics = db.statistics();
        let attempts = 6_u64.div_ceil(max + 1);
        assert_eq!((u64::from(committed.attempts), statistics.conflict_aborted), (attempts, attempts - 1));
        assert_eq!(statistics.repairs, 6 - attempts, "at most {max}");
        assert_eq!(committed.value, [14 * 3 + 1, 7]);
    }
}

/// Changes these rows of the four cells that a call marks, before it commits. Returns the numbers of repairs and of
/// attempts.
fn ends(options: &[(&str, u64)], changed: &[u32]) -> (u64, u32) {
    let builder = Database::builder().protocol(NAME).htm(HtmMode::Absent);
    let (db, mut session) =
        open(options.iter().fold(builder, |builder, &(name, value)| builder.protocol_option(name, value)));
    let (cells, other, changed) = (db.table::<Cells>().expect("it is there"), db.clone(), changed.to_vec());
    let change = move || {
        let change = |tx: &Tx| changed.iter().try_for_each(|&id| tx.put(&cells, &Cells { id, n: 100 }));
        other.session().transact(change).expect("no lock is held");
    };
    MEANWHILE.set([Box::new(change) as Box<dyn FnOnce()>].into());
    let committed = session.call(mark, &vec![1, 2, 3, 4]).expect("it commits in the end");
    (db.statistics().repairs, committed.attempts)
}

/// A procedure of which a repair would run most again runs again as a whole.
#[test]
fn a_procedure_whose_repair_would_run_almost_all_is_not_repaired() {
    let ends = |share: u64, changed: &[u32]| ends(&[("repair_share_max", share)], changed);
    // Two operations in each of four iterations.
    assert_eq!(ends(50, &[3]), (1, 1));
    assert_eq!(ends(50, &[1, 3]), (1, 1));
    assert_eq!(ends(50, &[1, 2, 3]), (0, 2));
    assert_eq!(ends(100, &[1, 2, 3, 4]), (1, 1));
    assert_eq!(ends(0, &[3]), (0, 2));
}

#[test]
fn repairs_of_all_operations_are_made_whatever_they_are_of_all() {
    assert_eq!(ends(&[("repair_all", 1)], &[3]), (1, 1));
    assert_eq!(ends(&[("repair_all", 1), ("repair_share_max", 10)], &[3]), (1, 1));
    assert_eq!(ends(&[("repair_all", 0), ("repair_share_max", 10)], &[3]), (0, 2));
}

/// Each of 200 calls meets a conflict. Returns for how many the commit asks for a repair, and how many repairs are
/// made.
fn asked(
    call: fn(&mut Session) -> Result<(), TransactError>,
    change: fn(&Tx, &Database, u32) -> Result<(), Abort>,
) -> (u32, u64) {
    let builder = Database::builder().protocol(NAME).htm(HtmMode::Absent).protocol_option("hot", 0);
    let (db, mut session) = open_unchecked(builder);
    REPAIRS.set(0);
    for round in 0..200 {
        let other = db.clone();
        let changed = move || {
            let change = |tx: &Tx| change(tx, &other, round);
            other.session().transact(change).expect("no lock is held");
        };
        MEANWHILE.set([Box::new(changed) as Box<dyn FnOnce()>].into());
        call(&mut session).expect("it commits in the end");
    }
    (REPAIRS.get(), db.statistics().repairs)
}

/// Results are kept for repairs where conflicts are frequent and repairs are made.
#[test]
fn calls_keep_nothing_for_repairs_that_are_refused() {
    let (asked_for, made) = asked(
        |session| session.call(total, &0).map(drop),
        |tx, db, round| tx.put(&db.table().expect("it is there"), &Link { id: 0, to: round }),
    );
    assert!(asked_for > 150 && made == u64::from(asked_for), "{asked_for} of 200 calls kept what a repair needs");
    let (asked_for, made) = asked(
        |session| session.call(order, &vec![0, 1, 2, 3, 4]).map(drop),
        |tx, db, n| {
            let cells = db.table().expect("it is there");
            (0..5).try_for_each(|id| tx.put(&cells, &Cells { id, n: n.into() }))
        },
    );
    assert!((1..20).contains(&asked_for) && made == 0, "{asked_for} of 200 calls kept what a repair needs");
}

/// A scan is one run, but counts as much work as the rows that it reads.
#[test]
fn a_wide_scan_is_kept_where_later_operations_are_stale() {
    let (db, mut session) = open(Database::builder().protocol(NAME).htm(HtmMode::Absent));
    let (links, other) = (db.table::<Link>().expect("it is there"), db.clone());
    let relink = move || {
        let relink = |tx: &Tx| tx.put(&links, &Link { id: 0, to: 5 });
        other.session().transact(relink).expect("no lock is held");
    };
    MEANWHILE.set([Box::new(relink) as Box<dyn FnOnce()>].into());
    let committed = session.call(total, &0).expect("it is repaired");
    // Two of its three operations, which access a row each; the scan reads six rows.
    assert_eq!((committed.value, committed.attempts), (15 + 5, 1));
    let statistics = db.statistics();
    assert_eq!((statistics.repairs, statistics.runs_repaired), (1, 2));
}
