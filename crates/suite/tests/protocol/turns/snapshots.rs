//! A snapshot that is taken while a commit is under way.

use std::cell::Cell;

use seriatim_base::Epoch;
use seriatim_catalog::Key;
use seriatim_htm::HtmMode;
use seriatim_txn::{Freshness, Mode, NoRedo, Peeked, Priority, Protocol, RowBuffer, Worker};

use crate::common::Bench;
use crate::turns::{attempt, cleared, every_step, passed};

/// The reader begins before any step of a commit, in an epoch of its own. It reads one of the two rows at once if that
/// is not locked. Both are of one state, and the commit is of the epoch in which it had its locks.
pub(crate) fn taken_amid_a_commit<P: Protocol>() {
    if P::INFO.capabilities.snapshots == Freshness::None {
        return;
    }
    // A snapshot that the reader makes, and, where snapshots are eventual, the newest that was made.
    [u64::MAX, 0].map(Epoch).into_iter().for_each(taken_so::<P>);
}

fn taken_so<P: Protocol>(includes: Epoch) {
    let seen_early = Cell::new(0);
    every_step(|at| {
        let bench = Bench::<P>::open(HtmMode::Absent, &[5, -5]);
        passed(&bench);
        let (mut reader, mut writer) = (bench.worker(), bench.worker());
        let first = Cell::new(None);
        let other = || {
            bench.environment.advance_epoch();
            reader.core().includes = includes;
            reader.begin(Mode::ReadOnly, Priority::NONE);
            let local = &reader.core().local;
            let record = bench.cells.index.get(Key::Word8(0), local.pinned()).expect("it is linked");
            let mut buffer = RowBuffer::default();
            // SAFETY: online; the table's record.
            let found = unsafe { bench.protocol.peek_committed(&bench.cells, record, local.pinned(), &mut buffer) };
            let is_locked = matches!(found, Peeked::Busy);
            drop(buffer);
            if !is_locked {
                first.set(bench.read(&mut reader, 0).expect("snapshots do not fail"));
            }
        };
        let (committed, interrupted) = crate::turns::interrupt(at, other, || {
            attempt(&mut writer, |worker| {
                bench.change(worker, 0, |value| value + 1)?;
                bench.change(worker, 1, |value| value - 1)
            })
        });
        let (tid, _) = committed.expect("a snapshot is in nobody's way");
        assert!(interrupted || tid.epoch() == bench.environment.epochs.current());
        if interrupted {
            let mut read = |id| bench.read(&mut reader, id).expect("as above").expect("it is there");
            let both = (first.get().unwrap_or_else(|| read(0)), read(1));
            seen_early.update(|seen| seen + u32::from(both.0 == 5));
            assert!(matches!(both, (5, -5) | (6, -6)), "before step {at}: {both:?}");
            assert!(reader.commit(&mut NoRedo).is_ok());
        }
        cleared(&bench, &mut [&mut reader, &mut writer]);
        interrupted
    });
    assert!(seen_early.get() > 3, "it was taken before the locks");
}
