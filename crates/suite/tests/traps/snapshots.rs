//! A snapshot begun while writers install sees all of a transaction or nothing of it. A commit that a receipt reports
//! is readable by every transaction that begins afterwards.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use seriatim::history::{Promises, check};
use seriatim::htm::{Budget, Emulation, HtmMode};
use seriatim::rng::seed;
use seriatim::{Abort, Database, Freshness, Handle, ProtocolInfo, ReadTx, Receipt, Rng, Tx, protocols, thread};
use seriatim_suite::explore::{BucketCell, Cell};
use seriatim_suite::{Setting, matrix};

use crate::{assert_serializable, committed, stepped, unless_conflict};

struct Pair {
    cells: Handle<Cell>,
    buckets: Handle<BucketCell>,
}

impl Pair {
    fn new(db: &Database) -> Pair {
        Pair { cells: db.create().expect("a table"), buckets: db.create().expect("a table") }
    }

    fn set(&self, tx: &Tx, id: u32, value: i64) -> Result<(), Abort> {
        tx.put(&self.cells, &Cell { id, value })?;
        tx.put(&self.buckets, &BucketCell { id, value })
    }

    fn unset(&self, tx: &Tx, id: u32) -> Result<(), Abort> {
        let _ = tx.delete_if(&self.cells, &id)?;
        tx.delete_if(&self.buckets, &id).map(drop)
    }

    /// Both halves, the one by a point read or a scan.
    fn halves(&self, tx: &ReadTx, id: u32, scanned: bool) -> Result<[Option<i64>; 2], Abort> {
        let second = tx.get(&self.buckets, &id)?.map(|row| row.value());
        let first = match scanned {
            true => tx.scan(&self.cells, id..=id).next().transpose()?.map(|row| row.value()),
            false => tx.get(&self.cells, &id)?.map(|row| row.value()),
        };
        Ok([first, second])
    }
}

/// Every place at which a snapshot can begin, and end its reading, around the steps of a writer.
#[test]
fn a_snapshot_sees_all_of_a_transaction_or_nothing_of_it() {
    for setting in matrix(seed("snapshot around a commit")) {
        let snapshots = protocols().iter().find(|protocol| protocol.name == setting.protocol);
        let never_aborts = snapshots.is_some_and(never_validates);
        // Steps of the writer: put 1, put 2, delete 3, insert 4, commit, garbage collection, another such transaction.
        const STEPS: usize = 8;
        for begin in 0..=STEPS {
            for first in begin..=STEPS {
                for second in first..=STEPS {
                    let db = stepped(&setting);
                    let pair = Pair::new(&db);
                    let load = |tx: &Tx| (1..4).try_for_each(|id| pair.set(tx, id, 0));
                    db.session().transact(load).expect("loading");
                    let mut sessions = [db.session(), db.session()];
                    let [writing, reading] = &mut sessions;
                    let (mut open, mut refused, mut done) = (Some(writing.begin().expect("a worker")), false, 0);
                    let (mut reader, mut reading) = (None, Some(reading));
                    let (mut seen, mut aborted) = (Vec::new(), false);
                    for step in 0..=STEPS {
                        if step == begin
                            && let Some(session) = reading.take()
                        {
                            reader = Some((session.begin_snapshot().expect("a worker"), done));
                        }
                        for at in [first, second] {
                            if at == step && !aborted {
                                let Some((tx, _)) = &reader else { continue };
                                let read = |id| pair.halves(tx, id, at == second);
                                let all = (1..5).map(read).collect::<Result<Vec<_>, _>>();
                                match unless_conflict(all) {
                                    Some(all) => seen.push(all),
                                    None => aborted = true,
                                }
                            }
                        }
                        let Some(tx) = open.take() else {
                            db.step();
                            continue;
                        };
                        let result = match step {
                            0 => pair.set(&tx, 1, 1),
                            1 => pair.set(&tx, 2, 1),
                            2 => pair.unset(&tx, 3),
                            3 => pair.set(&tx, 4, 1),
                            _ => {
                                done += i64::from(committed(tx.commit()).is_some());
                                continue;
                            }
                        };
                        match unless_conflict(result) {
                            Some(()) => open = Some(tx),
                            None => refused = true,
                        }
                    }
                    let (reader, before) = reader.expect("it began");
                    let finished = !aborted && committed(reader.finish()).is_some();
                    let where_ = format!("{setting}, began at {begin}, read at {first} and {second}");
                    if never_aborts {
                        assert!(finished && !refused, "{where_}: a snapshot is in nobody's way");
                    }
                    if !finished {
                        continue;
                    }
                    let old = vec![[Some(0); 2], [Some(0); 2], [Some(0); 2], [None; 2]];
                    let new = vec![[Some(1); 2], [Some(1); 2], [None; 2], [Some(1); 2]];
                    let wanted = if before == 1 { &new } else { &old };
                    assert!(seen[0] == old || seen[0] == new, "{where_}: saw {:?}", seen[0]);
                    assert!(seen.iter().all(|all| *all == seen[0]), "{where_}: saw {seen:?}, one after the other");
                    if never_aborts || before == 1 {
                        assert_eq!(&seen[0], wanted, "{where_}: not the state of its beginning");
                    }
                    assert_serializable(&setting, &db);
                }
            }
        }
    }
}

