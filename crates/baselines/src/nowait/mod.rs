//! No-wait strict two-phase locking with gap locks.
//!
//! Source: Bernstein, Hadzilacos, Goodman, Concurrency Control and Recovery in Database Systems, 1987, ch. 3; the
//! no-wait rule as in Yu et al., Staring into the Abyss, VLDB 2014. `README.md` beside this file has the argument.

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

/// No-wait two-phase locking.
#[derive(Debug)]
pub struct NoWait {
    lock_steps: u32,
}

/// How long an attempt insists on a record's lock.
const LOCK_STEPS: Knob = Knob {
    name: "lock_steps",
    unit: "steps",
    default: 0,
    min: 0,
    max: 1_000_000,
    about: "how often a record's lock that is not free is tried again, before the attempt aborts",
    source: "Yu et al., Staring into the Abyss, VLDB 2014: no-wait aborts at once; HTCC, USENIX ATC 2016, spins \
        within a bound",
};

impl Protocol for NoWait {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "nowait",
        summary: "strict two-phase locking; aborts instead of waiting; locks the gaps of its scans",
        source: "Bernstein, Hadzilacos, Goodman 1987, ch. 3; Yu et al., Staring into the Abyss, VLDB 2014",
        requirements: Requirements { plan: false, regions: false },
        capabilities: Capabilities { ad_hoc: true, strict: true, epoch_order: true, ..Capabilities::NONE },
        options: &[LOCK_STEPS],
        effects: &[],
    };
    /// TID word, version word, lock word.
    const HEADER_BYTES: usize = record_header::bytes(locking::OWN_WORDS);
    const VERSION_HEADER_BYTES: usize = 0;
    type Worker = Worker<false>;

    fn open(options: &Options, _: &Environment) -> NoWait {
        NoWait { lock_steps: options.get(&LOCK_STEPS) as u32 }
    }

    fn worker(&self, core: Core) -> Worker<false> {
        Worker::new(core, self.lock_steps, Duration::ZERO)
    }

    unsafe fn peek_committed(&self, table: &Table, record: RecordPtr, _: Pinned<'_>, _: &mut RowBuffer) -> Peeked {
        record_header::peek(table, record)
    }
}

restore::recovers!(NoWait, GapClaim);

impl Versions for NoWait {
    fn rest(&self, table: &Table, record: RecordPtr) {
        lock_of(table, record).store(0, Ordering::Relaxed);
    }
}
