//! A version that replaces another goes to a place inside its record whose contents no transaction can reach
//! any more.

use std::sync::Arc;

use seriatim_base::{DurablePoint, Epoch};
use seriatim_catalog::{ColumnSet, Key};
use seriatim_htm::HtmMode;
use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Freshness, Inserted, Mode, OnExists, OpError, Peeked, Priority, Protocol, RowBuffer, RowPtr, Worker,
};

use crate::common::{Bench, modes};
use crate::contract::{commit, commits, insert};

/// Rounds of the horizon until a commit of the current epoch is before it, if no worker stays online for
/// longer.
const ROUNDS: u32 = 4;

fn pass<P: Protocol>(bench: &Bench<P>) {
    (0..ROUNDS).for_each(|_| bench.environment.advance_epoch());
}

/// Adds one in a transaction of its own.
fn add<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker) {
    worker.begin(Mode::ReadWrite, Priority::NONE);
    bench.change(worker, 0, |value| value + 1).expect("alone");
    commit(worker).expect("alone");
}

fn record<P: Protocol>(bench: &Bench<P>, pin: Pinned<'_>) -> RecordPtr {
    bench.cells.index.get(Key::Word8(0), pin).expect("it is linked")
}

/// The committed row.
fn peek<P: Protocol>(bench: &Bench<P>, pin: Pinned<'_>) -> RowPtr {
    // SAFETY: the worker is online, and the record is linked.
    match unsafe { bench.protocol.peek_committed(&bench.cells, record(bench, pin), pin, &mut RowBuffer::default()) } {
        Peeked::Row(_, row) => row,
        other => unreachable!("{other:?} of a row that nobody changes now"),
    }
}

/// From the record to the committed row, if the row lies in it.
fn place<P: Protocol>(bench: &Bench<P>, worker: &mut P::Worker) -> Option<usize> {
    worker.core().local.enter();
    let pin = worker.core().local.pinned();
    let at = peek(bench, pin).as_ptr().addr().wrapping_sub(record(bench, pin).as_ptr().addr());
    worker.core().local.leave();
    (at < bench.cells.record_layout.record).then_some(at)
}

fn bench<P: Protocol>(mode: HtmMode, two: bool) -> Bench<P> {
    let bench = if two { Bench::<P>::open_with_fixed(mode, &[1]) } else { Bench::<P>::open(mode, &[1]) };
    assert_eq!(bench.cells.record_layout.second != 0, two);
    bench
}

pub(crate) fn alternate<P: Protocol>() {
    for (mode, two) in modes().into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let bench = bench::<P>(mode, two);
        let mut worker = bench.worker();
        let first = place(&bench, &mut worker).expect("a row is inserted into its record");
        let mut places = Vec::new();
        for _ in 0..6 {
            pass(&bench);
            add(&bench, &mut worker);
            places.push(place(&bench, &mut worker));
        }
        let second = two.then(|| first + bench.cells.record_layout.row_version_bytes());
        assert_eq!(places, [second, Some(first)].repeat(3), "{} on {mode}", P::INFO.name);
        // A version that was just replaced may still be read: two places are not enough.
        let mut soon = Vec::new();
        for _ in 0..3 {
            add(&bench, &mut worker);
            soon.push(place(&bench, &mut worker));
        }
        assert_eq!(soon, [None; 3], "{} on {mode}", P::INFO.name);
        pass(&bench);
        add(&bench, &mut worker);
        assert_eq!(place(&bench, &mut worker), Some(first));
        assert_eq!(bench.state(&[0]), [11]);
    }
}

pub(crate) fn take_no_memory<P: Protocol>() {
    for mode in modes() {
        let bench = bench::<P>(mode, true);
        let mut worker = bench.worker();
        let mut round = || {
            pass(&bench);
            add(&bench, &mut worker);
            (bench.environment.memory.in_use_bytes(), worker.core().local.waiting())
        };
        let after_one = round();
        for _ in 0..20 {
            assert_eq!(round(), after_one, "{} on {mode}: it keeps, or frees later, what it has copied", P::INFO.name);
        }
    }
}