/// Whether each snapshot is one that neither validates nor aborts.
fn never_validates(protocol: &ProtocolInfo) -> bool {
    matches!(protocol.capabilities.snapshots, Freshness::Latest | Freshness::Eventual)
}

/// The matrix, and back ends that fall back much more often: the trap lies in the fallback.
fn with_fallbacks(seed: u64) -> impl Iterator<Item = (Setting, Budget)> {
    let tiny = Budget::ONE;
    let fallbacks = protocols().iter().map(move |protocol| {
        let htm = HtmMode::Emulated(Emulation { seed, abort_one_in: 2, yields: true });
        (Setting::new(protocol, htm), tiny)
    });
    matrix(seed).into_iter().map(|setting| (setting, Budget::default())).chain(fallbacks)
}

#[test]
fn snapshots_during_installs_see_pairs_and_acknowledged_commits() {
    const KEYS: u32 = 4;
    let seed = seed("pairs under snapshots");
    for (setting, budget) in with_fallbacks(seed) {
        let builder = setting.builder().retry(setting.patience()).region_budget(budget).record_history(true);
        let db = builder.workers(5).open().expect("a database");
        let gives_snapshots = never_validates(&db.protocol());
        // Without such a request, a snapshot may be older than the results of others.
        let is_told = db.protocol().capabilities.snapshots.is_bounded();
        let pair = Pair::new(&db);
        // Values only rise; the newest that a writer got as a result is committed.
        let acknowledged: [AtomicI64; KEYS as usize] = Default::default();
        let receipts: [Mutex<Option<Receipt>>; KEYS as usize] = Default::default();
        thread::scope(|scope| {
            let (db, pair, setting) = (&db, &pair, &setting);
            let (acknowledged, receipts) = (&acknowledged, &receipts);
            for at in 0..2u64 {
                scope.spawn(move || {
                    let mut rng = Rng::from_seed(seed ^ at << 32);
                    let mut session = db.session();
                    for _ in 0..250 {
                        let id = rng.below(u64::from(KEYS)) as u32;
                        let delete = rng.below(4) == 0;
                        // A key that is deleted keeps its number in a row beside it.
                        let number = session.transact(|tx| {
                            let last = pair.halves(tx, id + KEYS, false)?[0].unwrap_or(0);
                            pair.set(tx, id + KEYS, last + 1)?;
                            match delete {
                                true => pair.unset(tx, id)?,
                                false => pair.set(tx, id, last + 1)?,
                            }
                            Ok(last + 1)
                        });
                        let number = number.expect("attempts enough");
                        let mut newest = receipts[id as usize].lock().expect("no panic");
                        if newest.is_none_or(|newest| newest.tid < number.receipt.tid) {
                            *newest = Some(number.receipt);
                        }
                        drop(newest);
                        acknowledged[id as usize].fetch_max(*number, Ordering::SeqCst);
                    }
                });
            }
            for at in 2..4u64 {
                scope.spawn(move || {
                    let mut rng = Rng::from_seed(seed ^ at << 32);
                    let mut session = db.session();
                    for _ in 0..250 {
                        let id = rng.below(u64::from(KEYS)) as u32;
                        let floor = acknowledged[id as usize].load(Ordering::SeqCst);
                        let receipt = *receipts[id as usize].lock().expect("no panic");
                        if let Some(receipt) = receipt.filter(|_| is_told) {
                            session.read_after(receipt).expect("it is of this database");
                        }
                        let body = |tx: &ReadTx| {
                            let number = pair.halves(tx, id + KEYS, false)?;
                            thread::yield_now();
                            Ok((number, pair.halves(tx, id, true)?, pair.halves(tx, id, false)?))
                        };
                        let is_snapshot = rng.below(3) != 0;
                        let seen = match is_snapshot {
                            false => session.transact(|tx| body(tx)),
                            true => session.snapshot(body),
                        };
                        let seen = seen.expect("attempts enough");
                        let ([number, twin], row, again) = *seen;
                        assert_eq!(number, twin, "{setting}: half a transaction");
                        assert!(number.unwrap_or(0) >= floor, "{setting}: saw {number:?}, {floor} was acknowledged");
                        assert!(row == again && row[0] == row[1], "{setting}: half a transaction: {row:?}, {again:?}");
                        assert!(row[0].is_none_or(|row| Some(row) == number), "{setting}: {row:?} beside {number:?}");
                    }
                });
            }
            if gives_snapshots {
                scope.spawn(move || {
                    let mut session = db.session();
                    for _ in 0..250 {
                        let all = session.snapshot(|tx| (0..2 * KEYS).map(|id| pair.halves(tx, id, true)).collect());
                        let all: seriatim::Committed<Vec<[Option<i64>; 2]>> = all.expect("a snapshot never aborts");
                        assert_eq!(all.attempts, 1, "{setting}: a snapshot never aborts");
                        assert!(all.iter().all(|[a, b]| a == b), "{setting}: {all:?}");
                    }
                });
            }
        });
        assert_serializable(&setting, &db);
        db.check_structure().unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    }
}

