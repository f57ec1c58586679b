//! Random programs of threads that take turns at every step, judged by the history checker.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_base::thread::take_turns;
use seriatim_base::{Rng, TableId, Tid, rng};
use seriatim_catalog::{ColumnSet, ColumnUse, Key};
use seriatim_history::{Columns, History, Initial, Promises, Read, Saw, Transaction, Write, check, text};
use seriatim_htm::HtmMode;
use seriatim_store::{Direction, read_key};
use seriatim_txn::{
    Before, Inserted, Mode, OnExists, OpError, Outcome, Priority, Protocol, Redo, RowPtr, Savepoint, Scan, Seen, Table,
    Worker,
};

use crate::common::Bench;
use crate::turns::{HELD, begin, cleared, hold};

/// Few, so that programs meet, and meet their own writes.
const KEYS: u64 = 6;
const TABLE: TableId = TableId(0);
const THREADS: u64 = 3;
const TRANSACTIONS: u64 = 10;
/// Seeds that have found something.
const KNOWN: [u64; 2] = [453, 2581];

/// The reports of commits: key, version and whether it is a deletion.
struct Capture(Vec<Write>);

impl Redo for Capture {
    fn write(&mut self, _: &Table, key: Key<'_>, tid: Tid, _: Option<Before>, after: Option<RowPtr>) {
        let (version, deleted) = (tid.bits(), after.is_none());
        self.0.push(Write { table: TABLE, key: id(key).into(), version, deleted, columns: None });
    }

    fn listens(&self) -> bool {
        true
    }
}

fn id(key: Key<'_>) -> u64 {
    let Key::Word8(id) = key else { unreachable!("the class of the table") };
    id
}

fn saw(seen: Seen) -> Saw {
    match seen.record {
        _ if !seen.absent => Saw::Row(seen.tid.bits()),
        Some(_) if seen.tid > Tid::ZERO => Saw::AbsentAt(seen.tid.bits()),
        _ => Saw::Absent,
    }
}

/// A transaction while it runs.
struct Program<'b, P: Protocol> {
    bench: &'b Bench<P>,
    seen: Transaction,
    /// Keys that it has written at some time.
    touched: BTreeSet<u64>,
    savepoint: Option<Savepoint>,
    /// Rows that it was given, with what they held then, and hold as long as it runs.
    given: Vec<(RowPtr, i64)>,
    /// Of what it writes.
    values: Rng,
}

