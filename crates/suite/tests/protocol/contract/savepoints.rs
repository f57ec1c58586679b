//! `rollback_to` undoes writes and no reads. The schedules are write skew. One transaction's only look at a cell is a
//! write that it takes back. The other reads what the first writes and then writes that cell. At most one of them may
//! commit.

use seriatim_catalog::Key;
use seriatim_txn::{Inserted, Mode, OpError, Priority, Protocol, Worker};

use crate::common::{Bench, modes};
use crate::contract::{commits, insert};

/// The cells that the schedules begin with: two rows, and a key without one.
const VALUES: [i64; 2] = [1, 1];
const ABSENT: u64 = 9;

/// Runs the schedule: `look` is rolled back, `refute` changes what it saw. Each is also run alone, to exclude
/// transactions that would not have committed anyway.
fn skew<P: Protocol>(
    look: impl Fn(&Bench<P>, &mut P::Worker) -> Result<(), OpError>,
    refute: impl Fn(&Bench<P>, &mut P::Worker) -> Result<(), OpError>,
) {
    for mode in modes() {
        for (with_first, with_second) in [(true, false), (false, true), (true, true)] {
            let bench = Bench::<P>::open(mode, &VALUES);
            let (mut first, mut second) = (bench.worker(), bench.worker());
            let (mut looked, mut committed) = (Ok(()), [false; 2]);
            if with_first {
                first.begin(Mode::ReadWrite, Priority::NONE);
                let savepoint = first.savepoint();
                looked = look(&bench, &mut first);
                if looked.is_ok() {
                    first.rollback_to(savepoint);
                }
            }
            if with_second {
                second.begin(Mode::ReadWrite, Priority::NONE);
                let steps = bench.read(&mut second, 1).and_then(|_| refute(&bench, &mut second));
                committed[1] = commits(&mut second, steps);
            }
            if with_first {
                let steps = looked.and_then(|()| bench.change(&mut first, 1, |value| -value));
                committed[0] = commits(&mut first, steps);
            }
            assert_eq!(bench.state(&[1]), [if committed[0] { -1 } else { 1 }]);
            if with_first && with_second {
                assert_ne!(committed, [true; 2], "{} on {mode}: both committed", P::INFO.name);
            } else {
                assert_eq!(committed, [with_first, with_second], "{} on {mode}: alone", P::INFO.name);
            }
        }
    }
}

pub(crate) fn rolled_back_update<P: Protocol>() {
    skew::<P>(
        |bench, worker| bench.change(worker, 0, |value| value + 10).map(drop),
        |bench, worker| bench.change(worker, 0, |_| 0).map(drop),
    );
}

pub(crate) fn rolled_back_delete<P: Protocol>() {
    skew::<P>(
        |bench, worker| worker.delete(&bench.cells, Key::Word8(0)).map(drop),
        |bench, worker| worker.delete(&bench.cells, Key::Word8(0)).map(drop),
    );
}

pub(crate) fn rolled_back_insert<P: Protocol>() {
    let inserted = |bench: &Bench<P>, worker: &mut P::Worker| {
        insert(bench, worker, ABSENT, 5).map(|inserted| assert_eq!(inserted, Inserted::New))
    };
    skew::<P>(inserted, inserted);
}
