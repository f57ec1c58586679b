//! Wait-die strict two-phase locking with gap locks: an older transaction waits for younger ones, a younger one dies.
//!
//! Source: Rosenkrantz, Stearns, Lewis, System Level Concurrency Control for Distributed Database Systems,
//! TODS 1978, §4. Locking as in Bernstein, Hadzilacos, Goodman, Concurrency Control and Recovery in Database Systems,
//! 1987, ch. 3. `README.md` beside this file has the argument.

use std::sync::atomic::Ordering;
use std::time::Duration;

use seriatim_memory::Pinned;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Capabilities, Core, Environment, Knob, Options, Peeked, Protocol, ProtocolInfo, Requirements, RowBuffer, Table,
};

use crate::shared::locking::{self, GapClaim, Worker, lock_of};
use crate::shared::record_header;
use crate::shared::restore::{self, Versions};

/// Wait-die two-phase locking.
#[derive(Debug)]
pub struct WaitDie {
    wait_max: Duration,
}

/// How long an older transaction waits for one lock.
const WAIT_MAX: Knob = Knob {
    name: "wait_max_us",
    unit: "us",
    default: 1_000_000,
    min: 0,
    max: 3_600_000_000,
    about: "how long a transaction waits for one lock that younger ones hold, before it is run again",
    source: "ours: far above what a transaction takes; no cycle of waits forms, so only holders that idle are waited \
        for so long",
};

impl Protocol for WaitDie {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "wait-die",
        summary: "strict two-phase locking; older transactions wait for younger ones, younger ones abort; locks gaps",
        source: "Rosenkrantz, Stearns, Lewis, System Level Concurrency Control, TODS 1978",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities {
            ad_hoc: true,
            strict: true,
            epoch_order: true,
            priorities: true,
            ..Capabilities::NONE
        },
        options: &[WAIT_MAX],
        effects: &[],
    };
    /// TID word, version word, lock word.
    const HEADER_BYTES: usize = record_header::bytes(locking::OWN_WORDS);
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker<true>;

    fn open(options: &Options, _: &Environment) -> WaitDie {
        WaitDie { wait_max: Duration::from_micros(options.get(&WAIT_MAX)) }
    }

    fn worker(&self, core: Core) -> Worker<true> {
        Worker::new(core, 0, self.wait_max)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(WaitDie, GapClaim);

impl Versions for WaitDie {
    fn rest(&self, table: &Table, record: RecordPtr) {
        lock_of(table, record).store(0, Ordering::Relaxed);
    }
}
