//! Schedules of a hostile reviewer.
mod common;

use common::{Bench, modes};
use seriatim_base::Stamp;
use seriatim_catalog::{ColumnSet, Key};
use seriatim_protocol::for_each_protocol;
use seriatim_store::Direction;
use seriatim_txn::{Inserted, Mode, NoRedo, OnExists, Outcome, Protocol, Scan, Stop, Worker};

fn commit<W: Worker>(worker: &mut W) -> Result<Stamp, Stop> {
    match worker.commit(&mut NoRedo)? {
        Outcome::Committed(stamp) => Ok(stamp),
        Outcome::Repair(_) => unreachable!(),
    }
}

/// What an update saw that was rolled back stays read.
fn rewound_update<P: Protocol>() -> Option<String> {
    let mut bad = None;
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1, 1]);
        let (mut a, mut b) = (bench.worker(), bench.worker());
        a.begin(Mode::ReadWrite, Stamp::ZERO);
        let mark = a.mark();
        let Ok(saw) = bench.change(&mut a, 0, |v| v) else { continue };
        a.rewind(mark);
        // b: reads 1, clears 0.
        b.begin(Mode::ReadWrite, Stamp::ZERO);
        let step = bench.read(&mut b, 1).and_then(|v| bench.change(&mut b, 0, |_| 0).map(|_| v));
        let b_done = match step {
            Ok(_) => commit(&mut b).is_ok(),
            Err(_) => false,
        };
        if !b_done {
            b.abort();
        }
        // a: row 1 := what it saw of 0, negated.
        let a_done = bench.change(&mut a, 1, |_| -saw).is_ok() && commit(&mut a).is_ok();
        if !a_done {
            a.abort();
        }
        if a_done && b_done {
            bad = Some(format!("{}: write skew past a savepoint: {:?}", P::INFO.name, bench.state(&[0, 1])));
        }
    }
    bad
}

/// As above, with an insert that proved an absence.
fn rewound_insert<P: Protocol>() -> Option<String> {
    let mut bad = None;
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1]);
        let (mut a, mut b) = (bench.worker(), bench.worker());
        let insert = |w: &mut P::Worker, v: i64| {
            let staged = w.stage(&bench.cells)?;
            bench.set(staged.row, v);
            w.insert(&bench.cells, Key::Word8(9), staged, OnExists::Refuse)
        };
        a.begin(Mode::ReadWrite, Stamp::ZERO);
        let mark = a.mark();
        assert_eq!(insert(&mut a, 5), Ok(Inserted::New));
        a.rewind(mark);
        b.begin(Mode::ReadWrite, Stamp::ZERO);
        let step = bench.read(&mut b, 0).and_then(|_| insert(&mut b, 7));
        let b_done = step == Ok(Inserted::New) && commit(&mut b).is_ok();
        if !b_done {
            b.abort();
        }
        let a_done = bench.change(&mut a, 0, |_| -1).is_ok() && commit(&mut a).is_ok();
        if !a_done {
            a.abort();
        }
        if a_done && b_done {
            bad = Some(format!("{}: a saw 9 absent and b saw 0 unchanged; both committed", P::INFO.name));
        }
    }
    bad
}

/// A commit's stamp lies above that of every delete it saw the effect of.
fn scanned_removed<P: Protocol>() -> Option<String> {
    let mut bad = None;
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1, 1]);
        let mut d = bench.worker();
        for _ in 0..10 {
            d.begin(Mode::ReadWrite, Stamp::ZERO);
            bench.change(&mut d, 1, |v| v + 1).unwrap();
            commit(&mut d).unwrap();
        }
        d.begin(Mode::ReadWrite, Stamp::ZERO);
        assert!(d.delete(&bench.cells, Key::Word8(1)).unwrap().is_some());
        let deleted = commit(&mut d).unwrap();
        d.core().local.collect();
        let mut a = bench.worker();
        a.begin(Mode::ReadWrite, Stamp::ZERO);
        let mut scan = Scan::default();
        bench
            .cells
            .index
            .scan(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, Direction::Forward, &mut scan.cursor)
            .unwrap();
        assert!(a.scan_next(&bench.cells, &mut scan, ColumnSet::ALL).unwrap().is_some());
        d.housekeep(usize::MAX);
        let gone = bench.cells.index.get(Key::Word8(1), a.core().local.pinned()).is_err();
        eprintln!("{} gone {gone}", P::INFO.name);
        let rest = a.scan_next(&bench.cells, &mut scan, ColumnSet::ALL);
        let Ok(None) = rest else {
            eprintln!("{rest:?}");
            a.abort();
            continue;
        };
        let Ok(_) = bench.change(&mut a, 0, |v| v + 1) else {
            a.abort();
            continue;
        };
        match commit(&mut a) {
            Ok(stamp) if stamp <= deleted => {
                bad = Some(format!(
                    "{}: gone={gone} saw the delete of {deleted:?} and committed with {stamp:?}",
                    P::INFO.name
                ))
            }
            Ok(_) => {}
            Err(_) => a.abort(),
        }
    }
    bad
}

