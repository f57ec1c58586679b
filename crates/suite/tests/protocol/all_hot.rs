//! `htcc` with every record hot from its first commit on, as a protocol of its own.

use seriatim_base::Tid;
use seriatim_catalog::Key;
use seriatim_memory::{OutOfMemory, Pinned};
use seriatim_protocol::htcc::Htcc;
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Change, Core, Environment, Near, Options, Peeked, Protocol, ProtocolInfo, Recover, Restored, RowBuffer, Table,
};

#[allow(dead_code, reason = "not all tests tell it from the others")]
pub(crate) const NAME: &str = "htcc, all hot";

pub(crate) struct AllHot(Htcc);

impl Protocol for AllHot {
    const INFO: ProtocolInfo = ProtocolInfo { name: NAME, ..Htcc::INFO };
    const HEADER_BYTES: usize = Htcc::HEADER_BYTES;
    const VERSION_HEADER_BYTES: usize = Htcc::VERSION_HEADER_BYTES;
    type Worker = <Htcc as Protocol>::Worker;

    fn open(_: &Options, environment: &Environment) -> AllHot {
        let all = Options::new(&Htcc::INFO, &[("hot".to_owned(), 2)]).expect("it has the option");
        AllHot(Htcc::open(&all, environment))
    }

    fn worker(&self, core: Core) -> Self::Worker {
        self.0.worker(core)
    }

    unsafe fn peek_committed(
        &self,
        table: &Table,
        record: RecordPtr,
        pin: Pinned<'_>,
        buffer: &mut RowBuffer,
    ) -> Peeked {
        // SAFETY: the caller's promise.
        unsafe { self.0.peek_committed(table, record, pin, buffer) }
    }
}

impl Recover for AllHot {
    unsafe fn restore(
        &self,
        core: &mut Core,
        table: &Table,
        key: Key<'_>,
        near: Near<'_>,
        tid: Tid,
        change: Change<'_>,
    ) -> Result<Restored, OutOfMemory> {
        // SAFETY: the caller's promise.
        unsafe { self.0.restore(core, table, key, near, tid, change) }
    }

    unsafe fn finish_restore(&self, core: &mut Core, table: &Table) {
        // SAFETY: the caller's promise.
        unsafe { self.0.finish_restore(core, table) }
    }
}