/// A snapshot of the past is serializable, and says of when it is. A judge that expects it to be of the present refutes
/// it. If its age is not bounded, it has its session's commits and reads.
#[test]
fn a_stale_snapshot_is_serializable_and_the_strict_judge_notices_it() {
    // Others are as old as the oldest transaction under way: here there is none.
    for protocol in protocols().iter().filter(|protocol| protocol.capabilities.snapshots == Freshness::Eventual) {
        let db =
            Database::builder().protocol(protocol.name).htm(HtmMode::Absent).protocol_option("snapshot_wanted_min", 0);
        let db = db.step_helpers(true).record_history(true).open().expect("a database");
        let cells = db.create::<Cell>().expect("a table");
        let (mut writer, mut reader) = (db.session(), db.session());
        let value = |tx: &ReadTx| Ok(tx.get(&cells, &1)?.map(|cell| cell.value()));
        assert_eq!(*reader.snapshot(value).expect("alone"), None);
        for round in 1..4 {
            let receipt = writer.transact(|tx| tx.put(&cells, &Cell { id: 1, value: round })).expect("alone").receipt;
            let stale = *reader.snapshot(value).expect("alone");
            assert_eq!(stale.unwrap_or(0), round - 1, "nobody has made another");
            reader.read_after(receipt).expect("it is of this database");
            assert_eq!(*reader.snapshot(value).expect("alone"), Some(round));
        }
        let mut history = db.take_history().expect("it is recorded");
        for promises in [Promises::SERIALIZABLE, Promises::STRICT] {
            check(&history, &promises).unwrap_or_else(|violation| panic!("{}: {violation}", protocol.name));
        }
        let mut stale = 0;
        for transaction in history.transactions.iter_mut().filter(|transaction| transaction.snapshot.is_some()) {
            stale += u32::from(transaction.snapshot < Some(transaction.began));
            transaction.snapshot = Some(transaction.began);
        }
        assert!(stale >= 3, "{stale} say that they are of the past");
        check(&history, &Promises::SERIALIZABLE).expect("no order of time was asked for");
        let noticed = check(&history, &Promises::STRICT).expect_err("it is not of the present");
        eprintln!("{}: {noticed}", protocol.name);
    }
}
