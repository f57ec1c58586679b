//! A protocol that differs from an existing one in one behaviour.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use seriatim_base::Tid;
use seriatim_catalog::Key;
use seriatim_htm::Whole;
use seriatim_memory::{Memory, OutOfMemory, Pinned};
use seriatim_store::RecordPtr;
use seriatim_txn::{
    Change, Core, DatabaseSettings, Environment, HotRecord, Near, Options, Partitions, Peeked, Protocol, ProtocolInfo,
    Recover, Restored, RowBuffer, Table, Validator, Worker,
};

/// The difference.
pub trait Alteration: Send + Sync + 'static {
    /// The protocol that is altered.
    type Base: Recover;
    /// The altered worker.
    type Worker: Worker;
    /// The line of the registry.
    const INFO: ProtocolInfo;

    /// Opens the protocol that is altered.
    fn open(options: &Options, environment: &Environment) -> Self::Base {
        Self::Base::open(options, environment)
    }

    /// A worker.
    fn worker(base: &Self::Base, core: Core, memory: &Memory) -> Self::Worker;

    /// Alters what was peeked.
    fn peeked(_: &Table, peeked: Peeked, _: &mut RowBuffer) -> Peeked {
        peeked
    }
}

/// The altered protocol.
#[derive(Debug)]
pub struct Altered<A: Alteration> {
    base: A::Base,
    memory: Memory,
    alteration: PhantomData<A>,
}

impl<A: Alteration> Protocol for Altered<A> {
    const INFO: ProtocolInfo = A::INFO;
    const HEADER_BYTES: usize = A::Base::HEADER_BYTES;
    const VERSION_HEADER_BYTES: usize = A::Base::VERSION_HEADER_BYTES;
    type Worker = A::Worker;

    fn check(options: &Options, settings: &DatabaseSettings<'_>) -> Result<(), String> {
        A::Base::check(options, settings)
    }

    fn open(options: &Options, environment: &Environment) -> Altered<A> {
        let memory = environment.memory.clone();
        Altered { base: A::open(options, environment), memory, alteration: PhantomData }
    }

    fn worker(&self, core: Core) -> A::Worker {
        A::worker(&self.base, core, &self.memory)
    }

    fn whole(&self) -> Option<Whole> {
        self.base.whole()
    }

    fn partitions(&self) -> Option<(Arc<Partitions>, Duration)> {
        self.base.partitions()
    }

    fn validator(&self) -> Option<Box<dyn Validator>> {
        self.base.validator()
    }

    fn hot_records(&self) -> Option<Vec<HotRecord>> {
        self.base.hot_records()
    }

    unsafe fn peek_committed(
        &self,
        table: &Table,
        record: RecordPtr,
        pin: Pinned<'_>,
        buffer: &mut RowBuffer,
    ) -> Peeked {
        // SAFETY: the caller's promise.
        let peeked = unsafe { self.base.peek_committed(table, record, pin, buffer) };
        A::peeked(table, peeked, buffer)
    }
}

impl<A: Alteration> Recover for Altered<A> {
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
        unsafe { self.base.restore(core, table, key, near, tid, change) }
    }

    unsafe fn finish_restore(&self, core: &mut Core, table: &Table) {
        // SAFETY: the caller's promise.
        unsafe { self.base.finish_restore(core, table) }
    }
}
