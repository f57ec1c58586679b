//! `peek_committed`, under every protocol. A reader without a transaction sees committed versions with their own TIDs,
//! each newer than the last. It sees nothing of an open transaction.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::Bench;
use seriatim_base::{Rng, Tid, rng, thread};
use seriatim_catalog::{ColumnUse, Key};
use seriatim_engine::for_each_protocol;
use seriatim_htm::{Emulation, HtmMode};
use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Core, Inserted, Mode, NoRedo, OnExists, OpError, Outcome, Peeked, Priority, Protocol, RowBuffer, RowPtr, Table,
    Worker,
};

/// A version: the TID, and the value if it is a row.
type Version = (Tid, Option<i64>);

/// How a record is looked at.
type Look<P> = fn(&P, &Table, RecordPtr, Pinned<'_>, &mut RowBuffer) -> Peeked;

fn peek<P: Protocol>(
    protocol: &P,
    table: &Table,
    record: RecordPtr,
    pin: Pinned<'_>,
    buffer: &mut RowBuffer,
) -> Peeked {
    // SAFETY: callers find the record under the same pin.
    unsafe { protocol.peek_committed(table, record, pin, buffer) }
}

/// Canary: without the second look at the TID word, and blind to the lock bit.
fn careless<P: Protocol>(_: &P, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
    // SAFETY: the record is linked; the header of the protocol this is used with begins with header and version word.
    let (header, row_version) =
        unsafe { (table.record_layout.header_word(record, 0), table.record_layout.header_word(record, 1)) };
    let tid = Tid::from_bits(header.load(Ordering::Acquire) >> 4);
    thread::yield_now();
    let row = row_version.load(Ordering::Acquire) as usize;
    Peeked::Row(tid, RowPtr::new(row as *mut u8).expect("rows are never deleted under the canary"))
}

/// The result of a peek at a key; `None` if no record is linked. The row may lie in `buffer`.
fn at<P: Protocol>(bench: &Bench<P>, core: &Core, id: u64, look: Look<P>, buffer: &mut RowBuffer) -> Option<Peeked> {
    let pin = core.local.pinned();
    let record = bench.cells.index.get(Key::Word8(id), pin).ok()?;
    Some(look(&bench.protocol, &bench.cells, record, pin, buffer))
}

/// The version a peek found, if it found one.
fn version<P: Protocol>(bench: &Bench<P>, peeked: Peeked) -> Option<Version> {
    match peeked {
        Peeked::Row(tid, row) => Some((tid, Some(bench.get(row)))),
        Peeked::Deleted(tid) => Some((tid, None)),
        Peeked::NeverCommitted | Peeked::Busy => None,
    }
}

fn commit<W: Worker>(worker: &mut W) -> Result<Tid, OpError> {
    match worker.commit(&mut NoRedo)? {
        Outcome::Committed(tid) => Ok(tid),
        Outcome::Repair(_) => unreachable!("no protocol here repairs"),
    }
}

fn insert<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker, id: u64, value: i64) -> Result<bool, OpError> {
    let staged = worker.stage(&bench.cells)?;
    bench.set(staged.row, value);
    Ok(worker.insert(&bench.cells, Key::Word8(id), staged, OnExists::Refuse)? == Inserted::New)
}

