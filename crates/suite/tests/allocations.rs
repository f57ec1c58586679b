//! Once warm, a transaction allocates nothing on the heap, unless it waits for a batch: not its input, not
//! its execution, not its output.

use seriatim::{Database, ProtocolInfo};
use seriatim_base::allocation::{Watching, watch};
use seriatim_base::size::as_shipped;
use seriatim_workload::tpcc::{Mix, Options, Scale, Tpcc};
use seriatim_workload::{Ending, Loading, Workload, articles, five_five, multi_key, smallbank, tatp, twelve_key, ycsb};

#[global_allocator]
static ALLOCATOR: Watching = Watching;

const TRANSACTIONS: u64 = 2000;

/// Allocations of a transaction whose body rolls it back.
const OF_A_ROLLBACK: u64 = 3;

/// So many are of one epoch: what is kept for readers of the past comes in waves of one size.
const WAVE: u64 = 100;

/// Allocations of this many transactions after as many to warm up. One that is rolled back because its body says so may
/// make [`OF_A_ROLLBACK`], which do not count: its error, and what carries it.
fn allocations(protocol: &str, workload: &dyn Workload) -> u64 {
    let db = Database::builder().protocol(protocol).step_helpers(true).open().expect("a database opens");
    workload.load(&db, &Loading::default()).expect("loading succeeds");
    let (mut session, mut terminal) = (db.session(), workload.terminal(&db, 0, 1).expect("it is loaded"));
    let mut wave = |_| {
        let mut rollbacks = 0;
        let ((), made, _) = watch(|| {
            for _ in 0..WAVE {
                rollbacks += u64::from(matches!(terminal.run_one(&mut session).ending, Ending::UserAborted));
            }
        });
        db.advance_epoch();
        made.saturating_sub(OF_A_ROLLBACK * rollbacks)
    };
    (0..TRANSACTIONS / WAVE).map(&mut wave).for_each(drop);
    (0..TRANSACTIONS / WAVE).map(wave).sum()
}

/// Allocations that may be made when a database's lists grow: fewer than three for each. Replaced versions may be kept
/// for readers of the past. There a list may also grow by a wave that is larger than those before.
fn growth(protocol: &ProtocolInfo) -> u64 {
    let waves = if protocol.capabilities.snapshots.is_bounded() { TRANSACTIONS / WAVE } else { 0 };
    2 + 3 * waves
}

#[test]
#[ignore = "nightly: half a minute"]
fn transactions_do_not_allocate() {
    // Small sizes, which the tests of other crates ask for, would have lists of free blocks and hash tables
    // grow all the time.
    as_shipped();
    // Where decisions are queued, each allocates its place in the queue and the input of its batch's order.
    let queues = |protocol: &str| {
        let db = Database::builder().protocol(protocol).open().expect("a database opens");
        db.statistics().queue.is_some()
    };
    for protocol in seriatim::available_protocols().iter().filter(|protocol| !queues(protocol.name)) {
        for kind in 0..5 {
            let mut mix = Mix([0; 5]);
            mix.0[kind] = 1;
            let tpcc = Tpcc::new(Options { mix, ..Options::new(Scale::small(2), 1) });
            let made = allocations(protocol.name, &tpcc);
            assert!(made <= growth(protocol), "{} tpcc kind {kind}: {made}", protocol.name);
        }
        for core in [ycsb::Core::A, ycsb::Core::D, ycsb::Core::E, ycsb::Core::F] {
            let ycsb = ycsb::Ycsb::new(ycsb::Options::core(core, 1000, 1));
            let made = allocations(protocol.name, &ycsb);
            assert!(made <= growth(protocol), "{} ycsb {core:?}: {made}", protocol.name);
        }
        let pairs = twelve_key::Options { multi: 50, abort: 10, ..twelve_key::Options::default() };
        let others: [Box<dyn Workload>; 7] = [
            Box::new(smallbank::SmallBank::new(smallbank::Options::new(1000, 1))),
            Box::new(tatp::Tatp::new(tatp::Options::new(1000, 1))),
            Box::new(articles::Articles::new(articles::Options::new(500, 1))),
            Box::new(twelve_key::TwelveKey::new(pairs)),
            Box::new(twelve_key::TwelveKey::new(twelve_key::Options { rounds: twelve_key::Rounds::Two, ..pairs })),
            Box::new(five_five::FiveFive::new(five_five::Options { objects: 1000, theta: 0.9 })),
            Box::new(multi_key::MultiKey::new(multi_key::Options { records: 1000, theta: 0.8 })),
        ];
        for workload in others {
            let made = allocations(protocol.name, workload.as_ref());
            assert!(made <= growth(protocol), "{} {}: {made}", protocol.name, workload.name());
        }
    }
}