/// An online worker reads the version that it has found, whatever is committed meanwhile; also one that came
/// online in the middle.
pub(crate) fn an_online_worker_keeps_its_row<P: Protocol>() {
    for (mode, two) in modes().into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let bench = bench::<P>(mode, two);
        let mut worker = bench.worker();
        let mut readers: Vec<_> = (0..4).map(|_| bench.environment.core().expect("a free slot")).collect();
        for round in 0..3 {
            let mut held = Vec::new();
            for reader in &mut readers {
                reader.local.enter();
                let row = peek(&bench, reader.local.pinned());
                held.push((row, bench.get(row)));
                for _ in 0..2 {
                    bench.environment.advance_epoch();
                    add(&bench, &mut worker);
                }
                pass(&bench);
            }
            // They leave one by one, the last one first, and what the others hold stays.
            while let Some((row, value)) = held.pop() {
                assert_eq!(bench.get(row), value, "{} on {mode}: round {round}", P::INFO.name);
                readers[held.len()].local.leave();
                pass(&bench);
                (0..2).for_each(|_| add(&bench, &mut worker));
                for &(row, value) in &held {
                    assert_eq!(bench.get(row), value, "{} on {mode}: round {round}", P::INFO.name);
                }
            }
        }
    }
}

/// Where versions are kept until their successor is durable, they are kept in their places.
pub(crate) fn wait_for_the_durable_point<P: Protocol>() {
    for mode in modes() {
        let bench = bench::<P>(mode, true);
        let durable = Arc::new(DurablePoint::new(Epoch(0)));
        bench.environment.memory.keep_versions(Arc::clone(&durable));
        let mut worker = bench.worker();
        worker.core().local.enter();
        let (row, value) = {
            let row = peek(&bench, worker.core().local.pinned());
            (row, bench.get(row))
        };
        worker.core().local.leave();
        for _ in 0..4 {
            pass(&bench);
            add(&bench, &mut worker);
            // The record lives, and so does the place.
            assert_eq!(bench.get(row), value, "{} on {mode}: no commit is durable", P::INFO.name);
        }
        let now = bench.environment.epochs.current();
        durable.advance(now);
        pass(&bench);
        add(&bench, &mut worker);
        assert_ne!(bench.get(row), value, "{} on {mode}: all that replaced it is durable", P::INFO.name);
    }
}

/// A row that was inserted lies in the first place. Another that has the key committed before does not take
/// that from it.
pub(crate) fn an_inserter_keeps_its_row<P: Protocol>() {
    for (mode, two) in modes().into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let bench = bench::<P>(mode, two);
        let (mut late, mut other) = (bench.worker(), bench.worker());
        late.begin(Mode::ReadWrite, Priority::NONE);
        assert_eq!(insert(&bench, &mut late, 5, 77), Ok(Inserted::New));
        let row = late.read(&bench.cells, Key::Word8(5), ColumnSet::ALL).expect("its own").expect("its own");
        other.begin(Mode::ReadWrite, Priority::NONE);
        let put = |other: &mut P::Worker| -> Result<(), OpError> {
            let staged = other.stage(&bench.cells)?;
            bench.set(staged.row, 1);
            other.insert(&bench.cells, Key::Word8(5), staged, OnExists::Replace).map(drop)
        };
        let put = put(&mut other);
        // Where insertions lock, the other waits.
        if commits(&mut other, put) {
            for _ in 0..3 {
                pass(&bench);
                other.begin(Mode::ReadWrite, Priority::NONE);
                bench.change(&mut other, 5, |value| value + 1).expect("alone");
                commit(&mut other).expect("alone");
                assert_eq!(bench.get(row), 77, "{} on {mode}", P::INFO.name);
            }
            assert!(!commits(&mut late, Ok(())), "{} on {mode}: the key was taken", P::INFO.name);
        } else {
            late.abort();
        }
    }
}

/// A snapshot finds what it is to see behind versions that came and went in places.
pub(crate) fn snapshots_see_what_was<P: Protocol>() {
    if P::INFO.capabilities.snapshots == Freshness::None {
        return;
    }
    for (mode, two) in modes().into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let bench = bench::<P>(mode, two);
        let (mut worker, mut readers) = (bench.worker(), (0..4).map(|_| bench.worker()).collect::<Vec<_>>());
        for round in 0..3 {
            let before = bench.state(&[0])[0];
            for (reader, wanted) in readers.iter_mut().zip(before..) {
                reader.begin(Mode::ReadOnly, Priority::NONE);
                pass(&bench);
                add(&bench, &mut worker);
                // The next one sees this.
                assert_eq!(bench.state(&[0]), [wanted + 1]);
            }
            pass(&bench);
            for (reader, wanted) in readers.iter_mut().zip(before..) {
                let seen = bench.read(reader, 0).expect("a snapshot does not fail");
                assert_eq!(seen, Some(wanted), "{} on {mode}: round {round}", P::INFO.name);
            }
            readers.iter_mut().for_each(|reader| reader.abort());
            // Without other workers, places are used.
            for _ in 0..3 {
                pass(&bench);
                add(&bench, &mut worker);
                assert!(place(&bench, &mut worker).is_some() || !two, "{} on {mode}", P::INFO.name);
            }
        }
    }
}