impl<P: Protocol> Program<'_, P> {
    /// Some operation.
    fn operation(&mut self, worker: &mut P::Worker, rng: &mut Rng) -> Result<(), OpError> {
        let cells = &self.bench.cells;
        // Often a key of its own, so that one write comes over another.
        let own = self.touched.iter().copied().nth(rng.below(4) as usize);
        let key = own.unwrap_or_else(|| rng.below(KEYS));
        let writes = match rng.below(10) {
            0 | 1 => {
                let row = worker.read(cells, Key::Word8(key), ColumnSet::ALL)?;
                self.given.extend(row.map(|row| (row, self.bench.get(row))));
                false
            }
            choice @ (2 | 3) => {
                let staged = worker.stage(cells)?;
                self.bench.set(staged.row, self.values.next_u64() as i64);
                let exists = if choice == 2 { OnExists::Refuse } else { OnExists::Replace };
                !matches!(worker.insert(cells, Key::Word8(key), staged, exists)?, Inserted::Exists(_))
            }
            4 => {
                let updating = worker.update(cells, Key::Word8(key), ColumnUse::ALL)?;
                if let Some(updating) = updating {
                    self.given.push((updating.before, self.bench.get(updating.before)));
                    self.bench.set(updating.after, self.values.next_u64() as i64);
                }
                updating.is_some()
            }
            5 | 6 => worker.delete(cells, Key::Word8(key))?.is_some(),
            7 => {
                self.savepoint = Some(worker.savepoint());
                return Ok(());
            }
            8 => {
                self.savepoint.into_iter().for_each(|savepoint| worker.rollback_to(savepoint));
                return Ok(());
            }
            _ => return self.scan(worker, (key, key + rng.below(KEYS)), rng.below(2) == 0),
        };
        let seen = worker.seen();
        if !seen.own {
            self.seen.reads.push(Read { table: TABLE, key: key.into(), columns: Columns::ALL, saw: saw(seen) });
        }
        self.touched.extend(writes.then_some(key));
        Ok(())
    }

    /// The rows that it was given are as they were.
    fn rows_stay(&self) {
        self.given.iter().for_each(|&(row, value)| assert_eq!(self.bench.get(row), value));
    }

    fn scan(&mut self, worker: &mut P::Worker, (low, high): (u64, u64), forward: bool) -> Result<(), OpError> {
        let (cells, mut scan, mut rows, mut listed) = (&self.bench.cells, Scan::default(), Vec::new(), BTreeSet::new());
        let [from, to] = [low, high].map(|id| Bound::Included(Key::Word8(id)));
        let direction = if forward { Direction::Forward } else { Direction::Backward };
        cells.index.scan(from, to, direction, &mut scan.cursor).expect("ordered");
        while worker.scan_next(cells, &mut scan, ColumnSet::ALL)?.is_some() {
            let seen = worker.seen();
            // SAFETY: a row is of a record, which was just seen; the worker is online.
            let id = id(unsafe { read_key(seen.record.expect("a row is of a record"), cells.class) });
            listed.insert(id);
            rows.push((id.into(), if seen.own { Saw::Hidden } else { saw(seen) }));
        }
        // Its own deletions hide what is there, also those that it takes back later.
        let hidden = self.touched.range(low..=high).filter(|id| !listed.contains(id));
        rows.extend(hidden.map(|&id| (id.into(), Saw::Hidden)));
        self.seen.scans.push(seriatim_history::Scan {
            table: TABLE,
            low: Bound::Included(low.into()),
            high: Bound::Included(high.into()),
            columns: Columns::ALL,
            saw: rows,
        });
        Ok(())
    }
}

/// The rows that are there before the programs begin, by key, with their versions.
fn loaded<P: Protocol>(bench: &Bench<P>) -> BTreeMap<seriatim_history::Key, u64> {
    let mut worker = bench.worker();
    worker.begin(Mode::ReadWrite, Priority::NONE);
    let mut row = |id: u64| bench.read(&mut worker, id).expect("it runs alone").map(|_| (id.into(), worker.seen()));
    let versions = (0..KEYS).filter_map(&mut row).map(|(key, seen)| (key, seen.tid.bits())).collect();
    worker.abort();
    versions
}

/// Runs transactions one after another in the order of their TIDs: each must see what it saw. Of transactions with one
/// TID, one that wrote nothing comes last.
fn replay(
    mut committed: Vec<(Tid, &Transaction)>,
    mut rows: BTreeMap<seriatim_history::Key, u64>,
) -> Result<(), String> {
    committed.sort_by_key(|(tid, transaction)| (*tid, transaction.writes.is_empty()));
    for (tid, transaction) in committed {
        let mut saw: Vec<_> = transaction.reads.iter().map(|read| (read.key.clone(), read.saw)).collect();
        for seriatim_history::Scan { low, high, saw: listed, .. } in &transaction.scans {
            let is_listed = |key: &_| listed.iter().any(|(other, _)| other == key);
            let within = rows.keys().filter(|&key| (low.as_ref(), high.as_ref()).contains(key) && !is_listed(key));
            saw.extend(within.map(|key| (key.clone(), Saw::Absent)));
            saw.extend(listed.iter().cloned());
        }
        let refuted = saw.into_iter().find(|(key, saw)| match saw {
            Saw::Row(version) => rows.get(key) != Some(version),
            Saw::Hidden => false,
            _ => rows.contains_key(key),
        });
        if let Some((key, saw)) = refuted {
            return Err(format!("in the order of TIDs {tid} did not see {saw:?} at {key:?}: {transaction:?}"));
        }
        for Write { key, version, deleted, .. } in &transaction.writes {
            if *deleted {
                rows.remove(key)
            } else {
                rows.insert(key.clone(), *version)
            };
        }
    }
    Ok(())
}