fn newest_committed_version_only<P: Protocol>(mode: HtmMode) {
    let bench = Bench::<P>::open(mode, &[10, 11]);
    let mut core = bench.environment.core().expect("a free slot");
    let (mut worker, mut buffer) = (bench.worker(), RowBuffer::default());
    let mut peeked = |id| {
        core.local.enter();
        let peeked = at(&bench, &core, id, peek, &mut buffer);
        let found = peeked.map(|peeked| (peeked, version(&bench, peeked)));
        core.local.leave();
        found
    };
    let loaded = peeked(0).and_then(|(_, version)| version).expect("a row");
    assert_eq!(loaded.1, Some(10));

    worker.begin(Mode::ReadWrite, Priority::NONE);
    assert_eq!(bench.change(&mut worker, 0, |value| value + 1), Ok(11));
    assert!(worker.delete(&bench.cells, Key::Word8(1)).is_ok_and(|row| row.is_some()));
    assert_eq!(insert(&bench, &mut worker, 2, 12), Ok(true));
    assert_eq!(peeked(0).and_then(|(_, version)| version), Some(loaded), "not what is only about to be");
    assert_eq!(peeked(1).and_then(|(_, version)| version), Some((loaded.0, Some(11))));
    assert!(matches!(peeked(2), Some((Peeked::NeverCommitted, _))));
    let tid = commit(&mut worker).expect("alone");
    assert!(tid > loaded.0);
    assert_eq!(peeked(0).and_then(|(_, version)| version), Some((tid, Some(11))));
    assert!(matches!(peeked(1), Some((Peeked::Deleted(deleted), _)) if deleted == tid));
    assert_eq!(peeked(2).and_then(|(_, version)| version), Some((tid, Some(12))));

    worker.begin(Mode::ReadWrite, Priority::NONE);
    assert_eq!(bench.change(&mut worker, 2, |value| value + 1), Ok(13));
    assert_eq!(insert(&bench, &mut worker, 3, 0), Ok(true));
    worker.abort();
    assert_eq!(peeked(2).and_then(|(_, version)| version), Some((tid, Some(12))));
    assert!(matches!(peeked(3), None | Some((Peeked::NeverCommitted, _))));
}

/// Keys that are written, and so how often writers meet.
const KEYS: u64 = 4;

/// One transaction of two writes: what it committed, nothing if it had to abort.
fn write<P: Protocol>(
    bench: &Bench<P>,
    worker: &mut P::Worker,
    rng: &mut Rng,
    value: i64,
    deletes: bool,
) -> Vec<(u64, Version)> {
    let first = rng.below(KEYS);
    worker.begin(Mode::ReadWrite, Priority::NONE);
    let mut one = |id: u64| -> Result<Option<Option<i64>>, OpError> {
        if deletes && rng.below(3) == 0 {
            return Ok(worker.delete(&bench.cells, Key::Word8(id))?.map(|_| None));
        }
        if let Some(updating) = worker.update(&bench.cells, Key::Word8(id), ColumnUse::ALL)? {
            bench.set(updating.after, value);
            return Ok(Some(Some(value)));
        }
        Ok(insert(bench, worker, id, value)?.then_some(Some(value)))
    };
    let ids = [first, (first + 1) % KEYS];
    let written = one(ids[0]).and_then(|first| Ok([first, one(ids[1])?]));
    let Ok((written, tid)) = written.and_then(|written| Ok((written, commit(worker)?))) else {
        worker.abort();
        return Vec::new();
    };
    let versions = ids.into_iter().zip(written);
    versions.filter_map(|(id, written)| written.map(|value| (id, (tid, value)))).collect()
}

