//! The report of a commit: each write once, with its TID, its row and the row of the version just below. So the reports
//! on a key, in the order of their TIDs, form one chain without a gap, whichever worker made them.

use std::collections::BTreeMap;

use seriatim_base::{Rng, Tid, rng, thread};
use seriatim_catalog::{ColumnUse, Key};
use seriatim_txn::{Before, Mode, OnExists, OpError, Outcome, Priority, Protocol, Redo, RowPtr, Table, Worker};

use crate::common::{Bench, modes};

const KEYS: u64 = 6;
const TRANSACTIONS: u64 = 1500;

/// A reported write: TID, row before with its TID, row after.
type Reported = (Tid, Option<(Tid, i64)>, Option<i64>);

/// Keeps what is reported.
struct Log<'b, P: Protocol> {
    bench: &'b Bench<P>,
    writes: Vec<(u64, Reported)>,
}

impl<P: Protocol> Redo for Log<'_, P> {
    fn write(&mut self, table: &Table, key: Key<'_>, tid: Tid, before: Option<Before>, after: Option<RowPtr>) {
        assert_eq!(table.id, self.bench.cells.id);
        let Key::Word8(id) = key else { panic!("a key of another class: {key:?}") };
        let value = |row: RowPtr| self.bench.get(row);
        let before = before.map(|before| (before.tid, value(before.row)));
        self.writes.push((id, (tid, before, after.map(value))));
    }
}

/// One random change of a key.
fn change<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, rng: &mut Rng, value: i64) -> Result<(), OpError> {
    let key = Key::Word8(rng.below(KEYS));
    match rng.below(4) {
        0 => drop(worker.delete(&bench.cells, key)?),
        1 => {
            if let Some(updating) = worker.update(&bench.cells, key, ColumnUse::ALL)? {
                bench.set(updating.after, value);
            }
        }
        exists => {
            let staged = worker.stage(&bench.cells)?;
            bench.set(staged.row, value);
            let exists = if exists == 2 { OnExists::Refuse } else { OnExists::Replace };
            let _ = worker.insert(&bench.cells, key, staged, exists)?;
        }
    }
    Ok(())
}

/// Transactions of several changes, some of them taken back; how many committed. There are more of them while
/// none could, as another may stand still with all that it has locked.
fn run<P: Protocol>(bench: &Bench<P>, rng: &mut Rng, number: i64, log: &mut Log<'_, P>) -> u64 {
    let (mut worker, mut committed) = (bench.worker(), 0);
    for round in 0.. {
        if round >= TRANSACTIONS && committed > 0 {
            break;
        }
        worker.begin(Mode::ReadWrite, Priority::NONE);
        let mut steps = || {
            for step in 0..1 + rng.below(4) as i64 {
                let savepoint = worker.savepoint();
                change(bench, &mut worker, rng, (round as i64 * 8 + step) * 2 + number)?;
                if rng.below(4) == 0 {
                    worker.rollback_to(savepoint);
                }
            }
            worker.commit(log)
        };
        match steps() {
            Ok(outcome) => {
                assert!(matches!(outcome, Outcome::Committed(_)));
                committed += 1;
            }
            Err(_) => worker.abort(),
        }
        worker.collect_garbage(usize::MAX);
        if round % 64 == 0 {
            bench.environment.advance_epoch();
            thread::yield_now();
        }
    }
    committed
}

pub(crate) fn chains<P: Protocol>(name: &str) {
    let seed = rng::seed(name);
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[-1, -2]);
        let mut reports = Vec::new();
        thread::scope(|scope| {
            let bench = &bench;
            let spawn = |number: i64| {
                scope.spawn(move || {
                    let mut log = Log { bench, writes: Vec::new() };
                    let committed = run(bench, &mut Rng::from_seed(seed + number as u64), number, &mut log);
                    (committed, log.writes)
                })
            };
            for worker in [spawn(0), spawn(1)] {
                let (committed, writes) = worker.join().expect("a worker panicked");
                assert!(committed > 0, "{name} on {mode}: nothing committed");
                reports.extend(writes);
            }
        });
        let mut keys: BTreeMap<u64, Vec<Reported>> = BTreeMap::new();
        reports.into_iter().for_each(|(id, reported)| keys.entry(id).or_default().push(reported));
        for (id, mut reported) in keys {
            reported.sort_unstable();
            let mut now = [-1, -2].get(id as usize).copied();
            let mut last = Tid::ZERO;
            for (tid, before, after) in reported {
                assert!(tid > last, "{name} on {mode}: key {id}: {tid} names two versions");
                let expected = now.map(|value| (last, value));
                assert!(
                    before == expected || last == Tid::ZERO && before.map(|(_, value)| value) == now,
                    "{name} on {mode}: key {id}: {tid} replaced {before:?}, not {expected:?}"
                );
                assert!(before.is_some() || after.is_some(), "{name} on {mode}: key {id}: {tid} changed nothing");
                (now, last) = (after, tid);
            }
            let mut worker = bench.worker();
            worker.begin(Mode::ReadWrite, Priority::NONE);
            assert_eq!(bench.read(&mut worker, id), Ok(now), "{name} on {mode}: key {id}");
            worker.abort();
        }
    }
}