/// A read-only transaction that saw a delete has a stamp at or above it.
fn absent_stamp<P: Protocol>() -> Option<String> {
    let mut bad = None;
    for mode in modes() {
        let bench = Bench::<P>::open(mode, &[1, 1]);
        let mut d = bench.worker();
        d.begin(Mode::ReadWrite, Stamp::ZERO);
        assert!(d.delete(&bench.cells, Key::Word8(1)).unwrap().is_some());
        let deleted = commit(&mut d).unwrap();
        d.core().local.collect();
        d.housekeep(usize::MAX);
        let mut a = bench.worker();
        a.begin(Mode::ReadOnly, Stamp::ZERO);
        assert_eq!(bench.read(&mut a, 1), Ok(None));
        let stamp = commit(&mut a).unwrap();
        if stamp < deleted {
            bad = Some(format!("{}: reader of the absence has {stamp:?}, the delete {deleted:?}", P::INFO.name));
        }
    }
    bad
}

/// Prefetching conflicts with nothing.
fn prefetch_conflicts<P: Protocol>() -> Option<String> {
    let mut bad = None;
    for hint in [false, true] {
        let bench = Bench::<P>::open(seriatim_htm::HtmMode::Absent, &[1]);
        let (mut a, mut b) = (bench.worker(), bench.worker());
        a.begin(Mode::ReadWrite, Stamp::ZERO);
        let staged = a.stage(&bench.cells).unwrap();
        bench.set(staged.row, 3);
        assert_eq!(a.insert(&bench.cells, Key::Word8(9), staged, OnExists::Refuse), Ok(Inserted::New));
        b.begin(Mode::ReadWrite, Stamp::ZERO);
        if hint {
            b.prefetch(&bench.cells, Key::Word8(9));
            b.advance_prefetch();
            b.advance_prefetch();
        }
        a.abort();
        let read = bench.read(&mut b, 9);
        if read.is_err() {
            bad = Some(format!("{} hint {hint}: {read:?}", P::INFO.name));
        }
        b.abort();
    }
    bad
}

/// Work after a transaction is bounded.
fn sweep_bound<P: Protocol>() -> Option<String> {
    let values = vec![1; 20_000];
    let bench = Bench::<P>::open(seriatim_htm::HtmMode::Absent, &values);
    let mut d = bench.worker();
    d.begin(Mode::ReadWrite, Stamp::ZERO);
    for id in 1..20_000 {
        assert!(d.delete(&bench.cells, Key::Word8(id)).unwrap().is_some());
    }
    commit(&mut d).unwrap();
    let mut o = bench.worker();
    let mut linked = || {
        o.begin(Mode::ReadWrite, Stamp::ZERO);
        let pin = o.core().local.pinned();
        let n = (1..20_000).filter(|&id| bench.cells.index.get(Key::Word8(id), pin).is_ok()).count();
        o.abort();
        n
    };
    let mut worst = 0;
    let mut counts = vec![];
    for _ in 0..5 {
        let before = linked();
        d.begin(Mode::ReadWrite, Stamp::ZERO);
        bench.read(&mut d, 0).unwrap();
        commit(&mut d).unwrap();
        d.housekeep(64);
        worst = worst.max(before - linked());
        counts.push(linked());
    }
    (worst > 1000)
        .then(|| format!("{}: one housekeep after a read unlinked {worst} records; left {counts:?}", P::INFO.name))
}

macro_rules! every {
    ($($protocol:ident => $type:path,)*) => { $(mod $protocol {
        #[test] fn rewound_update() { assert_eq!(super::rewound_update::<$type>(), None) }
        #[test] fn rewound_insert() { assert_eq!(super::rewound_insert::<$type>(), None) }
        #[test] fn scanned_removed() { assert_eq!(super::scanned_removed::<$type>(), None) }
        #[test] fn prefetch_conflicts() { assert_eq!(super::prefetch_conflicts::<$type>(), None) }
        #[test] fn sweep_bound() { assert_eq!(super::sweep_bound::<$type>(), None) }
        #[test] fn absent_stamp() { assert_eq!(super::absent_stamp::<$type>(), None) }
    })* };
}
for_each_protocol!(every);