/// Writers beside one thread that peeks, until that one has seen enough; then what it was shown is held
/// against what writers committed.
///
/// # Errors
/// The fault of the rows that it saw.
fn hammer<P: Protocol>(mode: HtmMode, seed: u64, deletes: bool, look: Look<P>) -> Result<(), String> {
    let bench = Bench::<P>::open(mode, &(0..KEYS as i64).map(|id| -id - 1).collect::<Vec<_>>());
    let enough = AtomicBool::new(false);
    // Changes that must have been seen before the writers stop.
    let changes = rng::tries(50, 200) as usize;
    let mut core = bench.environment.core().expect("a free slot");
    core.local.enter();
    let mut buffers: [RowBuffer; KEYS as usize] = Default::default();
    let mut loaded = |id| {
        let peeked = at(&bench, &core, id, peek, &mut buffers[0]);
        (id, peeked.and_then(|peeked| version(&bench, peeked)).expect("a row"))
    };
    let mut committed: Vec<(u64, Version)> = (0..KEYS).map(&mut loaded).collect();
    core.local.leave();
    let (written, seen) = thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|number: u64| {
                let (bench, enough) = (&bench, &enough);
                scope.spawn(move || {
                    let (mut worker, mut rng) = (bench.worker(), Rng::from_seed(seed ^ number << 32));
                    let mut written = Vec::new();
                    for round in 0.. {
                        if enough.load(Ordering::Relaxed) {
                            break;
                        }
                        let value = (number << 32 | round) as i64;
                        written.extend(write(bench, &mut worker, &mut rng, value, deletes));
                        worker.collect_garbage(usize::MAX);
                        if round % 8 == 0 {
                            // On few cores the thread that peeks gets its turn.
                            thread::yield_now();
                        }
                        if number == 0 && round % 16 == 0 {
                            bench.environment.advance_epoch();
                        }
                    }
                    written
                })
            })
            .collect();
        let mut seen: Vec<(u64, Version)> = Vec::new();
        let mut now = HashMap::new();
        while seen.len() < changes {
            core.local.enter();
            let shown = [0, 1, 2, 3].map(|id| at(&bench, &core, id, look, &mut buffers[id as usize]));
            let found = shown.map(|shown| shown.and_then(|peeked| version(&bench, peeked)));
            let again = shown.map(|shown| shown.and_then(|peeked| version(&bench, peeked)));
            assert_eq!(again, found, "rows do not change while they are read");
            for (id, found) in (0..KEYS).zip(found) {
                let Some(found) = found else { continue };
                if now.insert(id, found) != Some(found) {
                    seen.push((id, found));
                }
            }
            core.local.leave();
        }
        enough.store(true, Ordering::Relaxed);
        let written: Vec<_> =
            writers.into_iter().flat_map(|writer| writer.join().expect("a writer panicked")).collect();
        (written, seen)
    });
    committed.extend(written);
    let mut versions: HashMap<(u64, Tid), Option<i64>> = HashMap::new();
    let mut newest: HashMap<u64, Version> = HashMap::new();
    for (id, version) in committed {
        assert_eq!(versions.insert((id, version.0), version.1), None, "a TID names one version of a key");
        let newest = newest.entry(id).or_insert(version);
        *newest = (*newest).max(version);
    }
    let mut last = HashMap::new();
    for &(id, (tid, value)) in &seen {
        if versions.get(&(id, tid)) != Some(&value) {
            return Err(format!("key {id} was shown as {value:?} with TID {tid}, which nobody committed"));
        }
        let last = last.insert(id, tid).unwrap_or_default();
        if last > tid {
            return Err(format!("key {id} went back from TID {last} to {tid}"));
        }
    }
    core.local.enter();
    for (id, newest) in newest {
        match at(&bench, &core, id, peek, &mut buffers[0]) {
            Some(peeked) => assert_eq!(version(&bench, peeked), Some(newest), "it runs alone: key {id}"),
            None => assert_eq!(newest.1, None, "only what is deleted is unlinked: key {id}"),
        }
    }
    core.local.leave();
    Ok(())
}

/// Commits by locks, commits mostly in regions, and commits that all fall back, store by store.
fn modes(seed: u64) -> [HtmMode; 3] {
    let emulated = |abort_one_in| HtmMode::Emulated(Emulation { seed, abort_one_in, yields: true });
    [HtmMode::Absent, emulated(8), emulated(1)]
}

macro_rules! under_every_protocol {
    ($($name:ident => $protocol:path,)*) => {
        mod under {
            use super::*;
            $(
                mod $name {
                    use super::*;

                    #[test]
                    fn a_peek_sees_the_newest_committed_version_and_nothing_else() {
                        modes(3).into_iter().for_each(newest_committed_version_only::<$protocol>);
                    }

                    #[test]
                    fn a_peeked_version_was_committed_and_never_goes_back() {
                        let seed = rng::seed(stringify!($name));
                        for mode in modes(seed) {
                            for deletes in [false, true] {
                                hammer::<$protocol>(mode, seed, deletes, peek)
                                    .unwrap_or_else(|wrong| panic!("{mode:?}, deletes {deletes}: {wrong}"));
                            }
                        }
                    }
                }
            )*
        }
    };
}
for_each_protocol!(under_every_protocol);

/// As the others, with every record hot.
mod hot {
    use super::*;

    under_every_protocol! { htcc => seriatim_test_protocols::all_hot::AllHot, }
}

#[test]
fn a_careless_peek_is_caught() {
    let seed = rng::seed("a careless peek");
    let mode = HtmMode::Emulated(Emulation { seed, abort_one_in: 1, yields: true });
    for round in 0..400 {
        if let Err(wrong) = hammer::<seriatim_protocol::dbx::Dbx>(mode, seed + round, false, careless) {
            println!("caught in round {round}: {wrong}");
            return;
        }
    }
    panic!("the canary is alive");
}