/// Programs of reads, insertions, updates, deletions, scans and savepoints at few keys, by this many seeds;
/// by fewer where none can be held.
pub(crate) fn random_programs<P: Protocol>(seeds: u64) {
    let first = rng::given_seed().unwrap_or(0);
    let seeds = if P::INFO.capabilities.detach { seeds } else { seeds / HELD.len() as u64 };
    println!("{seeds} seeds from {first} on");
    let mut committed = 0;
    for seed in KNOWN.into_iter().chain(first..first + seeds) {
        // Versions go to places in their records in every second run, two of a record or one.
        let in_places = seed % 2 == 1 && !KNOWN.contains(&seed);
        let bench = match in_places && seed % 4 == 1 {
            false => Bench::<P>::open(HtmMode::Absent, &[10; 3]),
            true => Bench::<P>::open_with_fixed(HtmMode::Absent, &[10; 3]),
        };
        let clock = AtomicU64::new(1);
        let done = Mutex::new(Vec::new());
        let rows = loaded(&bench);
        let body = |me: u64| {
            let (bench, clock, done) = (&bench, &clock, &done);
            let body: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
                hold(HELD[seed as usize % HELD.len()]);
                let mut rng = Rng::from_seed(seed << 8 | me);
                let mut worker = bench.worker();
                let mut values = Rng::from_seed(!(seed << 8 | me));
                for n in 0..TRANSACTIONS {
                    let seen = Transaction::new(me * 1000 + n + 1).in_session(me as u32);
                    let (advances, values) = (values.below(3), values.fork());
                    let (touched, given) = (BTreeSet::new(), Vec::new());
                    let mut program = Program { bench, seen, touched, savepoint: None, given, values };
                    program.seen.began = clock.fetch_add(1, Ordering::SeqCst);
                    // One of the threads locks what it accesses, in two of three runs.
                    if me == 0 && seed % 3 > 0 {
                        worker.reserve_next();
                    }
                    begin(&mut worker, Mode::ReadWrite);
                    let ran = (0..=rng.below(6)).try_for_each(|_| program.operation(&mut worker, &mut rng));
                    program.rows_stay();
                    let mut redo = Capture(Vec::new());
                    match ran.and_then(|()| worker.commit(&mut redo)) {
                        Ok(Outcome::Committed(tid)) => {
                            program.seen.ended = clock.fetch_add(1, Ordering::SeqCst);
                            program.seen.writes = redo.0;
                            done.lock().expect("no panic with it").push((tid, program.seen));
                        }
                        Ok(Outcome::Repair(_)) => unreachable!("no protocol here repairs"),
                        Err(_) => worker.abort(),
                    }
                    (0..if in_places { advances } else { 0 }).for_each(|_| bench.environment.advance_epoch());
                    if rng.below(3) == 0 {
                        worker.core().local.collect();
                    }
                    worker.collect_garbage(4);
                }
            });
            body
        };
        let ended = take_turns(seed, 3, (0..THREADS).map(body).collect());
        assert!(ended.iter().all(Result::is_ok), "{}: seed {seed}", P::INFO.name);
        let done = done.into_inner().expect("no panic with it");
        committed += done.len();
        if P::INFO.capabilities.tid_order {
            let in_order = done.iter().map(|(tid, transaction)| (*tid, transaction)).collect();
            replay(in_order, rows).unwrap_or_else(|refuted| panic!("{} seed {seed}: {refuted}", P::INFO.name));
        }
        let transactions = done.into_iter().map(|(_, transaction)| transaction).collect();
        let history = History { transactions, initial: Initial::Unknown, ..History::default() };
        let promises = if P::INFO.capabilities.strict { Promises::STRICT } else { Promises::SERIALIZABLE };
        if let Err(violation) = check(&history, &promises) {
            panic!("{} seed {seed}: {violation}\n{}", P::INFO.name, text::dump(&history));
        }
        cleared(&bench, &mut [&mut bench.worker()]);
    }
    assert!(committed as u64 > seeds * TRANSACTIONS / 2, "nothing commits");
}
